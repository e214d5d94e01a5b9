//! Causal attention over the slots of a KV cache.
//!
//! The queries that share a key head (all heads of its group, of one or more rows) process the
//! positions together.
//! Positions are grouped in tiles, and tiles in splits, all of which begin at fixed positions.
//! Within a split an online softmax is updated tile by tile; the splits' results are joined in
//! order.
//! So the result of a row depends neither on the other rows, nor on its blocks, nor on the number
//! of threads that shared its splits.
//! Rows of sequences that share a prefix can process its splits together.
#![allow(unsafe_code)]

mod lanes;
mod pass;
mod plan;
mod softmax;
mod tile;

use std::cell::RefCell;
use std::ops::Range;

use crate::format::BLOCK;
use crate::kv::{F32, KvRows, View, widen};
use crate::prefetch::prefetch_line;
use crate::thread_pool::Disjoint;
use crate::wide::LANES;
use crate::{Aligned, Cpu, Isa};
use lanes::{SIDE_BY_SIDE, side_by_side};
use pass::Pass;
use plan::{DIRECT, Plan, Spans, UNIT, Unit, together};
use softmax::{PartialSoftmax, divide};
use tile::{AHEAD, Slots, TILE, TileRows};

/// Positions per split: whole tiles.
const SPLIT: usize = 128;

/// Number of positions that all queries process before the next, with `width` numbers each: few
/// enough to stay in the L1 cache.
fn near(width: usize) -> usize {
    1 << (8192 / width).clamp(8, TILE).ilog2()
}

/// The heads of an attention and their window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Query heads (H).
    pub heads: usize,
    /// Key and value heads (K), a divisor of H: query head h uses head h / (H / K).
    pub kv_heads: usize,
    /// The numbers of a key and of a query.
    pub key_width: usize,
    /// The numbers of a value.
    pub value_width: usize,
    /// Whether a value consists of the first numbers of its key, so that only keys are cached; only
    /// for a single head.
    pub values_in_keys: bool,
    /// The factor of the dot products of queries and keys.
    pub scale: f32,
    /// Limits scores: `cap * tanh(score / cap)`.
    /// Source: Gemma 2, <https://arxiv.org/abs/2408.00118>.
    pub softcap: Option<f32>,
    /// Position p attends to p - window + 1 to p; to all up to p if `None`.
    pub window: Option<usize>,
    /// Whether windows are chunks instead: positions are cut into chunks of `window` from 0 on, and
    /// p attends to its chunk up to p.
    pub chunked: bool,
}

impl AttentionShape {
    /// Numbers cached per position: of its key, and of its value.
    pub fn cached(&self) -> (usize, usize) {
        let values = if self.values_in_keys { 0 } else { self.kv_heads * self.value_width };
        (self.kv_heads * self.key_width, values)
    }

    /// The first position that `position` attends to.
    pub fn oldest(&self, position: usize) -> usize {
        match self.window {
            None => 0,
            Some(window) if self.chunked => position / window * window,
            Some(window) => (position + 1).saturating_sub(window),
        }
    }
}

/// Rows of one sequence at consecutive positions; they follow the rows of the previous span.
#[derive(Clone, Copy, Debug)]
pub struct AttentionSpan<'a> {
    /// The number of rows.
    pub rows: usize,
    /// The position of the first row: the number of positions before it.
    pub past: usize,
    /// The row of position p is in slot
    /// `blocks[p / block_tokens] * block_tokens + p % block_tokens`.
    /// Entries of blocks entirely before the windows of all rows may be any number: they aren't
    /// read.
    pub blocks: &'a [u32],
}

thread_local! {
    /// The buffers of the thread's task.
    static SCRATCH: RefCell<Aligned<f32>> = const { RefCell::new(Aligned::new()) };
    /// How the thread's call is divided.
    static PLAN: RefCell<Plan> = const { RefCell::new(Plan::new()) };
}

