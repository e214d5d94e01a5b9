//! The codecs with NEON, with and without dot products of bytes.
//!
//! Quants have their sign: NEON multiplies bytes of either sign exactly, so no zero point is taken
//! off.
//! Everything here is inlined into a function that has the features of [`Dot`], and is called from
//! nowhere else.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the
// same.
#![allow(unsafe_op_in_unsafe_fn)]

mod dot;
mod unpack;

use std::arch::aarch64::*;
use std::marker::PhantomData;

pub(crate) use self::dot::{Dot, Sdot, Smull};
pub(crate) use self::unpack::{FloatBits, RunBits, SuperBits};
use super::{Codec, FLOATS, PANEL, Sixteen};
use crate::activations::Activations;
use crate::lanes::LANES;

/// The codecs with FEAT_DotProd.
pub(crate) mod dotprod {
    use super::Sdot;

    pub(crate) type Runs<F> = super::Runs<F, Sdot>;
    pub(crate) type Supers<F> = super::Supers<F, Sdot>;
    pub(crate) type Sixteens<F> = super::Sixteens<F, Sdot>;
    pub(crate) type Floats<F> = super::Floats<F>;
}

/// Eight quant blocks of a format.
pub(crate) struct Runs<F, D = Smull>(PhantomData<(F, D)>);

/// Eight quant blocks, unpacked.
pub(crate) struct Run8 {
    pub(crate) quants: [[int8x16_t; 2]; LANES],
    pub(crate) scales: [f32; LANES],
    pub(crate) offsets: [f32; LANES],
}

impl<F: RunBits, D: Dot> Codec for Runs<F, D> {
    const LEN: usize = PANEL;
    const BYTES: usize = LANES * F::FORMAT.block_bytes();
    type Panel = Run8;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> Run8 {
        assert!(bytes.len() == Self::BYTES);
        let (first, size) = (bytes.as_ptr(), F::FORMAT.block_bytes());
        let mut panel =
            Run8 { quants: [[vdupq_n_s8(0); 2]; LANES], scales: F::scales(first), offsets: [0.0; LANES] };
        for (lane, quants) in panel.quants.iter_mut().enumerate() {
            *quants = F::quants(first.add(lane * size));
        }
        if F::OFFSET {
            panel.offsets = F::offsets(first);
        }
        panel
    }

    #[inline(always)]
    unsafe fn dot(panel: &Run8, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]) {
        let (codes, sums, scales) = x.runs(row, index);
        assert!(codes.len() == PANEL && sums.len() == PANEL / 16 && scales.len() == LANES);
        for first in [0, 4] {
            let block = |i: usize| {
                let x = codes.as_ptr().add((first + i) * 32);
                let [low, high] = panel.quants[first + i];
                D::quads(D::add(D::add(D::zero(), low, vld1q_s8(x)), high, vld1q_s8(x.add(16))))
            };
            let total = totals([block(0), block(1), block(2), block(3)]);
            let x_scales = vld1q_f32(scales.as_ptr().add(first));
            let scale = vmulq_f32(vld1q_f32(panel.scales.as_ptr().add(first)), x_scales);
            let at = lanes.as_mut_ptr().add(first);
            let mut lanes = vfmaq_f32(vld1q_f32(at), scale, vcvtq_f32_s32(total));
            if F::OFFSET {
                let total = vpaddlq_s16(vld1q_s16(sums.as_ptr().add(2 * first)));
                let offset = vmulq_f32(vld1q_f32(panel.offsets.as_ptr().add(first)), x_scales);
                lanes = vfmaq_f32(lanes, offset, vcvtq_f32_s32(total));
            }
            vst1q_f32(at, lanes);
        }
    }
}

/// Super-blocks of a format.
pub(crate) struct Supers<F, D = Smull>(PhantomData<(F, D)>);

/// One super-block, unpacked.
pub(crate) struct Super1 {
    pub(crate) quants: [int8x16_t; PANEL / 16],
    pub(crate) scales: [i32; 16],
    pub(crate) minima: [i16; 16],
    pub(crate) scale: f32,
    pub(crate) minimum: f32,
}

