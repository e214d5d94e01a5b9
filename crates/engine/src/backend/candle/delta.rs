//! The gated delta rule, token by token, after a causal convolution.
//! Source: Yang et al. 2024,
//! <https://arxiv.org/abs/2412.06464>.

use candle_core::{D, Result, Tensor};
use candle_nn::ops;

use super::state::{Memory, TensorState};
use crate::backend::{DeltaInput, DeltaShape, DeltaWeights, Step};

/// `[T, value_heads * value_width]`
pub fn delta(
    input: &DeltaInput<Tensor>,
    weights: &DeltaWeights<&Tensor>,
    step: &Step,
    state: &mut TensorState,
    shape: &DeltaShape,
) -> Result<Tensor> {
    let beta = ops::sigmoid(input.beta)?;
    let alpha = softplus(&input.alpha.broadcast_add(weights.dt)?)?;
    let decay = alpha.broadcast_mul(weights.a)?.exp()?;
    state.through(step, |row, rows, memory| {
        let part = |x: &Tensor| x.narrow(0, row, rows);
        let (convolved, history) = convolve(&part(input.qkv)?, &memory.history, weights.conv)?;
        let known = memory.matrices.clone();
        let (y, matrices) = recur(&convolved.silu()?, &part(&beta)?, &part(&decay)?, known, shape)?;
        Ok((y, Memory { history, matrices }))
    })
}

/// `sum over taps of weight * row` in each channel, and the history for the next rows.
/// `x: [n, channels]`, `weights: [channels, kernel]`
pub fn convolve(x: &Tensor, history: &Tensor, weights: &Tensor) -> Result<(Tensor, Tensor)> {
    let (rows, channels) = x.dims2()?;
    let past = history.dim(0)?;
    let x = if past == 0 { x.clone() } else { Tensor::cat(&[history, x], 0)? };
    let taps = weights.reshape((channels, past + 1))?.t()?.contiguous()?;
    let mut y = x.narrow(0, 0, rows)?.broadcast_mul(&taps.narrow(0, 0, 1)?)?;
    for tap in 1..=past {
        y = (y + x.narrow(0, tap, rows)?.broadcast_mul(&taps.narrow(0, tap, 1)?)?)?;
    }
    // A copy, so that the memory of the other rows is freed.
    Ok((y, x.narrow(0, rows, past)?.force_contiguous()?))
}

/// For each token, the state decays, the difference between the value and the one stored under the
/// key is written, and the value under the query is read.
/// `qkv: [n, channels]`, `beta`, `decay`: `[n, value_heads]`,
/// `known: [value_heads, key_width, value_width]` -> `[n, value_heads * value_width]`, and the new
/// state.
fn recur(
    qkv: &Tensor,
    beta: &Tensor,
    decay: &Tensor,
    mut known: Tensor,
    shape: &DeltaShape,
) -> Result<(Tensor, Tensor)> {
    let DeltaShape { key_heads, value_heads, grouped, key_width, value_width, epsilon, .. } = *shape;
    let (rows, times) = (qkv.dim(0)?, value_heads / key_heads);
    let keys = key_heads * key_width;
    // Unit vectors, one per value head.
    let unit = |start: usize| {
        let x = qkv.narrow(1, start, keys)?.reshape((rows, key_heads, key_width))?;
        let length = (x.sqr()?.sum_keepdim(D::Minus1)? + f64::from(epsilon))?.sqrt()?;
        let x = x.broadcast_div(&length)?;
        if grouped { repeat_each(&x, times) } else { x.repeat((1, times, 1))?.contiguous() }
    };
    let (q, k) = ((unit(0)? / (key_width as f64).sqrt())?, unit(keys)?);
    let v = qkv.narrow(1, 2 * keys, value_heads * value_width)?.reshape((rows, value_heads, value_width))?;
    let mut read = Vec::with_capacity(rows);
    for row in 0..rows {
        // [value_heads, 1, width]
        let of = |x: &Tensor| x.narrow(0, row, 1)?.squeeze(0)?.unsqueeze(1);
        let factor = |x: &Tensor| x.narrow(0, row, 1)?.reshape((value_heads, 1, 1));
        let (q, k, v) = (of(&q)?, of(&k)?, of(&v)?);
        known = known.broadcast_mul(&factor(decay)?)?;
        let new = (v - k.matmul(&known)?)?.broadcast_mul(&factor(beta)?)?;
        known = (known + k.transpose(1, 2)?.broadcast_mul(&new)?)?;
        read.push(q.matmul(&known)?.reshape((1, value_heads * value_width))?);
    }
    Ok((Tensor::cat(&read, 0)?, known))
}

/// Repeats each of the `heads` of `x` `times` times in a row.
/// `[n, heads, width]` -> `[n, heads * times, width]`
pub fn repeat_each(x: &Tensor, times: usize) -> Result<Tensor> {
    let (rows, heads, width) = x.dims3()?;
    x.unsqueeze(2)?.broadcast_as((rows, heads, times, width))?.reshape((rows, heads * times, width))
}

/// `ln(1 + exp(x))`, without overflow.
pub fn softplus(x: &Tensor) -> Result<Tensor> {
    x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?
}
