//! Activations quantized for candle's small-batch kernels (Q8_1), and their products.
#![allow(unsafe_code)]

use std::ffi::c_void;

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Result, Tensor, TensorId};
use candle_kernels::ffi;

use crate::Array;
use crate::interop::{array, gpu, maybe, of_type, to_be_written, wrapped};

/// The latest quantized activations.
/// They are quantized once for all matrices, if possible by the kernel that computed them.
#[derive(Debug, Default)]
pub struct QuantizedRows {
    /// The tensor that they belong to.
    of: Option<TensorId>,
    /// Grown on demand.
    /// All work is in one stream, so later writes come after earlier reads.
    memory: Option<Tensor>,
}

impl QuantizedRows {
    /// The most rows supported by candle's small-batch kernels.
    const MAX_ROWS: usize = 8;

    /// Memory for the quants of activations about to be computed, `[rows, width]`; empty if they
    /// won't be used.
    pub(crate) fn alloc(&mut self, rows: usize, width: usize, like: &Tensor) -> Result<Array> {
        self.of = None;
        if rows > Self::MAX_ROWS || !width.is_multiple_of(crate::BLOCK) {
            return Ok(Array::default());
        }
        let blocks = rows * width / crate::BLOCK;
        let there =
            self.memory.as_ref().is_some_and(|memory| memory.elem_count() >= blocks * crate::Q8_1_BYTES);
        if !there {
            self.memory = Some(of_type(DType::U8, blocks * crate::Q8_1_BYTES, like)?);
        }
        Ok(Array { len: blocks as u64, ..maybe(self.memory.as_ref())? })
    }

    /// Records which tensor's quants were written to that memory, unless it is empty.
    pub(crate) fn filled(&mut self, quants: Array, of: &Tensor) {
        if quants.len > 0 {
            self.of = Some(of.id());
        }
    }

    /// `x wᵀ`.
    /// `x: [T, width]`, contiguous.
    /// `None` if there are too many rows, or no kernel for the weights.
    ///
    /// # Errors
    /// If the device fails.
    pub fn product(&mut self, x: &Tensor, w: &QTensor) -> Result<Option<Tensor>> {
        let ((out, width), (rows, x_width)) = (w.shape().dims2()?, x.dims2()?);
        let Some(launch) = by_quants(w.dtype()) else { return Ok(None) };
        let blocks = width / crate::BLOCK;
        if rows == 0 || rows > Self::MAX_ROWS || !width.is_multiple_of(crate::BLOCK) || x_width != width {
            return Ok(None);
        }
        if self.of != Some(x.id()) {
            let quants = self.alloc(rows, width, x)?;
            crate::quantize(&*gpu(x)?, array(x)?, width, quants).map_err(wrapped)?;
            self.filled(quants, x);
        }
        let quants = maybe(self.memory.as_ref())?.address;
        let y = to_be_written((rows, out), x)?;
        let stream = x.device().as_cuda_device()?.cuda_stream();
        // SAFETY: weights, quants and `y` are memory of the device, as large as the parameters say.
        // The stream is the one in which all of it is used and freed.
        unsafe {
            launch(
                w.device_ptr()?.cast(),
                quants as *const c_void,
                array(&y)?.address as *mut c_void,
                width as i32,
                out as i32,
                blocks as i32,
                out as i32,
                rows as i32,
                stream.cu_stream().cast(),
            );
        }
        Ok(Some(y))
    }
}

/// A candle kernel with these arguments: weights, quants and results; numbers and rows of weights;
/// stride of quants, in blocks, and of results;
/// rows; stream.
type ByQuants =
    unsafe extern "C" fn(*const c_void, *const c_void, *mut c_void, i32, i32, i32, i32, i32, *mut c_void);

/// candle's kernel for a weight type.
fn by_quants(kind: GgmlDType) -> Option<ByQuants> {
    Some(match kind {
        GgmlDType::Q4_0 => ffi::launch_mmvq_gguf_q4_0_f32_plain,
        GgmlDType::Q4_1 => ffi::launch_mmvq_gguf_q4_1_f32_plain,
        GgmlDType::Q5_0 => ffi::launch_mmvq_gguf_q5_0_f32_plain,
        GgmlDType::Q5_1 => ffi::launch_mmvq_gguf_q5_1_f32_plain,
        GgmlDType::Q8_0 => ffi::launch_mmvq_gguf_q8_0_f32_plain,
        GgmlDType::Q2K => ffi::launch_mmvq_gguf_q2_k_f32_plain,
        GgmlDType::Q3K => ffi::launch_mmvq_gguf_q3_k_f32_plain,
        GgmlDType::Q4K => ffi::launch_mmvq_gguf_q4_k_f32_plain,
        GgmlDType::Q5K => ffi::launch_mmvq_gguf_q5_k_f32_plain,
        GgmlDType::Q6K => ffi::launch_mmvq_gguf_q6_k_f32_plain,
        _ => return None,
    })
}
