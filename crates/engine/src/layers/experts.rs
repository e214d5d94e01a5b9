//! A feed-forward layer of experts, of which each token uses a few. Source: Shazeer et al. 2017,
//! <https://arxiv.org/abs/1701.06538>.

use super::{Ffn, Linear, Weights};
use crate::Result;
use crate::architecture::{Activation, Score};
use crate::backend::{Backend, Choice, ExpertStacks};
use crate::facts::{Facts, Sizes};

/// One layer of experts.
#[derive(Debug)]
pub struct Experts<B: Backend> {
    router: Linear<B>,
    choice: Choice<B::Vector>,
    stacks: ExpertStacks<B::Stack, B::Vector>,
    shared: Option<Shared<B>>,
}

/// An expert that every token uses.
#[derive(Debug)]
struct Shared<B: Backend> {
    ffn: Ffn<B>,
    /// `[1, D]`: the sigmoid of its product with a row multiplies what the expert gives.
    gate: Option<B::Matrix>,
}

impl<B: Backend> Experts<B> {
    /// Loads the layer of block number `layer`; the experts' width F is that of the tensors.
    ///
    /// # Errors
    /// If a key or tensor is missing, or has another shape.
    pub fn load(weights: &Weights<B>, layer: usize, sizes: &Sizes) -> Result<Self> {
        let facts = weights.facts;
        let width = sizes.width;
        let activation = facts.architecture.activation;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let count = facts.size("expert_count")?;
        let hidden = weights.dimension(&name("ffn_down_exps.weight"), 0)?;
        let (gate, up) = if weights.has(&name("ffn_gate_up_exps.weight")) {
            // Fused rows are those of the gate, then those of up.
            let fused =
                |rows| weights.stack(&name("ffn_gate_up_exps.weight"), count, 2 * hidden, width, rows);
            (fused(0..hidden)?, fused(hidden..2 * hidden)?)
        } else {
            let stack = |part| weights.stack(&name(part), count, hidden, width, 0..hidden);
            (stack("ffn_gate_exps.weight")?, stack("ffn_up_exps.weight")?)
        };
        let shared = if weights.has(&name("ffn_down_shexp.weight")) {
            Some(Shared {
                ffn: Ffn::load(weights, layer, "_shexp", width, activation)?,
                gate: weights.matrix(&name("ffn_gate_inp_shexp.weight"), 1, width)?,
            })
        } else {
            None
        };
        Ok(Experts {
            router: Linear::load(weights, &name("ffn_gate_inp"), count, width)?,
            choice: choice(facts, weights.vector(&name("exp_probs_b.bias"), count)?)?,
            stacks: ExpertStacks {
                gate,
                up,
                down: weights.stack(&name("ffn_down_exps.weight"), count, width, hidden, 0..width)?,
                gate_bias: weights.table(&name("ffn_gate_exps.bias"), hidden, count)?,
                up_bias: weights.table(&name("ffn_up_exps.bias"), hidden, count)?,
                down_bias: weights.table(&name("ffn_down_exps.bias"), width, count)?,
                activation,
            },
            shared,
        })
    }

    /// `x: [T, D]` -> `[T, D]`
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(&self, backend: &mut B, x: &B::Array) -> Result<B::Array> {
        let logits = self.router.apply(backend, x)?;
        let y = backend.experts(x, &logits, &self.choice.by_ref(), &self.stacks.by_ref())?;
        let Some(shared) = &self.shared else { return Ok(y) };
        let mut z = shared.ffn.apply(backend, x)?;
        if let Some(gate) = &shared.gate {
            let gate = backend.matmul(x, gate)?; // [T, 1]
            z = backend.gated(&gate, z, Activation::Sigmoid)?;
        }
        backend.add(y, &z)
    }
}

/// How the file says that experts are chosen and weighed.
fn choice<V>(facts: &Facts, bias: Option<V>) -> Result<Choice<V>> {
    let (count, used) = (facts.size("expert_count")?, facts.size("expert_used_count")?);
    if used > count {
        return Err(facts.invalid("expert_used_count", &format!("there are only {count} experts")));
    }
    if facts.maybe("expert_group_count")?.is_some_and(|groups| groups > 1) {
        return Err(facts.invalid("expert_group_count", "experts in groups are not supported"));
    }
    let mut router = facts.architecture.router;
    // Source: llama.cpp `llama_expert_gating_func_type`.
    router.score = match facts.maybe("expert_gating_func")? {
        None => router.score,
        Some(1) => Score::Softmax,
        Some(2) => Score::Sigmoid,
        Some(3) => Score::SoftmaxOfChosen,
        Some(other) => {
            return Err(facts.invalid("expert_gating_func", &format!("{other} is not supported")));
        }
    };
    router.normalise = facts.flag("expert_weights_norm")?.unwrap_or(router.normalise);
    let scale = facts.number("expert_weights_scale")?.filter(|&scale| scale != 0.0).unwrap_or(1.0);
    Ok(Choice { count, used, router, bias, scale })
}
