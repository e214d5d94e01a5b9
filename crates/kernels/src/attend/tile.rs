//! Products of queries with a tile of keys, and weighted sums of a tile of values.
//! Several queries at a time share each load of a key or a value.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // Indices tell registers apart.

use std::ops::Range;

use crate::format::BLOCK;
use crate::kv::{KvSource, View, with_source};
use crate::prefetch::prefetch_line;
use crate::wide::{LANES, Wide, for_each_wide};

/// Positions processed together; tiles begin at multiples of it.
pub(super) const TILE: usize = 64;

/// Queries processed together.
pub(super) const QUERIES: usize = 4;

/// The most rows to prefetch ahead, if rows are read directly from the cache.
pub(super) const AHEAD: usize = 16;

/// How many rows of this many bytes to prefetch ahead: short ones are read quickly.
fn ahead(bytes: usize) -> usize {
    if bytes <= 512 { AHEAD } else { AHEAD / 2 }
}

/// The slots of a tile's positions, and of the first positions of the next tile.
pub(super) struct Slots {
    /// Positions outside of all windows have the slot of one inside.
    of: [usize; TILE + AHEAD],
    /// The last slot.
    last: usize,
}

impl Slots {
    /// The slots of a separate tile.
    pub const ALONE: Slots = {
        let mut of = [0; TILE + AHEAD];
        let mut i = 0;
        while i < of.len() {
            of[i] = i % TILE;
            i += 1;
        }
        Slots { of, last: TILE - 1 }
    };

    /// The same slot for all positions, until others are set.
    pub fn all(slot: usize) -> Slots {
        Slots { of: [slot; TILE + AHEAD], last: slot }
    }

    /// Sets `count` positions from `position` on to slots from `first` on.
    pub fn set(&mut self, position: usize, count: usize, first: usize) {
        for (i, slot) in self.of[position..][..count].iter_mut().enumerate() {
            *slot = first + i;
        }
        self.last = self.last.max(first + count - 1);
    }
}

/// A tile's rows of keys or values.
#[derive(Clone, Copy)]
pub(super) struct TileRows<'a> {
    pub numbers: View<'a>,
    pub slots: &'a Slots,
    /// Numbers per slot, and the index of the first one used.
    pub slot: (usize, usize),
    /// Numbers per head.
    pub width: usize,
}

impl TileRows<'_> {
    /// The index at which the row of a position begins, in the tile or at the beginning of the
    /// next.
    #[inline(always)]
    pub fn start(&self, position: usize) -> usize {
        let (numbers, first) = self.slot;
        self.slots.of[position] * numbers + first
    }

    /// The first `width` numbers of the same rows.
    pub fn up_to(self, width: usize) -> Self {
        TileRows { width, ..self }
    }

    /// Whether the numbers of some heads exist in all rows, given `len` numbers.
    #[inline(always)]
    pub fn fit(&self, len: usize, heads: Range<usize>) -> bool {
        self.slots.last * self.slot.0 + self.slot.1 + heads.end * self.width <= len
    }
}

/// Prefetches the rows that are read next, in address order, because adjacent lines load faster.
/// Prefetches one line per line read, because a CPU supports few outstanding lines.
struct RowPrefetcher<'a> {
    /// The rows before `end` are being read, and then those of the next stream from a position on.
    here: Stream<'a>,
    end: usize,
    then: (Stream<'a>, usize),
    /// Blocks per row, and their size in bytes.
    blocks: usize,
    block_bytes: usize,
    /// The position after the contiguous rows being prefetched.
    position: usize,
    /// The next address in these rows, and the number of blocks left.
    next: *const u8,
    left: usize,
}

/// The location of the rows of some heads.
struct Stream<'a> {
    slots: &'a Slots,
    /// The first byte of slot 0, and the distance between slots in bytes.
    first: *const u8,
    slot: usize,
}

impl<'a> Stream<'a> {
    #[inline(always)]
    fn new(rows: &TileRows<'a>, heads: &Range<usize>) -> Self {
        let (numbers, first) = rows.slot;
        let first = rows.numbers.place(first + heads.start * rows.width);
        Stream { slots: rows.slots, first, slot: numbers * rows.numbers.block_bytes() / BLOCK }
    }

    #[inline(always)]
    fn row(&self, position: usize) -> *const u8 {
        self.first.wrapping_add(self.slots.of[position] * self.slot)
    }
}

