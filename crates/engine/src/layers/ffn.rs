//! The gated feed-forward layer. Source: Shazeer 2020, <https://arxiv.org/abs/2002.05202>.

use super::{Linear, Weights};
use crate::Result;
use crate::architecture::Activation;
use crate::backend::Backend;

/// `down(activation(gate(x)) * up(x))`.
#[derive(Debug)]
pub struct Ffn<B: Backend> {
    gate: Linear<B>,
    up: Linear<B>,
    down: Linear<B>,
    activation: Activation,
}

impl<B: Backend> Ffn<B> {
    /// Loads the layer of block `prefix`; its width F is that of the tensors.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape.
    pub fn load(weights: &Weights<B>, prefix: &str, width: usize, activation: Activation) -> Result<Self> {
        let up = format!("{prefix}ffn_up.weight");
        let info = weights.gguf.tensor(&up).ok_or_else(|| weights.missing(&up))?;
        let hidden = info.shape.get(1).copied().unwrap_or(1) as usize;
        let linear =
            |name: &str, out: usize, width: usize| Linear::load(weights, &format!("{prefix}{name}"), out, width);
        Ok(Ffn {
            gate: linear("ffn_gate", hidden, width)?,
            up: linear("ffn_up", hidden, width)?,
            down: linear("ffn_down", width, hidden)?,
            activation,
        })
    }

    /// `x: [T, D]` -> `[T, D]`
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(&self, backend: &mut B, x: &B::Array) -> Result<B::Array> {
        let gate = self.gate.apply(backend, x)?;
        let up = self.up.apply(backend, x)?;
        let hidden = backend.gated(&gate, &up, self.activation)?;
        self.down.apply(backend, &hidden)
    }
}
