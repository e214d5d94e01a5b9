//! Causal attention with grouped heads, windows and sinks.

use candle_core::{Device, Result, Tensor};
use candle_nn::ops;

use super::kv::TensorKv;
use crate::backend::{AttentionShape, Span};

/// Attention of the rows of one span to the tokens of its sequence in `kv`.
/// `q: [T, H * E]` -> `[T, H * value_width]`
pub fn attend(
    q: &Tensor,
    sinks: Option<&Tensor>,
    kv: &TensorKv,
    span: &Span,
    shape: &AttentionShape,
) -> Result<Tensor> {
    let AttentionShape { heads, kv_heads, key_width, value_width, scale, softcap, window, .. } = *shape;
    let (rows, group, end) = (span.rows, heads / kv_heads, span.past + span.rows);
    // The first token that the first row attends to.
    // Earlier blocks may already belong to other sequences.
    let start = shape.oldest(span.past);
    let (keys, values) = kv.read(span.blocks_for(window), start, end, shape)?;
    // The query heads of one key head are stacked: [K, G * T, E].
    let q = q.reshape((rows, kv_heads, group, key_width))?.permute((1, 2, 0, 3))?;
    let q = (q.reshape((kv_heads, group * rows, key_width))? * f64::from(scale))?;
    let mut scores = q.matmul(&keys.transpose(1, 2)?.contiguous()?)?;
    if let Some(cap) = softcap.map(f64::from) {
        scores = ((scores / cap)?.tanh()? * cap)?;
    }
    let mut scores = scores.reshape((kv_heads, group, rows, end - start))?;
    // A single row attends to everything that was read.
    if rows > 1 {
        scores = scores.broadcast_add(&mask(span, start, shape, q.device())?)?;
    }
    let shares = match sinks {
        None => ops::softmax_last_dim(&scores)?,
        Some(sinks) => {
            let sinks = sinks.reshape((kv_heads, group, 1, 1))?.broadcast_as((kv_heads, group, rows, 1))?;
            let shares =
                ops::softmax_last_dim(&Tensor::cat(&[scores, sinks.contiguous()?], 3)?.contiguous()?)?;
            shares.narrow(3, 0, end - start)?
        }
    };
    let shares = shares.reshape((kv_heads, group * rows, end - start))?;
    let mixed = shares.matmul(&values.contiguous()?)?;
    let mixed = mixed.reshape((kv_heads, group, rows, value_width))?.permute((2, 0, 1, 3))?;
    mixed.reshape((rows, heads * value_width))
}

/// Zero where a row of `span` attends to a token, from token `start` on, minus infinity elsewhere.
/// `[1, 1, T, tokens]`
fn mask(span: &Span, start: usize, shape: &AttentionShape, device: &Device) -> Result<Tensor> {
    let end = span.past + span.rows;
    let sees = |row: usize, at: usize| (shape.oldest(row)..=row).contains(&at);
    let mask: Vec<f32> = (span.past..end)
        .flat_map(|row| (start..end).map(move |at| if sees(row, at) { 0.0 } else { f32::NEG_INFINITY }))
        .collect();
    Tensor::from_vec(mask, (1, 1, span.rows, end - start), device)
}
