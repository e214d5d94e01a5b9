//! The cache of a layer: keys and values in blocks, recurrent state in slots.

use std::ops::Range;
use std::time::{Duration, Instant};

use alara_kernels::{Aligned, Cpu, KvFormat, KvRows};

use crate::backend::{AttentionShape, KvType, Span, StateShape, Step};
use crate::cache::{BlockId, Layout, SlotId};
use crate::{Error, Result};

/// The KV cache of one layer.
#[derive(Debug)]
pub struct Kv {
    /// Tokens per block.
    pub block_tokens: usize,
    /// `[blocks * block_tokens, K * E]`
    pub keys: KvRows,
    /// `None` if values are part of the keys.
    pub values: Option<KvRows>,
    /// Numbers of a key row and of a value row.
    widths: (usize, usize),
}

impl Kv {
    /// Zeros, which take no memory until they are written.
    pub fn new(layout: Layout, shape: &AttentionShape, kind: KvType) -> Result<Self> {
        let format = match kind {
            KvType::F32 => KvFormat::F32,
            KvType::F16 => KvFormat::F16,
            KvType::Q8_0 => KvFormat::Q8_0,
        };
        let rows = |width| {
            let rows = KvRows::zeros(layout.blocks * layout.block_tokens, width, format);
            rows.ok_or_else(|| Error::Backend {
                operation: "make the KV cache".into(),
                message: format!("a q8_0 cache needs rows in multiples of 32, not {width}; use f16"),
            })
        };
        let widths = shape.cached();
        let values = if widths.1 == 0 { None } else { Some(rows(widths.1)?) };
        Ok(Kv { block_tokens: layout.block_tokens, keys: rows(widths.0)?, values, widths })
    }

    /// Bytes of `rows` rows.
    pub fn bytes_of(&self, rows: usize) -> usize {
        self.keys.bytes_of(rows) + self.values.as_ref().map_or(0, |values| values.bytes_of(rows))
    }

    /// Bytes of all rows, written or not.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.keys.bytes() + self.values.as_ref().map_or(0, KvRows::bytes)
    }

    /// Copies the rows of block `from` to block `to`.
    pub fn copy_block(&mut self, from: BlockId, to: BlockId) {
        let size = self.block_tokens;
        for rows in [Some(&mut self.keys), self.values.as_mut()].into_iter().flatten() {
            rows.copy(from.0 as usize * size, to.0 as usize * size, size);
        }
    }

    /// Appends keys, then values, of `rows` rows from `row` on to `out`.
    pub fn save(&self, row: usize, rows: usize, out: &mut Vec<u8>) {
        self.keys.save(row, rows, out);
        if let Some(values) = &self.values {
            values.save(row, rows, out);
        }
    }

    /// Restores the bytes saved by [`Kv::save`].
    pub fn load(&mut self, row: usize, rows: usize, bytes: &[u8]) {
        let (keys, rest) = bytes.split_at(self.keys.bytes_of(rows));
        self.keys.load(row, rows, keys);
        if let Some(values) = &mut self.values {
            values.load(row, rows, rest);
        }
    }

    /// Writes the rows of `span`, which belong in `blocks`.
    pub fn append(&mut self, cpu: &Cpu, span: &Span, blocks: &[u32], k: &[f32], v: Option<&[f32]>) {
        let size = self.block_tokens;
        let (key, value) = self.widths;
        let mut done = 0;
        while done < span.rows {
            let position = span.past + done;
            let group = (size - position % size).min(span.rows - done);
            let slot = blocks[position / size] as usize * size + position % size;
            self.keys.write(cpu, slot, &k[done * key..(done + group) * key]);
            if let (Some(rows), Some(v)) = (&mut self.values, v) {
                rows.write(cpu, slot, &v[done * value..(done + group) * value]);
            }
            done += group;
        }
    }
}

/// The recurrent state of one layer: for each slot the convolution's history and the matrices.
#[derive(Debug)]
pub struct RecurrentState {
    history: Aligned<f32>,
    matrices: Aligned<f32>,
    /// Numbers per slot in each.
    widths: (usize, usize),
}

impl RecurrentState {
    /// Zeros, which take no memory until they are written.
    pub fn new(slots: usize, shape: &StateShape) -> Self {
        let widths = shape.numbers();
        RecurrentState {
            history: Aligned::zeros(slots * widths.0),
            matrices: Aligned::zeros(slots * widths.1),
            widths,
        }
    }

    /// Bytes of all slots, written or not.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        size_of_val(&self.history[..]) + size_of_val(&self.matrices[..])
    }

    /// History and matrices of a slot.
    fn of(&mut self, slot: SlotId) -> (&mut [f32], &mut [f32]) {
        let slot = slot.0 as usize;
        let history = &mut self.history[slot * self.widths.0..][..self.widths.0];
        (history, &mut self.matrices[slot * self.widths.1..][..self.widths.1])
    }

    /// Appends history and matrices of a slot to `out`.
    pub fn save(&self, slot: SlotId, out: &mut Vec<u8>) {
        let slot = slot.0 as usize;
        for (numbers, width) in [(&self.history, self.widths.0), (&self.matrices, self.widths.1)] {
            let from = out.len();
            out.resize(from + 4 * width, 0);
            let numbers = &numbers[slot * width..(slot + 1) * width];
            for (bytes, number) in out[from..].as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
                *bytes = number.to_le_bytes();
            }
        }
    }

    /// Restores the bytes saved by [`RecurrentState::save`].
    pub fn load(&mut self, slot: SlotId, bytes: &[u8]) {
        let (history, matrices) = self.of(slot);
        let numbers = history.iter_mut().chain(matrices);
        for (number, bytes) in numbers.zip(bytes.as_chunks::<4>().0) {
            *number = f32::from_le_bytes(*bytes);
        }
    }

    /// Calls `advance` with the rows of every sequence of `step` in order, split where state has to
    /// be saved.
    /// It also takes the sequence's history and matrices, and updates them.
    /// Returns the time spent on copies.
    pub fn through(
        &mut self,
        step: &Step,
        mut advance: impl FnMut(Range<usize>, &mut [f32], &mut [f32]),
    ) -> Duration {
        let (mut row, mut snapshot_time) = (0, Duration::ZERO);
        for span in &step.spans {
            if span.past == 0 {
                self.clear(span.slot);
            }
            for (rows, save) in span.segments() {
                let (history, matrices) = self.of(span.slot);
                advance(row..row + rows, history, matrices);
                row += rows;
                if let Some(slot) = save {
                    let begun = Instant::now();
                    self.copy(span.slot, slot);
                    snapshot_time += begun.elapsed();
                }
            }
        }
        snapshot_time
    }

    /// Resets a slot to the initial state of a sequence.
    fn clear(&mut self, slot: SlotId) {
        let (history, matrices) = self.of(slot);
        history.fill(0.0);
        matrices.fill(0.0);
    }

    /// Copies the state in slot `from` to slot `to`.
    pub fn copy(&mut self, from: SlotId, to: SlotId) {
        let (from, to) = (from.0 as usize, to.0 as usize);
        for (numbers, width) in [(&mut self.history, self.widths.0), (&mut self.matrices, self.widths.1)] {
            numbers.copy_within(from * width..(from + 1) * width, to * width);
        }
    }
}
