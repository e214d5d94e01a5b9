//! Unpacks each format's quants and scales into vectors.
//! The scalar versions document the layouts, and unpack the formats that are missing here.

use std::arch::aarch64::*;

use crate::format::SUPER_BLOCK;
use crate::lanes::LANES;
use crate::quant::codebook::{E2M1, IQ4_NL, IQ4_XS, MXFP4, UNEVEN};
use crate::quant::float::{BF16, F16, F32};
use crate::quant::iq::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
use crate::quant::k::{self, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K};
use crate::quant::legacy::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use crate::quant::ternary::{TQ1_0, TQ2_0};
use crate::quant::{Block, Float, SuperBlock};

/// [`Block`] with vectors.
/// Pointers are to whole blocks.
pub(crate) trait SimdBlock: Block {
    /// The quants of a block.
    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [int8x16_t; 2] {
        let quants = Self::quants(std::slice::from_raw_parts(block, Self::FORMAT.block_bytes()));
        [vld1q_s8(quants.as_ptr()), vld1q_s8(quants.as_ptr().add(16))]
    }

    /// The scales of eight blocks: half-precision numbers at their start, unless otherwise defined.
    #[inline(always)]
    unsafe fn scales(first: *const u8) -> [f32; LANES] {
        halves(first, Self::FORMAT.block_bytes())
    }

    /// The offsets of eight blocks, if the format has any.
    #[inline(always)]
    unsafe fn offsets(first: *const u8) -> [f32; LANES] {
        halves(first.add(2), Self::FORMAT.block_bytes())
    }
}

/// [`SuperBlock`] with vectors.
/// Pointers are to whole blocks.
pub(crate) trait SimdSuperBlock: SuperBlock {
    /// Whether scales are shared by sixteen quants rather than 32.
    const SUB_BLOCKS_OF_16: bool = true;

    /// The quants of a block.
    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [int8x16_t; SUPER_BLOCK / 16] {
        let quants = Self::quants(std::slice::from_raw_parts(block, Self::FORMAT.block_bytes()));
        sixteens(|i| vld1q_s8(quants.as_ptr().add(16 * i)))
    }

    /// The super-block scale of scales, and that of minima.
    #[inline(always)]
    unsafe fn factors(block: &[u8]) -> (f32, f32) {
        let minimum = if Self::MINIMA { half(block, Self::SCALE_AT + 2) } else { 0.0 };
        (half(block, Self::SCALE_AT) * Self::SCALE_FACTOR, minimum)
    }

    /// The integer scales and minima of each sixteen quants.
    #[inline(always)]
    unsafe fn integers(block: &[u8]) -> ([i32; 16], [i16; 16]) {
        let (scales, minima) = Self::scales(block);
        (scales.map(i32::from), minima.map(i16::from))
    }
}

/// [`Float`] with vectors.
pub(crate) trait SimdFloat: Float {
    /// Eight numbers.
    unsafe fn widen_eight(bytes: *const u8) -> [float32x4_t; 2];
}

/// The half-precision numbers at the beginning of eight blocks of this many bytes.
#[inline(always)]
unsafe fn halves(first: *const u8, bytes: usize) -> [f32; LANES] {
    let mut halves = [0u16; LANES];
    for (i, half) in halves.iter_mut().enumerate() {
        *half = first.add(i * bytes).cast::<u16>().read_unaligned();
    }
    let [low, high] = F16::widen_eight(halves.as_ptr().cast());
    let mut numbers = [0.0; LANES];
    vst1q_f32(numbers.as_mut_ptr(), low);
    vst1q_f32(numbers.as_mut_ptr().add(4), high);
    numbers
}

/// The half-precision number at `at`.
#[inline(always)]
unsafe fn half(block: &[u8], at: usize) -> f32 {
    let bits = u16::from_le_bytes([block[at], block[at + 1]]);
    vgetq_lane_f32::<0>(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))))
}

#[inline(always)]
unsafe fn sixteens(of: impl Fn(usize) -> int8x16_t) -> [int8x16_t; SUPER_BLOCK / 16] {
    let mut quants = [vdupq_n_s8(0); SUPER_BLOCK / 16];
    for (i, quants) in quants.iter_mut().enumerate() {
        *quants = of(i);
    }
    quants
}

/// The lower nibbles of sixteen bytes, and the upper ones.
#[inline(always)]
unsafe fn nibbles(at: *const u8) -> [int8x16_t; 2] {
    let bytes = vld1q_u8(at);
    let low = vandq_u8(bytes, vdupq_n_u8(15));
    [vreinterpretq_s8_u8(low), vreinterpretq_s8_u8(vshrq_n_u8::<4>(bytes))]
}

/// Looks up nibbles in a table.
#[inline(always)]
unsafe fn look_up(table: &[i8; 16], at: *const u8) -> [int8x16_t; 2] {
    let table = vld1q_s8(table.as_ptr());
    let [low, high] = nibbles(at);
    [vqtbl1q_s8(table, vreinterpretq_u8_s8(low)), vqtbl1q_s8(table, vreinterpretq_u8_s8(high))]
}

/// Each byte shifted left (right if negative) and masked with `mask`.
#[inline(always)]
unsafe fn field(bytes: uint8x16_t, shift: i8, mask: u8) -> uint8x16_t {
    vandq_u8(vshlq_u8(bytes, vdupq_n_s8(shift)), vdupq_n_u8(mask))
}

impl SimdBlock for Q4_0 {
    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [int8x16_t; 2] {
        let [low, high] = nibbles(block.add(2));
        let eight = vdupq_n_s8(8);
        [vsubq_s8(low, eight), vsubq_s8(high, eight)]
    }
}

