//! Row-interleaved with AVX2: eight rows.
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]
#![allow(clippy::needless_range_loop)] // Indices, because what iterators do to arrays of registers isn't always unrolled.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use super::{
    MAX_ROWS, RowCursor, RowInterleaved, RowStreams, SmallBatch, each_of_four, in_parts, multiply_groups,
};
use crate::Format;
use crate::activations::{Layout, Order, Sums};
use crate::format::BLOCK;
use crate::matmul::small_batch::x86::{load256, masked, pin256};
use crate::matmul::vector::Avx2;
use crate::quant::avx2::{Encoding, SimdBlock, each};
use crate::quant::k::Q4_K;
use crate::quant::with_format;
use crate::wide::transpose;

/// Number of rows of weights transposed.
const ROWS: usize = 8;

/// The layout of activations.
pub(in super::super) fn layout(format: Format) -> Layout {
    match format {
        Format::Q4_K => Q4_K::LAYOUT,
        _ => Layout::PLAIN,
    }
}

/// The products of some rows of weights.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C, no other task has these rows of weights, and they are whole
/// groups.
pub(in super::super) unsafe fn multiply(p: SmallBatch, format: Format, rows: Range<usize>) {
    match format {
        Format::Q4_K => multiply_format::<Q4_K>(p, rows),
        _ => with_format!(format, F in legacy [Q4_0 Q4_1 Q5_0 Q5_1 Q8_0] codebook [MXFP4 IQ4_NL] => {
            multiply_format::<Blocks<F>>(p, rows);
        }),
    }
}

/// # Safety
/// As [`multiply`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply_format<F: RowInterleaved<Avx2>>(p: SmallBatch, rows: Range<usize>) {
    let groups = rows.start / ROWS..rows.end / ROWS;
    in_parts!(p.rows, first, MAX_ROWS, T => multiply_groups::<Avx2, F, T>(&p, groups.clone(), first); 1 2 3 4 5 6 7);
}

/// Four quants of a row of activations, in every lane.
#[inline(always)]
unsafe fn quants(x: &RowCursor, at: usize) -> __m256i {
    _mm256_set1_epi32(x.quants.add(at).cast::<i32>().read_unaligned())
}

/// Two sums of quants, in every lane.
#[inline(always)]
unsafe fn sums_of(x: &RowCursor, at: usize) -> __m256i {
    _mm256_set1_epi32(x.sums.add(at).cast::<i32>().read_unaligned())
}

/// Formats with blocks of 32.
struct Blocks<F>(PhantomData<F>);

impl<F: SimdBlock> RowInterleaved<Avx2> for Blocks<F> {
    const FORMAT: Format = F::FORMAT;
    const LAYOUT: Layout = Layout::PLAIN;

    #[inline(always)]
    unsafe fn add<const T: usize>(w: &mut RowStreams<Avx2>, x: &[RowCursor; T], sums: &mut [__m256; T]) {
        // vpmaddubsw adds two products to a word, which can hold this many pairs, rounded to a
        // power of two, so that it divides a block.
        let most = (1 << (i16::MAX as usize / (2 * 127 * F::MAX_QUANT as usize)).ilog2()).min(BLOCK / 4);
        w.prefetch(F::FORMAT.block_bytes());
        let w_quants = transposed_quants::<F>(w);
        let mut words = [_mm256_setzero_si256(); T];
        let mut totals = [_mm256_setzero_si256(); T];
        each!(i => {
            let w_quants = w_quants[i];
            let without_sign = _mm256_abs_epi8(w_quants);
            for t in 0..T {
                let x = quants(&x[t], 4 * i);
                let products = match F::ENCODING {
                    Encoding::Unsigned(_) => _mm256_maddubs_epi16(w_quants, x),
                    Encoding::Signed => _mm256_maddubs_epi16(without_sign, _mm256_sign_epi8(x, w_quants)),
                };
                words[t] = if i.is_multiple_of(most) { products } else { _mm256_add_epi16(words[t], products) };
                if (i + 1).is_multiple_of(most) {
                    let pairs = _mm256_madd_epi16(words[t], _mm256_set1_epi16(1));
                    totals[t] = pin256(_mm256_add_epi32(totals[t], pairs));
                }
            }
        });
        let scales = F::scales(each!(row => w.row(row)));
        for t in 0..T {
            let of_x = _mm256_set1_ps(x[t].scale());
            let quant_sums = sums_of(&x[t], 0);
            let mut total = totals[t];
            if let Encoding::Unsigned(zero_point @ 1..) = F::ENCODING {
                total = _mm256_sub_epi32(total, _mm256_madd_epi16(quant_sums, _mm256_set1_epi16(zero_point)));
            }
            sums[t] = _mm256_fmadd_ps(_mm256_mul_ps(scales, of_x), _mm256_cvtepi32_ps(total), sums[t]);
            if F::OFFSET {
                let total = _mm256_cvtepi32_ps(_mm256_madd_epi16(quant_sums, _mm256_set1_epi16(1)));
                sums[t] = _mm256_fmadd_ps(
                    _mm256_mul_ps(F::offsets(each!(row => w.row(row))), of_x),
                    total,
                    sums[t],
                );
            }
        }
    }
}

