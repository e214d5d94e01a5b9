//! Buffers aligned to cache lines.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};

/// The size of a cache line, and of the widest register, in bytes.
const LINE: usize = 64;

/// A slice aligned to a cache line: if rows are whole lines, no register load crosses a line
/// boundary.
/// Memory that was never written isn't resident.
#[derive(Debug)]
pub struct Aligned<T> {
    all: Vec<T>,
    first: usize,
    len: usize,
}

impl<T> Aligned<T> {
    /// An empty slice.
    pub const fn new() -> Self {
        Aligned { all: Vec::new(), first: 0, len: 0 }
    }
}

impl<T: Copy + Default> Aligned<T> {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let spare = LINE / size_of::<T>();
        let all = vec![T::default(); len + spare];
        let first = all.as_ptr().align_offset(LINE).min(spare);
        Aligned { all, first, len }
    }

    /// Resizes to `len` numbers with unspecified values.
    pub fn at_least(&mut self, len: usize) -> &mut [T] {
        if self.len < len {
            *self = Aligned::zeros(len);
        }
        &mut self[..len]
    }
}

impl<T> Default for Aligned<T> {
    fn default() -> Self {
        Aligned::new()
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: at most the spare numbers precede, and the buffer never shrinks.
        unsafe { self.all.get_unchecked(self.first..self.first + self.len) }
    }
}

impl<T> DerefMut for Aligned<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { self.all.get_unchecked_mut(self.first..self.first + self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_with_a_line() {
        fn check<T: Copy + Default + PartialEq>() {
            let mut grown = Aligned::<T>::new();
            for len in [0, 1, 7, 100, 1 << 20] {
                let zeros = Aligned::<T>::zeros(len);
                assert!(zeros.len() == len && zeros.iter().all(|x| *x == T::default()));
                assert!(zeros.as_ptr().addr().is_multiple_of(LINE));
                assert!(grown.at_least(len).as_ptr().addr().is_multiple_of(LINE) || len == 0);
                assert_eq!(grown.at_least(len).len(), len);
            }
        }
        check::<f32>();
        check::<u16>();
        check::<i8>();
    }
}
