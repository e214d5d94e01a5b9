//! Products with few rows of activations by AVX2, of runs (`turned`, or as they lie `runs`), and of the
//! superblocks that models are mostly made of: of these, as by AVX-512, four rows of weights are worked through side by side.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the same.
#![allow(unsafe_op_in_unsafe_fn)]

mod runs;
mod turned;

use std::arch::{asm, x86_64::*};
use std::marker::PhantomData;
use std::ops::Range;

use super::{AHEAD, Few, Kind, Panel, ROWS, SuperHeads, Superblocks, Supers, each_row, groups, halves};
use crate::Format;
use crate::lanes::LANES;
use crate::quant::avx2::{SuperBits, each};
use crate::quant::k::{Q4_K, Q5_K, Q6_K};
use crate::quant::{codebook, legacy};
use runs::Runs;

/// Two vectors of codes and their scales.
type Two = ([__m256i; 2], [__m256i; 2]);

/// Superblocks of a format that are multiplied four at a time.
///
/// # Safety
/// The functions may only be called where AVX2 is available, and with pointers to whole blocks and panels.
trait Four: SuperBits {
    /// See [`Superblocks::ALIKE`].
    const ALIKE: bool;
    /// What is taken out of the blocks of four rows at once.
    type Head: Copy;
    /// What is taken out of a row's block before its runs.
    type Row: Copy;

    unsafe fn head(blocks: [*const u8; ROWS]) -> Self::Head;

    unsafe fn row(head: &Self::Head, block: *const u8, row: usize) -> Self::Row;

    /// Half of a block: twice two vectors of codes, which have no sign, in the order in which activations are, and for each two codes
    /// of both vectors their scale in a word.
    unsafe fn half(row: &Self::Row, block: *const u8, half: usize) -> [Two; 2];

    /// The sums of a row's products without what its codes are too large by.
    unsafe fn lowered(_: &Self::Row, _x: Panel, sums: __m256i) -> __m256i {
        sums
    }

    /// Adds what integers of four rows come to, to the sums of a lane.
    unsafe fn add(head: &Self::Head, totals: __m128i, x: Panel, sum: __m128) -> __m128;
}

/// The products of some rows of weights; `false` if there is nothing here for the format.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C, and no other task has these rows of weights, which begin with a whole group.
pub(in crate::matmul) unsafe fn some_rows(p: Few, format: Format, rows: Range<usize>) -> bool {
    if turned::some_rows(p, format, rows.clone()) {
        return true;
    }
    match format {
        Format::Q4_K => multiply::<Supers<Fours<Q4_K>>>(p, rows),
        Format::Q5_K => multiply::<Supers<Fours<Q5_K>>>(p, rows),
        Format::Q6_K => multiply::<Supers<Fours<Q6_K>>>(p, rows),
        Format::Q4_0 => multiply::<Runs<legacy::Q4_0>>(p, rows),
        Format::Q4_1 => multiply::<Runs<legacy::Q4_1>>(p, rows),
        Format::Q5_0 => multiply::<Runs<legacy::Q5_0>>(p, rows),
        Format::Q5_1 => multiply::<Runs<legacy::Q5_1>>(p, rows),
        Format::Q8_0 => multiply::<Runs<legacy::Q8_0>>(p, rows),
        Format::MXFP4 => multiply::<Runs<codebook::MXFP4>>(p, rows),
        Format::IQ4_NL => multiply::<Runs<codebook::IQ4_NL>>(p, rows),
        _ => return false,
    }
    true
}

/// # Safety
/// As [`some_rows`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply<K: Kind>(p: Few, rows: Range<usize>) {
    let groups = groups(&rows);
    for first in (0..p.tokens).step_by(TOGETHER) {
        let groups = groups.clone();
        match p.tokens - first {
            1 => K::together::<1>(&p, groups, first),
            2 => K::together::<2>(&p, groups, first),
            3 => K::together::<3>(&p, groups, first),
            _ => K::together::<TOGETHER>(&p, groups, first),
        }
    }
}

/// The rows of activations that weights are taken apart for at once: as many as have sums in registers.
const TOGETHER: usize = 4;

/// Superblocks of a format.
struct Fours<F>(PhantomData<F>);

impl<F: Four> Superblocks for Fours<F> {
    const FORMAT: Format = F::FORMAT;
    const ALIKE: bool = F::ALIKE;

