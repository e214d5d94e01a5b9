//! Products of queries with a tile of keys, and sums of a tile of values: a few queries at a time, so that what is read
//! of a key or a value serves all of them.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::kv::{RUN, Source, View};
use crate::wide::{LANES, Wide, for_each_wide};

/// The positions that are handled together; tiles begin at multiples of it.
pub(super) const TILE: usize = 64;

/// The queries that are handled together.
pub(super) const QUERIES: usize = 4;

/// A tile's rows of keys or values of one head.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub numbers: View<'a>,
    /// Where the row of each position of the tile begins. Positions that nobody sees have that of one that is seen.
    pub starts: [usize; TILE],
    /// The numbers of a row: whole runs.
    pub width: usize,
}

impl Rows<'_> {
    /// Whether all rows are there.
    #[inline(always)]
    fn fit(&self, source: impl Source) -> bool {
        let last = self.starts.iter().fold(0, |last, &start| if start > last { start } else { last });
        self.width.is_multiple_of(RUN) && self.width <= source.len() && last <= source.len() - self.width
    }
}

for_each_wide! {
    /// `scores[i][p] = queries[i] · row p` for `queries: [n, width]` and some positions of the tile; scores of others
    /// are of no use afterwards. Meanwhile `next` is fetched, row by row.
    ///
    /// # Panics
    /// If a row or a query is not all there, or there are more than [`QUERIES`].
    #[inline(never)]
    pub(super) fn score<W>(
        queries: &[f32], keys: &Rows, positions: Range<usize>, next: Option<&Rows>, scores: &mut [[f32; TILE]],
    ) {
        // SAFETY: this is compiled for the instruction set of `W`.
        unsafe {
            match keys.numbers {
                View::F32(numbers) => score_in::<W, _>(numbers, queries, keys, positions, next, scores),
                View::F16(numbers) => score_in::<W, _>(numbers, queries, keys, positions, next, scores),
                View::Q8_0(numbers) => score_in::<W, _>(numbers, queries, keys, positions, next, scores),
            }
        }
    }

    /// `sums[i] = kept[i] sums[i] + Σ weights[i][p] row p` over some positions of the tile, in their order, for
    /// `sums: [n, width]`. Meanwhile `next` is fetched, row by row.
    ///
    /// # Panics
    /// As [`score`].
    #[inline(never)]
    pub(super) fn gather<W>(
        sums: &mut [f32], kept: &[f32], weights: &[[f32; TILE]], values: &Rows, positions: Range<usize>,
        next: Option<&Rows>,
    ) {
        // SAFETY: this is compiled for the instruction set of `W`.
        unsafe {
            match values.numbers {
                View::F32(numbers) => gather_in::<W, _>(numbers, sums, kept, weights, values, positions, next),
                View::F16(numbers) => gather_in::<W, _>(numbers, sums, kept, weights, values, positions, next),
                View::Q8_0(numbers) => gather_in::<W, _>(numbers, sums, kept, weights, values, positions, next),
            }
        }
    }
}

