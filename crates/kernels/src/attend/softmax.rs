//! The softmax, kept up to date from tile to tile, and joined from split to split.
#![allow(unsafe_code)]

use std::ops::Range;

use super::tile::TILE;
use crate::Isa;
use crate::exp::{exp, sigmoid};
use crate::isa::for_each_isa;
use crate::wide::{LANES, for_each_wide};

/// What n queries have found so far.
pub(super) struct Found<'a> {
    /// The weighted sums of values: `[n, width]`.
    pub sums: &'a mut [f32],
    /// The greatest score of each.
    pub most: &'a mut [f32],
    /// The sum of each one's weights.
    pub total: &'a mut [f32],
}

impl<'a> Found<'a> {
    /// The numbers of what n queries find: whole cache lines.
    pub fn room(n: usize, width: usize) -> usize {
        n * width + 2 * n.next_multiple_of(LANES)
    }

    /// In `room` as [`Found::room`] says.
    pub fn within(room: &'a mut [f32], n: usize) -> Self {
        let (sums, room) = room.split_at_mut(room.len() - 2 * n.next_multiple_of(LANES));
        let (most, total) = room.split_at_mut(room.len() / 2);
        Found { sums, most: &mut most[..n], total: &mut total[..n] }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.sums.fill(0.0);
        self.most.fill(f32::NEG_INFINITY);
        self.total.fill(0.0);
    }

    /// Takes what the next split found.
    pub fn join(&mut self, isa: Isa, split: &Found) {
        let width = self.sums.len() / self.most.len();
        let sums = self.sums.chunks_exact_mut(width).zip(split.sums.chunks_exact(width));
        for (i, (sums, of_split)) in sums.enumerate() {
            // A row that sees nothing of a split knows nothing of it.
            if split.total[i] != 0.0 {
                let split = (split.most[i], split.total[i]);
                join(isa, &mut self.most[i], &mut self.total[i], sums, split, of_split);
            }
        }
    }
}

for_each_wide! {
    /// Makes weights `e^(score - most)` of the scores of the positions of a tile that each query
    /// sees, and zeros of the others, with each one's greatest score and sum of weights so far
    /// brought up to date.
    /// `kept` becomes what weights of earlier tiles are to be multiplied by.
    /// Queries that see nothing are left alone.
    /// Every `seen.len()` queries see the same.
    pub(super) fn weigh<W>(
        scores: &mut [[f32; TILE]], seen: &[Range<u8>], most: &mut [f32], total: &mut [f32], kept: &mut [f32],
    ) {
        let n = scores.len();
        let (most, total, kept) = (&mut most[..n], &mut total[..n], &mut kept[..n]);
        for (i, seen) in (0..n).zip(seen.iter().cycle()) {
            kept[i] = 0.0;
            if seen.is_empty() {
                continue;
            }
            scores[i][..seen.start.into()].fill(f32::NEG_INFINITY);
            scores[i][seen.end.into()..].fill(f32::NEG_INFINITY);
            // SAFETY: this is compiled for the instruction set of `W`.
            let highest = unsafe {
                let mut lanes = W::splat(f32::NEG_INFINITY);
                for scores in scores[i].as_chunks::<LANES>().0 {
                    lanes = W::load(scores.as_ptr()).greater(lanes);
                }
                greater(lanes.greatest(), most[i])
            };
            (kept[i], most[i]) = (most[i] - highest, highest);
        }
        for kept in &mut *kept {
            *kept = exp(*kept);
        }
        for (i, seen) in (0..n).zip(seen.iter().cycle()) {
            if seen.is_empty() {
                continue;
            }
            for score in &mut scores[i] {
                *score = exp(*score - most[i]);
            }
            // SAFETY: as above.
            let sum = unsafe {
                let mut lanes = W::splat(0.0);
                for weights in scores[i].as_chunks::<LANES>().0 {
                    lanes = lanes.add(W::load(weights.as_ptr()));
                }
                lanes.sum()
            };
            total[i] = total[i].mul_add(kept[i], sum);
        }
    }
}

for_each_isa! {
    /// Scores become `most * tanh(score / most)`, which is `most * (2 sigmoid(2 score / most) -
    /// 1)`.
    pub(super) fn cap(scores: &mut [[f32; TILE]], most: f32) {
        let factor = 2.0 / most;
        for score in scores.as_flattened_mut() {
            *score = most * 2.0f32.mul_add(sigmoid(*score * factor), -1.0);
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
    fn join(most: &mut f32, total: &mut f32, sums: &mut [f32], split: (f32, f32), of_split: &[f32]) {
        let highest = greater(split.0, *most);
        let (kept, taken) = (exp(*most - highest), exp(split.0 - highest));
        (*most, *total) = (highest, total.mul_add(kept, split.1 * taken));
        for (sum, &of_split) in sums.iter_mut().zip(of_split) {
            *sum = sum.mul_add(kept, of_split * taken);
        }
    }
}

#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}
