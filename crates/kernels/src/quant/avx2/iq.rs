//! Unpacks the patterns of the IQ formats into vectors.
//! The scalar versions document the layouts.
//!
//! Patterns are looked up one by one: this takes as many loads as a gather, and is faster on most
//! CPUs.
//! Their numbers and signs are computed for a whole block at once.

use std::arch::x86_64::*;

use super::unpack::{bytes, load, set_bits};
use super::{Encoding, SimdSuperBlock};
use crate::quant::SuperBlock;
use crate::quant::grids;
use crate::quant::iq::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, nibble, short};

/// A sub-block's four patterns of eight, with the numbers in `at`.
///
/// # Safety
/// The numbers are in range.
#[inline(always)]
unsafe fn eights<const N: usize, I: Copy + Into<usize>>(
    patterns: &[u64; N],
    at: &[I; 32],
    sub_block: usize,
) -> __m256i {
    let pattern = |i: usize| *patterns.get_unchecked(at[4 * sub_block + i].into()) as i64;
    _mm256_setr_epi64x(pattern(0), pattern(1), pattern(2), pattern(3))
}

/// As [`eights`], eight patterns of four.
#[inline(always)]
unsafe fn fours<const N: usize, I: Copy + Into<usize>>(
    patterns: &[u32; N],
    at: &[I; 64],
    sub_block: usize,
) -> __m256i {
    let pattern = |i: usize| *patterns.get_unchecked(at[8 * sub_block + i].into()) as i32;
    _mm256_setr_epi32(
        pattern(0),
        pattern(1),
        pattern(2),
        pattern(3),
        pattern(4),
        pattern(5),
        pattern(6),
        pattern(7),
    )
}

/// Magnitudes with signs, given as bits, plus a zero point.
#[inline(always)]
unsafe fn signed(magnitudes: __m256i, signs: u32, zero_point: i16) -> __m256i {
    let below = set_bits(signs);
    let flipped = _mm256_xor_si256(magnitudes, below);
    _mm256_add_epi8(_mm256_sub_epi8(flipped, below), bytes(zero_point as u8))
}

/// The zero point of a format.
const fn zero_point<F: SimdSuperBlock>() -> i16 {
    match F::ENCODING {
        Encoding::Unsigned(zero_point) => zero_point,
        Encoding::Signed => 0,
    }
}

/// Adds to bytes of seven bits the eighth that makes the number of set bits even; the eighth must
/// be zero.
#[inline(always)]
unsafe fn even(sevens: __m256i) -> __m256i {
    // The top bit for nibbles with an odd number of bits.
    let odd = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0,
    ));
    let low = _mm256_shuffle_epi8(odd, _mm256_and_si256(sevens, bytes(15)));
    let high = _mm256_shuffle_epi8(odd, _mm256_and_si256(_mm256_srli_epi16::<4>(sevens), bytes(15)));
    _mm256_or_si256(sevens, _mm256_xor_si256(low, high))
}

/// The lower 28 bits of eight words, as four times seven signs with the eighth added.
#[inline(always)]
unsafe fn signs_of_words(words: __m256i) -> [u32; 8] {
    let seven = |v: __m256i, at: i32| _mm256_and_si256(v, _mm256_set1_epi32(127 << at));
    let first = _mm256_or_si256(seven(words, 0), seven(_mm256_slli_epi32::<1>(words), 8));
    let last =
        _mm256_or_si256(seven(_mm256_slli_epi32::<2>(words), 16), seven(_mm256_slli_epi32::<3>(words), 24));
    let mut signs = [0; 8];
    _mm256_storeu_si256(signs.as_mut_ptr().cast(), even(_mm256_or_si256(first, last)));
    signs
}

/// Sixteen bytes widened to words, with `upper` as their upper bytes.
#[inline(always)]
unsafe fn with_upper(lower: *const u8, upper: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_cvtepu8_epi16(_mm_loadu_si128(lower.cast())), upper)
}

