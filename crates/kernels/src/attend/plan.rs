//! Divides a call among threads.
//! Results don't depend on the division.

use std::ops::Range;

use super::softmax::PartialSoftmax;
use super::{AttentionShape, AttentionSpan, SPLIT};
use crate::Aligned;
use crate::format::BLOCK;

/// The most queries that share one read: few enough that they and their sums stay in the L2 cache.
pub(super) const UNIT: usize = 256;

/// Up to this many queries read keys and values directly from the cache; for more, it is better to
/// widen them first.
pub(super) const DIRECT: usize = 24;

/// A key head's heads aren't divided into smaller parts, since these would read the same keys
/// again.
const LEAST_HEADS: usize = 8;

/// Some rows of a span, with some heads of some key heads.
pub(super) struct Unit {
    pub span: usize,
    /// The rows within the span.
    pub rows: Range<usize>,
    /// The row of the call at which `rows` begin.
    pub first_row: usize,
    pub kv_heads: Range<usize>,
    /// Heads within each group.
    pub heads: Range<usize>,
    /// Heads per group.
    pub group: usize,
    /// The positions that any of the rows attends to.
    pub seen: Range<usize>,
    /// Where the results of its splits are stored until they are joined, if several tasks share it.
    pub partials: Option<usize>,
}

impl Unit {
    /// The number of queries per key head; at most [`UNIT`].
    pub fn queries(&self) -> usize {
        self.rows.len() * self.heads.len()
    }

    /// The total number of queries, ordered by key head.
    pub fn len(&self) -> usize {
        self.kv_heads.len() * self.queries()
    }

    /// The row of the call, and the head, of a query.
    pub fn query(&self, i: usize) -> (usize, usize) {
        let (kv_head, i) = (self.kv_heads.start + i / self.queries(), i % self.queries());
        let head = kv_head * self.group + self.heads.start + i % self.heads.len();
        (self.first_row + i / self.heads.len(), head)
    }

    /// The splits that overlap `seen`.
    pub fn splits(&self) -> Range<usize> {
        splits(&self.seen)
    }
}

/// Calls `each` with the queries of units that process a split together, by unit and number, and
/// the query's index among all.
/// The first key head's queries of every unit precede those of the next key head.
pub(super) fn together<'a>(units: &'a [Unit], mut each: impl FnMut(&'a Unit, usize, usize)) {
    let of_head: usize = units.iter().map(Unit::queries).sum();
    let mut before = 0;
    for unit in units {
        for kv_head in 0..unit.kv_heads.len() {
            for i in 0..unit.queries() {
                each(unit, kv_head * unit.queries() + i, kv_head * of_head + before + i);
            }
        }
        before += unit.queries();
    }
}

/// A unit with some of its splits, or a split with several units that read it together.
/// These have the same key heads, and attend to the same blocks there.
pub(super) struct Task {
    pub units: Range<usize>,
    pub splits: Range<usize>,
}

/// The spans of a call.
#[derive(Clone, Copy)]
pub(super) struct Spans<'a> {
    pub shape: &'a AttentionShape,
    pub block_tokens: usize,
    pub spans: &'a [AttentionSpan<'a>],
}

impl Spans<'_> {
    /// The positions that any of some rows of a span attends to.
    fn seen(&self, span: usize, rows: &Range<usize>) -> Range<usize> {
        let AttentionSpan { past, .. } = self.spans[span];
        self.shape.oldest(past + rows.start)..past + rows.end
    }

    /// The splits that a span overlaps.
    fn splits(&self, span: usize) -> Range<usize> {
        splits(&self.seen(span, &(0..self.spans[span].rows)))
    }

    /// Whether two spans attend to all of a split, in the same blocks.
    fn share(&self, a: usize, b: usize, split: usize) -> bool {
        let (first, end) = (split * SPLIT, (split + 1) * SPLIT);
        let [a, b] = [a, b].map(|span| {
            let AttentionSpan { past, blocks, .. } = self.spans[span];
            let whole = self.seen(span, &(0..1)).start <= first && end <= past;
            whole.then(|| &blocks[first / self.block_tokens..end.div_ceil(self.block_tokens)])
        });
        a.is_some() && a == b
    }
}

/// The splits that overlap positions.
fn splits(seen: &Range<usize>) -> Range<usize> {
    seen.start / SPLIT..seen.end.div_ceil(SPLIT)
}

