//! Products with several rows of activations by AVX-512: sixteen rows of weights are turned, so
//! that each has a lane of every register, and no sum goes across lanes.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the
// same.
#![allow(unsafe_op_in_unsafe_fn)]
#![allow(clippy::needless_range_loop)] // Indices, because what iterators do to arrays of registers isn't always unrolled.

use std::arch::{asm, x86_64::*};
use std::marker::PhantomData;
use std::ops::{Range, RangeInclusive};

use super::supers::{field, settled};
use super::{Few, Panel, Streams, TOGETHER, each_row, in_parts};
use crate::activations::{EIGHTS, RUN_SUMS, TOKENS};
use crate::lanes::LANES;
use crate::quant::avx2::{SuperBits, each};
use crate::quant::k::{Q4_K, Q5_K, Q6_K};
use crate::quant::legacy::Q8_0;
use crate::{Activations, Format};

/// The rows of weights that are turned.
const ROWS: usize = crate::matmul::TURNED;

/// How many rows of activations weights are turned for: what takes fewer as they lie reads memory
/// in a better order.
fn tokens(format: Format) -> Option<RangeInclusive<usize>> {
    match format {
        Format::Q8_0 | Format::Q4_K | Format::Q5_K => Some(2..=12),
        Format::Q6_K => Some(4..=12),
        _ => None,
    }
}

/// The most of them.
pub(super) fn most(format: Format) -> Option<usize> {
    tokens(format).map(|tokens| *tokens.end())
}

/// Whether `out` rows of weights are turned for so many rows of activations: all of them, or none.
pub(super) fn pays(format: Format, out: usize, rows: usize) -> bool {
    out.is_multiple_of(ROWS) && tokens(format).is_some_and(|tokens| tokens.contains(&rows))
}

/// The most rows of activations that are left after blocks of sixteen and that weights are turned
/// for: while they are at hand.
const MOST_LEFT: usize = 8;

/// How many of `rows` rows of activations weights are turned for after all blocks of sixteen, which
/// others multiply.
pub(in crate::matmul) fn left(format: Format, out: usize, rows: usize) -> usize {
    let left = rows % TOKENS;
    if out.is_multiple_of(ROWS) && tokens(format).is_some() && left <= MOST_LEFT { left } else { 0 }
}

/// Makes what is wanted of activations.
pub(in crate::matmul) fn arrange(format: Format, x: &mut Activations) {
    match format {
        Format::Q4_K | Format::Q5_K => x.sum_runs(),
        Format::Q6_K => x.sum_eights(),
        _ => {}
    }
}

/// The products of some rows of weights; `false` if there is nothing here for the format.
///
/// # Safety
/// The CPU has AVX-512, no other task has these rows of weights, and they are whole groups.
pub(in crate::matmul) unsafe fn some_rows(p: Few, format: Format, rows: Range<usize>) -> bool {
    match format {
        Format::Q4_K => multiply::<Fours<Q4_K>>(p, rows),
        Format::Q5_K => multiply::<Fours<Q5_K>>(p, rows),
        Format::Q6_K => multiply::<Q6_K>(p, rows),
        Format::Q8_0 => multiply::<Q8_0>(p, rows),
        _ => return false,
    }
    true
}

/// What all lanes have in common.
impl Panel {
    /// Four codes in every lane.
    #[inline(always)]
    unsafe fn codes(&self, at: usize) -> __m512i {
        _mm512_set1_epi32(self.codes.add(at).cast::<i32>().read_unaligned())
    }

    /// Two sums in every lane.
    #[inline(always)]
    unsafe fn sums(&self, at: usize) -> __m512i {
        _mm512_set1_epi32(self.sums.add(at).cast::<i32>().read_unaligned())
    }
}

/// The blocks of a group of rows.
type Blocks = Streams<ROWS>;

impl Blocks {
    /// Sixteen bytes of each row: of each four bytes a register.
    #[inline(always)]
    unsafe fn turned(&mut self, at: usize) -> [__m512i; 4] {
        self.ask(16);
        transposed(self.sixteen(at))
    }

