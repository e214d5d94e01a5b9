//! Products with few rows of activations by AVX-512, of runs whose codes are nibbles: the sixteen bytes of four runs make a
//! register, whose quarters stay with their runs to the end.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::{Apart, Blocks, Few, Lying, ROWS, Source, TOGETHER, each_row, fetch};
use crate::lanes::LANES;
use crate::quant::avx2::each;
use crate::quant::codebook::{E2M1, IQ4_NL, MXFP4, UNEVEN};
use crate::quant::legacy::{Q4_0, Q4_1};
use crate::quant::{MAX_BYTES, Run};

/// The runs of a register.
const RUNS: usize = 4;

/// A format whose blocks end in sixteen bytes of nibbles.
pub(super) trait Nibbles: Run {
    /// The codes that nibbles stand for, if not themselves, plus [`Nibbles::BIAS`].
    const TABLE: Option<[u8; 16]> = None;
    /// What is to be subtracted from each code.
    const BIAS: i16;

    /// The scales of four blocks of four rows, as `[run][row]`: half-precision numbers at their start, unless otherwise
    /// defined.
    ///
    /// # Safety
    /// The CPU has AVX-512; the pointers are to whole blocks.
    #[inline(always)]
    unsafe fn scales(blocks: [[*const u8; ROWS]; RUNS]) -> __m512 {
        halves(blocks, 0)
    }

    /// The offsets, if there are any.
    ///
    /// # Safety
    /// As [`Nibbles::scales`].
    #[inline(always)]
    unsafe fn offsets(blocks: [[*const u8; ROWS]; RUNS]) -> __m512 {
        halves(blocks, 2)
    }
}

impl Nibbles for Q4_0 {
    const BIAS: i16 = 8;
}

impl Nibbles for Q4_1 {
    const BIAS: i16 = 0;
}

impl Nibbles for IQ4_NL {
    const TABLE: Option<[u8; 16]> = Some(biased(UNEVEN, 127));
    const BIAS: i16 = 127;
}

impl Nibbles for MXFP4 {
    const TABLE: Option<[u8; 16]> = Some(biased(E2M1, 12));
    const BIAS: i16 = 12;

    /// As `codebook::e8m0_half`.
    #[inline(always)]
    unsafe fn scales(blocks: [[*const u8; ROWS]; RUNS]) -> __m512 {
        let run = |run: usize| {
            let [a, b, c, d] = each_row!(row => u32::from(*blocks[run][row]));
            (a | b << 8 | c << 16 | d << 24) as i32
        };
        let exponents = _mm512_cvtepu8_epi32(_mm_setr_epi32(run(0), run(1), run(2), run(3)));
        let one = _mm512_set1_epi32(1);
        let subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), exponents);
        let normal = _mm512_cmpgt_epi32_mask(exponents, one);
        _mm512_castsi512_ps(_mm512_mask_slli_epi32::<23>(subnormal, normal, _mm512_sub_epi32(exponents, one)))
    }
}

/// The table with `bias` added, so that no code is negative.
const fn biased(table: [i8; 16], bias: i16) -> [u8; 16] {
    let mut codes = [0; 16];
    let mut i = 0;
    while i < 16 {
        codes[i] = (table[i] as i16 + bias) as u8;
        i += 1;
    }
    codes
}

/// Half-precision numbers of blocks.
#[inline(always)]
unsafe fn halves(blocks: [[*const u8; ROWS]; RUNS], at: usize) -> __m512 {
    let run = |run: usize| {
        let [a, b, c, d] =
            each_row!(row => u64::from(blocks[run][row].add(at).cast::<u16>().read_unaligned()));
        (a | b << 16 | c << 32 | d << 48) as i64
    };
    _mm512_cvtph_ps(_mm256_setr_epi64x(run(0), run(1), run(2), run(3)))
}

/// The products of some rows of weights.
///
/// # Safety
/// The CPU has AVX-512, and no other task has these rows of weights.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn some_rows<F: Nibbles>(p: Few, rows: Range<usize>) {
    let block = F::FORMAT.block_bytes();
    let bytes = LANES * block;
    let (panels, rest) = (p.row_bytes / bytes, p.row_bytes % bytes);
    let all = panels + usize::from(rest > 0);
    let mut padded = [[0; MAX_BYTES]; ROWS];
    for first in (0..p.tokens).step_by(TOGETHER) {
        let tokens = TOGETHER.min(p.tokens - first);
        for start in rows.clone().step_by(ROWS) {
            let (w, count) = p.four(start, rows.end);
            if rest > 0 {
                // The last panels of all rows are equally long, so what follows them stays zero.
                for (padded, w) in padded.iter_mut().zip(w) {
                    w.add(panels * bytes).copy_to_nonoverlapping(padded.as_mut_ptr(), rest);
                }
            }
            let mut lanes = [[_mm512_setzero_ps(); LANES / RUNS]; TOGETHER];
            for index in 0..all {
                let at = index * bytes;
                if first == 0 {
                    // The rows that come next.
                    let len = bytes.min(p.row_bytes - at);
                    w.iter().for_each(|w| fetch(w.wrapping_add(ROWS * p.row_bytes + at), len));
                }
                let w = match index < panels {
                    true => each_row!(row => w[row].add(at)),
                    false => each_row!(row => padded[row].as_ptr()),
                };
                let both = index < panels || rest > RUNS * block;
                if tokens == 1 {
                    let x = p.x.runs(p.taken.get(first), index);
                    let [low, high] = &mut lanes[0];
                    *low = add(&Lying::<Half<F, 0>>::new(w), x, *low);
                    if both {
                        *high = add(&Lying::<Half<F, 1>>::new(w), x, *high);
                    }
                    continue;
                }
                let (first_half, second_half) = (Apart::<Half<F, 0>>::new(w), Apart::<Half<F, 1>>::new(w));
                for (token, [low, high]) in lanes[..tokens].iter_mut().enumerate() {
                    let x = p.x.runs(p.taken.get(first + token), index);
                    *low = add(&first_half, x, *low);
                    if both {
                        *high = add(&second_half, x, *high);
                    }
                }
            }
            for (token, &[low, high]) in lanes[..tokens].iter().enumerate() {
                // As `lanes::sum`.
                let sums = _mm512_add_ps(low, high);
                let (low, high) = (_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps::<1>(sums));
                let sums = _mm256_add_ps(low, high);
                let mut numbers = [0f32; ROWS];
                let sums = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums));
                _mm_storeu_ps(numbers.as_mut_ptr(), sums);
                p.y.slice((first + token) * p.out + start, count).copy_from_slice(&numbers[..count]);
            }
        }
    }
}

