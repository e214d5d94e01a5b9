//! Registers of 32-bit lanes: a lane is a row of activations (GEMM) or of weights
//! (row-interleaved).
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::asm;
use std::arch::x86_64::*;

use crate::wide::operations;

/// The operations that products consist of.
///
/// # Safety
/// The functions may only be called where the instruction set is available, and with pointers to
/// whole registers.
pub(crate) trait Vector {
    /// Lanes per register.
    const WIDTH: usize;
    /// Whether sums of products start with the zero point correction: partial sums and registers
    /// have room for it.
    const STARTS_CORRECTED: bool;
    /// Lanes of integers, or of four bytes or two words each.
    type I: Copy;
    /// Lanes of floats.
    type F: Copy;

    unsafe fn zero() -> Self::I;
    unsafe fn load(at: *const i32) -> Self::I;
    unsafe fn spread(word: i32) -> Self::I;
    unsafe fn add(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn sub(a: Self::I, b: Self::I) -> Self::I;
    /// `sum` plus the two products of words in each lane.
    unsafe fn add_pairs(sum: Self::I, a: Self::I, b: Self::I) -> Self::I;

    /// `partial` plus the four products in each lane, of unsigned quants (signed ones if
    /// SIGNED) and activations.
    /// AVX2's vpmaddubsw adds two products and saturates at words; vpdpbusd adds four to 32 bits.
    unsafe fn add_quads<const SIGNED: bool>(partial: Self::I, w: Self::I, x: Self::I) -> Self::I;
    /// The stored form of an integer scale for [`Vector::scaled`].
    #[inline(always)]
    fn scale_word(scale: i16) -> i32 {
        i32::from(scale)
    }
    /// The sums in `partial`, multiplied by a scale.
    unsafe fn scaled(partial: Self::I, scale: Self::I) -> Self::I;
    /// The sums in `partial`.
    unsafe fn whole(partial: Self::I) -> Self::I;

    unsafe fn float(x: Self::I) -> Self::F;
    unsafe fn zero_floats() -> Self::F;
    unsafe fn load_floats(at: *const f32) -> Self::F;
    /// Loads a register, or zeros.
    #[inline(always)]
    unsafe fn load_unless(fresh: bool, at: *const f32) -> Self::F {
        if fresh { Self::zero_floats() } else { Self::load_floats(at) }
    }
    unsafe fn store_floats(at: *mut f32, x: Self::F);
    unsafe fn spread_float(x: f32) -> Self::F;
    unsafe fn add_floats(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// `a b + sum`
    unsafe fn mul_add(a: Self::F, b: Self::F, sum: Self::F) -> Self::F;
}

/// The common operations of AVX2 and AVX-VNNI.
macro_rules! common_256 {
    () => {
        const WIDTH: usize = 8;
        type I = __m256i;
        type F = __m256;

        operations! {
            fn zero() -> __m256i = _mm256_setzero_si256();
            fn load(at: *const i32) -> __m256i = _mm256_loadu_si256(at.cast());
            fn spread(word: i32) -> __m256i = _mm256_set1_epi32(word);
            fn add(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
            fn sub(a: __m256i, b: __m256i) -> __m256i = _mm256_sub_epi32(a, b);
            fn float(x: __m256i) -> __m256 = _mm256_cvtepi32_ps(x);
            fn zero_floats() -> __m256 = _mm256_setzero_ps();
            fn load_floats(at: *const f32) -> __m256 = _mm256_loadu_ps(at);
            fn store_floats(at: *mut f32, x: __m256) = _mm256_storeu_ps(at, x);
            fn spread_float(x: f32) -> __m256 = _mm256_set1_ps(x);
            fn add_floats(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
            fn mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
            fn mul_add(a: __m256, b: __m256, sum: __m256) -> __m256 = _mm256_fmadd_ps(a, b, sum);
        }
    };
}

/// AVX2: partial sums are words, with as many products as words can hold.
pub(crate) struct Avx2;

impl Vector for Avx2 {
    const STARTS_CORRECTED: bool = false;
    common_256!();

    #[inline(always)]
    unsafe fn add_pairs(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
    }

    #[inline(always)]
    unsafe fn add_quads<const SIGNED: bool>(partial: __m256i, w: __m256i, x: __m256i) -> __m256i {
        let products = if SIGNED {
            // |w| * (x with the sign of w).
            _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
        } else {
            _mm256_maddubs_epi16(w, x)
        };
        _mm256_add_epi16(partial, products)
    }

    #[inline(always)]
    fn scale_word(scale: i16) -> i32 {
        i32::from(scale as u16) | i32::from(scale) << 16
    }

    operations! {
        fn scaled(partial: __m256i, scale: __m256i) -> __m256i = _mm256_madd_epi16(partial, scale);
        fn whole(partial: __m256i) -> __m256i = _mm256_madd_epi16(partial, _mm256_set1_epi16(1));
    }
}

/// One instruction.
/// The intrinsic compiles to two, which shortens a chain of sums; but here many chains are
/// interleaved.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn add_pairs(mut sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
    asm!("vpdpwssd {}, {}, {}", inout(zmm_reg) sum, in(zmm_reg) a, in(zmm_reg) b,
        options(pure, nomem, nostack, preserves_flags));
    sum
}

/// AVX-VNNI: sums of bytes' products have 32 bits.
pub(crate) struct AvxVnni;

impl Vector for AvxVnni {
    const STARTS_CORRECTED: bool = false;
    common_256!();

    #[inline(always)]
    unsafe fn add_pairs(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        _mm256_dpwssd_avx_epi32(sum, a, b)
    }

    #[inline(always)]
    unsafe fn add_quads<const SIGNED: bool>(partial: __m256i, w: __m256i, x: __m256i) -> __m256i {
        const { assert!(!SIGNED) };
        _mm256_dpbusd_avx_epi32(partial, w, x)
    }

    operations! {
        fn scaled(partial: __m256i, scale: __m256i) -> __m256i = _mm256_mullo_epi32(partial, scale);
        fn whole(partial: __m256i) -> __m256i = partial;
    }
}

/// AVX-512 with VNNI.
pub(crate) struct Avx512;

impl Vector for Avx512 {
    const WIDTH: usize = 16;
    const STARTS_CORRECTED: bool = true;
    type I = __m512i;
    type F = __m512;

    operations! {
        fn zero() -> __m512i = _mm512_setzero_si512();
        fn load(at: *const i32) -> __m512i = _mm512_loadu_si512(at.cast());
        fn spread(word: i32) -> __m512i = _mm512_set1_epi32(word);
        fn add(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        fn sub(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32(a, b);
        fn add_pairs(sum: __m512i, a: __m512i, b: __m512i) -> __m512i = add_pairs(sum, a, b);
    }

    #[inline(always)]
    unsafe fn add_quads<const SIGNED: bool>(partial: __m512i, w: __m512i, x: __m512i) -> __m512i {
        const { assert!(!SIGNED) };
        _mm512_dpbusd_epi32(partial, w, x)
    }

    operations! {
        fn scaled(partial: __m512i, scale: __m512i) -> __m512i = _mm512_mullo_epi32(partial, scale);
        fn whole(partial: __m512i) -> __m512i = partial;
        fn float(x: __m512i) -> __m512 = _mm512_cvtepi32_ps(x);
        fn zero_floats() -> __m512 = _mm512_setzero_ps();
        fn load_floats(at: *const f32) -> __m512 = _mm512_loadu_ps(at);
        fn store_floats(at: *mut f32, x: __m512) = _mm512_storeu_ps(at, x);
        fn spread_float(x: f32) -> __m512 = _mm512_set1_ps(x);
        fn add_floats(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        fn mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        fn mul_add(a: __m512, b: __m512, sum: __m512) -> __m512 = _mm512_fmadd_ps(a, b, sum);
    }
}
