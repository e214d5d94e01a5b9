//! Row quads with AVX-512, for the super-blocks that most models use.
//!
//! For Q4_K and Q5_K a register contains sixteen quants of every second sub-block, in the order of
//! `Order::Interleaved512`.
//! Another register has the scale of every two quants in a word:
//!
//! ```text
//! quants[0]  0[..16] 2[..16] 4[..16] 6[..16]      quants[1]  0[16..] 2[16..] 4[16..] 6[16..]
//! scales     s0 x8   s2 x8   s4 x8   s6 x8        (then the same of sub-blocks 1, 3, 5, 7)
//! ```
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::{QuadHeads, ROWS, RowCursor, SuperBlockQuad, each_of_four, halves, pair};
use crate::Format;
use crate::activations::{Layout, Order, Sums};
use crate::matmul::small_batch::x86::{field, pin512};
use crate::matmul::vector::{Avx512, Vector};
use crate::quant::avx2::{SimdSuperBlock, each};
use crate::quant::k::{Q4_K, Q5_K, Q6_K};
use crate::wide::operations;

/// Two vectors of unsigned quants, and the scale in a word for every two quants of both.
type SubBlockPair = ([__m512i; 2], [__m512i; 2]);

/// Formats whose super-blocks are multiplied four at a time.
///
/// # Safety
/// The functions may only be called where AVX-512 is available, and with pointers to whole blocks.
pub(super) trait SuperQuadFormat: SimdSuperBlock {
    /// Whether both vectors of a [`SubBlockPair`] have the same scales, because activations are
    /// interleaved.
    const SHARED_SCALES: bool;
    /// Data extracted from the blocks of four rows at once.
    type Head: Copy;
    /// Data extracted from a row's block at once.
    type Row: Copy;

    unsafe fn head(blocks: [*const u8; ROWS]) -> Self::Head;

    unsafe fn row(head: &Self::Head, block: *const u8, row: usize) -> Self::Row;

    /// Half of the quants, in the order of activations.
    unsafe fn two(row: &Self::Row, block: *const u8, half: usize) -> SubBlockPair;

    /// Subtracts the zero point of the quants from the sums of a row's products.
    unsafe fn without_zero_point(_: &Self::Row, _x: RowCursor, sums: __m512i) -> __m512i {
        sums
    }

    /// Adds the scaled integers of four rows to the sums of a lane.
    unsafe fn add(head: &Self::Head, totals: __m128i, x: RowCursor, sum: __m128) -> __m128;
}

/// Four super-blocks of a format.
pub(super) struct SuperQuad<F>(PhantomData<F>);

impl<F: SuperQuadFormat> SuperBlockQuad for SuperQuad<F> {
    const FORMAT: Format = F::FORMAT;
    const LAYOUT: Layout = Layout {
        order: if F::SHARED_SCALES { Order::Interleaved512 } else { Order::Plain },
        sums: Sums::Sixteens,
    };

    /// Data extracted from a block stays in registers.
    ///
    /// vpmaddubsw adds the products of quants and activations in pairs, and saturates at words:
    /// one pair of products of at most 63 * 127 stays within that limit, and so do two pairs of at
    /// most 31 * 127.
    #[allow(clippy::needless_range_loop)] // Indices, because what iterators do to arrays of registers isn't always unrolled.
    #[inline(always)]
    unsafe fn add<const T: usize>(w: [*const u8; ROWS], x: &[RowCursor; T], lane: &mut [__m128; T]) {
        let head = F::head(w);
        let sums = each_of_four!(row => {
            let parts = F::row(&head, w[row], row);
            let mut sums = [_mm512_setzero_si512(); T];
            each!(half => {
                let (quants, scales) = F::two(&parts, w[row], half);
                for t in 0..T {
                    let x = x[t].quants.add(128 * half).cast::<u8>();
                    let a = _mm512_maddubs_epi16(quants[0], load(x));
                    let b = _mm512_maddubs_epi16(quants[1], load(x.add(64)));
                    sums[t] = if F::SHARED_SCALES {
                        const { assert!(!F::SHARED_SCALES || F::MAX_QUANT as i32 * 127 * 4 <= i16::MAX as i32) };
                        Avx512::add_pairs(sums[t], _mm512_add_epi16(a, b), scales[0])
                    } else {
                        Avx512::add_pairs(Avx512::add_pairs(sums[t], a, scales[0]), b, scales[1])
                    };
                    if T > 1 {
                        sums[t] = pin512(sums[t]);
                    }
                }
            }; 0 1);
            for t in 0..T {
                sums[t] = F::without_zero_point(&parts, x[t], sums[t]);
            }
            sums
        });
        for t in 0..T {
            lane[t] = F::add(&head, totals(each_of_four!(row => sums[row][t])), x[t], lane[t]);
        }
    }
}

/// The sum of a vector's halves.
#[inline(always)]
unsafe fn fold(v: __m512i) -> __m256i {
    _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64::<1>(v))
}