    /// Each run is taken apart once, and never leaves registers.
    ///
    /// Products of codes and activations are added in pairs, to words: with at most 63 * 127 each they can't saturate, and with at most
    /// 31 * 127 two such pairs can't.
    #[allow(clippy::needless_range_loop)] // Indices, because what iterators do to arrays of registers isn't always unrolled.
    #[inline(always)]
    unsafe fn add<const T: usize>(
        w: [*const u8; ROWS],
        x: &[Panel; T],
        lanes: &mut [[__m128; LANES]; T],
        lane: usize,
    ) {
        let head = F::head(w);
        let sums = each_row!(row => {
            let block = w[row];
            let parts = F::row(&head, block, row);
            let mut sums = [_mm256_setzero_si256(); T];
            each!(half => {
                let twos = F::half(&parts, block, half);
                each!(two => {
                    let (codes, scales) = twos[two];
                    for t in 0..T {
                        let x = x[t].codes.add(128 * half + 64 * two);
                        let a = _mm256_maddubs_epi16(codes[0], _mm256_loadu_si256(x.cast()));
                        let b = _mm256_maddubs_epi16(codes[1], _mm256_loadu_si256(x.add(32).cast()));
                        let products = if F::ALIKE {
                            const { assert!(!F::ALIKE || F::MOST as i32 * 127 * 4 <= i16::MAX as i32) };
                            _mm256_madd_epi16(_mm256_add_epi16(a, b), scales[0])
                        } else {
                            _mm256_add_epi32(_mm256_madd_epi16(a, scales[0]), _mm256_madd_epi16(b, scales[1]))
                        };
                        sums[t] = settled(_mm256_add_epi32(sums[t], products));
                    }
                }; 0 1)
            }; 0 1);
            for t in 0..T {
                sums[t] = F::lowered(&parts, x[t], sums[t]);
            }
            sums
        });
        for t in 0..T {
            lanes[t][lane] = F::add(&head, totals(each_row!(row => sums[row][t])), x[t], lanes[t][lane]);
        }
    }
}

/// The same vector, computed here and now, and what was read for it forgotten: left to itself, the compiler puts off what
/// needs the same number until it has no registers left.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn settled(mut v: __m256i) -> __m256i {
    asm!("/* {} */", inout(ymm_reg) v, options(nostack, preserves_flags));
    v
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

