//! The codecs with NEON, with and without byte dot products.
//!
//! Quants are signed: NEON multiplies signed bytes exactly, so there is no zero point to subtract.
//! Everything here is inlined into functions that have the features of [`Dot`], and is not called
//! from anywhere else.
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

mod dot;
mod unpack;

use std::arch::aarch64::*;
use std::marker::PhantomData;

pub(crate) use self::dot::{Dot, Sdot, Smull};
pub(crate) use self::unpack::{SimdBlock, SimdFloat, SimdSuperBlock};
use super::{Codec, SubBlock};
use crate::activations::Activations;
use crate::format::{FLOAT_CHUNK, SUPER_BLOCK};
use crate::lanes::LANES;

/// The codecs with FEAT_DotProd.
pub(crate) mod dotprod {
    use super::Sdot;

    pub(crate) type Blocks<F> = super::Blocks<F, Sdot>;
    pub(crate) type SuperBlocks<F> = super::SuperBlocks<F, Sdot>;
    pub(crate) type SubBlocks<F> = super::SubBlocks<F, Sdot>;
    pub(crate) type Floats<F> = super::Floats<F>;
}

/// Blocks of a format.
pub(crate) struct Blocks<F, D = Smull>(PhantomData<(F, D)>);

/// Eight blocks, unpacked.
pub(crate) struct UnpackedBlocks {
    pub(crate) quants: [[int8x16_t; 2]; LANES],
    pub(crate) scales: [f32; LANES],
    pub(crate) offsets: [f32; LANES],
}

impl<F: SimdBlock, D: Dot> Codec for Blocks<F, D> {
    const LEN: usize = SUPER_BLOCK;
    const BYTES: usize = LANES * F::FORMAT.block_bytes();
    type Chunk = UnpackedBlocks;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> UnpackedBlocks {
        assert!(bytes.len() == Self::BYTES);
        let (first, size) = (bytes.as_ptr(), F::FORMAT.block_bytes());
        let mut chunk = UnpackedBlocks {
            quants: [[vdupq_n_s8(0); 2]; LANES],
            scales: F::scales(first),
            offsets: [0.0; LANES],
        };
        for (lane, quants) in chunk.quants.iter_mut().enumerate() {
            *quants = F::vectors(first.add(lane * size));
        }
        if F::OFFSET {
            chunk.offsets = F::offsets(first);
        }
        chunk
    }

    #[inline(always)]
    unsafe fn dot(
        chunk: &UnpackedBlocks,
        x: &Activations,
        row: usize,
        index: usize,
        lanes: &mut [f32; LANES],
    ) {
        let (x_quants, sums, scales) = x.blocks(row, index);
        assert!(x_quants.len() == SUPER_BLOCK && sums.len() == SUPER_BLOCK / 16 && scales.len() == LANES);
        for first in [0, 4] {
            let block = |i: usize| {
                let x = x_quants.as_ptr().add((first + i) * 32);
                let [low, high] = chunk.quants[first + i];
                D::quads(D::add(D::add(D::zero(), low, vld1q_s8(x)), high, vld1q_s8(x.add(16))))
            };
            let total = totals([block(0), block(1), block(2), block(3)]);
            let x_scales = vld1q_f32(scales.as_ptr().add(first));
            let scale = vmulq_f32(vld1q_f32(chunk.scales.as_ptr().add(first)), x_scales);
            let at = lanes.as_mut_ptr().add(first);
            let mut lanes = vfmaq_f32(vld1q_f32(at), scale, vcvtq_f32_s32(total));
            if F::OFFSET {
                let total = vpaddlq_s16(vld1q_s16(sums.as_ptr().add(2 * first)));
                let offset = vmulq_f32(vld1q_f32(chunk.offsets.as_ptr().add(first)), x_scales);
                lanes = vfmaq_f32(lanes, offset, vcvtq_f32_s32(total));
            }
            vst1q_f32(at, lanes);
        }
    }
}

/// Super-blocks of a format.
pub(crate) struct SuperBlocks<F, D = Smull>(PhantomData<(F, D)>);

/// One super-block, unpacked.
pub(crate) struct UnpackedSuperBlock {
    pub(crate) quants: [int8x16_t; SUPER_BLOCK / 16],
    pub(crate) scales: [i32; 16],
    pub(crate) minima: [i16; 16],
    pub(crate) scale: f32,
    pub(crate) minimum: f32,
}

impl<F: SimdSuperBlock, D: Dot> Codec for SuperBlocks<F, D> {
    const LEN: usize = SUPER_BLOCK;
    const BYTES: usize = F::FORMAT.block_bytes();
    type Chunk = UnpackedSuperBlock;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> UnpackedSuperBlock {
        assert!(bytes.len() == Self::BYTES);
        let (scales, minima) = F::integers(bytes);
        let (scale, minimum) = F::factors(bytes);
        UnpackedSuperBlock { quants: F::vectors(bytes.as_ptr()), scales, minima, scale, minimum }
    }

