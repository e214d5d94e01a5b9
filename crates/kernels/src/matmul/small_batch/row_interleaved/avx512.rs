//! Row-interleaved with AVX-512: sixteen rows.
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]
#![allow(clippy::needless_range_loop)] // Indices, because what iterators do to arrays of registers isn't always unrolled.

use std::arch::{asm, x86_64::*};
use std::marker::PhantomData;
use std::ops::Range;

use super::{
    MAX_ROWS, RowCursor, RowInterleaved, RowStreams, SmallBatch, each_of_four, in_parts, multiply_groups,
};
use crate::Format;
use crate::activations::{Layout, Order, Sums};
use crate::matmul::small_batch::x86::{field, pin512};
use crate::matmul::vector::Avx512;
use crate::quant::avx2::{SimdSuperBlock, each};
use crate::quant::k::{Q4_K, Q5_K, Q6_K};
use crate::quant::legacy::Q8_0;

/// Number of rows of weights transposed.
const ROWS: usize = 16;

/// Binds `$F` to the format's type in this module.
macro_rules! with_interleaved {
    ($format:expr, $F:ident => $body:expr) => {
        match $format {
            Format::Q4_K => {
                type $F = WithMinima<Q4_K>;
                $body
            }
            Format::Q5_K => {
                type $F = WithMinima<Q5_K>;
                $body
            }
            Format::Q6_K => {
                type $F = Q6_K;
                $body
            }
            Format::Q8_0 => {
                type $F = Q8_0;
                $body
            }
            other => unreachable!("{} is not interleaved", other.name()),
        }
    };
}

/// The layout of activations.
pub(in super::super) fn layout(format: Format) -> Layout {
    with_interleaved!(format, F => <F as RowInterleaved<Avx512>>::LAYOUT)
}

/// The products of some rows of weights.
///
/// # Safety
/// The CPU has AVX-512, no other task has these rows of weights, and they are whole groups.
pub(in super::super) unsafe fn multiply(p: SmallBatch, format: Format, rows: Range<usize>) {
    with_interleaved!(format, F => multiply_format::<F>(p, rows));
}

/// # Safety
/// As [`multiply`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn multiply_format<F: RowInterleaved<Avx512>>(p: SmallBatch, rows: Range<usize>) {
    let groups = rows.start / ROWS..rows.end / ROWS;
    in_parts!(p.rows, first, MAX_ROWS, T => multiply_groups::<Avx512, F, T>(&p, groups.clone(), first); 1 2 3 4 5 6 7);
}

/// Reads values for all lanes.
impl RowCursor {
    /// Four quants in every lane.
    #[inline(always)]
    unsafe fn quants(&self, at: usize) -> __m512i {
        _mm512_set1_epi32(self.quants.add(at).cast::<i32>().read_unaligned())
    }

    /// Two sums in every lane.
    #[inline(always)]
    unsafe fn sums(&self, at: usize) -> __m512i {
        _mm512_set1_epi32(self.sums.add(at).cast::<i32>().read_unaligned())
    }
}

/// The blocks of a group of rows.
type Rows = RowStreams<Avx512>;

impl Rows {
    /// Sixteen bytes of each row, transposed: one register per four bytes.
    #[inline(always)]
    unsafe fn transpose16(&mut self, at: usize) -> [__m512i; 4] {
        self.prefetch(16);
        transposed(self.sixteen(at))
    }

    /// 32 bytes of each row, as [`Rows::transpose16`], with fewer instructions than two calls.
    #[inline(always)]
    unsafe fn transpose32(&mut self, at: usize) -> [__m512i; 8] {
        self.prefetch(32);
        let load = |row: usize, of: usize| _mm256_loadu_si256(self.row(4 * of + row).add(at).cast());
        // For the first and the last eight rows: quarters 0 and 1 contain four rows, 2 and 3 the
        // next four.
        let [first, last] = each!(half => transposed(each_of_four!(i => {
            let low = _mm512_castsi256_si512(load(i, 2 * half));
            _mm512_inserti64x4::<1>(low, load(i, 2 * half + 1))
        })); 0 1);
        each!(i => match i {
            0..4 => _mm512_shuffle_i32x4::<0b10_00_10_00>(first[i], last[i]),
            _ => _mm512_shuffle_i32x4::<0b11_01_11_01>(first[i - 4], last[i - 4]),
        })
    }

