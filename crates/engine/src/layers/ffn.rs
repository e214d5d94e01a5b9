//! The gated feed-forward layer. Source: Shazeer 2020, <https://arxiv.org/abs/2002.05202>.

use super::{Linear, Weights};
use crate::Result;
use crate::architecture::Activation;
use crate::backend::Backend;

/// `down(activation(gate(x), up(x)))`.
#[derive(Debug)]
pub struct Ffn<B: Backend> {
    gate: Linear<B>,
    up: Linear<B>,
    down: Linear<B>,
    activation: Activation,
}

impl<B: Backend> Ffn<B> {
    /// Loads the layer of block number `layer` whose tensors end in `suffix`; its width F is that of the tensors.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape.
    pub fn load(
        weights: &Weights<B>,
        layer: usize,
        suffix: &str,
        width: usize,
        activation: Activation,
    ) -> Result<Self> {
        let name = |part: &str| format!("blk.{layer}.{part}{suffix}");
        let hidden = weights.dimension(&format!("{}.weight", name("ffn_down")), 0)?;
        let (gate, up) = if weights.has(&format!("{}.weight", name("ffn_gate"))) {
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
        let [gate, up] = Linear::apply_all([&self.gate, &self.up], backend, x)?;
        let hidden = backend.gated(&gate, up, self.activation)?;
        self.down.apply(backend, &hidden)
    }
}
