//! The operations on candle's tensors on a CUDA device, for an engine that computes with candle.
//!
//! Activations are contiguous f32.
//! Results are new tensors, except for keys and values, which kernels write in place.

use std::sync::Arc;

use candle_core::cuda_backend::CudaDevice;
use candle_core::{DType, Result, Tensor, bail};

use crate::gpu::{Gpu, OnGpu};
pub use crate::interop::{array, gpu};
use crate::interop::{maybe, numbers_to_be_written, rows, to_be_written, wrapped};
pub use crate::quantized::QuantizedRows;
use crate::{
    Array, AttendPlan, AttendShape, AttentionShape, AttentionSpan, DeltaForm, DeltaInput, DeltaShape,
    DeltaSpan, DeltaState, Format, Gate, Grouped, Heads, KvArrays, KvFormat, Operands, Router, Tables,
    Weights,
};

/// Keys or values of a layer: `quants: [slots, heads * width]`, f32, f16, or u8 with zero at 128
/// and f16 scales.
#[derive(Clone, Copy, Debug)]
pub struct Cache<'a> {
    /// The numbers.
    pub quants: &'a Tensor,
    /// One per 32 numbers.
    pub scales: Option<&'a Tensor>,
}

impl Cache<'_> {
    fn arrays(&self) -> Result<KvArrays> {
        let quants = array(self.quants)?;
        let bytes = quants.len * self.quants.dtype().size_in_bytes() as u64;
        Ok(KvArrays { quants: Array { address: quants.address, len: bytes }, scales: maybe(self.scales)? })
    }

    fn kind(&self) -> Result<KvFormat> {
        Ok(match self.quants.dtype() {
            DType::F32 => KvFormat::F32,
            DType::F16 => KvFormat::F16,
            DType::U8 => KvFormat::Q8_0,
            other => bail!("keys and values of type {other:?}"),
        })
    }
}

