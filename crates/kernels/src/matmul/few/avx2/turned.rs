//! Products with few rows of activations by AVX2: eight rows of weights are turned, so that each
//! has a lane of every register, and no sum goes across lanes.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the
// same.
#![allow(unsafe_op_in_unsafe_fn)]
#![allow(clippy::needless_range_loop)] // Indices, because what iterators do to arrays of registers isn't always unrolled.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use super::super::{Streams, each_row, in_parts};
use super::{Few, Panel, load, masked, settled};
use crate::Format;
use crate::activations::RUN_SUMS;
use crate::lanes::LANES;
use crate::quant::avx2::{Bias, RunBits, each};
use crate::quant::k::Q4_K;
use crate::quant::{RUN, codebook, legacy};
use crate::wide::turn;

/// The rows of weights that are turned.
const ROWS: usize = 8;

/// The most rows of activations that weights are turned for at once: as many as have sums in
/// registers.
const TOGETHER: usize = 8;

/// The rows of activations from which Q4_K is turned: with fewer it is at least as fast as it lies.
const Q4_K_FROM: usize = 4;

/// The products of some rows of weights; `false` if there is nothing here for the format, or if
/// weights are better used as they lie.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C, and no other task has these rows of weights.
pub(super) unsafe fn some_rows(p: Few, format: Format, rows: Range<usize>) -> bool {
    let waits = format == Format::Q4_K && p.tokens < Q4_K_FROM;
    if waits || !p.out.is_multiple_of(ROWS) {
        return false;
    }
    match format {
        Format::Q4_0 => multiply::<Runs<legacy::Q4_0>>(p, rows),
        Format::Q4_1 => multiply::<Runs<legacy::Q4_1>>(p, rows),
        Format::Q5_0 => multiply::<Runs<legacy::Q5_0>>(p, rows),
        Format::Q5_1 => multiply::<Runs<legacy::Q5_1>>(p, rows),
        Format::Q8_0 => multiply::<Runs<legacy::Q8_0>>(p, rows),
        Format::MXFP4 => multiply::<Runs<codebook::MXFP4>>(p, rows),
        Format::IQ4_NL => multiply::<Runs<codebook::IQ4_NL>>(p, rows),
        Format::Q4_K => multiply::<Q4_K>(p, rows),
        _ => return false,
    }
    true
}

/// The blocks of a group of rows.
type Blocks = Streams<ROWS>;

/// A format whose blocks are turned.
///
/// # Safety
/// The functions may only be called where AVX2 is available, and with pointers to whole blocks and
/// panels.
trait Turned {
    const FORMAT: Format;
    /// The codes and the sums of a panel of activations.
    const PANEL: (usize, usize);

    /// All panels of a row of activations.
    fn panels<'a>(p: &Few<'a>, row: usize) -> (&'a [i8], &'a [i16], &'a [f32]);

    /// Adds the products of a block of each row with T panels to the sums of a lane.
    unsafe fn add<const T: usize>(w: &mut Blocks, x: &[Panel; T], sums: &mut [__m256; T]);
}

/// # Safety
/// As [`some_rows`], and the rows of weights are whole groups.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply<F: Turned>(p: Few, rows: Range<usize>) {
    let groups = rows.start / ROWS..rows.end / ROWS;
    in_parts!(p.tokens, first, TOGETHER, T => together::<F, T>(&p, groups.clone(), first); 1 2 3 4 5 6 7);
}

/// The products of some groups of rows with T rows of activations from `first` on.
///
/// # Safety
/// As [`multiply`], from functions with these features.
#[inline(always)]
unsafe fn together<F: Turned, const T: usize>(p: &Few, groups: Range<usize>, first: usize) {
    let bytes = F::FORMAT.block_bytes();
    let blocks = p.row_bytes / bytes;
    let (codes, sums) = F::PANEL;
    let x: [_; T] = std::array::from_fn(|token| {
        let x = F::panels(p, p.row_of(first + token));
        assert!(x.0.len() >= codes * blocks && x.1.len() >= sums * blocks && x.2.len() >= blocks);
        Panel::first(x)
    });
    for group in groups {
        let mut w = Blocks::new(p, group);
        let mut lanes = [[_mm256_setzero_ps(); T]; LANES];
        for index in 0..blocks {
            F::add(&mut w, &Panel::at(x, index, (codes, sums, 1)), &mut lanes[index % LANES]);
            w.step(bytes);
        }
        for token in 0..T {
            // As `lanes::sum`.
            let s = each!(lane => lanes[lane][token]);
            let even = _mm256_add_ps(_mm256_add_ps(s[0], s[4]), _mm256_add_ps(s[2], s[6]));
            let odd = _mm256_add_ps(_mm256_add_ps(s[1], s[5]), _mm256_add_ps(s[3], s[7]));
            let mut numbers = [0f32; ROWS];
            _mm256_storeu_ps(numbers.as_mut_ptr(), _mm256_add_ps(even, odd));
            Blocks::put(p, group, first + token, &numbers);
        }
    }
}

