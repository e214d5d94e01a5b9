//! ggml's IQ formats: super-blocks of patterns from a codebook ([`grids`]), with separate signs, or
//! (IQ1) shifted up or down by an eighth.
//! Scales are odd numbers.
#![allow(non_camel_case_types)] // ggml's names.

use super::{SuperBlock, grids, half_at};
use crate::Format;

/// Patterns of eight out of 256; four bits of scale per 32, and seven signs per eight, since their
/// number is even.
pub(crate) struct IQ2_XXS;
/// Patterns of eight out of 512; scales of sixteen, signs as in IQ2_XXS.
pub(crate) struct IQ2_XS;
/// Patterns of eight out of 1024; scales of sixteen, all signs stored.
pub(crate) struct IQ2_S;
/// Patterns of four out of 256; scales of 32, signs as in IQ2_XXS.
pub(crate) struct IQ3_XXS;
/// Patterns of four out of 512; scales of 32, all signs stored.
pub(crate) struct IQ3_S;
/// Patterns of eight out of 2048, with numbers -1, 0 or 1.
/// Three bits of scale and a direction per 32.
pub(crate) struct IQ1_S;
/// IQ1_S with a scale per sixteen and a direction per eight; the super-block's scale is in the
/// upper bits of the others.
pub(crate) struct IQ1_M;

/// Bytes as little-endian words.
#[inline(always)]
pub(crate) fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

#[inline(always)]
pub(crate) fn short(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// Nibble `i` of the bytes, lower nibbles first.
#[inline(always)]
pub(crate) fn nibble(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 2] >> (4 * (i % 2)) & 15
}

/// Scales of sixteen quants each, in nibbles.
#[inline(always)]
fn odd_nibbles(bytes: &[u8]) -> [i8; 16] {
    let mut scales = [0; 16];
    for (two, byte) in scales.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *two = [byte & 15, byte >> 4].map(|scale| 2 * scale as i8 + 1);
    }
    scales
}

/// Scales of 32 quants each.
#[inline(always)]
fn odd_sub_blocks(scale: impl Fn(usize) -> u8) -> [i8; 16] {
    let mut scales = [0; 16];
    for (sub_block, two) in scales.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        *two = [2 * scale(sub_block) as i8 + 1; 2];
    }
    scales
}

/// Seven signs, and an eighth that makes their number even.
#[inline(always)]
fn even(signs: u32) -> u8 {
    let seven = (signs & 127) as u8;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Patterns with signs as bits: a set bit means negative.
#[inline(always)]
fn signed<const N: usize>(patterns: impl Fn(usize) -> [u8; N], signs: impl Fn(usize) -> u8) -> [i8; 256] {
    let mut quants = [0; 256];
    for (i, quants) in quants.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        let (pattern, signs) = (patterns(i), signs(i * N / 8) >> (i * N % 8));
        for (j, (quant, magnitude)) in quants.iter_mut().zip(pattern).enumerate() {
            *quant = if signs >> j & 1 == 1 { -(magnitude as i8) } else { magnitude as i8 };
        }
    }
    quants
}

impl SuperBlock for IQ2_XXS {
    const FORMAT: Format = Format::IQ2_XXS;
    const SCALE_AT: usize = 0;
    const SCALE_FACTOR: f32 = 0.125;

    #[inline(always)]
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]) {
        (odd_sub_blocks(|sub_block| block[2 + 8 * sub_block + 7] >> 4), [0; 16])
    }

    /// For each sub-block, four pattern numbers of one byte each, then four times seven signs.
    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        signed(
            |i| grids::IQ2_XXS[usize::from(block[2 + i / 4 * 8 + i % 4])].to_le_bytes(),
            |i| even(word(block, 2 + i / 4 * 8 + 4) >> (7 * (i % 4))),
        )
    }
}

impl SuperBlock for IQ2_XS {
    const FORMAT: Format = Format::IQ2_XS;
    const SCALE_AT: usize = 0;
    const SCALE_FACTOR: f32 = 0.125;

    #[inline(always)]
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]) {
        (odd_nibbles(&block[66..74]), [0; 16])
    }

    /// Nine bits of pattern, seven of signs.
    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        signed(
            |i| grids::IQ2_XS[usize::from(short(block, 2 + 2 * i) & 511)].to_le_bytes(),
            |i| even(u32::from(short(block, 2 + 2 * i) >> 9)),
        )
    }
}