    /// 32 bytes of each row, as [`Blocks::turned`], but with fewer instructions than it takes
    /// twice.
    #[inline(always)]
    unsafe fn turned_twice(&mut self, at: usize) -> [__m512i; 8] {
        self.ask(32);
        let load = |row: usize, of: usize| _mm256_loadu_si256(self.row(4 * of + row).add(at).cast());
        // Of the first eight rows and of the last: quarters 0 and 1 are of four rows, 2 and 3 of
        // the next four.
        let [first, last] = each!(half => transposed(each_row!(i => {
            let low = _mm512_castsi256_si512(load(i, 2 * half));
            _mm512_inserti64x4::<1>(low, load(i, 2 * half + 1))
        })); 0 1);
        each!(i => match i {
            0..4 => _mm512_shuffle_i32x4::<0b10_00_10_00>(first[i], last[i]),
            _ => _mm512_shuffle_i32x4::<0b11_01_11_01>(first[i - 4], last[i - 4]),
        })
    }

    /// Sixteen bytes of each row: of row `4 * j + i` in quarter `j` of register `i`.
    #[inline(always)]
    unsafe fn sixteen(&self, at: usize) -> [__m512i; 4] {
        let load = |row: usize, of: usize| _mm_loadu_si128(self.row(4 * of + row).add(at).cast());
        each_row!(i => {
            let v = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(load(i, 0)), load(i, 1));
            _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(v, load(i, 2)), load(i, 3))
        })
    }

    /// The first two of sixteen bytes of each row, a number of half precision.
    #[inline(always)]
    unsafe fn first_half(&self, at: usize) -> __m512 {
        let [a, b, c, d] = self.sixteen(at);
        let (a, c) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        float(_mm512_unpacklo_epi64(a, c))
    }

    /// The last two of sixteen bytes of each row, a number of half precision.
    #[inline(always)]
    unsafe fn last_half(&self, at: usize) -> __m512 {
        let [a, b, c, d] = self.sixteen(at);
        let (a, c) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        float(_mm512_srli_epi32::<16>(_mm512_unpackhi_epi64(a, c)))
    }
}

/// Four registers of which each has in each quarter what all four had there, four bytes of each.
#[inline(always)]
unsafe fn transposed([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (a, b, c, d) = (
        _mm512_unpacklo_epi32(a, b),
        _mm512_unpackhi_epi32(a, b),
        _mm512_unpacklo_epi32(c, d),
        _mm512_unpackhi_epi32(c, d),
    );
    [
        _mm512_unpacklo_epi64(a, c),
        _mm512_unpackhi_epi64(a, c),
        _mm512_unpacklo_epi64(b, d),
        _mm512_unpackhi_epi64(b, d),
    ]
}

/// The number whose half precision is in the lower half of each lane.
#[inline(always)]
unsafe fn float(v: __m512i) -> __m512 {
    _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v))
}

/// A format whose blocks are turned.
///
/// # Safety
/// The function may only be called where AVX-512 is available, and with pointers to whole blocks.
trait Turned {
    const FORMAT: Format;
    /// The codes, sums and scales of activations for a block.
    const PANEL: (usize, usize, usize);

    /// A row's codes, sums and scales.
    fn panels<'a>(p: &Few<'a>, row: usize) -> (&'a [i8], &'a [i16], &'a [f32]);

    /// Adds the products of a block of each row with T rows of activations to the sums of a lane.
    unsafe fn add<const T: usize>(w: &mut Blocks, x: &[Panel; T], sums: &mut [__m512; T]);
}

/// # Safety
/// As [`some_rows`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn multiply<F: Turned>(p: Few, rows: Range<usize>) {
    let groups = rows.start / ROWS..rows.end / ROWS;
    in_parts!(p.tokens, first, TOGETHER, T => together::<F, T>(&p, groups.clone(), first); 1 2 3 4 5 6 7);
}

