//! Row quads with AVX2, for the super-blocks that most models use.
//!
//! A register contains a pair of sub-blocks out of four consecutive ones, in the order of
//! `Order::Interleaved256`.
//! Another register has the scale of every two quants in a word:
//!
//! ```text
//! quants[0]  0[0..8]  2[0..8]  0[16..24] 2[16..24]     scales  s0 s0 s0 s0 s2 s2 s2 s2 (twice)
//! quants[1]  0[8..16] 2[8..16] 0[24..32] 2[24..32]     (then the same of sub-blocks 1 and 3)
//! ```
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use super::{
    QuadHeads, ROWS, RowCursor, SmallBatch, SuperBlockQuad, each_of_four, halves, quads, super_blocks,
};
use crate::Format;
use crate::activations::{Layout, Order, Sums};
use crate::matmul::small_batch::x86::{load256, masked, pin256};
use crate::quant::avx2::{SimdSuperBlock, each};
use crate::quant::k::{Q4_K, Q5_K, Q6_K};
use crate::quant::with_format;
use crate::wide::operations;

/// Two vectors of quants, and the scale in a word for every two quants of both.
type SubBlockPair = ([__m256i; 2], __m256i);

/// Formats whose super-blocks are multiplied four at a time.
///
/// # Safety
/// The functions may only be called where AVX2 is available, and with pointers to whole blocks.
trait SuperQuadFormat: SimdSuperBlock {
    /// Data extracted from the blocks of four rows at once.
    type Head: Copy;
    /// Data extracted from a row's block before its sub-blocks.
    type Row: Copy;

    unsafe fn head(blocks: [*const u8; ROWS]) -> Self::Head;

    unsafe fn row(head: &Self::Head, block: *const u8, row: usize) -> Self::Row;

    /// Half of a block: two pairs of vectors of unsigned quants, in the order of
    /// [`Order::Interleaved256`].
    unsafe fn half(row: &Self::Row, block: *const u8, half: usize) -> [SubBlockPair; 2];

    /// The initial value of a row's sums of products: the zero point correction.
    unsafe fn correction(_: &Self::Row, _x: RowCursor) -> __m256i {
        _mm256_setzero_si256()
    }

    /// Adds the scaled integers of four rows, for two super-blocks of activations, to the sums of a
    /// lane.
    unsafe fn add(head: &Self::Head, totals: __m256i, x: [RowCursor; 2], sums: __m256) -> __m256;
}

/// The layout of activations.
pub(in super::super) fn layout(format: Format) -> Layout {
    with_format!(format, F in k [Q4_K Q5_K Q6_K] => SuperQuad::<F>::LAYOUT)
}

/// The products of some rows of weights.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C, and no other task has these rows of weights, which begin with a
/// whole quad.
pub(in super::super) unsafe fn multiply(p: SmallBatch, format: Format, rows: Range<usize>) {
    with_format!(format, F in k [Q4_K Q5_K Q6_K] => of_super_blocks::<SuperQuad<F>>(p, rows));
}

/// # Safety
/// As [`multiply`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn of_super_blocks<Q: SuperBlockQuad>(p: SmallBatch, rows: Range<usize>) {
    let quads = quads(&rows);
    for first in (0..p.rows).step_by(MAX_ROWS) {
        let quads = quads.clone();
        match p.rows - first {
            1 => super_blocks::<Q, 1>(&p, quads, first),
            2 => super_blocks::<Q, 2>(&p, quads, first),
            3 => super_blocks::<Q, 3>(&p, quads, first),
            _ => super_blocks::<Q, MAX_ROWS>(&p, quads, first),
        }
    }
}

/// The rows of activations for which weights are unpacked at once: as many as have sums in
/// registers.
const MAX_ROWS: usize = 4;

/// Four super-blocks of a format.
struct SuperQuad<F>(PhantomData<F>);

impl<F: SuperQuadFormat> SuperBlockQuad for SuperQuad<F> {
    const FORMAT: Format = F::FORMAT;
    const LAYOUT: Layout = Layout {
        order: Order::Interleaved256,
        sums: if F::MINIMA { Sums::BlockPairs } else { Sums::Sixteens },
    };