impl SuperBlock for IQ2_S {
    const FORMAT: Format = Format::IQ2_S;
    const SCALE_AT: usize = 0;
    const SCALE_FACTOR: f32 = 0.125;

    #[inline(always)]
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]) {
        (odd_nibbles(&block[74..82]), [0; 16])
    }

    /// Eight bits of each pattern, then all signs, then the upper two bits of each pattern.
    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        let upper = |i: usize| usize::from(block[66 + i / 4] >> (2 * (i % 4)) & 3) << 8;
        signed(|i| grids::IQ2_S[usize::from(block[2 + i]) | upper(i)].to_le_bytes(), |i| block[34 + i])
    }
}

impl SuperBlock for IQ3_XXS {
    const FORMAT: Format = Format::IQ3_XXS;
    const SCALE_AT: usize = 0;
    const SCALE_FACTOR: f32 = 0.25;

    #[inline(always)]
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]) {
        (odd_sub_blocks(|sub_block| block[66 + 4 * sub_block + 3] >> 4), [0; 16])
    }

    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        signed(
            |i| grids::IQ3_XXS[usize::from(block[2 + i])].to_le_bytes(),
            |i| even(word(block, 66 + i / 4 * 4) >> (7 * (i % 4))),
        )
    }
}

impl SuperBlock for IQ3_S {
    const FORMAT: Format = Format::IQ3_S;
    const SCALE_AT: usize = 0;

    #[inline(always)]
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]) {
        (odd_sub_blocks(|sub_block| nibble(&block[106..110], sub_block)), [0; 16])
    }

    /// Eight bits of each pattern, then the ninth bits, then all signs.
    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        let ninth = |i: usize| usize::from(block[66 + i / 8] >> (i % 8) & 1) << 8;
        signed(|i| grids::IQ3_S[usize::from(block[2 + i]) | ninth(i)].to_le_bytes(), |i| block[74 + i])
    }
}

/// Patterns of -1, 0 and 1, multiplied by eight, with one subtracted if `down`, otherwise added.
#[inline(always)]
fn moved(patterns: impl Fn(usize) -> usize, down: impl Fn(usize) -> bool) -> [i8; 256] {
    let mut quants = [0; 256];
    for (i, quants) in quants.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let by = if down(i) { -9 } else { -7 };
        *quants = grids::IQ1[patterns(i)].to_le_bytes().map(|value| value as i8 + by);
    }
    quants
}

impl SuperBlock for IQ1_S {
    const FORMAT: Format = Format::IQ1_S;
    const SCALE_AT: usize = 0;
    const SCALE_FACTOR: f32 = 0.125;

    #[inline(always)]
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]) {
        let scale = |i: usize| 2 * (short(block, 34 + i / 2 * 2) >> 12 & 7) as i8 + 1;
        (std::array::from_fn(scale), [0; 16])
    }

    /// Eight bits of each pattern; then for each sub-block the upper three of four patterns, the
    /// scale, and the direction.
    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        let upper = |i: usize| short(block, 34 + i / 4 * 2);
        moved(
            |i| usize::from(u16::from(block[2 + i]) | (upper(i) >> (3 * (i % 4)) & 7) << 8),
            |i| upper(i) & 0x8000 != 0,
        )
    }
}

impl SuperBlock for IQ1_M {
    const FORMAT: Format = Format::IQ1_M;
    /// The offset of the four words that contain it.
    const SCALE_AT: usize = 48;

    #[inline(always)]
    fn scale(block: &[u8]) -> (f32, f32) {
        let nibble = |i: usize| short(block, Self::SCALE_AT + 2 * i) >> 12 << (4 * i);
        let bits = nibble(0) | nibble(1) | nibble(2) | nibble(3);
        (half_at(&bits.to_le_bytes(), 0) * 0.125, 0.0)
    }

    #[inline(always)]
    fn scales(block: &[u8]) -> ([i8; 16], [u8; 16]) {
        let scale = |i: usize| 2 * (short(block, 48 + i / 4 * 2) >> (3 * (i % 4)) & 7) as i8 + 1;
        (std::array::from_fn(scale), [0; 16])
    }

    /// Eight bits of each pattern; then for each pattern its upper three bits and the direction.
    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        let upper = |i: usize| nibble(&block[32..48], i);
        moved(|i| usize::from(block[i]) | usize::from(upper(i) & 7) << 8, |i| upper(i) & 8 != 0)
    }
}
