//! The portable backend: candle's tensors and quantized kernels. On the CPU it is the oracle that tests compare with.

use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor, QuantizedType};
use candle_core::{CpuStorage, CustomOp1, D, DType, Device, Layout as Strides, Module, Shape, Tensor};
use candle_nn::{ops, rotary_emb};

use super::{AttentionShape, Backend, KvType, Span, Step};
use crate::architecture::{Activation, Pairing};
use crate::cache::{BlockId, Layout};
use crate::gguf::{TensorData, TensorType};
use crate::{Error, Result};

/// Computes with candle on one device.
#[derive(Debug)]
pub struct Candle {
    device: Device,
}

impl Candle {
    /// On the CPU.
    pub fn cpu() -> Self {
        Candle { device: Device::Cpu }
    }
}

/// Adds what was being computed to candle's error. Only the first line: the rest may be a backtrace.
trait During<T> {
    fn during(self, operation: &str) -> Result<T>;
}

impl<T> During<T> for candle_core::Result<T> {
    fn during(self, operation: &str) -> Result<T> {
        self.map_err(|error| Error::Backend {
            operation: operation.into(),
            message: error.to_string().lines().next().unwrap_or_default().into(),
        })
    }
}

/// A weight matrix `[out, in]`.
#[derive(Debug)]
pub enum Matrix {
    /// In blocks; activations are quantized on the fly.
    Quantized(Arc<QTensor>),
    /// In blocks of 32, see [`Blocks32`].
    Blocks32(Blocks32),
    /// In f32, for files with float weights.
    Dense {
        /// `[out, in]`, for look-ups.
        table: Tensor,
        /// `[in, out]`, a view, for products.
        transposed: Tensor,
    },
}

/// A Q8_0 matrix on the CPU. candle's packed kernel for it rounds activations in runs of 256 with one scale, which is
/// eight times coarser than the weights and than the reference; its plain kernel keeps runs of 32.
#[derive(Clone)]
pub struct Blocks32 {
    weights: Arc<Box<dyn QuantizedType>>,
    out: usize,
    width: usize,
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

    fn cpu_fwd(&self, storage: &CpuStorage, strides: &Strides) -> candle_core::Result<(CpuStorage, Shape)> {
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

/// The keys and values of one layer.
#[derive(Debug)]
pub struct Kv {
    layout: Layout,
    keys: Rows,
    values: Rows,
}

/// Rows of numbers `[tokens, width]` in the cache's number format.
#[derive(Debug)]
struct Rows {
    codes: Tensor,
    /// One scale for 32 codes; [`KvType::Q8_0`] only.
    scales: Option<Tensor>,
    heads: usize,
    width: usize,
}

const Q8_BLOCK: usize = 32;

impl Rows {
    fn zeros(
        tokens: usize,
        heads: usize,
        width: usize,
        kind: KvType,
        device: &Device,
    ) -> candle_core::Result<Self> {
        let dtype = match kind {
            KvType::F32 => DType::F32,
            KvType::F16 => DType::F16,
            KvType::Q8_0 => DType::U8,
        };
        let row = heads * width;
        let scales = match kind {
            KvType::Q8_0 if row.is_multiple_of(Q8_BLOCK) => {
                Some(Tensor::zeros((tokens, row / Q8_BLOCK), DType::F16, device)?)
            }
            KvType::Q8_0 => {
                candle_core::bail!("a q8_0 cache needs rows in multiples of {Q8_BLOCK}, not {row}")
            }
            _ => None,
        };
        Ok(Rows { codes: Tensor::zeros((tokens, row), dtype, device)?, scales, heads, width })
    }

    /// Writes `rows: [n, width]` from token slot `at` on.
    fn write(&self, rows: &Tensor, at: usize) -> candle_core::Result<()> {
        let Some(scales) = &self.scales else {
            return self.codes.slice_set(&rows.to_dtype(self.codes.dtype())?.contiguous()?, 0, at);
        };
        let (n, row) = rows.dims2()?;
        let blocks = rows.reshape((n, row / Q8_BLOCK, Q8_BLOCK))?;
        // As ggml's q8_0: the scale is stored in f16, the codes are made with the f32 one.
        let scale = (blocks.abs()?.max_keepdim(D::Minus1)? / 127.0)?;
        let codes = (blocks.broadcast_div(&scale.maximum(f32::MIN_POSITIVE)?)?.round()? + 128.0)?;
        self.codes.slice_set(&codes.to_dtype(DType::U8)?.reshape((n, row))?, 0, at)?;
        scales.slice_set(&scale.to_dtype(DType::F16)?.reshape((n, row / Q8_BLOCK))?, 0, at)
    }

    /// The first `len` tokens of a sequence, by head: `[heads, len, width]`, f32.
    fn read(&self, layout: Layout, blocks: &[BlockId], len: usize) -> candle_core::Result<Tensor> {
        let codes = gather(&self.codes, layout, blocks, len)?.to_dtype(DType::F32)?;
        let rows = match &self.scales {
            None => codes,
            Some(scales) => {
                let scales =
                    gather(scales, layout, blocks, len)?.to_dtype(DType::F32)?.unsqueeze(D::Minus1)?;
                let codes = (codes.reshape((len, (), Q8_BLOCK))? - 128.0)?;
                codes.broadcast_mul(&scales)?
            }
        };
        rows.reshape((len, self.heads, self.width))?.transpose(0, 1)
    }

    fn copy_block(&self, layout: Layout, from: BlockId, to: BlockId) -> candle_core::Result<()> {
        let size = layout.block_tokens;
        for tensor in [Some(&self.codes), self.scales.as_ref()].into_iter().flatten() {
            let rows = tensor.narrow(0, from.0 as usize * size, size)?.copy()?;
            tensor.slice_set(&rows, 0, to.0 as usize * size)?;
        }
        Ok(())
    }
}

/// The first `len` rows that lie in `blocks`; a view where the blocks are neighbours.
fn gather(pool: &Tensor, layout: Layout, blocks: &[BlockId], len: usize) -> candle_core::Result<Tensor> {
    let size = layout.block_tokens;
    let blocks = &blocks[..len.div_ceil(size)];
    if blocks.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1) {
        return pool.narrow(0, blocks[0].0 as usize * size, len);
    }
    let runs: Vec<Tensor> = blocks
        .chunk_by(|a, b| b.0 == a.0 + 1)
        .map(|run| pool.narrow(0, run[0].0 as usize * size, run.len() * size))
        .collect::<candle_core::Result<_>>()?;
    Tensor::cat(&runs, 0)?.narrow(0, 0, len)
}

impl Backend for Candle {
    type Array = Tensor;
    type Matrix = Matrix;
    type Vector = Tensor;
    type Angles = (Tensor, Tensor);
    type Kv = Kv;

