//! candle's tensors on a CUDA device as this crate's arrays.
#![allow(unsafe_code)]

use std::sync::Arc;

use candle_core::cuda_backend::CudaDType;
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, DevicePtr};
use candle_core::{DType, Result, Shape, Storage, Tensor, bail};
use half::f16;

use crate::gpu::Gpu;
use crate::{Array, Rows};

/// candle's form of this crate's errors.
pub(crate) fn wrapped(error: crate::Error) -> candle_core::Error {
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
    let Some((start, end)) = tensor.layout().contiguous_offsets() else {
        bail!("a tensor is not contiguous")
    };
    memory(tensor, start, end)
}

/// Rows of numbers, of which each is contiguous.
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
        // All work is in one stream: nobody needs to wait for the guard.
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

/// As [`array`]; of none an empty one.
pub(crate) fn maybe(tensor: Option<&Tensor>) -> Result<Array> {
    tensor.map_or(Ok(Array::default()), array)
}

/// A tensor of floats that a kernel is about to write, all of it.
pub(crate) fn to_be_written(shape: impl Into<Shape>, like: &Tensor) -> Result<Tensor> {
    of_type(DType::F32, shape, like)
}

/// The same of whole numbers.
pub(crate) fn numbers_to_be_written(shape: impl Into<Shape>, like: &Tensor) -> Result<Tensor> {
    of_type(DType::U32, shape, like)
}

/// A tensor of this type that a kernel is about to write.
pub(crate) fn of_type(kind: DType, shape: impl Into<Shape>, like: &Tensor) -> Result<Tensor> {
    // SAFETY: the kernel that it is made for writes every number before anybody reads one, in the
    // same stream.
    unsafe { Tensor::empty(shape, kind, like.device()) }
}
