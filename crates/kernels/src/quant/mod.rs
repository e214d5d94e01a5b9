//! The encodings of all weight formats, and their dot products.
//!
//! A row of weights is processed in chunks of 256 quants (64 floats).
//! A [`Codec`] unpacks a chunk once and multiplies it with any number of rows of activations.
//! There are four families of formats.
//! [`Float`]s are plain floats.
//! [`Block`]s have 32 quants and a scale each.
//! [`SuperBlock`]s have 256 quants and scales of scales.
//! [`SubBlock`]s have 16 quants and a float scale each.
//! A codec is written once for a family and an instruction set ([`scalar`], `avx2`, `neon`).
//! Each format defines only how its quants and scales are packed ([`legacy`], [`k`], [`codebook`],
//! [`iq`], [`ternary`], [`sub_blocks`], [`float`]).
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
pub(crate) mod sub_blocks;
pub(crate) mod ternary;

use half::f16;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::dotprod;

use crate::Format;
use crate::activations::Activations;
use crate::format::SUPER_BLOCK;
use crate::lanes::LANES;

/// Unpacks chunks of one format and multiplies them, with one instruction set.
///
/// # Safety
/// The functions may only be called where that instruction set is available.
pub(crate) trait Codec {
    /// Numbers per chunk.
    const LEN: usize;
    /// Bytes per chunk.
    const BYTES: usize;
    /// A chunk of weights, unpacked.
    type Chunk;

    /// Unpacks [`Codec::BYTES`] bytes.
    unsafe fn unpack(bytes: &[u8]) -> Self::Chunk;

    /// Adds the products of a chunk with the corresponding chunk of a row of activations.
    unsafe fn dot(chunk: &Self::Chunk, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]);
}

/// Codecs that can return the numbers.
pub(crate) trait Dequantize: Codec {
    /// The first numbers of a chunk, as many as `y` holds.
    fn dequantize(chunk: &Self::Chunk, y: &mut [f32]);
}

/// A format of plain floats, multiplied with f32 activations: number i goes to lane i % 8.
pub(crate) trait Float {
    /// Bytes per number.
    const BYTES: usize;

    /// The number in little-endian bytes.
    fn widen(bytes: &[u8]) -> f32;
}

/// A format of blocks of 32 numbers: number i is `scale * quant[i] + offset`.
/// Eight blocks are a chunk; their eight sums of integers go to the eight lanes.
pub(crate) trait Block {
    const FORMAT: Format;
    /// Whether blocks have an offset.
    const OFFSET: bool = false;

    /// The scale of a block: a half-precision number at its start, unless otherwise defined.
    #[inline(always)]
    fn scale(block: &[u8]) -> f32 {
        half_at(block, 0)
    }

    /// The offset of a block, which follows the scale.
    #[inline(always)]
    fn offset(block: &[u8]) -> f32 {
        if Self::OFFSET { half_at(block, 2) } else { 0.0 }
    }

    /// The quants of a block.
    /// Within -128..=127.
    fn quants(block: &[u8]) -> [i8; 32];
}

/// A format of super-blocks of 256 numbers: number i is
/// `scale * scales[i / 16] * quant[i] - minimum * minima[i / 16]`.
/// A super-block is a chunk; its sum of integers goes to the lane of its index.
pub(crate) trait SuperBlock {
    const FORMAT: Format;
    /// Whether the format has minima.
    const MINIMA: bool = false;
    /// Offset of the half-precision scale of scales; that of minima follows.
    const SCALE_AT: usize;
    /// A factor of the scale of scales.
    const SCALE_FACTOR: f32 = 1.0;

    /// The super-block scale of scales, and that of minima.
    #[inline(always)]
    fn scale(block: &[u8]) -> (f32, f32) {
        let minimum = if Self::MINIMA { half_at(block, Self::SCALE_AT + 2) } else { 0.0 };
        (half_at(block, Self::SCALE_AT) * Self::SCALE_FACTOR, minimum)
    }

    /// The integer scales and minima (0..=63) for each sixteen quants; ones unless otherwise
    /// defined.
    #[inline(always)]
    fn scales(_block: &[u8]) -> ([i8; 16], [u8; 16]) {
        ([1; 16], [0; 16])
    }

