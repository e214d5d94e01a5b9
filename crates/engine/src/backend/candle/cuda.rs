//! What a CUDA device computes with this project's kernels: attention over blocks, the delta rule, experts, and weights of
//! types that candle has no kernels for.

use alara_cuda::tensors::{self, Attention, Matrices, Remembered};
use alara_cuda::{AttendShape, AttendSpan, Format, Gate, Kind};
use candle_core::{CudaDevice, Result, Tensor};

use super::delta::State;
use super::{Kv, Matrix};
use crate::architecture::Activation;
use crate::backend::{
    AttentionShape, DeltaInput, DeltaShape, DeltaWeights, ExpertStacks, Queries, Routes, StackShape, Step,
};
use crate::gguf::TensorType;

/// How the latest step is shared out, for each shape of its attention layers; made by the first layer of a shape.
#[derive(Debug, Default)]
pub struct Plans {
    step: Step,
    layers: Vec<Attention>,
}

impl Plans {
    fn of(&mut self, step: &Step, shape: &AttendShape, kv: &Kv) -> Result<&Attention> {
        if self.step != *step {
            *self = Plans { step: step.clone(), layers: Vec::new() };
        }
        let (keys, _) = kv.caches();
        let same = |plan: &Attention| AttendShape { kind: shape.kind, ..*plan.shape() } == *shape;
        let at = match self.layers.iter().position(same) {
            Some(at) => at,
            None => {
                let spans: Vec<AttendSpan> = (step.spans.iter())
                    .map(|span| AttendSpan {
                        rows: span.rows,
                        past: span.past,
                        blocks: span.blocks_for(shape.window),
                    })
                    .collect();
                self.layers.push(Attention::new(*shape, &spans, keys)?);
                self.layers.len() - 1
            }
        };
        Ok(&self.layers[at])
    }
}

/// Writes keys and values, and attends.
pub fn attend(
    plans: &mut Plans,
    queries: &Queries<Tensor, Tensor>,
    step: &Step,
    kv: &Kv,
    shape: &AttentionShape,
) -> Result<Tensor> {
    let AttentionShape { heads, kv_heads, key_width, value_width, values_in_keys, scale, window } = *shape;
    let block_tokens = kv.block_tokens();
    let kind = Kind::F32; // What keys are kept as, the plan sees by itself.
    let shape = AttendShape {
        heads,
        kv_heads,
        key_width,
        value_width,
        values_in_keys,
        scale,
        window,
        block_tokens,
        kind,
    };
    let (keys, values) = kv.caches();
    let [q, k] = [queries.q.contiguous()?, queries.k.contiguous()?];
    let v = queries.v.map(Tensor::contiguous).transpose()?;
    plans.of(step, &shape, kv)?.apply(&q, (&k, keys), v.as_ref().zip(values), queries.sinks)
}

/// The format of a type, if the kernels know it.
fn format(kind: TensorType) -> Option<Format> {
    Some(match kind {
        TensorType::Q4_0 => Format::Q4_0,
        TensorType::Q4_1 => Format::Q4_1,
        TensorType::Q5_0 => Format::Q5_0,
        TensorType::Q5_1 => Format::Q5_1,
        TensorType::Q8_0 => Format::Q8_0,
        TensorType::Q2_K => Format::Q2_K,
        TensorType::Q3_K => Format::Q3_K,
        TensorType::Q4_K => Format::Q4_K,
        TensorType::Q5_K => Format::Q5_K,
        TensorType::Q6_K => Format::Q6_K,
        TensorType::MXFP4 => Format::MXFP4,
        TensorType::IQ4_NL => Format::IQ4_NL,
        TensorType::IQ4_XS => Format::IQ4_XS,
        _ => return None,
    })
}

/// All matrices of a stack together, of the rows that are meant; `None` if the kernels don't know the type.
pub fn stack(
    device: &CudaDevice,
    data: &[u8],
    kind: TensorType,
    shape: &StackShape,
) -> Result<Option<Matrix>> {
    let Some(format) = format(kind) else { return Ok(None) };
    let row = data.len() / (shape.count * shape.out);
    let part = |at: usize| {
        let first = at * shape.out;
        &data[(first + shape.rows.start) * row..(first + shape.rows.end) * row]
    };
    let bytes = (0..shape.count).map(part).collect::<Vec<_>>().concat();
    let sizes = [shape.count, shape.rows.len(), shape.width];
    Matrices::new(device, format, &bytes, sizes).map(|matrices| Some(Matrix::Cuda(matrices)))
}

/// `act(gate) up`.
pub fn gated(of: &Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
    tensors::gated(&of.contiguous()?, &up.contiguous()?, gate(activation))
}

/// The function on a gate.
fn gate(activation: Activation) -> Gate {
    match activation {
        Activation::Silu => Gate::Silu,
        Activation::GeluTanh => Gate::GeluTanh,
        Activation::Sigmoid => Gate::Sigmoid,
        Activation::ClampedSwiglu => Gate::ClampedSwiglu,
    }
}

/// Every row by its experts, all of them together; `None` if not all stacks are whole.
pub fn experts(
    x: &Tensor,
    routes: &Routes,
    stacks: &ExpertStacks<&Vec<Matrix>, &Tensor>,
) -> Result<Option<Tensor>> {
    let ([Matrix::Cuda(gate_stack)], [Matrix::Cuda(up)], [Matrix::Cuda(down)]) =
        (&stacks.gate[..], &stacks.up[..], &stacks.down[..])
    else {
        return Ok(None);
    };
    let shape = (routes.experts.len() / routes.used, routes.used);
    let experts = Tensor::from_slice(&routes.experts, shape, x.device())?;
    let weights = Tensor::from_slice(&routes.weights, shape, x.device())?;
    let layer = tensors::Experts {
        matrices: [gate_stack, up, down],
        biases: [stacks.gate_bias, stacks.up_bias, stacks.down_bias],
        gate: gate(stacks.activation),
    };
    layer.apply(&x.contiguous()?, &experts, &weights).map(Some)
}

/// The gated delta rule over the sequences of a step.
pub fn delta(
    input: &DeltaInput<Tensor>,
    weights: &DeltaWeights<&Tensor>,
    step: &Step,
    state: &mut State,
    shape: &DeltaShape,
) -> Result<Tensor> {
    let DeltaShape { key_heads, value_heads, key_width, value_width, kernel, epsilon } = *shape;
    let shape = alara_cuda::DeltaShape { key_heads, value_heads, key_width, value_width, kernel, epsilon };
    let sequences: Vec<Remembered> = (step.spans.iter())
        .map(|span| Remembered {
            rows: span.rows,
            before: (span.past > 0).then(|| state.memory(span.slot)),
            saves: span.saves.iter().map(|(rows, _)| *rows).chain([span.rows]).collect(),
        })
        .collect();
    let contiguous =
        [input.qkv, input.beta, input.alpha, weights.conv, weights.a, weights.dt].map(Tensor::contiguous);
    let [qkv, beta, alpha, conv, a, dt] = contiguous;
    let (y, found) = tensors::delta(&shape, &sequences, [&qkv?, &beta?, &alpha?, &conv?, &a?, &dt?])?;
    for (span, memories) in step.spans.iter().zip(found) {
        let slots = span.saves.iter().map(|(_, slot)| *slot).chain([span.slot]);
        for (slot, memory) in slots.zip(memories) {
            state.put(slot, memory);
        }
    }
    Ok(y)
}
