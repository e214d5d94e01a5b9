//! Products with several rows of activations by AVX-512: sixteen rows of weights are turned, so that each has a lane of every
//! register, and no sum goes across lanes.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the same.
#![allow(unsafe_op_in_unsafe_fn)]
#![allow(clippy::needless_range_loop)] // Indices, because what iterators do to arrays of registers isn't always unrolled.

use std::arch::{asm, x86_64::*};
use std::marker::PhantomData;
use std::ops::{Range, RangeInclusive};

use super::supers::{field, settled};
use super::{Few, Panel, TOGETHER, each_row, in_parts};
use crate::Format;
use crate::lanes::LANES;
use crate::quant::avx2::{SuperBits, each};
use crate::quant::k::{Q4_K, Q5_K, Q6_K};
use crate::quant::legacy::Q8_0;

/// The rows of weights that are turned.
const ROWS: usize = crate::matmul::TURNED;

/// How many rows of activations weights are turned for: what takes fewer as they lie reads memory in a better order.
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

/// The products of some rows of weights with at least two rows of activations; `false` if there is nothing here for the format.
///
/// # Safety
/// The CPU has AVX-512, no other task has these rows of weights, and they are whole groups.
pub(super) unsafe fn some_rows(p: Few, format: Format, rows: Range<usize>) -> bool {
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

    /// The sums of two sixteens in every lane.
    #[inline(always)]
    unsafe fn sums(&self, at: usize) -> __m512i {
        _mm512_set1_epi32(self.sums.add(at).cast::<i32>().read_unaligned())
    }
}

/// The blocks of a group of rows, and what is read for the group after it.
struct Blocks {
    /// Of the first of each four rows.
    fourths: [*const u8; 4],
    /// The bytes from row to row.
    stride: usize,
    /// Of the next group, whose rows follow these, as much is asked for as is read of these.
    next: *const u8,
}

