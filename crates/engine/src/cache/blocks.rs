//! Reference-counted blocks of tokens, and the block tables of sequences.

/// The id of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// Number and size of KV blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of blocks.
    pub blocks: usize,
    /// Tokens per block.
    pub block_tokens: usize,
}

/// The blocks and their reference counts.
///
/// Appending after the last written token of a block disturbs none of its holders, so a block is
/// only copied if another holder has appended to it.
#[derive(Debug)]
pub struct Blocks {
    layout: Layout,
    holders: Vec<u32>,
    /// For each block, the number of tokens written or reserved.
    written: Vec<u32>,
    free: Vec<BlockId>,
}

impl Blocks {
    /// Creates the blocks, all free.
    pub fn new(layout: Layout) -> Self {
        // Popped from the end, so that a single sequence gets contiguous ascending blocks, which
        // backends read without a copy.
        let free = (0..layout.blocks as u32).rev().map(BlockId).collect();
        Blocks { layout, holders: vec![0; layout.blocks], written: vec![0; layout.blocks], free }
    }

    /// Number and size of KV blocks.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Blocks without a holder.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Reserves blocks in `table` for `tokens` tokens about to be written; copies a tail to which
    /// another holder has appended.
    /// Returns the copies that the backend must do, `(from, to)`; or `None`, without changes, if
    /// there aren't enough blocks.
    pub fn reserve(&mut self, table: &mut BlockTable, tokens: usize) -> Option<Vec<(BlockId, BlockId)>> {
        let size = self.layout.block_tokens;
        let (missing, shared_tail) = self.missing_blocks(table, tokens);
        if missing + usize::from(shared_tail) > self.free.len() {
            return None;
        }
        let mut copies = Vec::new();
        if shared_tail {
            let own = self.take()?;
            let tail = &mut table.blocks[table.len / size];
            copies.push((*tail, own));
            let shared = std::mem::replace(tail, own);
            self.drop_one(shared);
        }
        for _ in 0..missing {
            let block = self.take()?;
            table.blocks.push(block);
        }
        let new = if tokens > table.len { table.len / size..tokens.div_ceil(size) } else { 0..0 };
        for at in new {
            self.written[table.blocks[at].0 as usize] = (tokens - at * size).min(size) as u32;
        }
        Some(copies)
    }

    /// Whether [`Blocks::reserve`] would succeed.
    pub fn fits(&self, table: &BlockTable, tokens: usize) -> bool {
        let (missing, shared_tail) = self.missing_blocks(table, tokens);
        missing + usize::from(shared_tail) <= self.free.len()
    }

    /// The number of blocks that `table` lacks for `tokens` tokens, and whether its tail must be
    /// copied.
    fn missing_blocks(&self, table: &BlockTable, tokens: usize) -> (usize, bool) {
        let size = self.layout.block_tokens;
        let shared_tail = match table.blocks.get(table.len / size) {
            Some(BlockId(tail)) if tokens > table.len => {
                self.holders[*tail as usize] > 1 && self.written[*tail as usize] as usize > table.len % size
            }
            _ => false,
        };
        (tokens.div_ceil(size).saturating_sub(table.blocks.len()), shared_tail)
    }

    /// Drops the blocks of `table` entirely before token `before`, which must be written.
    pub fn forget(&mut self, table: &mut BlockTable, before: usize) {
        let end = before.min(table.len) / self.layout.block_tokens;
        for at in table.forgotten..end {
            self.drop_one(table.blocks[at]);
        }
        table.forgotten = table.forgotten.max(end);
    }

    /// Truncates `table` to `tokens` tokens, dropping only tokens that it wrote since it last
    /// reserved, so that no other holder has seen them.
    pub fn cut(&mut self, table: &mut BlockTable, tokens: usize) {
        let size = self.layout.block_tokens;
        self.drop_all(&table.blocks.split_off(tokens.div_ceil(size)));
        if let Some(BlockId(tail)) = table.blocks.get(tokens / size) {
            self.written[*tail as usize] = (tokens % size) as u32;
        }
        table.len = tokens;
    }

    /// The first token of `table` whose block wasn't dropped.
    pub fn first(&self, table: &BlockTable) -> usize {
        table.forgotten * self.layout.block_tokens
    }

    /// Adds a holder of the first `tokens` tokens of `table`.
    pub fn share(&mut self, table: &BlockTable, tokens: usize) -> BlockTable {
        let tokens = tokens.min(table.len);
        let blocks = table.blocks[..tokens.div_ceil(self.layout.block_tokens)].to_vec();
        let forgotten = table.forgotten.min(blocks.len());
        for block in &blocks[forgotten..] {
            self.holders[block.0 as usize] += 1;
        }
        BlockTable { blocks, forgotten, len: tokens }
    }

    /// Creates a holder of `blocks`, which contain `tokens` tokens.
    pub fn table(&mut self, blocks: Vec<BlockId>, tokens: usize) -> BlockTable {
        self.hold(&blocks);
        BlockTable { blocks, forgotten: 0, len: tokens }
    }

    /// Adds a holder to each of `blocks`.
    pub fn hold(&mut self, blocks: &[BlockId]) {
        for block in blocks {
            self.holders[block.0 as usize] += 1;
        }
    }

    /// Removes a holder from each of `blocks`.
    pub fn drop_all(&mut self, blocks: &[BlockId]) {
        // In reverse, so that the first block is taken next and contiguous blocks stay contiguous.
        for &block in blocks.iter().rev() {
            self.drop_one(block);
        }
    }

