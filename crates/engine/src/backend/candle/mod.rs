//! The portable backend: candle's tensors and quantized kernels.
//! On the CPU it is the reference for tests.

mod attend;
#[cfg(feature = "cuda")]
mod cuda;
mod delta;
mod experts;
mod kv;
mod recurrent;
mod state;
mod view;
mod weights;

use alara_text::gguf::{TensorData, TensorType};
use candle_core::{Device, Tensor};
use candle_nn::{ops, rotary_emb};

use super::{
    AttentionShape, Backend, DeltaInput, DeltaShape, DeltaWeights, ExpertStacks, KvType, Queries, Routing,
    ScanInput, ScanShape, ScanWeights, StackShape, StateShape, Step, try_map,
};
use crate::architecture::{Activation, Pairing};
use crate::cache::{BlockId, Layout, SlotId};
use crate::{Result, device};

pub use kv::TensorKv;
pub use state::TensorState;
pub use weights::TensorMatrix;

/// Computes with candle on one device.
#[derive(Debug)]
pub struct Candle {
    device: Device,
    #[cfg(feature = "cuda")]
    plans: cuda::Plans,
    #[cfg(feature = "cuda")]
    codes: alara_cuda::tensors::QuantizedRows,
}

impl Candle {
    /// On the CPU.
    #[cfg(test)]
    pub fn cpu() -> Self {
        Self::on(Device::Cpu)
    }

    /// On `device`.
    pub fn on(device: Device) -> Self {
        Candle {
            #[cfg(feature = "cuda")]
            plans: cuda::Plans::on(&device),
            #[cfg(feature = "cuda")]
            codes: alara_cuda::tensors::QuantizedRows::default(),
            device,
        }
    }
}

/// Adds the current operation to candle's error.
/// Keeps only the first line, since the rest may be a backtrace.
trait During<T> {
    fn during(self, operation: &str) -> Result<T>;
}

impl<T> During<T> for candle_core::Result<T> {
    fn during(self, operation: &str) -> Result<T> {
        self.map_err(|error| {
            let message = error.to_string();
            device::failed(operation, message.lines().next().unwrap_or_default())
        })
    }
}

impl Backend for Candle {
    type Array = Tensor;
    type Matrix = TensorMatrix;
    type Stack = Vec<TensorMatrix>;
    type Vector = Tensor;
    type Angles = (Tensor, Tensor);
    type Kv = TensorKv;
    type Recurrent = TensorState;

    fn joins_matrices(&self) -> bool {
        true
    }

    fn matrix(
        &self,
        data: TensorData,
        kind: TensorType,
        out: usize,
        width: usize,
    ) -> Result<Option<TensorMatrix>> {
        TensorMatrix::new(data, kind, out, width, &self.device).during("load a matrix")
    }

    fn stack(
        &self,
        data: TensorData,
        kind: TensorType,
        shape: StackShape,
    ) -> Result<Option<Vec<TensorMatrix>>> {
        weights::stack(&data, kind, &shape, &self.device).during("load a stack of matrices")
    }

    fn vector(&self, data: TensorData, kind: TensorType) -> Result<Option<Tensor>> {
        weights::vector(&data, kind, &self.device).during("load a vector")
    }

    fn values(&self, vector: &Tensor) -> Result<Vec<f32>> {
        vector.to_vec1().during("read a vector")
    }

    fn kv(&self, layout: Layout, shape: &AttentionShape, kind: KvType) -> Result<TensorKv> {
        TensorKv::zeros(layout, shape, kind, &self.device).during("make the KV cache")
    }

    fn state(&self, slots: usize, shape: &StateShape) -> Result<TensorState> {
        TensorState::zeros(slots, shape, &self.device).during("make the recurrent state")
    }

    fn copy_block(&mut self, kv: &mut TensorKv, from: BlockId, to: BlockId) -> Result<()> {
        kv.copy_block(from, to).during("copy a KV block")
    }