/// How heads are prepared for attention.
#[derive(Clone, Copy, Debug)]
pub struct Preparation<'a> {
    /// RMS norms over each head of queries and of keys.
    /// `[key_width]`
    pub norms: [Option<&'a Tensor>; 2],
    /// The epsilon of the norms.
    pub epsilon: f32,
    /// Cosines and sines.
    /// `[T, half]`
    pub angles: [&'a Tensor; 2],
    /// Whether neighbors rotate together; otherwise numbers half apart do.
    pub adjacent: bool,
}

/// How the rows of a step are divided among thread blocks, on the device; shared by all layers of
/// one shape.
#[derive(Debug)]
pub struct Attention {
    gpu: Arc<Gpu>,
    shape: AttendShape,
    tables: Tables<OnGpu>,
    rows: usize,
}

impl Attention {
    /// The plan for layers of `shape`, whose rows are in caches such as `keys`.
    ///
    /// # Errors
    /// If there is no kernel for the shape, or not enough memory.
    pub fn new(
        heads: AttentionShape,
        block_tokens: usize,
        spans: &[AttentionSpan],
        keys: Cache,
    ) -> Result<Self> {
        let shape = AttendShape { heads, block_tokens, kind: keys.kind()? };
        let gpu = gpu(keys.quants)?;
        let plan = AttendPlan::new(&shape, spans).map_err(wrapped)?;
        let tables = plan.upload(&*gpu, &shape).map_err(wrapped)?;
        Ok(Attention { gpu, shape, tables, rows: plan.rows() })
    }

    /// Whether the plan is for layers with such heads.
    pub fn suits(&self, heads: &AttentionShape) -> bool {
        self.shape.heads == *heads
    }

    /// Writes rows to the step's slots.
    /// `x: [T, width]`
    ///
    /// # Errors
    /// If shapes don't match, or the device fails.
    pub fn append(&self, x: &Tensor, to: Cache) -> Result<()> {
        let (x, width) = (array(x)?, to.quants.dim(1)?);
        if x.len as usize != self.rows * width {
            bail!("{} numbers for {} rows of {width}", x.len, self.rows);
        }
        crate::append(&*self.gpu, self.shape.kind, &self.tables, x, width, to.arrays()?).map_err(wrapped)
    }

    /// Prepares heads and writes keys and values, in one launch.
    /// `q: [T, H * key_width]`, `k: [T, K * key_width]`, `v: [T, K * value_width]` -> the queries.
    /// `None` if there is no kernel for these heads.
    ///
    /// # Errors
    /// If shapes don't match, or the device fails.
    pub fn prepare(
        &self,
        [q, k, v]: [&Tensor; 3],
        [keys, values]: [Cache; 2],
        preparation: &Preparation,
    ) -> Result<Option<Tensor>> {
        let AttentionShape { heads, kv_heads, key_width, value_width, .. } = self.shape.heads;
        let Preparation { norms: [q_norm, k_norm], epsilon, angles: [cos, sin], adjacent } = *preparation;
        let shape = Heads {
            heads,
            kv_heads,
            key_width,
            value_width,
            norms: [maybe(q_norm)?, maybe(k_norm)?],
            epsilon,
            angles: [array(cos)?, array(sin)?],
            half: cos.dim(1)?,
            adjacent,
        };
        if !shape.fit(self.shape.kind) {
            return Ok(None);
        }
        let y = to_be_written(q.shape(), q)?;
        let rows = [array(q)?, array(k)?, array(v)?];
        let arrays = [keys.arrays()?, values.arrays()?];
        crate::prepare(&*self.gpu, &shape, self.shape.kind, &self.tables, rows, arrays, array(&y)?)
            .map_err(wrapped)?;
        Ok(Some(y))
    }

    /// Attends to the written keys and values.
    /// `q: [T, H * key_width]`, `sinks: [H]` -> `[T, H * value_width]`.
    /// Without `values` they are part of the keys.
    ///
    /// # Errors
    /// If shapes don't match, or the device fails.
    pub fn attend(
        &self,
        q: &Tensor,
        keys: Cache,
        values: Option<Cache>,
        sinks: Option<&Tensor>,
    ) -> Result<Tensor> {
        let AttentionShape { heads, value_width, .. } = self.shape.heads;
        let y = to_be_written((self.rows, heads * value_width), q)?;
        let arrays = [keys.arrays()?, values.unwrap_or(keys).arrays()?];
        let (q, sinks) = (array(q)?, maybe(sinks)?);
        crate::attend(&*self.gpu, &self.shape, &self.tables, q, sinks, arrays, array(&y)?)
            .map_err(wrapped)?;
        Ok(y)
    }
}

/// Quantized weight matrices in the file's format: one that candle has no kernels for, or experts.
#[derive(Clone, Debug)]
pub struct Matrices {
    bytes: Tensor,
    format: Format,
    /// Number of matrices.
    count: usize,
    width: usize,
    /// Rows per matrix.
    out: usize,
}

impl Matrices {
    /// Copies `bytes`: `[count, out, width]`.
    ///
    /// # Errors
    /// If there isn't enough memory, or the size of the bytes doesn't match.
    pub fn new(
        device: &CudaDevice,
        format: Format,
        bytes: &[u8],
        [count, out, width]: [usize; 3],
    ) -> Result<Self> {
        if format.row_bytes(width).map(|row| row * count * out) != Some(bytes.len()) {
            bail!(
                "{} bytes are not {count} matrices of {out} rows of {width} in {}",
                bytes.len(),
                format.name()
            );
        }
        // Kernels read whole words.
        let len = bytes.len().next_multiple_of(16);
        let mut padded = Vec::with_capacity(len);
        padded.extend_from_slice(bytes);
        padded.resize(len, 0);
        let bytes = Tensor::from_vec(padded, len, &candle_core::Device::Cuda(device.clone()))?;
        Ok(Matrices { bytes, format, count, width, out })
    }

    /// All matrices, or number `at` alone.
    fn weights(&self, at: usize) -> Result<Weights> {
        let Matrices { format, width, out, .. } = *self;
        Ok(Weights { format, bytes: array(&self.bytes)?, width, out, first: at * out, stack: out })
    }

    /// The product with matrix number `at`.
    /// `x: [T, width]` -> `[T, out]`
    ///
    /// # Errors
    /// If shapes don't match, or the device fails.
    pub fn product(&self, at: usize, x: &Tensor) -> Result<Tensor> {
        self.apply(at, x, 1, None, None)
    }

    /// Dequantizes the rows `ids` of the first matrix.
    /// `[ids, width]`
    ///
    /// # Errors
    /// If a row is out of range, or the device fails.
    pub fn rows(&self, ids: &[u32]) -> Result<Tensor> {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= self.out) {
            bail!("row {id} is out of range");
        }
        let ids = Tensor::new(ids, self.bytes.device())?;
        let y = to_be_written((ids.elem_count(), self.width), &self.bytes)?;
        crate::widen(&*gpu(&self.bytes)?, &self.weights(0)?, array(&ids)?, array(&y)?).map_err(wrapped)?;
        Ok(y)
    }

    /// Multiplies each matrix by its own part of each row.
    /// `x: [T, count * width]` -> `[T, count * out]`
    ///
    /// # Errors
    /// If shapes don't match, or the device fails.
    pub fn each(&self, x: &Tensor) -> Result<Tensor> {
        let rows = x.dim(0)?;
        let experts: Vec<u32> = (0..rows).flat_map(|_| 0..self.count as u32).collect();
        let experts = Tensor::from_vec(experts, (rows, self.count), x.device())?;
        let groups = Groups::new(&*gpu(x)?, &experts, self.count)?;
        self.apply(0, x, 1, None, Some(&groups.grouped()?))?.reshape((rows, self.count * self.out))
    }

    /// The product with matrix number `at`, or with the expert of each place if `grouped`; then
    /// `at` is 0.
    /// `shared` output rows use the same row of `x`.
    fn apply(
        &self,
        at: usize,
        x: &Tensor,
        shared: usize,
        bias: Option<&Tensor>,
        grouped: Option<&Grouped>,
    ) -> Result<Tensor> {
        let y = to_be_written((x.elem_count() / self.width * shared, self.out), x)?;
        let operands = Operands { x: array(x)?, shared, bias: maybe(bias)?, y: array(&y)? };
        crate::matmul(&*gpu(x)?, &self.weights(at)?, &operands, grouped).map_err(wrapped)?;
        Ok(y)
    }
}

