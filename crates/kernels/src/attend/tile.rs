//! Products of queries with a tile of keys, and sums of a tile of values: a few queries at a time, so that what is read
//! of a key or a value serves all of them.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // Indices tell registers apart.

use std::ops::Range;

use crate::kv::{RUN, Source, View};
use crate::wide::{LANES, Wide, for_each_wide};

/// The positions that are handled together; tiles begin at multiples of it.
pub(super) const TILE: usize = 64;

/// The queries that are handled together.
pub(super) const QUERIES: usize = 4;

/// How many rows ahead are asked for, where rows are read as they are kept.
pub(super) const AHEAD: usize = 8;

/// A tile's rows of keys or values.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub numbers: View<'a>,
    /// Where the row, or a head's part of it, of each position of the tile begins, and of the first ones of the next.
    /// Positions that nobody sees have that of one that is seen.
    starts: [usize; TILE + AHEAD],
    /// The numbers of a head.
    pub width: usize,
    /// The last of `starts`.
    last: usize,
}

impl<'a> Rows<'a> {
    pub fn new(numbers: View<'a>, starts: [usize; TILE + AHEAD], width: usize) -> Self {
        Rows { numbers, starts, width, last: starts.iter().fold(0, |last, &start| last.max(start)) }
    }

    /// Where the row of a position of the tile begins, or of one of the first of the next.
    #[inline(always)]
    pub fn start(&self, position: usize) -> usize {
        self.starts[position]
    }

    /// The first numbers of the same rows.
    pub fn up_to(self, width: usize) -> Self {
        Rows { width, ..self }
    }

    /// Whether the numbers of a head, from `column` on, are there in all rows, of `len` numbers.
    #[inline(always)]
    pub fn fit(&self, len: usize, column: usize) -> bool {
        let end = column + self.width;
        end <= len && self.last <= len - end
    }
}

for_each_wide! {
    /// `scores[i][p] = queries[i] · row p`, from its number `column` on, for `queries: [n, width]` and some positions of the tile; scores of others
    /// beside them are of no use afterwards.
    ///
    /// # Panics
    /// If a row or a query is not all there, or there are more than [`QUERIES`].
    #[inline(never)]
    pub(super) fn score<W>(
        queries: &[f32], keys: &Rows, column: usize, positions: Range<usize>, scores: &mut [[f32; TILE]],
    ) {
        // SAFETY: this is compiled for the instruction set of `W`.
        unsafe {
            match keys.numbers {
                View::F32(numbers) => score_in::<W, _>(numbers, queries, keys, column, positions, scores),
                View::F16(numbers) => score_in::<W, _>(numbers, queries, keys, column, positions, scores),
                View::Q8_0(numbers) => score_in::<W, _>(numbers, queries, keys, column, positions, scores),
            }
        }
    }

    /// `sums[i] = kept[i] sums[i] + Σ weights[i][p] row p` over some positions of the tile, in their order, for
    /// `sums: [n, width]`.
    ///
    /// # Panics
    /// As [`score`].
    #[inline(never)]
    pub(super) fn gather<W>(
        sums: &mut [f32], kept: &[f32], weights: &[[f32; TILE]], values: &Rows, column: usize,
        positions: Range<usize>,
    ) {
        // SAFETY: this is compiled for the instruction set of `W`.
        unsafe {
            match values.numbers {
                View::F32(numbers) => gather_in::<W, _>(numbers, sums, kept, weights, values, column, positions),
                View::F16(numbers) => gather_in::<W, _>(numbers, sums, kept, weights, values, column, positions),
                View::Q8_0(numbers) => gather_in::<W, _>(numbers, sums, kept, weights, values, column, positions),
            }
        }
    }
}

/// # Safety
/// The CPU has the instruction set of `W`.
#[inline(always)]
unsafe fn score_in<W: Wide, S: Source>(
    source: S,
    queries: &[f32],
    keys: &Rows,
    column: usize,
    positions: Range<usize>,
    scores: &mut [[f32; TILE]],
) {
    assert!(keys.width.is_multiple_of(RUN) && keys.fit(source.len(), column), "attend: keys");
    assert!(queries.len() == scores.len() * keys.width && scores.len() <= QUERIES, "attend: queries");
    let step = W::BLOCK.min(QUERIES);
    for (queries, scores) in queries.chunks(step * keys.width).zip(scores.chunks_mut(step)) {
        // SAFETY: rows and queries are all there, as was just checked.
        unsafe {
            match (W::BLOCK, scores) {
                (4, [a, b, c, d]) => {
                    score_block::<W, S, 4, 4>(source, queries, keys, column, &positions, [a, b, c, d]);
                }
                (4, [a, b, c]) => {
                    score_block::<W, S, 3, 4>(source, queries, keys, column, &positions, [a, b, c]);
                }
                (4, [a, b]) => score_block::<W, S, 2, 4>(source, queries, keys, column, &positions, [a, b]),
                (_, [a, b]) => score_block::<W, S, 2, 2>(source, queries, keys, column, &positions, [a, b]),
                (_, [a]) => score_block::<W, S, 1, 4>(source, queries, keys, column, &positions, [a]),
                _ => {}
            }
        }
    }
}