    /// Each sub-block is unpacked once, and stays in registers.
    ///
    /// vpmaddubsw adds the products of quants and activations in pairs, and saturates at words:
    /// two pairs of products of at most 63 * 127 stay within that limit.
    /// Floats contain two rows of activations.
    #[allow(clippy::needless_range_loop)] // Indices, because what iterators do to arrays of registers isn't always unrolled.
    #[inline(always)]
    unsafe fn add<const T: usize>(w: [*const u8; ROWS], x: &[RowCursor; T], lane: &mut [__m128; T]) {
        const { assert!(F::MAX_QUANT as i32 * 127 * 4 <= i16::MAX as i32) };
        let head = F::head(w);
        let sums = each_of_four!(row => {
            let block = w[row];
            let parts = F::row(&head, block, row);
            let mut sums = [_mm256_setzero_si256(); T];
            for t in 0..T {
                sums[t] = F::correction(&parts, x[t]);
            }
            each!(half => {
                let pairs = F::half(&parts, block, half);
                each!(pair => {
                    let (quants, scales) = pairs[pair];
                    for t in 0..T {
                        let x = x[t].quants.add(128 * half + 64 * pair);
                        let a = _mm256_maddubs_epi16(quants[0], _mm256_loadu_si256(x.cast()));
                        let b = _mm256_maddubs_epi16(quants[1], _mm256_loadu_si256(x.add(32).cast()));
                        let products = _mm256_madd_epi16(_mm256_add_epi16(a, b), scales);
                        sums[t] = pin256(_mm256_add_epi32(sums[t], products));
                    }
                }; 0 1)
            }; 0 1);
            sums
        });
        for first in (0..T).step_by(2) {
            // For the last row of an odd number both halves are the same.
            let last = (first + 1).min(T - 1);
            let totals = totals([
                folded(each_of_four!(row => sums[row][first])),
                folded(each_of_four!(row => sums[row][last])),
            ]);
            let before = _mm256_set_m128(lane[last], lane[first]);
            let after = F::add(&head, totals, [x[first], x[last]], before);
            lane[first] = _mm256_castps256_ps128(after);
            lane[last] = _mm256_extractf128_ps::<1>(after);
        }
    }
}

/// Horizontal sums of four vectors, separately for their lower and upper halves.
#[inline(always)]
unsafe fn folded(v: [__m256i; ROWS]) -> __m256i {
    let two = |a, b| _mm256_add_epi32(_mm256_blend_epi32::<0b1100_1100>(a, b), _mm256_alignr_epi8::<8>(b, a));
    let (a, b) = (two(v[0], v[2]), two(v[1], v[3]));
    let crossed = _mm256_shuffle_epi32::<0b10_11_00_01>(_mm256_blend_epi32::<0b0101_0101>(a, b));
    _mm256_add_epi32(_mm256_blend_epi32::<0b1010_1010>(a, b), crossed)
}

/// The sum of the first vector's halves, and of the second's.
#[inline(always)]
unsafe fn totals([a, b]: [__m256i; 2]) -> __m256i {
    _mm256_add_epi32(_mm256_blend_epi32::<0b1111_0000>(a, b), _mm256_permute2x128_si256::<0x21>(a, b))
}

/// The scales of two super-blocks of activations, one per half of the vector.
#[inline(always)]
unsafe fn scales_of([a, b]: [RowCursor; 2]) -> __m256 {
    _mm256_blend_ps::<0b1111_0000>(_mm256_set1_ps(a.scale()), _mm256_set1_ps(b.scale()))
}

/// The lower nibbles (0), or the upper ones (1).
#[inline(always)]
unsafe fn nibbles([a, b]: [__m256i; 2], which: usize) -> [__m256i; 2] {
    match which {
        0 => [masked(a, 15), masked(b, 15)],
        _ => [masked(_mm256_srli_epi16::<4>(a), 15), masked(_mm256_srli_epi16::<4>(b), 15)],
    }
}

#[inline(always)]
unsafe fn or(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
    [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])]
}

/// Duplicates each half.
#[inline(always)]
unsafe fn spread(v: __m256i) -> [__m256i; 2] {
    [_mm256_permute2x128_si256::<0x00>(v, v), _mm256_permute2x128_si256::<0x11>(v, v)]
}

/// Combines the first eight bytes of each half of both, and the last eight.
#[inline(always)]
unsafe fn octets([a, b]: [__m256i; 2]) -> [__m256i; 2] {
    [_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)]
}

/// Q4_K and Q5_K, whose blocks begin with sixteen bytes of scales and minima.
#[derive(Clone, Copy)]
struct QuadScales {
    /// Bytes, in both halves: each row's scales of the first four sub-blocks, and of the last four.
    scales: [__m256i; 2],
    /// Words: each row's minima of the first two sub-blocks, then of the next two; and those of the
    /// last four.
    minima: [__m256i; 2],
    /// The factors of the scales of four rows, in both halves.
    scale: __m256,
    /// The factors of their minima.
    minimum: __m256,
}