/// Of 64 bytes the first and the third sixteen, and the others.
#[inline(always)]
unsafe fn load_apart(at: *const u8) -> [__m256i; 2] {
    [
        _mm256_loadu2_m128i(at.add(32).cast(), at.cast()),
        _mm256_loadu2_m128i(at.add(48).cast(), at.add(16).cast()),
    ]
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
unsafe fn add_with_minima(head: &WithMinima, totals: __m128i, x: Panel, sum: __m128) -> __m128 {
    // The sums of runs: of the first four for each row, and of the last four.
    let WithMinima { minima, factors, .. } = *head;
    let sums = _mm256_madd_epi16(_mm256_loadu_si256(x.sums.cast()), _mm256_set1_epi16(1));
    let sums = _mm256_packs_epi32(sums, sums);
    let first = _mm256_madd_epi16(minima[0], _mm256_permute4x64_epi64::<0x00>(sums));
    let last = _mm256_madd_epi16(minima[1], _mm256_permute4x64_epi64::<0xaa>(sums));
    let of_minima = _mm256_add_epi32(first, last);
    let of_minima =
        _mm_hadd_epi32(_mm256_castsi256_si128(of_minima), _mm256_extracti128_si256::<1>(of_minima));

    let factors = _mm256_mul_ps(factors, _mm256_set1_ps(x.scale()));
    let sum = _mm_fmadd_ps(_mm256_castps256_ps128(factors), _mm_cvtepi32_ps(totals), sum);
    _mm_fnmadd_ps(_mm256_extractf128_ps::<1>(factors), _mm_cvtepi32_ps(of_minima), sum)
}

/// The scales of a row and its neighbour, of the first four runs and of the last four, and where the row's are.
type Scales = ([__m256i; 2], &'static [[u8; 32]; 2]);

#[inline(always)]
unsafe fn minima_row(head: &WithMinima, row: usize) -> Scales {
    ([head.scales[0][row / 2], head.scales[1][row / 2]], &PLACES[row % 2])
}

/// In each half the scale of one of two runs, see [`crate::Activations::interleaved`].
#[inline(always)]
unsafe fn scales((words, places): &Scales, two: usize) -> [__m256i; 2] {
    [_mm256_shuffle_epi8(words[two / 2], load(places[two % 2].as_ptr())); 2]
}

/// For the first and the second row of two, and for two pairs of runs of four, where the scales are among eight words.
static PLACES: [[[u8; 32]; 2]; 2] = {
    let mut places = [[[0; 32]; 2]; 2];
    let mut i = 0;
    while i < 128 {
        let (row, pair, byte) = (i / 64, i / 32 % 2, i % 32);
        let run = pair + byte / 16 * 2;
        places[row][pair][byte] = (row * 8 + run * 2 + byte % 2) as u8;
        i += 1;
    }
    places
};

impl Four for Q4_K {
    const ALIKE: bool = true;
    type Head = WithMinima;
    type Row = Scales;

    #[inline(always)]
    unsafe fn head(blocks: [*const u8; ROWS]) -> WithMinima {
        minima_head(blocks)
    }

    #[inline(always)]
    unsafe fn row(head: &WithMinima, _: *const u8, row: usize) -> Scales {
        minima_row(head, row)
    }

    #[inline(always)]
    unsafe fn half(row: &Scales, block: *const u8, half: usize) -> [Two; 2] {
        let codes = load_apart(block.add(16 + 64 * half));
        each!(two => (nibbles(codes, two), scales(row, 2 * half + two)); 0 1)
    }

    #[inline(always)]
    unsafe fn add(head: &WithMinima, totals: __m128i, x: Panel, sum: __m128) -> __m128 {
        add_with_minima(head, totals, x, sum)
    }
}

/// A number in the lanes of the first half, and one in those of the other.
#[inline(always)]
unsafe fn by(a: i32, b: i32) -> __m256i {
    _mm256_setr_epi32(a, a, a, a, b, b, b, b)
}

/// In each half the fifth bits of one of two runs, see [`crate::Activations::interleaved`].
#[inline(always)]
unsafe fn fifth(bits: __m256i, two: usize) -> __m256i {
    let bits = match two {
        0 => _mm256_sllv_epi32(bits, by(4, 2)),
        1 => _mm256_sllv_epi32(bits, by(3, 1)),
        2 => _mm256_srlv_epi32(bits, by(0, 2)),
        _ => _mm256_srlv_epi32(bits, by(1, 3)),
    };
    masked(bits, 16)
}

impl Four for Q5_K {
    const ALIKE: bool = true;
    type Head = WithMinima;
    /// Scales, and the fifth bits, bit `run` of each byte: of the first sixteen codes of a run in both halves, and of the others.
    type Row = (Scales, [__m256i; 2]);

    #[inline(always)]
    unsafe fn head(blocks: [*const u8; ROWS]) -> WithMinima {
        minima_head(blocks)
    }

    #[inline(always)]
    unsafe fn row(head: &WithMinima, block: *const u8, row: usize) -> Self::Row {
        (minima_row(head, row), spread(load(block.add(16))))
    }

    #[inline(always)]
    unsafe fn half((of_row, fifths): &Self::Row, block: *const u8, half: usize) -> [Two; 2] {
        let codes = load_apart(block.add(48 + 64 * half));
        each!(two => {
            let (low, two) = (nibbles(codes, two), 2 * half + two);
            let fifths = [fifth(fifths[0], two), fifth(fifths[1], two)];
            (or(low, fifths), scales(of_row, two))
        }; 0 1)
    }

    #[inline(always)]
    unsafe fn add(head: &WithMinima, totals: __m128i, x: Panel, sum: __m128) -> __m128 {
        add_with_minima(head, totals, x, sum)
    }
}

impl Four for Q6_K {
    const ALIKE: bool = false;
    /// What the scales of four rows are multiplied by.
    type Head = __m128;
    /// The scales of sixteens, in words and in their order.
    type Row = __m256i;

    #[inline(always)]
    unsafe fn head(blocks: [*const u8; ROWS]) -> __m128 {
        halves(each_row!(row => blocks[row].add(208)))
    }

    #[inline(always)]
    unsafe fn row(_: &__m128, block: *const u8, _: usize) -> __m256i {
        _mm256_cvtepi8_epi16(_mm_loadu_si128(block.add(192).cast()))
    }

    #[inline(always)]
    unsafe fn half(words: &__m256i, block: *const u8, half: usize) -> [Two; 2] {
        let at = block.add(64 * half);
        let codes = [load(at), load(at.add(32))];
        let four = load(block.add(128 + 32 * half));
        let words = spread(*words)[half];
        each!(two => {
            let high = match two {
                0 => [_mm256_slli_epi16::<4>(four), _mm256_slli_epi16::<2>(four)],
                _ => [four, _mm256_srli_epi16::<2>(four)],
            };
            let high = [masked(high[0], 0x30), masked(high[1], 0x30)];
            let places = &SIXTEENS[two];
            let scales = [
                _mm256_shuffle_epi8(words, load(places[0].as_ptr())),
                _mm256_shuffle_epi8(words, load(places[1].as_ptr())),
            ];
            (or(nibbles(codes, two), high), scales)
        }; 0 1)
    }

    #[inline(always)]
    unsafe fn lowered(words: &__m256i, x: Panel, sums: __m256i) -> __m256i {
        let code_sums = _mm256_madd_epi16(*words, _mm256_loadu_si256(x.sums.cast()));
        _mm256_sub_epi32(sums, _mm256_slli_epi32::<5>(code_sums))
    }

    #[inline(always)]
    unsafe fn add(head: &__m128, totals: __m128i, x: Panel, sum: __m128) -> __m128 {
        let factors = _mm_mul_ps(*head, _mm_set1_ps(x.scale()));
        _mm_fmadd_ps(factors, _mm_cvtepi32_ps(totals), sum)
    }
}

/// For each of two times two runs, where the scales of its two sixteens, a half each, are among eight words.
static SIXTEENS: [[[u8; 32]; 2]; 2] = {
    let mut places = [[[0; 32]; 2]; 2];
    let mut i = 0;
    while i < 128 {
        places[i / 64][i / 32 % 2][i % 32] = (i / 16 * 2 + i % 2) as u8;
        i += 1;
    }
    places
};