/// Four codes of a row of activations, in every lane.
#[inline(always)]
unsafe fn codes(x: &Panel, at: usize) -> __m256i {
    _mm256_set1_epi32(x.codes.add(at).cast::<i32>().read_unaligned())
}

/// Two sums of codes, in every lane.
#[inline(always)]
unsafe fn sums_of(x: &Panel, at: usize) -> __m256i {
    _mm256_set1_epi32(x.sums.add(at).cast::<i32>().read_unaligned())
}

/// Formats of runs.
struct Runs<F>(PhantomData<F>);

impl<F: RunBits> Turned for Runs<F> {
    const FORMAT: Format = F::FORMAT;
    const PANEL: (usize, usize) = (RUN, RUN / 16);

    fn panels<'a>(p: &Few<'a>, row: usize) -> (&'a [i8], &'a [i16], &'a [f32]) {
        p.x.all_runs(row)
    }

    #[inline(always)]
    unsafe fn add<const T: usize>(w: &mut Blocks, x: &[Panel; T], sums: &mut [__m256; T]) {
        // How many times two products fit into a word: a power of two, so that a run is whole times
        // as many.
        let most = (1 << (i16::MAX as usize / (2 * 127 * F::MOST as usize)).ilog2()).min(RUN / 4);
        w.ask(F::FORMAT.block_bytes());
        let w_codes = turned_codes::<F>(w);
        let mut words = [_mm256_setzero_si256(); T];
        let mut totals = [_mm256_setzero_si256(); T];
        each!(i => {
            let w_codes = w_codes[i];
            let without_sign = _mm256_abs_epi8(w_codes);
            for t in 0..T {
                let x = codes(&x[t], 4 * i);
                let products = match F::BIAS {
                    Bias::Unsigned(_) => _mm256_maddubs_epi16(w_codes, x),
                    Bias::Signed => _mm256_maddubs_epi16(without_sign, _mm256_sign_epi8(x, w_codes)),
                };
                words[t] = if i.is_multiple_of(most) { products } else { _mm256_add_epi16(words[t], products) };
                if (i + 1).is_multiple_of(most) {
                    let pairs = _mm256_madd_epi16(words[t], _mm256_set1_epi16(1));
                    totals[t] = settled(_mm256_add_epi32(totals[t], pairs));
                }
            }
        });
        let scales = F::scales(each!(row => w.row(row)));
        for t in 0..T {
            let of_x = _mm256_set1_ps(x[t].scale());
            let code_sums = sums_of(&x[t], 0);
            let mut total = totals[t];
            if let Bias::Unsigned(bias @ 1..) = F::BIAS {
                total = _mm256_sub_epi32(total, _mm256_madd_epi16(code_sums, _mm256_set1_epi16(bias)));
            }
            sums[t] = _mm256_fmadd_ps(_mm256_mul_ps(scales, of_x), _mm256_cvtepi32_ps(total), sums[t]);
            if F::OFFSET {
                let total = _mm256_cvtepi32_ps(_mm256_madd_epi16(code_sums, _mm256_set1_epi16(1)));
                sums[t] = _mm256_fmadd_ps(
                    _mm256_mul_ps(F::offsets(each!(row => w.row(row))), of_x),
                    total,
                    sums[t],
                );
            }
        }
    }
}

/// The codes of a block of each row, biased: of each four codes a register.
#[inline(always)]
unsafe fn turned_codes<F: RunBits>(w: &Blocks) -> [__m256i; 8] {
    if F::NIBBLES {
        // Half as much to turn.
        let bytes = turned_sixteen(w, F::FORMAT.block_bytes() - 16);
        return each!(i => {
            let bytes = bytes[i % 4];
            F::of_nibbles(masked(if i < 4 { bytes } else { _mm256_srli_epi16::<4>(bytes) }, 15))
        });
    }
    let codes = turn(each!(row => _mm256_castsi256_ps(F::vector(w.row(row)))));
    each!(i => _mm256_castps_si256(codes[i]))
}

