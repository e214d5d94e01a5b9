//! Products with few rows of activations by AVX2, of the superblocks that models are mostly made of: as those by AVX-512, four
//! rows of weights are worked through side by side.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use super::{
    Apart, Blocks, Few, Lying, Panel, ROWS, Source, SuperHeads, TOGETHER, each_row, halves, super_totals,
};
use crate::Format;
use crate::lanes::LANES;
use crate::matmul::Ahead;
use crate::quant::Super;
use crate::quant::avx2::each;
use crate::quant::k::{Q4_K, Q5_K, Q6_K};

/// Superblocks of a format that are multiplied four at a time.
struct Supers<F>(PhantomData<F>);

/// # Safety
/// The functions may only be called where AVX2 is available, and with pointers to whole blocks and panels.
trait Four: Blocks {
    const BYTES: usize;

    /// Adds what superblocks of four rows give to the sums of a lane, a row each.
    unsafe fn add(w: &impl Source<Self>, x: Panel, sum: __m128) -> __m128
    where
        Self: Sized;
}

/// The products of some rows of weights; `false` if there is nothing here for the format.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C, and no other task has these rows of weights.
pub(in crate::matmul) unsafe fn some_rows(p: Few, format: Format, rows: Range<usize>) -> bool {
    match format {
        Format::Q4_K => in_supers::<Supers<Q4_K>>(p, rows),
        Format::Q5_K => in_supers::<Supers<Q5_K>>(p, rows),
        Format::Q6_K => in_supers::<Supers<Q6_K>>(p, rows),
        _ => return false,
    }
    true
}

/// # Safety
/// As [`some_rows`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn in_supers<F: Four>(p: Few, rows: Range<usize>) {
    let blocks = p.row_bytes / F::BYTES;
    let mut ahead = Ahead::new(&p, &rows, ROWS);
    for first in (0..p.tokens).step_by(TOGETHER) {
        let tokens = TOGETHER.min(p.tokens - first);
        let mut x = [(&[][..], &[][..], &[][..]); TOGETHER];
        for (token, x) in x[..tokens].iter_mut().enumerate() {
            *x = p.x.all_supers(p.taken.get(first + token));
            let (codes, sums, scales) = *x;
            assert!(codes.len() == 256 * blocks && sums.len() == 16 * blocks && scales.len() == blocks);
        }
        for start in rows.clone().step_by(ROWS) {
            let (w, count) = p.four(start, rows.end);
            let mut lanes = [[_mm_setzero_ps(); LANES]; TOGETHER];
            for index in 0..blocks {
                let w = each_row!(row => w[row].add(index * F::BYTES));
                if first == 0 {
                    ahead.fetch(ROWS * F::BYTES);
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
                let y = p.y.slice((first + token) * p.out + start, count);
                y.copy_from_slice(&super_totals(lanes)[..count]);
            }
        }
    }
}

/// Codes of a row, and for each of them its scale in a word for two.
#[derive(Clone, Copy)]
struct Scaled {
    codes: [__m256i; 8],
    scales: [__m256i; 8],
}