impl SimdBlock for Q4_1 {
    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [int8x16_t; 2] {
        nibbles(block.add(4))
    }
}

impl SimdBlock for Q5_0 {}

impl SimdBlock for Q5_1 {}

impl SimdBlock for Q8_0 {
    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [int8x16_t; 2] {
        [vld1q_s8(block.add(2).cast()), vld1q_s8(block.add(18).cast())]
    }
}

impl SimdBlock for IQ4_NL {
    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [int8x16_t; 2] {
        look_up(&UNEVEN, block.add(2))
    }
}

impl SimdBlock for MXFP4 {
    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [int8x16_t; 2] {
        look_up(&E2M1, block.add(1))
    }

    #[inline(always)]
    unsafe fn scales(first: *const u8) -> [f32; LANES] {
        let mut scales = [0.0; LANES];
        for (i, scale) in scales.iter_mut().enumerate() {
            *scale = Self::scale(&[*first.add(i * Self::FORMAT.block_bytes())]);
        }
        scales
    }
}

/// The integer scales and minima of Q4_K and Q5_K: eight of each, for two sixteens each.
#[inline(always)]
unsafe fn twice(block: &[u8]) -> ([i32; 16], [i16; 16]) {
    let (mut scales, mut minima) = ([0; 16], [0; 16]);
    let [of_scales, of_minima] = k::scales_and_minima(&block[4..16]).map(|bytes| {
        let words = vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(u64::from_le_bytes(bytes))));
        [vzip1q_s16(words, words), vzip2q_s16(words, words)]
    });
    for half in 0..2 {
        vst1q_s32(scales.as_mut_ptr().add(8 * half), vmovl_s16(vget_low_s16(of_scales[half])));
        vst1q_s32(scales.as_mut_ptr().add(8 * half + 4), vmovl_high_s16(of_scales[half]));
        vst1q_s16(minima.as_mut_ptr().add(8 * half), of_minima[half]);
    }
    (scales, minima)
}

impl SimdSuperBlock for Q4_K {
    const SUB_BLOCKS_OF_16: bool = false;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [int8x16_t; SUPER_BLOCK / 16] {
        // In each 32 bytes, the lower nibbles of both halves, then the upper ones.
        sixteens(|i| nibbles(block.add(16 + i / 4 * 32 + i % 2 * 16))[i / 2 % 2])
    }

    #[inline(always)]
    unsafe fn integers(block: &[u8]) -> ([i32; 16], [i16; 16]) {
        twice(block)
    }
}

impl SimdSuperBlock for Q5_K {
    const SUB_BLOCKS_OF_16: bool = false;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [int8x16_t; SUPER_BLOCK / 16] {
        sixteens(|i| {
            let low = nibbles(block.add(48 + i / 4 * 32 + i % 2 * 16))[i / 2 % 2];
            let fifth = field(vld1q_u8(block.add(16 + i % 2 * 16)), 4 - (i / 2) as i8, 16);
            vorrq_s8(low, vreinterpretq_s8_u8(fifth))
        })
    }

    #[inline(always)]
    unsafe fn integers(block: &[u8]) -> ([i32; 16], [i16; 16]) {
        twice(block)
    }
}

impl SimdSuperBlock for Q6_K {
    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [int8x16_t; SUPER_BLOCK / 16] {
        sixteens(|i| {
            let low = nibbles(block.add(i / 8 * 64 + i % 4 * 16))[i / 4 % 2];
            let high = vld1q_u8(block.add(128 + i / 8 * 32 + i % 2 * 16));
            let high = field(high, 4 - (i / 2 % 4 * 2) as i8, 0x30);
            vsubq_s8(vorrq_s8(low, vreinterpretq_s8_u8(high)), vdupq_n_s8(32))
        })
    }
}

impl SimdSuperBlock for IQ4_XS {
    const SUB_BLOCKS_OF_16: bool = false;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [int8x16_t; SUPER_BLOCK / 16] {
        sixteens(|i| look_up(&UNEVEN, block.add(8 + i / 2 * 16))[i % 2])
    }
}

/// Formats that are unpacked by their scalar version.
macro_rules! by_the_twin {
    ($($format:ident)+) => {
        $(impl SimdSuperBlock for $format {
            #[inline(always)]
            unsafe fn factors(block: &[u8]) -> (f32, f32) {
                Self::scale(block)
            }
        })+
    };
}

by_the_twin! { Q2_K Q3_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S TQ1_0 TQ2_0 }

impl SimdFloat for F32 {
    #[inline(always)]
    unsafe fn widen_eight(bytes: *const u8) -> [float32x4_t; 2] {
        [vld1q_f32(bytes.cast()), vld1q_f32(bytes.add(16).cast())]
    }
}

impl SimdFloat for F16 {
    #[inline(always)]
    unsafe fn widen_eight(bytes: *const u8) -> [float32x4_t; 2] {
        let x = vreinterpretq_f16_u16(vld1q_u16(bytes.cast()));
        [vcvt_f32_f16(vget_low_f16(x)), vcvt_high_f32_f16(x)]
    }
}

impl SimdFloat for BF16 {
    #[inline(always)]
    unsafe fn widen_eight(bytes: *const u8) -> [float32x4_t; 2] {
        let x = vld1q_u16(bytes.cast());
        [
            vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(x))),
            vreinterpretq_f32_u32(vshll_high_n_u16::<16>(x)),
        ]
    }
}
