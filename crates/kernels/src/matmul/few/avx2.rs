//! Products with few rows of activations by AVX2, of runs (`turned`), and of the superblocks that
//! models are mostly made of: of these, as by AVX-512, four rows of weights are worked through side
//! by side.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the
// same.
#![allow(unsafe_op_in_unsafe_fn)]

mod turned;

use std::arch::{asm, x86_64::*};
use std::marker::PhantomData;
use std::ops::Range;

use super::{Few, Panel, ROWS, SuperHeads, Superblocks, each_row, groups, halves, supers};
use crate::Format;
use crate::quant::avx2::{SuperBits, each};
use crate::quant::k::{Q4_K, Q5_K, Q6_K};

/// Two vectors of codes, and for each two codes of both their scale in a word.
type Two = ([__m256i; 2], __m256i);

/// Superblocks of a format that are multiplied four at a time.
///
/// # Safety
/// The functions may only be called where AVX2 is available, and with pointers to whole blocks and
/// panels.
trait Four: SuperBits {
    /// What is taken out of the blocks of four rows at once.
    type Head: Copy;
    /// What is taken out of a row's block before its runs.
    type Row: Copy;

    unsafe fn head(blocks: [*const u8; ROWS]) -> Self::Head;

    unsafe fn row(head: &Self::Head, block: *const u8, row: usize) -> Self::Row;

    /// Half of a block: twice two vectors of codes, which have no sign, in the order of
    /// [`Eights`](crate::activations::Interleaved::Eights).
    unsafe fn half(row: &Self::Row, block: *const u8, half: usize) -> [Two; 2];

    /// What the sums of a row's products begin with, as little as its codes are too large.
    unsafe fn excess(_: &Self::Row, _x: Panel) -> __m256i {
        _mm256_setzero_si256()
    }

    /// Adds what integers of four rows come to with two panels, to the sums of a lane.
    unsafe fn add(head: &Self::Head, totals: __m256i, x: [Panel; 2], sums: __m256) -> __m256;
}

/// The products of some rows of weights; `false` if there is nothing here for the format, or of
/// runs for rows that aren't whole groups.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C, and no other task has these rows of weights, which begin with a
/// whole group.
pub(in crate::matmul) unsafe fn some_rows(p: Few, format: Format, rows: Range<usize>) -> bool {
    if turned::some_rows(p, format, rows.clone()) {
        return true;
    }
    match format {
        Format::Q4_K => multiply::<Fours<Q4_K>>(p, rows),
        Format::Q5_K => multiply::<Fours<Q5_K>>(p, rows),
        Format::Q6_K => multiply::<Fours<Q6_K>>(p, rows),
        _ => return false,
    }
    true
}

/// # Safety
/// As [`some_rows`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply<B: Superblocks>(p: Few, rows: Range<usize>) {
    let groups = groups(&rows);
    for first in (0..p.tokens).step_by(TOGETHER) {
        let groups = groups.clone();
        match p.tokens - first {
            1 => supers::<B, 1>(&p, groups, first),
            2 => supers::<B, 2>(&p, groups, first),
            3 => supers::<B, 3>(&p, groups, first),
            _ => supers::<B, TOGETHER>(&p, groups, first),
        }
    }
}

/// The rows of activations that weights are taken apart for at once: as many as have sums in
/// registers.
const TOGETHER: usize = 4;

/// Superblocks of a format.
struct Fours<F>(PhantomData<F>);

impl<F: Four> Superblocks for Fours<F> {
    const FORMAT: Format = F::FORMAT;
    const ALIKE: bool = true;
    const SPREAD: bool = F::MINIMA;

