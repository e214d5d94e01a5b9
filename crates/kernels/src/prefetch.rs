//! Prefetch hints.
#![allow(unsafe_code)]

/// The size of a cache line in bytes.
const LINE: usize = 64;

/// Prefetches a cache line; the address needn't be valid.
#[inline(always)]
pub(crate) fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that reads nothing: an invalid address is ignored.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetches the lines of this many bytes.
/// The CPU prefetches long streams itself, but not streams of a few rows each.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(LINE) {
        prefetch_line(at.wrapping_add(line));
    }
}