#[inline(always)]
unsafe fn minima_head(blocks: [*const u8; ROWS]) -> QuadScales {
    let QuadHeads { scales, minima, factors } = QuadHeads::new(blocks);
    let twice = |v| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(v), v);
    let pairs = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    let words = |v| _mm256_cvtepu8_epi16(_mm_shuffle_epi8(v, pairs));
    QuadScales {
        scales: [twice(scales[0]), twice(scales[1])],
        minima: [words(minima[0]), words(minima[1])],
        scale: _mm256_permute2f128_ps::<0x00>(factors, factors),
        minimum: _mm256_permute2f128_ps::<0x11>(factors, factors),
    }
}

#[inline(always)]
unsafe fn add_with_minima(head: &QuadScales, all: __m256i, x: [RowCursor; 2], sums: __m256) -> __m256 {
    let of_minima = |x: RowCursor| {
        let sums = x.sums.cast::<__m256i>();
        let first = _mm256_madd_epi16(head.minima[0], _mm256_loadu_si256(sums));
        _mm256_add_epi32(first, _mm256_madd_epi16(head.minima[1], _mm256_loadu_si256(sums.add(1))))
    };
    let of_minima = totals([of_minima(x[0]), of_minima(x[1])]);
    let of_x = scales_of(x);
    let sums = _mm256_fmadd_ps(_mm256_mul_ps(head.scale, of_x), _mm256_cvtepi32_ps(all), sums);
    _mm256_fnmadd_ps(_mm256_mul_ps(head.minimum, of_x), _mm256_cvtepi32_ps(of_minima), sums)
}

