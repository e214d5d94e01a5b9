//! Products with few rows of activations by AVX2, of the superblocks that models are mostly made of: as those by AVX-512, four
//! rows of weights are worked through side by side. Blocks are taken apart again for each row of activations, because there
//! are few registers.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::few::{ROWS, SuperHeads, each_row, halves, super_totals};
use super::{Ahead, Few};
use crate::Format;
use crate::lanes::LANES;
use crate::quant::Super;
use crate::quant::avx2::each;
use crate::quant::k::{Q4_K, Q5_K, Q6_K};

/// A panel of activations.
#[derive(Clone, Copy)]
struct Panel {
    codes: *const i8,
    /// The sums of sixteen codes each.
    sums: *const i16,
    scale: f32,
}

/// A format whose superblocks are multiplied four at a time.
///
/// # Safety
/// The functions may only be called where AVX2 is available, and with pointers to whole blocks and panels.
trait Four: Super {
    /// Adds what superblocks of four rows give to the sums of a lane, a row each.
    unsafe fn add(blocks: [*const u8; ROWS], x: Panel, sum: __m128) -> __m128;
}

/// The products of some rows of weights; `false` if there is nothing here for the format.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C, and no other task has these rows of weights.
pub(super) unsafe fn some_rows(p: Few, format: Format, rows: Range<usize>) -> bool {
    match format {
        Format::Q4_K => supers::<Q4_K>(p, rows),
        Format::Q5_K => supers::<Q5_K>(p, rows),
        Format::Q6_K => supers::<Q6_K>(p, rows),
        _ => return false,
    }
    true
}

/// # Safety
/// As [`some_rows`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn supers<F: Four>(p: Few, rows: Range<usize>) {
    let bytes = F::FORMAT.block_bytes();
    let blocks = p.row_bytes / bytes;
    let mut ahead = Ahead::new(&p, &rows, ROWS);
    for start in rows.clone().step_by(ROWS) {
        let (w, count) = p.four(start, rows.end);
        for token in 0..p.tokens {
            let (codes, sums, scales) = p.x.all_supers(p.taken.get(token));
            assert!(codes.len() == 256 * blocks && sums.len() == 16 * blocks && scales.len() == blocks);
            let mut lanes = [_mm_setzero_ps(); LANES];
            for (index, &scale) in scales.iter().enumerate() {
                let w = each_row!(row => w[row].add(index * bytes));
                if token == 0 {
                    ahead.fetch(ROWS * bytes);
                }
                let x = Panel {
                    codes: codes.as_ptr().add(256 * index),
                    sums: sums.as_ptr().add(16 * index),
                    scale,
                };
                let lane = &mut lanes[index % LANES];
                *lane = F::add(w, x, *lane);
            }
            let y = p.y.slice(token * p.out + start, count);
            y.copy_from_slice(&super_totals(&lanes)[..count]);
        }
    }
}

/// The products of a run of codes without signs and of activations, times a word for each pair: sums of two products are
/// words, and with at most 63 * 127 each they can't saturate.
#[inline(always)]
unsafe fn product(w: __m256i, x: *const i8, run: usize, scales: __m256i) -> __m256i {
    let x = _mm256_loadu_si256(x.add(32 * run).cast());
    _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), scales)
}

/// The sum of eight vectors.
#[inline(always)]
unsafe fn sum(v: [__m256i; 8]) -> __m256i {
    let low = _mm256_add_epi32(_mm256_add_epi32(v[0], v[1]), _mm256_add_epi32(v[2], v[3]));
    let high = _mm256_add_epi32(_mm256_add_epi32(v[4], v[5]), _mm256_add_epi32(v[6], v[7]));
    _mm256_add_epi32(low, high)
}

/// The sums of four vectors.
#[inline(always)]
unsafe fn totals(v: [__m256i; ROWS]) -> __m128i {
    let pair = |a, b| _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (a, b) = (pair(v[0], v[1]), pair(v[2], v[3]));
    let both = _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both))
}

#[inline(always)]
unsafe fn load(at: *const u8) -> __m256i {
    _mm256_loadu_si256(at.cast())
}

#[inline(always)]
unsafe fn masked(v: __m256i, mask: u8) -> __m256i {
    _mm256_and_si256(v, _mm256_set1_epi8(mask as i8))
}

/// The lower nibbles of 32 bytes, or the upper ones.
#[inline(always)]
unsafe fn nibbles(at: *const u8, upper: bool) -> __m256i {
    let two = load(at);
    masked(if upper { _mm256_srli_epi16::<4>(two) } else { two }, 15)
}

/// Each half twice.
#[inline(always)]
unsafe fn spread(v: __m256i) -> [__m256i; 2] {
    [_mm256_permute2x128_si256::<0x00>(v, v), _mm256_permute2x128_si256::<0x11>(v, v)]
}

/// Q4_K or Q5_K.
trait WithMinima: Super {
    /// The codes of a block's runs.
    unsafe fn run_codes(block: *const u8) -> [__m256i; 8];
}