impl SimdSuperBlock for IQ2_XXS {
    const ENCODING: Encoding = Encoding::Unsigned(43);
    const MAX_QUANT: u8 = 86;
    const SUB_BLOCKS_OF_16: bool = false;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        let (first, last) = (load(block.add(2)), load(block.add(34)));
        // Words 0, 2, 1, 3 of each half: patterns, then signs.
        let parted = |v: __m256i| _mm256_shuffle_epi32::<0b11_01_10_00>(v);
        let (first, last) = (parted(first), parted(last));
        // Blocks 0, 1, 4, 5, 2, 3, 6, 7.
        let mut at = [0u8; 32];
        _mm256_storeu_si256(at.as_mut_ptr().cast(), _mm256_unpacklo_epi64(first, last));
        let signs = signs_of_words(_mm256_unpackhi_epi64(first, last));
        each!(sub_block => {
            let place = [0, 1, 4, 5, 2, 3, 6, 7][sub_block];
            signed(eights(&grids::IQ2_XXS, &at, place), signs[place], zero_point::<Self>())
        })
    }
}

impl SimdSuperBlock for IQ2_XS {
    const ENCODING: Encoding = Encoding::Unsigned(43);
    const MAX_QUANT: u8 = 86;
    const SUB_BLOCKS_OF_16: bool = true;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        let (first, last) = (load(block.add(2)), load(block.add(34)));
        let mut at = [0u16; 32];
        let nine = _mm256_set1_epi16(511);
        _mm256_storeu_si256(at.as_mut_ptr().cast(), _mm256_and_si256(first, nine));
        _mm256_storeu_si256(at.as_mut_ptr().add(16).cast(), _mm256_and_si256(last, nine));
        // Packed by halves: words of sub-blocks 0, 1, 4, 5, then 2, 3, 6, 7.
        let sevens = _mm256_packus_epi16(_mm256_srli_epi16::<9>(first), _mm256_srli_epi16::<9>(last));
        let mut signs = [0u32; 8];
        _mm256_storeu_si256(signs.as_mut_ptr().cast(), even(sevens));
        each!(sub_block => {
            let place = [0, 1, 4, 5, 2, 3, 6, 7][sub_block];
            signed(eights(&grids::IQ2_XS, &at, sub_block), signs[place], zero_point::<Self>())
        })
    }
}

impl SimdSuperBlock for IQ2_S {
    const ENCODING: Encoding = Encoding::Unsigned(43);
    const MAX_QUANT: u8 = 86;
    const SUB_BLOCKS_OF_16: bool = true;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        let upper = _mm256_broadcastq_epi64(_mm_loadl_epi64(block.add(66).cast()));
        let mut at = [0u16; 32];
        each!(half => {
            // Each byte to four words, and two bits of each word to 8 and 9.
            let spread = _mm256_add_epi8(
                _mm256_setr_epi8(
                    0, -128, 0, -128, 0, -128, 0, -128, 1, -128, 1, -128, 1, -128, 1, -128,
                    2, -128, 2, -128, 2, -128, 2, -128, 3, -128, 3, -128, 3, -128, 3, -128,
                ),
                bytes(4 * half as u8),
            );
            let shifted = _mm256_mullo_epi16(
                _mm256_shuffle_epi8(upper, spread),
                _mm256_set1_epi64x(0x0004_0010_0040_0100),
            );
            let upper = _mm256_and_si256(shifted, _mm256_set1_epi16(0x300));
            let all = with_upper(block.add(2 + 16 * half), upper);
            _mm256_storeu_si256(at.as_mut_ptr().add(16 * half).cast(), all);
        }; 0 1);
        each!(sub_block => {
            let signs = block.add(34 + 4 * sub_block).cast::<u32>().read_unaligned();
            signed(eights(&grids::IQ2_S, &at, sub_block), signs, zero_point::<Self>())
        })
    }
}

