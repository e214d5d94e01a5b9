//! What the bytes of each weight format mean, and their dot products.
//!
//! A row of weights is worked through in panels.
//! A [`Codec`] unpacks a panel once and multiplies it with any number of rows of activations.
//! There are four families of formats: [`Float`]s, [`Run`]s of 32 codes with a scale each,
//! [`Super`]blocks of 256 codes with scales of scales, and [`Sixteen`]s with a scale each.
//! A codec is written once for a family and an instruction set ([`scalar`], [`avx2`], [`neon`]); what is
//! particular to a format is how its codes and scales are packed ([`legacy`], [`k`], [`codebook`],
//! [`iq`], [`ternary`], [`sixteens`], [`float`]).
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
pub(crate) mod codebook;
pub(crate) mod float;
pub(crate) mod grids;
pub(crate) mod iq;
pub(crate) mod k;
pub(crate) mod legacy;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod scalar;
pub(crate) mod sixteens;
pub(crate) mod ternary;

use half::f16;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::dotprod;

use crate::Format;
use crate::activations::Activations;
use crate::lanes::LANES;

/// Numbers in a panel of codes.
pub(crate) const PANEL: usize = 256;
/// Numbers in a run.
pub(crate) const RUN: usize = 32;
/// Numbers in a panel of floats.
pub(crate) const FLOATS: usize = 64;

/// How panels of one format are unpacked and multiplied with one instruction set.
///
/// # Safety
/// The functions may only be called where that instruction set is available.
pub(crate) trait Codec {
    /// Numbers in a panel.
    const LEN: usize;
    /// Bytes of a panel.
    const BYTES: usize;
    /// A panel of weights, unpacked.
    type Panel;

    /// Unpacks [`Codec::BYTES`] bytes.
    unsafe fn unpack(bytes: &[u8]) -> Self::Panel;

    /// Adds the products of a panel with the same panel of a row of activations.
    unsafe fn dot(panel: &Self::Panel, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]);
}

/// Codecs that give numbers back.
pub(crate) trait Numbers: Codec {
    /// The first numbers of a panel, as many as `y` takes.
    fn numbers(panel: &Self::Panel, y: &mut [f32]);
}

/// A format of plain floats, multiplied with f32 activations: number i goes to lane i % 8.
pub(crate) trait Float {
    /// Bytes of a number.
    const BYTES: usize;

    /// The number in little-endian bytes.
    fn widen(bytes: &[u8]) -> f32;
}

/// A format of blocks of 32 numbers: number i is `scale * code[i] + offset`.
/// Eight blocks are a panel; their eight sums of integers go to the eight lanes.
pub(crate) trait Run {
    /// The format.
    const FORMAT: Format;
    /// Whether blocks have an offset.
    const OFFSET: bool = false;

    /// The scale of a block.
    fn scale(block: &[u8]) -> f32;

    /// The offset of a block.
    fn offset(_block: &[u8]) -> f32 {
        0.0
    }

    /// The codes of a block.
    /// Within -128..=127.
    fn codes(block: &[u8]) -> [i8; 32];
}

/// A format of superblocks of 256 numbers: number i is `scale * scales[i / 16] * code[i] - minimum * minima[i / 16]`. A
/// superblock is a panel; its sum of integers goes to the lane of its index.
pub(crate) trait Super {
    /// The format.
    const FORMAT: Format;
    /// Whether there are minima.
    const MINIMA: bool = false;

    /// The scale of scales, and the scale of minima.
    fn scale(block: &[u8]) -> (f32, f32);

    /// The integer scales and minima (0..=63) of each sixteen codes.
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]);

    /// The codes.
    /// Within -128..=127.
    fn codes(block: &[u8]) -> [i8; 256];
}

/// A format of which each sixteen numbers have a scale that is no integer times another: number i
/// is `scales[i / 16] * code[i]`.
/// Blocks of 256 numbers are a panel; the sum of integers of sixteen i goes to lane `i % 2 * 4 + i
/// / 2 % 4`.
pub(crate) trait Sixteen {
    /// The format.
    const FORMAT: Format;
    /// Bytes of a panel.
    const BYTES: usize = PANEL / Self::FORMAT.block_len() * Self::FORMAT.block_bytes();

    /// The scales of a panel.
    fn scales(panel: &[u8]) -> [f32; 16];

    /// The codes of a panel.
    fn codes(panel: &[u8]) -> [i8; 256];
}

/// The numbers that `bytes` stand for.
///
/// # Panics
/// Unless `y` is a whole number of blocks and `bytes` are those blocks.
pub fn dequantize(format: Format, bytes: &[u8], y: &mut [f32]) {
    assert_eq!(Some(bytes.len()), format.row_bytes(y.len()), "{} numbers in {}", y.len(), format.name());
    with_codec!(format, scalar, C => dequantize_with::<C>(bytes, y));
}

fn dequantize_with<C: Numbers>(bytes: &[u8], y: &mut [f32]) {
    let mut padded = [0; MAX_BYTES];
    for (bytes, y) in bytes.chunks(C::BYTES).zip(y.chunks_mut(C::LEN)) {
        // SAFETY: plain Rust runs anywhere.
        let panel = unsafe { C::unpack(whole::<C>(bytes, &mut padded)) };
        C::numbers(&panel, y);
    }
}

/// Bytes of the largest panel: eight blocks of Q8_0.
pub(crate) const MAX_BYTES: usize = 8 * 34;

/// The bytes of a whole panel: the last one of a row, if cut short, is copied to `zeros`.
#[inline(always)]
pub(crate) fn whole<'a, C: Codec>(bytes: &'a [u8], zeros: &'a mut [u8; MAX_BYTES]) -> &'a [u8] {
    if bytes.len() == C::BYTES {
        return bytes;
    }
    zeros[..bytes.len()].copy_from_slice(bytes);
    &zeros[..C::BYTES]
}

/// The half-precision number at `at`.
#[inline(always)]
fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32_const()
}

/// Evaluates an expression with type `$C`: the codec of a format for an instruction set.
macro_rules! with_codec {
    ($format:expr, $isa:ident, $C:ident => $body:expr) => {
        $crate::quant::with_codec!($format, $isa, $C => $body;
            F32: Floats<float>, F16: Floats<float>, BF16: Floats<float>,
            Q4_0: Runs<legacy>, Q4_1: Runs<legacy>, Q5_0: Runs<legacy>, Q5_1: Runs<legacy>, Q8_0: Runs<legacy>,
            Q2_K: Supers<k>, Q3_K: Supers<k>, Q4_K: Supers<k>, Q5_K: Supers<k>, Q6_K: Supers<k>,
            MXFP4: Runs<codebook>, IQ4_NL: Runs<codebook>, IQ4_XS: Supers<codebook>,
            IQ1_S: Supers<iq>, IQ1_M: Supers<iq>, IQ2_XXS: Supers<iq>, IQ2_XS: Supers<iq>, IQ2_S: Supers<iq>,
            IQ3_XXS: Supers<iq>, IQ3_S: Supers<iq>, TQ1_0: Supers<ternary>, TQ2_0: Supers<ternary>,
            NVFP4: Sixteens<sixteens>, Q1_0: Sixteens<sixteens>)
    };
    ($format:expr, $isa:ident, $C:ident => $body:expr; $($name:ident: $codec:ident<$file:ident>),*) => {
        match $format {$(
            $crate::Format::$name => {
                type $C = $crate::quant::$isa::$codec<$crate::quant::$file::$name>;
                $body
            }
        )*}
    };
}
pub(crate) use with_codec;

#[cfg(test)]
mod tests;