/// The quants of a block of each row, with the zero point: one register per four quants.
#[inline(always)]
unsafe fn transposed_quants<F: SimdBlock>(w: &RowStreams<Avx2>) -> [__m256i; 8] {
    if F::NIBBLES {
        // Transpose half as much.
        let bytes = transposed_sixteen(w, F::FORMAT.block_bytes() - 16);
        return each!(i => {
            let bytes = bytes[i % 4];
            F::of_nibbles(masked(if i < 4 { bytes } else { _mm256_srli_epi16::<4>(bytes) }, 15))
        });
    }
    let quants = transpose(each!(row => _mm256_castsi256_ps(F::vector(w.row(row)))));
    each!(i => _mm256_castps_si256(quants[i]))
}

/// Sixteen bytes of each row: one register per four bytes.
#[inline(always)]
unsafe fn transposed_sixteen(w: &RowStreams<Avx2>, at: usize) -> [__m256i; 4] {
    let load = |row: usize| _mm_loadu_si128(w.row(row).add(at).cast());
    let [a, b, c, d] = each_of_four!(row => _mm256_set_m128i(load(row + 4), load(row)));
    let (a, b, c, d) = (
        _mm256_unpacklo_epi32(a, b),
        _mm256_unpackhi_epi32(a, b),
        _mm256_unpacklo_epi32(c, d),
        _mm256_unpackhi_epi32(c, d),
    );
    [
        _mm256_unpacklo_epi64(a, c),
        _mm256_unpackhi_epi64(a, c),
        _mm256_unpacklo_epi64(b, d),
        _mm256_unpackhi_epi64(b, d),
    ]
}

/// A shuffle that widens two of the four bytes of each lane to words.
const fn words(two: [usize; 2]) -> [u8; 32] {
    let mut places = [0x80; 32];
    let mut i = 0;
    while i < 32 {
        places[i] = (i / 4 % 4 * 4 + two[i / 2 % 2]) as u8;
        i += 2;
    }
    places
}

/// Each of four bytes, duplicated.
static TWICE: [[u8; 32]; 4] = [words([0, 0]), words([1, 1]), words([2, 2]), words([3, 3])];
/// Pairs of consecutive bytes.
static PAIRS: [[u8; 32]; 2] = [words([0, 1]), words([2, 3])];

impl RowInterleaved<Avx2> for Q4_K {
    const FORMAT: Format = Format::Q4_K;
    const LAYOUT: Layout = Layout { order: Order::Plain, sums: Sums::BlockPairs };

    #[inline(always)]
    unsafe fn add<const T: usize>(w: &mut RowStreams<Avx2>, x: &[RowCursor; T], sums: &mut [__m256; T]) {
        let zero = _mm256_setzero_si256();
        w.prefetch(16);
        let [factors, scale, minimum, low] = transposed_sixteen(w, 0);
        // As `k::scales_and_minima`.
        let last = |low: __m256i, high: __m256i| {
            _mm256_or_si256(masked(low, 0x0f), masked(_mm256_srli_epi32::<2>(high), 0x30))
        };
        let scales = [masked(scale, 0x3f), last(low, scale)];
        let minima = [masked(minimum, 0x3f), last(_mm256_srli_epi32::<4>(low), minimum)];

        let mut totals = [zero; T];
        for pair in 0..4 {
            w.prefetch(32);
            let bytes = transpose(each!(row => _mm256_castsi256_ps(load256(w.row(row).add(16 + 32 * pair)))));
            each!(which => {
                let mut words = [zero; T];
                each!(i => {
                    let bytes = _mm256_castps_si256(bytes[i]);
                    let nibbles = masked(if which == 0 { bytes } else { _mm256_srli_epi16::<4>(bytes) }, 15);
                    for t in 0..T {
                        let products = _mm256_maddubs_epi16(nibbles, quants(&x[t], 64 * pair + 32 * which + 4 * i));
                        words[t] = if i == 0 { products } else { pin256(_mm256_add_epi16(words[t], products)) };
                    }
                });
                let scale = _mm256_shuffle_epi8(scales[pair / 2], load256(TWICE[pair % 2 * 2 + which].as_ptr()));
                for t in 0..T {
                    totals[t] = pin256(_mm256_add_epi32(totals[t], _mm256_madd_epi16(words[t], scale)));
                }
            }; 0 1);
        }

        let order =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
        let factors = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_shuffle_epi8(factors, order));
        let scale = _mm256_cvtph_ps(_mm256_castsi256_si128(factors));
        let minimum = _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(factors));
        let minima =
            each_of_four!(pair => _mm256_shuffle_epi8(minima[pair / 2], load256(PAIRS[pair % 2].as_ptr())));
        for t in 0..T {
            let of_x = _mm256_set1_ps(x[t].scale());
            let [a, b, c, d] =
                each_of_four!(pair => _mm256_madd_epi16(minima[pair], sums_of(&x[t], 8 * pair)));
            let of_minima = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
            let sum = _mm256_fmadd_ps(_mm256_mul_ps(scale, of_x), _mm256_cvtepi32_ps(totals[t]), sums[t]);
            sums[t] = _mm256_fnmadd_ps(_mm256_mul_ps(minimum, of_x), _mm256_cvtepi32_ps(of_minima), sum);
        }
    }
}
