//! [`SubBlock`] with vectors.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::unpack::{look_up, set_bits};
use super::{Encoding, pairs};
use crate::activations::Activations;
use crate::format::SUPER_BLOCK;
use crate::lanes::LANES;
use crate::quant::codebook::E2M1;
use crate::quant::sub_blocks::{NVFP4, Q1_0};
use crate::quant::{Codec, SubBlock};

/// [`SubBlock`] with vectors.
/// Pointers are to whole chunks.
pub(crate) trait SimdSubBlock: SubBlock {
    /// The quants of a chunk.
    unsafe fn vectors(chunk: *const u8) -> [__m256i; 8];
}

/// Sub-blocks of a format.
pub(crate) struct SubBlocks<F>(PhantomData<F>);

/// Sixteen sub-blocks, unpacked.
pub(crate) struct UnpackedSubBlocks {
    quants: [__m256i; SUPER_BLOCK / 32],
    /// The scales of each half of a chunk, in lane order.
    scales: [__m256; 2],
}

impl<F: SimdSubBlock> Codec for SubBlocks<F> {
    const LEN: usize = SUPER_BLOCK;
    const BYTES: usize = F::BYTES;
    type Chunk = UnpackedSubBlocks;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> UnpackedSubBlocks {
        assert!(bytes.len() == Self::BYTES);
        let scales = F::scales(bytes);
        // The even ones first.
        let order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
        let ordered =
            |half: usize| _mm256_permutevar8x32_ps(_mm256_loadu_ps(scales[8 * half..][..8].as_ptr()), order);
        UnpackedSubBlocks { quants: F::vectors(bytes.as_ptr()), scales: [ordered(0), ordered(1)] }
    }

    #[inline(always)]
    unsafe fn dot(
        chunk: &UnpackedSubBlocks,
        x: &Activations,
        row: usize,
        index: usize,
        lanes: &mut [f32; LANES],
    ) {
        let (quants, _, scales) = x.blocks(row, index);
        let mut sum = _mm256_loadu_ps(lanes.as_ptr());
        each!(half => {
            let [a, b, c, d] = each!(i => {
                let block = 4 * half + i;
                let x = _mm256_loadu_si256(quants[32 * block..][..32].as_ptr().cast());
                _mm256_madd_epi16(pairs(chunk.quants[block], x, Encoding::Signed), _mm256_set1_epi16(1))
            }; 0 1 2 3);
            let totals = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
            let scale = _mm_loadu_ps(scales[4 * half..][..4].as_ptr());
            let scale = _mm256_mul_ps(chunk.scales[half], _mm256_set_m128(scale, scale));
            sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(totals), sum);
        }; 0 1);
        _mm256_storeu_ps(lanes.as_mut_ptr(), sum);
    }
}

impl SimdSubBlock for NVFP4 {
    #[inline(always)]
    unsafe fn vectors(chunk: *const u8) -> [__m256i; 8] {
        each!(block => {
            let sixteen = _mm_loadu_si128(chunk.add(block / 2 * 36 + 4 + block % 2 * 16).cast());
            // Eight bytes, duplicated: the lower nibbles of the first copy, the upper ones of the
            // second.
            let twice = _mm256_permute4x64_epi64::<0b01_01_00_00>(_mm256_castsi128_si256(sixteen));
            let shifted = _mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 4, 0, 4));
            look_up(&E2M1, _mm256_and_si256(shifted, _mm256_set1_epi8(15)))
        })
    }
}

impl SimdSubBlock for Q1_0 {
    #[inline(always)]
    unsafe fn vectors(chunk: *const u8) -> [__m256i; 8] {
        each!(block => {
            let bits = chunk.add(block / 4 * 18 + 2 + block % 4 * 4).cast::<u32>().read_unaligned();
            // Converts 0 or -1 to -1 or 1.
            let one = _mm256_set1_epi8(1);
            _mm256_or_si256(_mm256_andnot_si256(set_bits(bits), _mm256_set1_epi8(-1)), one)
        })
    }
}
