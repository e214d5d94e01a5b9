//! Weights in the forms that candle computes with.

use std::sync::Arc;

use alara_kernels::{Format, dequantize};
use alara_text::gguf::{TensorData, TensorType};
use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor, QuantizedType};
use candle_core::{CpuStorage, CustomOp1, Device, Layout as Strides, Module, Result, Shape, Tensor};

use super::view::view;
use crate::backend::{StackShape, format, numbers};

/// A weight matrix `[out, width]`.
#[derive(Debug)]
pub enum TensorMatrix {
    /// Computed by candle: in blocks, with activations quantized on the fly; or in f32, for float
    /// files.
    Candle(QMatMul),
    /// In blocks of 32.
    Blocks32(Blocks32),
    /// Of a type or width that candle doesn't support.
    Foreign(Foreign),
    /// On a CUDA device: of a type or width that candle doesn't support, or all matrices of a
    /// stack;
    /// computed by this project's kernels.
    #[cfg(feature = "cuda")]
    Cuda(alara_cuda::tensors::Matrices),
}

impl TensorMatrix {
    /// Reads `data` as `out` rows of `width` numbers.
    /// `None` if `kind` isn't supported.
    pub fn new(
        data: TensorData,
        kind: TensorType,
        out: usize,
        width: usize,
        device: &Device,
    ) -> Result<Option<Self>> {
        let Some(dtype) = dtype(kind).filter(|dtype| takes(*dtype, width)) else {
            #[cfg(feature = "cuda")]
            if let Device::Cuda(device) = device {
                let shape = StackShape { count: 1, out, width, rows: 0..out };
                return super::cuda::stack(device, &data, kind, &shape);
            }
            return Ok(format(kind).map(|format| TensorMatrix::Foreign(Foreign { data, format, width })));
        };
        if dtype == GgmlDType::Q8_0 && device.is_cpu() {
            let weights = Arc::new(view(data, dtype).map_err(candle_core::Error::wrap)?);
            return Ok(Some(TensorMatrix::Blocks32(Blocks32 { weights, out, width })));
        }
        if is_float(dtype) {
            let numbers = floats(&data, kind, (out, width), device)?;
            return Ok(Some(TensorMatrix::Candle(QMatMul::Tensor(numbers))));
        }
        let tensor = tensor(data, dtype, (out, width), device)?;
        Ok(Some(TensorMatrix::Candle(QMatMul::QTensor(Arc::new(tensor)))))
    }

    /// The rows `ids`.
    /// `[ids, width]`
    pub fn rows(&self, ids: &[u32], device: &Device) -> Result<Tensor> {
        match self {
            TensorMatrix::Candle(weights) => weights.embedding(&Tensor::new(ids, device)?),
            TensorMatrix::Blocks32(weights) => weights.rows(ids, device),
            TensorMatrix::Foreign(weights) => weights.rows(ids, device),
            #[cfg(feature = "cuda")]
            TensorMatrix::Cuda(weights) => weights.rows(ids),
        }
    }

    /// `x: [T, width]`, contiguous -> `[T, out]`
    pub fn product(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            TensorMatrix::Candle(weights) => weights.forward(x),
            TensorMatrix::Blocks32(weights) => x.apply_op1_no_bwd(weights),
            TensorMatrix::Foreign(weights) => x.matmul(&weights.all(x.device())?.t()?),
            #[cfg(feature = "cuda")]
            TensorMatrix::Cuda(weights) => weights.product(0, &x.contiguous()?),
        }
    }
}

/// The matrices of a stack; since rows are whole blocks, each is a view of its own bytes.
pub fn stack(
    data: &TensorData,
    kind: TensorType,
    shape: &StackShape,
    device: &Device,
) -> Result<Option<Vec<TensorMatrix>>> {
    #[cfg(feature = "cuda")]
    if let Device::Cuda(device) = device
        && let Some(all) = super::cuda::stack(device, data, kind, shape)?
    {
        return Ok(Some(vec![all]));
    }
    let row = data.len() / (shape.count * shape.out);
    let matrices = (0..shape.count).map(|at| {
        let rows = at * shape.out + shape.rows.start..at * shape.out + shape.rows.end;
        let part = data.slice(rows.start * row..rows.end * row);
        TensorMatrix::new(part, kind, rows.len(), shape.width, device)
    });
    matrices.collect()
}

/// As [`TensorMatrix::product`], with matrix number `at` of a stack.
pub fn product_of(stack: &[TensorMatrix], at: usize, x: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let [TensorMatrix::Cuda(all)] = stack {
        return all.product(at, &x.contiguous()?);
    }
    stack[at].product(x)
}

/// Reads `data` as numbers.
/// `None` unless `kind` is a float type.
pub fn vector(data: &[u8], kind: TensorType, device: &Device) -> Result<Option<Tensor>> {
    let Some(dtype) = dtype(kind).filter(|dtype| is_float(*dtype)) else { return Ok(None) };
    floats(data, kind, data.len() / dtype.type_size(), device).map(Some)
}

