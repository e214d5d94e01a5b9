//! Finished sequences whose keys and values the next request may share.

use super::{BlockTable, Blocks};

/// Finished sequences, the latest last. A match compares tokens; a hit shares blocks and moves nothing.
#[derive(Debug, Default)]
pub struct Prefixes {
    kept: Vec<(Vec<u32>, BlockTable)>,
}

impl Prefixes {
    /// A table that shares the longest kept prefix of `prompt`, at most `limit` tokens; empty if there is none.
    pub fn attach(&mut self, blocks: &mut Blocks, prompt: &[u32], limit: usize) -> BlockTable {
        let common = |kept: &[u32]| kept.iter().zip(prompt).take(limit).take_while(|(a, b)| a == b).count();
        let best = self.kept.iter().enumerate().map(|(at, (tokens, _))| (common(tokens), at)).max();
        let Some((length @ 1.., at)) = best else { return BlockTable::default() };
        let hit = self.kept.remove(at);
        let table = blocks.share(&hit.1, length);
        self.kept.push(hit);
        table
    }

    /// Keeps the computed `tokens` of a finished sequence; sequences that it extends are given up.
    pub fn keep(&mut self, blocks: &mut Blocks, mut tokens: Vec<u32>, table: BlockTable) {
        tokens.truncate(table.len());
        let mut at = 0;
        while at < self.kept.len() {
            if tokens.starts_with(&self.kept[at].0) {
                blocks.release(self.kept.remove(at).1);
            } else {
                at += 1;
            }
        }
        self.kept.push((tokens, table));
    }

    /// Gives up the sequence that was not used for the longest time; false if there is none.
    pub fn evict(&mut self, blocks: &mut Blocks) -> bool {
        if self.kept.is_empty() {
            return false;
        }
        blocks.release(self.kept.remove(0).1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Layout;

    fn written(blocks: &mut Blocks, tokens: &[u32]) -> BlockTable {
        let mut table = BlockTable::default();
        blocks.reserve(&mut table, tokens.len()).unwrap();
        table.advance(tokens.len());
        table
    }

    #[test]
    fn the_longest_common_prefix_is_shared_and_the_least_recent_evicted() {
        let mut blocks = Blocks::new(Layout { blocks: 8, block_tokens: 2 });
        let mut prefixes = Prefixes::default();
        for tokens in [[1, 2, 3], [1, 2, 4], [9, 9, 9]] {
            let table = written(&mut blocks, &tokens);
            prefixes.keep(&mut blocks, tokens.to_vec(), table);
        }
        let table = prefixes.attach(&mut blocks, &[1, 2, 3, 4], 3);
        assert_eq!((table.len(), blocks.free()), (3, 2));
        blocks.release(table);
        assert_eq!(prefixes.attach(&mut blocks, &[7], 1).len(), 0);
        assert!(prefixes.evict(&mut blocks), "1 2 4 goes first: 1 2 3 was used");
        assert_eq!(prefixes.attach(&mut blocks, &[1, 2, 4], 3).len(), 2);
    }

    #[test]
    fn a_sequence_replaces_those_that_it_extends() {
        let mut blocks = Blocks::new(Layout { blocks: 4, block_tokens: 2 });
        let mut prefixes = Prefixes::default();
        for tokens in [&[1, 2][..], &[1, 2, 3, 4]] {
            let table = written(&mut blocks, tokens);
            prefixes.keep(&mut blocks, tokens.to_vec(), table);
        }
        assert_eq!(blocks.free(), 2);
    }
}
