//! The operations over candle's tensors on a CUDA device: what an engine that computes with candle calls.
//!
//! Activations are contiguous f32. Results are new tensors; of keys and values the kernels write the very memory.
#![allow(unsafe_code)]

use std::sync::Arc;

use candle_core::cuda_backend::cudarc::driver::{CudaSlice, DevicePtr};
use candle_core::cuda_backend::{CudaDType, CudaDevice};
use candle_core::{DType, Result, Shape, Storage, Tensor, bail};
use half::f16;

use crate::gpu::{Gpu, OnGpu};
use crate::{
    Array, AttendPlan, AttendShape, AttendSpan, DeltaInput, DeltaShape, DeltaSpan, Format, Gate, Grouped,
    Kept, Kind, Known, Operands, Tables, Weights,
};

/// candle's form of this crate's errors.
fn wrapped(error: crate::Error) -> candle_core::Error {
    candle_core::Error::msg(error)
}

/// The kernels on the device that `tensor` lies on.
///
/// # Errors
/// If that is no CUDA device, or its driver doesn't take the kernels.
pub fn gpu(tensor: &Tensor) -> Result<Arc<Gpu>> {
    Gpu::of(tensor.device().as_cuda_device()?).map_err(wrapped)
}

/// Where the numbers of a contiguous tensor lie.
///
/// # Errors
/// If it is not contiguous, of another type than f32, f16, u8 or u32, or not on a CUDA device.
pub fn array(tensor: &Tensor) -> Result<Array> {
    fn address<T: CudaDType>(slice: &CudaSlice<T>) -> u64 {
        // All work is in the slice's own stream: nobody needs to wait for the guard.
        slice.device_ptr(slice.stream()).0
    }
    let (storage, layout) = tensor.storage_and_layout();
    let Some((start, end)) = layout.contiguous_offsets() else { bail!("a tensor is not contiguous") };
    let Storage::Cuda(storage) = &*storage else { bail!("a tensor is not on a CUDA device") };
    let base = match tensor.dtype() {
        DType::F32 => address(storage.as_cuda_slice::<f32>()?),
        DType::F16 => address(storage.as_cuda_slice::<f16>()?),
        DType::U8 => address(storage.as_cuda_slice::<u8>()?),
        DType::U32 => address(storage.as_cuda_slice::<u32>()?),
        other => bail!("numbers of type {other:?}"),
    };
    let address = base + (start * tensor.dtype().size_in_bytes()) as u64;
    Ok(Array { address, len: (end - start) as u64 })
}

fn maybe(tensor: Option<&Tensor>) -> Result<Array> {
    tensor.map_or(Ok(Array::default()), array)
}

/// A tensor that a kernel is about to write, all of it.
fn to_be_written(shape: impl Into<Shape>, like: &Tensor) -> Result<Tensor> {
    // SAFETY: the kernel that it is made for writes every number before anybody reads one, in the same stream.
    unsafe { Tensor::empty(shape, DType::F32, like.device()) }
}

/// Keys or values of a layer: `codes: [slots, heads * width]`, f32, f16, or u8 with 128 for zero and f16 scales.
#[derive(Clone, Copy, Debug)]
pub struct Cache<'a> {
    /// The numbers.
    pub codes: &'a Tensor,
    /// One for 32 numbers.
    pub scales: Option<&'a Tensor>,
}

impl Cache<'_> {
    fn kept(&self) -> Result<Kept> {
        let codes = array(self.codes)?;
        let bytes = codes.len * self.codes.dtype().size_in_bytes() as u64;
        Ok(Kept { codes: Array { address: codes.address, len: bytes }, scales: maybe(self.scales)? })
    }

    fn kind(&self) -> Result<Kind> {
        Ok(match self.codes.dtype() {
            DType::F32 => Kind::F32,
            DType::F16 => Kind::F16,
            DType::U8 => Kind::Q8_0,
            other => bail!("keys and values of type {other:?}"),
        })
    }
}