    /// Sixteen bytes of each row: quarter `j` of register `i` contains row `4 * j + i`.
    #[inline(always)]
    unsafe fn sixteen(&self, at: usize) -> [__m512i; 4] {
        let load = |row: usize, of: usize| _mm_loadu_si128(self.row(4 * of + row).add(at).cast());
        each_of_four!(i => {
            let v = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(load(i, 0)), load(i, 1));
            _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(v, load(i, 2)), load(i, 3))
        })
    }

    /// The first two of sixteen bytes of each row, a half-precision number.
    #[inline(always)]
    unsafe fn first_half(&self, at: usize) -> __m512 {
        let [a, b, c, d] = self.sixteen(at);
        let (a, c) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        float(_mm512_unpacklo_epi64(a, c))
    }

    /// The last two of sixteen bytes of each row, a half-precision number.
    #[inline(always)]
    unsafe fn last_half(&self, at: usize) -> __m512 {
        let [a, b, c, d] = self.sixteen(at);
        let (a, c) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        float(_mm512_srli_epi32::<16>(_mm512_unpackhi_epi64(a, c)))
    }
}

/// Transposes four registers within each quarter (128 bits):
///
/// ```text
/// a  a0 a1 a2 a3                        a0 b0 c0 d0
/// b  b0 b1 b2 b3    four bytes each     a1 b1 c1 d1
/// c  c0 c1 c2 c3    -------------->     a2 b2 c2 d2
/// d  d0 d1 d2 d3                        a3 b3 c3 d3
/// ```
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

/// Widens the half-precision number in the lower half of each lane.
#[inline(always)]
unsafe fn float(v: __m512i) -> __m512 {
    _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v))
}

/// Adds the products of sixteen quants of each row, starting at one.
/// The instruction vpdpbusd adds four products of unsigned and signed bytes to a 32-bit lane.
#[inline(always)]
unsafe fn add_products<const T: usize>(
    quants: [__m512i; 4],
    x: &[RowCursor; T],
    at: usize,
    totals: &mut [__m512i; T],
) {
    each_of_four!(i => {
        for t in 0..T {
            totals[t] = _mm512_dpbusd_epi32(totals[t], quants[i], x[t].quants(at + 4 * i));
        }
    });
    for t in 0..T {
        totals[t] = pin512(totals[t]);
    }
}

/// Adds the products of both words of each lane: written as assembly, because the compiler would
/// split the intrinsic into two instructions.
///
/// # Safety
/// The CPU has AVX-512.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add_words(mut totals: __m512i, a: __m512i, b: __m512i) -> __m512i {
    asm!("vpdpwssd {}, {}, {}", inout(zmm_reg) totals, in(zmm_reg) a, in(zmm_reg) b, options(nostack, preserves_flags));
    totals
}

/// The index for which [`pick`] returns zero.
const ZERO: u8 = 0x80;

/// Selects the bytes with these indices in each lane.
#[inline(always)]
unsafe fn pick(v: __m512i, bytes: [u8; 4]) -> __m512i {
    let lane = |lane: u32| (u32::from_le_bytes(bytes) + lane * 0x0404_0404) as i32;
    _mm512_shuffle_epi8(v, _mm512_set4_epi32(lane(3), lane(2), lane(1), lane(0)))
}

/// Adds integers of each row, multiplied by a factor and the activations' scale.
#[inline(always)]
unsafe fn add_scaled<const T: usize>(
    factor: __m512,
    totals: [__m512i; T],
    x: &[RowCursor; T],
    sums: &mut [__m512; T],
) {
    for t in 0..T {
        let factor = _mm512_mul_ps(factor, _mm512_set1_ps(x[t].scale()));
        sums[t] = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(totals[t]), sums[t]);
    }
}