/// The scales of four rows, and the shuffles for this row.
type Scales = ([__m256i; 2], &'static [[u8; 32]; 2]);

#[inline(always)]
unsafe fn minima_row(head: &QuadScales, row: usize) -> Scales {
    (head.scales, &SUB_BLOCK_SCALES[row])
}

/// The words for a pair of sub-blocks out of four, alternating.
#[inline(always)]
unsafe fn scales((bytes, places): &Scales, pair: usize) -> __m256i {
    _mm256_shuffle_epi8(bytes[pair / 2], load256(places[pair % 2].as_ptr()))
}

/// Shuffles for each row, and for two pairs of sub-blocks out of four: the positions of scales
/// among those of four rows; the bytes above are zero.
static SUB_BLOCK_SCALES: [[[u8; 32]; 2]; ROWS] = {
    let mut places = [[[0x80; 32]; 2]; ROWS];
    let mut i = 0;
    while i < 32 * 2 * ROWS {
        let (row, pair, byte) = (i / 64, i / 32 % 2, i % 32);
        let sub_block = pair + byte / 8 % 2 * 2;
        places[row][pair][byte] = (row * 4 + sub_block) as u8;
        i += 2;
    }
    places
};

impl SuperQuadFormat for Q4_K {
    type Head = QuadScales;
    type Row = Scales;

    operations! {
        fn head(blocks: [*const u8; ROWS]) -> QuadScales = minima_head(blocks);
        fn row(head: &QuadScales, _: *const u8, row: usize) -> Scales = minima_row(head, row);
    }

    #[inline(always)]
    unsafe fn half(row: &Scales, block: *const u8, half: usize) -> [SubBlockPair; 2] {
        let at = block.add(16 + 64 * half);
        let quants = octets([load256(at), load256(at.add(32))]);
        each!(pair => (nibbles(quants, pair), scales(row, 2 * half + pair)); 0 1)
    }

    #[inline(always)]
    unsafe fn add(head: &QuadScales, totals: __m256i, x: [RowCursor; 2], sums: __m256) -> __m256 {
        add_with_minima(head, totals, x, sums)
    }
}

/// One number in the first half of each half, and another in the second.
#[inline(always)]
unsafe fn by(a: i64, b: i64) -> __m256i {
    _mm256_setr_epi64x(a, b, a, b)
}

/// The fifth bits of a pair of sub-blocks out of four, alternating.
#[inline(always)]
unsafe fn fifth(bits: __m256i, pair: usize) -> __m256i {
    let bits = match pair {
        0 => _mm256_sllv_epi64(bits, by(4, 2)),
        1 => _mm256_sllv_epi64(bits, by(3, 1)),
        2 => _mm256_srlv_epi64(bits, by(0, 2)),
        _ => _mm256_srlv_epi64(bits, by(1, 3)),
    };
    masked(bits, 16)
}

impl SuperQuadFormat for Q5_K {
    type Head = QuadScales;
    /// Scales, and the fifth bits (bit i of each byte belongs to sub-block i): eight quants twice,
    /// and the next eight twice.
    type Row = (Scales, [__m256i; 2]);

    #[inline(always)]
    unsafe fn head(blocks: [*const u8; ROWS]) -> QuadScales {
        minima_head(blocks)
    }

    #[inline(always)]
    unsafe fn row(head: &QuadScales, block: *const u8, row: usize) -> Self::Row {
        let bits = load256(block.add(16));
        (minima_row(head, row), octets([bits, bits]))
    }

    #[inline(always)]
    unsafe fn half((of_row, fifths): &Self::Row, block: *const u8, half: usize) -> [SubBlockPair; 2] {
        let at = block.add(48 + 64 * half);
        let quants = octets([load256(at), load256(at.add(32))]);
        each!(pair => {
            let (low, pair) = (nibbles(quants, pair), 2 * half + pair);
            let fifths = [fifth(fifths[0], pair), fifth(fifths[1], pair)];
            (or(low, fifths), scales(of_row, pair))
        }; 0 1)
    }

    #[inline(always)]
    unsafe fn add(head: &QuadScales, totals: __m256i, x: [RowCursor; 2], sums: __m256) -> __m256 {
        add_with_minima(head, totals, x, sums)
    }
}

impl SuperQuadFormat for Q6_K {
    /// The factors of the scales of four rows, in both halves.
    type Head = __m256;
    /// The scales of each sixteen quants, in words, in order.
    type Row = __m256i;

    #[inline(always)]
    unsafe fn head(blocks: [*const u8; ROWS]) -> __m256 {
        let scales = halves(each_of_four!(row => blocks[row].add(208)));
        _mm256_set_m128(scales, scales)
    }

    #[inline(always)]
    unsafe fn row(_: &__m256, block: *const u8, _: usize) -> __m256i {
        _mm256_cvtepi8_epi16(_mm_loadu_si128(block.add(192).cast()))
    }

    #[inline(always)]
    unsafe fn half(words: &__m256i, block: *const u8, half: usize) -> [SubBlockPair; 2] {
        let four = load256(block.add(128 + 32 * half));
        let words = spread(*words)[half];
        each!(pair => {
            // Sub-blocks `pair` and `pair + 2` of four share bytes.
            let quants = load256(block.add(64 * half + 32 * pair));
            let high = match pair {
                0 => [_mm256_slli_epi16::<4>(four), four],
                _ => [_mm256_slli_epi16::<2>(four), _mm256_srli_epi16::<2>(four)],
            };
            let low = [masked(quants, 15), masked(_mm256_srli_epi16::<4>(quants), 15)];
            let quants = or(low, [masked(high[0], 0x30), masked(high[1], 0x30)]);
            (octets(quants), _mm256_shuffle_epi8(words, load256(SIXTEEN_SCALES[pair].as_ptr())))
        }; 0 1)
    }

    #[inline(always)]
    unsafe fn correction(words: &__m256i, x: RowCursor) -> __m256i {
        let scales = _mm256_slli_epi16::<5>(_mm256_sub_epi16(_mm256_setzero_si256(), *words));
        _mm256_madd_epi16(scales, _mm256_loadu_si256(x.sums.cast()))
    }

    #[inline(always)]
    unsafe fn add(head: &__m256, totals: __m256i, x: [RowCursor; 2], sums: __m256) -> __m256 {
        _mm256_fmadd_ps(_mm256_mul_ps(*head, scales_of(x)), _mm256_cvtepi32_ps(totals), sums)
    }
}

/// Shuffles for two pairs of sub-blocks out of four: the positions of their scales among eight
/// words.
/// Alternating scales of the first sixteens of both sub-blocks, then those of the second sixteens.
static SIXTEEN_SCALES: [[u8; 32]; 2] = {
    let mut places = [[0; 32]; 2];
    let mut i = 0;
    while i < 64 {
        let (pair, byte) = (i / 32, i % 32);
        let (sub_block, second) = (pair + byte / 8 % 2 * 2, byte / 16);
        places[pair][byte] = ((2 * sub_block + second) * 2 + byte % 2) as u8;
        i += 1;
    }
    places
};
