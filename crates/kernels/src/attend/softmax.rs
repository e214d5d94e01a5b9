//! The softmax, kept up to date from tile to tile, and joined from split to split.

use std::ops::Range;

use super::tile::TILE;
use crate::exp::exp;
use crate::isa::for_each_isa;
use crate::wide::{self, LANES};

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

    /// Joins what a split found, its greatest score and sum of weights and its weighted sums, to what those before it did.
    pub(super) fn join(most: &mut f32, total: &mut f32, sums: &mut [f32], split: (f32, f32), of_split: &[f32]) {
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