    /// The number of holders of `block`.
    pub fn holders(&self, block: BlockId) -> u32 {
        self.holders[block.0 as usize]
    }

    /// Releases `table`.
    pub fn release(&mut self, mut table: BlockTable) {
        self.drop_all(&table.blocks.split_off(table.forgotten));
    }

    fn take(&mut self) -> Option<BlockId> {
        let block = self.free.pop()?;
        self.holders[block.0 as usize] = 1;
        Some(block)
    }

    fn drop_one(&mut self, block: BlockId) {
        let holders = &mut self.holders[block.0 as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(block);
        }
    }
}

/// The blocks of one sequence.
/// Created and released only by [`Blocks`], which counts references.
#[derive(Debug, Default)]
pub struct BlockTable {
    blocks: Vec<BlockId>,
    /// Number of leading blocks that this table no longer holds.
    forgotten: usize,
    len: usize,
}

impl BlockTable {
    /// The blocks in token order.
    /// Dropped blocks may belong to other tables.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Number of written tokens.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Records `tokens` more written tokens, for which blocks must have been reserved.
    pub fn advance(&mut self, tokens: usize) {
        self.len += tokens;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tail_is_copied_if_another_holder_appended_to_it() {
        let mut blocks = Blocks::new(Layout { blocks: 4, block_tokens: 4 });
        let mut first = BlockTable::default();
        assert_eq!(blocks.reserve(&mut first, 6), Some(vec![]));
        first.advance(6);
        let mut second = blocks.share(&first, 5);
        assert_eq!(second.blocks(), first.blocks());
        let cached = blocks.share(&first, 6);
        assert_eq!(blocks.reserve(&mut first, 7), Some(vec![]), "after all that is written");
        first.advance(1);
        assert_eq!(blocks.reserve(&mut second, 6), Some(vec![(BlockId(1), BlockId(2))]));
        assert_eq!(second.blocks(), [BlockId(0), BlockId(2)]);
        assert_eq!(blocks.reserve(&mut first, 8), Some(vec![]), "nobody else writes there");
        assert_eq!(blocks.reserve(&mut first, 13), None, "one block is free, two are needed");
        blocks.release(cached);
        blocks.release(first);
        blocks.release(second);
        assert_eq!(blocks.free(), 4);
    }

    proptest! {
        /// Compares with a model in which each sequence is a list of its own tokens.
        /// After any operations no token of a sequence was overwritten by another sequence, and
        /// nothing has leaked.
        #[test]
        fn no_sequence_sees_another_ones_tokens(operations in prop::collection::vec((0..5u8, 0..6usize, 1..9usize), 1..80)) {
            let layout = Layout { blocks: 12, block_tokens: 4 };
            let mut blocks = Blocks::new(layout);
            let mut memory = vec![0u32; layout.blocks * layout.block_tokens];
            let mut sequences: Vec<(BlockTable, Vec<u32>)> = Vec::new();
            let mut next = 1;
            for (operation, which, amount) in operations {
                match operation {
                    0 => sequences.push((BlockTable::default(), Vec::new())),
                    1 if !sequences.is_empty() => {
                        let at = which % sequences.len();
                        let (table, tokens) = &mut sequences[at];
                        if let Some(copies) = blocks.reserve(table, tokens.len() + amount) {
                            for (from, to) in copies {
                                let (from, to) = (from.0 as usize * 4, to.0 as usize * 4);
                                memory.copy_within(from..from + 4, to);
                            }
                            for _ in 0..amount {
                                let at = table.blocks()[table.len() / 4].0 as usize * 4 + table.len() % 4;
                                memory[at] = next;
                                tokens.push(next);
                                table.advance(1);
                                next += 1;
                            }
                        }
                    }
                    4 if !sequences.is_empty() => {
                        let at = which % sequences.len();
                        let (table, tokens) = &mut sequences[at];
                        if let Some(copies) = blocks.reserve(table, tokens.len() + amount) {
                            for (from, to) in copies {
                                let (from, to) = (from.0 as usize * 4, to.0 as usize * 4);
                                memory.copy_within(from..from + 4, to);
                            }
                            for _ in 0..amount {
                                let at = table.blocks()[table.len() / 4].0 as usize * 4 + table.len() % 4;
                                memory[at] = next;
                                table.advance(1);
                                next += 1;
                            }
                            // Truncated, fully or partly.
                            let stay = which % (amount + 1);
                            for at in tokens.len()..tokens.len() + stay {
                                tokens.push(memory[table.blocks()[at / 4].0 as usize * 4 + at % 4]);
                            }
                            blocks.cut(table, tokens.len());
                            prop_assert_eq!(table.blocks().len(), tokens.len().div_ceil(4));
                        }
                    }
                    2 if !sequences.is_empty() => {
                        let (table, tokens) = &sequences[which % sequences.len()];
                        let keep = amount.min(tokens.len());
                        let copy = (blocks.share(table, keep), tokens[..keep].to_vec());
                        sequences.push(copy);
                    }
                    3 if !sequences.is_empty() => {
                        let (table, _) = sequences.swap_remove(which % sequences.len());
                        blocks.release(table);
                    }
                    _ => {}
                }
                for (table, tokens) in &sequences {
                    for (i, token) in tokens.iter().enumerate() {
                        prop_assert_eq!(memory[table.blocks()[i / 4].0 as usize * 4 + i % 4], *token);
                    }
                }
            }
            for (table, _) in sequences {
                blocks.release(table);
            }
            prop_assert_eq!(blocks.free(), layout.blocks);
        }
    }
}