/// `y[t, h] = Σ softmax(scale q[t, h] · keys) values` over the positions that row t attends to,
/// including its own, which must be written before. q: `[T, H * key_width]`, y:
/// `[T, H * value_width]`.
///
/// `sinks: [H]` are extra scores, whose share of the softmax is discarded.
/// `values` is `None` if they are part of the keys.
///
/// # Panics
/// If lengths and widths don't match, or a needed block doesn't exist.
#[allow(clippy::too_many_arguments)] // What attention is made of.
pub fn attend(
    cpu: &Cpu,
    shape: &AttentionShape,
    keys: &KvRows,
    values: Option<&KvRows>,
    block_tokens: usize,
    spans: &[AttentionSpan],
    sinks: Option<&[f32]>,
    q: &[f32],
    y: &mut [f32],
) {
    let AttentionShape { heads, kv_heads, key_width, value_width, window, .. } = *shape;
    let rows: usize = spans.iter().map(|span| span.rows).sum();
    assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "attend: {heads} heads, {kv_heads} of keys");
    assert!(
        key_width > 0 && value_width > 0 && block_tokens > 0 && window != Some(0),
        "attend: an empty part"
    );
    assert_eq!(keys.width(), kv_heads * key_width, "attend: keys");
    assert_eq!(values.is_none(), shape.values_in_keys, "attend: where values are");
    match values {
        Some(values) => assert_eq!(values.width(), kv_heads * value_width, "attend: values"),
        None => assert!(kv_heads == 1 && value_width <= key_width, "attend: values within keys"),
    }
    assert!(sinks.is_none_or(|sinks| sinks.len() == heads), "attend: sinks");
    assert_eq!(q.len(), rows * heads * key_width, "attend: q");
    assert_eq!(y.len(), rows * heads * value_width, "attend: y");

    PLAN.with_borrow_mut(|plan| {
        let spans = Spans { shape, block_tokens, spans };
        plan.make(cpu.threads.count(), spans);
        let Plan { units, tasks, partials, .. } = plan;
        let (units, tasks) = (&units[..], &tasks[..]);
        let (y, partials) = (&Disjoint::new(y), &Disjoint::new(partials));
        let call = Call { isa: cpu.isa, shape, keys, values, spans, sinks, q, y, partials };
        cpu.threads.run(tasks.len(), &|task| {
            // Later rows attend to more: they go first.
            let task = &tasks[tasks.len() - 1 - task];
            SCRATCH.with_borrow_mut(|scratch| call.attend(&units[task.units.clone()], &task.splits, scratch));
        });
        if units.iter().any(|unit| unit.partials.is_some()) {
            cpu.threads.run(units.len(), &|unit| {
                SCRATCH.with_borrow_mut(|scratch| call.join_partials(&units[unit], scratch));
            });
        }
    });
}

/// Data shared by all tasks of a call.
struct Call<'a> {
    isa: Isa,
    shape: &'a AttentionShape,
    keys: &'a KvRows,
    values: Option<&'a KvRows>,
    spans: Spans<'a>,
    sinks: Option<&'a [f32]>,
    q: &'a [f32],
    y: &'a Disjoint<'a, f32>,
    partials: &'a Disjoint<'a, f32>,
}

impl<'a> Call<'a> {
    /// Processes a unit for several splits, or several units for one.
    fn attend(&self, units: &[Unit], splits: &Range<usize>, scratch: &mut Aligned<f32>) {
        let AttentionShape { heads, key_width, value_width, scale, .. } = *self.shape;
        let widths = [key_width, value_width].map(|width| width.next_multiple_of(BLOCK));
        let of_head: usize = units.iter().map(Unit::queries).sum();
        let n = units[0].kv_heads.len() * of_head;
        let len = PartialSoftmax::len(n, widths[1]);
        let many = of_head > DIRECT;
        let queries = if many { n.next_multiple_of(SIDE_BY_SIDE) } else { n };
        let rescale = n.next_multiple_of(LANES);
        let sizes = [queries * widths[0], n * TILE, rescale, len, len, TILE * widths[0], TILE * widths[1]];
        let mut rest = scratch.at_least(sizes.iter().sum());
        let [queries, scores, rescale, found, joined, keys, values] = sizes.map(|size| {
            let (part, later) = std::mem::take(&mut rest).split_at_mut(size);
            rest = later;
            part
        });
        let q = |unit: &Unit, i: usize| {
            let (row, head) = unit.query(i);
            &self.q[(row * heads + head) * key_width..][..key_width]
        };
        if many {
            for (group, queries) in queries.chunks_exact_mut(LANES * widths[0]).enumerate() {
                let mut some = [&[][..]; LANES];
                let some = &mut some[..LANES.min(n.saturating_sub(group * LANES))];
                some.iter_mut().enumerate().for_each(|(i, some)| *some = q(&units[0], group * LANES + i));
                side_by_side(self.isa, some, scale, queries);
            }
        } else {
            together(units, |unit, i, at| {
                let (query, pad) = queries[at * widths[0]..][..widths[0]].split_at_mut(key_width);
                query.iter_mut().zip(q(unit, i)).for_each(|(query, q)| *query = q * scale);
                pad.fill(0.0);
            });
        }
        let (scores, tiles) = (scores.as_chunks_mut().0, (keys, values));
        let (found, seen) = (PartialSoftmax::within(found, n), [const { 0..0 }; UNIT]);
        let softcap = self.shape.softcap;
        let mut pass = Pass { isa: self.isa, queries, scores, softcap, rescale, found, seen, of_head, many };
        match units {
            [unit] if unit.partials.is_none() => {
                let mut joined = self.begin(unit, joined);
                for split in splits.clone() {
                    self.attend_split(units, split, &mut pass, (tiles.0, tiles.1));
                    joined.join(self.isa, &pass.found);
                }
                self.finish(unit, &joined);
            }
            _ => {
                self.attend_split(units, splits.start, &mut pass, tiles);
                self.keep(units, splits.start, &pass.found);
            }
        }
    }

