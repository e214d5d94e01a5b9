//! How rows of weights that are turned are read.
#![allow(unsafe_code)]
// In an unsafe function whose safety is told, each call would say the same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::asm;

use super::{Few, each_row, fetch};
use crate::quant::avx2::each;

/// The blocks of a group of rows that are turned, as many of each quarter of the matrix, so that
/// who goes from group to group reads four long streams.
/// Of a single one the CPU doesn't foresee enough: it looks some lines ahead, and no further than
/// to the end of a page.
pub(super) struct Streams<const ROWS: usize> {
    /// Of the first of the rows of each quarter.
    quarters: [*const u8; 4],
    /// The bytes from row to row.
    stride: usize,
    /// How many bytes after them is what is asked for: of the next group, whose rows follow these,
    /// as much as is read of these.
    ahead: usize,
}

impl<const ROWS: usize> Streams<ROWS> {
    /// The rows of each quarter.
    const EACH: usize = ROWS / 4;

    /// The first blocks of a group.
    #[inline(always)]
    pub unsafe fn new(p: &Few, group: usize) -> Self {
        let bytes = Self::EACH * p.row_bytes;
        let quarters =
            each_row!(quarter => p.w[Self::first(p, group, quarter) * p.row_bytes..][..bytes].as_ptr());
        Streams { quarters: each_row!(quarter => kept(quarters[quarter])), stride: p.row_bytes, ahead: bytes }
    }

    /// The first row of a quarter that a group has.
    #[inline(always)]
    fn first(p: &Few, group: usize, quarter: usize) -> usize {
        quarter * (p.out / 4) + group * Self::EACH
    }

    /// The block of a row.
    #[inline(always)]
    pub fn row(&self, row: usize) -> *const u8 {
        self.quarters[row / Self::EACH].wrapping_add(row % Self::EACH * self.stride)
    }

    /// On to the next blocks.
    #[inline(always)]
    pub unsafe fn step(&mut self, bytes: usize) {
        for at in &mut self.quarters {
            *at = kept(at.wrapping_add(bytes));
        }
        self.ahead -= bytes;
    }

    /// Asks for as many bytes of the next group as are read of each row of this one.
    #[inline(always)]
    pub fn ask(&mut self, bytes: usize) {
        for quarter in self.quarters {
            fetch(quarter.wrapping_add(self.ahead), Self::EACH * bytes);
        }
        self.ahead += Self::EACH * bytes;
    }

    /// Puts the results of a group's rows with a row of activations where they belong.
    ///
    /// # Safety
    /// No other task has this group.
    #[inline(always)]
    pub unsafe fn put(p: &Few, group: usize, token: usize, numbers: &[f32; ROWS]) {
        let quarter = p.out / 4;
        let y = p.y.place(p.at(token, Self::first(p, group, 0)), 3 * quarter + Self::EACH);
        for (i, numbers) in numbers.chunks_exact(Self::EACH).enumerate() {
            y.add(i * quarter).copy_from_nonoverlapping(numbers.as_ptr(), Self::EACH);
        }
    }
}

/// The same pointer, in a register of its own: left to itself, the compiler makes offsets of one
/// pointer and the stride.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // Nothing is read there.
unsafe fn kept(mut at: *const u8) -> *const u8 {
    asm!("/* {} */", inout(reg) at, options(nomem, nostack, preserves_flags));
    at
}