impl RowInterleaved<Avx512> for Q8_0 {
    const FORMAT: Format = Format::Q8_0;
    const LAYOUT: Layout = Layout::PLAIN;

    #[inline(always)]
    unsafe fn add<const T: usize>(w: &mut Rows, x: &[RowCursor; T], sums: &mut [__m512; T]) {
        // As unsigned numbers, quants have the zero point 128.
        let mut totals = [_mm512_setzero_si512(); T];
        for t in 0..T {
            totals[t] = _mm512_madd_epi16(_mm512_set1_epi16(-128), x[t].sums(0));
        }
        let quants = w.transpose32(2);
        each!(i => {
            let quants = _mm512_xor_si512(quants[i], _mm512_set1_epi8(-128));
            for t in 0..T {
                totals[t] = _mm512_dpbusd_epi32(totals[t], quants, x[t].quants(4 * i));
            }
        });
        w.prefetch(2);
        add_scaled(w.first_half(0), totals, x, sums);
    }
}

/// Q4_K and Q5_K, whose blocks begin with sixteen bytes of scales and minima.
struct WithMinima<F>(PhantomData<F>);

impl<F: SimdSuperBlock> WithMinima<F> {
    const HAS_FIFTHS: bool = F::MAX_QUANT > 15;
    /// The number of sub-block pairs whose products, scaled with six bits, can be added as floats
    /// without rounding.
    const EXACT: usize = {
        let pairs = if Self::HAS_FIFTHS { 1 } else { 2 };
        assert!(2 * pairs * 32 * F::MAX_QUANT as usize * 127 * 63 < 1 << f32::MANTISSA_DIGITS);
        pairs
    };
    /// The factor of upper nibbles in place, unless a fifth bit is to be added.
    const UPPER: f32 = if Self::HAS_FIFTHS { 1.0 } else { 16.0 };
}

impl<F: SimdSuperBlock> RowInterleaved<Avx512> for WithMinima<F> {
    const FORMAT: Format = F::FORMAT;
    const LAYOUT: Layout = Layout { order: Order::Plain, sums: Sums::BlockPairs };

