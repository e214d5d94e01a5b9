//! The logits of a step, of which only the part that sampling needs is read.
//!
//! A token sampled from the top logits is the one that all logits would give.
//! Where that is not certain, all are read.

use crate::Result;
use crate::backend::{Backend, HostNumbers, TopK};
use crate::decoder::Decoder;

/// Rows of logits; a token is sampled from each.
pub trait Logits {
    /// All of row `row`, modifiable.
    /// `[V]`
    ///
    /// # Errors
    /// If they can't be read back.
    fn row(&mut self, row: usize) -> Result<&mut [f32]>;

    /// The `k` greatest finite logits of row `row` with their tokens, in descending order, equal
    /// ones by token id.
    /// Only tokens of the token mask count: bit `i % 32` of `mask[i / 32]` for token i.
    /// Fewer if there aren't as many.
    /// `None` if reading the whole row is as fast.
    ///
    /// # Errors
    /// As [`Logits::row`].
    fn top_k(&mut self, row: usize, k: usize, mask: &[u32]) -> Result<TopK>;
}

/// The logits of a step in the decoder's memory.
pub struct StepLogits<'a, B: Backend> {
    decoder: &'a mut Decoder<B>,
    /// `[rows, V]`; `None` if there are no rows, or they are on the host.
    on_device: Option<&'a mut B::Array>,
    /// `[rows, V]` on the host, once a whole row was requested.
    on_host: Option<HostNumbers<'a>>,
}

impl<'a, B: Backend> StepLogits<'a, B> {
    /// The logits of a step of `decoder`.
    pub fn new(decoder: &'a mut Decoder<B>, on_device: Option<&'a mut B::Array>) -> Self {
        StepLogits { decoder, on_device, on_host: None }
    }
}

impl<B: Backend> Logits for StepLogits<'_, B> {
    fn row(&mut self, row: usize) -> Result<&mut [f32]> {
        let vocabulary = self.decoder.vocabulary();
        if let Some(logits) = self.on_device.take() {
            self.on_host = Some(self.decoder.read_mut(logits)?);
        }
        let logits = self.on_host.as_deref_mut().unwrap_or_default();
        Ok(&mut logits[row * vocabulary..][..vocabulary])
    }

    fn top_k(&mut self, row: usize, k: usize, mask: &[u32]) -> Result<TopK> {
        match &self.on_device {
            Some(logits) => self.decoder.top_k(logits, row, k, mask),
            None => Ok(None),
        }
    }
}
