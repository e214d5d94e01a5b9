//! The gated delta rule, token by token, after a causal convolution. Source: Yang et al. 2024,
//! <https://arxiv.org/abs/2412.06464>.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::ops;

use crate::backend::{DeltaInput, DeltaShape, DeltaWeights, Step};
use crate::cache::SlotId;

/// The recurrent state of one layer, in slots.
#[derive(Debug)]
pub struct State {
    /// What every sequence begins with.
    empty: Memory,
    slots: Vec<Memory>,
}

/// What one sequence leaves behind in one layer.
#[derive(Clone, Debug)]
struct Memory {
    /// The last rows before the convolution, oldest first. `[kernel - 1, channels]`
    history: Tensor,
    /// What was written, by head. `[value_heads, key_width, value_width]`
    matrices: Tensor,
}

impl State {
    /// A slot takes memory when it is first used.
    pub fn zeros(slots: usize, shape: &DeltaShape, device: &Device) -> Result<Self> {
        let empty = Memory {
            history: Tensor::zeros((shape.kernel - 1, shape.channels()), DType::F32, device)?,
            matrices: Tensor::zeros(
                (shape.value_heads, shape.key_width, shape.value_width),
                DType::F32,
                device,
            )?,
        };
        Ok(State { slots: vec![empty.clone(); slots], empty })
    }

    /// Appends history and matrices of a slot to `out`, little-endian f32, as the native backend does.
    pub fn save(&self, slot: SlotId, out: &mut Vec<u8>) -> Result<()> {
        let Memory { history, matrices } = &self.slots[slot.0 as usize];
        for tensor in [history, matrices] {
            out.extend(
                tensor.flatten_all()?.to_vec1::<f32>()?.iter().flat_map(|number| number.to_le_bytes()),
            );
        }
        Ok(())
    }

    /// Puts back what [`State::save`] gave.
    pub fn load(&mut self, slot: SlotId, bytes: &[u8]) -> Result<()> {
        let Memory { history, matrices } = &self.empty;
        let (first, second) = bytes.split_at(4 * history.elem_count());
        let tensor = |like: &Tensor, bytes: &[u8]| {
            let numbers: Vec<f32> = bytes.as_chunks().0.iter().map(|n| f32::from_le_bytes(*n)).collect();
            Tensor::from_vec(numbers, like.shape(), like.device())
        };
        let memory = Memory { history: tensor(history, first)?, matrices: tensor(matrices, second)? };
        self.slots[slot.0 as usize] = memory;
        Ok(())
    }

    /// Slot `to` holds what slot `from` does.
    pub fn copy(&mut self, from: SlotId, to: SlotId) {
        self.slots[to.0 as usize] = self.slots[from.0 as usize].clone();
    }
}

/// What kernels read and give; no memory is shared, for they write new one.
#[cfg(feature = "cuda")]
impl State {
    /// What is known in `slot`.
    pub fn memory(&self, slot: SlotId) -> alara_cuda::tensors::Memory {
        let Memory { history, matrices } = self.slots[slot.0 as usize].clone();
        alara_cuda::tensors::Memory { history, matrices }
    }

    /// Slot `slot` holds `memory`.
    pub fn put(&mut self, slot: SlotId, memory: alara_cuda::tensors::Memory) {
        let alara_cuda::tensors::Memory { history, matrices } = memory;
        self.slots[slot.0 as usize] = Memory { history, matrices };
    }
}

/// `[T, value_heads * value_width]`
pub fn delta(
    input: &DeltaInput<Tensor>,
    weights: &DeltaWeights<&Tensor>,
    step: &Step,
    state: &mut State,
    shape: &DeltaShape,
) -> Result<Tensor> {
    let beta = ops::sigmoid(input.beta)?;
    let alpha = softplus(&input.alpha.broadcast_add(weights.dt)?)?;
    let decay = alpha.broadcast_mul(weights.a)?.exp()?;
    let mut mixed = Vec::with_capacity(step.spans.len());
    let mut row = 0;
    for span in &step.spans {
        let slot = span.slot.0 as usize;
        if span.past == 0 {
            state.slots[slot] = state.empty.clone();
        }
        for (rows, save) in span.runs() {
            let memory = &state.slots[slot];
            let part = |x: &Tensor| x.narrow(0, row, rows);
            let (convolved, history) = convolve(&part(input.qkv)?, &memory.history, weights.conv, shape)?;
            let (y, matrices) =
                recur(&convolved, &part(&beta)?, &part(&decay)?, memory.matrices.clone(), shape)?;
            state.slots[slot] = Memory { history, matrices };
            mixed.push(y);
            row += rows;
            if let Some(to) = save {
                state.copy(span.slot, to);
            }
        }
    }
    Tensor::cat(&mixed, 0)
}

/// `silu(sum over taps of weight * row)` in each channel, and the history that follows. `x: [n, channels]`
fn convolve(x: &Tensor, history: &Tensor, weights: &Tensor, shape: &DeltaShape) -> Result<(Tensor, Tensor)> {
    let (rows, channels) = x.dims2()?;
    let x = Tensor::cat(&[history, x], 0)?;
    let taps = weights.reshape((channels, shape.kernel))?.t()?.contiguous()?;
    let mut y = x.narrow(0, 0, rows)?.broadcast_mul(&taps.narrow(0, 0, 1)?)?;
    for tap in 1..shape.kernel {
        y = (y + x.narrow(0, tap, rows)?.broadcast_mul(&taps.narrow(0, tap, 1)?)?)?;
    }
    // A copy, so that the other rows' memory is given back.
    Ok((y.silu()?, x.narrow(0, rows, shape.kernel - 1)?.force_contiguous()?))
}

/// For each token: what is known decays, the difference of its value to what is known under its key is written, and
/// what is known under its query is read. `qkv: [n, channels]`, `beta`, `decay`: `[n, value_heads]`,
/// `known: [value_heads, key_width, value_width]` -> `[n, value_heads * value_width]`, and what is known then.
fn recur(
    qkv: &Tensor,
    beta: &Tensor,
    decay: &Tensor,
    mut known: Tensor,
    shape: &DeltaShape,
) -> Result<(Tensor, Tensor)> {
    let DeltaShape { key_heads, value_heads, key_width, value_width, epsilon, .. } = *shape;
    let rows = qkv.dim(0)?;
    let keys = key_heads * key_width;
    // Unit vectors, of which value head j reads number j % key_heads.
    let unit = |start: usize| {
        let x = qkv.narrow(1, start, keys)?.reshape((rows, key_heads, key_width))?;
        let length = (x.sqr()?.sum_keepdim(D::Minus1)? + f64::from(epsilon))?.sqrt()?;
        x.broadcast_div(&length)?.repeat((1, value_heads / key_heads, 1))?.contiguous()
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

/// `ln(1 + exp(x))`, without overflow.
fn softplus(x: &Tensor) -> Result<Tensor> {
    x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?
}
