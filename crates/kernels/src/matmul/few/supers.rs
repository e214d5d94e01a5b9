//! Products with few rows of activations by AVX-512, of the superblocks that models are mostly made of.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::{
    AHEAD, Apart, Blocks, Few, Lying, Panel, ROWS, Source, SuperHeads, TOGETHER, each_row, fetch, groups,
    halves, pair, super_totals,
};
use crate::lanes::LANES;
use crate::matmul::vector::{Avx512, Vector};
use crate::quant::Super;
use crate::quant::avx2::each;
use crate::quant::k::{Q4_K, Q5_K, Q6_K};

/// A format whose superblocks are multiplied four at a time.
///
/// # Safety
/// As [`Blocks`], and with pointers to whole panels.
pub(super) trait Four: Super + Blocks {
    /// Adds what superblocks of four rows give to the sums of a lane, a row each.
    unsafe fn add(w: &impl Source<Self>, x: Panel, sum: __m128) -> __m128
    where
        Self: Sized;
}

/// The products of some rows of weights in superblocks.
///
/// # Safety
/// The CPU has AVX-512, and no other task has these rows of weights, which begin with a whole group.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn some_rows<F: Four>(p: Few, rows: Range<usize>) {
    let bytes = F::FORMAT.block_bytes();
    let blocks = p.row_bytes / bytes;
    for first in (0..p.tokens).step_by(TOGETHER) {
        let tokens = TOGETHER.min(p.tokens - first);
        let mut x = [(&[][..], &[][..], &[][..]); TOGETHER];
        for (token, x) in x[..tokens].iter_mut().enumerate() {
            *x = p.x.all_supers(p.taken.get(first + token));
            let (codes, sums, scales) = *x;
            assert!(codes.len() == 256 * blocks && sums.len() == 16 * blocks && scales.len() == blocks);
        }
        for group in groups(&rows) {
            let w = p.four(group);
            let mut lanes = [[_mm_setzero_ps(); LANES]; TOGETHER];
            for index in 0..blocks {
                let w = each_row!(row => w[row].add(index * bytes));
                if first == 0 {
                    w.iter().for_each(|w| fetch(w.wrapping_add(AHEAD), bytes));
                }
                if tokens == 1 {
                    let lane = &mut lanes[0][index % LANES];
                    *lane = F::add(&Lying::<F>::new(w), Panel::new(x[0], index), *lane);
                    continue;
                }
                let w = Apart::<F>::new(w);
                for (x, lanes) in x[..tokens].iter().zip(&mut lanes) {
                    let lane = &mut lanes[index % LANES];
                    *lane = F::add(&w, Panel::new(*x, index), *lane);
                }
            }
            for (token, lanes) in lanes[..tokens].iter().enumerate() {
                p.put(group, first + token, super_totals(lanes));
            }
        }
    }
}

/// Codes in vectors of two runs.
trait Wide: Super {
    /// The runs that each vector holds.
    const RUNS: [(usize, usize); 4];

    /// The codes of a block, biased, which never have a sign.
    unsafe fn wide(block: *const u8) -> [__m512i; 4];

    /// The activations that go with vector `i`.
    #[inline(always)]
    unsafe fn x(codes: *const i8, i: usize) -> __m512i {
        let (first, second) = Self::RUNS[i];
        let codes = codes.cast::<__m256i>();
        pair(_mm256_loadu_si256(codes.add(first)), _mm256_loadu_si256(codes.add(second)))
    }
}

/// The sums of products of codes and activations times a word for each pair: sums of two products are words, and with at
/// most 63 * 127 each they can't saturate.
#[inline(always)]
unsafe fn products(w: [__m512i; 4], x: [__m512i; 4], scales: [__m512i; 4]) -> __m512i {
    let a = _mm512_madd_epi16(_mm512_maddubs_epi16(w[0], x[0]), scales[0]);
    let b = _mm512_madd_epi16(_mm512_maddubs_epi16(w[1], x[1]), scales[1]);
    let a = Avx512::add_pairs(a, _mm512_maddubs_epi16(w[2], x[2]), scales[2]);
    let b = Avx512::add_pairs(b, _mm512_maddubs_epi16(w[3], x[3]), scales[3]);
    _mm512_add_epi32(a, b)
}

/// The halves of a vector added.
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

/// Every byte shifted down, of which `mask` remains.
#[inline(always)]
unsafe fn field<const SHIFT: u32>(v: __m512i, mask: u8) -> __m512i {
    _mm512_and_si512(_mm512_srli_epi16::<SHIFT>(v), _mm512_set1_epi8(mask as i8))
}

/// Of Q4_K and Q5_K, whose blocks begin with sixteen bytes of scales and minima.
#[derive(Clone, Copy)]
pub(super) struct WithMinima {
    /// Words, of the first and of the last four runs: scales of rows 0 and 1 in every quarter, and of 2 and 3.
    scales: [[__m512i; ROWS / 2]; 2],
    /// Words: four minima of each row, then the other four of each.
    minima: __m512i,
    /// What the scales of four rows are multiplied by, and what their minima are.
    factors: __m256,
}

