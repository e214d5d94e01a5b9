//! Products with few rows of activations by AVX-512, of runs and of the superblocks that models are mostly made of: four
//! rows of weights are worked through side by side, so that scales, sums and floats are those of four rows at once.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::{Few, fetch, nibbles};
use crate::Format;
use crate::lanes::LANES;
use crate::quant::avx2::{Bias, RunBits, each};
use crate::quant::k::{self, Q4_K, Q5_K, Q6_K};
use crate::quant::{MAX_BYTES, PANEL, Super, codebook, legacy};

/// `[f(0), f(1), f(2), f(3)]`. Not a function, because a closure that isn't inlined loses the features.
macro_rules! each_row {
    ($row:ident => $f:expr) => {
        each!($row => $f; 0 1 2 3)
    };
}
pub(super) use each_row;

/// The rows of weights that are worked through side by side.
pub(super) const ROWS: usize = 4;

/// A panel of activations.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    codes: *const i8,
    /// The sums of sixteen codes each.
    sums: *const i16,
    scale: f32,
}

/// A format whose superblocks are multiplied four at a time.
///
/// # Safety
/// The functions may only be called where AVX-512 is available, and with pointers to whole blocks and panels.
pub(super) trait Four: Super {
    /// Adds what superblocks of four rows give to the sums of a lane, a row each.
    unsafe fn add(blocks: [*const u8; ROWS], x: Panel, sum: __m128) -> __m128;
}

/// The products of some rows of weights; `false` if there is nothing here for the format.
///
/// # Safety
/// The CPU has AVX-512, and no other task has these rows of weights.
pub(super) unsafe fn some_rows(p: Few, format: Format, rows: Range<usize>) -> bool {
    match format {
        Format::Q4_K => supers::<k::Q4_K>(p, rows),
        Format::Q5_K => supers::<k::Q5_K>(p, rows),
        Format::Q6_K => supers::<k::Q6_K>(p, rows),
        Format::Q4_0 => nibbles::some_rows::<legacy::Q4_0>(p, rows),
        Format::Q4_1 => nibbles::some_rows::<legacy::Q4_1>(p, rows),
        Format::Q5_0 => runs::<legacy::Q5_0>(p, rows),
        Format::Q5_1 => runs::<legacy::Q5_1>(p, rows),
        Format::Q8_0 => runs::<legacy::Q8_0>(p, rows),
        Format::MXFP4 => nibbles::some_rows::<codebook::MXFP4>(p, rows),
        Format::IQ4_NL => nibbles::some_rows::<codebook::IQ4_NL>(p, rows),
        _ => return false,
    }
    true
}

impl Few<'_> {
    /// Up to four rows from `start` on: where they are, and how many. What is missing of four is the last row once more,
    /// whose results aren't used.
    #[inline(always)]
    pub(super) fn four(&self, start: usize, end: usize) -> ([*const u8; ROWS], usize) {
        let count = ROWS.min(end - start);
        let row = |i: usize| self.w[(start + i.min(count - 1)) * self.row_bytes..][..self.row_bytes].as_ptr();
        ([row(0), row(1), row(2), row(3)], count)
    }
}

/// The products of some rows of weights in superblocks.
///
/// # Safety
/// The CPU has AVX-512, and no other task has these rows of weights.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn supers<F: Four>(p: Few, rows: Range<usize>) {
    let bytes = F::FORMAT.block_bytes();
    for start in rows.clone().step_by(ROWS) {
        let (w, count) = p.four(start, rows.end);
        for token in 0..p.tokens {
            let (codes, sums, scales) = p.x.all_supers(p.taken.get(token));
            assert!(scales.len() * bytes == p.row_bytes && codes.len() == 256 * scales.len());
            let mut lanes = [_mm_setzero_ps(); LANES];
            for (index, &scale) in scales.iter().enumerate() {
                let at = index * bytes;
                if token == 0 {
                    // The rows that come next.
                    w.iter().for_each(|w| fetch(w.wrapping_add(ROWS * p.row_bytes + at), bytes));
                }
                let x = Panel {
                    codes: codes.as_ptr().add(256 * index),
                    sums: sums.as_ptr().add(16 * index),
                    scale,
                };
                let lane = &mut lanes[index % LANES];
                *lane = F::add([w[0].add(at), w[1].add(at), w[2].add(at), w[3].add(at)], x, *lane);
            }
            let even = _mm_add_ps(_mm_add_ps(lanes[0], lanes[4]), _mm_add_ps(lanes[2], lanes[6]));
            let odd = _mm_add_ps(_mm_add_ps(lanes[1], lanes[5]), _mm_add_ps(lanes[3], lanes[7]));
            let mut numbers = [0f32; ROWS];
            _mm_storeu_ps(numbers.as_mut_ptr(), _mm_add_ps(even, odd));
            p.y.slice(token * p.out + start, count).copy_from_slice(&numbers[..count]);
        }
    }
}

