//! A decoder with its cache: block tables in, logits out; and the sequences that run on it
//! together.
//!
//! Caching, sharing, eviction, preemption and drafts never change an answer: on the CPU bit for
//! bit, on a GPU within rounding.
//! `model_tests` compares random mixtures with a model that has no cache; `ALARA_OPERATIONS` makes
//! them longer.

mod disk;
mod host;
mod step;

use std::time::Duration;

use alara_text::prompt_lookup::Acceptance;

use crate::backend::{Backend, Span, Step};
use crate::cache::disk::Disk;
use crate::cache::host::HostMemory;
use crate::cache::{Cache, CacheConfig, Hit, OutOfMemory, Prefix, Prefixes, SlotId, Table};
use crate::decoder::{Decoder, Observer};
use crate::logits::StepLogits;
use crate::schedule::{STEP_TOKENS, StepTimes};
use crate::{Error, Result};
pub use disk::WriteProgress;
pub use step::{FoundPrefix, SequenceData};

/// One sequence's input to a step.
#[derive(Debug)]
pub struct StepInput<'a> {
    /// The table of its cache; grows by all of its rows.
    pub table: &'a mut Table,
    /// The tokens to compute.
    pub tokens: &'a [u32],
    /// Draft tokens computed after them.
    pub drafted: &'a [u32],
    /// How many of the last rows' logits are wanted.
    pub outputs: usize,
    /// Where to save the recurrent state: after how many of the tokens, ascending, and to which
    /// slot.
    pub saves: Vec<(usize, SlotId)>,
}

impl StepInput<'_> {
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
    /// Number of finished sequences.
    finished: u64,
    step_times: StepTimes,
    /// Whether steps are short while a sequence decodes.
    steady: bool,
    acceptance: Acceptance,
    /// The disk tier, if enabled, and the file being written.
    disk: Option<Disk>,
    export: Option<disk::SegmentExport>,
    /// The host memory tier.
    host: HostMemory,
}

impl<B: Backend> Pool<B> {
    /// Takes a decoder loaded with `config`.
    pub fn new(decoder: Decoder<B>, config: &CacheConfig) -> Self {
        let cache = Cache::new(config, decoder.recurrent());
        Pool {
            decoder,
            cache,
            prefixes: Prefixes::default(),
            finished: 0,
            step_times: StepTimes::default(),
            steady: true,
            acceptance: Acceptance::default(),
            disk: None,
            export: None,
            host: HostMemory::default(),
        }
    }

    /// Returns the pool, with sequences decoding steadily during others' prefill or not.
    #[must_use]
    pub fn with_steady_decoding(mut self, steady: bool) -> Self {
        self.steady = steady;
        self
    }

    /// Returns the pool, with static text evicted on the device moved to `bytes` of host memory.
    #[must_use]
    pub fn with_host_tier(mut self, bytes: u64) -> Self {
        self.host = HostMemory::new(bytes);
        self
    }