/// Assigns places to experts.
struct Groups {
    /// `[T, used]`
    experts: Tensor,
    count: usize,
    /// The places sorted by expert, and their tiles, if there are many.
    sorted: Option<[Tensor; 2]>,
}

impl Groups {
    fn new(gpu: &Gpu, experts: &Tensor, count: usize) -> Result<Self> {
        let places = experts.elem_count();
        let mut groups = Groups { experts: experts.clone(), count, sorted: None };
        // Tiles are worthwhile if experts have several rows each.
        if places > crate::SMALL_BATCH.max(4 * count) {
            let words = |len| numbers_to_be_written(len, experts);
            groups.sorted = Some([words(places)?, words(4 * crate::max_tiles(places, count))?]);
            if let Some([order, tiles]) = groups.grouped()?.buckets {
                crate::bucket(gpu, count, array(experts)?, order, tiles).map_err(wrapped)?;
            }
        }
        Ok(groups)
    }

    fn grouped(&self) -> Result<Grouped> {
        let buckets = match &self.sorted {
            None => None,
            Some([order, tiles]) => {
                let tiles = array(tiles)?;
                Some([array(order)?, Array { len: tiles.len / 4, ..tiles }])
            }
        };
        Ok(Grouped { experts: array(&self.experts)?, count: self.count, buckets })
    }
}

/// The experts of every row, best first, and their weights: `logits: [T, count]`, `bias: [count]`
/// -> `[T, used]` each.
///
/// # Errors
/// If shapes don't match, or the device fails.
pub fn route(router: &Router, logits: &Tensor, bias: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
    let shape = (logits.dim(0)?, router.used);
    let (experts, weights) = (numbers_to_be_written(shape, logits)?, to_be_written(shape, logits)?);
    let (of_logits, bias) = (array(logits)?, maybe(bias)?);
    crate::route(&*gpu(logits)?, router, of_logits, bias, array(&experts)?, array(&weights)?)
        .map_err(wrapped)?;
    Ok((experts, weights))
}

