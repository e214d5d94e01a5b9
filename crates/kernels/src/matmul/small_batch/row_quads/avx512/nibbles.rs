//! Row quads with AVX-512, for blocks whose quants are nibbles.
//! The sixteen bytes of four blocks fill a register, whose quarters belong to their blocks
//! throughout.
//!
//! ```text
//! low nibbles    b0[0..16]  b1[0..16]  b2[0..16]  b3[0..16]     b: a block of a row
//! high nibbles   b0[16..32] b1[16..32] b2[16..32] b3[16..32]
//! sums of rows   r0 r1 r2 r3 of b0 | of b1 | of b2 | of b3      after transposing quarters
//! ```
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use super::{BlockQuad, Quad, ROWS, each_of_four};
use crate::lanes::LANES;
use crate::quant::Block;
use crate::quant::codebook::{E2M1, IQ4_NL, MXFP4, UNEVEN};
use crate::quant::legacy::{Q4_0, Q4_1};

/// Blocks per register.
const BLOCKS: usize = 4;

/// A format whose blocks end in sixteen bytes of nibbles.
pub(super) trait Nibbles: Block {
    /// The quants that nibbles encode, if not themselves, plus [`Nibbles::ZERO_POINT`].
    const TABLE: Option<[u8; 16]> = None;
    /// The number to subtract from each quant.
    const ZERO_POINT: i16;

    /// The scales of four blocks of four rows, as `[block][row]`: half-precision numbers at their
    /// start, unless otherwise defined.
    ///
    /// # Safety
    /// The CPU has AVX-512; the pointers are to whole blocks.
    #[inline(always)]
    unsafe fn scales(blocks: [[*const u8; ROWS]; BLOCKS]) -> __m512 {
        halves(blocks, 0)
    }

    /// The offsets, if the format has any.
    ///
    /// # Safety
    /// As [`Nibbles::scales`].
    #[inline(always)]
    unsafe fn offsets(blocks: [[*const u8; ROWS]; BLOCKS]) -> __m512 {
        halves(blocks, 2)
    }
}

impl Nibbles for Q4_0 {
    const ZERO_POINT: i16 = 8;
}

impl Nibbles for Q4_1 {
    const ZERO_POINT: i16 = 0;
}

impl Nibbles for IQ4_NL {
    const TABLE: Option<[u8; 16]> = Some(unsigned(UNEVEN, 127));
    const ZERO_POINT: i16 = 127;
}

impl Nibbles for MXFP4 {
    const TABLE: Option<[u8; 16]> = Some(unsigned(E2M1, 12));
    const ZERO_POINT: i16 = 12;

    /// As `codebook::e8m0_half`.
    #[inline(always)]
    unsafe fn scales(blocks: [[*const u8; ROWS]; BLOCKS]) -> __m512 {
        let block = |i: usize| {
            let [a, b, c, d] = each_of_four!(row => u32::from(*blocks[i][row]));
            (a | b << 8 | c << 16 | d << 24) as i32
        };
        let exponents = _mm512_cvtepu8_epi32(_mm_setr_epi32(block(0), block(1), block(2), block(3)));
        let one = _mm512_set1_epi32(1);
        let subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), exponents);
        let normal = _mm512_cmpgt_epi32_mask(exponents, one);
        _mm512_castsi512_ps(_mm512_mask_slli_epi32::<23>(subnormal, normal, _mm512_sub_epi32(exponents, one)))
    }
}

/// The table with the zero point added, so that no quant is negative.
const fn unsigned(table: [i8; 16], zero_point: i16) -> [u8; 16] {
    let mut quants = [0; 16];
    let mut i = 0;
    while i < 16 {
        quants[i] = (table[i] as i16 + zero_point) as u8;
        i += 1;
    }
    quants
}

/// Half-precision numbers of blocks.
#[inline(always)]
unsafe fn halves(blocks: [[*const u8; ROWS]; BLOCKS], at: usize) -> __m512 {
    let block = |i: usize| {
        let [a, b, c, d] =
            each_of_four!(row => u64::from(blocks[i][row].add(at).cast::<u16>().read_unaligned()));
        (a | b << 16 | c << 32 | d << 48) as i64
    };
    _mm512_cvtph_ps(_mm256_setr_epi64x(block(0), block(1), block(2), block(3)))
}