    fn copy_state(&mut self, state: &mut TensorState, from: SlotId, to: SlotId) -> Result<()> {
        state.copy(from, to);
        Ok(())
    }

    fn save_rows(&self, kv: &TensorKv, row: usize, rows: usize, out: &mut Vec<u8>) -> Result<()> {
        kv.save(row, rows, out).during("read keys and values back")
    }

    fn load_rows(&mut self, kv: &mut TensorKv, row: usize, rows: usize, bytes: &[u8]) -> Result<()> {
        kv.load(row, rows, bytes).during("put keys and values back")
    }

    fn save_state(&self, state: &TensorState, slot: SlotId, out: &mut Vec<u8>) -> Result<()> {
        state.save(slot, out).during("read recurrent state back")
    }

    fn load_state(&mut self, state: &mut TensorState, slot: SlotId, bytes: &[u8]) -> Result<()> {
        state.load(slot, bytes).during("put recurrent state back")
    }

    fn embed(&mut self, table: &TensorMatrix, tokens: &[u32]) -> Result<Tensor> {
        table.rows(tokens, &self.device).during("embed")
    }

    fn matmuls<const N: usize>(&mut self, x: &Tensor, w: [&TensorMatrix; N]) -> Result<[Tensor; N]> {
        let x = x.contiguous().during("matmul")?;
        #[cfg(feature = "cuda")]
        if self.device.is_cuda() {
            return try_map(w, |w| cuda::product(&mut self.codes, &x, w).during("matmul"));
        }
        try_map(w, |w| w.product(&x).during("matmul"))
    }

    fn stacked(&mut self, x: &Tensor, w: &Vec<TensorMatrix>) -> Result<Tensor> {
        let build = || {
            #[cfg(feature = "cuda")]
            if let [TensorMatrix::Cuda(all)] = &w[..] {
                return all.each(&x.contiguous()?);
            }
            let width = x.dim(1)? / w.len();
            let parts = w.iter().enumerate().map(|(at, w)| {
                let part = x.narrow(1, at * width, width)?.contiguous()?;
                w.product(&part)
            });
            Tensor::cat(&parts.collect::<candle_core::Result<Vec<_>>>()?, 1)?.contiguous()
        };
        build().during("stacked matmul")
    }

    fn experts(
        &mut self,
        x: &Tensor,
        logits: &Tensor,
        routing: &Routing<&Tensor>,
        stacks: &ExpertStacks<&Vec<TensorMatrix>, &Tensor>,
    ) -> Result<Tensor> {
        experts::experts(x, logits, routing, stacks).during("experts")
    }

    fn bias(&mut self, x: Tensor, bias: &Tensor) -> Result<Tensor> {
        x.broadcast_add(bias).during("bias")
    }

    fn add(&mut self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        (x + y).during("add")
    }

    fn scale(&mut self, x: Tensor, factors: &[f32]) -> Result<Tensor> {
        Tensor::new(factors, &self.device)
            .and_then(|factors| x.broadcast_mul(&factors.unsqueeze(1)?))
            .during("scale")
    }

    fn split(&mut self, x: &Tensor, group: usize, at: usize) -> Result<(Tensor, Tensor)> {
        let build = || {
            let (rows, width) = x.dims2()?;
            if group == width {
                return Ok((x.narrow(1, 0, at)?, x.narrow(1, at, group - at)?));
            }
            let groups = x.reshape((rows, width / group, group))?;
            let part = |start, len| groups.narrow(2, start, len)?.reshape((rows, width / group * len));
            Ok((part(0, at)?, part(at, group - at)?))
        };
        build().during("split")
    }

    fn join(&mut self, a: &Tensor, a_group: usize, b: &Tensor, b_group: usize) -> Result<Tensor> {
        let build = || {
            let rows = a.dim(0)?;
            let groups = |x: &Tensor, group| x.reshape((rows, (), group));
            Tensor::cat(&[groups(a, a_group)?, groups(b, b_group)?], 2)?.reshape((rows, ()))
        };
        build().during("join")
    }

