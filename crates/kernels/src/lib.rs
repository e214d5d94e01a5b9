//! CPU kernels for quantized blocks.
//! Knows nothing of models, files or tokens.
//! Only this crate, `alara-cuda` and the files that map a model and view its weights use `unsafe`.
//!
//! Every kernel is row invariant, bit for bit (except [`DeltaForm::Chunked`]).
//! The result of a row depends only on that row, never on the other rows or threads in the call,
//! nor on the instruction set.
//! Sums of integers are exact.
//! Sums of floats use lanes of fused multiply-adds in one fixed order, closed by one fixed tree.
//! There are eight lanes in products with weights, sixteen elsewhere.
//!
//! Every kernel has a scalar twin, and property tests require the same bits of both.

mod activations;
mod aligned;
mod attend;
mod conv;
mod cpu;
mod delta;
mod dense;
mod elementwise;
mod exp;
mod format;
mod gate;
mod group_norm;
mod isa;
mod kv;
mod lanes;
mod limits;
mod matmul;
mod norm;
mod prefetch;
mod quant;
mod rope;
mod sample;
mod scan;
mod short_conv;
#[cfg(test)]
mod testing;
mod thread_pool;
mod wide;

pub use activations::Activations;
pub use aligned::Aligned;
pub use attend::{AttentionShape, AttentionSpan, attend};
pub use conv::conv;
pub use cpu::Cpu;
pub use delta::{DeltaForm, DeltaShape, delta};
pub use elementwise::{add, add_row, add_rows, scale_rows, weigh_rows};
pub use format::Format;
pub use gate::{Gate, gated, gelu_erf, relu_squared};
pub use group_norm::group_norm;
pub use isa::Isa;
pub use kv::{KvFormat, KvRows};
pub use limits::{integer_peak, read_bandwidth};
pub use matmul::{Kernel, PlanEntry, Product, WeightMatrix, kernel_plan, matmul};
pub use norm::{centre, rms_norm};
pub use quant::dequantize;
pub use rope::rope;
pub use sample::{TERMS, argmax, softmax_terms};
pub use scan::{ScanShape, scan};
pub use short_conv::short_conv;
pub use thread_pool::ThreadPool;
