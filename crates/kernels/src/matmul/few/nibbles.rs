//! Products with few rows of activations by AVX-512, of runs whose codes are nibbles: the sixteen
//! bytes of four runs make a register, whose quarters stay with their runs to the end.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the
// same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use super::{Blocks, Panels, ROWS, Source, each_row};
use crate::lanes::LANES;
use crate::quant::Run;
use crate::quant::avx2::each;
use crate::quant::codebook::{E2M1, IQ4_NL, MXFP4, UNEVEN};
use crate::quant::legacy::{Q4_0, Q4_1};

/// The runs of a register.
const RUNS: usize = 4;

/// A format whose blocks end in sixteen bytes of nibbles.
pub(super) trait Nibbles: Run {
    /// The codes that nibbles stand for, if not themselves, plus [`Nibbles::BIAS`].
    const TABLE: Option<[u8; 16]> = None;
    /// What is to be subtracted from each code.
    const BIAS: i16;

    /// The scales of four blocks of four rows, as `[run][row]`: half-precision numbers at their
    /// start, unless otherwise defined.
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

/// The two halves of a panel: four runs each.
pub(super) struct Halves<F>(std::marker::PhantomData<F>);

impl<F: Nibbles> Blocks for Halves<F> {
    /// Scales and offsets of each half: a quarter for each run, a number for each row.
    type Head = [(__m512, __m512); 2];
    /// Codes of each half, of the lower nibbles and of the upper ones, a quarter for each run.
    type Row = [(__m512i, __m512i); 2];

    #[inline(always)]
    unsafe fn head(panels: [*const u8; ROWS]) -> Self::Head {
        [factors::<F>(panels, 0), factors::<F>(panels, 1)]
    }

    #[inline(always)]
    unsafe fn row(_: &Self::Head, panel: *const u8, _: usize) -> Self::Row {
        [codes::<F>(panel, 0), codes::<F>(panel, 1)]
    }
}

impl<F: Nibbles> Panels for Halves<F> {
    const BYTES: usize = LANES * F::FORMAT.block_bytes();
    /// Of each half, as scales.
    type Lanes = [__m512; 2];

    #[inline(always)]
    unsafe fn zeros() -> Self::Lanes {
        [_mm512_setzero_ps(); 2]
    }

    #[inline(always)]
    unsafe fn add(
        w: &impl Source<Self>,
        x: (&[i8], &[i16], &[f32]),
        len: usize,
        [low, high]: &mut Self::Lanes,
    ) {
        *low = add_half(w, x, 0, *low);
        if len > Self::BYTES / 2 {
            *high = add_half(w, x, 1, *high);
        }
    }

    #[inline(always)]
    unsafe fn totals([low, high]: Self::Lanes) -> [f32; ROWS] {
        let sums = _mm512_add_ps(low, high);
        let sums = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps::<1>(sums));
        let mut numbers = [0f32; ROWS];
        let sums = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums));
        _mm_storeu_ps(numbers.as_mut_ptr(), sums);
        numbers
    }
}

/// Scales and offsets of half a panel of four rows.
#[inline(always)]
unsafe fn factors<F: Nibbles>(panels: [*const u8; ROWS], half: usize) -> (__m512, __m512) {
    let size = F::FORMAT.block_bytes();
    let blocks = each_row!(run => each_row!(row => panels[row].add((half * RUNS + run) * size)));
    (F::scales(blocks), if F::OFFSET { F::offsets(blocks) } else { _mm512_setzero_ps() })
}

/// Codes of half a panel of a row.
#[inline(always)]
unsafe fn codes<F: Nibbles>(panel: *const u8, half: usize) -> (__m512i, __m512i) {
    let size = F::FORMAT.block_bytes();
    let end = panel.add(half * RUNS * size + size - 16);
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

/// Adds what half a panel of four rows gives to the sums of its lanes: a quarter for each run, a
/// number for each row.
///
/// # Safety
/// The CPU has AVX-512; what `w` takes apart are panels.
#[inline(always)]
unsafe fn add_half<F: Nibbles>(
    w: &impl Source<Halves<F>>,
    (codes, sums, scales): (&[i8], &[i16], &[f32]),
    half: usize,
    lanes: __m512,
) -> __m512 {
    assert!(codes.len() == 256 && sums.len() == 16 && scales.len() == LANES);
    // Half a run goes with the lower nibbles of a block, and half with the upper ones.
    let codes = codes.as_ptr().add(half * 128);
    let (first, second) = (_mm512_loadu_si512(codes.cast()), _mm512_loadu_si512(codes.add(64).cast()));
    let x_low = _mm512_shuffle_i64x2::<0b10_00_10_00>(first, second);
    let x_high = _mm512_shuffle_i64x2::<0b11_01_11_01>(first, second);

    let quads = each_row!(row => {
        let (low, high) = w.row(row)[half];
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
    let run = |i: usize| (half * RUNS + i) as i32;
    let (a, b, c, d) = (run(0), run(1), run(2), run(3));
    let spread = _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d);
    let sums = _mm256_loadu_si256(sums.as_ptr().cast());
    if F::BIAS != 0 {
        let excess = _mm256_madd_epi16(sums, _mm256_set1_epi16(F::BIAS));
        total = _mm512_sub_epi32(total, _mm512_permutexvar_epi32(spread, _mm512_castsi256_si512(excess)));
    }
    let (of_scales, of_offsets) = w.head()[half];
    let scales = _mm512_permutexvar_ps(spread, _mm512_castps256_ps512(_mm256_loadu_ps(scales.as_ptr())));
    let lanes = _mm512_fmadd_ps(_mm512_mul_ps(of_scales, scales), _mm512_cvtepi32_ps(total), lanes);
    if !F::OFFSET {
        return lanes;
    }
    let total = _mm256_cvtepi32_ps(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
    let total = _mm512_permutexvar_ps(spread, _mm512_castps256_ps512(total));
    _mm512_fmadd_ps(_mm512_mul_ps(of_offsets, scales), total, lanes)
}