    fn matrix(&self, data: TensorData, kind: TensorType, out: usize, width: usize) -> Result<Option<Matrix>> {
        let Some(dtype) = dtype(kind) else { return Ok(None) };
        let build = || -> candle_core::Result<Matrix> {
            let weights = alara_kernels::view(data, dtype).map_err(candle_core::Error::wrap)?;
            if dtype == GgmlDType::Q8_0 && self.device.is_cpu() {
                return Ok(Matrix::Blocks32(Blocks32 { weights: Arc::new(weights), out, width }));
            }
            let tensor = QTensor::new(QStorage::Cpu(weights), (out, width))?;
            Ok(match dtype {
                GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 => {
                    let table = tensor.dequantize(&self.device)?;
                    Matrix::Dense { transposed: table.t()?, table }
                }
                _ => Matrix::Quantized(Arc::new(tensor)),
            })
        };
        build().map(Some).during("load a matrix")
    }

    fn vector(&self, data: TensorData, kind: TensorType) -> Result<Option<Tensor>> {
        let Some(dtype @ (GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16)) = dtype(kind) else {
            return Ok(None);
        };
        let build = || -> candle_core::Result<Tensor> {
            let len = data.len() / dtype.type_size();
            let numbers = alara_kernels::view(data, dtype).map_err(candle_core::Error::wrap)?;
            QTensor::new(QStorage::Cpu(numbers), len)?.dequantize(&self.device)
        };
        build().map(Some).during("load a vector")
    }

    fn values(&self, vector: &Tensor) -> Result<Vec<f32>> {
        vector.to_vec1().during("read a vector")
    }

    fn kv(&self, layout: Layout, shape: &AttentionShape, kind: KvType) -> Result<Kv> {
        let tokens = layout.blocks * layout.block_tokens;
        let rows = |width| Rows::zeros(tokens, shape.kv_heads, width, kind, &self.device);
        let build = || Ok(Kv { layout, keys: rows(shape.key_width)?, values: rows(shape.value_width)? });
        build().during("make the KV cache")
    }

    fn copy_block(&mut self, kv: &mut Kv, from: BlockId, to: BlockId) -> Result<()> {
        let copy = || {
            kv.keys.copy_block(kv.layout, from, to)?;
            kv.values.copy_block(kv.layout, from, to)
        };
        copy().during("copy a KV block")
    }

    fn embed(&mut self, table: &Matrix, tokens: &[u32]) -> Result<Tensor> {
        let build = || {
            let ids = Tensor::new(tokens, &self.device)?;
            match table {
                Matrix::Quantized(table) => table.embedding(&ids),
                Matrix::Blocks32(table) => {
                    let rows = table.weights.embedding(tokens, table.out, table.width)?;
                    Tensor::from_slice(rows.as_slice::<f32>()?, (tokens.len(), table.width), &self.device)
                }
                Matrix::Dense { table, .. } => table.index_select(&ids, 0),
            }
        };
        build().during("embed")
    }