    #[inline(always)]
    unsafe fn dot(
        chunk: &UnpackedSuperBlock,
        x: &Activations,
        row: usize,
        index: usize,
        lanes: &mut [f32; LANES],
    ) {
        let (x_quants, sums, scale) = x.super_block(row, index);
        assert!(x_quants.len() == SUPER_BLOCK && sums.len() == SUPER_BLOCK / 16);
        let product = |sums, i: usize| D::add(sums, chunk.quants[i], vld1q_s8(x_quants.as_ptr().add(16 * i)));
        let mut total = vdupq_n_s32(0);
        for i in 0..SUPER_BLOCK / 32 {
            let first = product(D::zero(), 2 * i);
            if F::SUB_BLOCKS_OF_16 {
                let second = product(D::zero(), 2 * i + 1);
                total = vmlaq_n_s32(total, D::quads(first), chunk.scales[2 * i]);
                total = vmlaq_n_s32(total, D::quads(second), chunk.scales[2 * i + 1]);
            } else {
                let both = product(first, 2 * i + 1);
                total = vmlaq_n_s32(total, D::quads(both), chunk.scales[2 * i]);
            }
        }
        let lane = &mut lanes[index % LANES];
        *lane = (chunk.scale * scale).mul_add(vaddvq_s32(total) as f32, *lane);
        if F::MINIMA {
            let mut total = vdupq_n_s32(0);
            for first in [0, 8] {
                let m = vld1q_s16(chunk.minima.as_ptr().add(first));
                let x = vld1q_s16(sums.as_ptr().add(first));
                total = vmlal_high_s16(vmlal_s16(total, vget_low_s16(m), vget_low_s16(x)), m, x);
            }
            *lane = (-chunk.minimum * scale).mul_add(vaddvq_s32(total) as f32, *lane);
        }
    }
}

/// Sub-blocks of a format.
pub(crate) struct SubBlocks<F, D = Smull>(PhantomData<(F, D)>);

/// Sixteen sub-blocks, unpacked.
pub(crate) struct UnpackedSubBlocks {
    quants: [i8; SUPER_BLOCK],
    scales: [f32; 16],
}

impl<F: SubBlock, D: Dot> Codec for SubBlocks<F, D> {
    const LEN: usize = SUPER_BLOCK;
    const BYTES: usize = F::BYTES;
    type Chunk = UnpackedSubBlocks;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> UnpackedSubBlocks {
        UnpackedSubBlocks { quants: F::quants(bytes), scales: F::scales(bytes) }
    }

    #[inline(always)]
    unsafe fn dot(
        chunk: &UnpackedSubBlocks,
        x: &Activations,
        row: usize,
        index: usize,
        lanes: &mut [f32; LANES],
    ) {
        let (x_quants, _, scales) = x.blocks(row, index);
        assert!(x_quants.len() == SUPER_BLOCK && scales.len() == LANES);
        let product = |i: usize| {
            let (w, x) = (chunk.quants.as_ptr().add(16 * i), x_quants.as_ptr().add(16 * i));
            D::quads(D::add(D::zero(), vld1q_s8(w), vld1q_s8(x)))
        };
        for half in 0..2 {
            let x_scales = vld1q_f32(scales.as_ptr().add(4 * half));
            // The even ones go to the first four lanes, the odd ones to the last four.
            let w_scales = vld2q_f32(chunk.scales.as_ptr().add(8 * half));
            for (odd, w_scales) in [w_scales.0, w_scales.1].into_iter().enumerate() {
                let of = |i: usize| product(8 * half + 2 * i + odd);
                let total = totals([of(0), of(1), of(2), of(3)]);
                let at = lanes.as_mut_ptr().add(4 * odd);
                let sum = vfmaq_f32(vld1q_f32(at), vmulq_f32(w_scales, x_scales), vcvtq_f32_s32(total));
                vst1q_f32(at, sum);
            }
        }
    }
}

/// Floats of a format.
pub(crate) struct Floats<F>(PhantomData<F>);

impl<F: SimdFloat> Codec for Floats<F> {
    const LEN: usize = FLOAT_CHUNK;
    const BYTES: usize = FLOAT_CHUNK * F::BYTES;
    /// Groups of eight numbers.
    type Chunk = [[float32x4_t; 2]; FLOAT_CHUNK / LANES];

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> Self::Chunk {
        assert!(bytes.len() == Self::BYTES);
        let mut chunk = [[vdupq_n_f32(0.0); 2]; FLOAT_CHUNK / LANES];
        for (i, eight) in chunk.iter_mut().enumerate() {
            *eight = F::widen_eight(bytes.as_ptr().add(i * LANES * F::BYTES));
        }
        chunk
    }

    #[inline(always)]
    unsafe fn dot(w: &Self::Chunk, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]) {
        let x = x.floats(row, index);
        assert!(x.len() == FLOAT_CHUNK);
        let at = lanes.as_mut_ptr();
        let (mut low, mut high) = (vld1q_f32(at), vld1q_f32(at.add(4)));
        for (i, w) in w.iter().enumerate() {
            let x = x.as_ptr().add(LANES * i);
            low = vfmaq_f32(low, w[0], vld1q_f32(x));
            high = vfmaq_f32(high, w[1], vld1q_f32(x.add(4)));
        }
        vst1q_f32(at, low);
        vst1q_f32(at.add(4), high);
    }
}

/// The horizontal sum of each of four vectors.
#[inline(always)]
unsafe fn totals([a, b, c, d]: [int32x4_t; 4]) -> int32x4_t {
    vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d))
}