/// The two halves of a chunk of four rows, each with four blocks.
pub(super) struct NibbleQuad<F>(std::marker::PhantomData<F>);

impl<F: Nibbles> BlockQuad for NibbleQuad<F> {
    const BYTES: usize = LANES * F::FORMAT.block_bytes();
    /// Scales and offsets of each half: a quarter per block, a number per row.
    type Head = [(__m512, __m512); 2];
    /// Quants of each half, of the lower nibbles and of the upper ones, a quarter per block.
    type Row = [(__m512i, __m512i); 2];
    /// The sums of each half, ordered like scales.
    type Lanes = [__m512; 2];

    #[inline(always)]
    unsafe fn head(chunks: [*const u8; ROWS]) -> Self::Head {
        [factors::<F>(chunks, 0), factors::<F>(chunks, 1)]
    }

    #[inline(always)]
    unsafe fn row(_: &Self::Head, chunk: *const u8, _: usize) -> Self::Row {
        [quants::<F>(chunk, 0), quants::<F>(chunk, 1)]
    }

    #[inline(always)]
    unsafe fn zeros() -> Self::Lanes {
        [_mm512_setzero_ps(); 2]
    }

    #[inline(always)]
    unsafe fn add(
        w: &impl Quad<Self>,
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

/// Scales and offsets of half a chunk of four rows.
#[inline(always)]
unsafe fn factors<F: Nibbles>(chunks: [*const u8; ROWS], half: usize) -> (__m512, __m512) {
    let size = F::FORMAT.block_bytes();
    let blocks = each_of_four!(i => each_of_four!(row => chunks[row].add((half * BLOCKS + i) * size)));
    (F::scales(blocks), if F::OFFSET { F::offsets(blocks) } else { _mm512_setzero_ps() })
}

/// Quants of half a chunk of a row.
#[inline(always)]
unsafe fn quants<F: Nibbles>(chunk: *const u8, half: usize) -> (__m512i, __m512i) {
    let size = F::FORMAT.block_bytes();
    let end = chunk.add(half * BLOCKS * size + size - 16);
    let [a, b, c, d] = each_of_four!(i => _mm_loadu_si128(end.add(i * size).cast()));
    let v = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
    let v = _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(v, c), d);
    let fifteen = _mm512_set1_epi8(15);
    let low = _mm512_and_si512(v, fifteen);
    let high = _mm512_and_si512(_mm512_srli_epi16::<4>(v), fifteen);
    let Some(table) = &(const { F::TABLE }) else { return (low, high) };
    let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
    (_mm512_shuffle_epi8(table, low), _mm512_shuffle_epi8(table, high))
}

/// Adds the products of half a chunk of four rows to the sums of its lanes: a quarter per block, a
/// number per row.
///
/// # Safety
/// The CPU has AVX-512; `w` unpacks whole chunks.
#[inline(always)]
unsafe fn add_half<F: Nibbles>(
    w: &impl Quad<NibbleQuad<F>>,
    (quants, sums, scales): (&[i8], &[i16], &[f32]),
    half: usize,
    lanes: __m512,
) -> __m512 {
    assert!(quants.len() == 256 && sums.len() == 16 && scales.len() == LANES);
    // One half of a block belongs to the lower nibbles, the other to the upper ones.
    let quants = quants.as_ptr().add(half * 128);
    let (first, second) = (_mm512_loadu_si512(quants.cast()), _mm512_loadu_si512(quants.add(64).cast()));
    let x_low = _mm512_shuffle_i64x2::<0b10_00_10_00>(first, second);
    let x_high = _mm512_shuffle_i64x2::<0b11_01_11_01>(first, second);

    let quads = each_of_four!(row => {
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

    // Repeats a block's number four times.
    let block = |i: usize| (half * BLOCKS + i) as i32;
    let (a, b, c, d) = (block(0), block(1), block(2), block(3));
    let spread = _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d);
    let sums = _mm256_loadu_si256(sums.as_ptr().cast());
    if F::ZERO_POINT != 0 {
        let correction = _mm256_madd_epi16(sums, _mm256_set1_epi16(F::ZERO_POINT));
        total = _mm512_sub_epi32(total, _mm512_permutexvar_epi32(spread, _mm512_castsi256_si512(correction)));
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