impl SimdSuperBlock for IQ3_XXS {
    const ENCODING: Encoding = Encoding::Unsigned(62);
    const MAX_QUANT: u8 = 124;
    const SUB_BLOCKS_OF_16: bool = false;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        let at = &*block.add(2).cast::<[u8; 64]>();
        let signs = signs_of_words(load(block.add(66)));
        each!(sub_block => signed(fours(&grids::IQ3_XXS, at, sub_block), signs[sub_block], zero_point::<Self>()))
    }
}

impl SimdSuperBlock for IQ3_S {
    const ENCODING: Encoding = Encoding::Unsigned(15);
    const MAX_QUANT: u8 = 30;
    const SUB_BLOCKS_OF_16: bool = false;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        let ninth = _mm256_broadcastq_epi64(_mm_loadl_epi64(block.add(66).cast()));
        let mut at = [0u16; 64];
        each!(quarter => {
            // Each byte to eight words, and one bit of each word to 8.
            let spread = _mm256_add_epi8(
                _mm256_setr_epi64x(
                    0x8000_8000_8000_8000_u64 as i64,
                    0x8000_8000_8000_8000_u64 as i64,
                    0x8001_8001_8001_8001_u64 as i64,
                    0x8001_8001_8001_8001_u64 as i64,
                ),
                bytes(2 * quarter as u8),
            );
            let shifted = _mm256_mullo_epi16(
                _mm256_shuffle_epi8(ninth, spread),
                _mm256_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2, 256, 128, 64, 32, 16, 8, 4, 2),
            );
            let ninth = _mm256_and_si256(shifted, _mm256_set1_epi16(0x100));
            let all = with_upper(block.add(2 + 16 * quarter), ninth);
            _mm256_storeu_si256(at.as_mut_ptr().add(16 * quarter).cast(), all);
        }; 0 1 2 3);
        each!(sub_block => {
            let signs = block.add(74 + 4 * sub_block).cast::<u32>().read_unaligned();
            signed(fours(&grids::IQ3_S, &at, sub_block), signs, zero_point::<Self>())
        })
    }
}

impl SimdSuperBlock for IQ1_S {
    const ENCODING: Encoding = Encoding::Unsigned(9);
    const MAX_QUANT: u8 = 18;
    const SUB_BLOCKS_OF_16: bool = false;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        let block = &*block.cast::<[u8; 50]>();
        each!(sub_block => {
            let upper = short(block, 34 + 2 * sub_block);
            let pattern = |i: usize| {
                let upper = usize::from(upper >> (3 * i) & 7) << 8;
                grids::IQ1[usize::from(block[2 + 4 * sub_block + i]) | upper] as i64
            };
            let patterns = _mm256_setr_epi64x(pattern(0), pattern(1), pattern(2), pattern(3));
            _mm256_add_epi8(patterns, bytes(if upper & 0x8000 == 0 { 2 } else { 0 }))
        })
    }
}

impl SimdSuperBlock for IQ1_M {
    const ENCODING: Encoding = Encoding::Unsigned(9);
    const MAX_QUANT: u8 = 18;
    const SUB_BLOCKS_OF_16: bool = true;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        let block = &*block.cast::<[u8; 56]>();
        each!(sub_block => {
            let pattern = |i: usize| {
                let upper = nibble(&block[32..48], 4 * sub_block + i);
                let pattern = grids::IQ1[usize::from(block[4 * sub_block + i]) | usize::from(upper & 7) << 8];
                // No byte exceeds 16.
                (pattern + if upper & 8 == 0 { 0x0202_0202_0202_0202 } else { 0 }) as i64
            };
            _mm256_setr_epi64x(pattern(0), pattern(1), pattern(2), pattern(3))
        })
    }

    #[inline(always)]
    unsafe fn factors(block: *const u8) -> (f32, f32) {
        Self::scale(&*block.cast::<[u8; 56]>())
    }
}