/// Asks for the rows of some positions.
#[inline(always)]
fn fetch(rows: Option<&Rows>, positions: Range<usize>) {
    if let Some(rows) = rows {
        for &start in &rows.starts[positions] {
            match rows.numbers {
                View::F32(numbers) => numbers.fetch(start, rows.width),
                View::F16(numbers) => numbers.fetch(start, rows.width),
                View::Q8_0(numbers) => numbers.fetch(start, rows.width),
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
    positions: Range<usize>,
    next: Option<&Rows>,
    scores: &mut [[f32; TILE]],
) {
    assert!(keys.fit(source) && positions.end <= TILE, "attend: keys");
    assert!(queries.len() == scores.len() * keys.width && scores.len() <= QUERIES, "attend: queries");
    let mut next = next;
    let step = W::BLOCK.min(QUERIES);
    for (queries, scores) in queries.chunks(step * keys.width).zip(scores.chunks_mut(step)) {
        // SAFETY: rows and queries are all there, as was just checked.
        unsafe {
            match (W::BLOCK, scores) {
                (4, [a, b, c, d]) => {
                    score_block::<W, S, 4, 4>(source, queries, keys, &positions, next, [a, b, c, d]);
                }
                (4, [a, b, c]) => {
                    score_block::<W, S, 3, 4>(source, queries, keys, &positions, next, [a, b, c])
                }
                (4, [a, b]) => score_block::<W, S, 2, 4>(source, queries, keys, &positions, next, [a, b]),
                (_, [a, b]) => score_block::<W, S, 2, 2>(source, queries, keys, &positions, next, [a, b]),
                (_, [a]) => score_block::<W, S, 1, 4>(source, queries, keys, &positions, next, [a]),
                _ => {}
            }
        }
        next = None;
    }
}

/// Q queries, K keys at a time.
///
/// # Safety
/// The CPU has the instruction set of `W`; there are Q queries, and all rows.
#[inline(always)]
unsafe fn score_block<W: Wide, S: Source, const Q: usize, const K: usize>(
    source: S,
    queries: &[f32],
    keys: &Rows,
    positions: &Range<usize>,
    next: Option<&Rows>,
    scores: [&mut [f32; TILE]; Q],
) {
    let queries = queries.as_ptr();
    for first in (positions.start / K * K..positions.end).step_by(K) {
        fetch(next, first..first + K);
        // SAFETY: the caller's: all numbers are within rows or queries.
        unsafe {
            let mut sums = [[W::splat(0.0); K]; Q];
            for i in (0..keys.width).step_by(RUN) {
                for k in 0..K {
                    let [low, high] = source.run::<W>(keys.starts[first + k] + i);
                    for q in 0..Q {
                        let query = queries.add(q * keys.width + i);
                        sums[q][k] = low.mul_add(W::load(query), sums[q][k]);
                        sums[q][k] = high.mul_add(W::load(query.add(LANES)), sums[q][k]);
                    }
                }
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
    positions: Range<usize>,
    next: Option<&Rows>,
) {
    assert!(values.fit(source) && positions.end <= TILE, "attend: values");
    assert!(sums.len() == weights.len() * values.width && weights.len() <= QUERIES, "attend: sums");
    assert_eq!(kept.len(), weights.len(), "attend: kept");
    let mut next = next;
    let step = W::BLOCK.min(QUERIES);
    let queries = sums.chunks_mut(step * values.width).zip(weights.chunks(step)).zip(kept.chunks(step));
    for ((sums, weights), kept) in queries {
        // SAFETY: rows and sums are all there, as was just checked.
        unsafe {
            match (W::BLOCK, weights) {
                (4, &[ref a, ref b, ref c, ref d]) => {
                    gather_rows::<W, S, 4, 2>(source, sums, kept, [a, b, c, d], values, &positions, next);
                }
                (4, [a, b, c]) => {
                    gather_rows::<W, S, 3, 2>(source, sums, kept, [a, b, c], values, &positions, next);
                }
                (4, [a, b]) => {
                    gather_rows::<W, S, 2, 4>(source, sums, kept, [a, b], values, &positions, next)
                }
                (4, [a]) => gather_rows::<W, S, 1, 4>(source, sums, kept, [a], values, &positions, next),
                (_, [a, b]) => {
                    gather_rows::<W, S, 2, 1>(source, sums, kept, [a, b], values, &positions, next)
                }
                (_, [a]) => gather_rows::<W, S, 1, 2>(source, sums, kept, [a], values, &positions, next),
                _ => {}
            }
        }
        next = None;
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
    positions: &Range<usize>,
    next: Option<&Rows>,
) {
    let wide = values.width / (C * RUN) * (C * RUN);
    let mut next = next;
    // SAFETY: the caller's.
    unsafe {
        for first in (0..wide).step_by(C * RUN) {
            gather_block::<W, S, Q, C>(source, sums, kept, weights, values, first, positions, next);
            next = None;
        }
        for first in (wide..values.width).step_by(RUN) {
            gather_block::<W, S, Q, 1>(source, sums, kept, weights, values, first, positions, next);
            next = None;
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
    first: usize,
    positions: &Range<usize>,
    next: Option<&Rows>,
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
            fetch(next, p..p + 1);
            let start = values.starts[p] + first;
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
