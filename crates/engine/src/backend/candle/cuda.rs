//! Ops that a CUDA device computes with this project's kernels: attention over blocks, the delta
//! rule, experts, and weights without a candle kernel.

use std::sync::Arc;

use alara_cuda::tensors::{self, Attention, DeltaSequence, Matrices, Preparation, QuantizedRows};
use alara_cuda::{AttentionSpan, Gpu, Router};
use alara_text::gguf::TensorType;
use candle_core::quantized::QMatMul;
use candle_core::{CudaDevice, Device, Result, Tensor};

use super::state::TensorState;
use super::{TensorKv, TensorMatrix};
use crate::architecture::{Activation, Pairing, Score};
use crate::backend::{
    AttentionShape, DeltaInput, DeltaShape, DeltaWeights, ExpertStacks, Heads, Queries, Routing, StackShape,
    Step, TopK, format,
};

/// How the latest step is partitioned, for each shape of its attention layers; computed by the
/// first layer of a shape.
#[derive(Debug)]
pub struct Plans {
    step: Step,
    layers: Vec<Attention>,
    /// Keeps the kernels loaded.
    /// `None` on other devices, and if the driver rejects the kernels, which becomes an error when
    /// they are needed.
    _gpu: Option<Arc<Gpu>>,
}

impl Plans {
    /// State for steps on `device`.
    pub fn on(device: &Device) -> Self {
        let gpu = device.as_cuda_device().ok().and_then(|device| Gpu::of(device).ok());
        Plans { step: Step::default(), layers: Vec::new(), _gpu: gpu }
    }