/// The tasks of a call; buffers are reused.
pub(super) struct Plan {
    pub units: Vec<Unit>,
    pub tasks: Vec<Task>,
    pub partials: Aligned<f32>,
    /// The spans with few queries; those that share blocks are adjacent.
    small: Vec<usize>,
}

impl Plan {
    pub const fn new() -> Plan {
        Plan { units: Vec::new(), tasks: Vec::new(), partials: Aligned::new(), small: Vec::new() }
    }

    /// Plans a call for this many threads.
    pub fn make(&mut self, threads: usize, call: Spans) {
        let AttentionShape { heads, kv_heads, value_width, .. } = *call.shape;
        let group = heads / kv_heads;
        let enough = if threads == 1 { 1 } else { 4 * threads };
        let Plan { units, tasks, partials, small } = self;

        small.clear();
        small.extend((0..call.spans.len()).filter(|&span| {
            let rows = call.spans[span].rows;
            rows > 0 && rows * group <= DIRECT
        }));
        small.sort_unstable_by_key(|&span| call.spans[span].blocks);
        let shared = |pair: &[usize]| {
            call.splits(pair[1]).filter(|&split| call.share(pair[0], pair[1], split)).count()
        };
        let shared: usize = small.windows(2).map(shared).sum();
        let read: usize = (0..call.spans.len()).map(|span| call.splits(span).len()).sum();
        // Reading rows in parts is slow: only do it if threads would otherwise be idle.
        let parts = threads.div_ceil((read - shared).max(1));

        units.clear();
        let mut add = |span: usize, rows: Range<usize>, kv_heads: Range<usize>, heads: Range<usize>| {
            let before: usize = call.spans[..span].iter().map(|span| span.rows).sum();
            let (first_row, seen) = (before + rows.start, call.seen(span, &rows));
            units.push(Unit { span, rows, first_row, kv_heads, heads, group, seen, partials: None });
        };
        // With few queries, reading dominates: it is best to read contiguous data, of all key
        // heads.
        let together = kv_heads.div_ceil(parts);
        for kv_head in (0..kv_heads).step_by(together) {
            for &span in &*small {
                let rows = 0..call.spans[span].rows;
                add(span, rows, kv_head..(kv_head + together).min(kv_heads), 0..group);
            }
        }
        for (span, &AttentionSpan { rows, .. }) in call.spans.iter().enumerate() {
            if rows * group <= DIRECT {
                continue;
            }
            let part = if rows > DIRECT { group } else { group.div_ceil(parts).max(LEAST_HEADS).min(group) };
            let part = part.min(UNIT);
            let step = UNIT / part;
            for first in (0..rows).step_by(step) {
                for kv_head in 0..kv_heads {
                    for head in (0..group).step_by(part) {
                        let rows = first..(first + step).min(rows);
                        add(span, rows, kv_head..kv_head + 1, head..(head + part).min(group));
                    }
                }
            }
        }

        let of_small = small.len() * kv_heads.div_ceil(together);
        let parallel = units.len() < enough;
        let mut len = 0;
        for (index, unit) in units.iter_mut().enumerate() {
            let splits = unit.splits().len();
            if (parallel && splits > 1) || (shared > 0 && index < of_small) {
                unit.partials = Some(len);
                len += splits * PartialSoftmax::len(unit.len(), value_width.next_multiple_of(BLOCK));
            }
        }
        partials.at_least(len);

        tasks.clear();
        // Whether a unit reads a split together with the previous unit.
        let queries = units[..of_small].iter().map(Unit::queries).max().unwrap_or(DIRECT);
        let joins = |unit: usize, split: usize| {
            let fits = unit < of_small && !(unit % small.len()).is_multiple_of(DIRECT / queries);
            fits && call.share(units[unit - 1].span, units[unit].span, split)
        };
        for (index, unit) in units.iter().enumerate() {
            if unit.partials.is_none() {
                tasks.push(Task { units: index..index + 1, splits: unit.splits() });
                continue;
            }
            for split in unit.splits().filter(|&split| !joins(index, split)) {
                let end = (index + 1..).find(|&next| !joins(next, split)).unwrap_or(index + 1);
                tasks.push(Task { units: index..end, splits: split..split + 1 });
            }
        }
    }
}
