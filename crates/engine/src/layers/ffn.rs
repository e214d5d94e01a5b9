//! The feed-forward layer, gated in most models.
//! Source: Shazeer 2020, <https://arxiv.org/abs/2002.05202>.

use super::{Linear, Weights};
use crate::Result;
use crate::architecture::{Activation, Ungated};
use crate::backend::Backend;

/// `down(activation(gate(x), up(x)))`, or `down(function(up(x)))` without a gate.
#[derive(Debug)]
pub struct Ffn<B: Backend> {
    gate_up: GateUp<B>,
    down: Linear<B>,
    activation: Activation,
}

/// The projections of the input.
#[derive(Debug)]
enum GateUp<B: Backend> {
    /// One product, without a gate.
    Up(Linear<B>, Ungated),
    /// Two separate products.
    Separate([Linear<B>; 2]),
    /// One product: `hidden` rows of the gate, then as many of up.
    Joined { both: Linear<B>, hidden: usize },
}

impl<B: Backend> Ffn<B> {
    /// Loads the layer of block number `layer` whose tensors end in `suffix`; the tensors determine
    /// its width F.
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
        let (gate, up) = (name("ffn_gate"), name("ffn_up"));
        let joined_in_file = !weights.has(&format!("{gate}.weight"));
        let rows = weights.dimension(&format!("{up}.weight"), 1)?;
        let ungated = weights.facts.architecture.ungated.filter(|_| joined_in_file && rows == hidden);
        let gate_up = if let Some(function) = ungated {
            GateUp::Up(Linear::load(weights, &up, hidden, width)?, function)
        } else if joined_in_file && weights.backend.joins_matrices() {
            GateUp::Joined { both: Linear::load(weights, &up, 2 * hidden, width)?, hidden }
        } else if joined_in_file {
            let load = |rows| Linear::load_rows(weights, &up, 2 * hidden, width, rows);
            GateUp::Separate([load(0..hidden)?, load(hidden..2 * hidden)?])
        } else if let Some(both) = Linear::load_joined(weights, &[gate.clone(), up.clone()], hidden, width)? {
            GateUp::Joined { both, hidden }
        } else {
            let load = |name: &str| Linear::load(weights, name, hidden, width);
            GateUp::Separate([load(&gate)?, load(&up)?])
        };
        Ok(Ffn { gate_up, down: Linear::load(weights, &name("ffn_down"), width, hidden)?, activation })
    }

    /// `x: [T, D]` -> `[T, D]`
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(&self, backend: &mut B, x: &B::Array) -> Result<B::Array> {
        let [gate, up] = match &self.gate_up {
            GateUp::Up(up, function) => {
                let up = up.apply(backend, x)?;
                let hidden = match function {
                    Ungated::ReluSquared => backend.relu_squared(up)?,
                    Ungated::Gelu => backend.gelu_erf(up)?,
                };
                return self.down.apply(backend, &hidden);
            }
            GateUp::Separate([gate, up]) => Linear::apply_all([gate, up], backend, x)?,
            GateUp::Joined { both, hidden } => {
                let both = both.apply(backend, x)?;
                backend.split(&both, 2 * hidden, *hidden)?.into()
            }
        };
        let hidden = backend.gated(&gate, up, self.activation)?;
        self.down.apply(backend, &hidden)
    }
}