/// The products of some groups of rows with T rows of activations from `first` on.
///
/// # Safety
/// As [`some_rows`], from functions with these features.
/// In functions of their own, which compile in half the time, Q8_0 is half as fast for four rows
/// and for six (rustc 1.95).
#[inline(always)]
unsafe fn together<F: Turned, const T: usize>(p: &Few, groups: Range<usize>, first: usize) {
    let bytes = F::FORMAT.block_bytes();
    let blocks = p.row_bytes / bytes;
    let x: [_; T] = std::array::from_fn(|token| {
        let (codes, sums, scales) = F::panels(p, p.row_of(first + token));
        let of = F::PANEL;
        assert!(codes.len() >= of.0 * blocks && sums.len() >= of.1 * blocks && scales.len() >= of.2 * blocks);
        Panel::first((codes, sums, scales))
    });
    for group in groups {
        let mut w = Blocks::new(p, group);
        let mut lanes = [[_mm512_setzero_ps(); T]; LANES];
        for index in 0..blocks {
            F::add(&mut w, &Panel::at(x, index, F::PANEL), &mut lanes[index % LANES]);
            w.step(bytes);
        }
        for token in 0..T {
            // As `lanes::sum`.
            let s = each!(lane => lanes[lane][token]);
            let even = _mm512_add_ps(_mm512_add_ps(s[0], s[4]), _mm512_add_ps(s[2], s[6]));
            let odd = _mm512_add_ps(_mm512_add_ps(s[1], s[5]), _mm512_add_ps(s[3], s[7]));
            let mut numbers = [0f32; ROWS];
            _mm512_storeu_ps(numbers.as_mut_ptr(), _mm512_add_ps(even, odd));
            Blocks::put(p, group, first + token, &numbers);
        }
    }
}

/// Adds the products of sixteen codes of each row, from one on.
#[inline(always)]
unsafe fn add_codes<const T: usize>(
    codes: [__m512i; 4],
    x: &[Panel; T],
    at: usize,
    totals: &mut [__m512i; T],
) {
    each_row!(i => {
        for t in 0..T {
            totals[t] = _mm512_dpbusd_epi32(totals[t], codes[i], x[t].codes(at + 4 * i));
        }
    });
    for t in 0..T {
        totals[t] = settled(totals[t]);
    }
}

/// Adds the products of two words of each lane: the instruction itself, because the compiler would
/// make two of it.
///
/// # Safety
/// The CPU has AVX-512.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add_words(mut totals: __m512i, a: __m512i, b: __m512i) -> __m512i {
    asm!("vpdpwssd {}, {}, {}", inout(zmm_reg) totals, in(zmm_reg) a, in(zmm_reg) b, options(nostack, preserves_flags));
    totals
}

/// What [`picked`] makes zero.
const ZERO: u8 = 0x80;

/// Of each lane the bytes with these numbers.
#[inline(always)]
unsafe fn picked(v: __m512i, bytes: [u8; 4]) -> __m512i {
    let lane = |lane: u32| (u32::from_le_bytes(bytes) + lane * 0x0404_0404) as i32;
    _mm512_shuffle_epi8(v, _mm512_set4_epi32(lane(3), lane(2), lane(1), lane(0)))
}

/// Adds integers of each row, times a factor and the activations' scale.
#[inline(always)]
unsafe fn add_scaled<const T: usize>(
    factor: __m512,
    totals: [__m512i; T],
    x: &[Panel; T],
    sums: &mut [__m512; T],
) {
    for t in 0..T {
        let factor = _mm512_mul_ps(factor, _mm512_set1_ps(x[t].scale()));
        sums[t] = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(totals[t]), sums[t]);
    }
}

impl Turned for Q8_0 {
    const FORMAT: Format = Format::Q8_0;
    const PANEL: (usize, usize, usize) = (32, 2, 1);

