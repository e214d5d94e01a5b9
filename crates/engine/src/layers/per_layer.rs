//! Per-layer embeddings: a projection of a token's embedding plus the token's row in a table of the
//! block.
//! They gate each block's final contribution to the residual stream.
//! Source: llama.cpp `src/models/gemma4.cpp`.

use super::{Linear, Norm, Weights};
use crate::Result;
use crate::architecture::Activation;
use crate::backend::{Backend, Step};
use crate::facts::Sizes;

/// The tables of all blocks, on the side of the model's embeddings: a step looks up a few rows.
#[derive(Debug)]
pub struct PerLayerTable<B: Backend> {
    /// `[V * L, P]`: a token's rows for all blocks are contiguous.
    rows: B::Matrix,
    layers: usize,
    /// Multiplies the rows.
    scale: f32,
}

/// The inputs of a step's rows for every block.
#[derive(Debug)]
pub struct PerLayerInput<B: Backend> {
    tokens: Vec<u32>,
    /// The input of the first block.
    /// `[T, D]`
    embeddings: B::Array,
}

/// A block's part of the mechanism.
#[derive(Debug)]
pub struct PerLayer<B: Backend> {
    layer: usize,
    /// Applied to the embeddings.
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

/// P, the width of per-layer embeddings; `None` if the model has none.
fn width<B: Backend>(weights: &Weights<B>) -> Result<Option<usize>> {
    weights.facts.maybe("embedding_length_per_layer_input")
}

impl<B: Backend> PerLayerTable<B> {
    /// Loads the tables, if the model has any.
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
    /// The input for a step's tokens with these embeddings.
    pub fn new(step: &Step, embeddings: B::Array) -> Self {
        PerLayerInput { tokens: step.tokens.clone(), embeddings }
    }

    /// Selects some of the rows.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn rows(&self, backend: &mut B, rows: &[usize]) -> Result<Self> {
        let tokens = rows.iter().map(|&row| self.tokens[row]).collect();
        Ok(PerLayerInput { tokens, embeddings: backend.rows(&self.embeddings, rows)? })
    }
}

impl<B: Backend> PerLayer<B> {
    /// Loads the part of block number `layer`, if the model has per-layer embeddings.
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

    /// The contribution to `x`, for the rows of `input`.
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