    #[inline(always)]
    unsafe fn add<const T: usize>(w: &mut Rows, x: &[RowCursor; T], sums: &mut [__m512; T]) {
        let zero = _mm512_setzero_si512();
        let [factors, scale, minimum, low] = w.transpose16(0);
        // As `k::scales_and_minima`.
        let (six, four, two) = (_mm512_set1_epi8(0x3f), _mm512_set1_epi8(0x0f), _mm512_set1_epi8(0x30));
        let last = |low: __m512i, high: __m512i| {
            _mm512_or_si512(_mm512_and_si512(low, four), _mm512_and_si512(_mm512_srli_epi32::<2>(high), two))
        };
        let scales = [_mm512_and_si512(scale, six), last(low, scale)];
        let minima = [_mm512_and_si512(minimum, six), last(_mm512_srli_epi32::<4>(low), minimum)];

        let fifths = if Self::HAS_FIFTHS { w.transpose32(16) } else { [zero; 8] };
        let quants_at = if Self::HAS_FIFTHS { 48 } else { 16 };
        let mut totals = [zero; T];
        let mut exact = [_mm512_setzero_ps(); T];
        each_of_four!(pair => {
            let nibbles = w.transpose32(quants_at + 32 * pair);
            each!(which => {
                let mut of_sub_block = [zero; T];
                each!(half => {
                    let quants = each_of_four!(i => {
                        let i = 4 * half + i;
                        match (Self::HAS_FIFTHS, which) {
                            (false, 0) => field::<0>(nibbles[i], 0x0f),
                            (false, _) => field::<0>(nibbles[i], 0xf0),
                            (true, 0) => with_fifth(field::<0>(nibbles[i], 0x0f), fifths[i], 2 * pair),
                            (true, _) => with_fifth(field::<4>(nibbles[i], 0x0f), fifths[i], 2 * pair + 1),
                        }
                    });
                    add_products(quants, x, 64 * pair + 32 * which + 16 * half, &mut of_sub_block);
                }; 0 1);
                let scale = pick(scales[pair / 2], [(pair % 2 * 2 + which) as u8, ZERO, ZERO, ZERO]);
                let mut scale = _mm512_cvtepi32_ps(scale);
                if which == 1 {
                    scale = _mm512_mul_ps(scale, _mm512_set1_ps(1.0 / Self::UPPER));
                }
                for t in 0..T {
                    exact[t] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(of_sub_block[t]), exact[t]);
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
        each_of_four!(pair => {
            let i = (pair % 2 * 2) as u8;
            let minima = pick(minima[pair / 2], [i, ZERO, i + 1, ZERO]);
            for t in 0..T {
                of_minima[t] = add_words(of_minima[t], minima, x[t].sums(8 * pair));
            }
        });
        let minimum = _mm512_sub_ps(_mm512_setzero_ps(), float(_mm512_srli_epi32::<16>(factors)));
        add_scaled(minimum, of_minima, x, sums);
    }
}

/// Adds sixteen to the quants whose bit number `bit` is set.
#[inline(always)]
unsafe fn with_fifth(quants: __m512i, fifths: __m512i, bit: usize) -> __m512i {
    let set = _mm512_test_epi8_mask(fifths, _mm512_set1_epi8((1u8 << bit) as i8));
    _mm512_mask_add_epi8(quants, set, quants, _mm512_set1_epi8(16))
}

impl RowInterleaved<Avx512> for Q6_K {
    const FORMAT: Format = Format::Q6_K;
    const LAYOUT: Layout = Layout { order: Order::Plain, sums: Sums::Octets };

    /// The zero point of quants is 32, but sums of eight products start with its correction, so
    /// that they fit into words.
    #[inline(always)]
    unsafe fn add<const T: usize>(w: &mut Rows, x: &[RowCursor; T], sums: &mut [__m512; T]) {
        let scales = w.transpose16(192);
        let mut totals = [_mm512_setzero_si512(); T];
        each!(half => {
            let high = w.transpose32(128 + 32 * half);
            each!(odd => {
                let low = w.transpose32(64 * half + 32 * odd);
                each!(sixteen => {
                    each!(upper => {
                        let sub_block = 2 * upper + odd;
                        let quants = each_of_four!(i => {
                            let (low, high) = (low[4 * sixteen + i], high[4 * sixteen + i]);
                            let high = match sub_block {
                                0 => _mm512_slli_epi16::<4>(high),
                                1 => _mm512_slli_epi16::<2>(high),
                                2 => high,
                                _ => _mm512_srli_epi16::<2>(high),
                            };
                            let low = if upper == 0 { field::<0>(low, 15) } else { field::<4>(low, 15) };
                            _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi8(0x30)))
                        });
                        let at = 8 * half + 2 * sub_block + sixteen;
                        let scale = pick(scales[at / 4], [ZERO, (at % 4) as u8, ZERO, ZERO]);
                        let scale = _mm512_srai_epi16::<8>(scale);
                        each!(octet => {
                            let quants = [quants[2 * octet], quants[2 * octet + 1]];
                            let mut of_octet = [scale; T];
                            for t in 0..T {
                                of_octet[t] = x[t].sums(4 * at + 2 * octet);
                            }
                            each!(i => {
                                for t in 0..T {
                                    let x = x[t].quants(16 * at + 8 * octet + 4 * i);
                                    of_octet[t] = _mm512_dpbusd_epi32(of_octet[t], quants[i], x);
                                }
                            }; 0 1);
                            for t in 0..T {
                                totals[t] = add_words(totals[t], of_octet[t], scale);
                            }
                        }; 0 1);
                    }; 0 1);
                }; 0 1);
            }; 0 1);
        }; 0 1);
        add_scaled(w.last_half(194), totals, x, sums);
    }
}
