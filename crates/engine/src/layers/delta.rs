//! Gated DeltaNet: attention whose past is one matrix per head, which decays and is corrected token
//! by token.
//! Source: Yang et al. 2024, <https://arxiv.org/abs/2412.06464>.

use super::{Linear, Norm, Weights};
use crate::Result;
use crate::architecture::Activation;
use crate::backend::{Backend, DeltaInput, DeltaShape, DeltaWeights, StateShape, Step};
use crate::facts::Sizes;

/// One DeltaNet layer.
#[derive(Debug)]
pub struct Delta<B: Backend> {
    /// Projection to the convolved channels: queries, keys, values.
    qkv: Linear<B>,
    /// Projection to the gate of the heads' results.
    gate: Linear<B>,
    rates: Rates<B>,
    weights: DeltaWeights<B::Vector>,
    norm: Norm<B>,
    output: Linear<B>,
    shape: DeltaShape,
}

/// Projections to the strength of each value head's correction (beta), and to its decay (alpha).
#[derive(Debug)]
enum Rates<B: Backend> {
    /// beta and alpha by separate products.
    Separate([Linear<B>; 2]),
    /// One product: for each key head `group` betas of its value heads, then as many alphas.
    Joined { both: Linear<B>, group: usize },
}

impl<B: Backend> Delta<B> {
    /// Loads the layer of block number `layer`.
    ///
    /// # Errors
    /// If a key or tensor is missing, or has another shape.
    pub fn load(weights: &Weights<B>, layer: usize, sizes: &Sizes) -> Result<Self> {
        let facts = weights.facts;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let inner = facts.size("ssm.inner_size")?;
        let value_heads = facts.size("ssm.time_step_rank")?;
        let key_heads = facts.size("ssm.group_count")?;
        if !inner.is_multiple_of(value_heads) || !value_heads.is_multiple_of(key_heads) {
            let reason =
                format!("{inner} channels, {value_heads} value heads and {key_heads} key heads don't fit");
            return Err(facts.invalid("ssm.time_step_rank", &reason));
        }
        let shape = DeltaShape {
            key_heads,
            value_heads,
            // Value heads are either ordered like the whole sequence of key heads repeated, or
            // grouped by key head.
            grouped: facts.flag("ssm.v_head_reordered")? == Some(false),
            key_width: facts.size("ssm.state_size")?,
            value_width: inner / value_heads,
            kernel: facts.size("ssm.conv_kernel")?,
            epsilon: sizes.norm_epsilon,
        };
        let conv = name("ssm_conv1d.weight");
        let channels = shape.channels();
        Ok(Delta {
            qkv: Linear::load(weights, &name("attn_qkv"), channels, sizes.width)?,
            gate: Linear::load(weights, &name("attn_gate"), inner, sizes.width)?,
            rates: if weights.has(&name("ssm_ba.weight")) {
                let both = Linear::load(weights, &name("ssm_ba"), 2 * value_heads, sizes.width)?;
                Rates::Joined { both, group: value_heads / key_heads }
            } else {
                let load = |part: &str| Linear::load(weights, &name(part), value_heads, sizes.width);
                Rates::Separate([load("ssm_beta")?, load("ssm_alpha")?])
            },
            weights: DeltaWeights {
                conv: weights.table(&conv, shape.kernel, channels)?.ok_or_else(|| weights.missing(&conv))?,
                a: weights.required(&name("ssm_a"), value_heads)?,
                dt: weights.required(&name("ssm_dt.bias"), value_heads)?,
            },
            norm: Norm::load(weights, &name("ssm_norm"), shape.value_width, sizes.norm_epsilon)?,
            output: Linear::load(weights, &name("ssm_out"), sizes.width, inner)?,
            shape,
        })
    }

    /// The shape of the recurrent state.
    pub fn state_shape(&self) -> StateShape {
        StateShape::from(&self.shape)
    }

    /// `x: [T, D]` -> `[T, D]`
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(
        &self,
        backend: &mut B,
        x: &B::Array,
        step: &Step,
        state: &mut B::Recurrent,
    ) -> Result<B::Array> {
        let (qkv, gate, beta, alpha);
        match &self.rates {
            Rates::Separate([of_beta, of_alpha]) => {
                let linears = [&self.qkv, &self.gate, of_beta, of_alpha];
                [qkv, gate, beta, alpha] = Linear::apply_all(linears, backend, x)?;
            }
            Rates::Joined { both, group } => {
                let rates;
                [qkv, gate, rates] = Linear::apply_all([&self.qkv, &self.gate, both], backend, x)?;
                (beta, alpha) = backend.split(&rates, 2 * group, *group)?;
            }
        }
        let input = DeltaInput { qkv: &qkv, beta: &beta, alpha: &alpha };
        let mixed = backend.delta(input, &self.weights.by_ref(), step, state, &self.shape)?;
        let mixed = self.norm.apply(backend, &mixed)?;
        let mixed = backend.gated(&gate, mixed, Activation::Silu)?;
        self.output.apply(backend, &mixed)
    }
}
