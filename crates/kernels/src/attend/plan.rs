//! How a call is shared out among threads. Results don't depend on it.

use std::ops::Range;

use super::{AttentionShape, AttentionSpan, SPLIT};
use crate::kv::RUN;

/// The queries that share what is read once: few enough that they and their sums stay in the second cache.
const UNIT: usize = 64;

/// A unit isn't cut to less than so many heads: they would read the same keys again.
const LEAST_HEADS: usize = 8;

/// Some heads of some rows of a span, which go with one key head.
pub(super) struct Unit {
    pub span: usize,
    /// The rows within the span.
    pub rows: Range<usize>,
    /// The row of the call that `rows` begin with.
    pub first_row: usize,
    pub kv_head: usize,
    pub heads: Range<usize>,
    /// The positions that one of the rows sees.
    pub seen: Range<usize>,
    /// Where the results of its splits are kept until they are joined, if several tasks share it.
    pub partials: Option<usize>,
}

impl Unit {
    /// The number of queries.
    pub fn len(&self) -> usize {
        self.rows.len() * self.heads.len()
    }

    /// The row, within the span, and the head of a query.
    pub fn query(&self, i: usize) -> (usize, usize) {
        (self.rows.start + i / self.heads.len(), self.heads.start + i % self.heads.len())
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
        let deep = spans.iter().any(|span| window.is_none_or(|window| window > SPLIT) && span.past >= SPLIT);
        let rows: usize = spans.iter().map(|span| span.rows).sum();
        // What has no second split can only be shared out by heads.
        let parts = match deep {
            true => 1,
            false => enough.div_ceil((rows * kv_heads).max(1)).min(group.div_ceil(LEAST_HEADS)),
        };
        let part = group.div_ceil(parts.max(group.div_ceil(UNIT)));
        let step = (UNIT / part).max(1);

        self.units.clear();
        let mut before = 0;
        for (span, AttentionSpan { rows, past, .. }) in spans.iter().enumerate() {
            for first in (0..*rows).step_by(step) {
                let own = first..(first + step).min(*rows);
                let oldest = window.map_or(0, |window| (past + first + 1).saturating_sub(window));
                for kv_head in 0..kv_heads {
                    for head in (0..group).step_by(part) {
                        let heads = kv_head * group + head..kv_head * group + (head + part).min(group);
                        self.units.push(Unit {
                            span,
                            rows: own.clone(),
                            first_row: before + first,
                            kv_head,
                            heads,
                            seen: oldest..past + own.end,
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
