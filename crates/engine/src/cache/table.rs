//! The part of the cache that one sequence holds, and the cache as a whole.

use super::{BlockId, BlockTable, Blocks, Layout};

/// The id of a slot for one sequence's recurrent state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotId(pub u32);

/// Tokens per block of the cache.
/// Smaller blocks waste less on tails, larger ones are read in fewer pieces.
pub const BLOCK_TOKENS: usize = 32;

/// Tokens before a window that stay cached, so that a turn whose last tokens are rendered
/// differently can still continue from there.
/// Cost: memory for this many tokens in every windowed layer.
const WINDOW_SLACK: usize = 256;

/// The capacity of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// For full-attention layers.
    pub full: Layout,
    /// For windowed layers.
    pub windowed: Layout,
    /// Slots for recurrent states: of running sequences, and of snapshots.
    pub slots: usize,
    /// Window size of windowed layers, in tokens.
    pub window: Option<usize>,
    /// Sequences running at once.
    pub sequences: usize,
    /// Most tokens of a sequence.
    pub context: usize,
    /// Most tokens per step.
    step: usize,
}

impl CacheConfig {
    /// The capacity for `tokens` tokens of up to `sequences` running sequences, with at most `step`
    /// tokens per step.
    /// There is one snapshot per sequence, and one more.
    pub fn new(tokens: usize, sequences: usize, step: usize, window: Option<usize>) -> Self {
        let full = layout(tokens.div_ceil(BLOCK_TOKENS));
        let config =
            CacheConfig { full, windowed: layout(0), slots: 0, window, sequences, context: tokens, step };
        config.with_snapshots(sequences.saturating_add(1))
    }

    /// Returns the capacity for sequences of at most `context` tokens each.
    #[must_use]
    pub fn with_context(self, context: usize) -> Self {
        CacheConfig { context: context.min(self.context), ..self }
    }

    /// Returns the capacity with this many snapshots.
    #[must_use]
    pub fn with_snapshots(self, snapshots: usize) -> Self {
        let windowed = self.window.map_or(0, |window| {
            let seen = |more: usize| (window + WINDOW_SLACK + more).div_ceil(BLOCK_TOKENS) + 2;
            let running = seen(self.step).saturating_mul(self.sequences);
            self.full.blocks.min(running.saturating_add(seen(0).saturating_mul(snapshots)))
        });
        // A running sequence has a second slot while draft tokens may be rejected.
        let slots = self.sequences.saturating_mul(2).saturating_add(snapshots);
        CacheConfig { windowed: layout(windowed), slots, ..self }
    }
}

fn layout(blocks: usize) -> Layout {
    Layout { blocks: blocks.max(1), block_tokens: BLOCK_TOKENS }
}

/// The part of the cache that one sequence holds.
/// Created and released only by [`Cache`], which counts references.
#[derive(Debug, Default)]
pub struct Table {
    full: BlockTable,
    windowed: BlockTable,
    slot: Option<SlotId>,
}

impl Table {
    /// Number of computed tokens.
    pub fn len(&self) -> usize {
        self.full.len()
    }

    /// Whether no tokens are computed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Blocks of full-attention layers.
    pub fn full(&self) -> &[BlockId] {
        self.full.blocks()
    }

    /// Blocks of windowed layers; those before the window may belong to other sequences.
    pub fn windowed(&self) -> &[BlockId] {
        self.windowed.blocks()
    }

    /// The slot of the recurrent state.
    pub fn slot(&self) -> SlotId {
        self.slot.unwrap_or_default()
    }

    /// Records `tokens` more computed tokens, for which blocks must have been reserved.
    pub fn advance(&mut self, tokens: usize) {
        self.full.advance(tokens);
        self.windowed.advance(tokens);
    }
}

/// The state needed to continue from a point of a sequence, besides the blocks of full-attention
/// layers.
/// It consists of the shared last window of windowed layers, and a copy of the recurrent state.
/// Created and released only by [`Cache`].
#[derive(Debug, Default)]
pub struct Snapshot {
    windowed: BlockTable,
    slot: Option<SlotId>,
}

/// The memory of the cache that ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfMemory {
    /// Blocks of full-attention layers.
    Blocks,
    /// Blocks of windowed layers, or slots: the memory that snapshots hold.
    Snapshots,
}