/// Codes of a row, and for each of them its scale in a word for two.
#[derive(Clone, Copy)]
pub(super) struct Scaled {
    codes: [__m512i; 4],
    scales: [__m512i; 4],
}

#[inline(always)]
unsafe fn minima_head(blocks: [*const u8; ROWS]) -> WithMinima {
    let SuperHeads { scales: [first, last], minima, factors } = SuperHeads::new(blocks);
    let scales = _mm512_cvtepu8_epi16(_mm256_set_m128i(last, first));
    WithMinima {
        scales: [
            [_mm512_shuffle_i64x2::<0x00>(scales, scales), _mm512_shuffle_i64x2::<0x55>(scales, scales)],
            [_mm512_shuffle_i64x2::<0xaa>(scales, scales), _mm512_shuffle_i64x2::<0xff>(scales, scales)],
        ],
        minima: _mm512_cvtepu8_epi16(_mm256_set_m128i(minima[1], minima[0])),
        factors,
    }
}

#[inline(always)]
unsafe fn minima_row<F: Wide>(head: &WithMinima, block: *const u8, row: usize) -> Scaled {
    Scaled {
        codes: F::wide(block),
        scales: each_row!(i => {
            _mm512_shuffle_epi8(head.scales[i / 2][row / 2], load(PLACES[row % 2][i % 2].as_ptr()))
        }),
    }
}

#[inline(always)]
unsafe fn add_with_minima<F: Wide + Blocks<Head = WithMinima, Row = Scaled>>(
    w: &impl Source<F>,
    x: Panel,
    sum: __m128,
) -> __m128 {
    let xs = [F::x(x.codes, 0), F::x(x.codes, 1), F::x(x.codes, 2), F::x(x.codes, 3)];
    let total = totals(each_row!(row => {
        let Scaled { codes, scales } = w.row(row);
        products(codes, xs, scales)
    }));

    // The sums of runs: of the first four for each row, then of the last four.
    let sums = _mm256_madd_epi16(_mm256_loadu_si256(x.sums.cast()), _mm256_set1_epi16(1));
    let sums = _mm256_cvtepi32_epi16(sums);
    let sums = _mm512_inserti64x4::<1>(
        _mm512_castsi256_si512(_mm256_broadcastq_epi64(sums)),
        _mm256_broadcastq_epi64(_mm_unpackhi_epi64(sums, sums)),
    );
    let WithMinima { minima, factors, .. } = *w.head();
    let of_minima = fold(_mm512_madd_epi16(minima, sums));
    let of_minima =
        _mm_hadd_epi32(_mm256_castsi256_si128(of_minima), _mm256_extracti128_si256::<1>(of_minima));

    let factors = _mm256_mul_ps(factors, _mm256_set1_ps(x.scale));
    let sum = _mm_fmadd_ps(_mm256_castps256_ps128(factors), _mm_cvtepi32_ps(total), sum);
    _mm_fnmadd_ps(_mm256_extractf128_ps::<1>(factors), _mm_cvtepi32_ps(of_minima), sum)
}

/// For the first and the second row of two, and for each of two vectors of two runs, where the scales of a quarter's words are.
static PLACES: [[[u8; 64]; 2]; 2] = {
    let mut places = [[[0; 64]; 2]; 2];
    let mut i = 0;
    while i < 256 {
        let (row, vector, byte) = (i / 128, i / 64 % 2, i % 64);
        let (first, second) = Q4_K::RUNS[vector];
        let run = if byte < 32 { first } else { second };
        places[row][vector][byte] = (row * 8 + run * 2 + byte % 2) as u8;
        i += 1;
    }
    places
};

impl Wide for Q4_K {
    const RUNS: [(usize, usize); 4] = [(0, 2), (1, 3), (4, 6), (5, 7)];

    #[inline(always)]
    unsafe fn wide(block: *const u8) -> [__m512i; 4] {
        let (first, second) = (load(block.add(16)), load(block.add(80)));
        [field::<0>(first, 15), field::<4>(first, 15), field::<0>(second, 15), field::<4>(second, 15)]
    }
}

impl Wide for Q5_K {
    const RUNS: [(usize, usize); 4] = Q4_K::RUNS;

    #[inline(always)]
    unsafe fn wide(block: *const u8) -> [__m512i; 4] {
        let (first, second) = (load(block.add(48)), load(block.add(112)));
        let fifth = _mm512_broadcast_i64x4(_mm256_loadu_si256(block.add(16).cast()));
        [
            _mm512_or_si512(field::<0>(first, 15), flag(fifth, 1, 4)),
            _mm512_or_si512(field::<4>(first, 15), flag(fifth, 2, 8)),
            _mm512_or_si512(field::<0>(second, 15), flag(fifth, 16, 64)),
            _mm512_or_si512(field::<4>(second, 15), flag(fifth, 32, 128)),
        ]
    }
}

