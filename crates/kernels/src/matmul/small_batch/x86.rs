//! What the kernels for x86 share: values that the compiler must have in a register at a place in the
//! code, and fields of bytes.
#![allow(unsafe_code)]

use std::arch::{asm, x86_64::*};

/// The same vector, computed here and now, and what was read for it forgotten: left to itself, the
/// compiler puts off what needs the same number until it has no registers left.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn pin256(mut v: __m256i) -> __m256i {
    // SAFETY: no instruction.
    unsafe { asm!("/* {} */", inout(ymm_reg) v, options(nostack, preserves_flags)) };
    v
}

/// As [`pin256`].
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn pin512(mut v: __m512i) -> __m512i {
    // SAFETY: no instruction.
    unsafe { asm!("/* {} */", inout(zmm_reg) v, options(nostack, preserves_flags)) };
    v
}

/// The same pointer, in a register of its own: left to itself, the compiler makes offsets of one
/// pointer and the stride.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // Nothing is read there.
pub(super) fn pin_pointer(mut at: *const u8) -> *const u8 {
    // SAFETY: no instruction.
    unsafe { asm!("/* {} */", inout(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

/// Every byte shifted down, of which `mask` remains.
#[inline(always)]
pub(super) unsafe fn field<const SHIFT: u32>(v: __m512i, mask: u8) -> __m512i {
    // SAFETY: the caller has AVX-512.
    unsafe { _mm512_and_si512(_mm512_srli_epi16::<SHIFT>(v), _mm512_set1_epi8(mask as i8)) }
}

/// Of every byte what `mask` leaves.
#[inline(always)]
pub(super) unsafe fn masked(v: __m256i, mask: u8) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_and_si256(v, _mm256_set1_epi8(mask as i8)) }
}

#[inline(always)]
pub(super) unsafe fn load256(at: *const u8) -> __m256i {
    // SAFETY: the caller has AVX2, and 32 bytes there.
    unsafe { _mm256_loadu_si256(at.cast()) }
}