    /// The quants.
    /// Within -128..=127.
    fn quants(block: &[u8]) -> [i8; 256];
}

/// A format of sub-blocks of sixteen, whose scales are floats rather than integers times a
/// super-block scale:
/// number i is `scales[i / 16] * quant[i]`.
/// 256 numbers are a chunk; the sum of integers of sub-block i goes to lane
/// `i % 2 * 4 + i / 2 % 4`.
pub(crate) trait SubBlock {
    const FORMAT: Format;
    /// Bytes per chunk.
    const BYTES: usize = SUPER_BLOCK / Self::FORMAT.block_len() * Self::FORMAT.block_bytes();

    /// The scales of a chunk.
    fn scales(chunk: &[u8]) -> [f32; 16];

    /// The quants of a chunk.
    fn quants(chunk: &[u8]) -> [i8; 256];
}

/// Decodes `bytes` to numbers.
///
/// # Panics
/// Unless `y` has a whole number of blocks and `bytes` are those blocks.
pub fn dequantize(format: Format, bytes: &[u8], y: &mut [f32]) {
    assert_eq!(Some(bytes.len()), format.row_bytes(y.len()), "{} numbers in {}", y.len(), format.name());
    with_codec!(format, scalar, C => dequantize_with::<C>(bytes, y));
}

fn dequantize_with<C: Dequantize>(bytes: &[u8], y: &mut [f32]) {
    let mut padded = [0; MAX_BYTES];
    for (bytes, y) in bytes.chunks(C::BYTES).zip(y.chunks_mut(C::LEN)) {
        // SAFETY: plain Rust works anywhere.
        let chunk = unsafe { C::unpack(whole::<C>(bytes, &mut padded)) };
        C::dequantize(&chunk, y);
    }
}

/// Bytes of the largest chunk: eight blocks of Q8_0.
pub(crate) const MAX_BYTES: usize = 8 * 34;

/// The bytes of a whole chunk: a truncated last chunk of a row is copied to `zeros`.
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

/// Evaluates an expression with `$F` bound to a format's type.
///
/// Takes either one expression for each family of formats, or a list of formats, which the caller
/// knows to be complete.
macro_rules! with_format {
    ($format:expr, $F:ident => {
        float: $float:expr, block: $block:expr, super_block: $super_block:expr, sub_block: $sub_block:expr $(,)?
    }) => {
        $crate::quant::with_format!(@match $format, $F;
            float [F32 F16 BF16] $float;
            legacy [Q4_0 Q4_1 Q5_0 Q5_1 Q8_0] $block; codebook [MXFP4 IQ4_NL] $block;
            k [Q2_K Q3_K Q4_K Q5_K Q6_K] $super_block; codebook [IQ4_XS] $super_block;
            iq [IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S] $super_block; ternary [TQ1_0 TQ2_0] $super_block;
            sub_blocks [NVFP4 Q1_0] $sub_block)
    };
    ($format:expr, $F:ident in $($file:ident [$($name:ident)+])+ => $body:expr) => {
        match $format {
            $($($crate::Format::$name => {
                #[allow(dead_code)] // Not every expression names it.
                type $F = $crate::quant::$file::$name;
                $body
            })+)+
            other => unreachable!("no kernel of this kind for {}", other.name()),
        }
    };
    (@match $format:expr, $F:ident; $($file:ident [$($name:ident)+] $body:expr);+) => {
        match $format {
            $($($crate::Format::$name => {
                #[allow(dead_code)] // Not every expression names it.
                type $F = $crate::quant::$file::$name;
                $body
            })+)+
        }
    };
}
pub(crate) use with_format;

/// Evaluates an expression with `$C` bound to the codec of a format for an instruction set.
macro_rules! with_codec {
    ($format:expr, $isa:ident, $C:ident => $body:expr) => {
        $crate::quant::with_format!($format, F => {
            float: { type $C = $crate::quant::$isa::Floats<F>; $body },
            block: { type $C = $crate::quant::$isa::Blocks<F>; $body },
            super_block: { type $C = $crate::quant::$isa::SuperBlocks<F>; $body },
            sub_block: { type $C = $crate::quant::$isa::SubBlocks<F>; $body },
        })
    };
}
pub(crate) use with_codec;

#[cfg(test)]
mod tests;
