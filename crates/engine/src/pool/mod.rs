//! A decoder with its block bookkeeping: tables in, logits out.

use crate::backend::{Backend, Span, Step};
use crate::cache::{Cache, Prefixes, Room, Table};
use crate::decoder::{Decoder, Observer};
use crate::{Error, Result};

/// The part of a step that one sequence asks for.
#[derive(Debug)]
pub struct Part<'a> {
    /// Where its keys and values lie; grows by `tokens`.
    pub table: &'a mut Table,
    /// The tokens to compute.
    pub tokens: &'a [u32],
    /// How many of the last rows' logits are wanted.
    pub outputs: usize,
}

/// A decoder, its blocks, and the finished sequences whose blocks may be shared.
#[derive(Debug)]
pub struct Pool<B: Backend> {
    decoder: Decoder<B>,
    cache: Cache,
    prefixes: Prefixes,
}

impl<B: Backend> Pool<B> {
    /// Takes a decoder that was loaded with `room`.
    pub fn new(decoder: Decoder<B>, room: &Room) -> Self {
        let cache = Cache::new(room, decoder.recurrent());
        Pool { decoder, cache, prefixes: Prefixes::default() }
    }

    /// V, the number of logits in a row.
    pub fn vocabulary(&self) -> usize {
        self.decoder.vocabulary()
    }

    /// Tokens that the cache holds in all.
    pub fn capacity(&self) -> usize {
        self.cache.capacity()
    }

    /// A table that shares what is kept of `prompt`, at most all but its last token, whose logits are needed.
    pub fn attach(&mut self, prompt: &[u32]) -> Table {
        self.prefixes.attach(&mut self.cache, prompt, prompt.len().saturating_sub(1))
    }

    /// Keeps a finished sequence for later requests.
    pub fn keep(&mut self, tokens: Vec<u32>, table: Table) {
        self.prefixes.keep(&mut self.cache, tokens, table);
    }

    /// Gives up a table.
    pub fn release(&mut self, table: Table) {
        self.cache.release(table);
    }

    /// Makes room for `tokens` more in `table`, at the cost of kept prefixes if need be. False if there is none.
    ///
    /// # Errors
    /// If the backend fails to copy a shared tail.
    pub fn reserve(&mut self, table: &mut Table, tokens: usize) -> Result<bool> {
        loop {
            if let Some(copies) = self.cache.reserve(table, table.len() + tokens) {
                for (copies, windowed) in [(copies.full, false), (copies.windowed, true)] {
                    copies.iter().try_for_each(|&(from, to)| self.decoder.copy_block(from, to, windowed))?;
                }
                return Ok(true);
            }
            if !self.prefixes.evict(&mut self.cache) {
                return Ok(false);
            }
        }
    }

    /// Computes `parts`, for which room was reserved, in one forward pass. Gives their logits, part after part.
    ///
    /// # Errors
    /// If a token is out of range or the backend fails.
    pub fn forward(&mut self, parts: &mut [Part]) -> Result<Vec<f32>> {
        self.forward_observed(parts, None)
    }

    /// As [`Pool::forward`], with a look at the residual stream after each block.
    ///
    /// # Errors
    /// As [`Pool::forward`].
    pub fn forward_observed(&mut self, parts: &mut [Part], observer: Option<Observer>) -> Result<Vec<f32>> {
        let mut step = Step::default();
        for part in parts.iter() {
            step.tokens.extend_from_slice(part.tokens);
            let end = step.tokens.len();
            step.outputs.extend(end - part.outputs..end);
            step.spans.push(Span {
                rows: part.tokens.len(),
                past: part.table.len(),
                blocks: part.table.full().iter().map(|block| block.0).collect(),
                windowed: part.table.windowed().iter().map(|block| block.0).collect(),
                slot: part.table.slot(),
            });
        }
        let logits = self.decoder.forward(&step, observer)?;
        for part in parts {
            part.table.advance(part.tokens.len());
        }
        Ok(logits)
    }

    /// As [`Pool::forward`] for one part, with the room reserved.
    ///
    /// # Errors
    /// If there is no room, or as [`Pool::forward`].
    pub fn forward_one(&mut self, table: &mut Table, tokens: &[u32], outputs: usize) -> Result<Vec<f32>> {
        if !self.reserve(table, tokens.len())? {
            return Err(Error::OutOfBlocks { capacity: self.capacity() });
        }
        self.forward(&mut [Part { table, tokens, outputs }])
    }
}

#[cfg(test)]
pub mod tests;
