//! Sums of byte products, with and without FEAT_DotProd.

use std::arch::aarch64::*;
use std::arch::asm;

/// Adds sixteen byte products to four 32-bit sums: products 0 to 3 to the first, and so on.
/// ```text
/// a     | a0 a1 a2 a3 | a4 a5 a6 a7 | a8 .. a11 | a12 .. a15 |
/// b     | b0 b1 b2 b3 | b4 b5 b6 b7 | b8 .. b11 | b12 .. b15 |
/// quads | a0 b0 + a1 b1 + a2 b2 + a3 b3 | a4 b4 + .. | .. | .. |
/// ```
/// All sums are exact: no product with an activation (within -127..=127) overflows a word.
///
/// # Safety
/// For all functions: the CPU has the instructions.
pub(crate) trait Dot {
    /// Sums before they are combined to quads.
    type Sums: Copy;

    unsafe fn zero() -> Self::Sums;

    /// Adds the products of sixteen bytes.
    unsafe fn add(sums: Self::Sums, a: int8x16_t, b: int8x16_t) -> Self::Sums;

    /// Adds the products of four times four bytes with quad QUAD of `b`.
    unsafe fn add_quad<const QUAD: i32>(sums: Self::Sums, a: int8x16_t, b: int8x16_t) -> Self::Sums;

    /// The sums of quads.
    unsafe fn quads(sums: Self::Sums) -> int32x4_t;
}

/// `sdot` from FEAT_DotProd.
/// Written as assembly, because its intrinsics aren't stable.
pub(crate) struct Sdot;

#[inline]
#[target_feature(enable = "dotprod")]
unsafe fn sdot(mut sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    asm!("sdot {:v}.4s, {:v}.16b, {:v}.16b", inout(vreg) sums, in(vreg) a, in(vreg) b,
        options(pure, nomem, nostack, preserves_flags));
    sums
}

#[inline]
#[target_feature(enable = "dotprod")]
unsafe fn sdot_quad<const QUAD: i32>(mut sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    asm!("sdot {:v}.4s, {:v}.16b, {:v}.4b[{}]", inout(vreg) sums, in(vreg) a, in(vreg) b, const QUAD,
        options(pure, nomem, nostack, preserves_flags));
    sums
}

impl Dot for Sdot {
    type Sums = int32x4_t;

    #[inline(always)]
    unsafe fn zero() -> int32x4_t {
        vdupq_n_s32(0)
    }

    #[inline(always)]
    unsafe fn add(sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        sdot(sums, a, b)
    }

    #[inline(always)]
    unsafe fn add_quad<const QUAD: i32>(sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        sdot_quad::<QUAD>(sums, a, b)
    }

    #[inline(always)]
    unsafe fn quads(sums: int32x4_t) -> int32x4_t {
        sums
    }
}

/// `smull` and `sadalp`, in every NEON: products as words, added in pairs.
pub(crate) struct Smull;

impl Dot for Smull {
    /// The sums of pairs, for the lower half and for the upper one.
    type Sums = [int32x4_t; 2];

    #[inline(always)]
    unsafe fn zero() -> Self::Sums {
        [vdupq_n_s32(0); 2]
    }

    #[inline(always)]
    unsafe fn add([low, high]: Self::Sums, a: int8x16_t, b: int8x16_t) -> Self::Sums {
        [vpadalq_s16(low, vmull_s8(vget_low_s8(a), vget_low_s8(b))), vpadalq_s16(high, vmull_high_s8(a, b))]
    }

    #[inline(always)]
    unsafe fn add_quad<const QUAD: i32>(sums: Self::Sums, a: int8x16_t, b: int8x16_t) -> Self::Sums {
        let quad = vdupq_laneq_s32::<QUAD>(vreinterpretq_s32_s8(b));
        Self::add(sums, a, vreinterpretq_s8_s32(quad))
    }

    #[inline(always)]
    unsafe fn quads([low, high]: Self::Sums) -> int32x4_t {
        vpaddq_s32(low, high)
    }
}