    fn panels<'a>(p: &Few<'a>, row: usize) -> (&'a [i8], &'a [i16], &'a [f32]) {
        p.x.all_runs(row)
    }

    #[inline(always)]
    unsafe fn add<const T: usize>(w: &mut Blocks, x: &[Panel; T], sums: &mut [__m512; T]) {
        // Without a sign codes are 128 too large.
        let mut totals = [_mm512_setzero_si512(); T];
        for t in 0..T {
            totals[t] = _mm512_madd_epi16(_mm512_set1_epi16(-128), x[t].sums(0));
        }
        let codes = w.turned_twice(2);
        each!(i => {
            let codes = _mm512_xor_si512(codes[i], _mm512_set1_epi8(-128));
            for t in 0..T {
                totals[t] = _mm512_dpbusd_epi32(totals[t], codes, x[t].codes(4 * i));
            }
        });
        w.ask(2);
        add_scaled(w.first_half(0), totals, x, sums);
    }
}

/// Of Q4_K and Q5_K, whose blocks begin with sixteen bytes of scales and minima.
struct Fours<F>(PhantomData<F>);

impl<F: SuperBits> Fours<F> {
    const HAS_FIFTHS: bool = F::MOST > 15;
    /// The pairs of runs whose products, scaled with six bits, floats add up without rounding.
    const EXACT: usize = {
        let pairs = if Self::HAS_FIFTHS { 1 } else { 2 };
        assert!(2 * pairs * 32 * F::MOST as usize * 127 * 63 < 1 << f32::MANTISSA_DIGITS);
        pairs
    };
    /// What upper nibbles are too large by: where they lie, but not if a fifth bit is to be added.
    const UPPER: f32 = if Self::HAS_FIFTHS { 1.0 } else { 16.0 };
}

impl<F: SuperBits> Turned for Fours<F> {
    const FORMAT: Format = F::FORMAT;
    const PANEL: (usize, usize, usize) = (256, RUN_SUMS, 1);

    fn panels<'a>(p: &Few<'a>, row: usize) -> (&'a [i8], &'a [i16], &'a [f32]) {
        let (codes, _, scales) = p.x.all_supers(row);
        (codes, p.x.run_sums(row), scales)
    }

    #[inline(always)]
    unsafe fn add<const T: usize>(w: &mut Blocks, x: &[Panel; T], sums: &mut [__m512; T]) {
        let zero = _mm512_setzero_si512();
        let [factors, scale, minimum, low] = w.turned(0);
        // As `k::scales_and_minima`.
        let (six, four, two) = (_mm512_set1_epi8(0x3f), _mm512_set1_epi8(0x0f), _mm512_set1_epi8(0x30));
        let last = |low: __m512i, high: __m512i| {
            _mm512_or_si512(_mm512_and_si512(low, four), _mm512_and_si512(_mm512_srli_epi32::<2>(high), two))
        };
        let scales = [_mm512_and_si512(scale, six), last(low, scale)];
        let minima = [_mm512_and_si512(minimum, six), last(_mm512_srli_epi32::<4>(low), minimum)];

        let fifths = if Self::HAS_FIFTHS { w.turned_twice(16) } else { [zero; 8] };
        let codes_at = if Self::HAS_FIFTHS { 48 } else { 16 };
        let mut totals = [zero; T];
        let mut exact = [_mm512_setzero_ps(); T];
        each_row!(pair => {
            let nibbles = w.turned_twice(codes_at + 32 * pair);
            each!(which => {
                let mut of_run = [zero; T];
                each!(half => {
                    let codes = each_row!(i => {
                        let i = 4 * half + i;
                        match (Self::HAS_FIFTHS, which) {
                            (false, 0) => field::<0>(nibbles[i], 0x0f),
                            (false, _) => field::<0>(nibbles[i], 0xf0),
                            (true, 0) => with_fifth(field::<0>(nibbles[i], 0x0f), fifths[i], 2 * pair),
                            (true, _) => with_fifth(field::<4>(nibbles[i], 0x0f), fifths[i], 2 * pair + 1),
                        }
                    });
                    add_codes(codes, x, 64 * pair + 32 * which + 16 * half, &mut of_run);
                }; 0 1);
                let scale = picked(scales[pair / 2], [(pair % 2 * 2 + which) as u8, ZERO, ZERO, ZERO]);
                let mut scale = _mm512_cvtepi32_ps(scale);
                if which == 1 {
                    scale = _mm512_mul_ps(scale, _mm512_set1_ps(1.0 / Self::UPPER));
                }
                for t in 0..T {
                    exact[t] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(of_run[t]), exact[t]);
                }
            }; 0 1);
            if (pair + 1).is_multiple_of(Self::EXACT) {
                for t in 0..T {
                    totals[t] = _mm512_add_epi32(totals[t], _mm512_cvtps_epi32(exact[t]));
                    exact[t] = _mm512_setzero_ps();
                }
            }
        });
        add_scaled(float(factors), totals, x, sums);

        let mut of_minima = [zero; T];
        each_row!(pair => {
            let i = (pair % 2 * 2) as u8;
            let minima = picked(minima[pair / 2], [i, ZERO, i + 1, ZERO]);
            for t in 0..T {
                of_minima[t] = add_words(of_minima[t], minima, x[t].sums(8 * pair));
            }
        });
        let minimum = _mm512_sub_ps(_mm512_setzero_ps(), float(_mm512_srli_epi32::<16>(factors)));
        add_scaled(minimum, of_minima, x, sums);
    }
}

