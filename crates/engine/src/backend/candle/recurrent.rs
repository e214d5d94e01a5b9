//! Other layers with state: the scan of Mamba-2, token by token, and the short convolution.
//! Uses only candle's operations, also on a GPU, for lack of special kernels.

use candle_core::{Result, Tensor};
use candle_nn::ops;

use super::delta::{convolve, repeat_each, softplus};
use super::state::{Memory, TensorState};
use crate::backend::{ScanInput, ScanShape, ScanWeights, Step};

/// `[T, heads * width]`.
/// Source: Dao and Gu 2024, <https://arxiv.org/abs/2405.21060>.
pub fn scan(
    input: &ScanInput<Tensor>,
    weights: &ScanWeights<&Tensor>,
    step: &Step,
    state: &mut TensorState,
    shape: &ScanShape,
) -> Result<Tensor> {
    let length = softplus(&input.dt.broadcast_add(weights.dt_bias)?)?;
    let decay = length.broadcast_mul(weights.a)?.exp()?;
    state.through(step, |row, rows, memory| {
        let part = |x: &Tensor| x.narrow(0, row, rows);
        let (convolved, history) = convolve(&part(input.xbc)?, &memory.history, weights.conv)?;
        let convolved = match weights.conv_bias {
            Some(bias) => convolved.broadcast_add(bias)?,
            None => convolved,
        };
        let known = memory.matrices.clone();
        let (y, matrices) =
            recur(&convolved.silu()?, &part(&length)?, &part(&decay)?, weights.d, known, shape)?;
        Ok((y, Memory { history, matrices }))
    })
}

/// For each token, the state decays, the input is written under B, and the value under C is read.
/// `xbc: [n, channels]`, `length`, `decay`: `[n, heads]`, `known: [heads, state, width]` ->
/// `[n, heads * width]`, and the new state.
fn recur(
    xbc: &Tensor,
    length: &Tensor,
    decay: &Tensor,
    d: &Tensor,
    mut known: Tensor,
    shape: &ScanShape,
) -> Result<(Tensor, Tensor)> {
    let ScanShape { heads, groups, width, state, .. } = *shape;
    let rows = xbc.dim(0)?;
    let x = xbc.narrow(1, 0, shape.inner())?.reshape((rows, heads, width))?;
    let of_heads = |which: usize| {
        let numbers = xbc.narrow(1, shape.inner() + which * groups * state, groups * state)?;
        repeat_each(&numbers.reshape((rows, groups, state))?, heads / groups)
    };
    let (b, c) = (of_heads(0)?, of_heads(1)?);
    let written = x.broadcast_mul(&length.unsqueeze(2)?)?;
    let past = x.broadcast_mul(&d.reshape((1, heads, 1))?)?;
    let mut read = Vec::with_capacity(rows);
    for row in 0..rows {
        // [heads, 1, ..]
        let of = |x: &Tensor| x.narrow(0, row, 1)?.squeeze(0)?.unsqueeze(1)?.contiguous();
        let decay = decay.narrow(0, row, 1)?.reshape((heads, 1, 1))?;
        let new = of(&b)?.transpose(1, 2)?.broadcast_mul(&of(&written)?)?;
        known = (known.broadcast_mul(&decay)? + new)?;
        read.push(of(&c)?.matmul(&known)?.squeeze(1)?.unsqueeze(0)?);
    }
    let y = (Tensor::cat(&read, 0)? + past)?.reshape((rows, heads * width))?;
    Ok((y, known))
}

/// `c conv(b x)`.
/// `bcx: [T, 3 D]` -> `[T, D]`
pub fn short_conv(
    bcx: &Tensor,
    taps: &Tensor,
    step: &Step,
    state: &mut TensorState,
    kernel: usize,
) -> Result<Tensor> {
    let width = bcx.dim(1)? / 3;
    let taps = taps.reshape((width, kernel))?;
    let third = |which: usize| bcx.narrow(1, which * width, width);
    let (products, c) = ((third(0)? * third(2)?)?, third(1)?);
    let y = state.through(step, |row, rows, memory| {
        let (y, history) = convolve(&products.narrow(0, row, rows)?, &memory.history, &taps)?;
        Ok((y, Memory { history, matrices: memory.matrices.clone() }))
    })?;
    y * c
}

/// RMS norm of each of `groups` equal parts of a row, with its own part of `weight`.
/// Keeps the shape.
pub fn group_norm(x: &Tensor, weight: &Tensor, groups: usize, epsilon: f32) -> Result<Tensor> {
    let width = weight.dim(0)?;
    let ones = Tensor::ones(width / groups, weight.dtype(), weight.device())?;
    let groups = x.reshape(((), width / groups))?.contiguous()?;
    let normed = ops::rms_norm(&groups, &ones, epsilon)?.reshape(((), width))?;
    normed.broadcast_mul(weight)?.reshape(x.shape())
}