    /// Returns the pool, with static text also cached on disk.
    #[must_use]
    pub fn with_disk(mut self, disk: Option<Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// How long writing the disk queue may take once there are no more requests.
    pub fn patience(&self) -> Duration {
        self.disk.as_ref().map_or(Duration::ZERO, Disk::patience)
    }

    /// V, the number of logits in a row.
    pub fn vocabulary(&self) -> usize {
        self.decoder.vocabulary()
    }

    /// D, the width of a state.
    pub fn width(&self) -> usize {
        self.decoder.width()
    }

    /// Capacity of the cache in tokens.
    pub fn capacity(&self) -> usize {
        self.cache.capacity()
    }

    /// Number of tokens in the KV cache, in whole blocks.
    pub fn used(&self) -> usize {
        self.cache.used()
    }

    /// The prefix hit of `tokens`, at most all but the last, whose logits are needed.
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

    /// Caches the computed tokens of a finished sequence for later requests.
    fn insert(&mut self, prefix: &Prefix, tokens: &[u32], table: Table) {
        self.prefixes.insert(&mut self.cache, prefix, tokens, table);
    }

    /// Evicts the least valuable holder of the exhausted memory.
    /// False if there is none.
    pub fn evict(&mut self, kind: OutOfMemory) -> bool {
        self.move_to_host(kind);
        self.prefixes.evict(&mut self.cache, kind)
    }

    /// Releases a table.
    pub fn release(&mut self, table: Table) {
        self.cache.release(table);
    }

    /// Reserves blocks for `tokens` more in `table`, evicting cached prefixes if necessary.
    /// False if there aren't enough.
    ///
    /// # Errors
    /// If the backend fails to copy a shared tail.
    pub fn reserve(&mut self, table: &mut Table, tokens: usize) -> Result<bool> {
        loop {
            match self.reserve_free(table, tokens)? {
                None => return Ok(true),
                Some(kind) if !self.evict(kind) => return Ok(false),
                Some(_) => {}
            }
        }
    }

    /// Reserves free blocks only; otherwise returns the memory that ran out.
    ///
    /// # Errors
    /// As [`Pool::reserve`].
    pub fn reserve_free(&mut self, table: &mut Table, tokens: usize) -> Result<Option<OutOfMemory>> {
        let copies = match self.cache.reserve(table, table.len() + tokens) {
            Ok(copies) => copies,
            Err(kind) => return Ok(Some(kind)),
        };
        for (copies, windowed) in [(copies.full, false), (copies.windowed, true)] {
            copies.iter().try_for_each(|&(from, to)| self.decoder.copy_block(from, to, windowed))?;
        }
        Ok(None)
    }

    /// Computes `inputs`, for which blocks were reserved, in one forward pass.
    /// Returns their logits, concatenated.
    /// `[rows, V]`
    ///
    /// # Errors
    /// If a token is out of range or the backend fails.
    pub fn forward(&mut self, inputs: &mut [StepInput]) -> Result<Vec<f32>> {
        let logits = self.forward_observed(inputs, None)?;
        self.decoder.read(logits.as_ref())
    }

    /// As [`Pool::forward`], observing the residual stream after each block; logits stay in the
    /// backend, `None` for no rows.
    ///
    /// # Errors
    /// As [`Pool::forward`].
    pub fn forward_observed(
        &mut self,
        inputs: &mut [StepInput],
        observer: Option<Observer>,
    ) -> Result<Option<B::Array>> {
        let step = step_of(inputs);
        let logits = self.decoder.forward(&step, observer)?;
        for input in inputs {
            let rows = input.rows();
            input.table.advance(rows);
        }
        Ok(logits)
    }

    /// Passes the states of `tokens`, a separate text, to `take`, in order, as [`Decoder::states`]
    /// returns them.
    /// Doesn't use the prefix cache, since the states of cached tokens would be missing.
    /// False if there aren't enough blocks; the next call then starts over.
    ///
    /// # Errors
    /// If a token is out of range, the backend fails, or `take` does.
    pub fn states(&mut self, tokens: &[u32], take: &mut TakeStates) -> Result<bool> {
        let mut table = Table::default();
        let computed = self.states_in(&mut table, tokens, take);
        self.release(table);
        computed
    }

    fn states_in(&mut self, table: &mut Table, tokens: &[u32], take: &mut TakeStates) -> Result<bool> {
        for tokens in tokens.chunks(STEP_TOKENS) {
            if !self.reserve(table, tokens.len())? {
                return Ok(false);
            }
            let (drafted, outputs) = (&[][..], tokens.len());
            let step =
                step_of(&[StepInput { table: &mut *table, tokens, drafted, outputs, saves: Vec::new() }]);
            take(&self.decoder.states(&step)?)?;
            table.advance(tokens.len());
        }
        Ok(true)
    }

    /// The logits of a step, for sampling.
    pub fn logits<'a>(&'a mut self, logits: Option<&'a mut B::Array>) -> StepLogits<'a, B> {
        StepLogits::new(&mut self.decoder, logits)
    }

    /// [`Pool::forward`] for one sequence, including the reservation of blocks.
    ///
    /// # Errors
    /// If there aren't enough blocks, or as [`Pool::forward`].
    pub fn forward_one(&mut self, table: &mut Table, tokens: &[u32], outputs: usize) -> Result<Vec<f32>> {
        if !self.reserve(table, tokens.len())? {
            return Err(Error::OutOfBlocks { capacity: self.capacity() });
        }
        self.forward(&mut [StepInput { table, tokens, drafted: &[], outputs, saves: Vec::new() }])
    }
}

/// Receives the states of each step, and may stop.
type TakeStates<'a> = dyn FnMut(&[f32]) -> Result<()> + 'a;

/// The step that computes `inputs`.
fn step_of(inputs: &[StepInput]) -> Step {
    let mut step = Step::default();
    for input in inputs {
        step.tokens.extend_from_slice(input.tokens);
        step.tokens.extend_from_slice(input.drafted);
        let end = step.tokens.len();
        step.outputs.extend(end - input.outputs..end);
        step.spans.push(Span {
            rows: input.rows(),
            past: input.table.len(),
            blocks: input.table.full().iter().map(|block| block.0).collect(),
            windowed: input.table.windowed().iter().map(|block| block.0).collect(),
            slot: input.table.slot(),
            saves: input.saves.clone(),
        });
    }
    step
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