impl<'a> RowPrefetcher<'a> {
    /// A prefetcher for some heads, whose rows are read at some positions, and then those of `next`
    /// from a position on.
    #[inline(always)]
    fn new(
        rows: &'a TileRows<'a>,
        heads: Range<usize>,
        positions: Range<usize>,
        then: (&'a TileRows<'a>, usize),
    ) -> Self {
        let (blocks, block_bytes) = (heads.len() * rows.width / BLOCK, rows.numbers.block_bytes());
        RowPrefetcher {
            here: Stream::new(rows, &heads),
            end: positions.end,
            then: (Stream::new(then.0, &heads), then.1),
            blocks,
            block_bytes,
            position: positions.start + ahead(blocks * block_bytes),
            next: std::ptr::null(),
            left: 0,
        }
    }

    /// The address of the next blocks, to be prefetched now.
    /// If fewer are left in the contiguous rows, it moves on to the next ones.
    #[inline(always)]
    fn take(&mut self, blocks: usize) -> *const u8 {
        if self.left < blocks {
            self.next_rows();
        }
        let next = self.next;
        self.next = next.wrapping_add(blocks * self.block_bytes);
        self.left = self.left.saturating_sub(blocks);
        next
    }

    /// Moves on to the contiguous rows from the next position on.
    #[inline(never)]
    fn next_rows(&mut self) {
        let (stream, mut position, end) = match self.position.checked_sub(self.end) {
            None => (&self.here, self.position, self.end),
            Some(after) => (&self.then.0, self.then.1 + after, TILE + AHEAD),
        };
        let first = position.min(TILE + AHEAD - 1);
        let bytes = self.blocks * self.block_bytes;
        (self.next, self.left) = (stream.row(first), self.blocks);
        position += 1;
        while position < end && stream.row(position) == self.next.wrapping_add((position - first) * bytes) {
            self.left += self.blocks;
            position += 1;
        }
        self.position += position - first;
    }
}

for_each_wide! {
    /// `scores[h, i][p] = queries[h, i] · row p` of head h, for `queries: [heads, n, width]` and
    /// some positions of the tile.
    /// Adjacent scores of other positions are overwritten with unspecified values.
    /// `values` are prefetched, since they are read next.
    ///
    /// # Panics
    /// If a row or a query is incomplete.
    #[inline(never)]
    pub(super) fn score<W>(
        queries: &[f32], keys: &TileRows, values: &TileRows, heads: usize, positions: Range<usize>,
        scores: &mut [[f32; TILE]],
    ) {
        // SAFETY: this is compiled for the instruction set of `W`.
        unsafe {
            with_source!(keys.numbers, source => {
                score_in::<W, _>(source, queries, keys, values, heads, positions, scores);
            });
        }
    }

    /// `sums[h, i] = rescale[h, i] sums[h, i] + Σ weights[h, i][p] row
    /// p` of some heads h over some positions of the tile, for `sums: [heads, n, width]`.
    /// Positions are added in order, `near` at a time.
    /// The next tile's `keys` are prefetched.
    ///
    /// # Panics
    /// If a row or a sum is incomplete.
    #[inline(never)]
    pub(super) fn gather<W>(
        sums: &mut [f32], rescale: &[f32], weights: &[[f32; TILE]], values: &TileRows, keys: &TileRows,
        heads: Range<usize>, positions: Range<usize>, near: usize,
    ) {
        // SAFETY: this is compiled for the instruction set of `W`.
        unsafe {
            with_source!(values.numbers, source => {
                gather_in::<W, _>(source, sums, rescale, weights, values, keys, heads, positions, near);
            });
        }
    }
}

/// Number of positions whose keys are read before the next ones: they are contiguous with those of
/// all heads.
const KEYS: usize = 4;

