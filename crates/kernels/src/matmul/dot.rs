//! Products of any format with any batch: unpacks a chunk of a row of weights, then multiplies it
//! with every row of activations.
#![allow(unsafe_code)]

use std::ops::Range;

use super::small_batch::SmallBatch;
use crate::lanes::{self, LANES};
use crate::prefetch::prefetch;
use crate::quant::{Codec, MAX_BYTES, whole};

/// Rows of activations multiplied with a chunk at once: few enough to stay in the innermost cache.
const TILE: usize = 16;
/// Rows of weights processed in an interleaved way if there are few rows of activations, so that
/// sums don't wait for each other.
const MAX_GROUP: usize = 4;

/// Prefetches what a thread reads next, in address order, because adjacent lines load faster.
/// The next task's rows usually follow this one's.
struct Prefetcher {
    next: *const u8,
}

impl Prefetcher {
    /// Minimum prefetch distance in bytes.
    const DISTANCE: usize = 4 << 10;

    /// A prefetcher for rows of which up to [`MAX_GROUP`] are interleaved.
    #[inline(always)]
    fn new(p: &SmallBatch, rows: &Range<usize>) -> Self {
        // The last row's start is read when little of the first row has been.
        let distance = Self::DISTANCE.max(MAX_GROUP * p.row_bytes);
        Prefetcher { next: p.w.as_ptr().wrapping_add(rows.start * p.row_bytes + distance) }
    }

    /// Prefetches as much as is being read.
    #[inline(always)]
    fn fetch(&mut self, bytes: usize) {
        prefetch(self.next, bytes);
        self.next = self.next.wrapping_add(bytes);
    }
}

/// # Safety
/// As [`multiply`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn multiply_avx2<C: Codec>(p: SmallBatch, rows: Range<usize>) {
    // SAFETY: upheld by the caller.
    unsafe { multiply::<C>(p, rows) }
}

/// # Safety
/// As [`multiply`].
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "dotprod")]
pub(super) unsafe fn multiply_dotprod<C: Codec>(p: SmallBatch, rows: Range<usize>) {
    // SAFETY: upheld by the caller.
    unsafe { multiply::<C>(p, rows) }
}

/// # Safety
/// The CPU has the codec's instruction set, and no other task has these rows of weights.
#[inline(always)]
pub(super) unsafe fn multiply<C: Codec>(p: SmallBatch, rows: Range<usize>) {
    let mut lanes = [[0.0; LANES]; TILE];
    // The last chunks of all rows have equal lengths, so the padding stays zero.
    let mut padded = [0; MAX_BYTES];
    let mut prefetcher = Prefetcher::new(&p, &rows);
    for first in (0..p.rows).step_by(TILE) {
        let tile = TILE.min(p.rows - first);
        let group = (TILE / tile).min(MAX_GROUP);
        for start in rows.clone().step_by(group) {
            let group = group.min(rows.end - start);
            lanes[..group * tile].fill([0.0; LANES]);
            let w = &p.w[start * p.row_bytes..][..group * p.row_bytes];
            for (index, at) in (0..p.row_bytes).step_by(C::BYTES).enumerate() {
                let len = C::BYTES.min(p.row_bytes - at);
                for (row, lanes) in lanes.chunks_exact_mut(tile).take(group).enumerate() {
                    let bytes = &w[row * p.row_bytes + at..][..len];
                    if first == 0 {
                        prefetcher.fetch(len);
                    }
                    let bytes = whole::<C>(bytes, &mut padded);
                    // SAFETY: upheld by the caller.
                    let chunk = unsafe { C::unpack(bytes) };
                    // A separate case, so that a chunk that is used once stays in registers.
                    if let [lanes] = lanes {
                        // SAFETY: upheld by the caller.
                        unsafe { C::dot(&chunk, p.x, p.row(first), index, lanes) };
                        continue;
                    }
                    for (i, lanes) in lanes.iter_mut().enumerate() {
                        // SAFETY: upheld by the caller.
                        unsafe { C::dot(&chunk, p.x, p.row(first + i), index, lanes) };
                    }
                }
            }
            for (row, lanes) in lanes.chunks_exact(tile).take(group).enumerate() {
                for (i, &lanes) in lanes.iter().enumerate() {
                    // SAFETY: no other task writes this column of outputs.
                    unsafe { p.y.slice(p.at(first + i, start + row), 1)[0] = lanes::sum(lanes) };
                }
            }
        }
    }
}
