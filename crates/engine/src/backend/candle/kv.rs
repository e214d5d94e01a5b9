//! The KV cache of one layer, in blocks.

use candle_core::{D, DType, Device, Result, Tensor};
use half::f16;

use crate::backend::{AttentionShape, KvType, Span};
use crate::cache::{BlockId, Layout};

const Q8_BLOCK: usize = 32;

/// Stored quants are 128 above ggml's signed ones: the highest bit is flipped.
const SIGN: u8 = 0x80;

/// The KV cache of one layer.
#[derive(Debug)]
pub struct TensorKv {
    block_tokens: usize,
    keys: Rows,
    /// `None` if values are part of the keys.
    values: Option<Rows>,
}

impl TensorKv {
    /// Allocates room for the tokens of `layout`.
    pub fn zeros(layout: Layout, shape: &AttentionShape, kind: KvType, device: &Device) -> Result<Self> {
        let tokens = layout.blocks * layout.block_tokens;
        let rows = |width| Rows::zeros(tokens, shape.kv_heads, width, kind, device);
        Ok(TensorKv {
            block_tokens: layout.block_tokens,
            keys: rows(shape.key_width)?,
            values: (!shape.values_in_keys).then(|| rows(shape.value_width)).transpose()?,
        })
    }

    /// Writes the rows of `span` into its `blocks`, one block after the other.
    /// `k: [rows, K * E]`, `v: [rows, K * value_width]`
    pub fn append(&self, k: &Tensor, v: Option<&Tensor>, span: &Span, blocks: &[u32]) -> Result<()> {
        let size = self.block_tokens;
        let mut done = 0;
        while done < span.rows {
            let position = span.past + done;
            let group = (size - position % size).min(span.rows - done);
            let at = blocks[position / size] as usize * size + position % size;
            self.keys.write(&k.narrow(0, done, group)?, at)?;
            if let (Some(values), Some(v)) = (&self.values, v) {
                values.write(&v.narrow(0, done, group)?, at)?;
            }
            done += group;
        }
        Ok(())
    }

    /// Keys and values of tokens `start..end` of the sequence in `blocks`, by head:
    /// `[K, tokens, width]`, f32.
    pub fn read(
        &self,
        blocks: &[u32],
        start: usize,
        end: usize,
        shape: &AttentionShape,
    ) -> Result<(Tensor, Tensor)> {
        let slots = Slots { blocks, size: self.block_tokens, start, end };
        let keys = self.keys.read(&slots)?;
        let values = match &self.values {
            Some(values) => values.read(&slots)?,
            None => keys.narrow(D::Minus1, 0, shape.value_width)?,
        };
        Ok((keys, values))
    }

    /// Appends keys, then values, of `rows` rows from `row` on to `out`, in the format of the
    /// native backend.
    pub fn save(&self, row: usize, rows: usize, out: &mut Vec<u8>) -> Result<()> {
        std::iter::once(&self.keys).chain(&self.values).try_for_each(|of| of.save(row, rows, out))
    }

    /// Restores the bytes saved by [`TensorKv::save`].
    pub fn load(&self, row: usize, rows: usize, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        std::iter::once(&self.keys).chain(&self.values).try_for_each(|of| of.load(row, rows, &mut rest))
    }

    /// Copies the rows of block `from` to block `to`.
    pub fn copy_block(&self, from: BlockId, to: BlockId) -> Result<()> {
        let size = self.block_tokens;
        for rows in std::iter::once(&self.keys).chain(&self.values) {
            for tensor in std::iter::once(&rows.codes).chain(&rows.scales) {
                let block = tensor.narrow(0, from.0 as usize * size, size)?.force_contiguous()?;
                tensor.slice_set(&block, 0, to.0 as usize * size)?;
            }
        }
        Ok(())
    }
}

/// Views for kernels.
#[cfg(feature = "cuda")]
impl TensorKv {
    /// Tokens per block.
    pub fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    /// The keys, and the values unless they are part of the keys.
    pub fn caches(&self) -> (alara_cuda::tensors::Cache<'_>, Option<alara_cuda::tensors::Cache<'_>>) {
        fn cache(rows: &Rows) -> alara_cuda::tensors::Cache<'_> {
            alara_cuda::tensors::Cache { quants: &rows.codes, scales: rows.scales.as_ref() }
        }
        (cache(&self.keys), self.values.as_ref().map(cache))
    }
}

/// Rows of numbers `[tokens, heads * width]` in the cache's number format.
#[derive(Debug)]
struct Rows {
    codes: Tensor,
    /// One scale per 32 quants; only for [`KvType::Q8_0`].
    scales: Option<Tensor>,
    heads: usize,
    width: usize,
}

