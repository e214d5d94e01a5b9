//! The online softmax: brought up to date from tile to tile, and joined from split to split.
#![allow(unsafe_code)]

use std::ops::Range;

use super::tile::TILE;
use crate::Isa;
use crate::exp::{exp, sigmoid};
use crate::isa::for_each_isa;
use crate::wide::{LANES, for_each_wide};

/// What n queries have of a softmax so far.
pub(super) struct PartialSoftmax<'a> {
    /// The weighted sums of values: `[n, width]`.
    pub sums: &'a mut [f32],
    /// The greatest score of each.
    pub max: &'a mut [f32],
    /// The sum of each one's weights.
    pub total: &'a mut [f32],
}

impl<'a> PartialSoftmax<'a> {
    /// The numbers that n queries take: whole cache lines.
    pub fn len(n: usize, width: usize) -> usize {
        n * width + 2 * n.next_multiple_of(LANES)
    }

    /// In a buffer of [`PartialSoftmax::len`] numbers.
    pub fn within(buffer: &'a mut [f32], n: usize) -> Self {
        let (sums, buffer) = buffer.split_at_mut(buffer.len() - 2 * n.next_multiple_of(LANES));
        let (max, total) = buffer.split_at_mut(buffer.len() / 2);
        PartialSoftmax { sums, max: &mut max[..n], total: &mut total[..n] }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.sums.fill(0.0);
        self.max.fill(f32::NEG_INFINITY);
        self.total.fill(0.0);
    }

    /// Joins what the next split found.
    pub fn join(&mut self, isa: Isa, split: &PartialSoftmax) {
        let width = self.sums.len() / self.max.len();
        let sums = self.sums.chunks_exact_mut(width).zip(split.sums.chunks_exact(width));
        for (i, (sums, of_split)) in sums.enumerate() {
            // A row that sees nothing of a split leaves it out.
            if split.total[i] != 0.0 {
                let split = (split.max[i], split.total[i]);
                join(isa, &mut self.max[i], &mut self.total[i], sums, split, of_split);
            }
        }
    }
}

for_each_wide! {
    /// Makes weights `e^(score - max)` of the scores of the positions of a tile that each query
    /// sees, and zeros of the others.
    /// Each query's greatest score and sum of weights so far are brought up to date.
    /// `rescale` becomes what sums of earlier tiles are to be multiplied by.
    /// Queries that see nothing are left alone.
    /// Every `seen.len()` queries see the same.
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
    /// Scores become `max * tanh(score / max)`, which is `max * (2 sigmoid(2 score / max) - 1)`.
    pub(super) fn cap(scores: &mut [[f32; TILE]], max: f32) {
        let factor = 2.0 / max;
        for score in scores.as_flattened_mut() {
            *score = max * 2.0f32.mul_add(sigmoid(*score * factor), -1.0);
        }
    }

    /// The numbers of `out` become those sums divided by the total.
    pub(super) fn divide(sums: &[f32], total: f32, out: &mut [f32]) {
        let factor = 1.0 / total;
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = sum * factor;
        }
    }

    /// Joins what a split found, its greatest score and sum of weights and its weighted sums, to
    /// what those before it did.
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
