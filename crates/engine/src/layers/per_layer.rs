//! Per-layer embeddings: a projection of a token's embedding plus the token's row in a table of the
//! block.
//! They gate what the block adds to the residual stream at its end.
//! Source: llama.cpp `src/models/gemma4.cpp`.

use super::{Linear, Norm, Weights};
use crate::Result;
use crate::architecture::Activation;
use crate::backend::{Backend, Step};
use crate::facts::Sizes;

/// The tables of all blocks, which lie with the model's embeddings: a step looks up a few rows.
#[derive(Debug)]
pub struct PerLayerTable<B: Backend> {
    /// `[V * L, P]`: a token's rows of all blocks lie together.
    rows: B::Matrix,
    layers: usize,
    /// Multiplies them.
    scale: f32,
}

/// What the rows of a step bring along to every block.
#[derive(Debug)]
pub struct PerLayerInput<B: Backend> {
    tokens: Vec<u32>,
    /// As the first block gets them.
    /// `[T, D]`
    embeddings: B::Array,
}

/// What a block does with it.
#[derive(Debug)]
pub struct PerLayer<B: Backend> {
    layer: usize,
    /// Of embeddings.
    /// `[P, D]`
    projection: Linear<B>,
    projection_scale: f32,
    projection_norm: Norm<B>,
    /// `[P, D]`
    gate: Linear<B>,
    /// `[D, P]`
    output: Linear<B>,
    output_norm: Norm<B>,
}

/// P, the width of a block's own embeddings; `None`: the model has none.
fn width<B: Backend>(weights: &Weights<B>) -> Result<Option<usize>> {
    weights.facts.maybe("embedding_length_per_layer_input")
}

impl<B: Backend> PerLayerTable<B> {
    /// Loads the tables, if the model has some.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape.
    pub fn load(weights: &Weights<B>, vocabulary: usize, sizes: &Sizes) -> Result<Option<Self>> {
        let Some(width) = width(weights)? else { return Ok(None) };
        let rows = weights.segments("per_layer_token_embd.weight", vocabulary, sizes.layers, width)?;
        Ok(Some(PerLayerTable { rows, layers: sizes.layers, scale: (width as f32).sqrt() }))
    }
}

impl<B: Backend> PerLayerInput<B> {
    /// Of a step's tokens with these embeddings.
    pub fn new(step: &Step, embeddings: B::Array) -> Self {
        PerLayerInput { tokens: step.tokens.clone(), embeddings }
    }

    /// Of some of the rows.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn rows(&self, backend: &mut B, rows: &[usize]) -> Result<Self> {
        let tokens = rows.iter().map(|&row| self.tokens[row]).collect();
        Ok(PerLayerInput { tokens, embeddings: backend.rows(&self.embeddings, rows)? })
    }
}

impl<B: Backend> PerLayer<B> {
    /// Loads what block number `layer` has of it, if the model has such embeddings.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape.
    pub fn load(weights: &Weights<B>, layer: usize, sizes: &Sizes) -> Result<Option<Self>> {
        let Some(inner) = width(weights)? else { return Ok(None) };
        let Sizes { width, layers, norm_epsilon, .. } = *sizes;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let own = layer * inner..(layer + 1) * inner;
        Ok(Some(PerLayer {
            layer,
            projection: Linear::load_rows(weights, "per_layer_model_proj", layers * inner, width, own)?,
            projection_scale: 1.0 / (width as f32).sqrt(),
            projection_norm: Norm::load(weights, "per_layer_proj_norm", inner, norm_epsilon)?,
            gate: Linear::load(weights, &name("inp_gate"), inner, width)?,
            output: Linear::load(weights, &name("proj"), width, inner)?,
            output_norm: Norm::load(weights, &name("post_norm"), width, norm_epsilon)?,
        }))
    }

    /// What is added to `x`, for the rows of `input`.
    /// `x: [T, D]` -> `[T, D]`
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(
        &self,
        backend: &mut B,
        x: &B::Array,
        table: &PerLayerTable<B>,
        input: &PerLayerInput<B>,
    ) -> Result<B::Array> {
        let projected = self.projection.apply(backend, &input.embeddings)?;
        let projected = backend.scale(projected, &[self.projection_scale])?;
        let projected = self.projection_norm.apply(backend, &projected)?;
        let (layers, layer) = (table.layers as u32, self.layer as u32);
        let rows: Vec<u32> = input.tokens.iter().map(|token| token * layers + layer).collect();
        let own = backend.embed(&table.rows, &rows)?;
        let own = backend.scale(own, &[table.scale])?;
        let own = backend.add(own, &projected)?;
        let own = backend.scale(own, &[std::f32::consts::FRAC_1_SQRT_2])?;
        let gate = self.gate.apply(backend, x)?;
        let y = backend.gated(&gate, own, Activation::GeluTanh)?;
        let y = self.output.apply(backend, &y)?;
        self.output_norm.apply(backend, &y)
    }
}