/// Copies of blocks that the backend must do, `(from, to)`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// In full-attention layers.
    pub full: Vec<(BlockId, BlockId)>,
    /// In windowed layers.
    pub windowed: Vec<(BlockId, BlockId)>,
}

/// All blocks and slots with their holders.
#[derive(Debug)]
pub struct Cache {
    full: Blocks,
    windowed: Option<(Blocks, usize)>,
    /// Free slots; `None` for a model without recurrent state.
    slots: Option<Vec<SlotId>>,
}

impl Cache {
    /// Creates the cache, all free.
    /// `recurrent` is set if the model has recurrent state.
    pub fn new(config: &CacheConfig, recurrent: bool) -> Self {
        Cache {
            full: Blocks::new(config.full),
            windowed: config.window.map(|window| (Blocks::new(config.windowed), window)),
            slots: recurrent.then(|| (0..config.slots as u32).rev().map(SlotId).collect()),
        }
    }

    /// Total capacity in tokens.
    pub fn capacity(&self) -> usize {
        let layout = self.full.layout();
        layout.blocks * layout.block_tokens
    }

    /// Token capacity of the blocks with a holder.
    pub fn used(&self) -> usize {
        let layout = self.full.layout();
        (layout.blocks - self.full.free()) * layout.block_tokens
    }

    /// The block layout of full-attention layers.
    pub fn layout(&self) -> Layout {
        self.full.layout()
    }

    /// Whether continuing from a point requires a [`Snapshot`].
    pub fn has_state(&self) -> bool {
        self.windowed.is_some() || self.slots.is_some()
    }

    /// Whether the model has recurrent state, which must be copied.
    pub fn recurrent(&self) -> bool {
        self.slots.is_some()
    }

    /// Blocks of full-attention layers.
    pub fn blocks(&mut self) -> &mut Blocks {
        &mut self.full
    }

    /// The number of holders of a block of full-attention layers.
    pub fn holders(&self, block: BlockId) -> u32 {
        self.full.holders(block)
    }

    /// Reserves blocks, and a slot, for `tokens` tokens in `table`.
    ///
    /// # Errors
    /// The memory that ran out; then nothing is reserved.
    pub fn reserve(&mut self, table: &mut Table, tokens: usize) -> Result<Copies, OutOfMemory> {
        self.forget(table);
        if self.windowed.as_ref().is_some_and(|(blocks, _)| !blocks.fits(&table.windowed, tokens)) {
            return Err(OutOfMemory::Snapshots);
        }
        if !self.full.fits(&table.full, tokens) {
            return Err(OutOfMemory::Blocks);
        }
        if self.slots.is_some() && table.slot.is_none() {
            table.slot = Some(self.take_slot().ok_or(OutOfMemory::Snapshots)?);
        }
        let windowed = match &mut self.windowed {
            Some((blocks, _)) => blocks.reserve(&mut table.windowed, tokens).ok_or(OutOfMemory::Snapshots)?,
            None => Vec::new(),
        };
        let full = self.full.reserve(&mut table.full, tokens).ok_or(OutOfMemory::Blocks)?;
        Ok(Copies { full, windowed })
    }

    /// Drops blocks before the window.
    fn forget(&mut self, table: &mut Table) {
        if let Some((blocks, window)) = &mut self.windowed {
            let seen = (table.windowed.len() + 1).saturating_sub(*window + WINDOW_SLACK);
            blocks.forget(&mut table.windowed, seen);
        }
    }

    /// Takes a free slot.
    pub fn take_slot(&mut self) -> Option<SlotId> {
        self.slots.as_mut()?.pop()
    }

    /// Whether another snapshot would evict nothing: there is a free slot, and half of the blocks
    /// of windowed layers are free.
    pub fn has_spare_snapshot(&self) -> bool {
        let windowed = self.windowed.as_ref();
        self.slots.as_ref().is_none_or(|free| !free.is_empty())
            && windowed.is_none_or(|(blocks, _)| 2 * blocks.free() > blocks.layout().blocks)
    }

    /// Releases a slot.
    pub fn release_slot(&mut self, slot: SlotId) {
        if let Some(free) = &mut self.slots {
            free.push(slot);
        }
    }