impl Wide for Q6_K {
    const RUNS: [(usize, usize); 4] = [(0, 1), (2, 3), (4, 5), (6, 7)];

    #[inline(always)]
    unsafe fn wide(block: *const u8) -> [__m512i; 4] {
        let (first, second) = (load(block), load(block.add(64)));
        // Fields of two bits of the same 32 bytes, for two runs each.
        let (high_first, high_second) = (two_fields(block.add(128)), two_fields(block.add(160)));
        [
            _mm512_or_si512(field::<0>(first, 15), _mm512_slli_epi16::<4>(field::<0>(high_first, 3))),
            _mm512_or_si512(field::<4>(first, 15), _mm512_slli_epi16::<4>(field::<4>(high_first, 3))),
            _mm512_or_si512(field::<0>(second, 15), _mm512_slli_epi16::<4>(field::<0>(high_second, 3))),
            _mm512_or_si512(field::<4>(second, 15), _mm512_slli_epi16::<4>(field::<4>(high_second, 3))),
        ]
    }
}

/// Sixteen in every byte that has the bit `low` (of the first half) or `high` (of the second) set.
#[inline(always)]
unsafe fn flag(v: __m512i, low: u8, high: u8) -> __m512i {
    let bits = pair(_mm256_set1_epi8(low as i8), _mm256_set1_epi8(high as i8));
    _mm512_maskz_set1_epi8(_mm512_test_epi8_mask(v, bits), 16)
}

/// 32 bytes, and the same shifted down by two.
#[inline(always)]
unsafe fn two_fields(at: *const u8) -> __m512i {
    let bytes = _mm256_loadu_si256(at.cast());
    pair(bytes, _mm256_srli_epi16::<2>(bytes))
}

/// Q4_K and Q5_K.
macro_rules! with_minima {
    ($($format:ident)*) => {$(
        impl Blocks for $format {
            type Head = WithMinima;
            type Row = Scaled;

            #[inline(always)]
            unsafe fn head(blocks: [*const u8; ROWS]) -> WithMinima {
                minima_head(blocks)
            }

            #[inline(always)]
            unsafe fn row(head: &WithMinima, block: *const u8, row: usize) -> Scaled {
                minima_row::<$format>(head, block, row)
            }
        }

        impl Four for $format {
            #[inline(always)]
            unsafe fn add(w: &impl Source<$format>, x: Panel, sum: __m128) -> __m128 {
                add_with_minima(w, x, sum)
            }
        }
    )*};
}

with_minima!(Q4_K Q5_K);

impl Blocks for Q6_K {
    /// What the scales of four rows are multiplied by.
    type Head = __m128;
    /// Codes with scales, and the scales of sixteens in their order.
    type Row = (Scaled, __m256i);

    #[inline(always)]
    unsafe fn head(blocks: [*const u8; ROWS]) -> __m128 {
        halves(each_row!(row => blocks[row].add(208)))
    }

    #[inline(always)]
    unsafe fn row(_: &__m128, block: *const u8, _: usize) -> (Scaled, __m256i) {
        let words = _mm256_cvtepi8_epi16(_mm_loadu_si128(block.add(192).cast()));
        let halves = [
            _mm512_broadcast_i32x4(_mm256_castsi256_si128(words)),
            _mm512_broadcast_i32x4(_mm256_extracti128_si256::<1>(words)),
        ];
        let scales = each_row!(i => _mm512_shuffle_epi8(halves[i / 2], load(SIXTEENS[i % 2].as_ptr())));
        (Scaled { codes: Q6_K::wide(block), scales }, words)
    }
}

impl Four for Q6_K {
    #[inline(always)]
    unsafe fn add(w: &impl Source<Q6_K>, x: Panel, sum: __m128) -> __m128 {
        let xs = [Q6_K::x(x.codes, 0), Q6_K::x(x.codes, 1), Q6_K::x(x.codes, 2), Q6_K::x(x.codes, 3)];
        let sums = _mm256_loadu_si256(x.sums.cast());
        let total = totals(each_row!(row => {
            let (Scaled { codes, scales }, words) = w.row(row);
            // Codes are 32 too large.
            let excess = _mm256_slli_epi32::<5>(_mm256_madd_epi16(words, sums));
            _mm512_sub_epi32(products(codes, xs, scales), _mm512_zextsi256_si512(excess))
        }));
        let factors = _mm_mul_ps(*w.head(), _mm_set1_ps(x.scale));
        _mm_fmadd_ps(factors, _mm_cvtepi32_ps(total), sum)
    }
}

/// For each of two vectors of two runs, where the scales of its four sixteens, a quarter each, are among eight words.
static SIXTEENS: [[u8; 64]; 2] = {
    let mut places = [[0; 64]; 2];
    let mut i = 0;
    while i < 128 {
        places[i / 64][i % 64] = (i / 16 * 2 + i % 2) as u8;
        i += 1;
    }
    places
};