/// Codes with sixteen added to those whose bit number `bit` is set.
#[inline(always)]
unsafe fn with_fifth(codes: __m512i, fifths: __m512i, bit: usize) -> __m512i {
    let set = _mm512_test_epi8_mask(fifths, _mm512_set1_epi8((1u8 << bit) as i8));
    _mm512_mask_add_epi8(codes, set, codes, _mm512_set1_epi8(16))
}

impl Turned for Q6_K {
    const FORMAT: Format = Format::Q6_K;
    const PANEL: (usize, usize, usize) = (256, EIGHTS, 1);

    fn panels<'a>(p: &Few<'a>, row: usize) -> (&'a [i8], &'a [i16], &'a [f32]) {
        let (codes, _, scales) = p.x.all_supers(row);
        (codes, p.x.eights(row), scales)
    }

    /// Codes are 32 too large, but sums of eight products begin so much lower that they end as
    /// words.
    #[inline(always)]
    unsafe fn add<const T: usize>(w: &mut Blocks, x: &[Panel; T], sums: &mut [__m512; T]) {
        let scales = w.turned(192);
        let mut totals = [_mm512_setzero_si512(); T];
        each!(half => {
            let high = w.turned_twice(128 + 32 * half);
            each!(odd => {
                let low = w.turned_twice(64 * half + 32 * odd);
                each!(sixteen => {
                    each!(upper => {
                        let run = 2 * upper + odd;
                        let codes = each_row!(i => {
                            let (low, high) = (low[4 * sixteen + i], high[4 * sixteen + i]);
                            let high = match run {
                                0 => _mm512_slli_epi16::<4>(high),
                                1 => _mm512_slli_epi16::<2>(high),
                                2 => high,
                                _ => _mm512_srli_epi16::<2>(high),
                            };
                            let low = if upper == 0 { field::<0>(low, 15) } else { field::<4>(low, 15) };
                            _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi8(0x30)))
                        });
                        let at = 8 * half + 2 * run + sixteen;
                        let scale = picked(scales[at / 4], [ZERO, (at % 4) as u8, ZERO, ZERO]);
                        let scale = _mm512_srai_epi16::<8>(scale);
                        each!(eight => {
                            let codes = [codes[2 * eight], codes[2 * eight + 1]];
                            let mut of_eight = [scale; T];
                            for t in 0..T {
                                of_eight[t] = x[t].sums(4 * at + 2 * eight);
                            }
                            each!(i => {
                                for t in 0..T {
                                    let x = x[t].codes(16 * at + 8 * eight + 4 * i);
                                    of_eight[t] = _mm512_dpbusd_epi32(of_eight[t], codes[i], x);
                                }
                            }; 0 1);
                            for t in 0..T {
                                totals[t] = add_words(totals[t], of_eight[t], scale);
                            }
                        }; 0 1);
                    }; 0 1);
                }; 0 1);
            }; 0 1);
        }; 0 1);
        add_scaled(w.last_half(194), totals, x, sums);
    }
}
