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

    /// Whether the numbers of some heads are there in all rows, of `len` numbers.
    #[inline(always)]
    pub fn fit(&self, len: usize, heads: Range<usize>) -> bool {
        let end = heads.end * self.width;
        end <= len && self.last <= len - end
    }
}

/// The rows that are read next are asked for in the order of their addresses, because neighbours come faster.
struct Ahead<'a> {
    rows: &'a Rows<'a>,
    /// The numbers of a row that are read.
    columns: Range<usize>,
    position: usize,
    column: usize,
}

impl<'a> Ahead<'a> {
    /// For some heads, whose rows are read from a position on.
    #[inline(always)]
    fn new(rows: &'a Rows<'a>, heads: &Range<usize>, position: usize) -> Self {
        let columns = heads.start * rows.width..heads.end * rows.width;
        Ahead { rows, column: columns.start, columns, position: position + AHEAD }
    }

    /// Asks for some runs, unless they are [`AHEAD`] rows or more from `position`.
    #[inline(always)]
    fn ask<S: Source>(&mut self, source: S, runs: usize, position: usize) {
        let mut left = runs * RUN;
        while left > 0 && self.position < position + AHEAD {
            let count = left.min(self.columns.end - self.column);
            let start = self.rows.start(self.position);
            for column in (self.column..self.column + count).step_by(RUN) {
                source.ask(start + column);
            }
            left -= count;
            self.column += count;
            if self.column == self.columns.end {
                (self.column, self.position) = (self.columns.start, self.position + 1);
            }
        }
    }
}

for_each_wide! {
    /// `scores[h, i][p] = queries[h, i] · row p` of head h, for `queries: [heads, n, width]` and some positions of the
    /// tile; scores of others beside them are of no use afterwards.
    ///
    /// # Panics
    /// If a row or a query is not all there.
    #[inline(never)]
    pub(super) fn score<W>(
        queries: &[f32], keys: &Rows, heads: usize, positions: Range<usize>, scores: &mut [[f32; TILE]],
    ) {
        // SAFETY: this is compiled for the instruction set of `W`.
        unsafe {
            match keys.numbers {
                View::F32(numbers) => score_in::<W, _>(numbers, queries, keys, heads, positions, scores),
                View::F16(numbers) => score_in::<W, _>(numbers, queries, keys, heads, positions, scores),
                View::Q8_0(numbers) => score_in::<W, _>(numbers, queries, keys, heads, positions, scores),
            }
        }
    }

    /// `sums[h, i] = kept[h, i] sums[h, i] + Σ weights[h, i][p] row p` of some heads h over some positions of the tile, in
    /// their order and `near` at a time, for `sums: [heads, n, width]`.
    ///
    /// # Panics
    /// If a row or a sum is not all there.
    #[inline(never)]
    pub(super) fn gather<W>(
        sums: &mut [f32], kept: &[f32], weights: &[[f32; TILE]], values: &Rows, heads: Range<usize>,
        positions: Range<usize>, near: usize,
    ) {
        // SAFETY: this is compiled for the instruction set of `W`.
        unsafe {
            match values.numbers {
                View::F32(numbers) => gather_in::<W, _>(numbers, sums, kept, weights, values, heads, positions, near),
                View::F16(numbers) => gather_in::<W, _>(numbers, sums, kept, weights, values, heads, positions, near),
                View::Q8_0(numbers) => gather_in::<W, _>(numbers, sums, kept, weights, values, heads, positions, near),
            }
        }
    }
}

/// The positions whose keys are read before those of the next: they lie together, with those of all heads.
const KEYS: usize = 4;

/// # Safety
/// The CPU has the instruction set of `W`.
#[inline(always)]
unsafe fn score_in<W: Wide, S: Source>(
    source: S,
    queries: &[f32],
    keys: &Rows,
    heads: usize,
    positions: Range<usize>,
    scores: &mut [[f32; TILE]],
) {
    let (width, n) = (keys.width, scores.len() / heads);
    assert!(width.is_multiple_of(RUN) && keys.fit(source.len(), 0..heads), "attend: keys");
    assert!(scores.len() == heads * n && queries.len() == scores.len() * width, "attend: queries");
    assert!(positions.end <= TILE, "attend: positions");
    let step = W::BLOCK.min(QUERIES);
    let from = positions.start / KEYS * KEYS;
    let ahead = &mut Ahead::new(keys, &(0..heads), from);
    for first in (from..positions.end).step_by(KEYS) {
        let of_heads = queries.chunks(n * width).zip(scores.chunks_mut(n));
        for (head, (queries, scores)) in of_heads.enumerate() {
            let at = (head * width, first);
            for (queries, scores) in queries.chunks(step * width).zip(scores.chunks_mut(step)) {
                // SAFETY: rows and queries are all there, as was just checked.
                unsafe {
                    match (W::BLOCK, scores) {
                        (4, [a, b, c, d]) => {
                            score_block::<W, S, 4, 4>(source, queries, ahead, at, [a, b, c, d]);
                        }
                        (4, [a, b, c]) => score_block::<W, S, 3, 4>(source, queries, ahead, at, [a, b, c]),
                        (4, [a, b]) => score_block::<W, S, 2, 4>(source, queries, ahead, at, [a, b]),
                        (_, [a, b]) => score_block::<W, S, 2, 2>(source, queries, ahead, at, [a, b]),
                        (_, [a]) => score_block::<W, S, 1, 4>(source, queries, ahead, at, [a]),
                        _ => {}
                    }
                }
            }
        }
    }
}