/// The products of some rows of weights in runs.
///
/// # Safety
/// As [`supers`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn runs<F: RunBits>(p: Few, rows: Range<usize>) {
    let bytes = LANES * F::FORMAT.block_bytes();
    let (panels, rest) = (p.row_bytes / bytes, p.row_bytes % bytes);
    let mut padded = [[0; MAX_BYTES]; ROWS];
    for start in rows.clone().step_by(ROWS) {
        let (w, count) = p.four(start, rows.end);
        if rest > 0 {
            // The last panels of all rows are equally long, so what follows them stays zero.
            for (padded, w) in padded.iter_mut().zip(w) {
                w.add(panels * bytes).copy_to_nonoverlapping(padded.as_mut_ptr(), rest);
            }
        }
        for token in 0..p.tokens {
            let from = p.taken.get(token);
            let mut lanes = [_mm512_setzero_ps(); ROWS / 2];
            for index in 0..panels {
                let at = index * bytes;
                if token == 0 {
                    // The rows that come next.
                    w.iter().for_each(|w| fetch(w.wrapping_add(ROWS * p.row_bytes + at), bytes));
                }
                add_runs::<F>(each_row!(row => w[row].add(at)), p.x.runs(from, index), &mut lanes);
            }
            if rest > 0 {
                add_runs::<F>(each_row!(row => padded[row].as_ptr()), p.x.runs(from, panels), &mut lanes);
            }
            // As `lanes::sum`, of two rows in each half.
            let [a, b] = lanes;
            let s = _mm512_add_ps(
                _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b),
                _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b),
            );
            let s = _mm512_add_ps(s, _mm512_shuffle_ps::<0b01_00_11_10>(s, s));
            let s = _mm512_add_ps(s, _mm512_shuffle_ps::<0b10_11_00_01>(s, s));
            let mut numbers = [0f32; 16];
            _mm512_storeu_ps(numbers.as_mut_ptr(), s);
            for (y, &number) in
                p.y.slice(token * p.out + start, count).iter_mut().zip(numbers.iter().step_by(4))
            {
                *y = number;
            }
        }
    }
}

/// Adds what eight runs of four rows give to the sums of lanes, two rows in a register.
#[inline(always)]
unsafe fn add_runs<F: RunBits>(
    blocks: [*const u8; ROWS],
    (codes, sums, scales): (&[i8], &[i16], &[f32]),
    lanes: &mut [__m512; ROWS / 2],
) {
    assert!(codes.len() == PANEL && sums.len() == 16 && scales.len() == LANES);
    let size = F::FORMAT.block_bytes();
    // Runs i and i + 4 in a register.
    let x = each_row!(i => {
        let run = codes.as_ptr().add(32 * i).cast::<__m256i>();
        pair(_mm256_loadu_si256(run), _mm256_loadu_si256(run.add(4)))
    });
    let bias = match F::BIAS {
        Bias::Unsigned(bias) => bias,
        Bias::Signed => 128,
    };
    let sums = _mm512_broadcast_i64x4(_mm256_loadu_si256(sums.as_ptr().cast()));
    let scales = _mm512_broadcast_f32x8(_mm256_loadu_ps(scales.as_ptr()));

    // For each row the sums of four codes' products, of runs 0 to 3 in both lower quarters, of 4 to 7 in both upper ones.
    let quads = each_row!(row => {
        let w = each_row!(i => {
            let low = F::vector(blocks[row].add(i * size));
            let w = pair(low, F::vector(blocks[row].add((i + 4) * size)));
            let w = match F::BIAS {
                Bias::Unsigned(_) => w,
                Bias::Signed => _mm512_xor_si512(w, _mm512_set1_epi8(-128)),
            };
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, x[i])
        });
        let a = _mm512_add_epi32(_mm512_unpacklo_epi32(w[0], w[1]), _mm512_unpackhi_epi32(w[0], w[1]));
        let b = _mm512_add_epi32(_mm512_unpacklo_epi32(w[2], w[3]), _mm512_unpackhi_epi32(w[2], w[3]));
        _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
    });
    for (i, lanes) in lanes.iter_mut().enumerate() {
        let (first, second) = (quads[2 * i], quads[2 * i + 1]);
        let mut total = _mm512_add_epi32(
            _mm512_shuffle_i64x2::<0b10_00_10_00>(first, second),
            _mm512_shuffle_i64x2::<0b11_01_11_01>(first, second),
        );
        if bias != 0 {
            total = _mm512_dpwssd_epi32(total, sums, _mm512_set1_epi16(-bias));
        }
        let block = |row: usize| each!(run => blocks[row].add(run * size));
        let (first, second) = (block(2 * i), block(2 * i + 1));
        let factor = _mm512_mul_ps(both(F::scales(first), F::scales(second)), scales);
        *lanes = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(total), *lanes);
        if F::OFFSET {
            let factor = _mm512_mul_ps(both(F::offsets(first), F::offsets(second)), scales);
            let total = _mm512_cvtepi32_ps(_mm512_madd_epi16(sums, _mm512_set1_epi16(1)));
            *lanes = _mm512_fmadd_ps(factor, total, *lanes);
        }
    }
}

