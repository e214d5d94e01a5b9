//! Causal attention over rows kept in slots.
//!
//! Positions are taken in tiles that begin at fixed positions, and the softmax is kept up to date from tile to tile, so
//! that the result of a row depends on neither the rows beside it nor the blocks that its positions lie in.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ops::Range;

use crate::dense::{accumulate, dots};
use crate::exp::exp;
use crate::isa::for_each_isa;
use crate::kv::KvRows;
use crate::threads::Disjoint;
use crate::{Cpu, Isa};

/// The positions that are handled together: a tile of keys stays in the first cache.
const TILE: usize = 32;

/// The rows that share a tile once it is read.
const ROWS: usize = 8;

/// The heads of an attention and what they see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Query heads (H).
    pub heads: usize,
    /// Key and value heads (K), a divisor of H: query head h goes with head h / (H / K).
    pub kv_heads: usize,
    /// The numbers of a key and of a query.
    pub key_width: usize,
    /// The numbers of a value.
    pub value_width: usize,
    /// What a dot product of query and key is multiplied by.
    pub scale: f32,
    /// Position p sees p - window + 1 to p; all up to p if `None`.
    pub window: Option<usize>,
}

/// Rows of one sequence at consecutive positions; they follow the rows of the span before.
#[derive(Clone, Copy, Debug)]
pub struct AttentionSpan<'a> {
    /// The number of rows.
    pub rows: usize,
    /// The position of the first row: the number of positions before it.
    pub past: usize,
    /// The row of position p is in slot `blocks[p / block_tokens] * block_tokens + p % block_tokens`. Blocks that lie
    /// wholly before the windows of all rows may hold any number: they aren't read.
    pub blocks: &'a [u32],
}

thread_local! {
    /// The tiles and the running softmaxes of the thread's task.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// `y[t, h] = Σ softmax(scale q[t, h] · keys) values` over the positions that row t sees, its own among them, which are
/// written before. q: `[T, H * key_width]`, y: `[T, H * value_width]`.
///
/// `sinks: [H]` are extra scores, whose part of the softmax is dropped. Without `values`, a value is the first
/// `value_width` numbers of its key.
///
/// # Panics
/// If lengths and widths don't fit each other, or a block that is seen is not there.
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
    match values {
        Some(values) => assert_eq!(values.width(), kv_heads * value_width, "attend: values"),
        None => assert!(kv_heads == 1 && value_width <= key_width, "attend: values within keys"),
    }
    assert!(sinks.is_none_or(|sinks| sinks.len() == heads), "attend: sinks");
    assert_eq!(q.len(), rows * heads * key_width, "attend: q");
    assert_eq!(y.len(), rows * heads * value_width, "attend: y");

    // A task is some rows and some of the heads that share a key head: fewer where there would be too few tasks.
    let group = heads / kv_heads;
    let units: usize = spans.iter().map(|span| span.rows.div_ceil(ROWS)).sum();
    let wanted = if cpu.threads.count() == 1 { 1 } else { 2 * cpu.threads.count() };
    let parts = wanted.div_ceil((units * kv_heads).max(1)).min(group);
    let part = group.div_ceil(parts);
    let parts = group.div_ceil(part);
    let y = Disjoint::new(y);
    let call = Call { shape: *shape, keys, values, block_tokens, sinks, q, y: &y };
    let tasks = units * kv_heads * parts;
    cpu.threads.run(tasks, &|task| {
        // Later rows see more: they go first.
        let task = tasks - 1 - task;
        let (unit, task) = (task / (kv_heads * parts), task % (kv_heads * parts));
        let Some((span, first_row, rows)) = rows_of(spans, unit) else { return };
        let (kv_head, part_index) = (task / parts, task % parts);
        let first_head = kv_head * group + part_index * part;
        let heads = first_head..(first_head + part).min((kv_head + 1) * group);
        SCRATCH.with_borrow_mut(|scratch| {
            attend_rows(cpu.isa, cpu.isa, &call, &span, first_row, rows, kv_head, heads, scratch);
        });
    });
}

/// The span of a unit of up to [`ROWS`] rows, the row of the call that the span begins with, and the unit's rows within
/// the span.
fn rows_of<'a>(
    spans: &[AttentionSpan<'a>],
    mut unit: usize,
) -> Option<(AttentionSpan<'a>, usize, Range<usize>)> {
    let mut row = 0;
    for span in spans {
        let units = span.rows.div_ceil(ROWS);
        if unit < units {
            return Some((*span, row, unit * ROWS..span.rows.min((unit + 1) * ROWS)));
        }
        unit -= units;
        row += span.rows;
    }
    None
}

/// What all tasks of a call share.
struct Call<'a> {
    shape: AttentionShape,
    keys: &'a KvRows,
    values: Option<&'a KvRows>,
    block_tokens: usize,
    sinks: Option<&'a [f32]>,
    q: &'a [f32],
    y: &'a Disjoint<'a, f32>,
}