/// Q queries with the keys from a column and a position on, K of [`KEYS`] at a time.
///
/// # Safety
/// The CPU has the instruction set of `W`; there are Q queries, and all rows.
#[inline(always)]
#[allow(clippy::needless_pass_by_value)] // It is what it borrows.
unsafe fn score_block<W: Wide, S: Source, const Q: usize, const K: usize>(
    source: S,
    queries: &[f32],
    ahead: &mut Ahead,
    (column, first): (usize, usize),
    scores: [&mut [f32; TILE]; Q],
) {
    let keys = ahead.rows;
    let queries = queries.as_ptr();
    let end = first + KEYS;
    for first in (first..end).step_by(K) {
        // SAFETY: the caller's: all numbers are within rows or queries.
        unsafe {
            ahead.ask(source, K * keys.width / RUN, end);
            let mut sums = [[W::splat(0.0); K]; Q];
            for i in (0..keys.width).step_by(RUN) {
                for k in 0..K {
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
#[allow(clippy::too_many_arguments)] // As `gather`.
unsafe fn gather_in<W: Wide, S: Source>(
    source: S,
    sums: &mut [f32],
    kept: &[f32],
    weights: &[[f32; TILE]],
    values: &Rows,
    heads: Range<usize>,
    positions: Range<usize>,
    near: usize,
) {
    let (width, n) = (values.width, weights.len() / heads.len());
    assert!(width.is_multiple_of(RUN) && values.fit(source.len(), heads.clone()), "attend: values");
    assert!(weights.len() == heads.len() * n && sums.len() == weights.len() * width, "attend: sums");
    assert!(kept.len() == weights.len() && positions.end <= TILE, "attend: weights");
    let step = W::BLOCK.min(QUERIES);
    let ahead = &mut Ahead::new(values, &heads, positions.start);
    let mut from = positions.start;
    while from < positions.end {
        let part = from..positions.end.min((from / near + 1) * near);
        from = part.end;
        let of_heads = sums.chunks_mut(n * width).zip(weights.chunks(n)).zip(kept.chunks(n));
        for (head, ((sums, weights), kept)) in heads.clone().zip(of_heads) {
            let at = (head * width, &part);
            let queries = sums.chunks_mut(step * width).zip(weights.chunks(step)).zip(kept.chunks(step));
            for ((sums, weights), kept) in queries {
                let to = (sums, if part.start == positions.start { kept } else { &[1.0; QUERIES] });
                // SAFETY: rows and sums are all there, as was just checked.
                unsafe {
                    match (W::BLOCK, weights) {
                        (4, [a, b, c, d]) => gather_rows::<W, S, 4, 2>(source, ahead, at, [a, b, c, d], to),
                        (4, [a, b, c]) => gather_rows::<W, S, 3, 2>(source, ahead, at, [a, b, c], to),
                        (4, [a, b]) => gather_rows::<W, S, 2, 4>(source, ahead, at, [a, b], to),
                        (4, [a]) => gather_rows::<W, S, 1, 4>(source, ahead, at, [a], to),
                        (_, [a, b]) => gather_rows::<W, S, 2, 1>(source, ahead, at, [a, b], to),
                        (_, [a]) => gather_rows::<W, S, 1, 2>(source, ahead, at, [a], to),
                        _ => {}
                    }
                }
            }
        }
    }
}

/// Q queries over the values from a column on at some positions, C runs of a value at a time.
///
/// # Safety
/// As [`gather_block`].
#[inline(always)]
unsafe fn gather_rows<W: Wide, S: Source, const Q: usize, const C: usize>(
    source: S,
    ahead: &mut Ahead,
    (column, positions): (usize, &Range<usize>),
    weights: [&[f32; TILE]; Q],
    (sums, kept): (&mut [f32], &[f32]),
) {
    let width = ahead.rows.width;
    let wide = width / (C * RUN) * (C * RUN);
    // SAFETY: the caller's.
    unsafe {
        for first in (0..wide).step_by(C * RUN) {
            let to = (&mut sums[first..], kept);
            gather_block::<W, S, Q, C>(source, ahead, (column + first, positions), weights, to);
        }
        for first in (wide..width).step_by(RUN) {
            let to = (&mut sums[first..], kept);
            gather_block::<W, S, Q, 1>(source, ahead, (column + first, positions), weights, to);
        }
    }
}

/// C runs of every value.
///
/// # Safety
/// The CPU has the instruction set of `W`; there are Q queries, the runs, and all rows.
#[inline(always)]
unsafe fn gather_block<W: Wide, S: Source, const Q: usize, const C: usize>(
    source: S,
    ahead: &mut Ahead,
    (column, positions): (usize, &Range<usize>),
    weights: [&[f32; TILE]; Q],
    (sums, kept): (&mut [f32], &[f32]),
) {
    let values = ahead.rows;
    // SAFETY: the caller's: all numbers are within rows or sums.
    unsafe {
        ahead.ask(source, C * positions.len(), positions.end);
        let sums = sums.as_mut_ptr();
        let mut now = [[[W::splat(0.0); 2]; C]; Q];
        for q in 0..Q {
            let kept = W::splat(kept[q]);
            for c in 0..C {
                let sums = sums.add(q * values.width + c * RUN);
                now[q][c] = [W::load(sums).mul(kept), W::load(sums.add(LANES)).mul(kept)];
            }
        }
        for p in positions.clone() {
            let start = values.start(p) + column;
            for c in 0..C {
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
