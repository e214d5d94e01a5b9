//! A decoder with its block bookkeeping: tables in, logits out.

use crate::backend::{Backend, Span, Step};
use crate::cache::{BlockTable, Blocks, Layout, Prefixes};
use crate::decoder::Decoder;
use crate::{Error, Result};

/// Tokens a block of the KV cache holds. Smaller wastes less on tails, larger needs fewer pieces when it is read.
pub const BLOCK_TOKENS: usize = 32;

/// How the cache is cut so that it holds `tokens` tokens.
pub fn layout(tokens: usize) -> Layout {
    Layout { blocks: tokens.div_ceil(BLOCK_TOKENS).max(1), block_tokens: BLOCK_TOKENS }
}

/// The part of a step that one sequence asks for.
#[derive(Debug)]
pub struct Part<'a> {
    /// Where its keys and values lie; grows by `tokens`.
    pub table: &'a mut BlockTable,
    /// The tokens to compute.
    pub tokens: &'a [u32],
    /// How many of the last rows' logits are wanted.
    pub outputs: usize,
}

/// A decoder, its blocks, and the finished sequences whose blocks may be shared.
#[derive(Debug)]
pub struct Pool<B: Backend> {
    decoder: Decoder<B>,
    blocks: Blocks,
    prefixes: Prefixes,
}

impl<B: Backend> Pool<B> {
    /// Takes a decoder that was loaded with `layout`.
    pub fn new(decoder: Decoder<B>, layout: Layout) -> Self {
        Pool { decoder, blocks: Blocks::new(layout), prefixes: Prefixes::default() }
    }

    /// V, the number of logits in a row.
    pub fn vocabulary(&self) -> usize {
        self.decoder.vocabulary()
    }

    /// Tokens that the cache holds in all.
    pub fn capacity(&self) -> usize {
        let layout = self.blocks.layout();
        layout.blocks * layout.block_tokens
    }

    /// A table that shares what is kept of `prompt`, at most all but its last token, whose logits are needed.
    pub fn attach(&mut self, prompt: &[u32]) -> BlockTable {
        self.prefixes.attach(&mut self.blocks, prompt, prompt.len().saturating_sub(1))
    }

    /// Keeps a finished sequence for later requests.
    pub fn keep(&mut self, tokens: Vec<u32>, table: BlockTable) {
        self.prefixes.keep(&mut self.blocks, tokens, table);
    }

    /// Gives up a table.
    pub fn release(&mut self, table: BlockTable) {
        self.blocks.release(table);
    }

    /// Makes room for `tokens` more in `table`, at the cost of kept prefixes if need be. False if there is none.
    ///
    /// # Errors
    /// If the backend fails to copy a shared tail.
    pub fn reserve(&mut self, table: &mut BlockTable, tokens: usize) -> Result<bool> {
        loop {
            if let Some(copies) = self.blocks.reserve(table, table.len() + tokens) {
                copies.iter().try_for_each(|&(from, to)| self.decoder.copy_block(from, to))?;
                return Ok(true);
            }
            if !self.prefixes.evict(&mut self.blocks) {
                return Ok(false);
            }
        }
    }

    /// Computes `parts`, for which room was reserved, in one forward pass. Gives their logits, part after part.
    ///
    /// # Errors
    /// If a token is out of range or the backend fails.
    pub fn forward(&mut self, parts: &mut [Part]) -> Result<Vec<f32>> {
        let mut step = Step::default();
        for part in parts.iter() {
            step.tokens.extend_from_slice(part.tokens);
            let end = step.tokens.len();
            step.outputs.extend(end - part.outputs..end);
            let blocks = part.table.blocks().to_vec();
            step.spans.push(Span { rows: part.tokens.len(), past: part.table.len(), blocks });
        }
        let logits = self.decoder.forward(&step)?;
        for part in parts {
            part.table.advance(part.tokens.len());
        }
        Ok(logits)
    }

    /// As [`Pool::forward`] for one part, with the room reserved.
    ///
    /// # Errors
    /// If there is no room, or as [`Pool::forward`].
    pub fn forward_one(
        &mut self,
        table: &mut BlockTable,
        tokens: &[u32],
        outputs: usize,
    ) -> Result<Vec<f32>> {
        if !self.reserve(table, tokens.len())? {
            return Err(Error::OutOfBlocks { capacity: self.capacity() });
        }
        self.forward(&mut [Part { table, tokens, outputs }])
    }
}

#[cfg(test)]
mod tests;