fn is_float(dtype: GgmlDType) -> bool {
    matches!(dtype, GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16)
}

/// Numbers, converted on the host and uploaded once.
fn floats(data: &[u8], kind: TensorType, shape: impl Into<Shape>, device: &Device) -> Result<Tensor> {
    match numbers(data, kind) {
        Some(numbers) => Tensor::from_vec(numbers, shape.into(), device),
        None => candle_core::bail!("numbers of type {}", kind.name()),
    }
}

/// On the CPU the bytes are used in place, other devices get a copy.
fn tensor(data: TensorData, dtype: GgmlDType, shape: impl Into<Shape>, device: &Device) -> Result<QTensor> {
    let storage = if device.is_cpu() {
        QStorage::Cpu(view(data, dtype).map_err(candle_core::Error::wrap)?)
    } else {
        QStorage::from_data((&*data).into(), device, dtype)?
    };
    QTensor::new(storage, shape)
}

/// A Q8_0 matrix on the CPU. candle's packed kernel for it quantizes activations in blocks of 256
/// with one scale, eight times coarser than the weights and the reference.
/// Its plain kernel uses blocks of 32.
#[derive(Clone)]
pub struct Blocks32 {
    weights: Arc<Box<dyn QuantizedType>>,
    out: usize,
    width: usize,
}

impl Blocks32 {
    fn rows(&self, ids: &[u32], device: &Device) -> Result<Tensor> {
        let rows = self.weights.embedding(ids, self.out, self.width)?;
        Tensor::from_slice(rows.as_slice::<f32>()?, (ids.len(), self.width), device)
    }
}

impl std::fmt::Debug for Blocks32 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blocks32[{}, {}]", self.out, self.width)
    }
}

impl CustomOp1 for Blocks32 {
    fn name(&self) -> &'static str {
        "matmul-q8_0"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, strides: &Strides) -> Result<(CpuStorage, Shape)> {
        let Some((start, end)) = strides.contiguous_offsets() else {
            candle_core::bail!("the activations are not contiguous")
        };
        let x = &storage.as_slice::<f32>()?[start..end];
        let rows = x.len() / self.width;
        let mut y = vec![0f32; rows * self.out];
        self.weights.matmul_t((rows, self.width, self.out), x, &mut y)?;
        Ok((CpuStorage::F32(y), (rows, self.out).into()))
    }
}

/// A matrix of a type or width without a candle kernel.
/// It keeps the file's format and is dequantized on every use: slow, but takes no more memory than
/// the file.
#[derive(Debug)]
pub struct Foreign {
    data: TensorData,
    format: Format,
    width: usize,
}

impl Foreign {
    fn all(&self, device: &Device) -> Result<Tensor> {
        self.widened(&self.data, device)
    }

    fn rows(&self, ids: &[u32], device: &Device) -> Result<Tensor> {
        let row = self.width / self.format.block_len() * self.format.block_bytes();
        let rows = ids.iter().map(|&id| {
            let start = id as usize * row;
            match self.data.get(start..start + row) {
                Some(bytes) => self.widened(bytes, device),
                None => candle_core::bail!("row {id} is out of range"),
            }
        });
        Tensor::cat(&rows.collect::<Result<Vec<_>>>()?, 0)
    }

    /// `[rows, width]`
    fn widened(&self, bytes: &[u8], device: &Device) -> Result<Tensor> {
        let len = bytes.len() / self.format.block_bytes() * self.format.block_len();
        let mut numbers = vec![0.0; len];
        dequantize(self.format, bytes, &mut numbers);
        Tensor::from_vec(numbers, (len / self.width, self.width), device)
    }
}

/// Whether candle's kernels for `dtype` support rows of `width`: some require an even number of
/// blocks.
fn takes(dtype: GgmlDType, width: usize) -> bool {
    let pairs = matches!(dtype, GgmlDType::Q4_1 | GgmlDType::Q5_0 | GgmlDType::Q5_1);
    !pairs || width.is_multiple_of(2 * dtype.block_size())
}

/// candle's name of a tensor type; `None` if candle has no kernels for it.
fn dtype(kind: TensorType) -> Option<GgmlDType> {
    Some(match kind {
        TensorType::F32 => GgmlDType::F32,
        TensorType::F16 => GgmlDType::F16,
        TensorType::BF16 => GgmlDType::BF16,
        TensorType::Q4_0 => GgmlDType::Q4_0,
        TensorType::Q4_1 => GgmlDType::Q4_1,
        TensorType::Q5_0 => GgmlDType::Q5_0,
        TensorType::Q5_1 => GgmlDType::Q5_1,
        TensorType::Q8_0 => GgmlDType::Q8_0,
        TensorType::Q2_K => GgmlDType::Q2K,
        TensorType::Q3_K => GgmlDType::Q3K,
        TensorType::Q4_K => GgmlDType::Q4K,
        TensorType::Q5_K => GgmlDType::Q5K,
        TensorType::Q6_K => GgmlDType::Q6K,
        _ => return None,
    })
}