    /// Stores the results of units for a split until they are joined with those of other splits.
    fn keep(&self, units: &[Unit], split: usize, found: &PartialSoftmax) {
        let width = self.shape.value_width.next_multiple_of(BLOCK);
        together(units, |unit, i, at| {
            // SAFETY: no two tasks have the same split of the same unit.
            let Some(partial) = (unsafe { self.partial(unit, split) }) else { return };
            (partial.max[i], partial.total[i]) = (found.max[at], found.total[at]);
            partial.sums[i * width..][..width].copy_from_slice(&found.sums[at * width..][..width]);
        });
    }

    /// How many numbers a unit's result takes.
    fn partial_len(&self, unit: &Unit) -> usize {
        PartialSoftmax::len(unit.len(), self.shape.value_width.next_multiple_of(BLOCK))
    }

    /// The buffer for a unit's result in a split, if there is one.
    ///
    /// # Safety
    /// Nothing else uses it.
    unsafe fn partial(&self, unit: &Unit, split: usize) -> Option<PartialSoftmax<'_>> {
        let len = self.partial_len(unit);
        let start = unit.partials? + (split - unit.splits().start) * len;
        // SAFETY: upheld by the caller.
        Some(PartialSoftmax::within(unsafe { self.partials.slice(start, len) }, unit.len()))
    }

    /// Processes queries for a split.
    /// `buffers` hold a tile of keys and one of values.
    #[allow(clippy::needless_pass_by_value)] // It is what it borrows.
    fn attend_split(&self, units: &[Unit], split: usize, pass: &mut Pass, buffers: (&mut [f32], &mut [f32])) {
        let AttentionShape { key_width, value_width, .. } = *self.shape;
        // All of them read the same data.
        let unit = &units[0];
        let exact = |kv: &KvRows| matches!(kv.numbers(), View::F32(_));
        let exact = exact(self.keys) && self.values.is_none_or(exact);
        let whole = key_width.is_multiple_of(BLOCK) && value_width.is_multiple_of(BLOCK);
        let direct = whole && (!pass.many || exact);
        let width = key_width.max(value_width);
        // Few queries process all key heads together.
        let near_direct = near(2 * width * unit.kv_heads.len());
        let padded = value_width.next_multiple_of(BLOCK);
        pass.found.clear();

        let tiles = |seen: &Range<usize>| seen.start / TILE..seen.end.div_ceil(TILE);
        let (of_unit, of_split) = (tiles(&unit.seen), tiles(&(split * SPLIT..(split + 1) * SPLIT)));
        for tile in of_split.start.max(of_unit.start)..of_split.end.min(of_unit.end) {
            let first = tile * TILE;
            let seen = unit.seen.start.max(first)..unit.seen.end.min(first + TILE);
            // The heads of a row attend to the same positions.
            let rows = units.iter().flat_map(|unit| unit.rows.clone().map(move |row| (unit, row)));
            let mut all = &mut pass.seen[..];
            for (unit, row) in rows {
                let position = self.spans.spans[unit.span].past + row;
                let oldest = self.shape.oldest(position);
                let (from, to) = (seen.start.max(oldest), seen.end.min(position + 1));
                let range = (from.saturating_sub(first) as u8)..(to.saturating_sub(first) as u8);
                let (of_row, rest) = all.split_at_mut(unit.heads.len());
                of_row.fill(range);
                all = rest;
            }
            let slots = self.slots(unit, &seen);
            let rows = |kv: &'a KvRows, width| TileRows {
                numbers: kv.numbers(),
                slots: &slots,
                slot: (kv.width(), unit.kv_heads.start * width),
                width,
            };
            let keys = rows(self.keys, key_width);
            let values = self.values.map(|values| rows(values, value_width));
            if direct {
                let values = values.unwrap_or(keys.up_to(value_width));
                pass.take(0..unit.kv_heads.len(), &keys, &values, near_direct);
                continue;
            }
            for kv_head in 0..unit.kv_heads.len() {
                let keys = widened(self.isa, &keys, kv_head, &seen, buffers.0);
                let values =
                    values.as_ref().map(|values| widened(self.isa, values, kv_head, &seen, buffers.1));
                pass.take(kv_head..kv_head + 1, &keys, &values.unwrap_or(keys.up_to(padded)), near(width));
            }
        }
    }

    /// The slots of a tile's positions, some of which a unit attends to, and of the first positions
    /// of the next tile.
    fn slots(&self, unit: &Unit, seen: &Range<usize>) -> Slots {
        let Spans { block_tokens: size, spans, .. } = self.spans;
        let blocks = spans[unit.span].blocks;
        let slot = |position: usize| blocks[position / size] as usize * size + position % size;
        let there = self.values.map_or(usize::MAX, KvRows::slots).min(self.keys.slots());
        let first = seen.start / TILE * TILE;
        let end = unit.seen.end.min(first + TILE + AHEAD);
        let mut slots = Slots::all(slot(seen.start));
        let mut position = seen.start;
        while position < end {
            let count = (size - position % size).min(end - position);
            let slot = slot(position);
            assert!(slot + count <= there, "attend: slot {slot} of {there}");
            slots.set(position - first, count, slot);
            position += count;
        }
        slots
    }

    /// Joins the tasks' results for the splits of a unit.
    fn join_partials(&self, unit: &Unit, scratch: &mut Aligned<f32>) {
        if unit.partials.is_none() {
            return;
        }
        let mut joined = self.begin(unit, scratch.at_least(self.partial_len(unit)));
        for split in unit.splits() {
            // SAFETY: no two tasks have the same unit.
            let partial = unsafe { self.partial(unit, split) };
            partial.iter().for_each(|partial| joined.join(self.isa, partial));
        }
        self.finish(unit, &joined);
    }

    /// The softmax before the first position.
    fn begin<'b>(&self, unit: &Unit, buffer: &'b mut [f32]) -> PartialSoftmax<'b> {
        let mut found = PartialSoftmax::within(buffer, unit.len());
        found.clear();
        if let Some(sinks) = self.sinks {
            // A sink is a score with value zero.
            for i in 0..unit.len() {
                (found.max[i], found.total[i]) = (sinks[unit.query(i).1], 1.0);
            }
        }
        found
    }

    /// Writes the results.
    fn finish(&self, unit: &Unit, found: &PartialSoftmax) {
        let AttentionShape { heads, value_width, .. } = *self.shape;
        let sums = found.sums.chunks_exact(value_width.next_multiple_of(BLOCK));
        for (i, (sums, &total)) in sums.zip(&*found.total).enumerate() {
            let (row, head) = unit.query(i);
            // SAFETY: no two tasks share both a row and a head.
            let y = unsafe { self.y.slice((row * heads + head) * value_width, value_width) };
            divide(self.isa, sums, total, y);
        }
    }
}

/// The rows of one key head, widened to `tile`: whole runs, padded with zeros.
fn widened<'a>(
    isa: Isa,
    rows: &TileRows,
    kv_head: usize,
    seen: &Range<usize>,
    tile: &'a mut [f32],
) -> TileRows<'a> {
    let padded = rows.width.next_multiple_of(BLOCK);
    let column = kv_head * rows.width;
    for position in seen.clone() {
        let i = position % TILE;
        let ahead = rows.start(i + AHEAD) + column;
        for at in (ahead..ahead + rows.width).step_by(BLOCK) {
            prefetch_line(rows.numbers.place(at));
        }
        let (row, pad) = tile[i * padded..][..padded].split_at_mut(rows.width);
        widen(isa, rows.numbers, rows.start(i) + column, row);
        pad.fill(0.0);
    }
    TileRows { numbers: View::F32(F32(tile)), slots: &Slots::ALONE, slot: (padded, 0), width: padded }
}

#[cfg(test)]
mod tests;