/// The sums of products of codes and activations times a word for each pair: sums of two products are words, and with at
/// most 63 * 127 each they can't saturate.
#[inline(always)]
unsafe fn products(Scaled { codes, scales }: Scaled, x: *const i8) -> __m256i {
    let v = each!(run => {
        let x = _mm256_loadu_si256(x.add(32 * run).cast());
        _mm256_madd_epi16(_mm256_maddubs_epi16(codes[run], x), scales[run])
    });
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

/// Of Q4_K and Q5_K, whose blocks begin with sixteen bytes of scales and minima.
#[derive(Clone, Copy)]
struct WithMinima {
    /// Words, of the first and of the last four runs: scales of rows 0 and 1 in both halves, and of 2 and 3.
    scales: [[__m256i; ROWS / 2]; 2],
    /// Words: four minima of each row, and the other four of each.
    minima: [__m256i; 2],
    /// What the scales of four rows are multiplied by, and what their minima are.
    factors: __m256,
}

#[inline(always)]
unsafe fn minima_head(blocks: [*const u8; ROWS]) -> WithMinima {
    let SuperHeads { scales, minima, factors } = SuperHeads::new(blocks);
    WithMinima {
        scales: [spread(_mm256_cvtepu8_epi16(scales[0])), spread(_mm256_cvtepu8_epi16(scales[1]))],
        minima: [_mm256_cvtepu8_epi16(minima[0]), _mm256_cvtepu8_epi16(minima[1])],
        factors,
    }
}

#[inline(always)]
unsafe fn minima_scales(head: &WithMinima, row: usize) -> [__m256i; 8] {
    each!(run => {
        _mm256_shuffle_epi8(head.scales[run / 4][row / 2], load(PLACES[row % 2][run % 4].as_ptr()))
    })
}

#[inline(always)]
unsafe fn add_with_minima<F: Blocks<Head = WithMinima, Row = Scaled>>(
    w: &impl Source<F>,
    x: Panel,
    sum: __m128,
) -> __m128 {
    let total = totals(each_row!(row => products(w.row(row), x.codes)));

    // The sums of runs: of the first four for each row, and of the last four.
    let WithMinima { minima, factors, .. } = *w.head();
    let sums = _mm256_madd_epi16(_mm256_loadu_si256(x.sums.cast()), _mm256_set1_epi16(1));
    let sums = _mm256_packs_epi32(sums, sums);
    let first = _mm256_madd_epi16(minima[0], _mm256_permute4x64_epi64::<0x00>(sums));
    let last = _mm256_madd_epi16(minima[1], _mm256_permute4x64_epi64::<0xaa>(sums));
    let of_minima = _mm256_add_epi32(first, last);
    let of_minima =
        _mm_hadd_epi32(_mm256_castsi256_si128(of_minima), _mm256_extracti128_si256::<1>(of_minima));

    let factors = _mm256_mul_ps(factors, _mm256_set1_ps(x.scale));
    let sum = _mm_fmadd_ps(_mm256_castps256_ps128(factors), _mm_cvtepi32_ps(total), sum);
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

impl Blocks for Supers<Q4_K> {
    type Head = WithMinima;
    type Row = Scaled;

    #[inline(always)]
    unsafe fn head(blocks: [*const u8; ROWS]) -> WithMinima {
        minima_head(blocks)
    }

    #[inline(always)]
    unsafe fn row(head: &WithMinima, block: *const u8, row: usize) -> Scaled {
        Scaled {
            codes: each!(run => nibbles(block.add(16 + run / 2 * 32), run % 2 == 1)),
            scales: minima_scales(head, row),
        }
    }
}

impl Four for Supers<Q4_K> {
    const BYTES: usize = Q4_K::FORMAT.block_bytes();

    #[inline(always)]
    unsafe fn add(w: &impl Source<Self>, x: Panel, sum: __m128) -> __m128 {
        add_with_minima(w, x, sum)
    }
}

impl Blocks for Supers<Q5_K> {
    type Head = WithMinima;
    type Row = Scaled;

    #[inline(always)]
    unsafe fn head(blocks: [*const u8; ROWS]) -> WithMinima {
        minima_head(blocks)
    }

    #[inline(always)]
    unsafe fn row(head: &WithMinima, block: *const u8, row: usize) -> Scaled {
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
        let codes = each!(run => {
            let low = nibbles(block.add(48 + run / 2 * 32), run % 2 == 1);
            _mm256_or_si256(low, masked(fifths[run], 16))
        });
        Scaled { codes, scales: minima_scales(head, row) }
    }
}

impl Four for Supers<Q5_K> {
    const BYTES: usize = Q5_K::FORMAT.block_bytes();

    #[inline(always)]
    unsafe fn add(w: &impl Source<Self>, x: Panel, sum: __m128) -> __m128 {
        add_with_minima(w, x, sum)
    }
}

impl Blocks for Supers<Q6_K> {
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
        let halves = spread(words);
        let codes = each!(run => {
            let low = nibbles(block.add(run / 4 * 64 + run % 2 * 32), run % 4 >= 2);
            let four = load(block.add(128 + run / 4 * 32));
            let high = match run % 4 {
                0 => _mm256_slli_epi16::<4>(four),
                1 => _mm256_slli_epi16::<2>(four),
                2 => four,
                _ => _mm256_srli_epi16::<2>(four),
            };
            _mm256_or_si256(low, masked(high, 0x30))
        });
        let scales = each!(run => _mm256_shuffle_epi8(halves[run / 4], load(SIXTEENS[run % 4].as_ptr())));
        (Scaled { codes, scales }, words)
    }
}

impl Four for Supers<Q6_K> {
    const BYTES: usize = Q6_K::FORMAT.block_bytes();

    #[inline(always)]
    unsafe fn add(w: &impl Source<Self>, x: Panel, sum: __m128) -> __m128 {
        let sums = _mm256_loadu_si256(x.sums.cast());
        let total = totals(each_row!(row => {
            let (scaled, words) = w.row(row);
            // Codes are 32 too large.
            _mm256_sub_epi32(products(scaled, x.codes), _mm256_slli_epi32::<5>(_mm256_madd_epi16(words, sums)))
        }));
        let factors = _mm_mul_ps(*w.head(), _mm_set1_ps(x.scale));
        _mm_fmadd_ps(factors, _mm_cvtepi32_ps(total), sum)
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