/// The `count` greatest finite numbers of `logits: [V]` with their indices, in descending order,
/// equal ones by index.
/// Only indices whose bit is set in `among` count: bit `i % 32` of word `i / 32`; indices beyond it
/// don't count.
/// Fewer if there aren't as many.
///
/// # Errors
/// If `count` exceeds the limit of a launch, or the device fails.
pub fn top_k(logits: &Tensor, count: usize, among: &[u32]) -> Result<Vec<(f32, u32)>> {
    let words = logits.elem_count().div_ceil(32);
    let mut mask = among[..among.len().min(words)].to_vec();
    mask.resize(words, 0);
    let mask = Tensor::from_vec(mask, words, logits.device())?;
    // Values, then indices.
    let found = numbers_to_be_written(2 * count, logits)?;
    let both = array(&found)?;
    let (values, places) = (both.part(4, 0, count), both.part(4, count, count));
    crate::candidates(&*gpu(logits)?, array(logits)?, array(&mask)?, values, places).map_err(wrapped)?;
    let found = found.to_vec1::<u32>()?;
    let (values, places) = found.split_at(count);
    let pairs = values.iter().map(|&bits| f32::from_bits(bits)).zip(places.iter().copied());
    Ok(pairs.take_while(|(value, _)| value.is_finite()).collect())
}

/// A layer of experts.
#[derive(Debug)]
pub struct Experts<'a> {
    /// `[experts, F, D]`; `[experts, 2 F, D]` if each expert's up rows follow its gate rows.
    /// Biases correspond: `[experts, F]` or `[experts, 2 F]`.
    pub gate: Biased<'a>,
    /// `[experts, F, D]` and `[experts, F]`; `None` if they are part of `gate`.
    pub up: Option<Biased<'a>>,
    /// `[experts, D, F]` and `[experts, D]`.
    pub down: Biased<'a>,
    /// The activation of the gate.
    pub activation: Gate,
}

/// Matrices, and the bias added to their products.
type Biased<'a> = (&'a Matrices, Option<&'a Tensor>);

impl Experts<'_> {
    /// Applies the experts of every row.
    /// `x: [T, D]`, `experts: [T, used]` u32, `weights: [T, used]` -> `[T, D]`
    ///
    /// # Errors
    /// If shapes don't match, or the device fails.
    pub fn apply(&self, x: &Tensor, experts: &Tensor, weights: &Tensor) -> Result<Tensor> {
        let gpu = gpu(x)?;
        let used = experts.dim(1)?;
        let groups = Groups::new(&gpu, experts, self.gate.0.count)?;
        let grouped = groups.grouped()?;
        let product = |(w, bias): Biased, x: &Tensor, used| w.apply(0, x, used, bias, Some(&grouped));
        let gate = product(self.gate, x, used)?;
        let (gate, up) = match self.up {
            Some(up) => (gate, product(up, x, used)?),
            None => {
                let hidden = gate.dim(1)? / 2;
                (gate.narrow(1, 0, hidden)?, gate.narrow(1, hidden, hidden)?)
            }
        };
        let z = product(self.down, &gated(&gate, &up, self.activation, None)?, 1)?;
        let y = to_be_written(x.shape(), x)?;
        crate::weigh(&*gpu, array(&z)?, array(weights)?, used, array(&y)?).map_err(wrapped)?;
        Ok(y)
    }
}

/// `act(gate) up`, and its quants on request.
/// `up: [T, F]`, `gate` likewise or `[T, 1]`.
///
/// # Errors
/// If lengths don't match, or the device fails.
pub fn gated(
    gate: &Tensor,
    up: &Tensor,
    kind: Gate,
    mut quants: Option<&mut QuantizedRows>,
) -> Result<Tensor> {
    let y = to_be_written(up.shape(), up)?;
    let (count, width) = up.dims2()?;
    let buffer = quants.as_mut().map_or(Ok(Array::default()), |quants| quants.alloc(count, width, up))?;
    crate::gated(&*gpu(up)?, [rows(gate)?, rows(up)?], array(&y)?, buffer, kind).map_err(wrapped)?;
    if let Some(quants) = quants {
        quants.filled(buffer, &y);
    }
    Ok(y)
}

/// RMS norm over every group of `weight.len()` numbers, and the quants if groups are rows.
///
/// # Errors
/// If lengths don't match, or the device fails.
pub fn norm(x: &Tensor, weight: &Tensor, epsilon: f32, quants: &mut QuantizedRows) -> Result<Tensor> {
    let y = to_be_written(x.shape(), x)?;
    let (terms, results) = ([array(x)?, Array::default()], [Array::default(), array(&y)?]);
    add_and_norm(terms, weight, epsilon, results, &y, quants)?;
    Ok(y)
}

