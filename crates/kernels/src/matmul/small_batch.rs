//! GEMV and small batches: weights are used in place, for every row of activations.
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
use crate::thread_pool::Disjoint;

/// The operands of a task.
#[derive(Clone, Copy)]
pub(super) struct SmallBatch<'a> {
    pub w: &'a [u8],
    pub row_bytes: usize,
    /// Number of rows of weights in `w`.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // Kernels elsewhere go row by row.
    pub weight_rows: usize,
    pub x: &'a Activations,
    /// The rows of activations in the product; `None` = all.
    pub row_ids: Option<&'a [u32]>,
    /// Number of the product's rows of activations before this task's.
    pub before: usize,
    /// Number of this task's rows.
    pub rows: usize,
    pub y: &'a Disjoint<'a, f32>,
    /// The column of `y` for the first result.
    pub column: usize,
    /// The distance between rows of `y`, in numbers.
    pub stride: usize,
}

impl SmallBatch<'_> {
    /// The row of activations for the task's row `i`.
    #[inline(always)]
    pub fn row(&self, i: usize) -> usize {
        let at = self.before + i;
        self.row_ids.map_or(at, |rows| rows[at] as usize)
    }

    /// The index in `y` for the task's row `i` of activations and a row of weights.
    #[inline(always)]
    pub fn at(&self, i: usize, weight_row: usize) -> usize {
        (self.before + i) * self.stride + self.column + weight_row
    }
}

/// The layout of activations for a kernel of small batches.
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
/// The CPU has the kernel's instruction set, and no other task has these rows of weights.
/// They are whole groups of the kernel, except for the last rows.
pub(super) unsafe fn multiply(kernel: Kernel, p: SmallBatch, format: Format, rows: Range<usize>) {
    // SAFETY: upheld by the caller.
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
