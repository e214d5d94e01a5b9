//! Row-interleaved: transposes rows of weights, so that each has a lane of every register, and no
//! sum crosses lanes.
//!
//! ```text
//! of row r the quants q[r][0..4], q[r][4..8], ...          four bytes a lane
//!
//!   row 0   q00 q01 q02 q03                 register 0   q00 q10 q20 q30 ...
//!   row 1   q10 q11 q12 q13   transposed    register 1   q01 q11 q21 q31 ...
//!   row 2   q20 q21 q22 q23   ---------->   register 2   q02 q12 q22 q32 ...
//!   row 3   q30 q31 q32 q33                 register 3   q03 q13 q23 q33 ...
//! ```
//!
//! The four quants of activations multiplied with register i are equal in all lanes.
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

pub(super) mod avx2;
pub(super) mod avx512;

use std::marker::PhantomData;
use std::ops::Range;

use super::SmallBatch;
use super::x86::{RowCursor, each_of_four, in_parts, pin_pointer};
use crate::Format;
use crate::activations::Layout;
use crate::format::SUPER_BLOCK;
use crate::lanes::LANES;
use crate::matmul::vector::Vector;
use crate::prefetch::prefetch;
use crate::quant::avx2::each;

/// The most rows of activations for which weights are transposed at once: as many as have sums in
/// registers.
const MAX_ROWS: usize = 8;

/// A format whose blocks are transposed into registers of `V`.
///
/// # Safety
/// The function may only be called where the instruction set is available, and with pointers to
/// whole blocks.
trait RowInterleaved<V: Vector> {
    const FORMAT: Format;
    /// The layout of activations.
    const LAYOUT: Layout;

    /// Adds the products of one block of each row with T blocks of activations to the sums of a
    /// lane.
    unsafe fn add<const T: usize>(w: &mut RowStreams<V>, x: &[RowCursor; T], sums: &mut [V::F; T]);
}

/// The products of some groups of rows with T rows of activations from `first` on.
///
/// # Safety
/// The CPU has the instruction set of `V`, with whose features the caller is compiled, and no other
/// task has these groups.
/// In separate functions, which compile in half the time, Q8_0 is half as fast for four rows and
/// for six (rustc 1.95).
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "an index into all lanes")]
unsafe fn multiply_groups<V: Vector, F: RowInterleaved<V>, const T: usize>(
    p: &SmallBatch,
    groups: Range<usize>,
    first: usize,
) {
    let (bytes, len) = (F::FORMAT.block_bytes(), F::FORMAT.block_len());
    let blocks = p.row_bytes / bytes;
    let of_block = (len, F::LAYOUT.sums.per_super_block() * len / SUPER_BLOCK, 1);
    let x = RowCursor::rows::<T>(p, F::LAYOUT, first, blocks, of_block);
    for group in groups {
        let mut w = RowStreams::<V>::new(p, group);
        let mut lanes = [[V::zero_floats(); T]; LANES];
        for index in 0..blocks {
            F::add(&mut w, &RowCursor::at(x, index, of_block), &mut lanes[index % LANES]);
            w.step(bytes);
        }
        for i in 0..T {
            // As `lanes::sum`.
            let s = each!(lane => lanes[lane][i]);
            let even = V::add_floats(V::add_floats(s[0], s[4]), V::add_floats(s[2], s[6]));
            let odd = V::add_floats(V::add_floats(s[1], s[5]), V::add_floats(s[3], s[7]));
            RowStreams::<V>::put(p, group, first + i, V::add_floats(even, odd));
        }
    }
}

/// The current blocks of a group of rows, to be transposed.
/// A group has equally many rows from each quarter of the matrix, so that groups read four long
/// streams.
/// The CPU can't prefetch enough of a single stream: it looks a few lines ahead, but not beyond the
/// end of a page.
struct RowStreams<V> {
    /// The first row of each quarter.
    quarters: [*const u8; 4],
    /// The distance between rows in bytes.
    stride: usize,
    /// The prefetch distance in bytes: to the next group, whose rows follow these;
    /// as much is prefetched as is read.
    ahead: usize,
    vector: PhantomData<V>,
}

impl<V: Vector> RowStreams<V> {
    /// Rows per quarter.
    const EACH: usize = V::WIDTH / 4;

    /// The first blocks of a group.
    #[inline(always)]
    fn new(p: &SmallBatch, group: usize) -> Self {
        let bytes = Self::EACH * p.row_bytes;
        let quarters =
            each_of_four!(quarter => p.w[Self::first(p, group, quarter) * p.row_bytes..][..bytes].as_ptr());
        let quarters = each_of_four!(quarter => pin_pointer(quarters[quarter]));
        RowStreams { quarters, stride: p.row_bytes, ahead: bytes, vector: PhantomData }
    }

    /// The first row of a group in a quarter.
    #[inline(always)]
    fn first(p: &SmallBatch, group: usize, quarter: usize) -> usize {
        quarter * (p.weight_rows / 4) + group * Self::EACH
    }

    /// The block of a row.
    #[inline(always)]
    fn row(&self, row: usize) -> *const u8 {
        self.quarters[row / Self::EACH].wrapping_add(row % Self::EACH * self.stride)
    }

    /// Advances to the next blocks.
    #[inline(always)]
    fn step(&mut self, bytes: usize) {
        for at in &mut self.quarters {
            *at = pin_pointer(at.wrapping_add(bytes));
        }
        self.ahead -= bytes;
    }

    /// Prefetches as many bytes of the next group as are read from each row of this one.
    #[inline(always)]
    fn prefetch(&mut self, bytes: usize) {
        for quarter in self.quarters {
            prefetch(quarter.wrapping_add(self.ahead), Self::EACH * bytes);
        }
        self.ahead += Self::EACH * bytes;
    }

    /// Writes the results of a group's rows for row `i` of activations to their destination.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`, and no other task has this group.
    #[inline(always)]
    unsafe fn put(p: &SmallBatch, group: usize, i: usize, totals: V::F) {
        let mut numbers = [0f32; 16];
        V::store_floats(numbers.as_mut_ptr(), totals);
        let quarter = p.weight_rows / 4;
        let y = p.y.place(p.at(i, Self::first(p, group, 0)), 3 * quarter + Self::EACH);
        for (i, numbers) in numbers[..V::WIDTH].chunks_exact(Self::EACH).enumerate() {
            y.add(i * quarter).copy_from_nonoverlapping(numbers.as_ptr(), Self::EACH);
        }
    }
}