    /// Each run is taken apart once, and never leaves registers.
    ///
    /// Products of codes and activations are added in fours, to words: with at most 63 * 127 each
    /// they can't saturate.
    /// Floats are those of two rows of activations.
    #[allow(clippy::needless_range_loop)] // Indices, because what iterators do to arrays of registers isn't always unrolled.
    #[inline(always)]
    unsafe fn add<const T: usize>(w: [*const u8; ROWS], x: &[Panel; T], lane: &mut [__m128; T]) {
        const { assert!(F::MOST as i32 * 127 * 4 <= i16::MAX as i32) };
        let head = F::head(w);
        let sums = each_row!(row => {
            let block = w[row];
            let parts = F::row(&head, block, row);
            let mut sums = [_mm256_setzero_si256(); T];
            for t in 0..T {
                sums[t] = F::excess(&parts, x[t]);
            }
            each!(half => {
                let twos = F::half(&parts, block, half);
                each!(two => {
                    let (codes, scales) = twos[two];
                    for t in 0..T {
                        let x = x[t].codes.add(128 * half + 64 * two);
                        let a = _mm256_maddubs_epi16(codes[0], _mm256_loadu_si256(x.cast()));
                        let b = _mm256_maddubs_epi16(codes[1], _mm256_loadu_si256(x.add(32).cast()));
                        let products = _mm256_madd_epi16(_mm256_add_epi16(a, b), scales);
                        sums[t] = settled(_mm256_add_epi32(sums[t], products));
                    }
                }; 0 1)
            }; 0 1);
            sums
        });
        for first in (0..T).step_by(2) {
            // Of the last one of an odd number both halves are the same.
            let last = (first + 1).min(T - 1);
            let totals = totals([
                folded(each_row!(row => sums[row][first])),
                folded(each_row!(row => sums[row][last])),
            ]);
            let before = _mm256_set_m128(lane[last], lane[first]);
            let after = F::add(&head, totals, [x[first], x[last]], before);
            lane[first] = _mm256_castps256_ps128(after);
            lane[last] = _mm256_extractf128_ps::<1>(after);
        }
    }
}

/// The same vector, computed here and now, and what was read for it forgotten: left to itself, the
/// compiler puts off what needs the same number until it has no registers left.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn settled(mut v: __m256i) -> __m256i {
    asm!("/* {} */", inout(ymm_reg) v, options(nostack, preserves_flags));
    v
}

/// The sums of half of each of four vectors, and of the other halves.
#[inline(always)]
unsafe fn folded(v: [__m256i; ROWS]) -> __m256i {
    let two = |a, b| _mm256_add_epi32(_mm256_blend_epi32::<0b1100_1100>(a, b), _mm256_alignr_epi8::<8>(b, a));
    let (a, b) = (two(v[0], v[2]), two(v[1], v[3]));
    let crossed = _mm256_shuffle_epi32::<0b10_11_00_01>(_mm256_blend_epi32::<0b0101_0101>(a, b));
    _mm256_add_epi32(_mm256_blend_epi32::<0b1010_1010>(a, b), crossed)
}

/// The halves of the first added, and those of the second.
#[inline(always)]
unsafe fn totals([a, b]: [__m256i; 2]) -> __m256i {
    _mm256_add_epi32(_mm256_blend_epi32::<0b1111_0000>(a, b), _mm256_permute2x128_si256::<0x21>(a, b))
}

/// The scales of two panels, each in half of a vector.
#[inline(always)]
unsafe fn scales_of([a, b]: [Panel; 2]) -> __m256 {
    _mm256_blend_ps::<0b1111_0000>(_mm256_set1_ps(a.scale()), _mm256_set1_ps(b.scale()))
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

/// Each half twice.
#[inline(always)]
unsafe fn spread(v: __m256i) -> [__m256i; 2] {
    [_mm256_permute2x128_si256::<0x00>(v, v), _mm256_permute2x128_si256::<0x11>(v, v)]
}

/// Of each half of both the first eight bytes, and the last eight.
#[inline(always)]
unsafe fn eights([a, b]: [__m256i; 2]) -> [__m256i; 2] {
    [_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)]
}

/// Of Q4_K and Q5_K, whose blocks begin with sixteen bytes of scales and minima.
#[derive(Clone, Copy)]
struct WithMinima {
    /// Bytes, in both halves: of each row the scales of the first four runs, and of the last four.
    scales: [__m256i; 2],
    /// Words: of each row the minima of the first two runs, then of the next two; and of the last
    /// four.
    minima: [__m256i; 2],
    /// What the scales of four rows are multiplied by, in both halves.
    scale: __m256,
    /// What their minima are.
    minimum: __m256,
}

