//! How a call is shared out among threads. Results don't depend on it.

use std::ops::Range;

use super::{AttentionShape, AttentionSpan, SPLIT};
use crate::kv::RUN;

/// The queries that share what is read once: few enough that they and their sums stay in the second cache.
pub(super) const UNIT: usize = 256;

/// Up to so many queries read keys and values as they are kept; for more it is better to widen them first.
pub(super) const DIRECT: usize = 16;

/// Heads of one key head aren't shared out in parts of less: these would read the same keys again.
const LEAST_HEADS: usize = 8;

/// Some rows of a span, and some heads of some key heads.
pub(super) struct Unit {
    pub span: usize,
    /// The rows within the span.
    pub rows: Range<usize>,
    /// The row of the call that `rows` begin with.
    pub first_row: usize,
    pub kv_heads: Range<usize>,
    /// Of each group.
    pub heads: Range<usize>,
    /// The heads in a group.
    pub group: usize,
    /// The positions that one of the rows sees.
    pub seen: Range<usize>,
    /// Where the results of its splits are kept until they are joined, if several tasks share it.
    pub partials: Option<usize>,
}

impl Unit {
    /// The number of queries of a key head; at most [`UNIT`].
    pub fn queries(&self) -> usize {
        self.rows.len() * self.heads.len()
    }

    /// The number of queries: those of the first key head, then those of the next.
    pub fn len(&self) -> usize {
        self.kv_heads.len() * self.queries()
    }

    /// The row of the call and the head of a query.
    pub fn query(&self, i: usize) -> (usize, usize) {
        let (kv_head, i) = (self.kv_heads.start + i / self.queries(), i % self.queries());
        let head = kv_head * self.group + self.heads.start + i % self.heads.len();
        (self.first_row + i / self.heads.len(), head)
    }

    /// The splits that `seen` touches.
    pub fn splits(&self) -> Range<usize> {
        self.seen.start / SPLIT..self.seen.end.div_ceil(SPLIT)
    }
}

/// A unit, or one of its splits.
pub(super) struct Task {
    pub unit: usize,
    pub splits: Range<usize>,
}

/// The tasks of a call; its room is used again.
pub(super) struct Plan {
    pub units: Vec<Unit>,
    pub tasks: Vec<Task>,
    pub partials: Vec<f32>,
}

impl Plan {
    pub const fn new() -> Plan {
        Plan { units: Vec::new(), tasks: Vec::new(), partials: Vec::new() }
    }

    /// Plans a call for so many threads.
    pub fn make(&mut self, threads: usize, shape: &AttentionShape, spans: &[AttentionSpan]) {
        let AttentionShape { heads, kv_heads, value_width, window, .. } = *shape;
        let group = heads / kv_heads;
        let enough = if threads == 1 { 1 } else { 4 * threads };
        let seen = |past: usize, rows: &Range<usize>| {
            window.map_or(0, |window| (past + rows.start + 1).saturating_sub(window))..past + rows.end
        };
        let splits = |seen: Range<usize>| seen.end.div_ceil(SPLIT) - seen.start / SPLIT;
        let splits: usize = spans.iter().map(|span| splits(seen(span.past, &(0..span.rows)))).sum();
        let parts = enough.div_ceil(splits.max(1));

        self.units.clear();
        let mut before = 0;
        for (span, AttentionSpan { rows, past, .. }) in spans.iter().enumerate() {
            // Where there are few queries, the time goes into reading: best is what lies together, all key heads.
            let (part, together) = match rows * group <= DIRECT {
                true => (group, kv_heads.div_ceil(parts)),
                false => (group.div_ceil(parts).max(LEAST_HEADS).min(group).min(UNIT), 1),
            };
            let part = if *rows > DIRECT { group.min(UNIT) } else { part };
            let step = UNIT / part;
            for first in (0..*rows).step_by(step) {
                let rows = first..(first + step).min(*rows);
                for kv_head in (0..kv_heads).step_by(together) {
                    for head in (0..group).step_by(part) {
                        self.units.push(Unit {
                            span,
                            rows: rows.clone(),
                            first_row: before + first,
                            kv_heads: kv_head..(kv_head + together).min(kv_heads),
                            heads: head..(head + part).min(group),
                            group,
                            seen: seen(*past, &rows),
                            partials: None,
                        });
                    }
                }
            }
            before += rows;
        }

        self.tasks.clear();
        let few = self.units.len() < enough;
        let mut room = 0;
        for (index, unit) in self.units.iter_mut().enumerate() {
            let splits = unit.splits();
            if few && splits.len() > 1 {
                unit.partials = Some(room);
                room += splits.len() * unit.len() * (value_width.next_multiple_of(RUN) + 2);
                self.tasks.extend(splits.map(|split| Task { unit: index, splits: split..split + 1 }));
            } else {
                self.tasks.push(Task { unit: index, splits });
            }
        }
        if self.partials.len() < room {
            self.partials.resize(room, 0.0);
        }
    }
}