/// How the rows of a step are shared out among blocks of threads, on the device: the same for all layers of one shape.
#[derive(Debug)]
pub struct Attention {
    gpu: Arc<Gpu>,
    shape: AttendShape,
    tables: Tables<OnGpu>,
    rows: usize,
}

impl Attention {
    /// For layers of `shape`, whose `kind` is that of `keys`.
    ///
    /// # Errors
    /// If no kernel is made for the shape, or there is no room.
    pub fn new(mut shape: AttendShape, spans: &[AttendSpan], keys: Cache) -> Result<Self> {
        shape.kind = keys.kind()?;
        let gpu = gpu(keys.codes)?;
        let plan = AttendPlan::new(&shape, spans).map_err(wrapped)?;
        let tables = plan.upload(&*gpu, &shape).map_err(wrapped)?;
        Ok(Attention { gpu, shape, tables, rows: plan.rows() })
    }

    /// The shape that it was made for.
    pub fn shape(&self) -> &AttendShape {
        &self.shape
    }

    /// Writes keys and values and attends. `q: [T, H * key_width]`, `k: [T, K * key_width]`, `v: [T, K * value_width]`,
    /// `sinks: [H]` -> `[T, H * value_width]`. Without `v` values are within keys.
    ///
    /// # Errors
    /// If shapes don't fit, or the device fails.
    pub fn apply(
        &self,
        q: &Tensor,
        (k, keys): (&Tensor, Cache),
        v: Option<(&Tensor, Cache)>,
        sinks: Option<&Tensor>,
    ) -> Result<Tensor> {
        let Attention { gpu, shape, tables, rows } = self;
        let mut kept = [keys.kept()?; 2];
        if let Some((_, values)) = v {
            kept[1] = values.kept()?;
        }
        for ((x, kept), width) in
            std::iter::once(k).chain(v.map(|(v, _)| v)).zip(kept).zip([shape.key_width, shape.value_width])
        {
            let x = array(x)?;
            if x.len as usize != rows * shape.kv_heads * width {
                bail!("{} numbers for {rows} rows of {} heads of {width}", x.len, shape.kv_heads);
            }
            crate::append(&**gpu, shape.kind, tables, x, shape.kv_heads * width, kept).map_err(wrapped)?;
        }
        let y = to_be_written((*rows, shape.heads * shape.value_width), q)?;
        let (q, sinks) = (array(q)?, maybe(sinks)?);
        crate::attend(&**gpu, shape, tables, q, sinks, kept, array(&y)?).map_err(wrapped)?;
        Ok(y)
    }
}

/// Matrices of quantized weights, in the file's own bytes: of a format that candle has no kernels for, or experts.
#[derive(Clone, Debug)]
pub struct Matrices {
    bytes: Tensor,
    format: Format,
    /// Matrices.
    count: usize,
    width: usize,
    /// Rows of each.
    out: usize,
}

