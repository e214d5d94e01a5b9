//! Uses quantized weights in place, in a mapped file or in the binary, without a copy.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Deref;

use candle_core::quantized::k_quants::{
    self, BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K,
    BlockQ8_0, BlockQ8_1, BlockQ8K, GgmlType,
};
use candle_core::quantized::{GgmlDType, QuantizedType};
use candle_core::{CpuStorage, Result, bail};
use half::{bf16, f16};

/// Why bytes can't be viewed as an array of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewError {
    /// Length of the bytes.
    pub len: usize,
    /// The size of one block in bytes.
    pub block_bytes: usize,
}

impl std::fmt::Display for ViewError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes are no whole number of {}-byte blocks", self.len, self.block_bytes)
    }
}

impl std::error::Error for ViewError {}

/// Views `bytes` as an array of blocks of `dtype`.
/// Copies them only if they are misaligned.
///
/// # Errors
/// If the length is not a multiple of the block size.
pub fn view<O>(bytes: O, dtype: GgmlDType) -> std::result::Result<Box<dyn QuantizedType>, ViewError>
where
    O: Deref<Target = [u8]> + Send + Sync + 'static,
{
    let block_bytes = dtype.type_size();
    if !bytes.len().is_multiple_of(block_bytes) {
        return Err(ViewError { len: bytes.len(), block_bytes });
    }
    Ok(match dtype {
        GgmlDType::F32 => boxed::<f32, O>(bytes),
        GgmlDType::F16 => boxed::<f16, O>(bytes),
        GgmlDType::BF16 => boxed::<bf16, O>(bytes),
        GgmlDType::Q4_0 => boxed::<BlockQ4_0, O>(bytes),
        GgmlDType::Q4_1 => boxed::<BlockQ4_1, O>(bytes),
        GgmlDType::Q5_0 => boxed::<BlockQ5_0, O>(bytes),
        GgmlDType::Q5_1 => boxed::<BlockQ5_1, O>(bytes),
        GgmlDType::Q8_0 => boxed::<BlockQ8_0, O>(bytes),
        GgmlDType::Q8_1 => boxed::<BlockQ8_1, O>(bytes),
        GgmlDType::Q2K => boxed::<BlockQ2K, O>(bytes),
        GgmlDType::Q3K => boxed::<BlockQ3K, O>(bytes),
        GgmlDType::Q4K => boxed::<BlockQ4K, O>(bytes),
        GgmlDType::Q5K => boxed::<BlockQ5K, O>(bytes),
        GgmlDType::Q6K => boxed::<BlockQ6K, O>(bytes),
        GgmlDType::Q8K => boxed::<BlockQ8K, O>(bytes),
    })
}

fn boxed<T, O>(bytes: O) -> Box<dyn QuantizedType>
where
    T: Plain,
    O: Deref<Target = [u8]> + Send + Sync + 'static,
{
    if bytes.as_ptr().cast::<T>().is_aligned() {
        Box::new(View::<T, O> { bytes, block: PhantomData })
    } else {
        Box::new(View::<T, Words> { bytes: Words::copy(&bytes), block: PhantomData })
    }
}

/// A block type for which every bit pattern is valid.
///
/// # Safety
/// The type consists of integers and floats only, without padding.
unsafe trait Plain: GgmlType + Send + Sync + 'static {}

macro_rules! plain {
    ($($block:ty),*) => { $(
        // SAFETY: numbers, and `repr(C)` structs of a few f16 or f32 scales and byte arrays whose
        // sizes leave no padding.
        unsafe impl Plain for $block {}
    )* };
}
plain!(f32, f16, bf16, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, BlockQ8_1);
plain!(BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8K);

/// Bytes aligned for every block type.
struct Words {
    words: Vec<u64>,
    len: usize,
}

impl Words {
    fn copy(bytes: &[u8]) -> Self {
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        });
        Words { words: words.collect(), len: bytes.len() }
    }
}

impl Deref for Words {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `words` holds at least `len` bytes, and any byte is a u8.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }
}

struct View<T, O> {
    bytes: O,
    block: PhantomData<T>,
}