#[inline(always)]
unsafe fn minima_head(blocks: [*const u8; ROWS]) -> WithMinima {
    let SuperHeads { scales, minima, factors } = SuperHeads::new(blocks);
    let twice = |v| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(v), v);
    let pairs = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    let words = |v| _mm256_cvtepu8_epi16(_mm_shuffle_epi8(v, pairs));
    WithMinima {
        scales: [twice(scales[0]), twice(scales[1])],
        minima: [words(minima[0]), words(minima[1])],
        scale: _mm256_permute2f128_ps::<0x00>(factors, factors),
        minimum: _mm256_permute2f128_ps::<0x11>(factors, factors),
    }
}

#[inline(always)]
unsafe fn add_with_minima(head: &WithMinima, all: __m256i, x: [Panel; 2], sums: __m256) -> __m256 {
    let of_minima = |x: Panel| {
        let sums = x.sums.cast::<__m256i>();
        let first = _mm256_madd_epi16(head.minima[0], _mm256_loadu_si256(sums));
        _mm256_add_epi32(first, _mm256_madd_epi16(head.minima[1], _mm256_loadu_si256(sums.add(1))))
    };
    let of_minima = totals([of_minima(x[0]), of_minima(x[1])]);
    let of_x = scales_of(x);
    let sums = _mm256_fmadd_ps(_mm256_mul_ps(head.scale, of_x), _mm256_cvtepi32_ps(all), sums);
    _mm256_fnmadd_ps(_mm256_mul_ps(head.minimum, of_x), _mm256_cvtepi32_ps(of_minima), sums)
}

/// The scales of four rows, and where the row's are.
type Scales = ([__m256i; 2], &'static [[u8; 32]; 2]);

#[inline(always)]
unsafe fn minima_row(head: &WithMinima, row: usize) -> Scales {
    (head.scales, &PLACES[row])
}

/// The words of two runs of four, of each in turn.
#[inline(always)]
unsafe fn scales((bytes, places): &Scales, two: usize) -> __m256i {
    _mm256_shuffle_epi8(bytes[two / 2], load(places[two % 2].as_ptr()))
}

/// For each row, and for two pairs of runs of four, where scales are among those of four rows; what
/// is above them is zero.
static PLACES: [[[u8; 32]; 2]; ROWS] = {
    let mut places = [[[0x80; 32]; 2]; ROWS];
    let mut i = 0;
    while i < 32 * 2 * ROWS {
        let (row, pair, byte) = (i / 64, i / 32 % 2, i % 32);
        let run = pair + byte / 8 % 2 * 2;
        places[row][pair][byte] = (row * 4 + run) as u8;
        i += 2;
    }
    places
};

impl Four for Q4_K {
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
        let at = block.add(16 + 64 * half);
        let codes = eights([load(at), load(at.add(32))]);
        each!(two => (nibbles(codes, two), scales(row, 2 * half + two)); 0 1)
    }

    #[inline(always)]
    unsafe fn add(head: &WithMinima, totals: __m256i, x: [Panel; 2], sums: __m256) -> __m256 {
        add_with_minima(head, totals, x, sums)
    }
}

/// A number in the first half of each half, and one in the others.
#[inline(always)]
unsafe fn by(a: i64, b: i64) -> __m256i {
    _mm256_setr_epi64x(a, b, a, b)
}

/// The fifth bits of two runs of four, of each in turn.
#[inline(always)]
unsafe fn fifth(bits: __m256i, two: usize) -> __m256i {
    let bits = match two {
        0 => _mm256_sllv_epi64(bits, by(4, 2)),
        1 => _mm256_sllv_epi64(bits, by(3, 1)),
        2 => _mm256_srlv_epi64(bits, by(0, 2)),
        _ => _mm256_srlv_epi64(bits, by(1, 3)),
    };
    masked(bits, 16)
}

