//! Sixteen floats with NEON: four registers.
#![allow(clippy::undocumented_unsafe_blocks)]
// Upheld by the caller: see `Wide`.
// All intrinsics in unsafe functions here need the same SAFETY comment: "the CPU has NEON".
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::aarch64::*;

use super::{LANES, Wide};

/// `[f(0), f(1), f(2), f(3)]`, for the four registers.
macro_rules! each {
    ($i:ident => $f:expr) => {
        each!($i => $f; 0 1 2 3)
    };
    ($i:ident => $f:expr; $($value:literal)+) => {
        [$({
            let $i: usize = $value;
            $f
        }),+]
    };
}

/// The first register contains floats 0 to 3, and so on.
#[derive(Clone, Copy)]
pub(crate) struct Neon([float32x4_t; 4]);

/// The greater of each two; `b`'s if they are equal or one is NaN: unlike `fmax`.
#[inline(always)]
unsafe fn max(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    vbslq_f32(vcgtq_f32(a, b), a, b)
}

/// Four half-precision floats, widened exactly.
#[inline(always)]
unsafe fn widened(x: uint16x4_t) -> float32x4_t {
    vcvt_f32_f16(vreinterpret_f16_u16(x))
}

/// Lanes 0 + 2 and 1 + 3 of the sum of the registers: the state of sixteen lanes after three
/// halvings.
#[inline(always)]
unsafe fn two(x: Neon) -> float32x2_t {
    let [a, b, c, d] = x.0;
    let x = vaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d));
    vadd_f32(vget_low_f32(x), vget_high_f32(x))
}

/// Four rows of four floats, transposed.
#[inline(always)]
unsafe fn transposed([a, b, c, d]: [float32x4_t; 4]) -> [float32x4_t; 4] {
    let pair = |x| vreinterpretq_f64_f32(x);
    // Columns 0 and 2, and 1 and 3, of the first two rows, and of the last two.
    let (even, odd) = (pair(vtrn1q_f32(a, b)), pair(vtrn2q_f32(a, b)));
    let (later_even, later_odd) = (pair(vtrn1q_f32(c, d)), pair(vtrn2q_f32(c, d)));
    [
        vreinterpretq_f32_f64(vtrn1q_f64(even, later_even)),
        vreinterpretq_f32_f64(vtrn1q_f64(odd, later_odd)),
        vreinterpretq_f32_f64(vtrn2q_f64(even, later_even)),
        vreinterpretq_f32_f64(vtrn2q_f64(odd, later_odd)),
    ]
}

impl Wide for Neon {
    const BLOCK: usize = 2;

    operations! {
        fn splat(x: f32) -> Self = Neon([vdupq_n_f32(x); 4]);
        fn load(from: *const f32) -> Self = Neon(each!(i => vld1q_f32(from.add(4 * i))));
        fn load_f16(from: *const u16) -> Self = Neon(each!(i => widened(vld1_u16(from.add(4 * i)))));
        fn splat_f16(from: *const u16) -> Self = Neon([widened(vdup_n_u16(from.read_unaligned())); 4]);
        fn add(self, b: Self) -> Self = Neon(each!(i => vaddq_f32(self.0[i], b.0[i])));
        fn mul(self, b: Self) -> Self = Neon(each!(i => vmulq_f32(self.0[i], b.0[i])));
        fn mul_add(self, b: Self, c: Self) -> Self = Neon(each!(i => vfmaq_f32(c.0[i], self.0[i], b.0[i])));
        fn max(self, b: Self) -> Self = Neon(each!(i => max(self.0[i], b.0[i])));
        fn sum(self) -> f32 = vpadds_f32(two(self));
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self {
        let x = vld1q_s8(from);
        let (low, high) = (vmovl_s8(vget_low_s8(x)), vmovl_high_s8(x));
        Neon([
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
            vcvtq_f32_s32(vmovl_high_s16(low)),
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
            vcvtq_f32_s32(vmovl_high_s16(high)),
        ])
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        for i in 0..4 {
            vst1q_f32(to.add(4 * i), self.0[i]);
        }
    }

    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut i8) {
        // The lower words of two registers, then their lower bytes.
        let words =
            |a, b| vreinterpretq_s8_s16(vuzp1q_s16(vreinterpretq_s16_f32(a), vreinterpretq_s16_f32(b)));
        let [a, b, c, d] = self.0;
        vst1q_s8(to, vuzp1q_s8(words(a, b), words(c, d)));
    }

    #[inline(always)]
    unsafe fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        let mut out = rows;
        for i in 0..4 {
            for j in 0..4 {
                let tile = transposed(each!(r => rows[4 * i + r].0[j]));
                for (c, column) in tile.into_iter().enumerate() {
                    out[4 * j + c].0[i] = column;
                }
            }
        }
        out
    }

    #[inline(always)]
    unsafe fn max_lane(self) -> f32 {
        let [a, b, c, d] = self.0;
        let x = max(max(d, b), max(c, a));
        let x = max(vextq_f32::<2>(x, x), x);
        vgetq_lane_f32::<0>(max(vdupq_laneq_f32::<1>(x), x))
    }

    /// Four at a time share the last steps.
    #[inline(always)]
    unsafe fn sums<const N: usize>(x: [Self; N]) -> [f32; N] {
        let mut sums = [0.0; N];
        if N != 4 {
            for i in 0..N {
                sums[i] = x[i].sum();
            }
            return sums;
        }
        let low = vcombine_f32(two(x[0]), two(x[1]));
        let high = vcombine_f32(two(x[2]), two(x[3]));
        vst1q_f32(sums.as_mut_ptr(), vpaddq_f32(low, high));
        sums
    }
}
