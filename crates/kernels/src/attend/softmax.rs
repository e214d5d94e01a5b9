//! The softmax, kept up to date from tile to tile, and joined from split to split.

use std::ops::Range;

use super::tile::TILE;
use crate::Isa;
use crate::exp::exp;
use crate::isa::for_each_isa;
use crate::wide::{self, LANES};

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
    /// In `room` for n * (width + 2) numbers.
    pub fn within(room: &'a mut [f32], n: usize) -> Self {
        let (most, room) = room.split_at_mut(n);
        let (total, sums) = room.split_at_mut(n);
        Found { sums, most, total }
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

for_each_isa! {
    /// Makes weights `e^(score - most)` of the scores of the positions `seen` of a tile, and zeros of the others, with the
    /// greatest score and the sum of weights so far brought up to date. Returns what weights of earlier tiles are to be
    /// multiplied by.
    pub(super) fn weigh(scores: &mut [f32; TILE], seen: Range<usize>, most: &mut f32, total: &mut f32) -> f32 {
        scores[..seen.start].fill(f32::NEG_INFINITY);
        scores[seen.end..].fill(f32::NEG_INFINITY);
        let mut lane = [f32::NEG_INFINITY; LANES];
        for scores in scores.as_chunks::<LANES>().0 {
            for (most, &score) in lane.iter_mut().zip(scores) {
                *most = greater(score, *most);
            }
        }
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                lane[i] = greater(lane[i + half], lane[i]);
            }
        }
        let highest = greater(lane[0], *most);
        let mut lane = [0.0; LANES];
        for scores in scores.as_chunks_mut::<LANES>().0 {
            for (sum, score) in lane.iter_mut().zip(scores) {
                *score = exp(*score - highest);
                *sum += *score;
            }
        }
        let kept = exp(*most - highest);
        (*most, *total) = (highest, total.mul_add(kept, wide::sum(lane)));
        kept
    }

    /// The numbers of `out` become those sums divided by the total.
    pub(super) fn divide(sums: &[f32], total: f32, out: &mut [f32]) {
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = sum / total;
        }
    }

    /// Joins what a split found, its greatest score and sum of weights and its weighted sums, to what those before it did.
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
