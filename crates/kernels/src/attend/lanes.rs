//! Products of many queries with a tile of keys: queries occupy the lanes of registers.
//!
//! The sums equal those of [`score`](super::tile::score), number by number: terms of each lane
//! there are summed here first, then these sums by halves.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // Indices tell registers apart.

use std::ops::Range;

use super::tile::{TILE, TileRows};
use crate::kv::{F32, View};
use crate::wide::{LANES, Wide, for_each_wide};

/// How many queries are processed together.
pub(super) const SIDE_BY_SIDE: usize = 2 * LANES;

/// The order of lanes in a sum, chosen so that each joins the half summed just before it.
const HALVES: [usize; LANES] = [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15];

for_each_wide! {
    /// Interleaves up to [`LANES`] queries, each multiplied by `scale`: `[width, LANES]`, padded
    /// with zeros.
    ///
    /// # Panics
    /// If a query is wider, or the width is not a multiple of [`LANES`].
    pub(super) fn side_by_side<W>(queries: &[&[f32]], scale: f32, out: &mut [f32]) {
        for (i, out) in out.chunks_exact_mut(LANES * LANES).enumerate() {
            // SAFETY: this is compiled for the instruction set of `W`, and there are that many
            // numbers.
            unsafe {
                let mut rows = [W::splat(0.0); LANES];
                for (row, query) in rows.iter_mut().zip(queries) {
                    let mut numbers = [0.0; LANES];
                    let query = &query[query.len().min(i * LANES)..query.len().min((i + 1) * LANES)];
                    match query.as_array::<LANES>() {
                        Some(query) => numbers = *query,
                        None => numbers[..query.len()].copy_from_slice(query),
                    }
                    *row = W::load(numbers.as_ptr()).mul(W::splat(scale));
                }
                for (column, out) in W::transpose(rows).into_iter().zip(out.chunks_exact_mut(LANES)) {
                    column.store(out.as_mut_ptr());
                }
            }
        }
    }

    /// `scores[i][p] = queries[i] · row p` for up to [`SIDE_BY_SIDE`] queries in the form of
    /// [`side_by_side`], and some positions of the tile.
    /// Adjacent scores of other positions are overwritten with unspecified values.
    ///
    /// # Panics
    /// If a row or a query is incomplete, there are too many, or the rows aren't floats.
    #[inline(never)]
    pub(super) fn score_lanes<W>(queries: &[f32], keys: &TileRows, positions: Range<usize>, scores: &mut [[f32; TILE]]) {
        let View::F32(F32(numbers)) = keys.numbers else { panic!("attend: keys of many queries") };
        let width = keys.width;
        assert!(keys.fit(numbers.len(), 0..1), "attend: keys");
        let groups = scores.len().div_ceil(LANES);
        assert!(scores.len() <= SIDE_BY_SIDE && queries.len() >= groups * width * LANES, "attend: queries");
        assert!(width.is_multiple_of(LANES), "attend: width");
        // SAFETY: all numbers exist, and this is compiled for the instruction set of `W`.
        unsafe {
            if W::BLOCK == 4 && groups == 2 {
                return score_groups::<W, 2, 8>(queries, numbers, keys, &positions, scores);
            }
            for (queries, scores) in queries.chunks(width * LANES).zip(scores.chunks_mut(LANES)) {
                match W::BLOCK {
                    4 => score_groups::<W, 1, 8>(queries, numbers, keys, &positions, scores),
                    _ => score_groups::<W, 1, 4>(queries, numbers, keys, &positions, scores),
                }
            }
        }
    }
}

/// Processes K keys at a time.
///
/// # Safety
/// The CPU has the instruction set of `W`; there are up to G * LANES queries, and all rows.
#[inline(always)]
unsafe fn score_groups<W: Wide, const G: usize, const K: usize>(
    queries: &[f32],
    numbers: &[f32],
    keys: &TileRows,
    positions: &Range<usize>,
    scores: &mut [[f32; TILE]],
) {
    for first in (positions.start / LANES * LANES..positions.end).step_by(LANES) {
        // SAFETY: upheld by the caller.
        unsafe {
            let mut found = [[W::splat(0.0); LANES]; G];
            for near in (0..LANES).step_by(K) {
                let rows: [*const f32; K] =
                    std::array::from_fn(|key| numbers.as_ptr().add(keys.start(first + near + key)));
                let sums = products::<W, G, K>(queries.as_ptr(), rows, keys.width);
                for g in 0..G {
                    found[g][near..near + K].copy_from_slice(&sums[g]);
                }
            }
            for g in 0..G {
                let of_query = W::transpose(found[g]);
                for (scores, of_query) in scores[g * LANES..].iter_mut().zip(of_query) {
                    of_query.store(scores.as_mut_ptr().add(first));
                }
            }
        }
    }
}

/// # Safety
/// As [`score_groups`].
#[inline(always)]
unsafe fn products<W: Wide, const G: usize, const K: usize>(
    queries: *const f32,
    rows: [*const f32; K],
    width: usize,
) -> [[W; K]; G] {
    // SAFETY: upheld by the caller.
    unsafe {
        let zeros = [[W::splat(0.0); K]; G];
        // Sums of one lane, of two, of four ..., waiting for another sum of equal size.
        let mut waiting = [zeros; 5];
        for (step, lane) in HALVES.into_iter().enumerate() {
            let mut sums = zeros;
            for i in (lane..width).step_by(LANES) {
                let mut x = [W::splat(0.0); G];
                for g in 0..G {
                    x[g] = W::load(queries.add((g * width + i) * LANES));
                }
                for key in 0..K {
                    let number = W::splat(*rows[key].add(i));
                    for g in 0..G {
                        sums[g][key] = number.mul_add(x[g], sums[g][key]);
                    }
                }
            }
            let mut level = 0;
            while step >> level & 1 == 1 {
                for g in 0..G {
                    for key in 0..K {
                        sums[g][key] = waiting[level][g][key].add(sums[g][key]);
                    }
                }
                level += 1;
            }
            waiting[level] = sums;
        }
        waiting[4]
    }
}