/// The sums of four vectors.
#[inline(always)]
unsafe fn totals(v: [__m512i; ROWS]) -> __m128i {
    let pair = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (a, b) = (pair(v[0], v[1]), pair(v[2], v[3]));
    let both = fold(_mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)));
    _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both))
}

#[inline(always)]
unsafe fn load(at: *const u8) -> __m512i {
    _mm512_loadu_si512(at.cast())
}

/// Q4_K and Q5_K, whose blocks begin with sixteen bytes of scales and minima.
#[derive(Clone, Copy)]
pub(super) struct QuadScales {
    /// Words: the scales of eight sub-blocks, a quarter per row.
    scales: __m512i,
    /// Words: four minima of each row, then the other four of each row.
    minima: __m512i,
    /// The factors of four rows' scales, and of their minima.
    factors: __m256,
}

#[inline(always)]
unsafe fn minima_head(blocks: [*const u8; ROWS]) -> QuadScales {
    let QuadHeads { scales: [first, last], minima, factors } = QuadHeads::new(blocks);
    let scales = _mm256_set_m128i(_mm_unpackhi_epi32(first, last), _mm_unpacklo_epi32(first, last));
    QuadScales {
        scales: _mm512_cvtepu8_epi16(scales),
        minima: _mm512_cvtepu8_epi16(_mm256_set_m128i(minima[1], minima[0])),
        factors,
    }
}

/// A row's quants: the first halves of pairs of sub-blocks, a quarter per pair, and the second
/// ones; and its scales in every quarter.
#[derive(Clone, Copy)]
pub(super) struct Quarters {
    quants: [__m512i; 2],
    scales: __m512i,
}

#[inline(always)]
unsafe fn quarters(head: &QuadScales, quants: *const u8, row: usize) -> Quarters {
    let (first, second) = (load(quants), load(quants.add(64)));
    let words = head.scales;
    Quarters {
        quants: [
            _mm512_shuffle_i64x2::<0b10_00_10_00>(first, second),
            _mm512_shuffle_i64x2::<0b11_01_11_01>(first, second),
        ],
        scales: match row {
            0 => _mm512_shuffle_i64x2::<0x00>(words, words),
            1 => _mm512_shuffle_i64x2::<0x55>(words, words),
            2 => _mm512_shuffle_i64x2::<0xaa>(words, words),
            _ => _mm512_shuffle_i64x2::<0xff>(words, words),
        },
    }
}

/// The lower nibbles, for the first sub-blocks of pairs, or the upper ones, for the second
/// sub-blocks, and the scale of each quarter.
#[inline(always)]
unsafe fn nibbles(row: &Quarters, which: usize) -> SubBlockPair {
    let [a, b] = row.quants;
    let quants = match which {
        0 => [field::<0>(a, 15), field::<0>(b, 15)],
        _ => [field::<4>(a, 15), field::<4>(b, 15)],
    };
    (quants, [_mm512_shuffle_epi8(row.scales, load(SUB_BLOCK_SCALES[which].as_ptr())); 2])
}

#[inline(always)]
unsafe fn add_with_minima(head: &QuadScales, total: __m128i, x: RowCursor, sum: __m128) -> __m128 {
    // The sums of sub-blocks: of the first four for each row, then of the last four.
    let sums = _mm256_madd_epi16(_mm256_loadu_si256(x.sums.cast()), _mm256_set1_epi16(1));
    let sums = _mm256_cvtepi32_epi16(sums);
    let sums = _mm512_inserti64x4::<1>(
        _mm512_castsi256_si512(_mm256_broadcastq_epi64(sums)),
        _mm256_broadcastq_epi64(_mm_unpackhi_epi64(sums, sums)),
    );
    let QuadScales { minima, factors, .. } = *head;
    let of_minima = fold(_mm512_madd_epi16(minima, sums));
    let of_minima =
        _mm_hadd_epi32(_mm256_castsi256_si128(of_minima), _mm256_extracti128_si256::<1>(of_minima));

    let factors = _mm256_mul_ps(factors, _mm256_set1_ps(x.scale()));
    let sum = _mm_fmadd_ps(_mm256_castps256_ps128(factors), _mm_cvtepi32_ps(total), sum);
    _mm_fnmadd_ps(_mm256_extractf128_ps::<1>(factors), _mm_cvtepi32_ps(of_minima), sum)
}

/// Shuffles for the first and the second sub-blocks of pairs: the position of each quarter's scale
/// among eight words.
static SUB_BLOCK_SCALES: [[u8; 64]; 2] = {
    let mut places = [[0; 64]; 2];
    let mut i = 0;
    while i < 128 {
        let (which, byte) = (i / 64, i % 64);
        let sub_block = 2 * (byte / 16) + which;
        places[which][byte] = (sub_block * 2 + byte % 2) as u8;
        i += 1;
    }
    places
};

impl SuperQuadFormat for Q4_K {
    const SHARED_SCALES: bool = true;
    type Head = QuadScales;
    type Row = Quarters;

