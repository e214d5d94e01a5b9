//! What one sequence holds of the cache, and the cache as a whole.

use super::{BlockId, BlockTable, Blocks, Layout};

/// Names a place for one sequence's recurrent state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotId(pub u32);

/// Tokens a block of the cache holds. Smaller wastes less on tails, larger needs fewer pieces when it is read.
pub const BLOCK_TOKENS: usize = 32;

/// Tokens before its window that a sequence keeps, so that a turn whose last tokens are rendered otherwise can still go on
/// from them. Cost: memory for as many tokens in every windowed layer.
const WINDOW_SLACK: usize = 256;

/// How much the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Of layers that see everything.
    pub full: Layout,
    /// Of windowed layers.
    pub windowed: Layout,
    /// Recurrent states.
    pub slots: usize,
    /// Tokens that a windowed layer sees.
    pub window: Option<usize>,
}

impl Room {
    /// Room for `tokens` tokens of up to `sequences` sequences that run at once, fed by up to `step` tokens a step.
    pub fn new(tokens: usize, sequences: usize, step: usize, window: Option<usize>) -> Self {
        let layout = |blocks: usize| Layout { blocks: blocks.max(1), block_tokens: BLOCK_TOKENS };
        let full = tokens.div_ceil(BLOCK_TOKENS);
        // A finished sequence keeps its window for the next request.
        let holders = sequences.saturating_mul(2).saturating_add(1);
        let windowed = window.map_or(0, |window| {
            let each = (window + WINDOW_SLACK + step).div_ceil(BLOCK_TOKENS) + 2;
            full.min(each.saturating_mul(holders))
        });
        Room { full: layout(full), windowed: layout(windowed), slots: holders, window }
    }
}

/// What one sequence holds. Made and given up by [`Cache`] only, which counts.
#[derive(Debug, Default)]
pub struct Table {
    full: BlockTable,
    windowed: BlockTable,
    slot: Option<SlotId>,
}

impl Table {
    /// How many tokens are computed.
    pub fn len(&self) -> usize {
        self.full.len()
    }

    /// Whether nothing is computed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Blocks of layers that see everything.
    pub fn full(&self) -> &[BlockId] {
        self.full.blocks()
    }

    /// Blocks of windowed layers; those before the window may be others' by now.
    pub fn windowed(&self) -> &[BlockId] {
        self.windowed.blocks()
    }

    /// Where the recurrent state lies.
    pub fn slot(&self) -> SlotId {
        self.slot.unwrap_or_default()
    }

    /// Says that `tokens` more are computed. Room must have been reserved.
    pub fn advance(&mut self, tokens: usize) {
        self.full.advance(tokens);
        self.windowed.advance(tokens);
    }
}

/// Copies of blocks that the backend must do, `(from, to)`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// In layers that see everything.
    pub full: Vec<(BlockId, BlockId)>,
    /// In windowed layers.
    pub windowed: Vec<(BlockId, BlockId)>,
}

/// All blocks and slots, and who holds them.
#[derive(Debug)]
pub struct Cache {
    full: Blocks,
    windowed: Option<(Blocks, usize)>,
    /// Free slots; `None` for a model without recurrent state.
    slots: Option<Vec<SlotId>>,
}

impl Cache {
    /// Everything free. `recurrent`: whether the model has recurrent state.
    pub fn new(room: &Room, recurrent: bool) -> Self {
        Cache {
            full: Blocks::new(room.full),
            windowed: room.window.map(|window| (Blocks::new(room.windowed), window)),
            slots: recurrent.then(|| (0..room.slots as u32).rev().map(SlotId).collect()),
        }
    }

    /// Tokens that fit in all.
    pub fn capacity(&self) -> usize {
        let layout = self.full.layout();
        layout.blocks * layout.block_tokens
    }

    /// Makes room for `tokens` tokens in `table`; `None`, and nothing taken, if there is none.
    pub fn reserve(&mut self, table: &mut Table, tokens: usize) -> Option<Copies> {
        if let Some((blocks, window)) = &mut self.windowed {
            let seen = (table.len() + 1).saturating_sub(*window + WINDOW_SLACK);
            blocks.forget(&mut table.windowed, seen);
            if !blocks.has_room(&table.windowed, tokens) {
                return None;
            }
        }
        if !self.full.has_room(&table.full, tokens) {
            return None;
        }
        if let Some(free) = &mut self.slots
            && table.slot.is_none()
        {
            table.slot = Some(free.pop()?);
        }
        let windowed = match &mut self.windowed {
            Some((blocks, _)) => blocks.reserve(&mut table.windowed, tokens)?,
            None => Vec::new(),
        };
        Some(Copies { full: self.full.reserve(&mut table.full, tokens)?, windowed })
    }

    /// How many of the first `common` tokens of `table` another sequence can go on from: all or none where a window has
    /// passed, or where recurrent state can't be cut back.
    pub fn usable(&self, table: &Table, common: usize) -> usize {
        let forgotten = self.windowed.as_ref().is_some_and(|(blocks, window)| {
            blocks.first(&table.windowed) > (common + 1).saturating_sub(*window)
        });
        let behind = self.slots.is_some() && common != table.len();
        if forgotten || behind { 0 } else { common }
    }

    /// A holder of the first `tokens` tokens of `table`, which stays: `None` where the state can't be shared.
    pub fn share(&mut self, table: &Table, tokens: usize) -> Option<Table> {
        if self.slots.is_some() {
            return None;
        }
        let windowed = match &mut self.windowed {
            Some((blocks, _)) => blocks.share(&table.windowed, tokens),
            None => BlockTable::default(),
        };
        Some(Table { full: self.full.share(&table.full, tokens), windowed, slot: None })
    }

    /// Gives up `table`.
    pub fn release(&mut self, table: Table) {
        self.full.release(table.full);
        if let Some((blocks, _)) = &mut self.windowed {
            blocks.release(table.windowed);
        }
        if let (Some(free), Some(slot)) = (&mut self.slots, table.slot) {
            free.push(slot);
        }
    }

    /// Blocks that nobody holds, of layers that see everything and of windowed ones.
    pub fn free(&self) -> (usize, usize) {
        (self.full.free(), self.windowed.as_ref().map_or(0, |(blocks, _)| blocks.free()))
    }
}