    fn norm(&mut self, x: &Tensor, weight: &Tensor, epsilon: f32) -> Result<Tensor> {
        #[cfg(feature = "cuda")]
        if self.device.is_cuda() {
            return cuda::norm(&mut self.codes, x, weight, epsilon).during("norm");
        }
        let build = || {
            let groups = x.reshape(((), weight.dim(0)?))?;
            ops::rms_norm(&groups, weight, epsilon)?.reshape(x.shape())
        };
        build().during("norm")
    }

    fn centre(&mut self, x: &Tensor) -> Result<Tensor> {
        x.mean_keepdim(1).and_then(|mean| x.broadcast_sub(&mean)).during("norm")
    }

    #[cfg(feature = "cuda")]
    fn add_norm(&mut self, x: Tensor, y: &Tensor, weight: &Tensor, epsilon: f32) -> Result<(Tensor, Tensor)> {
        if self.device.is_cuda() {
            return cuda::add_norm(&mut self.codes, &x, y, weight, epsilon).during("add and norm");
        }
        let sum = self.add(x, y)?;
        let normed = self.norm(&sum, weight, epsilon)?;
        Ok((sum, normed))
    }

    fn angles(&mut self, cos: Vec<f32>, sin: Vec<f32>, rows: usize) -> Result<(Tensor, Tensor)> {
        let half = cos.len() / rows;
        let build = |numbers| Tensor::from_vec(numbers, (rows, half), &self.device);
        Ok((build(cos).during("angles")?, build(sin).during("angles")?))
    }

    fn rope(&mut self, x: Tensor, width: usize, angles: &Self::Angles, pairing: Pairing) -> Result<Tensor> {
        let build = || {
            let (cos, sin) = angles;
            let rotated = 2 * cos.dim(1)?;
            let heads = x.reshape((1, x.dim(0)?, (), width))?.transpose(1, 2)?;
            let turn = |part: &Tensor| match pairing {
                Pairing::Adjacent => rotary_emb::rope_i(part, cos, sin),
                Pairing::Half => rotary_emb::rope(part, cos, sin),
            };
            let turned = if rotated == width {
                turn(&heads.contiguous()?)?
            } else {
                let part = turn(&heads.narrow(3, 0, rotated)?.contiguous()?)?;
                Tensor::cat(&[part, heads.narrow(3, rotated, width - rotated)?], 3)?
            };
            turned.transpose(1, 2)?.reshape(x.shape())
        };
        build().during("rope")
    }

    fn append_and_attend(
        &mut self,
        queries: Queries<Tensor, Tensor>,
        step: &Step,
        kv: &mut TensorKv,
        shape: &AttentionShape,
    ) -> Result<Tensor> {
        #[cfg(feature = "cuda")]
        if self.device.is_cuda() {
            return cuda::attend(&mut self.plans, &queries, step, kv, shape).during("attention");
        }
        let build = || {
            let mut mixed = Vec::with_capacity(step.spans.len());
            let mut row = 0;
            for span in &step.spans {
                let part = |x: &Tensor| x.narrow(0, row, span.rows);
                let v = queries.v.map(part).transpose()?;
                if let Some(k) = queries.k {
                    kv.append(&part(k)?, v.as_ref(), span, span.blocks_for(shape.window))?;
                }
                mixed.push(attend::attend(&part(queries.q)?, queries.sinks, kv, span, shape)?);
                row += span.rows;
            }
            Tensor::cat(&mixed, 0)
        };
        build().during("attention")
    }

    #[cfg(feature = "cuda")]
    fn prepare_and_attend(
        &mut self,
        heads: super::Heads<Tensor, Tensor, Self::Angles>,
        step: &Step,
        kv: &mut TensorKv,
        shape: &AttentionShape,
    ) -> Result<Tensor> {
        if self.device.is_cuda()
            && let Some(y) =
                cuda::prepare_and_attend(&mut self.plans, &heads, step, kv, shape).during("attention")?
        {
            return Ok(y);
        }
        super::prepare_by_parts(self, heads, step, kv, shape)
    }

