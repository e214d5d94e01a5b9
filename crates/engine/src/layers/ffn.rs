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
        let name = |part: &str| format!("{prefix}{part}");
        let down = name("ffn_down.weight");
        let info = weights.gguf.tensor(&down).ok_or_else(|| weights.missing(&down))?;
        let hidden = info.shape.first().copied().unwrap_or(1) as usize;
        let (gate, up) = if weights.gguf.tensor(&name("ffn_gate.weight")).is_some() {
            let load = |part| Linear::load(weights, &name(part), hidden, width);
            (load("ffn_gate")?, load("ffn_up")?)
        } else {
            // Fused rows are those of the gate, then those of up.
            let load = |rows| Linear::load_rows(weights, &name("ffn_up"), 2 * hidden, width, rows);
            (load(0..hidden)?, load(hidden..2 * hidden)?)
        };
        Ok(Ffn { gate, up, down: Linear::load(weights, &name("ffn_down"), width, hidden)?, activation })
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
