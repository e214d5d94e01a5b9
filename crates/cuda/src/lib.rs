//! CUDA kernels and their launches.
//! Knows nothing of models, files or tokens.
//!
//! The kernels are CUDA C++ in one folder, `kernels/`.
//! Launch parameters are computed here, in plain Rust over a [`Device`].
//! One device is a GPU (`Gpu`, feature `cuda`).
//! The other is [`twin`]: the same kernel source, compiled as C++ and run thread by thread on the
//! CPU.
//! With it, tests check indices, arithmetic and launches without a GPU.
//!
//! No launch asks for more than 48 KiB of shared memory: older GPUs have no more.

mod attend;
#[cfg(test)]
#[cfg(twin)]
mod attend_tests;
mod delta;
mod experts;
mod fused;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(feature = "cuda")]
mod interop;
mod launch;
#[cfg(test)]
mod launch_tests;
mod matmul;
#[cfg(test)]
#[cfg(twin)]
mod matmul_tests;
#[cfg(test)]
#[cfg(twin)]
mod other_tests;
mod params;
#[cfg(feature = "cuda")]
mod quantized;
mod sample;
#[cfg(feature = "cuda")]
pub mod tensors;
#[cfg(test)]
mod testing;
#[cfg(twin)]
pub mod twin;

pub use alara_kernels::{AttentionShape, AttentionSpan, DeltaForm, DeltaShape, Format, Gate, KvFormat};
pub use attend::{AttendPlan, AttendShape, KvArrays, Tables, append, attend};
pub use delta::{CHUNK, DeltaInput, DeltaSpan, DeltaState, delta};
pub use experts::{Router, Score, bucket, max_tiles, route, weigh};
pub use fused::{BLOCK, Heads, Q8_1_BYTES, Rows, add_norm, gated, prepare, quantize};
#[cfg(feature = "cuda")]
pub use gpu::{Gpu, OnGpu};
pub use launch::{Device, GRID, Launch, Memory, SHARED, WARP};
pub use matmul::{Grouped, Operands, SMALL_BATCH, Weights, matmul, multiplies, widen};
pub use params::{Array, Params};
pub use sample::{MAX_TOP_K, candidates};

/// An error of a device.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A launch beyond the limits of devices, or one that a device rejected.
    #[error("launch of {kernel}: {message}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// The reason.
        message: String,
    },
    /// Memory could not be allocated.
    #[error("{bytes} bytes on the device: {message}")]
    Memory {
        /// Number of bytes requested.
        bytes: usize,
        /// The reason.
        message: String,
    },
    /// There is no kernel for a shape.
    #[error("{operation}: {message}")]
    Shape {
        /// The operation.
        operation: &'static str,
        /// The unsupported property of the shape.
        message: String,
    },
}

/// [`std::result::Result`] with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