impl<T: Plain, O: Deref<Target = [u8]>> View<T, O> {
    fn blocks(&self) -> &[T] {
        // SAFETY: `Plain`: every bit pattern is a `T`.
        // Unaligned parts end up in the outer slices.
        let (before, blocks, after) = unsafe { self.bytes.align_to::<T>() };
        debug_assert!(before.is_empty() && after.is_empty());
        blocks
    }
}

impl<T: Plain, O: Deref<Target = [u8]> + Send + Sync> QuantizedType for View<T, O> {
    fn dtype(&self) -> GgmlDType {
        T::DTYPE
    }

    fn matmul_t(&self, mkn: (usize, usize, usize), lhs: &[f32], dst: &mut [f32]) -> Result<()> {
        k_quants::matmul(mkn, lhs, self.blocks(), dst)
    }

    fn matmul_t_f16(&self, mkn: (usize, usize, usize), lhs: &[f16], dst: &mut [f16]) -> Result<()> {
        k_quants::matmul_f16(mkn, lhs, self.blocks(), dst)
    }

    fn embedding(&self, ids: &[u32], rows: usize, hidden: usize) -> Result<CpuStorage> {
        let row_blocks = hidden / T::BLCK_SIZE;
        let blocks = self.blocks();
        if blocks.len() != rows * row_blocks {
            bail!("{} blocks where {rows} rows of {row_blocks} were expected", blocks.len())
        }
        let mut out = vec![0f32; ids.len() * hidden];
        for (&id, row) in ids.iter().zip(out.chunks_mut(hidden)) {
            let start = id as usize * row_blocks;
            let Some(source) = blocks.get(start..start + row_blocks) else {
                bail!("embedding id {id} is out of range for {rows} rows")
            };
            T::to_float(source, row);
        }
        Ok(CpuStorage::F32(out))
    }

    fn dequantize(&self, elem_count: usize) -> Result<CpuStorage> {
        let mut out = vec![0f32; elem_count];
        T::to_float(self.blocks(), &mut out);
        Ok(CpuStorage::F32(out))
    }

    fn storage_size_in_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    fn block_size(&self) -> usize {
        T::BLCK_SIZE
    }

    fn from_float(&mut self, _: &[f32]) {
        unreachable!("a view is read only");
    }

    fn from_float_imatrix(&mut self, _: &[f32], _: &[f32], _: usize) {
        unreachable!("a view is read only");
    }

    fn size(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::quantized::{QStorage, QTensor};
    use candle_core::{Device, Tensor};

    /// A view of bytes as `dtype` gives the same results as candle's own copy, at any address.
    fn check(dtype: GgmlDType, shift: usize) {
        let weights = Tensor::randn(0f32, 1f32, (8, 256), &Device::Cpu).unwrap();
        let owned = QTensor::quantize(&weights, dtype).unwrap();
        let mut bytes = vec![0; shift];
        bytes.extend_from_slice(&owned.data().unwrap());
        let viewed =
            QTensor::new(QStorage::Cpu(view(Shifted(bytes, shift), dtype).unwrap()), (8, 256)).unwrap();
        let dense = |tensor: &QTensor| -> Vec<f32> {
            tensor.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap()
        };
        assert_eq!(dense(&viewed), dense(&owned), "{dtype:?} shifted by {shift}");
        let ids = Tensor::new(&[7u32, 0], &Device::Cpu).unwrap();
        let rows = |tensor: &QTensor| tensor.embedding(&ids).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(rows(&viewed), rows(&owned), "{dtype:?} shifted by {shift}");
        assert!(viewed.embedding(&Tensor::new(&[8u32], &Device::Cpu).unwrap()).is_err());
    }

    struct Shifted(Vec<u8>, usize);

    impl Deref for Shifted {
        type Target = [u8];

        fn deref(&self) -> &[u8] {
            &self.0[self.1..]
        }
    }

    #[test]
    fn a_view_equals_a_copy() {
        use GgmlDType::*;
        for dtype in [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K] {
            for shift in [0, 1, 2] {
                check(dtype, shift);
            }
        }
    }

    #[test]
    fn half_a_block_is_refused() {
        let error = view(vec![0u8; 35], GgmlDType::Q8_0).err();
        assert_eq!(error, Some(ViewError { len: 35, block_bytes: 34 }));
    }
}