impl Blocks {
    /// Sixteen bytes of each row: of each four bytes a register.
    #[inline(always)]
    unsafe fn turned(&mut self, at: usize) -> [__m512i; 4] {
        self.ask(ROWS * 16);
        let [a, b, c, d] = self.sixteen(at);
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

    /// Sixteen bytes of each row: of row `4 * j + i` in quarter `j` of register `i`.
    #[inline(always)]
    unsafe fn sixteen(&self, at: usize) -> [__m512i; 4] {
        let load =
            |row: usize, of: usize| _mm_loadu_si128(self.fourths[of].add(row * self.stride + at).cast());
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

    /// On to the next blocks.
    #[inline(always)]
    unsafe fn step(&mut self, bytes: usize) {
        for at in &mut self.fourths {
            *at = kept(at.wrapping_add(bytes));
        }
    }

    /// Into the second cache: the first has no room for two groups, and too few lines under way.
    #[inline(always)]
    unsafe fn ask(&mut self, bytes: usize) {
        for at in (0..bytes).step_by(64) {
            _mm_prefetch::<_MM_HINT_T1>(self.next.wrapping_add(at).cast());
        }
        self.next = self.next.wrapping_add(bytes);
    }
}

/// The same pointer, in a register of its own: left to itself, the compiler makes sixteen offsets of one pointer and the stride.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // Nothing is read there.
unsafe fn kept(mut at: *const u8) -> *const u8 {
    asm!("/* {} */", inout(reg) at, options(nomem, nostack, preserves_flags));
    at
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

    /// Adds the products of a block of each row with T rows of activations to the sums of a lane.
    unsafe fn add<const T: usize>(w: &mut Blocks, x: &[Panel; T], sums: &mut [__m512; T]);
}

/// # Safety
/// As [`some_rows`]; there are at least two rows of activations.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn multiply<F: Turned>(p: Few, rows: Range<usize>) {
    let groups = rows.start / ROWS..rows.end / ROWS;
    in_parts!(p.tokens, first, TOGETHER, T => together::<F, T>(&p, groups.clone(), first); 2 3 4 5 6 7);
}

/// The products of some groups of rows with T rows of activations from `first` on.
///
/// # Safety
/// As [`some_rows`], from functions with these features. In functions of their own, which compile in half the time, Q8_0 is half as fast
/// for four rows and for six (rustc 1.95).
#[inline(always)]
unsafe fn together<F: Turned, const T: usize>(p: &Few, groups: Range<usize>, first: usize) {
    let (bytes, len) = (F::FORMAT.block_bytes(), F::FORMAT.block_len());
    let blocks = p.row_bytes / bytes;
    let x: [_; T] = std::array::from_fn(|token| {
        let row = p.taken.get(first + token);
        let (codes, sums, scales) = if p.x.has_supers() { p.x.all_supers(row) } else { p.x.all_runs(row) };
        assert!(codes.len() >= len * blocks && sums.len() >= len / 16 * blocks && scales.len() >= blocks);
        Panel::first((codes, sums, scales))
    });
    for group in groups {
        let row = group * ROWS;
        let w = &p.w[row * p.row_bytes..][..ROWS * p.row_bytes];
        let mut w = Blocks {
            fourths: each_row!(i => w.as_ptr().wrapping_add(4 * i * p.row_bytes)),
            stride: p.row_bytes,
            next: w.as_ptr().wrapping_add(w.len()),
        };
        w.step(0);
        let mut lanes = [[_mm512_setzero_ps(); T]; LANES];
        for index in 0..blocks {
            F::add(&mut w, &Panel::at(x, index, (len, len / 16, 1)), &mut lanes[index % LANES]);
            w.step(bytes);
        }
        for token in 0..T {
            // As `lanes::sum`.
            let s = each!(lane => lanes[lane][token]);
            let even = _mm512_add_ps(_mm512_add_ps(s[0], s[4]), _mm512_add_ps(s[2], s[6]));
            let odd = _mm512_add_ps(_mm512_add_ps(s[1], s[5]), _mm512_add_ps(s[3], s[7]));
            let mut numbers = [0f32; ROWS];
            _mm512_storeu_ps(numbers.as_mut_ptr(), _mm512_add_ps(even, odd));
            p.y.slice((first + token) * p.out + row, ROWS).copy_from_slice(&numbers);
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

    #[inline(always)]
    unsafe fn add<const T: usize>(w: &mut Blocks, x: &[Panel; T], sums: &mut [__m512; T]) {
        // Without a sign codes are 128 too large.
        let mut totals = [_mm512_setzero_si512(); T];
        for t in 0..T {
            totals[t] = _mm512_madd_epi16(_mm512_set1_epi16(-128), x[t].sums(0));
        }
        each!(half => {
            let codes = w.turned(2 + 16 * half);
            let codes = each_row!(i => _mm512_xor_si512(codes[i], _mm512_set1_epi8(-128)));
            each_row!(i => {
                for t in 0..T {
                    totals[t] = _mm512_dpbusd_epi32(totals[t], codes[i], x[t].codes(16 * half + 4 * i));
                }
            });
        }; 0 1);
        w.ask(ROWS * 2);
        add_scaled(w.first_half(0), totals, x, sums);
    }
}

/// Of Q4_K and Q5_K, whose blocks begin with sixteen bytes of scales and minima.
struct Fours<F>(PhantomData<F>);

impl<F: SuperBits> Fours<F> {
    const HAS_FIFTHS: bool = F::MOST > 15;
}

/// Byte `i` of each lane.
#[inline(always)]
unsafe fn byte(v: __m512i, i: usize) -> __m512i {
    _mm512_and_si512(_mm512_srlv_epi32(v, _mm512_set1_epi32(8 * i as i32)), _mm512_set1_epi32(255))
}

impl<F: SuperBits> Turned for Fours<F> {
    const FORMAT: Format = F::FORMAT;

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

        let fifths = if Self::HAS_FIFTHS { [w.turned(16), w.turned(32)] } else { [[zero; 4]; 2] };
        let codes_at = if Self::HAS_FIFTHS { 48 } else { 16 };
        let mut totals = [zero; T];
        each_row!(pair => {
            let nibbles = [w.turned(codes_at + 32 * pair), w.turned(codes_at + 32 * pair + 16)];
            each!(which => {
                let mut of_run = [zero; T];
                each!(half => {
                    let mut codes = each_row!(i => match which {
                        0 => field::<0>(nibbles[half][i], 15),
                        _ => field::<4>(nibbles[half][i], 15),
                    });
                    if Self::HAS_FIFTHS {
                        let bit = _mm512_set1_epi8((1u8 << (2 * pair + which)) as i8);
                        codes = each_row!(i => {
                            let set = _mm512_test_epi8_mask(fifths[half][i], bit);
                            _mm512_mask_add_epi8(codes[i], set, codes[i], _mm512_set1_epi8(16))
                        });
                    }
                    add_codes(codes, x, 64 * pair + 32 * which + 16 * half, &mut of_run);
                }; 0 1);
                let scale = byte(scales[pair / 2], pair % 2 * 2 + which);
                for t in 0..T {
                    totals[t] = _mm512_add_epi32(totals[t], _mm512_mullo_epi32(of_run[t], scale));
                }
            }; 0 1);
        });
        add_scaled(float(factors), totals, x, sums);

        let mut of_minima = [zero; T];
        each!(run => {
            // Twice in a lane, once for each sixteen.
            let minimum = byte(minima[run / 4], run % 4);
            let minimum = _mm512_or_si512(minimum, _mm512_slli_epi32::<16>(minimum));
            for t in 0..T {
                of_minima[t] = _mm512_dpwssd_epi32(of_minima[t], minimum, x[t].sums(2 * run));
            }
        });
        let minimum = _mm512_sub_ps(_mm512_setzero_ps(), float(_mm512_srli_epi32::<16>(factors)));
        add_scaled(minimum, of_minima, x, sums);
    }
}

impl Turned for Q6_K {
    const FORMAT: Format = Format::Q6_K;

    #[inline(always)]
    unsafe fn add<const T: usize>(w: &mut Blocks, x: &[Panel; T], sums: &mut [__m512; T]) {
        let zero = _mm512_setzero_si512();
        let scales = w.turned(192);
        let mut totals = [zero; T];
        each!(pair => {
            // Two of the four scales in a lane, as words.
            let two = if pair.is_multiple_of(2) { _mm512_slli_epi32::<16>(scales[pair / 2]) } else { scales[pair / 2] };
            let low = _mm512_srai_epi32::<24>(_mm512_slli_epi32::<8>(two));
            let two = _mm512_mask_blend_epi16(0xaaaa_aaaa, low, _mm512_srai_epi16::<8>(two));
            for t in 0..T {
                totals[t] = _mm512_dpwssd_epi32(totals[t], two, x[t].sums(2 * pair));
            }
        });
        // Codes are 32 too large.
        for t in 0..T {
            totals[t] = _mm512_sub_epi32(zero, _mm512_slli_epi32::<5>(totals[t]));
        }
        each!(half => {
            each!(sixteen => {
                let high = w.turned(128 + 32 * half + 16 * sixteen);
                each!(odd => {
                    let low = w.turned(64 * half + 32 * odd + 16 * sixteen);
                    each!(upper => {
                        let run = 2 * upper + odd;
                        let codes = each_row!(i => {
                            let high = match run {
                                0 => _mm512_slli_epi16::<4>(high[i]),
                                1 => _mm512_slli_epi16::<2>(high[i]),
                                2 => high[i],
                                _ => _mm512_srli_epi16::<2>(high[i]),
                            };
                            let low = if upper == 0 { field::<0>(low[i], 15) } else { field::<4>(low[i], 15) };
                            _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi8(0x30)))
                        });
                        let mut of_sixteen = [zero; T];
                        add_codes(codes, x, 128 * half + 32 * run + 16 * sixteen, &mut of_sixteen);
                        let at = 8 * half + 2 * run + sixteen;
                        let up = _mm512_set1_epi32(24 - 8 * (at % 4) as i32);
                        let scale = _mm512_srai_epi32::<24>(_mm512_sllv_epi32(scales[at / 4], up));
                        for t in 0..T {
                            totals[t] = _mm512_add_epi32(totals[t], _mm512_mullo_epi32(of_sixteen[t], scale));
                        }
                    }; 0 1);
                }; 0 1);
            }; 0 1);
        }; 0 1);
        add_scaled(w.last_half(194), totals, x, sums);
    }
}
