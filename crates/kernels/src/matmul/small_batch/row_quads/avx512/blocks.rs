//! Row quads with AVX-512, for blocks of 32 quants of up to eight bits.
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use super::{BlockQuad, Quad, ROWS, each_of_four, pair};
use crate::format::SUPER_BLOCK;
use crate::lanes::LANES;
use crate::matmul::vector::{Avx512, Vector};
use crate::quant::avx2::{Encoding, SimdBlock, in_a_row};

/// A chunk of four rows of a format whose quants are unpacked into bytes.
pub(super) struct ByteQuad<F>(std::marker::PhantomData<F>);

impl<F: SimdBlock> ByteQuad<F> {
    /// The zero point of quants in their unsigned form.
    const ZERO_POINT: i16 = match F::ENCODING {
        Encoding::Unsigned(zero_point) => zero_point,
        Encoding::Signed => 128,
    };
}

/// Scales and offsets of two rows per register.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    scales: [__m512; ROWS / 2],
    offsets: [__m512; ROWS / 2],
}

impl<F: SimdBlock> BlockQuad for ByteQuad<F> {
    const BYTES: usize = LANES * F::FORMAT.block_bytes();
    type Head = Factors;
    /// Blocks i and i + 4 in one register.
    type Row = [__m512i; 4];
    /// Two rows per register.
    type Lanes = [__m512; ROWS / 2];

    #[inline(always)]
    unsafe fn head(chunks: [*const u8; ROWS]) -> Factors {
        let of = each_of_four!(row => {
            let blocks = in_a_row(chunks[row], F::FORMAT.block_bytes());
            (F::scales(blocks), if F::OFFSET { F::offsets(blocks) } else { _mm256_setzero_ps() })
        });
        Factors {
            scales: [both(of[0].0, of[1].0), both(of[2].0, of[3].0)],
            offsets: [both(of[0].1, of[1].1), both(of[2].1, of[3].1)],
        }
    }

    #[inline(always)]
    unsafe fn row(_: &Factors, chunk: *const u8, _: usize) -> [__m512i; 4] {
        let size = F::FORMAT.block_bytes();
        each_of_four!(i => {
            let low = F::vector(chunk.add(i * size));
            let w = pair(low, F::vector(chunk.add((i + 4) * size)));
            match F::ENCODING {
                Encoding::Unsigned(_) => w,
                Encoding::Signed => _mm512_xor_si512(w, _mm512_set1_epi8(-128)),
            }
        })
    }

    #[inline(always)]
    unsafe fn zeros() -> Self::Lanes {
        [_mm512_setzero_ps(); ROWS / 2]
    }

    #[inline(always)]
    unsafe fn add(
        w: &impl Quad<Self>,
        (quants, sums, scales): (&[i8], &[i16], &[f32]),
        _: usize,
        lanes: &mut Self::Lanes,
    ) {
        assert!(quants.len() == SUPER_BLOCK && sums.len() == 16 && scales.len() == LANES);
        let x = each_of_four!(i => {
            let block = quants.as_ptr().add(32 * i).cast::<__m256i>();
            pair(_mm256_loadu_si256(block), _mm256_loadu_si256(block.add(4)))
        });
        let sums = _mm512_broadcast_i64x4(_mm256_loadu_si256(sums.as_ptr().cast()));
        let scales = _mm512_broadcast_f32x8(_mm256_loadu_ps(scales.as_ptr()));

        // vpdpbusd: unsigned times signed bytes, four products per lane, without saturation.
        // For each row, in 16 lanes, with (b) the sums of four quants' products of block b:
        //
        //   w[i]       b=i  i  i  i | i  i  i  i | i+4 .. | i+4 ..     eight lanes a block
        //   quads[row] b=0  1  2  3 | 0  1  2  3 | 4 5 6 7 | 4 5 6 7   of half a block each
        let quads = each_of_four!(row => {
            let w = w.row(row);
            let w = each_of_four!(i => _mm512_dpbusd_epi32(_mm512_setzero_si512(), w[i], x[i]));
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
            if Self::ZERO_POINT != 0 {
                total = Avx512::add_pairs(total, sums, _mm512_set1_epi16(-Self::ZERO_POINT));
            }
            let factor = _mm512_mul_ps(w.head().scales[i], scales);
            *lanes = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(total), *lanes);
            if F::OFFSET {
                let factor = _mm512_mul_ps(w.head().offsets[i], scales);
                let total = _mm512_cvtepi32_ps(_mm512_madd_epi16(sums, _mm512_set1_epi16(1)));
                *lanes = _mm512_fmadd_ps(factor, total, *lanes);
            }
        }
    }

    #[inline(always)]
    unsafe fn totals([a, b]: Self::Lanes) -> [f32; ROWS] {
        // Two rows in each half.
        let s = _mm512_add_ps(
            _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b),
            _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b),
        );
        let s = _mm512_add_ps(s, _mm512_shuffle_ps::<0b01_00_11_10>(s, s));
        let s = _mm512_add_ps(s, _mm512_shuffle_ps::<0b10_11_00_01>(s, s));
        let mut numbers = [0f32; 16];
        _mm512_storeu_ps(numbers.as_mut_ptr(), s);
        each_of_four!(row => numbers[4 * row])
    }
}

#[inline(always)]
unsafe fn both(low: __m256, high: __m256) -> __m512 {
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
}