impl Matrices {
    /// Copies `bytes`: `[count, out, width]`.
    ///
    /// # Errors
    /// If there is no room, or the bytes are no such matrices.
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
        // Words are read whole.
        let len = bytes.len().next_multiple_of(16);
        let mut padded = Vec::with_capacity(len);
        padded.extend_from_slice(bytes);
        padded.resize(len, 0);
        let bytes = Tensor::from_vec(padded, len, &candle_core::Device::Cuda(device.clone()))?;
        Ok(Matrices { bytes, format, count, width, out })
    }

    fn weights(&self) -> Result<Weights> {
        let Matrices { format, width, out, .. } = *self;
        Ok(Weights { format, bytes: array(&self.bytes)?, width, out, first: 0, stack: out })
    }

    /// By the first matrix. `x: [T, width]` -> `[T, out]`
    ///
    /// # Errors
    /// If shapes don't fit, or the device fails.
    pub fn product(&self, x: &Tensor) -> Result<Tensor> {
        self.apply(x, 1, None, None)
    }

    /// The numbers of the rows `ids` of the first matrix. `[ids, width]`
    ///
    /// # Errors
    /// If a row is not there, or the device fails.
    pub fn rows(&self, ids: &[u32]) -> Result<Tensor> {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= self.out) {
            bail!("row {id} is out of range");
        }
        let ids = Tensor::new(ids, self.bytes.device())?;
        let y = to_be_written((ids.elem_count(), self.width), &self.bytes)?;
        crate::widen(&*gpu(&self.bytes)?, &self.weights()?, array(&ids)?, array(&y)?).map_err(wrapped)?;
        Ok(y)
    }

    /// Every matrix by its own part of each row. `x: [T, count * width]` -> `[T, count * out]`
    ///
    /// # Errors
    /// If shapes don't fit, or the device fails.
    pub fn each(&self, x: &Tensor) -> Result<Tensor> {
        let rows = x.dim(0)?;
        let experts: Vec<u32> = (0..rows).flat_map(|_| 0..self.count as u32).collect();
        let experts = Tensor::from_vec(experts, (rows, self.count), x.device())?;
        let groups = Groups::new(&*gpu(x)?, &experts, self.count)?;
        self.apply(x, 1, None, Some(&groups.grouped()?))?.reshape((rows, self.count * self.out))
    }

    /// `shared` rows of outputs come of a row of `x`; by the expert of each, if `grouped`.
    fn apply(
        &self,
        x: &Tensor,
        shared: usize,
        bias: Option<&Tensor>,
        grouped: Option<&Grouped>,
    ) -> Result<Tensor> {
        let y = to_be_written((x.elem_count() / self.width * shared, self.out), x)?;
        let operands = Operands { x: array(x)?, shared, bias: maybe(bias)?, y: array(&y)? };
        crate::matmul(&*gpu(x)?, &self.weights()?, &operands, grouped).map_err(wrapped)?;
        Ok(y)
    }
}

/// Which places are whose.
struct Groups {
    /// `[T, used]`
    experts: Tensor,
    count: usize,
    /// The places by expert, and tiles of them, where there are many.
    sorted: Option<[Tensor; 2]>,
}

