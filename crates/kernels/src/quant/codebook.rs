//! Formats in which a nibble is an index into a table of sixteen numbers.
#![allow(non_camel_case_types)] // ggml's names.

use super::Block;
use super::SuperBlock;
use super::legacy::nibbles;
use crate::Format;

/// 4-bit floats with a power of two: OCP's Microscaling formats, section 5.
pub(crate) struct MXFP4;
/// A table with one scale per block.
pub(crate) struct IQ4_NL;
/// IQ4_NL's table with 6-bit scales of 32 quants.
pub(crate) struct IQ4_XS;

/// Twice the values of an E2M1 float (sign, two bits of exponent, one of mantissa), so that they
/// are integers.
pub(crate) const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
/// ggml's table of unevenly spaced values.
pub(crate) const UNEVEN: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// 2^(exponent - 128): an E8M0 scale, halved because [`E2M1`] is doubled.
/// 0 and 1 are subnormal; 255 is treated as a regular exponent.
#[inline(always)]
pub(crate) fn e8m0_half(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0 => 0x0020_0000,
        1 => 0x0040_0000,
        _ => (u32::from(exponent) - 1) << 23,
    })
}

impl Block for MXFP4 {
    const FORMAT: Format = Format::MXFP4;

    #[inline(always)]
    fn scale(block: &[u8]) -> f32 {
        e8m0_half(block[0])
    }

    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 32] {
        nibbles(&block[1..]).map(|place| E2M1[usize::from(place)])
    }
}

impl Block for IQ4_NL {
    const FORMAT: Format = Format::IQ4_NL;

    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 32] {
        nibbles(&block[2..]).map(|place| UNEVEN[usize::from(place)])
    }
}

impl SuperBlock for IQ4_XS {
    const FORMAT: Format = Format::IQ4_XS;
    const SCALE_AT: usize = 0;

    /// First the upper two bits of all eight, then the lower four; minus 32.
    #[inline(always)]
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]) {
        let upper = u16::from_le_bytes([block[2], block[3]]);
        let mut scales = [0; 16];
        for (i, scale) in scales.iter_mut().enumerate() {
            let sub_block = i / 2;
            let lower = block[4 + sub_block / 2] >> (4 * (sub_block % 2)) & 15;
            *scale = (lower | ((upper >> (2 * sub_block) & 3) << 4) as u8) as i8 - 32;
        }
        (scales, [0; 16])
    }

    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        let mut quants = [0; 256];
        for (sub_block, bytes) in quants.as_chunks_mut().0.iter_mut().zip(block[8..].chunks_exact(16)) {
            *sub_block = nibbles(bytes).map(|place| UNEVEN[usize::from(place)]);
        }
        quants
    }
}