    fn delta(
        &mut self,
        input: DeltaInput<Tensor>,
        weights: &DeltaWeights<&Tensor>,
        step: &Step,
        state: &mut TensorState,
        shape: &DeltaShape,
    ) -> Result<Tensor> {
        #[cfg(feature = "cuda")]
        if self.device.is_cuda() {
            return cuda::delta(&input, weights, step, state, shape).during("delta rule");
        }
        delta::delta(&input, weights, step, state, shape).during("delta rule")
    }

    fn scan(
        &mut self,
        input: ScanInput<Tensor>,
        weights: &ScanWeights<&Tensor>,
        step: &Step,
        state: &mut TensorState,
        shape: &ScanShape,
    ) -> Result<Tensor> {
        recurrent::scan(&input, weights, step, state, shape).during("scan")
    }

    fn short_conv(
        &mut self,
        bcx: &Tensor,
        taps: &Tensor,
        step: &Step,
        state: &mut TensorState,
        kernel: usize,
    ) -> Result<Tensor> {
        recurrent::short_conv(bcx, taps, step, state, kernel).during("short convolution")
    }

    fn group_norm(&mut self, x: &Tensor, weight: &Tensor, groups: usize, epsilon: f32) -> Result<Tensor> {
        recurrent::group_norm(x, weight, groups, epsilon).during("norm of groups")
    }

    fn gated(&mut self, gate: &Tensor, up: Tensor, activation: Activation) -> Result<Tensor> {
        #[cfg(feature = "cuda")]
        if self.device.is_cuda() {
            return cuda::gated(Some(&mut self.codes), gate, &up, activation).during("gated");
        }
        gated(gate, &up, activation).during("gated")
    }

    fn relu_squared(&mut self, x: Tensor) -> Result<Tensor> {
        x.relu().and_then(|x| x.sqr()).during("squared ReLU")
    }

    fn gelu_erf(&mut self, x: Tensor) -> Result<Tensor> {
        x.gelu_erf().during("GELU")
    }

    fn rows(&mut self, x: &Tensor, rows: &[usize]) -> Result<Tensor> {
        let ids: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
        Tensor::new(ids, &self.device).and_then(|ids| x.index_select(&ids, 0)).during("rows")
    }

    fn wait(&mut self) -> Result<()> {
        self.device.synchronize().during("step")
    }

    #[cfg(feature = "cuda")]
    fn top_k(&mut self, x: &Tensor, row: usize, count: usize, mask: &[u32]) -> Result<super::TopK> {
        if !self.device.is_cuda() {
            return Ok(None);
        }
        cuda::top_k(x, row, count, mask).during("look for the likeliest tokens")
    }

    fn to_host(&mut self, x: &Tensor) -> Result<Vec<f32>> {
        x.flatten_all().and_then(|x| x.to_vec1()).during("read back")
    }

    fn count(&self, x: &Tensor) -> usize {
        x.dims().first().copied().unwrap_or(0)
    }

    fn upload(&mut self, numbers: Vec<f32>, rows: usize) -> Result<Tensor> {
        let width = numbers.len() / rows.max(1);
        Tensor::from_vec(numbers, (rows, width), &self.device).during("carry activations over")
    }
}

fn gated(gate: &Tensor, up: &Tensor, activation: Activation) -> candle_core::Result<Tensor> {
    #[cfg(feature = "cuda")]
    if up.device().is_cuda() {
        return cuda::gated(None, gate, up, activation);
    }
    match activation {
        Activation::Silu => gate.silu()? * up,
        Activation::GeluTanh => gate.gelu()? * up,
        Activation::Sigmoid => ops::sigmoid(gate)?.broadcast_mul(up),
        Activation::ClampedSwiglu => {
            let gate = gate.minimum(7.0)?;
            let gate = (&gate * ops::sigmoid(&(&gate * 1.702)?)?)?;
            gate * (up.clamp(-7.0, 7.0)? + 1.0)?
        }
    }
}

#[cfg(test)]
mod tests;
