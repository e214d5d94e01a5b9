//! A feed-forward layer of experts, of which each token uses only a few.
//! Source: Shazeer et al. 2017,
//! <https://arxiv.org/abs/1701.06538>.

use super::{Ffn, Linear, Norm, Weights, normed};
use crate::Result;
use crate::architecture::{Activation, Router, Score};
use crate::backend::{Backend, ExpertStacks, Groups, Routing};
use crate::facts::{Facts, Sizes};

/// One layer of experts.
#[derive(Debug)]
pub struct Experts<B: Backend> {
    router: Linear<B>,
    /// Applied to the router's input, which is then the residual stream, divided by `sqrt(D)`.
    router_norm: Option<Norm<B>>,
    routing: Routing<B::Vector>,
    stacks: ExpertStacks<B::Stack, B::Vector>,
    /// Applied to the experts' input, which is then the residual stream.
    norm: Option<Norm<B>>,
    /// Applied to the experts' combined result.
    output_norm: Option<Norm<B>>,
    shared: Option<Shared<B>>,
    /// D.
    width: usize,
}

/// An expert that every token uses.
#[derive(Debug)]
struct Shared<B: Backend> {
    ffn: Ffn<B>,
    /// `[1, D]`: the sigmoid of its product with a row multiplies the expert's result.
    gate: Option<B::Matrix>,
    /// Applied to the expert's result.
    output_norm: Option<Norm<B>>,
}

impl<B: Backend> Experts<B> {
    /// Loads the layer of block number `layer`; the tensors determine the experts' width F.
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
        let inner = GateUpStacks::load(weights, layer, [count, hidden, width])?;
        let norm = |part: &str| Norm::maybe(weights, &name(part), width, sizes.norm_epsilon);
        // A dense layer next to experts is one that every token uses.
        let suffix =
            ["_shexp", ""].into_iter().find(|it| weights.has(&name(&format!("ffn_down{it}.weight"))));
        let shared = match suffix {
            Some(suffix) => Some(Shared {
                ffn: Ffn::load(weights, layer, suffix, width, activation)?,
                gate: weights.matrix(&name("ffn_gate_inp_shexp.weight"), 1, width)?,
                output_norm: norm("post_ffw_norm_1")?,
            }),
            None => None,
        };
        let router_norm = weights.vector(&name("ffn_gate_inp.scale"), width)?;
        Ok(Experts {
            router_norm: router_norm.map(|weight| Norm::new(weight, sizes.norm_epsilon)),
            norm: norm("pre_ffw_norm_2")?,
            output_norm: norm("post_ffw_norm_2")?,
            router: Linear::load(weights, &name("ffn_gate_inp"), count, width)?,
            routing: Routing {
                bias: weights.vector(&name("exp_probs_b.bias"), count)?,
                scales: weights.vector(&name("ffn_down_exps.scale"), count)?,
                ..routing(facts)?
            },
            stacks: ExpertStacks {
                gate: inner.gate,
                up: inner.up,
                down: weights.stack(&name("ffn_down_exps.weight"), count, width, hidden, 0..width)?,
                gate_bias: inner.gate_bias,
                up_bias: inner.up_bias,
                down_bias: weights.table(&name("ffn_down_exps.bias"), width, count)?,
                activation,
            },
            shared,
            width,
        })
    }

    /// `x: [T, D]` after the block's norm, and `residual: [T, D]` before it -> `[T, D]`
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(&self, backend: &mut B, residual: &B::Array, x: &B::Array) -> Result<B::Array> {
        let logits = match &self.router_norm {
            None => self.router.apply(backend, x)?,
            Some(norm) => {
                let read = norm.apply(backend, residual)?;
                let read = backend.scale(read, &[1.0 / (self.width as f32).sqrt()])?;
                self.router.apply(backend, &read)?
            }
        };
        let read = normed(backend, self.norm.as_ref(), residual)?;
        let read = read.as_ref().unwrap_or(x);
        let y = backend.experts(read, &logits, &self.routing.by_ref(), &self.stacks.by_ref())?;
        let y = normed(backend, self.output_norm.as_ref(), &y)?.unwrap_or(y);
        let Some(shared) = &self.shared else { return Ok(y) };
        let mut z = shared.ffn.apply(backend, x)?;
        if let Some(gate) = &shared.gate {
            let gate = backend.matmul(x, gate)?; // [T, 1]
            z = backend.gated(&gate, z, Activation::Sigmoid)?;
        }
        let z = normed(backend, shared.output_norm.as_ref(), &z)?.unwrap_or(z);
        backend.add(y, &z)
    }
}