for_each_isa! {
    /// `rows` of the span, which begins at `first_row` of the call, and `heads`, which go with `kv_head`.
    fn attend_rows(
        isa: Isa, call: &Call, span: &AttentionSpan, first_row: usize, rows: Range<usize>, kv_head: usize,
        heads: Range<usize>, scratch: &mut Vec<f32>,
    ) {
        let AttentionShape { heads: all_heads, key_width, value_width, scale, window, .. } = call.shape;
        let own_values = call.values.map_or(0, |_| value_width);
        scratch.resize(TILE * (key_width + own_values) + 2 * rows.len() * heads.len(), 0.0);
        let (tile_keys, scratch) = scratch.split_at_mut(TILE * key_width);
        let (tile_values, scratch) = scratch.split_at_mut(TILE * own_values);
        let (most, total) = scratch.split_at_mut(rows.len() * heads.len());

        let q_of = |row: usize, head: usize| {
            &call.q[((first_row + row) * all_heads + head) * key_width..][..key_width]
        };
        // SAFETY: no two tasks share both a row and a head.
        let y_of = |row: usize, head: usize| unsafe {
            call.y.slice(((first_row + row) * all_heads + head) * value_width, value_width)
        };
        let oldest_of = |position: usize| window.map_or(0, |window| (position + 1).saturating_sub(window));
        let each = |row: usize, head: usize| (row - rows.start) * heads.len() + head - heads.start;

        for row in rows.clone() {
            for head in heads.clone() {
                y_of(row, head).fill(0.0);
                let i = each(row, head);
                // A sink is a score whose value is zero.
                (most[i], total[i]) = call.sinks.map_or((f32::NEG_INFINITY, 0.0), |sinks| (sinks[head], 1.0));
            }
        }
        let oldest = oldest_of(span.past + rows.start);
        let end = span.past + rows.end;
        for tile in oldest / TILE..end.div_ceil(TILE) {
            let seen = oldest.max(tile * TILE)..end.min((tile + 1) * TILE);
            let slots = (call.block_tokens, span.blocks);
            read_positions(isa, call.keys, slots, seen.clone(), kv_head, key_width, tile_keys);
            let (values, stride) = match call.values {
                Some(values) => {
                    read_positions(isa, values, slots, seen.clone(), kv_head, value_width, tile_values);
                    (&*tile_values, value_width)
                }
                None => (&*tile_keys, key_width),
            };
            for row in rows.clone() {
                let position = span.past + row;
                let from = seen.start.max(oldest_of(position));
                let to = seen.end.min(position + 1);
                if from >= to {
                    continue;
                }
                let (keys, values) = (&tile_keys[(from - seen.start) * key_width..], &values[(from - seen.start) * stride..]);
                for head in heads.clone() {
                    let i = each(row, head);
                    let mut scores = [f32::NEG_INFINITY; TILE];
                    dots(isa, q_of(row, head), keys, key_width, &mut scores[..to - from]);
                    let kept = soften(&mut scores, to - from, scale, &mut most[i], &mut total[i]);
                    let y = y_of(row, head);
                    if kept != 1.0 {
                        y.iter_mut().for_each(|y| *y *= kept);
                    }
                    accumulate(isa, y, &scores[..to - from], values, stride);
                }
            }
        }
        for row in rows.clone() {
            for head in heads.clone() {
                let total = total[each(row, head)];
                y_of(row, head).iter_mut().for_each(|y| *y /= total);
            }
        }
    }
}

/// Makes weights of the first `count` scores of a tile, which are minus infinity from there on: `e^(score - most)`, with
/// the running maximum and sum of weights brought up to date. Returns what weights of earlier tiles are to be multiplied
/// by.
#[inline(always)]
fn soften(scores: &mut [f32; TILE], count: usize, scale: f32, most: &mut f32, total: &mut f32) -> f32 {
    let mut lane = [*most; 8];
    scores[..count].iter_mut().for_each(|score| *score *= scale);
    for scores in scores.as_chunks::<8>().0 {
        for (&score, most) in scores.iter().zip(&mut lane) {
            *most = if score > *most { score } else { *most };
        }
    }
    let highest = lane.into_iter().fold(*most, |most, score| if score > most { score } else { most });
    for score in scores.iter_mut() {
        *score = exp(*score - highest);
    }
    let mut lane = [0f32; 8];
    for scores in scores.as_chunks::<8>().0 {
        for (score, lane) in scores.iter().zip(&mut lane) {
            *lane += score;
        }
    }
    let kept = exp(*most - highest);
    *most = highest;
    *total = total.mul_add(kept, crate::lanes::sum(lane));
    kept
}

/// `out` becomes the numbers of `head` in the rows of `positions`.
#[inline(always)]
fn read_positions(
    isa: Isa,
    kv: &KvRows,
    (block_tokens, blocks): (usize, &[u32]),
    positions: Range<usize>,
    head: usize,
    width: usize,
    out: &mut [f32],
) {
    let mut position = positions.start;
    let mut out = out;
    while position < positions.end {
        let within = position % block_tokens;
        let count = (block_tokens - within).min(positions.end - position);
        let slot = blocks[position / block_tokens] as usize * block_tokens + within;
        let (now, later) = out.split_at_mut(count * width);
        kv.read(isa, slot, head * width, width, now);
        (out, position) = (later, position + count);
    }
}

#[cfg(test)]
mod tests;