impl Four for Q5_K {
    type Head = WithMinima;
    /// Scales, and the fifth bits, bit `run` of each byte: twice of eight codes of a run, and of
    /// the next eight.
    type Row = (Scales, [__m256i; 2]);

    #[inline(always)]
    unsafe fn head(blocks: [*const u8; ROWS]) -> WithMinima {
        minima_head(blocks)
    }

    #[inline(always)]
    unsafe fn row(head: &WithMinima, block: *const u8, row: usize) -> Self::Row {
        let bits = load(block.add(16));
        (minima_row(head, row), eights([bits, bits]))
    }

    #[inline(always)]
    unsafe fn half((of_row, fifths): &Self::Row, block: *const u8, half: usize) -> [Two; 2] {
        let at = block.add(48 + 64 * half);
        let codes = eights([load(at), load(at.add(32))]);
        each!(two => {
            let (low, two) = (nibbles(codes, two), 2 * half + two);
            let fifths = [fifth(fifths[0], two), fifth(fifths[1], two)];
            (or(low, fifths), scales(of_row, two))
        }; 0 1)
    }

    #[inline(always)]
    unsafe fn add(head: &WithMinima, totals: __m256i, x: [Panel; 2], sums: __m256) -> __m256 {
        add_with_minima(head, totals, x, sums)
    }
}

impl Four for Q6_K {
    /// What the scales of four rows are multiplied by, in both halves.
    type Head = __m256;
    /// The scales of sixteens, in words and in their order.
    type Row = __m256i;

    #[inline(always)]
    unsafe fn head(blocks: [*const u8; ROWS]) -> __m256 {
        let scales = halves(each_row!(row => blocks[row].add(208)));
        _mm256_set_m128(scales, scales)
    }

    #[inline(always)]
    unsafe fn row(_: &__m256, block: *const u8, _: usize) -> __m256i {
        _mm256_cvtepi8_epi16(_mm_loadu_si128(block.add(192).cast()))
    }

    #[inline(always)]
    unsafe fn half(words: &__m256i, block: *const u8, half: usize) -> [Two; 2] {
        let four = load(block.add(128 + 32 * half));
        let words = spread(*words)[half];
        each!(two => {
            // Runs `two` and `two + 2` of four are in the same bytes.
            let codes = load(block.add(64 * half + 32 * two));
            let high = match two {
                0 => [_mm256_slli_epi16::<4>(four), four],
                _ => [_mm256_slli_epi16::<2>(four), _mm256_srli_epi16::<2>(four)],
            };
            let low = [masked(codes, 15), masked(_mm256_srli_epi16::<4>(codes), 15)];
            let codes = or(low, [masked(high[0], 0x30), masked(high[1], 0x30)]);
            (eights(codes), _mm256_shuffle_epi8(words, load(SIXTEENS[two].as_ptr())))
        }; 0 1)
    }

    #[inline(always)]
    unsafe fn excess(words: &__m256i, x: Panel) -> __m256i {
        let scales = _mm256_slli_epi16::<5>(_mm256_sub_epi16(_mm256_setzero_si256(), *words));
        _mm256_madd_epi16(scales, _mm256_loadu_si256(x.sums.cast()))
    }

    #[inline(always)]
    unsafe fn add(head: &__m256, totals: __m256i, x: [Panel; 2], sums: __m256) -> __m256 {
        _mm256_fmadd_ps(_mm256_mul_ps(*head, scales_of(x)), _mm256_cvtepi32_ps(totals), sums)
    }
}

/// For two pairs of runs of four, where the scales of their sixteens are among eight words: of the
/// first sixteens of both in turn, and of the second ones.
static SIXTEENS: [[u8; 32]; 2] = {
    let mut places = [[0; 32]; 2];
    let mut i = 0;
    while i < 64 {
        let (pair, byte) = (i / 32, i % 32);
        let (run, second) = (pair + byte / 8 % 2 * 2, byte / 16);
        places[pair][byte] = ((2 * run + second) * 2 + byte % 2) as u8;
        i += 1;
    }
    places
};
