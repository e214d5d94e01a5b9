//! Hints that memory is read soon.
#![allow(unsafe_code)]

/// The bytes of a cache line.
const LINE: usize = 64;

/// Prefetches a cache line; nothing needs to be there.
#[inline(always)]
pub(crate) fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads nothing: an address that isn't ours is ignored.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetches the lines of so many bytes.
/// The CPU foresees long streams, not those of a few rows each.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(LINE) {
        prefetch_line(at.wrapping_add(line));
    }
}
