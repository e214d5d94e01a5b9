//! GEMV and small batches: weights are used as they lie, by every row of activations at hand.
//!
//! | kind | file | rows of weights at once | for |
//! |---|---|---|---|
//! | dot | `dot.rs` | 1 to 4, one after the other | any format |
//! | row quads | `row_quads.rs` | 4, whose scales, sums and floats share registers | GEMV |
//! | row-interleaved | `row_interleaved.rs` | a lane each: 8 or 16, transposed | several rows of activations |
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod row_interleaved;
#[cfg(target_arch = "x86_64")]
mod row_quads;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;

use super::dot;
use super::plan::Kernel;
use crate::Format;
use crate::activations::Activations;
#[cfg(target_arch = "x86_64")]
use crate::activations::Layout;
use crate::quant::with_codec;
use crate::threads::Disjoint;

/// `[f(0), f(1), f(2), f(3)]`.
/// Not a function, because a closure that isn't inlined loses the features.
#[cfg(target_arch = "x86_64")]
macro_rules! each_of_four {
    ($i:ident => $f:expr) => {
        crate::quant::avx2::each!($i => $f; 0 1 2 3)
    };
}
#[cfg(target_arch = "x86_64")]
use each_of_four;

/// Calls what takes T rows of activations from `first` on for parts of all of them, as even as
/// there can be, of which none has more than `most`.
/// Not a function, as `each_of_four`.
#[cfg(target_arch = "x86_64")]
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
#[cfg(target_arch = "x86_64")]
use in_parts;

/// What a task works with.
#[derive(Clone, Copy)]
pub(super) struct SmallBatch<'a> {
    pub w: &'a [u8],
    pub row_bytes: usize,
    /// Rows of weights in `w`.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // Kernels elsewhere go row by row.
    pub weight_rows: usize,
    pub x: &'a Activations,
    /// The rows of activations that the product has; `None` = all.
    pub row_ids: Option<&'a [u32]>,
    /// Rows of activations of the product that come before the task's.
    pub before: usize,
    /// The task's.
    pub rows: usize,
    pub y: &'a Disjoint<'a, f32>,
    /// Where in a row of `y` the first number goes.
    pub column: usize,
    /// The numbers from a row of `y` to the next.
    pub stride: usize,
}

impl SmallBatch<'_> {
    /// Which row of activations the task's row `i` is.
    #[inline(always)]
    pub fn row(&self, i: usize) -> usize {
        let at = self.before + i;
        self.row_ids.map_or(at, |rows| rows[at] as usize)
    }

    /// Where in `y` the product of the task's row `i` of activations and a row of weights goes.
    #[inline(always)]
    pub fn at(&self, i: usize, weight_row: usize) -> usize {
        (self.before + i) * self.stride + self.column + weight_row
    }
}

/// How a kernel of small batches wants activations.
#[cfg(target_arch = "x86_64")]
pub(super) fn layout(kernel: Kernel, format: Format) -> Layout {
    match kernel {
        Kernel::QuadsAvx2 => row_quads::avx2::layout(format),
        Kernel::QuadsAvx512 => row_quads::avx512::layout(format),
        Kernel::InterleavedAvx2 => row_interleaved::avx2::layout(format),
        Kernel::InterleavedAvx512 => row_interleaved::avx512::layout(format),
        _ => Layout::PLAIN,
    }
}

/// The products of some rows of weights.
///
/// # Safety
/// The CPU has the kernel's instruction set, and no other task has these rows of weights, which are
/// whole groups of the kernel's, but for the last ones of all.
pub(super) unsafe fn multiply(kernel: Kernel, p: SmallBatch, format: Format, rows: Range<usize>) {
    // SAFETY: the caller's.
    unsafe {
        match kernel {
            Kernel::DotScalar => with_codec!(format, scalar, C => dot::multiply::<C>(p, rows)),
            #[cfg(target_arch = "x86_64")]
            Kernel::DotAvx2 => with_codec!(format, avx2, C => dot::multiply_avx2::<C>(p, rows)),
            #[cfg(target_arch = "x86_64")]
            Kernel::QuadsAvx2 => row_quads::avx2::multiply(p, format, rows),
            #[cfg(target_arch = "x86_64")]
            Kernel::QuadsAvx512 => row_quads::avx512::multiply(p, format, rows),
            #[cfg(target_arch = "x86_64")]
            Kernel::InterleavedAvx2 => row_interleaved::avx2::multiply(p, format, rows),
            #[cfg(target_arch = "x86_64")]
            Kernel::InterleavedAvx512 => row_interleaved::avx512::multiply(p, format, rows),
            #[cfg(target_arch = "aarch64")]
            Kernel::DotNeon => with_codec!(format, neon, C => dot::multiply::<C>(p, rows)),
            #[cfg(target_arch = "aarch64")]
            Kernel::DotDotProd => with_codec!(format, dotprod, C => dot::multiply_dotprod::<C>(p, rows)),
            other => unreachable!("{} is no kernel of small batches", other.name()),
        }
    }
}

/// Where in a row of activations a kernel is: at the quants, sums and scales that a block of
/// weights is multiplied with, or eight blocks.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct RowCursor {
    quants: *const i8,
    /// See [`Sums`](crate::activations::Sums).
    sums: *const i16,
    scales: *const f32,
}

#[cfg(target_arch = "x86_64")]
impl RowCursor {
    /// The beginnings of `T` rows from the task's row `first` on, of which each has `blocks` blocks
    /// of so many quants, sums and scales.
    ///
    /// # Panics
    /// If rows are shorter.
    #[inline(always)]
    fn rows<const T: usize>(
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

    /// Of each row the block number `index`, of so many quants, sums and scales.
    /// A loop, because `map` would be a call for each block.
    #[inline(always)]
    fn at<const T: usize>(
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

    /// The only scale.
    ///
    /// # Safety
    /// It is there.
    #[inline(always)]
    unsafe fn scale(&self) -> f32 {
        // SAFETY: the caller's.
        unsafe { *self.scales }
    }
}