impl<F: SuperBits, D: Dot> Codec for Supers<F, D> {
    const LEN: usize = PANEL;
    const BYTES: usize = F::FORMAT.block_bytes();
    type Panel = Super1;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> Super1 {
        assert!(bytes.len() == Self::BYTES);
        let (scales, minima) = F::scales(bytes);
        let (scale, minimum) = F::factors(bytes);
        Super1 {
            quants: F::quants(bytes.as_ptr()),
            scales: scales.map(i32::from),
            minima: minima.map(i16::from),
            scale,
            minimum,
        }
    }

    #[inline(always)]
    unsafe fn dot(panel: &Super1, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]) {
        let (codes, sums, scale) = x.supers(row, index);
        assert!(codes.len() == PANEL && sums.len() == PANEL / 16);
        let product = |sums, i: usize| D::add(sums, panel.quants[i], vld1q_s8(codes.as_ptr().add(16 * i)));
        let mut total = vdupq_n_s32(0);
        for i in 0..PANEL / 32 {
            let first = product(D::zero(), 2 * i);
            if F::SIXTEENS {
                let second = product(D::zero(), 2 * i + 1);
                total = vmlaq_n_s32(total, D::quads(first), panel.scales[2 * i]);
                total = vmlaq_n_s32(total, D::quads(second), panel.scales[2 * i + 1]);
            } else {
                let both = product(first, 2 * i + 1);
                total = vmlaq_n_s32(total, D::quads(both), panel.scales[2 * i]);
            }
        }
        let lane = &mut lanes[index % LANES];
        *lane = (panel.scale * scale).mul_add(vaddvq_s32(total) as f32, *lane);
        if F::MINIMA {
            let mut total = vdupq_n_s32(0);
            for first in [0, 8] {
                let m = vld1q_s16(panel.minima.as_ptr().add(first));
                let x = vld1q_s16(sums.as_ptr().add(first));
                total = vmlal_high_s16(vmlal_s16(total, vget_low_s16(m), vget_low_s16(x)), m, x);
            }
            *lane = (-panel.minimum * scale).mul_add(vaddvq_s32(total) as f32, *lane);
        }
    }
}

/// Sixteens of a format.
pub(crate) struct Sixteens<F, D = Smull>(PhantomData<(F, D)>);

/// Sixteen sixteens, unpacked.
pub(crate) struct Sixteen16 {
    quants: [i8; PANEL],
    scales: [f32; 16],
}

impl<F: Sixteen, D: Dot> Codec for Sixteens<F, D> {
    const LEN: usize = PANEL;
    const BYTES: usize = F::BYTES;
    type Panel = Sixteen16;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> Sixteen16 {
        Sixteen16 { quants: F::codes(bytes), scales: F::scales(bytes) }
    }

    #[inline(always)]
    unsafe fn dot(panel: &Sixteen16, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]) {
        let (codes, _, scales) = x.runs(row, index);
        assert!(codes.len() == PANEL && scales.len() == LANES);
        let product = |i: usize| {
            let (w, x) = (panel.quants.as_ptr().add(16 * i), codes.as_ptr().add(16 * i));
            D::quads(D::add(D::zero(), vld1q_s8(w), vld1q_s8(x)))
        };
        for half in 0..2 {
            let x_scales = vld1q_f32(scales.as_ptr().add(4 * half));
            // The even ones go to the first four lanes, the odd ones to the others.
            let w_scales = vld2q_f32(panel.scales.as_ptr().add(8 * half));
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

impl<F: FloatBits> Codec for Floats<F> {
    const LEN: usize = FLOATS;
    const BYTES: usize = FLOATS * F::BYTES;
    /// Eight numbers each.
    type Panel = [[float32x4_t; 2]; FLOATS / LANES];

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> Self::Panel {
        assert!(bytes.len() == Self::BYTES);
        let mut panel = [[vdupq_n_f32(0.0); 2]; FLOATS / LANES];
        for (i, eight) in panel.iter_mut().enumerate() {
            *eight = F::widen_eight(bytes.as_ptr().add(i * LANES * F::BYTES));
        }
        panel
    }

    #[inline(always)]
    unsafe fn dot(w: &Self::Panel, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]) {
        let x = x.floats(row, index);
        assert!(x.len() == FLOATS);
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

/// The sum of each of four vectors.
#[inline(always)]
unsafe fn totals([a, b, c, d]: [int32x4_t; 4]) -> int32x4_t {
    vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d))
}
