//! Activations in reused memory: a step doesn't allocate anything that an earlier step of its size
//! has allocated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use alara_kernels::Aligned;

/// A pool of idle buffers.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    idle: Arc<Mutex<Vec<Aligned<f32>>>>,
    /// Counts the contents handed out.
    contents: Arc<AtomicU64>,
}

/// Rows of f32 in a buffer of an `Arena`, returned to it on drop.
#[derive(Debug)]
pub struct Array {
    buffer: Aligned<f32>,
    rows: usize,
    width: usize,
    contents: u64,
    arena: Arena,
}

impl Arena {
    /// An array of `rows` rows of `width` numbers with unspecified values.
    pub fn array(&self, rows: usize, width: usize) -> Array {
        let size = size_class(rows * width);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let found = idle.iter().rposition(|buffer| buffer.len() == size);
        let buffer = found.map(|at| idle.swap_remove(at));
        drop(idle);
        let buffer = buffer.unwrap_or_else(|| Aligned::zeros(size));
        Array { buffer, rows, width, contents: self.next(), arena: self.clone() }
    }

    fn next(&self) -> u64 {
        self.contents.fetch_add(1, Ordering::Relaxed)
    }
}

impl Array {
    /// T.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The numbers, row after row.
    pub fn numbers(&self) -> &[f32] {
        &self.buffer[..self.rows * self.width]
    }

    /// An id that differs between any two contents of arrays from the same arena.
    pub fn contents(&self) -> u64 {
        self.contents
    }

    /// The numbers, row after row.
    pub fn numbers_mut(&mut self) -> &mut [f32] {
        self.contents = self.arena.next();
        &mut self.buffer[..self.rows * self.width]
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.arena.idle.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

/// Rounds up to 4, 5, 6 or 7 times a power of two.
/// So the last step of a prompt can reuse the buffers of earlier steps, and at most a quarter is
/// wasted.
fn size_class(numbers: usize) -> usize {
    let unit = (numbers.max(64) / 4).next_power_of_two() / 2;
    numbers.max(64).div_ceil(unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_fits_and_wastes_at_most_a_quarter() {
        for numbers in 1..5000 {
            let size = size_class(numbers);
            assert!(size >= numbers && size <= (numbers * 5 / 4).max(64), "{numbers}: {size}");
        }
        let sizes: std::collections::BTreeSet<_> = (1 << 20..1 << 21).map(size_class).collect();
        assert!(sizes.len() <= 9, "{sizes:?}");
    }

    #[test]
    fn a_dropped_buffer_is_used_again() {
        let arena = Arena::default();
        let first = arena.array(3, 100);
        let address = first.numbers().as_ptr();
        drop(first);
        assert_eq!(arena.array(2, 140).numbers().as_ptr(), address);
    }
}
