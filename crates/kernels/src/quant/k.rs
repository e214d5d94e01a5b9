//! ggml's K formats: super-blocks of 256 quants.
#![allow(non_camel_case_types)] // ggml's names.

use super::SuperBlock;
use crate::Format;

/// 2-bit quants; scale and minimum of 16 quants in a byte.
pub(crate) struct Q2_K;
/// 3-bit quants minus 4; 6-bit scales of 16.
pub(crate) struct Q3_K;
/// 4-bit quants; 6-bit scales and minima of 32.
pub(crate) struct Q4_K;
/// 5-bit quants; 6-bit scales and minima of 32.
pub(crate) struct Q5_K;
/// 6-bit quants minus 32; 8-bit scales of 16.
pub(crate) struct Q6_K;

/// 2-bit fields: in each 32 bytes the lowest fields are quants 0..32, the next 32..64, and so on.
#[inline(always)]
pub(super) fn two_bits(bytes: &[u8]) -> [u8; 256] {
    let mut quants = [0; 256];
    for (i, quant) in quants.iter_mut().enumerate() {
        *quant = bytes[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
    }
    quants
}

/// In each 32 bytes the lower nibbles are quants 0..32, the upper ones 32..64.
#[inline(always)]
fn four_bits(bytes: &[u8]) -> [u8; 256] {
    let mut quants = [0; 256];
    for (i, quant) in quants.iter_mut().enumerate() {
        *quant = bytes[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
    }
    quants
}

/// Bit i / 32 of byte i % 32.
#[inline(always)]
fn bit(bytes: &[u8], i: usize) -> u8 {
    bytes[i % 32] >> (i / 32) & 1
}

/// Q4_K's and Q5_K's twelve bytes: eight 6-bit scales and eight 6-bit minima, each for two
/// sixteens.
/// The first four of each are the lower six bits of bytes 0..4 and 4..8.
/// The last four have their lower bits in the nibbles of bytes 8..12.
/// Their upper bits are above those of the first four.
#[inline(always)]
pub(super) fn scales_and_minima(bytes: &[u8]) -> [[u8; 8]; 2] {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (scale, minimum, low) = (word(0), word(4), word(8));
    let both = |first: u32, last: u32| (u64::from(last) << 32 | u64::from(first)).to_le_bytes();
    let (six, four, two) = (0x3f3f_3f3f, 0x0f0f_0f0f, 0x3030_3030);
    let scales = both(scale & six, low & four | scale >> 2 & two);
    let minima = both(minimum & six, low >> 4 & four | minimum >> 2 & two);
    [scales, minima]
}

/// Each applies to two sixteens.
#[inline(always)]
fn twice([scales, minima]: [[u8; 8]; 2]) -> ([i8; 16], [u8; 16]) {
    (std::array::from_fn(|i| scales[i / 2] as i8), std::array::from_fn(|i| minima[i / 2]))
}

impl SuperBlock for Q2_K {
    const FORMAT: Format = Format::Q2_K;
    const MINIMA: bool = true;
    const SCALE_AT: usize = 80;

    #[inline(always)]
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]) {
        (std::array::from_fn(|i| (block[i] & 15) as i8), std::array::from_fn(|i| block[i] >> 4))
    }

    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        two_bits(&block[16..80]).map(|quant| quant as i8)
    }
}

impl SuperBlock for Q3_K {
    const FORMAT: Format = Format::Q3_K;
    const SCALE_AT: usize = 108;

    /// The lower nibbles of eight bytes, then their upper ones; the upper two bits in four bytes,
    /// four scales to a bit pair; minus 32.
    #[inline(always)]
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]) {
        let bytes = &block[96..108];
        let scales = std::array::from_fn(|i| {
            let lower = bytes[i % 8] >> (i / 8 * 4) & 15;
            let upper = bytes[8 + i % 4] >> (i / 4 * 2) & 3;
            (lower | upper << 4) as i8 - 32
        });
        (scales, [0; 16])
    }

    /// A set third bit means that 4 is not subtracted.
    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        let low = two_bits(&block[32..96]);
        std::array::from_fn(|i| (low[i] | bit(block, i) << 2) as i8 - 4)
    }
}

impl SuperBlock for Q4_K {
    const FORMAT: Format = Format::Q4_K;
    const MINIMA: bool = true;
    const SCALE_AT: usize = 0;

    #[inline(always)]
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]) {
        twice(scales_and_minima(&block[4..16]))
    }

    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        four_bits(&block[16..144]).map(|quant| quant as i8)
    }
}

impl SuperBlock for Q5_K {
    const FORMAT: Format = Format::Q5_K;
    const MINIMA: bool = true;
    const SCALE_AT: usize = 0;

    #[inline(always)]
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]) {
        twice(scales_and_minima(&block[4..16]))
    }

    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        let low = four_bits(&block[48..176]);
        std::array::from_fn(|i| (low[i] | bit(&block[16..48], i) << 4) as i8)
    }
}

impl SuperBlock for Q6_K {
    const FORMAT: Format = Format::Q6_K;
    const SCALE_AT: usize = 208;

    #[inline(always)]
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]) {
        (std::array::from_fn(|i| block[192 + i] as i8), [0; 16])
    }

    /// In each 64 bytes the lower nibbles are quants 0..64, the upper ones 64..128.
    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        let high = two_bits(&block[128..192]);
        std::array::from_fn(|i| {
            let low = block[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
            (low | high[i] << 4) as i8 - 32
        })
    }
}