    operations! {
        fn head(blocks: [*const u8; ROWS]) -> QuadScales = minima_head(blocks);
        fn row(head: &QuadScales, block: *const u8, row: usize) -> Quarters = quarters(head, block.add(16), row);
        fn two(row: &Quarters, _: *const u8, half: usize) -> SubBlockPair = nibbles(row, half);
        fn add(head: &QuadScales, totals: __m128i, x: RowCursor, sum: __m128) -> __m128 = add_with_minima(head, totals, x, sum);
    }
}

impl SuperQuadFormat for Q5_K {
    const SHARED_SCALES: bool = true;
    type Head = QuadScales;
    /// With the fifth bits: bit i of each byte belongs to sub-block i.
    /// Every quarter has those of the first sixteen quants of sub-blocks, or of the last.
    type Row = (Quarters, [__m512i; 2]);

    #[inline(always)]
    unsafe fn head(blocks: [*const u8; ROWS]) -> QuadScales {
        minima_head(blocks)
    }

    #[inline(always)]
    unsafe fn row(head: &QuadScales, block: *const u8, row: usize) -> Self::Row {
        let fifths = [16, 32].map(|at| _mm512_broadcast_i32x4(_mm_loadu_si128(block.add(at).cast())));
        (quarters(head, block.add(48), row), fifths)
    }

    #[inline(always)]
    unsafe fn two((row, fifths): &Self::Row, _: *const u8, half: usize) -> SubBlockPair {
        let ([a, b], scales) = nibbles(row, half);
        // For sub-block 2 q + half in quarter q.
        let bit = |q: usize| 0x0101_0101_0101_0101 << (2 * q + half);
        let bits = _mm512_setr_epi64(bit(0), bit(0), bit(1), bit(1), bit(2), bit(2), bit(3), bit(3));
        let with = |v, fifths| {
            let set = _mm512_test_epi8_mask(fifths, bits);
            _mm512_mask_add_epi8(v, set, v, _mm512_set1_epi8(16))
        };
        ([with(a, fifths[0]), with(b, fifths[1])], scales)
    }

    #[inline(always)]
    unsafe fn add(head: &QuadScales, totals: __m128i, x: RowCursor, sum: __m128) -> __m128 {
        add_with_minima(head, totals, x, sum)
    }
}

/// 32 bytes, and the bytes shifted right by two.
#[inline(always)]
unsafe fn two_fields(at: *const u8) -> __m512i {
    let bytes = _mm256_loadu_si256(at.cast());
    pair(bytes, _mm256_srli_epi16::<2>(bytes))
}

impl SuperQuadFormat for Q6_K {
    const SHARED_SCALES: bool = false;
    /// The factors of the scales of four rows.
    type Head = __m128;
    /// The scales of each sixteen quants, in words, in order.
    type Row = __m256i;

    operations! {
        fn head(blocks: [*const u8; ROWS]) -> __m128 = halves(each_of_four!(row => blocks[row].add(208)));
        fn row(_: &__m128, block: *const u8, _: usize) -> __m256i = _mm256_cvtepi8_epi16(_mm_loadu_si128(block.add(192).cast()));
    }

    #[inline(always)]
    unsafe fn two(words: &__m256i, block: *const u8, half: usize) -> SubBlockPair {
        let low = load(block.add(64 * half));
        // Two-bit fields of these 32 bytes, for two sub-blocks each.
        let high = two_fields(block.add(128 + 32 * half));
        let quants = [
            _mm512_or_si512(field::<0>(low, 15), _mm512_slli_epi16::<4>(field::<0>(high, 3))),
            _mm512_or_si512(field::<4>(low, 15), _mm512_slli_epi16::<4>(field::<4>(high, 3))),
        ];
        let words = match half {
            0 => _mm512_broadcast_i32x4(_mm256_castsi256_si128(*words)),
            _ => _mm512_broadcast_i32x4(_mm256_extracti128_si256::<1>(*words)),
        };
        let scales = |i: usize| _mm512_shuffle_epi8(words, load(SIXTEEN_SCALES[i].as_ptr()));
        (quants, [scales(0), scales(1)])
    }

    #[inline(always)]
    unsafe fn without_zero_point(words: &__m256i, x: RowCursor, sums: __m512i) -> __m512i {
        // Codes are too large by 32.
        let code_sums = _mm256_madd_epi16(*words, _mm256_loadu_si256(x.sums.cast()));
        _mm512_sub_epi32(sums, _mm512_zextsi256_si512(_mm256_slli_epi32::<5>(code_sums)))
    }

    #[inline(always)]
    unsafe fn add(head: &__m128, totals: __m128i, x: RowCursor, sum: __m128) -> __m128 {
        let factors = _mm_mul_ps(*head, _mm_set1_ps(x.scale()));
        _mm_fmadd_ps(factors, _mm_cvtepi32_ps(totals), sum)
    }
}

/// Shuffles for two vectors of two sub-blocks each: the positions of the four scales, one per
/// quarter, among eight words.
static SIXTEEN_SCALES: [[u8; 64]; 2] = {
    let mut places = [[0; 64]; 2];
    let mut i = 0;
    while i < 128 {
        places[i / 64][i % 64] = (i / 16 * 2 + i % 2) as u8;
        i += 1;
    }
    places
};