    fn matmul(&mut self, x: &Tensor, w: &Matrix) -> Result<Tensor> {
        match w {
            Matrix::Quantized(w) => QMatMul::QTensor(w.clone()).forward(x),
            Matrix::Blocks32(w) => x.apply_op1_no_bwd(w),
            Matrix::Dense { transposed, .. } => x.matmul(transposed),
        }
        .during("matmul")
    }

    fn bias(&mut self, x: Tensor, bias: &Tensor) -> Result<Tensor> {
        x.broadcast_add(bias).during("bias")
    }

    fn add(&mut self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        (x + y).during("add")
    }

    fn norm(&mut self, x: &Tensor, weight: &Tensor, epsilon: f32) -> Result<Tensor> {
        let build = || {
            let width = weight.dim(0)?;
            let runs = x.reshape(((), width))?;
            ops::rms_norm(&runs, weight, epsilon)?.reshape(x.shape())
        };
        build().during("norm")
    }

    fn angles(&mut self, cos: Vec<f32>, sin: Vec<f32>, rows: usize) -> Result<(Tensor, Tensor)> {
        let half = cos.len() / rows;
        let build = |numbers| Tensor::from_vec(numbers, (rows, half), &self.device);
        Ok((build(cos).during("angles")?, build(sin).during("angles")?))
    }

    fn rope(&mut self, x: &Tensor, width: usize, angles: &Self::Angles, pairing: Pairing) -> Result<Tensor> {
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
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        step: &Step,
        kv: &mut Kv,
        shape: &AttentionShape,
    ) -> Result<Tensor> {
        let mut build = || {
            let mut out = Vec::with_capacity(step.spans.len());
            let mut row = 0;
            for span in &step.spans {
                append(kv, &k.narrow(0, row, span.rows)?, &v.narrow(0, row, span.rows)?, span)?;
                out.push(attend(&q.narrow(0, row, span.rows)?, kv, span, shape)?);
                row += span.rows;
            }
            Tensor::cat(&out, 0)
        };
        build().during("attention")
    }

    fn gated(&mut self, gate: &Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
        match activation {
            Activation::Silu => gate.silu().and_then(|gate| gate * up),
        }
        .during("gated")
    }

    fn rows(&mut self, x: &Tensor, rows: &[usize]) -> Result<Tensor> {
        let ids: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
        Tensor::new(ids, &self.device).and_then(|ids| x.index_select(&ids, 0)).during("rows")
    }

    fn to_host(&mut self, x: &Tensor) -> Result<Vec<f32>> {
        x.flatten_all().and_then(|x| x.to_vec1()).during("read back")
    }
}

/// Writes the rows of `span` into its blocks, run by run.
fn append(kv: &mut Kv, k: &Tensor, v: &Tensor, span: &Span) -> candle_core::Result<()> {
    let size = kv.layout.block_tokens;
    let mut done = 0;
    while done < span.rows {
        let position = span.past + done;
        let run = (size - position % size).min(span.rows - done);
        let at = span.blocks[position / size].0 as usize * size + position % size;
        kv.keys.write(&k.narrow(0, done, run)?, at)?;
        kv.values.write(&v.narrow(0, done, run)?, at)?;
        done += run;
    }
    Ok(())
}

/// Causal attention of the rows of one span to the span's sequence. `q: [T, H * E]` -> `[T, H * value_width]`
fn attend(q: &Tensor, kv: &Kv, span: &Span, shape: &AttentionShape) -> candle_core::Result<Tensor> {
    let AttentionShape { heads, kv_heads, key_width, value_width, scale } = *shape;
    let (rows, group, len) = (span.rows, heads / kv_heads, span.past + span.rows);
    let keys = kv.keys.read(kv.layout, &span.blocks, len)?;
    let values = kv.values.read(kv.layout, &span.blocks, len)?;
    // The query heads that share a key head stand below each other: [K, G * T, E].
    let q = q.reshape((rows, kv_heads, group, key_width))?.permute((1, 2, 0, 3))?;
    let q = (q.reshape((kv_heads, group * rows, key_width))? * f64::from(scale))?;
    let scores = q.matmul(&keys.transpose(1, 2)?)?;
    let scores = if rows == 1 {
        scores
    } else {
        let mask: Vec<f32> = (0..rows)
            .flat_map(|row| {
                (0..len).map(move |at| if at <= span.past + row { 0.0 } else { f32::NEG_INFINITY })
            })
            .collect();
        let mask = Tensor::from_vec(mask, (1, 1, rows, len), q.device())?;
        let scores = scores.reshape((kv_heads, group, rows, len))?.broadcast_add(&mask)?;
        scores.reshape((kv_heads, group * rows, len))?
    };
    let mixed = ops::softmax_last_dim(&scores)?.matmul(&values.contiguous()?)?;
    let mixed = mixed.reshape((kv_heads, group, rows, value_width))?.permute((2, 0, 1, 3))?;
    mixed.reshape((rows, heads * value_width))
}

/// Whether matrices of this type can be computed with.
pub fn computes(kind: TensorType) -> bool {
    dtype(kind).is_some()
}

/// candle's name of a tensor type; `None` where candle has no kernels.
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