#[inline(always)]
unsafe fn pair(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

#[inline(always)]
unsafe fn both(low: __m256, high: __m256) -> __m512 {
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
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
    let a = _mm512_dpwssd_epi32(a, _mm512_maddubs_epi16(w[2], x[2]), scales[2]);
    let b = _mm512_dpwssd_epi32(b, _mm512_maddubs_epi16(w[3], x[3]), scales[3]);
    _mm512_add_epi32(a, b)
}

/// The halves of a vector added.
#[inline(always)]
unsafe fn fold(v: __m512i) -> __m256i {
    _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64::<1>(v))
}

/// The sums of four vectors.
#[inline(always)]
unsafe fn totals(v: [__m256i; ROWS]) -> __m128i {
    let both = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
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

/// Q4_K and Q5_K: sixteen bytes of scales and minima, then codes.
#[inline(always)]
unsafe fn add_with_minima<F: Wide>(blocks: [*const u8; ROWS], x: Panel, sum: __m128) -> __m128 {
    // The first sixteen bytes of four rows, turned: the two factors, then scales, minima and what is low of the last ones.
    let [r0, r1, r2, r3] = each_row!(row => _mm_loadu_si128(blocks[row].cast()));
    let (a, b) = (_mm_unpacklo_epi32(r0, r1), _mm_unpacklo_epi32(r2, r3));
    let (c, d) = (_mm_unpackhi_epi32(r0, r1), _mm_unpackhi_epi32(r2, r3));
    let factors = _mm_unpacklo_epi64(a, b);
    let (scale, minimum, low) =
        (_mm_unpackhi_epi64(a, b), _mm_unpacklo_epi64(c, d), _mm_unpackhi_epi64(c, d));
    // As `k::scales_and_minima`.
    let (six, four, two) =
        (_mm_set1_epi32(0x3f3f_3f3f), _mm_set1_epi32(0x0f0f_0f0f), _mm_set1_epi32(0x3030_3030));
    let last_scales = _mm_or_si128(_mm_and_si128(low, four), _mm_and_si128(_mm_srli_epi32::<2>(scale), two));
    let last_minima = _mm_or_si128(
        _mm_and_si128(_mm_srli_epi32::<4>(low), four),
        _mm_and_si128(_mm_srli_epi32::<2>(minimum), two),
    );
    // Words: four scales of each row, then the other four of each.
    let scales = _mm512_cvtepu8_epi16(_mm256_set_m128i(last_scales, _mm_and_si128(scale, six)));
    let minima = _mm512_cvtepu8_epi16(_mm256_set_m128i(last_minima, _mm_and_si128(minimum, six)));

    let xs = [F::x(x.codes, 0), F::x(x.codes, 1), F::x(x.codes, 2), F::x(x.codes, 3)];
    let total = totals(each_row!(row => {
        let scales = [
            _mm512_permutexvar_epi16(load(PLACES[row][0].as_ptr().cast()), scales),
            _mm512_permutexvar_epi16(load(PLACES[row][1].as_ptr().cast()), scales),
            _mm512_permutexvar_epi16(load(PLACES[row][2].as_ptr().cast()), scales),
            _mm512_permutexvar_epi16(load(PLACES[row][3].as_ptr().cast()), scales),
        ];
        fold(products(F::wide(blocks[row]), xs, scales))
    }));

    // The sums of runs: of the first four for each row, then of the last four.
    let sums = _mm256_madd_epi16(_mm256_loadu_si256(x.sums.cast()), _mm256_set1_epi16(1));
    let sums = _mm256_cvtepi32_epi16(sums);
    let sums = _mm512_inserti64x4::<1>(
        _mm512_castsi256_si512(_mm256_broadcastq_epi64(sums)),
        _mm256_broadcastq_epi64(_mm_unpackhi_epi64(sums, sums)),
    );
    let of_minima = fold(_mm512_madd_epi16(minima, sums));
    let of_minima =
        _mm_hadd_epi32(_mm256_castsi256_si128(of_minima), _mm256_extracti128_si256::<1>(of_minima));

    // Each row's two halves: first all scales, then all minima.
    let order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    let factors = _mm256_cvtph_ps(_mm_shuffle_epi8(factors, order));
    let factors = _mm256_mul_ps(factors, _mm256_set1_ps(x.scale));
    let sum = _mm_fmadd_ps(_mm256_castps256_ps128(factors), _mm_cvtepi32_ps(total), sum);
    _mm_fnmadd_ps(_mm256_extractf128_ps::<1>(factors), _mm_cvtepi32_ps(of_minima), sum)
}

/// For each row and vector of two runs, where the run's scale is among the words of four rows.
static PLACES: [[[u16; 32]; 4]; ROWS] = {
    let mut places = [[[0; 32]; 4]; ROWS];
    let mut i = 0;
    while i < ROWS * 128 {
        let (row, vector, word) = (i / 128, i / 32 % 4, i % 32);
        let (first, second) = Q4_K::RUNS[vector];
        let run = if word < 16 { first } else { second };
        places[row][vector][word] = (run / 4 * 16 + row * 4 + run % 4) as u16;
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

impl Four for Q4_K {
    #[inline(always)]
    unsafe fn add(blocks: [*const u8; ROWS], x: Panel, sum: __m128) -> __m128 {
        add_with_minima::<Q4_K>(blocks, x, sum)
    }
}

impl Four for Q5_K {
    #[inline(always)]
    unsafe fn add(blocks: [*const u8; ROWS], x: Panel, sum: __m128) -> __m128 {
        add_with_minima::<Q5_K>(blocks, x, sum)
    }
}

impl Four for Q6_K {
    #[inline(always)]
    unsafe fn add(blocks: [*const u8; ROWS], x: Panel, sum: __m128) -> __m128 {
        let xs = [Q6_K::x(x.codes, 0), Q6_K::x(x.codes, 1), Q6_K::x(x.codes, 2), Q6_K::x(x.codes, 3)];
        let sums = _mm256_loadu_si256(x.sums.cast());
        let total = totals(each_row!(row => {
            let words = _mm256_cvtepi8_epi16(_mm_loadu_si128(blocks[row].add(192).cast()));
            let wide = _mm512_castsi256_si512(words);
            let scales = [
                _mm512_permutexvar_epi16(load(SIXTEENS[0].as_ptr().cast()), wide),
                _mm512_permutexvar_epi16(load(SIXTEENS[1].as_ptr().cast()), wide),
                _mm512_permutexvar_epi16(load(SIXTEENS[2].as_ptr().cast()), wide),
                _mm512_permutexvar_epi16(load(SIXTEENS[3].as_ptr().cast()), wide),
            ];
            // Codes are 32 too large.
            let excess = _mm256_slli_epi32::<5>(_mm256_madd_epi16(words, sums));
            _mm256_sub_epi32(fold(products(Q6_K::wide(blocks[row]), xs, scales)), excess)
        }));
        let half = |row: usize| i32::from(blocks[row].add(208).cast::<u16>().read_unaligned());
        let factors = _mm_setr_epi32(half(0) | half(1) << 16, half(2) | half(3) << 16, 0, 0);
        let factors = _mm_mul_ps(_mm_cvtph_ps(factors), _mm_set1_ps(x.scale));
        _mm_fmadd_ps(factors, _mm_cvtepi32_ps(total), sum)
    }
}

/// For each vector of two runs, where the scales of its four sixteens are.
static SIXTEENS: [[u16; 32]; 4] = {
    let mut places = [[0; 32]; 4];
    let mut i = 0;
    while i < 128 {
        places[i / 32][i % 32] = (i / 8) as u16;
        i += 1;
    }
    places
};