/// # Safety
/// The CPU has the instruction set of `W`.
#[inline(always)]
unsafe fn score_in<W: Wide, S: KvSource>(
    source: S,
    queries: &[f32],
    keys: &TileRows,
    values: &TileRows,
    heads: usize,
    positions: Range<usize>,
    scores: &mut [[f32; TILE]],
) {
    let (width, n) = (keys.width, scores.len() / heads);
    assert!(width.is_multiple_of(BLOCK) && keys.fit(source.len(), 0..heads), "attend: keys");
    assert!(scores.len() == heads * n && queries.len() == scores.len() * width, "attend: queries");
    assert!(positions.end <= TILE, "attend: positions");
    let from = positions.start / KEYS * KEYS;
    let ahead = &mut RowPrefetcher::new(keys, 0..heads, from..positions.end, (values, positions.start));
    for first in (from..positions.end).step_by(KEYS) {
        let starts = std::array::from_fn(|key| keys.start(first + key));
        for head in 0..heads {
            let mut next = if S::NEAR { std::ptr::null() } else { ahead.take(KEYS * width / BLOCK) };
            let mut i = head * n;
            while i < (head + 1) * n {
                let queries = (&queries[i * width..], &mut scores[i..(head + 1) * n]);
                let at = (head * width, first, std::mem::replace(&mut next, std::ptr::null()));
                // SAFETY: rows and queries are complete, as just checked.
                i += unsafe {
                    match (W::BLOCK, queries.1.len()) {
                        (4, 4..) => score_block::<W, S, 4, 4>(source, queries, width, &starts, at),
                        (4, 3) => score_block::<W, S, 3, 4>(source, queries, width, &starts, at),
                        (4, 2) => score_block::<W, S, 2, 4>(source, queries, width, &starts, at),
                        (_, 2..) => score_block::<W, S, 2, 2>(source, queries, width, &starts, at),
                        _ => score_block::<W, S, 1, 4>(source, queries, width, &starts, at),
                    }
                };
            }
        }
    }
}