    /// Truncates `table` to `tokens` tokens, dropping only tokens computed since blocks were last
    /// reserved.
    /// `slot` contains the recurrent state at that point.
    pub fn cut(&mut self, table: &mut Table, tokens: usize, slot: Option<SlotId>) {
        self.full.cut(&mut table.full, tokens);
        if let Some((blocks, _)) = &mut self.windowed {
            blocks.cut(&mut table.windowed, tokens);
        }
        if let Some(before) = slot.and_then(|slot| table.slot.replace(slot)) {
            self.release_slot(before);
        }
    }

    /// Takes a snapshot of `table` after its first `at` tokens, which must be among those computed
    /// by the latest step.
    /// `slot` contains the recurrent state at that point.
    pub fn snapshot(&mut self, table: &Table, at: usize, slot: Option<SlotId>) -> Snapshot {
        let windowed = match &mut self.windowed {
            Some((blocks, window)) => {
                let mut shared = blocks.share(&table.windowed, at);
                blocks.forget(&mut shared, (at + 1).saturating_sub(*window));
                shared
            }
            None => BlockTable::default(),
        };
        Snapshot { windowed, slot }
    }

    /// Converts the table of a finished sequence to a snapshot, which takes over its state.
    pub fn take_snapshot(&mut self, mut table: Table) -> Snapshot {
        self.forget(&mut table);
        self.full.release(table.full);
        Snapshot { windowed: table.windowed, slot: table.slot }
    }

    /// Releases a snapshot.
    pub fn release_snapshot(&mut self, snapshot: Snapshot) {
        if let Some((blocks, _)) = &mut self.windowed {
            blocks.release(snapshot.windowed);
        }
        if let Some(slot) = snapshot.slot {
            self.release_slot(slot);
        }
    }

    /// Whether a snapshot taken after `taken` tokens can be used to continue after `at`, which is
    /// not later.
    /// Recurrent state can't be rewound; windows can as far as they reach.
    pub fn serves(&self, snapshot: &Snapshot, taken: usize, at: usize) -> bool {
        let reaches = self.windowed.as_ref().is_none_or(|(blocks, window)| {
            blocks.first(&snapshot.windowed) <= (at + 1).saturating_sub(*window)
        });
        reaches && at <= taken && (at == taken || self.slots.is_none())
    }

    /// A snapshot's windowed blocks and recurrent state, if it can be used to continue after `at`
    /// tokens, where it was taken.
    pub fn location<'a>(&self, snapshot: &'a Snapshot, at: usize) -> Option<(&'a [BlockId], Option<SlotId>)> {
        self.serves(snapshot, at, at).then(|| (snapshot.windowed.blocks(), snapshot.slot))
    }

    /// The first token that a window still covers after `at` tokens, or an earlier one in the same
    /// block; `None` without windows.
    pub fn seen(&self, at: usize) -> Option<usize> {
        let (blocks, window) = self.windowed.as_ref()?;
        let size = blocks.layout().block_tokens;
        Some((at + 1).saturating_sub(*window) / size * size)
    }

    /// A table that continues after the `tokens` tokens in `blocks`, and the copy of recurrent
    /// state that the backend must do.
    /// It holds the parts of `snapshot` that it needs.
    /// `None` if it needs a slot and none is free.
    pub fn resume(
        &mut self,
        blocks: Vec<BlockId>,
        tokens: usize,
        snapshot: Option<&Snapshot>,
    ) -> Option<(Table, Option<(SlotId, SlotId)>)> {
        let mut table = Table::default();
        let mut copy = None;
        if let Some(from) = snapshot.and_then(|snapshot| snapshot.slot) {
            let to = self.take_slot()?;
            (table.slot, copy) = (Some(to), Some((from, to)));
        }
        if let (Some((blocks, _)), Some(snapshot)) = (&mut self.windowed, snapshot) {
            table.windowed = blocks.share(&snapshot.windowed, tokens);
        }
        table.full = self.full.table(blocks, tokens);
        Some((table, copy))
    }

    /// Releases `table`.
    pub fn release(&mut self, table: Table) {
        let snapshot = self.take_snapshot(table);
        self.release_snapshot(snapshot);
    }

    /// Number of free blocks, of full-attention layers and of windowed ones.
    #[cfg(test)]
    pub fn free(&self) -> (usize, usize) {
        (self.full.free(), self.windowed.as_ref().map_or(0, |(blocks, _)| blocks.free()))
    }
}