    fn of(&mut self, step: &Step, shape: &AttentionShape, kv: &TensorKv) -> Result<&Attention> {
        if self.step != *step {
            self.layers.clear();
            self.step = step.clone();
        }
        let at = match self.layers.iter().position(|plan| plan.suits(shape)) {
            Some(at) => at,
            None => {
                let spans: Vec<AttentionSpan> = (step.spans.iter())
                    .map(|span| AttentionSpan {
                        rows: span.rows,
                        past: span.past,
                        blocks: span.blocks_for(shape.window),
                    })
                    .collect();
                let (keys, _) = kv.caches();
                self.layers.push(Attention::new(*shape, kv.block_tokens(), &spans, keys)?);
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
    kv: &TensorKv,
    shape: &AttentionShape,
) -> Result<Tensor> {
    let (keys, values) = kv.caches();
    let plan = plans.of(step, shape, kv)?;
    if let Some(k) = queries.k {
        plan.append(&k.contiguous()?, keys)?;
    }
    if let (Some(v), Some(values)) = (queries.v, values) {
        plan.append(&v.contiguous()?, values)?;
    }
    plan.attend(&queries.q.contiguous()?, keys, values, queries.sinks)
}

/// Prepares heads and writes keys and values in one launch, and attends.
/// `None` if there is no kernel for these heads.
pub fn prepare_and_attend(
    plans: &mut Plans,
    heads: &Heads<Tensor, Tensor, (Tensor, Tensor)>,
    step: &Step,
    kv: &TensorKv,
    shape: &AttentionShape,
) -> Result<Option<Tensor>> {
    let Heads { q, k, v, sinks, norms, norms_last, angles: Some((cos, sin)), pairing, factors } = heads
    else {
        return Ok(None);
    };
    let (keys, Some(values)) = kv.caches() else { return Ok(None) };
    let mut epsilons = norms.iter().flatten().map(|(_, epsilon)| *epsilon);
    let epsilon = epsilons.next().unwrap_or_default();
    let each_head = norms.iter().flatten().all(|(norm, _)| norm.elem_count() == shape.key_width);
    let norms_last = *norms_last && norms.iter().any(Option::is_some);
    if norms_last || !each_head || epsilons.any(|other| other != epsilon) {
        return Ok(None);
    }
    let preparation = Preparation {
        norms: norms.map(|norm| norm.map(|(weight, _)| weight)),
        epsilon,
        angles: [cos, sin],
        adjacent: *pairing == Pairing::Adjacent,
    };
    let rows = [&q.contiguous()?, &k.contiguous()?, &v.contiguous()?];
    let plan = plans.of(step, shape, kv)?;
    let Some(mut ready) = plan.prepare(rows, [keys, values], &preparation)? else { return Ok(None) };
    if !factors.is_empty() {
        let factors = Tensor::from_slice(factors, (factors.len(), 1), q.device())?;
        ready = ready.broadcast_mul(&factors)?;
    }
    plan.attend(&ready, keys, Some(values), *sinks).map(Some)
}

/// The product of `x: [T, width]`, contiguous; its quantized form is computed once for all
/// matrices.
pub fn product(quants: &mut QuantizedRows, x: &Tensor, w: &TensorMatrix) -> Result<Tensor> {
    if let TensorMatrix::Candle(QMatMul::QTensor(weights)) = w
        && let Some(y) = quants.product(x, weights)?
    {
        return Ok(y);
    }
    w.product(x)
}

/// RMS norm over groups of as many numbers as there are weights.
pub fn norm(quants: &mut QuantizedRows, x: &Tensor, weight: &Tensor, epsilon: f32) -> Result<Tensor> {
    tensors::norm(&x.contiguous()?, weight, epsilon, quants)
}

/// `x + y`, and the norm of the sum.
pub fn add_norm(
    quants: &mut QuantizedRows,
    x: &Tensor,
    y: &Tensor,
    weight: &Tensor,
    epsilon: f32,
) -> Result<(Tensor, Tensor)> {
    tensors::add_norm(&x.contiguous()?, &y.contiguous()?, weight, epsilon, quants)
}

/// As `Backend::top_k`: `None` if `count` is more than one launch returns.
pub fn top_k(x: &Tensor, row: usize, count: usize, mask: &[u32]) -> Result<TopK> {
    if count > alara_cuda::MAX_TOP_K {
        return Ok(None);
    }
    tensors::top_k(&x.contiguous()?.get(row)?, count, mask).map(Some)
}

/// The selected rows of all matrices of a stack; `None` if the kernels don't support the type.
pub fn stack(
    device: &CudaDevice,
    data: &[u8],
    kind: TensorType,
    shape: &StackShape,
) -> Result<Option<TensorMatrix>> {
    let Some(format) = format(kind).filter(|&format| alara_cuda::multiplies(format)) else { return Ok(None) };
    let row = data.len() / (shape.count * shape.out);
    let part = |at: usize| {
        let first = at * shape.out;
        &data[(first + shape.rows.start) * row..(first + shape.rows.end) * row]
    };
    let bytes = (0..shape.count).map(part).collect::<Vec<_>>().concat();
    let sizes = [shape.count, shape.rows.len(), shape.width];
    Matrices::new(device, format, &bytes, sizes).map(|matrices| Some(TensorMatrix::Cuda(matrices)))
}

/// `act(gate) up`, and its quantized form on request.
pub fn gated(
    quants: Option<&mut QuantizedRows>,
    of: &Tensor,
    up: &Tensor,
    activation: Activation,
) -> Result<Tensor> {
    tensors::gated(of, up, activation.into(), quants)
}

/// Applies the experts of every row, all in one go without involving the host; `None` unless every
/// stack is a single CUDA matrix.
pub fn experts<'a>(
    x: &Tensor,
    logits: &Tensor,
    routing: &Routing<&Tensor>,
    stacks: &ExpertStacks<&'a Vec<TensorMatrix>, &'a Tensor>,
) -> Result<Option<Tensor>> {
    let whole = |stack: &'a [TensorMatrix]| match stack {
        [TensorMatrix::Cuda(all)] => Some(all),
        _ => None,
    };
    let up = stacks.up.map(|up| whole(up));
    let (Some(gate), Some(down), None | Some(Some(_))) = (whole(stacks.gate), whole(stacks.down), up) else {
        return Ok(None);
    };
    let Routing { count, used, router, groups, bias, scale, scales } = *routing;
    let score = match router.score {
        Score::Softmax => alara_cuda::Score::Softmax,
        Score::Sigmoid => alara_cuda::Score::Sigmoid,
        Score::SoftmaxOfChosen => alara_cuda::Score::SoftmaxOfChosen,
        Score::SigmoidOfChosen => alara_cuda::Score::SigmoidOfChosen,
    };
    let (normalise, weigh_input) = (router.normalise, router.weigh_input);
    let groups = groups.map_or((1, 1), |groups| (groups.count, groups.used));
    let router = Router { count, used, groups, score, normalise, scale };
    let (experts, mut weights) = tensors::route(&router, &logits.contiguous()?, bias)?;
    if let Some(scales) = scales {
        let scales = scales.index_select(&experts.flatten_all()?, 0)?;
        weights = (&weights * scales.reshape(weights.shape())?)?;
    }
    let layer = tensors::Experts {
        gate: (gate, stacks.gate_bias),
        up: up.flatten().map(|up| (up, stacks.up_bias)),
        down: (down, stacks.down_bias),
        activation: stacks.activation.into(),
    };
    if !weigh_input {
        return layer.apply(&x.contiguous()?, &experts, &weights).map(Some);
    }
    // Each row once per expert, multiplied by that expert's weight.
    let (rows, width) = x.dims2()?;
    let each = x.unsqueeze(1)?.broadcast_mul(&weights.unsqueeze(2)?)?.reshape((rows * used, width))?;
    let y =
        layer.apply(&each, &experts.reshape((rows * used, 1))?, &weights.ones_like()?.reshape(((), 1))?)?;
    y.reshape((rows, used, width))?.sum(1).map(Some)
}

/// The gated delta rule over the sequences of a step.
pub fn delta(
    input: &DeltaInput<Tensor>,
    weights: &DeltaWeights<&Tensor>,
    step: &Step,
    state: &mut TensorState,
    shape: &DeltaShape,
) -> Result<Tensor> {
    let sequences: Vec<DeltaSequence> = (step.spans.iter())
        .map(|span| DeltaSequence {
            rows: span.rows,
            before: (span.past > 0).then(|| state.memory(span.slot)),
            saves: span.saves.iter().map(|(rows, _)| *rows).chain([span.rows]).collect(),
        })
        .collect();
    let contiguous =
        [input.qkv, input.beta, input.alpha, weights.conv, weights.a, weights.dt].map(Tensor::contiguous);
    let [qkv, beta, alpha, conv, a, dt] = contiguous;
    let (y, found) = tensors::delta(shape, &sequences, [&qkv?, &beta?, &alpha?, &conv?, &a?, &dt?])?;
    for (span, memories) in step.spans.iter().zip(found) {
        let slots = span.saves.iter().map(|(_, slot)| *slot).chain([span.slot]);
        for (slot, memory) in slots.zip(memories) {
            state.put(slot, memory);
        }
    }
    Ok(y)
}