/// Q queries, K keys at a time.
///
/// # Safety
/// The CPU has the instruction set of `W`; there are Q queries, and all rows.
#[inline(always)]
#[allow(clippy::needless_pass_by_value)] // It is what it borrows.
unsafe fn score_block<W: Wide, S: Source, const Q: usize, const K: usize>(
    source: S,
    queries: &[f32],
    keys: &Rows,
    column: usize,
    positions: &Range<usize>,
    scores: [&mut [f32; TILE]; Q],
) {
    let queries = queries.as_ptr();
    for first in (positions.start / K * K..positions.end).step_by(K) {
        // SAFETY: the caller's: all numbers are within rows or queries.
        unsafe {
            let mut sums = [[W::splat(0.0); K]; Q];
            for i in (0..keys.width).step_by(RUN) {
                for k in 0..K {
                    source.ask(keys.start(first + k + AHEAD) + column + i);
                    let [low, high] = source.run::<W>(keys.start(first + k) + column + i);
                    for q in 0..Q {
                        let query = queries.add(q * keys.width + i);
                        sums[q][k] = low.mul_add(W::load(query), sums[q][k]);
                        sums[q][k] = high.mul_add(W::load(query.add(LANES)), sums[q][k]);
                    }
                }
            }
            if let (2, 2) = (Q, K) {
                let of_four = W::sums([sums[0][0], sums[0][1], sums[1][0], sums[1][1]]);
                scores[0][first..first + 2].copy_from_slice(&of_four[..2]);
                scores[1][first..first + 2].copy_from_slice(&of_four[2..]);
                continue;
            }
            for q in 0..Q {
                scores[q][first..first + K].copy_from_slice(&W::sums(sums[q]));
            }
        }
    }
}

/// # Safety
/// The CPU has the instruction set of `W`.
#[inline(always)]
unsafe fn gather_in<W: Wide, S: Source>(
    source: S,
    sums: &mut [f32],
    kept: &[f32],
    weights: &[[f32; TILE]],
    values: &Rows,
    column: usize,
    positions: Range<usize>,
) {
    assert!(values.width.is_multiple_of(RUN) && values.fit(source.len(), column), "attend: values");
    assert!(sums.len() == weights.len() * values.width && weights.len() <= QUERIES, "attend: sums");
    assert_eq!(kept.len(), weights.len(), "attend: kept");
    let step = W::BLOCK.min(QUERIES);
    let queries = sums.chunks_mut(step * values.width).zip(weights.chunks(step)).zip(kept.chunks(step));
    for ((sums, weights), kept) in queries {
        // SAFETY: rows and sums are all there, as was just checked.
        unsafe {
            match (W::BLOCK, weights) {
                (4, [a, b, c, d]) => {
                    gather_rows::<W, S, 4, 2>(source, sums, kept, [a, b, c, d], values, column, &positions);
                }
                (4, [a, b, c]) => {
                    gather_rows::<W, S, 3, 2>(source, sums, kept, [a, b, c], values, column, &positions);
                }
                (4, [a, b]) => {
                    gather_rows::<W, S, 2, 4>(source, sums, kept, [a, b], values, column, &positions);
                }
                (4, [a]) => gather_rows::<W, S, 1, 4>(source, sums, kept, [a], values, column, &positions),
                (_, [a, b]) => {
                    gather_rows::<W, S, 2, 1>(source, sums, kept, [a, b], values, column, &positions);
                }
                (_, [a]) => gather_rows::<W, S, 1, 2>(source, sums, kept, [a], values, column, &positions),
                _ => {}
            }
        }
    }
}

/// Q queries, C runs of a value at a time.
///
/// # Safety
/// As [`gather_block`].
#[inline(always)]
unsafe fn gather_rows<W: Wide, S: Source, const Q: usize, const C: usize>(
    source: S,
    sums: &mut [f32],
    kept: &[f32],
    weights: [&[f32; TILE]; Q],
    values: &Rows,
    column: usize,
    positions: &Range<usize>,
) {
    let wide = values.width / (C * RUN) * (C * RUN);
    // SAFETY: the caller's.
    unsafe {
        for first in (0..wide).step_by(C * RUN) {
            gather_block::<W, S, Q, C>(source, sums, kept, weights, values, column, first, positions);
        }
        for first in (wide..values.width).step_by(RUN) {
            gather_block::<W, S, Q, 1>(source, sums, kept, weights, values, column, first, positions);
        }
    }
}

/// The runs from number `first` of every row on.
///
/// # Safety
/// The CPU has the instruction set of `W`; there are Q queries, the runs, and all rows.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // A part of `gather`.
unsafe fn gather_block<W: Wide, S: Source, const Q: usize, const C: usize>(
    source: S,
    sums: &mut [f32],
    kept: &[f32],
    weights: [&[f32; TILE]; Q],
    values: &Rows,
    column: usize,
    first: usize,
    positions: &Range<usize>,
) {
    // SAFETY: the caller's: all numbers are within rows or sums.
    unsafe {
        let sums = sums.as_mut_ptr().add(first);
        let mut now = [[[W::splat(0.0); 2]; C]; Q];
        for q in 0..Q {
            let kept = W::splat(kept[q]);
            for c in 0..C {
                let sums = sums.add(q * values.width + c * RUN);
                now[q][c] = [W::load(sums).mul(kept), W::load(sums.add(LANES)).mul(kept)];
            }
        }
        for p in positions.clone() {
            let start = values.start(p) + column + first;
            let ahead = values.start(p + AHEAD) + column + first;
            for c in 0..C {
                source.ask(ahead + c * RUN);
                let [low, high] = source.run::<W>(start + c * RUN);
                for q in 0..Q {
                    let weight = W::splat(weights[q][p]);
                    now[q][c][0] = weight.mul_add(low, now[q][c][0]);
                    now[q][c][1] = weight.mul_add(high, now[q][c][1]);
                }
            }
        }
        for q in 0..Q {
            for c in 0..C {
                let sums = sums.add(q * values.width + c * RUN);
                now[q][c][0].store(sums);
                now[q][c][1].store(sums.add(LANES));
            }
        }
    }
}