/// Multiplies Q queries with the keys from a column and a position on, K of [`KEYS`] at a time.
/// Prefetches an equal amount, if given an address.
///
/// # Safety
/// The CPU has the instruction set of `W`; there are Q queries, and all rows.
#[inline(always)]
#[allow(clippy::needless_pass_by_value)] // It is what it borrows.
unsafe fn score_block<W: Wide, S: KvSource, const Q: usize, const K: usize>(
    source: S,
    (queries, scores): (&[f32], &mut [[f32; TILE]]),
    width: usize,
    starts: &[usize; KEYS],
    (column, first, mut next): (usize, usize, *const u8),
) -> usize {
    let queries = queries.as_ptr();
    for from in (0..KEYS).step_by(K) {
        // SAFETY: upheld by the caller: all numbers are within rows or queries.
        unsafe {
            let mut sums = [[W::splat(0.0); K]; Q];
            for i in (0..width).step_by(BLOCK) {
                if !next.is_null() {
                    for k in 0..K {
                        prefetch_line(next.wrapping_add(k * S::BLOCK_BYTES));
                    }
                    next = next.wrapping_add(K * S::BLOCK_BYTES);
                }
                for k in 0..K {
                    let [low, high] = source.block::<W>(starts[from + k] + column + i);
                    for q in 0..Q {
                        let query = queries.add(q * width + i);
                        sums[q][k] = low.mul_add(W::load(query), sums[q][k]);
                        sums[q][k] = high.mul_add(W::load(query.add(LANES)), sums[q][k]);
                    }
                }
            }
            let first = first + from;
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
    Q
}

/// # Safety
/// The CPU has the instruction set of `W`.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // As `gather`.
unsafe fn gather_in<W: Wide, S: KvSource>(
    source: S,
    sums: &mut [f32],
    rescale: &[f32],
    weights: &[[f32; TILE]],
    values: &TileRows,
    keys: &TileRows,
    heads: Range<usize>,
    positions: Range<usize>,
    near: usize,
) {
    let (width, n) = (values.width, weights.len() / heads.len());
    assert!(width.is_multiple_of(BLOCK) && values.fit(source.len(), heads.clone()), "attend: values");
    assert!(weights.len() == heads.len() * n && sums.len() == weights.len() * width, "attend: sums");
    assert!(rescale.len() == weights.len() && positions.end <= TILE, "attend: weights");
    let step = W::BLOCK.min(QUERIES);
    let ahead = &mut RowPrefetcher::new(values, heads.clone(), positions.start..TILE, (keys, TILE));
    let mut starts = [0; TILE];
    let mut from = positions.start;
    while from < positions.end {
        let part = from..positions.end.min((from / near + 1) * near);
        for p in part.clone() {
            starts[p] = values.start(p);
        }
        let is_first = from == positions.start;
        from = part.end;
        let of_heads = sums.chunks_mut(n * width).zip(weights.chunks(n)).zip(rescale.chunks(n));
        for (head, ((sums, weights), rescale)) in heads.clone().zip(of_heads) {
            let at = Place { starts: &starts, width, column: head * width, positions: part.clone() };
            let queries = sums.chunks_mut(step * width).zip(weights.chunks(step)).zip(rescale.chunks(step));
            let mut prefetches = !S::NEAR;
            for ((sums, weights), rescale) in queries {
                let to = (sums, is_first.then_some(rescale));
                let ahead = std::mem::replace(&mut prefetches, false).then_some(&mut *ahead);
                // SAFETY: rows and sums are complete, as just checked.
                unsafe {
                    match (W::BLOCK, weights) {
                        (4, [a, b, c, d]) => {
                            gather_rows::<W, S, 4, 2>(source, ahead, at.clone(), [a, b, c, d], to);
                        }
                        (4, [a, b, c]) => gather_rows::<W, S, 3, 2>(source, ahead, at.clone(), [a, b, c], to),
                        (4, [a, b]) => gather_rows::<W, S, 2, 4>(source, ahead, at.clone(), [a, b], to),
                        (4, [a]) => gather_rows::<W, S, 1, 4>(source, ahead, at.clone(), [a], to),
                        (_, [a, b]) => gather_rows::<W, S, 2, 1>(source, ahead, at.clone(), [a, b], to),
                        (_, [a]) => gather_rows::<W, S, 1, 2>(source, ahead, at.clone(), [a], to),
                        _ => {}
                    }
                }
            }
        }
    }
}

/// Some positions of a tile, with the indices of their rows, and the current column.
#[derive(Clone)]
struct Place<'a> {
    starts: &'a [usize; TILE],
    /// Numbers per row.
    width: usize,
    column: usize,
    positions: Range<usize>,
}

/// Adds the values from a column on at some positions to Q queries, C blocks of a value at a time.
///
/// # Safety
/// As [`gather_block`].
#[inline(always)]
unsafe fn gather_rows<W: Wide, S: KvSource, const Q: usize, const C: usize>(
    source: S,
    mut ahead: Option<&mut RowPrefetcher>,
    mut at: Place,
    weights: [&[f32; TILE]; Q],
    (sums, rescale): (&mut [f32], Option<&[f32]>),
) {
    let width = at.width;
    let wide = width / (C * BLOCK) * (C * BLOCK);
    let mut first = 0;
    // SAFETY: upheld by the caller.
    unsafe {
        while first < wide {
            let to = (&mut sums[first..], rescale);
            gather_block::<W, S, Q, C>(source, ahead.as_deref_mut(), &at, weights, to);
            (first, at.column) = (first + C * BLOCK, at.column + C * BLOCK);
        }
        while first < width {
            let to = (&mut sums[first..], rescale);
            gather_block::<W, S, Q, 1>(source, ahead.as_deref_mut(), &at, weights, to);
            (first, at.column) = (first + BLOCK, at.column + BLOCK);
        }
    }
}

/// Adds C blocks of every value.
///
/// # Safety
/// The CPU has the instruction set of `W`; there are Q queries, the blocks, and all rows.
#[inline(always)]
unsafe fn gather_block<W: Wide, S: KvSource, const Q: usize, const C: usize>(
    source: S,
    ahead: Option<&mut RowPrefetcher>,
    Place { starts, width, column, positions }: &Place,
    weights: [&[f32; TILE]; Q],
    (sums, rescale): (&mut [f32], Option<&[f32]>),
) {
    let mut next = ahead.map_or(std::ptr::null(), |ahead| ahead.take(C * positions.len()));
    // SAFETY: upheld by the caller: all numbers are within rows or sums.
    unsafe {
        let sums = sums.as_mut_ptr();
        let mut now = [[[W::splat(0.0); 2]; C]; Q];
        for q in 0..Q {
            for c in 0..C {
                let sums = sums.add(q * width + c * BLOCK);
                now[q][c] = [W::load(sums), W::load(sums.add(LANES))];
            }
        }
        if let Some(rescale) = rescale {
            for q in 0..Q {
                let rescale = W::splat(rescale[q]);
                for c in 0..C {
                    now[q][c] = [now[q][c][0].mul(rescale), now[q][c][1].mul(rescale)];
                }
            }
        }
        for p in positions.clone() {
            let start = starts.get_unchecked(p) + column;
            if !next.is_null() {
                for c in 0..C {
                    prefetch_line(next.wrapping_add(c * S::BLOCK_BYTES));
                }
                next = next.wrapping_add(C * S::BLOCK_BYTES);
            }
            for c in 0..C {
                let [low, high] = source.block::<W>(start + c * BLOCK);
                for q in 0..Q {
                    let weight = W::splat(*weights[q].get_unchecked(p));
                    now[q][c][0] = weight.mul_add(low, now[q][c][0]);
                    now[q][c][1] = weight.mul_add(high, now[q][c][1]);
                }
            }
        }
        for q in 0..Q {
            for c in 0..C {
                let sums = sums.add(q * width + c * BLOCK);
                now[q][c][0].store(sums);
                now[q][c][1].store(sums.add(LANES));
            }
        }
    }
}
