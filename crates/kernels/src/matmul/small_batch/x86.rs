//! Shared code of the x86 kernels: macros, positions in rows of activations, values that the
//! compiler must keep in a register, and bit fields of bytes.
#![allow(unsafe_code)]

use std::arch::{asm, x86_64::*};

use super::SmallBatch;
use crate::activations::Layout;

/// `[f(0), f(1), f(2), f(3)]`.
/// Not a function, because a closure that isn't inlined loses the features.
macro_rules! each_of_four {
    ($i:ident => $f:expr) => {
        crate::quant::avx2::each!($i => $f; 0 1 2 3)
    };
}
pub(super) use each_of_four;

/// Calls a function for T rows of activations from `first` on, for parts of all rows.
/// Parts are as even as possible, with at most `most` rows.
/// Not a function, for the same reason as `each_of_four`.
macro_rules! in_parts {
    ($rows:expr, $first:ident, $most:expr, $count:ident => $call:expr; $($less:literal)+) => {
        let parts = $rows.div_ceil($most);
        for part in 0..parts {
            let ($first, end) = ($rows * part / parts, $rows * (part + 1) / parts);
            match end - $first {
                $($less => {
                    const $count: usize = $less;
                    $call
                })+
                _ => {
                    const $count: usize = $most;
                    $call
                }
            }
        }
    };
}
pub(super) use in_parts;

/// A kernel's position in a row of activations: the quants, sums and scales of a block.
#[derive(Clone, Copy)]
pub(super) struct RowCursor {
    pub quants: *const i8,
    /// See [`Sums`](crate::activations::Sums).
    pub sums: *const i16,
    scales: *const f32,
}

impl RowCursor {
    /// The beginnings of `T` rows from the task's row `first` on, each with `blocks` blocks of this
    /// many quants, sums and scales.
    ///
    /// # Panics
    /// If rows are too short.
    #[inline(always)]
    pub fn rows<const T: usize>(
        p: &SmallBatch,
        layout: Layout,
        first: usize,
        blocks: usize,
        (quants, sums, scales): (usize, usize, usize),
    ) -> [RowCursor; T] {
        std::array::from_fn(|i| {
            let x = p.x.row(layout, p.row(first + i));
            assert!(
                x.0.len() >= quants * blocks && x.1.len() >= sums * blocks && x.2.len() >= scales * blocks
            );
            RowCursor { quants: x.0.as_ptr(), sums: x.1.as_ptr(), scales: x.2.as_ptr() }
        })
    }

    /// For each row the block number `index`, with this many quants, sums and scales.
    /// A loop, because `map` would compile to a call for each block.
    #[inline(always)]
    pub fn at<const T: usize>(
        mut rows: [RowCursor; T],
        index: usize,
        (quants, sums, scales): (usize, usize, usize),
    ) -> [RowCursor; T] {
        for row in &mut rows {
            *row = RowCursor {
                quants: row.quants.wrapping_add(quants * index),
                sums: row.sums.wrapping_add(sums * index),
                scales: row.scales.wrapping_add(scales * index),
            };
        }
        rows
    }

    /// The block's only scale.
    ///
    /// # Safety
    /// It exists.
    #[inline(always)]
    pub unsafe fn scale(&self) -> f32 {
        // SAFETY: upheld by the caller.
        unsafe { *self.scales }
    }
}

/// Forces the vector to be computed here, and hides how it was computed.
/// Otherwise the compiler postpones uses of the same number until it runs out of registers.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn pin256(mut v: __m256i) -> __m256i {
    // SAFETY: contains no instruction.
    unsafe { asm!("/* {} */", inout(ymm_reg) v, options(nostack, preserves_flags)) };
    v
}

/// As [`pin256`].
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn pin512(mut v: __m512i) -> __m512i {
    // SAFETY: contains no instruction.
    unsafe { asm!("/* {} */", inout(zmm_reg) v, options(nostack, preserves_flags)) };
    v
}

/// Forces the pointer into its own register: otherwise the compiler computes offsets from a single
/// pointer and the stride.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // Nothing is read there.
pub(super) fn pin_pointer(mut at: *const u8) -> *const u8 {
    // SAFETY: contains no instruction.
    unsafe { asm!("/* {} */", inout(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

/// Every byte shifted right and masked with `mask`.
#[inline(always)]
pub(super) unsafe fn field<const SHIFT: u32>(v: __m512i, mask: u8) -> __m512i {
    // SAFETY: the caller has AVX-512.
    unsafe { _mm512_and_si512(_mm512_srli_epi16::<SHIFT>(v), _mm512_set1_epi8(mask as i8)) }
}

/// Every byte masked with `mask`.
#[inline(always)]
pub(super) unsafe fn masked(v: __m256i, mask: u8) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_and_si256(v, _mm256_set1_epi8(mask as i8)) }
}

#[inline(always)]
pub(super) unsafe fn load256(at: *const u8) -> __m256i {
    // SAFETY: the caller has AVX2, and 32 readable bytes.
    unsafe { _mm256_loadu_si256(at.cast()) }
}
