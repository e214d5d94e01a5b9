//! The online softmax: updated tile by tile, and joined split by split.
#![allow(unsafe_code)]

use std::ops::Range;

use super::tile::TILE;
use crate::Isa;
use crate::exp::{exp, sigmoid};
use crate::isa::for_each_isa;
use crate::wide::{LANES, for_each_wide};

/// The partial softmax of n queries.
pub(super) struct PartialSoftmax<'a> {
    /// The weighted sums of values: `[n, width]`.
    pub sums: &'a mut [f32],
    /// The greatest score of each query.
    pub max: &'a mut [f32],
    /// The sum of weights of each query.
    pub total: &'a mut [f32],
}

impl<'a> PartialSoftmax<'a> {
    /// The numbers that n queries take: rounded to whole cache lines.
    pub fn len(n: usize, width: usize) -> usize {
        n * width + 2 * n.next_multiple_of(LANES)
    }

    /// A partial softmax in a buffer of [`PartialSoftmax::len`] numbers.
    pub fn within(buffer: &'a mut [f32], n: usize) -> Self {
        let (sums, buffer) = buffer.split_at_mut(buffer.len() - 2 * n.next_multiple_of(LANES));
        let (max, total) = buffer.split_at_mut(buffer.len() / 2);
        PartialSoftmax { sums, max: &mut max[..n], total: &mut total[..n] }
    }

    /// Resets to the initial state.
    pub fn clear(&mut self) {
        self.sums.fill(0.0);
        self.max.fill(f32::NEG_INFINITY);
        self.total.fill(0.0);
    }

    /// Joins the result of the next split.
    pub fn join(&mut self, isa: Isa, split: &PartialSoftmax) {
        let width = self.sums.len() / self.max.len();
        let sums = self.sums.chunks_exact_mut(width).zip(split.sums.chunks_exact(width));
        for (i, (sums, of_split)) in sums.enumerate() {
            // A row that attends to nothing in a split skips it.
            if split.total[i] != 0.0 {
                let split = (split.max[i], split.total[i]);
                join(isa, &mut self.max[i], &mut self.total[i], sums, split, of_split);
            }
        }
    }
}

for_each_wide! {
    /// Replaces the scores of the positions of a tile that each query attends to by weights
    /// `e^(score - max)`, and all others by zeros.
    /// Updates each query's greatest score and sum of weights.
    /// `rescale` receives the factors for sums of earlier tiles.
    /// Queries that attend to nothing here are unchanged.
    /// Groups of `seen.len()` queries have the same ranges.
    pub(super) fn weigh<W>(
        scores: &mut [[f32; TILE]], seen: &[Range<u8>], max: &mut [f32], total: &mut [f32], rescale: &mut [f32],
    ) {
        let n = scores.len();
        let (max, total, rescale) = (&mut max[..n], &mut total[..n], &mut rescale[..n]);
        for (i, seen) in (0..n).zip(seen.iter().cycle()) {
            rescale[i] = 0.0;
            if seen.is_empty() {
                continue;
            }
            scores[i][..seen.start.into()].fill(f32::NEG_INFINITY);
            scores[i][seen.end.into()..].fill(f32::NEG_INFINITY);
            // SAFETY: this is compiled for the instruction set of `W`.
            let highest = unsafe {
                let mut lanes = W::splat(f32::NEG_INFINITY);
                for scores in scores[i].as_chunks::<LANES>().0 {
                    lanes = W::load(scores.as_ptr()).max(lanes);
                }
                larger(lanes.max_lane(), max[i])
            };
            (rescale[i], max[i]) = (max[i] - highest, highest);
        }
        for rescale in &mut *rescale {
            *rescale = exp(*rescale);
        }
        for (i, seen) in (0..n).zip(seen.iter().cycle()) {
            if seen.is_empty() {
                continue;
            }
            for score in &mut scores[i] {
                *score = exp(*score - max[i]);
            }
            // SAFETY: as above.
            let sum = unsafe {
                let mut lanes = W::splat(0.0);
                for weights in scores[i].as_chunks::<LANES>().0 {
                    lanes = lanes.add(W::load(weights.as_ptr()));
                }
                lanes.sum()
            };
            total[i] = total[i].mul_add(rescale[i], sum);
        }
    }
}

for_each_isa! {
    /// Caps scores: `max * tanh(score / max)`, which is `max * (2 sigmoid(2 score / max) - 1)`.
    pub(super) fn cap(scores: &mut [[f32; TILE]], max: f32) {
        let factor = 2.0 / max;
        for score in scores.as_flattened_mut() {
            *score = max * 2.0f32.mul_add(sigmoid(*score * factor), -1.0);
        }
    }

    /// Divides sums by the total, into `out`.
    pub(super) fn divide(sums: &[f32], total: f32, out: &mut [f32]) {
        let factor = 1.0 / total;
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = sum * factor;
        }
    }

    /// Joins the result of a split (its greatest score, sum of weights and weighted sums) to that
    /// of the splits before.
    fn join(max: &mut f32, total: &mut f32, sums: &mut [f32], split: (f32, f32), of_split: &[f32]) {
        let highest = larger(split.0, *max);
        let (rescale, rescale_split) = (exp(*max - highest), exp(split.0 - highest));
        (*max, *total) = (highest, total.mul_add(rescale, split.1 * rescale_split));
        for (sum, &of_split) in sums.iter_mut().zip(of_split) {
            *sum = sum.mul_add(rescale, of_split * rescale_split);
        }
    }
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}
