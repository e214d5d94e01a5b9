//! Mamba-2: a selective state space whose past is one matrix per head, which decays and is written
//! to token by token.
//! Source: Dao and Gu 2024, <https://arxiv.org/abs/2405.21060>; tensors as in llama.cpp
//! src/models/mamba-base.cpp.

use super::{Linear, Weights};
use crate::Result;
use crate::architecture::Activation;
use crate::backend::{Backend, ScanInput, ScanShape, ScanWeights, StateShape, Step};
use crate::facts::Sizes;

/// One Mamba-2 layer.
#[derive(Debug)]
pub struct Mamba2<B: Backend> {
    /// Projection to the gate of the heads' results.
    gate: Linear<B>,
    /// Projection to the convolved channels: inputs, B, C.
    xbc: Linear<B>,
    /// Projection to the step of each head.
    dt: Linear<B>,
    weights: ScanWeights<B::Vector>,
    /// Applied to each group's part of the heads' results, after the gate.
    norm: Option<B::Vector>,
    epsilon: f32,
    output: Linear<B>,
    shape: ScanShape,
}

impl<B: Backend> Mamba2<B> {
    /// Loads the layer of block number `layer`.
    ///
    /// # Errors
    /// If a key or tensor is missing, or has another shape.
    pub fn load(weights: &Weights<B>, layer: usize, sizes: &Sizes) -> Result<Self> {
        let facts = weights.facts;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let inner = facts.size("ssm.inner_size")?;
        let heads = facts.size("ssm.time_step_rank")?;
        let groups = facts.maybe("ssm.group_count")?.unwrap_or(1);
        if !inner.is_multiple_of(heads) || !heads.is_multiple_of(groups) {
            let reason = format!("{inner} channels, {heads} heads and {groups} groups don't fit");
            return Err(facts.invalid("ssm.time_step_rank", &reason));
        }
        let shape = ScanShape {
            heads,
            groups,
            width: inner / heads,
            state: facts.size("ssm.state_size")?,
            kernel: facts.size("ssm.conv_kernel")?,
        };
        let channels = shape.channels();
        // A single tensor: rows of the gate, of the channels, of the steps.
        let input =
            |rows| Linear::load_rows(weights, &name("ssm_in"), inner + channels + heads, sizes.width, rows);
        let table = |part: &str, width: usize, rows: usize| {
            let name = name(part);
            weights.table(&name, width, rows)?.ok_or_else(|| weights.missing(&name))
        };
        Ok(Mamba2 {
            gate: input(0..inner)?,
            xbc: input(inner..inner + channels)?,
            dt: input(inner + channels..inner + channels + heads)?,
            weights: ScanWeights {
                conv: table("ssm_conv1d.weight", shape.kernel, channels)?,
                conv_bias: weights.vector(&name("ssm_conv1d.bias"), channels)?,
                a: table("ssm_a", 1, heads)?,
                d: table("ssm_d", 1, heads)?,
                dt_bias: weights.required(&name("ssm_dt.bias"), heads)?,
            },
            norm: weights.table(&name("ssm_norm.weight"), inner / groups, groups)?,
            epsilon: sizes.norm_epsilon,
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
        let [gate, xbc, dt] = Linear::apply_all([&self.gate, &self.xbc, &self.dt], backend, x)?;
        let input = ScanInput { xbc: &xbc, dt: &dt };
        let mixed = backend.scan(input, &self.weights.by_ref(), step, state, &self.shape)?;
        let mut mixed = backend.gated(&gate, mixed, Activation::Silu)?;
        if let Some(weight) = &self.norm {
            mixed = backend.group_norm(&mixed, weight, self.shape.groups, self.epsilon)?;
        }
        self.output.apply(backend, &mixed)
    }
}