/// Half a panel: four runs.
struct Half<F, const HALF: usize>(std::marker::PhantomData<F>);

impl<F: Nibbles, const HALF: usize> Half<F, HALF> {
    /// The blocks of each run in the panels of four rows.
    #[inline(always)]
    unsafe fn blocks(panels: [*const u8; ROWS]) -> [[*const u8; ROWS]; RUNS] {
        let size = F::FORMAT.block_bytes();
        each_row!(run => each_row!(row => panels[row].add((HALF * RUNS + run) * size)))
    }
}

impl<F: Nibbles, const HALF: usize> Blocks for Half<F, HALF> {
    /// Scales and offsets: a quarter for each run, a number for each row.
    type Head = (__m512, __m512);
    /// Codes of the lower nibbles and of the upper ones, a quarter for each run.
    type Row = (__m512i, __m512i);

    #[inline(always)]
    unsafe fn head(panels: [*const u8; ROWS]) -> (__m512, __m512) {
        let blocks = Self::blocks(panels);
        (F::scales(blocks), if F::OFFSET { F::offsets(blocks) } else { _mm512_setzero_ps() })
    }

    #[inline(always)]
    unsafe fn row(_: &(__m512, __m512), panel: *const u8, _: usize) -> (__m512i, __m512i) {
        let size = F::FORMAT.block_bytes();
        let end = panel.add(HALF * RUNS * size + size - 16);
        let [a, b, c, d] = each_row!(run => _mm_loadu_si128(end.add(run * size).cast()));
        let v = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
        let v = _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(v, c), d);
        let fifteen = _mm512_set1_epi8(15);
        let low = _mm512_and_si512(v, fifteen);
        let high = _mm512_and_si512(_mm512_srli_epi16::<4>(v), fifteen);
        let Some(table) = &(const { F::TABLE }) else { return (low, high) };
        let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
        (_mm512_shuffle_epi8(table, low), _mm512_shuffle_epi8(table, high))
    }
}

/// Adds what half a panel of four rows gives to the sums of its lanes: a quarter for each run, a number for each row.
///
/// # Safety
/// The CPU has AVX-512; what `w` takes apart are panels.
#[inline(always)]
unsafe fn add<F: Nibbles, const HALF: usize>(
    w: &impl Source<Half<F, HALF>>,
    (codes, sums, scales): (&[i8], &[i16], &[f32]),
    lanes: __m512,
) -> __m512 {
    assert!(codes.len() == 256 && sums.len() == 16 && scales.len() == LANES);
    // Half a run goes with the lower nibbles of a block, and half with the upper ones.
    let codes = codes.as_ptr().add(HALF * 128);
    let (first, second) = (_mm512_loadu_si512(codes.cast()), _mm512_loadu_si512(codes.add(64).cast()));
    let x_low = _mm512_shuffle_i64x2::<0b10_00_10_00>(first, second);
    let x_high = _mm512_shuffle_i64x2::<0b11_01_11_01>(first, second);

    let quads = each_row!(row => {
        let (low, high) = w.row(row);
        _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), low, x_low), high, x_high)
    });
    let a = _mm512_add_epi32(
        _mm512_unpacklo_epi32(quads[0], quads[1]),
        _mm512_unpackhi_epi32(quads[0], quads[1]),
    );
    let b = _mm512_add_epi32(
        _mm512_unpacklo_epi32(quads[2], quads[3]),
        _mm512_unpackhi_epi32(quads[2], quads[3]),
    );
    let mut total = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));

    // What belongs to a run, four times.
    let run = |i: usize| (HALF * RUNS + i) as i32;
    let (a, b, c, d) = (run(0), run(1), run(2), run(3));
    let spread = _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d);
    let sums = _mm256_loadu_si256(sums.as_ptr().cast());
    if F::BIAS != 0 {
        let excess = _mm256_madd_epi16(sums, _mm256_set1_epi16(F::BIAS));
        total = _mm512_sub_epi32(total, _mm512_permutexvar_epi32(spread, _mm512_castsi256_si512(excess)));
    }
    let (of_scales, of_offsets) = *w.head();
    let scales = _mm512_permutexvar_ps(spread, _mm512_castps256_ps512(_mm256_loadu_ps(scales.as_ptr())));
    let lanes = _mm512_fmadd_ps(_mm512_mul_ps(of_scales, scales), _mm512_cvtepi32_ps(total), lanes);
    if !F::OFFSET {
        return lanes;
    }
    let total = _mm256_cvtepi32_ps(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
    let total = _mm512_permutexvar_ps(spread, _mm512_castps256_ps512(total));
    _mm512_fmadd_ps(_mm512_mul_ps(of_offsets, scales), total, lanes)
}