/// The matrices for experts' inner rows: the first part of [`ExpertStacks`].
struct GateUpStacks<B: Backend> {
    gate: B::Stack,
    up: Option<B::Stack>,
    gate_bias: Option<B::Vector>,
    up_bias: Option<B::Vector>,
}

impl<B: Backend> GateUpStacks<B> {
    /// Loads them, joined if the backend prefers it and the file permits it.
    fn load(weights: &Weights<B>, layer: usize, [count, hidden, width]: [usize; 3]) -> Result<Self> {
        let both =
            |part| [format!("blk.{layer}.ffn_gate_exps.{part}"), format!("blk.{layer}.ffn_up_exps.{part}")];
        let ([gate, up], [gate_bias, up_bias]) = (both("weight"), both("bias"));
        // Fused rows are those of gate, then those of up.
        let fused = format!("blk.{layer}.ffn_gate_up_exps.weight");
        let rows_of_fused = |rows| weights.stack(&fused, count, 2 * hidden, width, rows);
        if weights.backend.joins_matrices() {
            let bias = weights.joined_table(&[gate_bias.clone(), up_bias.clone()], hidden, count)?;
            let all = if bias.is_none() && (weights.has(&gate_bias) || weights.has(&up_bias)) {
                None
            } else if weights.has(&fused) {
                Some(rows_of_fused(0..2 * hidden)?)
            } else {
                weights.joined_stack(&[gate.clone(), up.clone()], count, hidden, width)?
            };
            if let Some(gate) = all {
                return Ok(GateUpStacks { gate, up: None, gate_bias: bias, up_bias: None });
            }
        }
        let (gate, up) = if weights.has(&fused) {
            (rows_of_fused(0..hidden)?, rows_of_fused(hidden..2 * hidden)?)
        } else {
            let stack = |name: &str| weights.stack(name, count, hidden, width, 0..hidden);
            (stack(&gate)?, stack(&up)?)
        };
        let bias = |name: &str| weights.table(name, hidden, count);
        Ok(GateUpStacks { gate, up: Some(up), gate_bias: bias(&gate_bias)?, up_bias: bias(&up_bias)? })
    }
}

/// How the file chooses and weights experts.
fn routing<V>(facts: &Facts) -> Result<Routing<V>> {
    let (count, used) = (facts.size("expert_count")?, facts.size("expert_used_count")?);
    if used > count {
        return Err(facts.invalid("expert_used_count", &format!("there are only {count} experts")));
    }
    let unsaid = || {
        let reason = "neither the file nor what is known of its architecture says how experts are weighed";
        facts.invalid("expert_count", reason)
    };
    let router = facts.architecture.router;
    // Source: llama.cpp `llama_expert_gating_func_type`.
    let score = match facts.maybe("expert_gating_func")? {
        None => router.ok_or_else(unsaid)?.score,
        Some(1) => Score::Softmax,
        Some(2) => Score::Sigmoid,
        Some(3) => Score::SoftmaxOfChosen,
        Some(other) => {
            return Err(facts.invalid("expert_gating_func", &format!("{other} is not supported")));
        }
    };
    let normalise = match facts.flag("expert_weights_norm")? {
        None => router.ok_or_else(unsaid)?.normalise,
        Some(normalise) => normalise,
    };
    let weigh_input = router.is_some_and(|router| router.weigh_input);
    let scale = facts.number("expert_weights_scale")?.filter(|&scale| scale != 0.0).unwrap_or(1.0);
    Ok(Routing {
        count,
        used,
        router: Router { score, normalise, weigh_input },
        groups: groups(facts, count, used)?,
        bias: None,
        scale,
        scales: None,
    })
}

/// The groups of experts, if there is more than one.
fn groups(facts: &Facts, experts: usize, used: usize) -> Result<Option<Groups>> {
    let (count, kept) = (facts.maybe("expert_group_count")?, facts.maybe("expert_group_used_count")?);
    let Some(count) = count.filter(|&count| count > 1) else { return Ok(None) };
    let kept = kept.ok_or_else(|| facts.missing_key("expert_group_used_count"))?;
    if !experts.is_multiple_of(count) {
        let reason = format!("{experts} experts don't make {count} equal groups");
        return Err(facts.invalid("expert_group_count", &reason));
    }
    if kept > count || kept * (experts / count) < used {
        let reason = format!("{kept} of {count} groups of {} can't give {used} experts", experts / count);
        return Err(facts.invalid("expert_group_used_count", &reason));
    }
    Ok(Some(Groups { count, used: kept }))
}
