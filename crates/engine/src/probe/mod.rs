//! The bare decoder, for holding it against a reference and for timing: tokens in, logits out, no text.

use crate::Result;
use crate::backend::KvType;
use crate::backend::candle::Candle;
use crate::cache::BlockTable;
use crate::decoder::Decoder;
use crate::gguf::Gguf;
use crate::pool::{Pool, layout};

/// One sequence on a bare decoder.
#[derive(Debug)]
pub struct Probe {
    pool: Pool<Candle>,
    table: BlockTable,
}

impl Probe {
    /// Loads the model in `gguf` with room for `tokens` tokens.
    ///
    /// # Errors
    /// As [`Decoder::load`].
    pub fn load(gguf: &Gguf, tokens: usize, kv: KvType) -> Result<Self> {
        let layout = layout(tokens);
        let decoder = Decoder::load(gguf, Candle::cpu(), layout, kv)?;
        Ok(Probe { pool: Pool::new(decoder, layout), table: BlockTable::default() })
    }

    /// V, the number of logits in a row.
    pub fn vocabulary(&self) -> usize {
        self.pool.vocabulary()
    }

    /// Appends `tokens` and gives the logits of the last `outputs` of them. `[outputs, V]`
    ///
    /// # Errors
    /// If there is no room, a token is out of range, or the backend fails.
    pub fn feed(&mut self, tokens: &[u32], outputs: usize) -> Result<Vec<f32>> {
        self.pool.forward_one(&mut self.table, tokens, outputs.min(tokens.len()))
    }

    /// Starts over with an empty sequence.
    pub fn clear(&mut self) {
        self.pool.release(std::mem::take(&mut self.table));
    }
}

/// Threads that compute.
pub fn threads() -> usize {
    candle_core::utils::get_num_threads()
}

#[cfg(test)]
mod tests;