/// Sixteen bytes of each row: of each four bytes a register.
#[inline(always)]
unsafe fn turned_sixteen(w: &Blocks, at: usize) -> [__m256i; 4] {
    let load = |row: usize| _mm_loadu_si128(w.row(row).add(at).cast());
    let [a, b, c, d] = each_row!(row => _mm256_set_m128i(load(row + 4), load(row)));
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

/// Where two of the four bytes of each lane are, which become its words.
const fn words(two: [usize; 2]) -> [u8; 32] {
    let mut places = [0x80; 32];
    let mut i = 0;
    while i < 32 {
        places[i] = (i / 4 % 4 * 4 + two[i / 2 % 2]) as u8;
        i += 2;
    }
    places
}

/// Each of four bytes twice.
static TWICE: [[u8; 32]; 4] = [words([0, 0]), words([1, 1]), words([2, 2]), words([3, 3])];
/// Two after each other.
static PAIRS: [[u8; 32]; 2] = [words([0, 1]), words([2, 3])];

impl Turned for Q4_K {
    const FORMAT: Format = Format::Q4_K;
    const PANEL: (usize, usize) = (256, RUN_SUMS);

    fn panels<'a>(p: &Few<'a>, row: usize) -> (&'a [i8], &'a [i16], &'a [f32]) {
        let (codes, _, scales) = p.x.all_supers(row);
        (codes, p.x.run_sums(row), scales)
    }

    #[inline(always)]
    unsafe fn add<const T: usize>(w: &mut Blocks, x: &[Panel; T], sums: &mut [__m256; T]) {
        let zero = _mm256_setzero_si256();
        w.ask(16);
        let [factors, scale, minimum, low] = turned_sixteen(w, 0);
        // As `k::scales_and_minima`.
        let last = |low: __m256i, high: __m256i| {
            _mm256_or_si256(masked(low, 0x0f), masked(_mm256_srli_epi32::<2>(high), 0x30))
        };
        let scales = [masked(scale, 0x3f), last(low, scale)];
        let minima = [masked(minimum, 0x3f), last(_mm256_srli_epi32::<4>(low), minimum)];

        let mut totals = [zero; T];
        for pair in 0..4 {
            w.ask(32);
            let bytes = turn(each!(row => _mm256_castsi256_ps(load(w.row(row).add(16 + 32 * pair)))));
            each!(which => {
                let mut words = [zero; T];
                each!(i => {
                    let bytes = _mm256_castps_si256(bytes[i]);
                    let nibbles = masked(if which == 0 { bytes } else { _mm256_srli_epi16::<4>(bytes) }, 15);
                    for t in 0..T {
                        let products = _mm256_maddubs_epi16(nibbles, codes(&x[t], 64 * pair + 32 * which + 4 * i));
                        words[t] = if i == 0 { products } else { settled(_mm256_add_epi16(words[t], products)) };
                    }
                });
                let scale = _mm256_shuffle_epi8(scales[pair / 2], load(TWICE[pair % 2 * 2 + which].as_ptr()));
                for t in 0..T {
                    totals[t] = settled(_mm256_add_epi32(totals[t], _mm256_madd_epi16(words[t], scale)));
                }
            }; 0 1);
        }

        let order =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
        let factors = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_shuffle_epi8(factors, order));
        let scale = _mm256_cvtph_ps(_mm256_castsi256_si128(factors));
        let minimum = _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(factors));
        let minima = each_row!(pair => _mm256_shuffle_epi8(minima[pair / 2], load(PAIRS[pair % 2].as_ptr())));
        for t in 0..T {
            let of_x = _mm256_set1_ps(x[t].scale());
            let [a, b, c, d] = each_row!(pair => _mm256_madd_epi16(minima[pair], sums_of(&x[t], 8 * pair)));
            let of_minima = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
            let sum = _mm256_fmadd_ps(_mm256_mul_ps(scale, of_x), _mm256_cvtepi32_ps(totals[t]), sums[t]);
            sums[t] = _mm256_fnmadd_ps(_mm256_mul_ps(minimum, of_x), _mm256_cvtepi32_ps(of_minima), sum);
        }
    }
}
