//! Passes queries over tiles of keys and values.

use std::ops::Range;

use super::lanes::{SIDE_BY_SIDE, score_lanes};
use super::plan::UNIT;
use super::softmax::{PartialSoftmax, cap, weigh};
use super::tile::{QUERIES, TILE, TileRows, gather, score};
use crate::Isa;

/// The queries of a unit during a pass through a split.
pub(super) struct Pass<'a> {
    pub isa: Isa,
    /// `[n, width]`, scaled; ordered by key head.
    pub queries: &'a [f32],
    /// Whether `queries` are interleaved queries of a single key head.
    pub many: bool,
    /// `[n]`, for the current tile.
    pub scores: &'a mut [[f32; TILE]],
    /// The cap of scores.
    pub softcap: Option<f32>,
    /// Factors of the sums before the next tile's values are added: `[n]`.
    pub rescale: &'a mut [f32],
    pub found: PartialSoftmax<'a>,
    /// The positions of the tile that each query of a key head attends to.
    pub seen: [Range<u8>; UNIT],
    /// The number of queries per key head.
    pub of_head: usize,
}

impl Pass<'_> {
    /// Processes a tile for the queries of some key heads: values, and keys if there are many
    /// queries, `near` positions at a time.
    /// `keys` and `values` belong to the first of these heads; those of the next follow.
    pub fn take(&mut self, kv_heads: Range<usize>, keys: &TileRows, values: &TileRows, near: usize) {
        let (isa, n) = (self.isa, self.of_head);
        // Most tiles are visible in full to all queries, and the last one equally to all heads of a
        // row.
        let alike = self.seen[1..n].iter().all(|seen| *seen == self.seen[0]);
        let whole = alike && self.seen[0] == (0..TILE as u8);
        let all = kv_heads.start * n..kv_heads.end * n;
        if self.many {
            for part in parts(near) {
                for first in (0..n).step_by(SIDE_BY_SIDE) {
                    let queries = first..n.min(first + SIDE_BY_SIDE);
                    let seen = if whole { Some(part.clone()) } else { self.seen_by(queries.clone(), &part) };
                    let Some(seen) = seen else { continue };
                    let side_by_side = &self.queries[first * keys.width..];
                    score_lanes(isa, side_by_side, keys, seen, &mut self.scores[queries]);
                }
            }
        } else if let Some(seen) = self.seen_by(0..n, &(0..TILE)) {
            let queries = &self.queries[all.start * keys.width..all.end * keys.width];
            score(isa, queries, keys, values, kv_heads.len(), seen, &mut self.scores[all.clone()]);
        }
        if let Some(cap_at) = self.softcap {
            cap(isa, &mut self.scores[all.clone()], cap_at);
        }
        let PartialSoftmax { max, total, .. } = &mut self.found;
        let (max, total, rescale) =
            (&mut max[all.clone()], &mut total[all.clone()], &mut self.rescale[all.clone()]);
        weigh(isa, &mut self.scores[all.clone()], &self.seen[..n], max, total, rescale);
        if alike {
            let seen = self.seen[0].start.into()..self.seen[0].end.into();
            let sums = &mut self.found.sums[all.start * values.width..all.end * values.width];
            let (rescale, weights) = (&self.rescale[all.clone()], &self.scores[all]);
            return gather(isa, sums, rescale, weights, values, keys, 0..kv_heads.len(), seen, near);
        }
        for part in parts(near) {
            for (index, kv_head) in kv_heads.clone().enumerate() {
                for first in (0..n).step_by(QUERIES) {
                    let (at, count) = (kv_head * n + first, QUERIES.min(n - first));
                    let sums = &mut self.found.sums[at * values.width..][..count * values.width];
                    let (rescale, weights) =
                        (&mut self.rescale[at..at + count], &self.scores[at..at + count]);
                    let ranges = ranges(&self.seen[first..first + count], &part);
                    gather_ranges(isa, sums, rescale, weights, (values, keys), index, &ranges[..count]);
                }
            }
        }
    }

    /// The positions in a part of the tile that any of some queries attends to.
    fn seen_by(&self, queries: Range<usize>, part: &Range<usize>) -> Option<Range<usize>> {
        let within = |seen: &Range<u8>| part.start.max(seen.start.into())..part.end.min(seen.end.into());
        let some = self.seen[queries].iter().map(within).filter(|range| !range.is_empty());
        let from = some.clone().map(|range| range.start).min();
        from.zip(some.map(|range| range.end).max()).map(|(from, to)| from..to)
    }
}

/// The positions in a part of the tile that each of up to [`QUERIES`] queries attends to.
fn ranges(seen: &[Range<u8>], part: &Range<usize>) -> [Range<usize>; QUERIES] {
    let mut ranges = [const { 0..0 }; QUERIES];
    for (range, seen) in ranges.iter_mut().zip(seen) {
        *range = part.start.max(seen.start.into())..part.end.min(seen.end.into());
    }
    ranges
}

/// Divides a tile into parts.
fn parts(near: usize) -> impl Iterator<Item = Range<usize>> {
    (0..TILE).step_by(near).map(move |first| first..first + near)
}

/// [`gather`] for queries with individual ranges of a tile: the common range together, and what
/// comes before and after it for each query.
fn gather_ranges(
    isa: Isa,
    sums: &mut [f32],
    rescale: &mut [f32],
    weights: &[[f32; TILE]],
    (values, keys): (&TileRows, &TileRows),
    head: usize,
    ranges: &[Range<usize>],
) {
    let from = ranges.iter().map(|range| range.start).max().unwrap_or(0);
    let to = ranges.iter().map(|range| range.end).min().unwrap_or(0);
    // Without a common range each is processed alone.
    let (from, to) = if from < to { (from, to) } else { (TILE, TILE) };
    let alone = |rescale: &mut [f32], sums: &mut [f32], of: &dyn Fn(&Range<usize>) -> Range<usize>| {
        for (i, sums) in sums.chunks_exact_mut(values.width).enumerate() {
            let range = of(&ranges[i]);
            if !range.is_empty() {
                gather(
                    isa,
                    sums,
                    &rescale[i..=i],
                    &weights[i..=i],
                    values,
                    keys,
                    head..head + 1,
                    range,
                    TILE,
                );
                rescale[i] = 1.0;
            }
        }
    };
    alone(rescale, sums, &|range| range.start..range.end.min(from));
    if from < to {
        gather(isa, sums, rescale, weights, values, keys, head..head + 1, from..to, TILE);
        rescale.fill(1.0);
        alone(rescale, sums, &|range| range.start.max(to)..range.end);
    }
}
