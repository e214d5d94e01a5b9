//! Products with few rows of activations by AVX-512, of runs of 32 codes of up to eight bits.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the
// same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use super::{Blocks, Panels, ROWS, Source, each_row, pair};
use crate::lanes::LANES;
use crate::matmul::vector::{Avx512, Vector};
use crate::quant::PANEL;
use crate::quant::avx2::{Bias, RunBits, each, in_a_row};

/// Eight runs of a format.
pub(super) struct Runs<F>(std::marker::PhantomData<F>);

impl<F: RunBits> Runs<F> {
    /// What is to be subtracted from codes as they are multiplied: without signs.
    const BIAS: i16 = match F::BIAS {
        Bias::Unsigned(bias) => bias,
        Bias::Signed => 128,
    };
}

/// Scales and offsets of two rows in a register.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    scales: [__m512; ROWS / 2],
    offsets: [__m512; ROWS / 2],
}

impl<F: RunBits> Blocks for Runs<F> {
    type Head = Factors;
    /// Runs i and i + 4 in a register.
    type Row = [__m512i; 4];

    #[inline(always)]
    unsafe fn head(blocks: [*const u8; ROWS]) -> Factors {
        let of = each_row!(row => {
            let panel = blocks[row];
            (F::scales(in_a_row(panel, F::FORMAT.block_bytes())), if F::OFFSET { F::offsets(in_a_row(panel, F::FORMAT.block_bytes())) } else { _mm256_setzero_ps() })
        });
        Factors {
            scales: [both(of[0].0, of[1].0), both(of[2].0, of[3].0)],
            offsets: [both(of[0].1, of[1].1), both(of[2].1, of[3].1)],
        }
    }

    #[inline(always)]
    unsafe fn row(_: &Factors, block: *const u8, _: usize) -> [__m512i; 4] {
        let size = F::FORMAT.block_bytes();
        each_row!(i => {
            let low = F::vector(block.add(i * size));
            let w = pair(low, F::vector(block.add((i + 4) * size)));
            match F::BIAS {
                Bias::Unsigned(_) => w,
                Bias::Signed => _mm512_xor_si512(w, _mm512_set1_epi8(-128)),
            }
        })
    }
}

impl<F: RunBits> Panels for Runs<F> {
    const BYTES: usize = LANES * F::FORMAT.block_bytes();
    /// Two rows in a register.
    type Lanes = [__m512; ROWS / 2];

    #[inline(always)]
    unsafe fn zeros() -> Self::Lanes {
        [_mm512_setzero_ps(); ROWS / 2]
    }

    #[inline(always)]
    unsafe fn add(
        w: &impl Source<Self>,
        (codes, sums, scales): (&[i8], &[i16], &[f32]),
        _: usize,
        lanes: &mut Self::Lanes,
    ) {
        assert!(codes.len() == PANEL && sums.len() == 16 && scales.len() == LANES);
        let x = each_row!(i => {
            let run = codes.as_ptr().add(32 * i).cast::<__m256i>();
            pair(_mm256_loadu_si256(run), _mm256_loadu_si256(run.add(4)))
        });
        let sums = _mm512_broadcast_i64x4(_mm256_loadu_si256(sums.as_ptr().cast()));
        let scales = _mm512_broadcast_f32x8(_mm256_loadu_ps(scales.as_ptr()));

        // For each row the sums of four codes' products, of runs 0 to 3 in both lower quarters, of
        // 4 to 7 in both upper ones.
        let quads = each_row!(row => {
            let w = w.row(row);
            let w = each_row!(i => _mm512_dpbusd_epi32(_mm512_setzero_si512(), w[i], x[i]));
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
            if Runs::<F>::BIAS != 0 {
                total = Avx512::add_pairs(total, sums, _mm512_set1_epi16(-Runs::<F>::BIAS));
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
        // Of two rows in each half.
        let s = _mm512_add_ps(
            _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b),
            _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b),
        );
        let s = _mm512_add_ps(s, _mm512_shuffle_ps::<0b01_00_11_10>(s, s));
        let s = _mm512_add_ps(s, _mm512_shuffle_ps::<0b10_11_00_01>(s, s));
        let mut numbers = [0f32; 16];
        _mm512_storeu_ps(numbers.as_mut_ptr(), s);
        each_row!(row => numbers[4 * row])
    }
}

#[inline(always)]
unsafe fn both(low: __m256, high: __m256) -> __m512 {
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
}
