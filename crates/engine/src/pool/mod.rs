//! A decoder with its block bookkeeping: tables in, logits out; and the sequences that run on it
//! together.

mod disk;
mod host;
mod run;

use std::time::Duration;

use crate::backend::{Backend, Span, Step};
use crate::cache::disk::Disk;
use crate::cache::host::HostMemory;
use crate::cache::{Cache, Hit, Lack, Prefix, Prefixes, Room, SlotId, Table};
use crate::decoder::{Decoder, Observer};
use crate::draft::Odds;
use crate::logits::Computed;
use crate::schedule::Pace;
use crate::{Error, Result};
pub use disk::Written;
pub use run::{Found, Run};

/// The part of a step that one sequence asks for.
#[derive(Debug)]
pub struct Part<'a> {
    /// Where its keys and values lie; grows by both.
    pub table: &'a mut Table,
    /// The tokens to compute.
    pub tokens: &'a [u32],
    /// Tokens that are computed after them, without being known to come.
    pub drafted: &'a [u32],
    /// How many of the last rows' logits are wanted.
    pub outputs: usize,
    /// After how many of the tokens, ascending, the recurrent state is copied to which other slot.
    pub saves: Vec<(usize, SlotId)>,
}

impl Part<'_> {
    fn rows(&self) -> usize {
        self.tokens.len() + self.drafted.len()
    }
}

/// A decoder, its blocks, and the finished sequences whose blocks may be shared.
#[derive(Debug)]
pub struct Pool<B: Backend> {
    decoder: Decoder<B>,
    cache: Cache,
    prefixes: Prefixes,
    /// How many runs have finished.
    finished: u64,
    pace: Pace,
    /// Whether a step is short while somebody waits for a token.
    steady: bool,
    odds: Odds,
    /// The tier on disk, if there is one, and the file that is being written.
    disk: Option<Disk>,
    export: Option<disk::Export>,
    /// The tier in the host's memory.
    host: HostMemory,
}

impl<B: Backend> Pool<B> {
    /// Takes a decoder that was loaded with `room`.
    pub fn new(decoder: Decoder<B>, room: &Room) -> Self {
        let cache = Cache::new(room, decoder.recurrent());
        Pool {
            decoder,
            cache,
            prefixes: Prefixes::default(),
            finished: 0,
            pace: Pace::default(),
            steady: true,
            odds: Odds::default(),
            disk: None,
            export: None,
            host: HostMemory::default(),
        }
    }

    /// The same, whose sequences' tokens come steadily beside others' prompts, or not.
    #[must_use]
    pub fn steadily(mut self, steady: bool) -> Self {
        self.steady = steady;
        self
    }

    /// The same, with static text that is given up on the device moved to `bytes` of the host's
    /// memory.
    #[must_use]
    pub fn beside(mut self, bytes: u64) -> Self {
        self.host = HostMemory::new(bytes);
        self
    }