impl Rows {
    fn zeros(tokens: usize, heads: usize, width: usize, kind: KvType, device: &Device) -> Result<Self> {
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
    fn write(&self, rows: &Tensor, at: usize) -> Result<()> {
        let Some(scales) = &self.scales else {
            return self.codes.slice_set(&rows.to_dtype(self.codes.dtype())?.contiguous()?, 0, at);
        };
        let (n, row) = rows.dims2()?;
        let blocks = rows.reshape((n, row / Q8_BLOCK, Q8_BLOCK))?;
        // Like ggml's q8_0: the scale is stored in f16, but quantization uses the f32 scale.
        let scale = (blocks.abs()?.max_keepdim(D::Minus1)? / 127.0)?;
        let codes = (blocks.broadcast_div(&scale.maximum(f32::MIN_POSITIVE)?)?.round()? + 128.0)?;
        self.codes.slice_set(&codes.to_dtype(DType::U8)?.reshape((n, row))?, 0, at)?;
        scales.slice_set(&scale.to_dtype(DType::F16)?.reshape((n, row / Q8_BLOCK))?, 0, at)
    }

    /// Writes little-endian numbers; for q8_0 first all scales, then all quants.
    fn save(&self, at: usize, rows: usize, out: &mut Vec<u8>) -> Result<()> {
        for tensor in self.scales.iter().chain([&self.codes]) {
            // Copy these rows first: reading a view back would transfer the whole tensor.
            let part = tensor.narrow(0, at, rows)?.force_contiguous()?.flatten_all()?;
            match part.dtype() {
                DType::F32 => out.extend(part.to_vec1::<f32>()?.iter().flat_map(|n| n.to_le_bytes())),
                DType::F16 => out.extend(part.to_vec1::<f16>()?.iter().flat_map(|n| n.to_le_bytes())),
                _ => out.extend(part.to_vec1::<u8>()?.iter().map(|code| code ^ SIGN)),
            }
        }
        Ok(())
    }

    /// Restores the bytes of [`Rows::save`] from the front of `bytes`.
    fn load(&self, at: usize, rows: usize, bytes: &mut &[u8]) -> Result<()> {
        for tensor in self.scales.iter().chain([&self.codes]) {
            let (shape, device) = ((rows, tensor.dim(1)?), tensor.device());
            let len = rows * shape.1 * tensor.dtype().size_in_bytes();
            let Some((own, rest)) = bytes.split_at_checked(len) else { candle_core::bail!("too few bytes") };
            *bytes = rest;
            let part = match tensor.dtype() {
                DType::F32 => {
                    let numbers = own.as_chunks().0.iter().map(|n| f32::from_le_bytes(*n)).collect();
                    Tensor::from_vec::<_, f32>(numbers, shape, device)?
                }
                DType::F16 => {
                    let numbers = own.as_chunks().0.iter().map(|n| f16::from_le_bytes(*n)).collect();
                    Tensor::from_vec::<_, f16>(numbers, shape, device)?
                }
                _ => {
                    Tensor::from_vec(own.iter().map(|code| code ^ SIGN).collect::<Vec<u8>>(), shape, device)?
                }
            };
            tensor.slice_set(&part, 0, at)?;
        }
        Ok(())
    }

    /// The rows by head: `[heads, tokens, width]`, f32.
    fn read(&self, slots: &Slots) -> Result<Tensor> {
        let codes = slots.gather(&self.codes)?.to_dtype(DType::F32)?;
        let rows = match &self.scales {
            None => codes,
            Some(scales) => {
                let scales = slots.gather(scales)?.to_dtype(DType::F32)?.unsqueeze(D::Minus1)?;
                let codes = (codes.reshape((slots.end - slots.start, (), Q8_BLOCK))? - 128.0)?;
                codes.broadcast_mul(&scales)?
            }
        };
        rows.reshape((slots.end - slots.start, self.heads, self.width))?.transpose(0, 1)
    }
}

/// The locations of tokens `start..end` of a sequence.
struct Slots<'a> {
    blocks: &'a [u32],
    /// Tokens per block.
    size: usize,
    start: usize,
    end: usize,
}

impl Slots<'_> {
    /// The rows in `pool`; a view if the blocks are contiguous.
    /// Ignores blocks before that of the first token.
    fn gather(&self, pool: &Tensor) -> Result<Tensor> {
        let blocks = &self.blocks[self.start / self.size..self.end.div_ceil(self.size)];
        let pieces: Vec<Tensor> = blocks
            .chunk_by(|a, b| a + 1 == *b)
            .map(|group| pool.narrow(0, group[0] as usize * self.size, group.len() * self.size))
            .collect::<Result<_>>()?;
        Tensor::cat(&pieces, 0)?.narrow(0, self.start % self.size, self.end - self.start)
    }
}
