//! Converts candle's tensors on a CUDA device to this crate's arrays.
#![allow(unsafe_code)]

use std::sync::Arc;

use candle_core::cuda_backend::CudaDType;
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, DevicePtr};
use candle_core::{DType, Result, Shape, Storage, Tensor, bail};
use half::f16;

use crate::gpu::Gpu;
use crate::{Array, Rows};

/// Converts this crate's errors to candle's.
pub(crate) fn wrapped(error: crate::Error) -> candle_core::Error {
    candle_core::Error::msg(error)
}

/// The kernels on the tensor's device.
///
/// # Errors
/// If that isn't a CUDA device, or its driver rejects the kernels.
pub fn gpu(tensor: &Tensor) -> Result<Arc<Gpu>> {
    Gpu::of(tensor.device().as_cuda_device()?).map_err(wrapped)
}

/// The memory of a contiguous tensor.
///
/// # Errors
/// If it is not contiguous, of another type than f32, f16, u8 or u32, or not on a CUDA device.
pub fn array(tensor: &Tensor) -> Result<Array> {
    let Some((start, end)) = tensor.layout().contiguous_offsets() else {
        bail!("a tensor is not contiguous")
    };
    memory(tensor, start, end)
}

/// Rows of numbers, each of them contiguous.
pub(crate) fn rows(tensor: &Tensor) -> Result<Rows> {
    let (rows, width) = tensor.dims2()?;
    let step = match tensor.stride() {
        _ if tensor.is_contiguous() => width,
        [step, 1] => *step,
        strides => bail!("rows with strides of {strides:?}"),
    };
    let start = tensor.layout().start_offset();
    let numbers = memory(tensor, start, start + rows.saturating_sub(1) * step + width)?;
    Ok(Rows { numbers, width, step })
}

/// The numbers `start..end` of a tensor's memory.
fn memory(tensor: &Tensor, start: usize, end: usize) -> Result<Array> {
    fn address<T: CudaDType>(slice: &CudaSlice<T>) -> u64 {
        // All work is in one stream, so the guard isn't needed.
        slice.device_ptr(slice.stream()).0
    }
    let (storage, _) = tensor.storage_and_layout();
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

/// As [`array`]; an empty array for `None`.
pub(crate) fn maybe(tensor: Option<&Tensor>) -> Result<Array> {
    tensor.map_or(Ok(Array::default()), array)
}

/// A float tensor that a kernel is about to write in full.
pub(crate) fn to_be_written(shape: impl Into<Shape>, like: &Tensor) -> Result<Tensor> {
    of_type(DType::F32, shape, like)
}

/// An integer tensor that a kernel is about to write in full.
pub(crate) fn numbers_to_be_written(shape: impl Into<Shape>, like: &Tensor) -> Result<Tensor> {
    of_type(DType::U32, shape, like)
}

/// A tensor of this type that a kernel is about to write in full.
pub(crate) fn of_type(kind: DType, shape: impl Into<Shape>, like: &Tensor) -> Result<Tensor> {
    // SAFETY: the kernel writes every number before any is read, in the same stream.
    unsafe { Tensor::empty(shape, kind, like.device()) }
}
