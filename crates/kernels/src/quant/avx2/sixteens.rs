//! [`Sixteen`] in vectors.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::unpack::{look_up, set_bits};
use super::{Bias, pairs};
use crate::activations::Activations;
use crate::lanes::LANES;
use crate::quant::codebook::E2M1;
use crate::quant::sixteens::{NVFP4, Q1_0};
use crate::quant::{Codec, PANEL, Sixteen};

/// [`Sixteen`] in vectors.
/// Pointers are to whole panels.
pub(crate) trait SixteenBits: Sixteen {
    /// The codes of a panel.
    unsafe fn vectors(panel: *const u8) -> [__m256i; 8];
}

/// Sixteens of a format.
pub(crate) struct Sixteens<F>(PhantomData<F>);

/// Sixteen sixteens, unpacked.
pub(crate) struct Sixteen16 {
    codes: [__m256i; PANEL / 32],
    /// Of each half of a panel the scales in the order of the lanes.
    scales: [__m256; 2],
}

impl<F: SixteenBits> Codec for Sixteens<F> {
    const LEN: usize = PANEL;
    const BYTES: usize = F::BYTES;
    type Panel = Sixteen16;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> Sixteen16 {
        assert!(bytes.len() == Self::BYTES);
        let scales = F::scales(bytes);
        // The even ones first.
        let order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
        let ordered =
            |half: usize| _mm256_permutevar8x32_ps(_mm256_loadu_ps(scales[8 * half..][..8].as_ptr()), order);
        Sixteen16 { codes: F::vectors(bytes.as_ptr()), scales: [ordered(0), ordered(1)] }
    }

    #[inline(always)]
    unsafe fn dot(panel: &Sixteen16, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]) {
        let (codes, _, scales) = x.runs(row, index);
        let mut sum = _mm256_loadu_ps(lanes.as_ptr());
        each!(half => {
            let [a, b, c, d] = each!(i => {
                let run = 4 * half + i;
                let x = _mm256_loadu_si256(codes[32 * run..][..32].as_ptr().cast());
                _mm256_madd_epi16(pairs(panel.codes[run], x, Bias::Signed), _mm256_set1_epi16(1))
            }; 0 1 2 3);
            let totals = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
            let scale = _mm_loadu_ps(scales[4 * half..][..4].as_ptr());
            let scale = _mm256_mul_ps(panel.scales[half], _mm256_set_m128(scale, scale));
            sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(totals), sum);
        }; 0 1);
        _mm256_storeu_ps(lanes.as_mut_ptr(), sum);
    }
}

impl SixteenBits for NVFP4 {
    #[inline(always)]
    unsafe fn vectors(panel: *const u8) -> [__m256i; 8] {
        each!(run => {
            let sixteen = _mm_loadu_si128(panel.add(run / 2 * 36 + 4 + run % 2 * 16).cast());
            // Eight bytes twice, of which first the lower nibbles count and then the upper ones.
            let twice = _mm256_permute4x64_epi64::<0b01_01_00_00>(_mm256_castsi128_si256(sixteen));
            let shifted = _mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 4, 0, 4));
            look_up(&E2M1, _mm256_and_si256(shifted, _mm256_set1_epi8(15)))
        })
    }
}

impl SixteenBits for Q1_0 {
    #[inline(always)]
    unsafe fn vectors(panel: *const u8) -> [__m256i; 8] {
        each!(run => {
            let bits = panel.add(run / 4 * 18 + 2 + run % 4 * 4).cast::<u32>().read_unaligned();
            // 0 or -1 becomes -1 or 1.
            let one = _mm256_set1_epi8(1);
            _mm256_or_si256(_mm256_andnot_si256(set_bits(bits), _mm256_set1_epi8(-1)), one)
        })
    }
}