    /// The same, with static text kept on disk as well.
    #[must_use]
    pub fn on_disk(mut self, disk: Option<Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// How long what is queued for the disk may take when nobody needs the model any more.
    pub fn patience(&self) -> Duration {
        self.disk.as_ref().map_or(Duration::ZERO, Disk::patience)
    }

    /// V, the number of logits in a row.
    pub fn vocabulary(&self) -> usize {
        self.decoder.vocabulary()
    }

    /// Tokens that the cache holds in all.
    pub fn capacity(&self) -> usize {
        self.cache.capacity()
    }

    /// What is kept of `tokens`, at most all but the last, whose logits are needed.
    pub fn find(&self, salt: &str, tokens: &[u32]) -> Hit {
        self.prefixes.find(&self.cache, salt, tokens, tokens.len().saturating_sub(1))
    }

    /// A table that shares the latest hit.
    ///
    /// # Errors
    /// If the backend fails to copy recurrent state.
    pub fn attach(&mut self, hit: &Hit) -> Result<Table> {
        let (table, copy) = self.prefixes.attach(&mut self.cache, hit);
        if let Some((from, to)) = copy {
            self.decoder.copy_state(from, to)?;
        }
        Ok(table)
    }

    /// Keeps what a sequence that goes no further has computed, for later requests.
    fn keep(&mut self, prefix: &Prefix, tokens: &[u32], table: Table) {
        self.prefixes.keep(&mut self.cache, prefix, tokens, table);
    }

    /// Gives up the least of what is kept and holds `lack`.
    /// False if there is nothing.
    pub fn evict(&mut self, lack: Lack) -> bool {
        self.park(lack);
        self.prefixes.evict(&mut self.cache, lack)
    }

    /// Gives up a table.
    pub fn release(&mut self, table: Table) {
        self.cache.release(table);
    }

    /// Makes room for `tokens` more in `table`, at the cost of kept prefixes if need be.
    /// False if there is none.
    ///
    /// # Errors
    /// If the backend fails to copy a shared tail.
    pub fn reserve(&mut self, table: &mut Table, tokens: usize) -> Result<bool> {
        loop {
            match self.reserve_free(table, tokens)? {
                None => return Ok(true),
                Some(lack) if !self.evict(lack) => return Ok(false),
                Some(_) => {}
            }
        }
    }

    /// The same from what is free; else says what there is too little of.
    ///
    /// # Errors
    /// As [`Pool::reserve`].
    pub fn reserve_free(&mut self, table: &mut Table, tokens: usize) -> Result<Option<Lack>> {
        let copies = match self.cache.reserve(table, table.len() + tokens) {
            Ok(copies) => copies,
            Err(lack) => return Ok(Some(lack)),
        };
        for (copies, windowed) in [(copies.full, false), (copies.windowed, true)] {
            copies.iter().try_for_each(|&(from, to)| self.decoder.copy_block(from, to, windowed))?;
        }
        Ok(None)
    }

    /// Computes `parts`, for which room was reserved, in one forward pass.
    /// Gives their logits, part after part.
    /// `[rows, V]`
    ///
    /// # Errors
    /// If a token is out of range or the backend fails.
    pub fn forward(&mut self, parts: &mut [Part]) -> Result<Vec<f32>> {
        let logits = self.forward_observed(parts, None)?;
        self.decoder.read(logits.as_ref())
    }

    /// The same, with a look at the residual stream after each block; logits stay where they are,
    /// `None` of no rows.
    ///
    /// # Errors
    /// As [`Pool::forward`].
    pub fn forward_observed(
        &mut self,
        parts: &mut [Part],
        observer: Option<Observer>,
    ) -> Result<Option<B::Array>> {
        let mut step = Step::default();
        for part in parts.iter() {
            step.tokens.extend_from_slice(part.tokens);
            step.tokens.extend_from_slice(part.drafted);
            let end = step.tokens.len();
            step.outputs.extend(end - part.outputs..end);
            step.spans.push(Span {
                rows: part.rows(),
                past: part.table.len(),
                blocks: part.table.full().iter().map(|block| block.0).collect(),
                windowed: part.table.windowed().iter().map(|block| block.0).collect(),
                slot: part.table.slot(),
                saves: part.saves.clone(),
            });
        }
        let logits = self.decoder.forward(&step, observer)?;
        for part in parts {
            let rows = part.rows();
            part.table.advance(rows);
        }
        Ok(logits)
    }

    /// The logits of a step, to be drawn from.
    pub fn logits<'a>(&'a mut self, there: Option<&'a mut B::Array>) -> Computed<'a, B> {
        Computed::new(&mut self.decoder, there)
    }

    /// As [`Pool::forward`] for one part, with the room reserved.
    ///
    /// # Errors
    /// If there is no room, or as [`Pool::forward`].
    pub fn forward_one(&mut self, table: &mut Table, tokens: &[u32], outputs: usize) -> Result<Vec<f32>> {
        if !self.reserve(table, tokens.len())? {
            return Err(Error::OutOfBlocks { capacity: self.capacity() });
        }
        self.forward(&mut [Part { table, tokens, drafted: &[], outputs, saves: Vec::new() }])
    }
}

#[cfg(test)]
mod disk_tests;
#[cfg(test)]
mod full_tests;
#[cfg(test)]
mod host_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod sharing_tests;
#[cfg(test)]
pub mod tests;