/// `x + more`, its RMS norm over every group of `weight.len()` numbers, and the norm's quants if
/// groups are rows.
///
/// # Errors
/// If lengths don't match, or the device fails.
pub fn add_norm(
    x: &Tensor,
    more: &Tensor,
    weight: &Tensor,
    epsilon: f32,
    quants: &mut QuantizedRows,
) -> Result<(Tensor, Tensor)> {
    let (sum, y) = (to_be_written(x.shape(), x)?, to_be_written(x.shape(), x)?);
    let (terms, results) = ([array(x)?, array(more)?], [array(&sum)?, array(&y)?]);
    add_and_norm(terms, weight, epsilon, results, &y, quants)?;
    Ok((sum, y))
}

fn add_and_norm(
    terms: [Array; 2],
    weight: &Tensor,
    epsilon: f32,
    results: [Array; 2],
    y: &Tensor,
    quants: &mut QuantizedRows,
) -> Result<()> {
    let width = weight.elem_count();
    let buffer = match y.dims() {
        &[rows, group] if group == width => quants.alloc(rows, width, y)?,
        _ => Array::default(),
    };
    crate::add_norm(&*gpu(y)?, terms, array(weight)?, epsilon, results, buffer).map_err(wrapped)?;
    quants.filled(buffer, y);
    Ok(())
}

/// A sequence's state in a delta layer.
#[derive(Clone, Debug)]
pub struct RecurrentState {
    /// `[kernel - 1, channels]`
    pub history: Tensor,
    /// `[value_heads, key_width, value_width]`
    pub matrices: Tensor,
}

impl RecurrentState {
    fn state_arrays(&self) -> Result<DeltaState> {
        Ok(DeltaState { state: array(&self.matrices)?, history: array(&self.history)? })
    }
}

/// One sequence's rows: their number, and the state before them (`None` at its beginning).
/// The state is returned after some of them, ascending, the last at the end.
#[derive(Clone, Debug)]
pub struct DeltaSequence {
    /// Number of rows.
    pub rows: usize,
    /// The state before.
    pub before: Option<RecurrentState>,
    /// After how many rows to return the state.
    pub saves: Vec<usize>,
}

/// The gated delta rule.
/// `qkv`, `beta`, `alpha`, `conv`, `a`, `dt` as [`DeltaInput`] has them ->
/// `[T, value_heads * value_width]`, and for every sequence the state at each stop.
///
/// # Errors
/// If shapes don't match, or the device fails.
pub fn delta(
    shape: &DeltaShape,
    sequences: &[DeltaSequence],
    [qkv, beta, alpha, conv, a, dt]: [&Tensor; 6],
) -> Result<(Tensor, Vec<Vec<RecurrentState>>)> {
    let DeltaShape { value_heads, key_width, value_width, kernel, .. } = *shape;
    let fresh = || -> Result<RecurrentState> {
        Ok(RecurrentState {
            history: to_be_written((kernel - 1, shape.channels()), qkv)?,
            matrices: to_be_written((value_heads, key_width, value_width), qkv)?,
        })
    };
    let mut found = Vec::with_capacity(sequences.len());
    let mut spans = Vec::with_capacity(sequences.len());
    for sequence in sequences {
        let states = sequence.saves.iter().map(|_| fresh()).collect::<Result<Vec<RecurrentState>>>()?;
        let to = sequence.saves.iter().zip(&states).map(|(&rows, state)| Ok((rows, state.state_arrays()?)));
        spans.push(DeltaSpan {
            rows: sequence.rows,
            before: sequence
                .before
                .as_ref()
                .map_or(Ok(DeltaState::default()), RecurrentState::state_arrays)?,
            saves: to.collect::<Result<Vec<_>>>()?,
        });
        found.push(states);
    }
    let y = to_be_written((qkv.dim(0)?, value_heads * value_width), qkv)?;
    let [of_qkv, of_beta, of_alpha, conv, a, dt] =
        [array(qkv)?, array(beta)?, array(alpha)?, array(conv)?, array(a)?, array(dt)?];
    let input = DeltaInput { qkv: of_qkv, beta: of_beta, alpha: of_alpha, conv, a, dt };
    let long = sequences.iter().any(|sequence| sequence.rows >= crate::CHUNK);
    let form = if long { DeltaForm::Chunked } else { DeltaForm::Recurrent };
    crate::delta(&*gpu(qkv)?, shape, form, &spans, &input, array(&y)?).map_err(wrapped)?;
    Ok((y, found))
}