#[inline(always)]
unsafe fn add_with_minima<F: WithMinima>(blocks: [*const u8; ROWS], x: Panel, sum_of_lane: __m128) -> __m128 {
    let SuperHeads { scales, minima, factors } = SuperHeads::new(blocks);
    // Words, of the first and of the last four runs: scales of rows 0 and 1 in both halves, and of 2 and 3.
    let scales = [spread(_mm256_cvtepu8_epi16(scales[0])), spread(_mm256_cvtepu8_epi16(scales[1]))];
    let total = totals(each_row!(row => {
        let w = F::run_codes(blocks[row]);
        sum(each!(run => {
            let scales = _mm256_shuffle_epi8(scales[run / 4][row / 2], load(PLACES[row % 2][run % 4].as_ptr()));
            product(w[run], x.codes, run, scales)
        }))
    }));

    // The sums of runs: of the first four for each row, and of the last four.
    let sums = _mm256_madd_epi16(_mm256_loadu_si256(x.sums.cast()), _mm256_set1_epi16(1));
    let sums = _mm256_packs_epi32(sums, sums);
    let first = _mm256_madd_epi16(_mm256_cvtepu8_epi16(minima[0]), _mm256_permute4x64_epi64::<0x00>(sums));
    let last = _mm256_madd_epi16(_mm256_cvtepu8_epi16(minima[1]), _mm256_permute4x64_epi64::<0xaa>(sums));
    let of_minima = _mm256_add_epi32(first, last);
    let of_minima =
        _mm_hadd_epi32(_mm256_castsi256_si128(of_minima), _mm256_extracti128_si256::<1>(of_minima));

    let factors = _mm256_mul_ps(factors, _mm256_set1_ps(x.scale));
    let sum = _mm_fmadd_ps(_mm256_castps256_ps128(factors), _mm_cvtepi32_ps(total), sum_of_lane);
    _mm_fnmadd_ps(_mm256_extractf128_ps::<1>(factors), _mm_cvtepi32_ps(of_minima), sum)
}

/// For the first and the second row of two, and for each of four runs, where the scale is among eight words.
static PLACES: [[[u8; 32]; 4]; 2] = {
    let mut places = [[[0; 32]; 4]; 2];
    let mut i = 0;
    while i < 256 {
        let (row, run, byte) = (i / 128, i / 32 % 4, i % 32);
        places[row][run][byte] = (row * 8 + run * 2 + byte % 2) as u8;
        i += 1;
    }
    places
};

impl WithMinima for Q4_K {
    #[inline(always)]
    unsafe fn run_codes(block: *const u8) -> [__m256i; 8] {
        each!(run => {
            nibbles(block.add(16 + run / 2 * 32), run % 2 == 1)
        })
    }
}

impl WithMinima for Q5_K {
    #[inline(always)]
    unsafe fn run_codes(block: *const u8) -> [__m256i; 8] {
        let fifth = load(block.add(16));
        // Bit `run` of each byte becomes its fifth.
        let fifths = [
            _mm256_slli_epi16::<4>(fifth),
            _mm256_slli_epi16::<3>(fifth),
            _mm256_slli_epi16::<2>(fifth),
            _mm256_slli_epi16::<1>(fifth),
            fifth,
            _mm256_srli_epi16::<1>(fifth),
            _mm256_srli_epi16::<2>(fifth),
            _mm256_srli_epi16::<3>(fifth),
        ];
        each!(run => {
            let low = nibbles(block.add(48 + run / 2 * 32), run % 2 == 1);
            _mm256_or_si256(low, masked(fifths[run], 16))
        })
    }
}

/// Q4_K and Q5_K.
macro_rules! with_minima {
    ($($format:ident)*) => {$(
        impl Four for $format {
            #[inline(always)]
            unsafe fn add(blocks: [*const u8; ROWS], x: Panel, sum: __m128) -> __m128 {
                add_with_minima::<$format>(blocks, x, sum)
            }
        }
    )*};
}

with_minima!(Q4_K Q5_K);

impl Four for Q6_K {
    #[inline(always)]
    unsafe fn add(blocks: [*const u8; ROWS], x: Panel, sum_of_lane: __m128) -> __m128 {
        let sums = _mm256_loadu_si256(x.sums.cast());
        let total = totals(each_row!(row => {
            let block = blocks[row];
            let words = _mm256_cvtepi8_epi16(_mm_loadu_si128(block.add(192).cast()));
            let scales = spread(words);
            let products = sum(each!(run => {
                let low = nibbles(block.add(run / 4 * 64 + run % 2 * 32), run % 4 >= 2);
                let four = load(block.add(128 + run / 4 * 32));
                let high = match run % 4 {
                    0 => _mm256_slli_epi16::<4>(four),
                    1 => _mm256_slli_epi16::<2>(four),
                    2 => four,
                    _ => _mm256_srli_epi16::<2>(four),
                };
                let scales = _mm256_shuffle_epi8(scales[run / 4], load(SIXTEENS[run % 4].as_ptr()));
                product(_mm256_or_si256(low, masked(high, 0x30)), x.codes, run, scales)
            }));
            // Codes are 32 too large.
            _mm256_sub_epi32(products, _mm256_slli_epi32::<5>(_mm256_madd_epi16(words, sums)))
        }));
        let factors = halves(each_row!(row => blocks[row].add(208)));
        let factors = _mm_mul_ps(factors, _mm_set1_ps(x.scale));
        _mm_fmadd_ps(factors, _mm_cvtepi32_ps(total), sum_of_lane)
    }
}

/// For each of four runs, where the scales of its two sixteens, a half each, are among eight words.
static SIXTEENS: [[u8; 32]; 4] = {
    let mut places = [[0; 32]; 4];
    let mut i = 0;
    while i < 128 {
        places[i / 32][i % 32] = (i / 16 * 2 + i % 2) as u8;
        i += 1;
    }
    places
};