impl Groups {
    fn new(gpu: &Gpu, experts: &Tensor, count: usize) -> Result<Self> {
        let places = experts.elem_count();
        let mut groups = Groups { experts: experts.clone(), count, sorted: None };
        if places > crate::FEW {
            let words = |len| Tensor::zeros(len, DType::U32, experts.device());
            groups.sorted = Some([words(places)?, words(4 * crate::most_tiles(places, count))?]);
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

/// A layer of experts.
#[derive(Debug)]
pub struct Experts<'a> {
    /// Gate, up and down.
    pub matrices: [&'a Matrices; 3],
    /// `[experts, F]`, the same, `[experts, D]`.
    pub biases: [Option<&'a Tensor>; 3],
    /// The function on the gate.
    pub gate: Gate,
}

impl Experts<'_> {
    /// Every row by its experts. `x: [T, D]`, `experts: [T, used]` u32, `weights: [T, used]` -> `[T, D]`
    ///
    /// # Errors
    /// If shapes don't fit, or the device fails.
    pub fn apply(&self, x: &Tensor, experts: &Tensor, weights: &Tensor) -> Result<Tensor> {
        let gpu = gpu(x)?;
        let [gate, up, down] = self.matrices;
        let used = experts.dim(1)?;
        let groups = Groups::new(&gpu, experts, gate.count)?;
        let grouped = groups.grouped()?;
        let [of_gate, of_up, of_down] = self.biases;
        let g = gate.apply(x, used, of_gate, Some(&grouped))?;
        let u = up.apply(x, used, of_up, Some(&grouped))?;
        let z = down.apply(&gated(&g, &u, self.gate)?, 1, of_down, Some(&grouped))?;
        let y = to_be_written(x.shape(), x)?;
        crate::weigh(&*gpu, array(&z)?, array(weights)?, used, array(&y)?).map_err(wrapped)?;
        Ok(y)
    }
}

/// `act(gate) up`. `up: [T, F]`, `gate` the same or `[T, 1]`.
///
/// # Errors
/// If lengths don't fit, or the device fails.
pub fn gated(gate: &Tensor, up: &Tensor, kind: Gate) -> Result<Tensor> {
    let y = to_be_written(up.shape(), up)?;
    crate::gated(&*gpu(up)?, array(gate)?, array(up)?, array(&y)?, kind).map_err(wrapped)?;
    Ok(y)
}

/// RMS norm of every run of `weight.len()` numbers; keeps the shape.
///
/// # Errors
/// If lengths don't fit, or the device fails.
pub fn norm(x: &Tensor, weight: &Tensor, epsilon: f32) -> Result<Tensor> {
    let y = to_be_written(x.shape(), x)?;
    let none = Array::default();
    crate::add_norm(&*gpu(x)?, [array(x)?, none], array(weight)?, epsilon, [none, array(&y)?])
        .map_err(wrapped)?;
    Ok(y)
}

/// What a sequence leaves in a delta layer.
#[derive(Clone, Debug)]
pub struct Memory {
    /// `[kernel - 1, channels]`
    pub history: Tensor,
    /// `[value_heads, key_width, value_width]`
    pub matrices: Tensor,
}

impl Memory {
    fn known(&self) -> Result<Known> {
        Ok(Known { state: array(&self.matrices)?, history: array(&self.history)? })
    }
}

/// One sequence's rows: how many, what was known (`None` at its beginning), and after how many rows, ascending and with the
/// last at the end, what is known is wanted.
#[derive(Clone, Debug)]
pub struct Remembered {
    /// Rows.
    pub rows: usize,
    /// What was known.
    pub before: Option<Memory>,
    /// Where to stop.
    pub saves: Vec<usize>,
}

/// The gated delta rule. `qkv`, `beta`, `alpha`, `conv`, `a`, `dt` as [`DeltaInput`] has them -> `[T, value_heads * value_width]`,
/// and for every sequence what was known at each stop.
///
/// # Errors
/// If shapes don't fit, or the device fails.
pub fn delta(
    shape: &DeltaShape,
    sequences: &[Remembered],
    [qkv, beta, alpha, conv, a, dt]: [&Tensor; 6],
) -> Result<(Tensor, Vec<Vec<Memory>>)> {
    let DeltaShape { value_heads, key_width, value_width, kernel, .. } = *shape;
    let fresh = || -> Result<Memory> {
        Ok(Memory {
            history: to_be_written((kernel - 1, shape.channels()), qkv)?,
            matrices: to_be_written((value_heads, key_width, value_width), qkv)?,
        })
    };
    let mut found = Vec::with_capacity(sequences.len());
    let mut spans = Vec::with_capacity(sequences.len());
    for sequence in sequences {
        let memories = sequence.saves.iter().map(|_| fresh()).collect::<Result<Vec<Memory>>>()?;
        let to = sequence.saves.iter().zip(&memories).map(|(&rows, memory)| Ok((rows, memory.known()?)));
        spans.push(DeltaSpan {
            rows: sequence.rows,
            before: sequence.before.as_ref().map_or(Ok(Known::default()), Memory::known)?,
            saves: to.collect::<Result<Vec<_>>>()?,
        });
        found.push(memories);
    }
    let y = to_be_written((qkv.dim(0)?, value_heads * value_width), qkv)?;
    let [of_qkv, of_beta, of_alpha, conv, a, dt] =
        [array(qkv)?, array(beta)?, array(alpha)?, array(conv)?, array(a)?, array(dt)?];
    let input = DeltaInput { qkv: of_qkv, beta: of_beta, alpha: of_alpha, conv, a, dt };
    crate::delta(&*gpu(qkv)?, shape, &spans, &input, array(&y)?).map_err(wrapped)?;
    Ok((y, found))
}
