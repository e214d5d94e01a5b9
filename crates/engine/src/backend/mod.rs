//! The ops that the decoder is written in, and their implementations.
//!
//! A backend owns memory and arithmetic: it knows shapes and blocks, but never architectures, the
//! text of tokens or requests.
//! Activations are a type of the backend; `x: [T, D]` means T rows of D f32 numbers.

// Some of it is for models split over two backends; without candle there is only one.
#![cfg_attr(not(feature = "candle"), allow(dead_code))]

#[cfg(feature = "candle")]
pub mod candle;
pub mod native;
mod operands;
mod profile;
mod routing;
#[cfg(feature = "candle")]
pub mod split;
mod step;
mod threads;

use std::time::Duration;

pub use alara_kernels::{AttentionShape, DeltaShape, Isa, ScanShape};
pub use alara_kernels::{Kernel, PlanEntry, kernel_plan};
pub(crate) use operands::try_map;
pub use operands::{
    DeltaInput, DeltaWeights, ExpertStacks, Heads, HostNumbers, Queries, ScanInput, ScanWeights, StackShape,
    TopK,
};
pub use profile::{Profile, Spent, limits};
pub use routing::{Groups, RoutedExperts, Routing};
pub use step::{KvType, Section, Span, StateShape, Step};
pub use threads::default_threads;

use alara_text::gguf::{TensorData, TensorType};

use crate::Result;
use crate::architecture::{Activation, Pairing};
use crate::cache::{BlockId, Layout, SlotId};

/// The kernels' name of a tensor type; `None` if there are no kernels for it.
fn format(kind: TensorType) -> Option<alara_kernels::Format> {
    let name = kind.name();
    alara_kernels::Format::ALL.into_iter().find(|format| format.name() == name)
}

/// Reads all numbers of `data`; `None` if there are no kernels for `kind`.
fn numbers(data: &[u8], kind: TensorType) -> Option<Vec<f32>> {
    let format = format(kind)?;
    let mut numbers = vec![0.0; data.len() / format.block_bytes() * format.block_len()];
    alara_kernels::dequantize(format, data, &mut numbers);
    Some(numbers)
}

/// The kernels' name of an activation.
impl From<Activation> for alara_kernels::Gate {
    fn from(activation: Activation) -> Self {
        match activation {
            Activation::Silu => alara_kernels::Gate::Silu,
            Activation::GeluTanh => alara_kernels::Gate::GeluTanh,
            Activation::Sigmoid => alara_kernels::Gate::Sigmoid,
            Activation::ClampedSwiglu => alara_kernels::Gate::ClampedSwiglu,
        }
    }
}

fn not_saved() -> crate::Error {
    let message = "this backend keeps nothing elsewhere; the native one does".to_owned();
    crate::Error::Backend { operation: "keep the prefix cache on disk".to_owned(), message }
}

/// The ops of a model.
/// Each takes and returns activations; wrong shapes are errors of the caller.
pub trait Backend: std::fmt::Debug {
    /// Activations: rows of f32.
    type Array: std::fmt::Debug;
    /// A weight matrix `[out, in]`, quantized or not.
    type Matrix: std::fmt::Debug;
    /// Weight matrices of equal shape: experts, or the heads of a layer.
    type Stack: std::fmt::Debug;
    /// Numbers in f32: a norm's weights, a bias.
    type Vector: std::fmt::Debug;
    /// Cosines and sines of a step's positions.
    type Angles: std::fmt::Debug;
    /// The KV cache of one layer, in blocks.
    type Kv: std::fmt::Debug;
    /// The recurrent state of one layer, in slots.
    type Recurrent: std::fmt::Debug;

    /// Whether a row's result is bitwise independent of the other rows in its step.
    /// If so, a token computed together with others, like a draft token, gets the same logits as
    /// alone.
    fn is_row_invariant(&self) -> bool {
        false
    }

    /// Announces the section of the model that is loaded, with its caches, from now on.
    /// Only a split backend needs this.
    fn begin(&self, section: Section) {
        let _ = section;
    }

    /// Whether matrices with the same input should be joined: when a product costs a launch, and
    /// weights are copied anyway.
    fn joins_matrices(&self) -> bool {
        false
    }

    /// Reads `data` as a matrix of `out` rows of `width` numbers, without copying it if possible.
    /// `None` if the backend doesn't support `kind`.
    ///
    /// # Errors
    /// If the backend can't allocate it.
    fn matrix(
        &self,
        data: TensorData,
        kind: TensorType,
        out: usize,
        width: usize,
    ) -> Result<Option<Self::Matrix>>;

    /// Reads `data` as a stack, like [`Backend::matrix`].
    ///
    /// # Errors
    /// If the backend can't allocate it.
    fn stack(&self, data: TensorData, kind: TensorType, shape: StackShape) -> Result<Option<Self::Stack>>;

    /// Reads `data` as a vector.
    /// `None` if the backend doesn't support `kind`.
    ///
    /// # Errors
    /// If the backend can't allocate it.
    fn vector(&self, data: TensorData, kind: TensorType) -> Result<Option<Self::Vector>>;

    /// Copies the numbers of `vector` to the host.
    ///
    /// # Errors
    /// If they can't be read back.
    fn values(&self, vector: &Self::Vector) -> Result<Vec<f32>>;

    /// Allocates the KV cache of one layer.
    ///
    /// # Errors
    /// If there isn't enough memory.
    fn kv(&self, layout: Layout, shape: &AttentionShape, kind: KvType) -> Result<Self::Kv>;

    /// Allocates the recurrent state of one layer.
    ///
    /// # Errors
    /// If there isn't enough memory.
    fn state(&self, slots: usize, shape: &StateShape) -> Result<Self::Recurrent>;

    /// Copies the rows of block `from` to block `to`.
    ///
    /// # Errors
    /// If the backend fails.
    fn copy_block(&mut self, kv: &mut Self::Kv, from: BlockId, to: BlockId) -> Result<()>;

    /// Copies the recurrent state of slot `from` to slot `to`.
    ///
    /// # Errors
    /// If the backend fails.
    fn copy_state(&mut self, state: &mut Self::Recurrent, from: SlotId, to: SlotId) -> Result<()>;

    /// Time that stateful ops spent on copies for spans' `saves` since the last call; zero if it
    /// isn't measured.
    fn snapshot_time(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Appends the keys and values of `rows` tokens, from row `row` of the blocks on, to `out`, for
    /// [`Backend::load_rows`].
    ///
    /// # Errors
    /// If the backend doesn't support it; the default, also for the three ops that follow.
    fn save_rows(&self, kv: &Self::Kv, row: usize, rows: usize, out: &mut Vec<u8>) -> Result<()> {
        let _ = (kv, row, rows, out);
        Err(not_saved())
    }

    /// Restores the `rows` rows saved by [`Backend::save_rows`], at any position.
    ///
    /// # Errors
    /// As [`Backend::save_rows`].
    fn load_rows(&mut self, kv: &mut Self::Kv, row: usize, rows: usize, bytes: &[u8]) -> Result<()> {
        let _ = (kv, row, rows, bytes);
        Err(not_saved())
    }

    /// Appends the recurrent state of `slot` to `out`, for [`Backend::load_state`].
    ///
    /// # Errors
    /// As [`Backend::save_rows`].
    fn save_state(&self, state: &Self::Recurrent, slot: SlotId, out: &mut Vec<u8>) -> Result<()> {
        let _ = (state, slot, out);
        Err(not_saved())
    }

    /// Restores the state saved by [`Backend::save_state`], to any slot.
    ///
    /// # Errors
    /// As [`Backend::save_rows`].
    fn load_state(&mut self, state: &mut Self::Recurrent, slot: SlotId, bytes: &[u8]) -> Result<()> {
        let _ = (state, slot, bytes);
        Err(not_saved())
    }

    /// Looks up the rows of `table` for `tokens`.
    /// `[T, D]`
    ///
    /// # Errors
    /// If the backend fails; this applies to all ops below.
    fn embed(&mut self, table: &Self::Matrix, tokens: &[u32]) -> Result<Self::Array>;

    /// `x wᵀ` for several `w` at once.
    /// `x: [T, in]`, `w: [out, in]` -> `[T, out]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn matmuls<const N: usize>(&mut self, x: &Self::Array, w: [&Self::Matrix; N])
    -> Result<[Self::Array; N]>;

    /// `x wᵀ`.
    /// `x: [T, in]`, `w: [out, in]` -> `[T, out]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn matmul(&mut self, x: &Self::Array, w: &Self::Matrix) -> Result<Self::Array> {
        let [y] = self.matmuls(x, [w])?;
        Ok(y)
    }

    /// Multiplies each row's parts by the corresponding matrices of the stack.
    /// `x: [T, count * in]`, `w: [count, out, in]` -> `[T, count * out]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn stacked(&mut self, x: &Self::Array, w: &Self::Stack) -> Result<Self::Array>;

    /// Applies to every row the experts chosen by its logits: the sum of
    /// `weight * down(activation(gate(x), up(x)))`, the best expert first.
    /// `x: [T, D]`, `logits: [T, experts]` -> `[T, D]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn experts(
        &mut self,
        x: &Self::Array,
        logits: &Self::Array,
        routing: &Routing<&Self::Vector>,
        stacks: &ExpertStacks<&Self::Stack, &Self::Vector>,
    ) -> Result<Self::Array>;

    /// Adds `bias` to every row.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn bias(&mut self, x: Self::Array, bias: &Self::Vector) -> Result<Self::Array>;

    /// `x + y`.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn add(&mut self, x: Self::Array, y: &Self::Array) -> Result<Self::Array>;

    /// Multiplies every row by its factor, or all rows by a single one.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn scale(&mut self, x: Self::Array, factors: &[f32]) -> Result<Self::Array>;

    /// Splits every group of `group` numbers after the first `at`.
    /// `x: [T, n * group]` -> `[T, n * at]`, `[T, n * (group - at)]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn split(&mut self, x: &Self::Array, group: usize, at: usize) -> Result<(Self::Array, Self::Array)>;

    /// The inverse of [`Backend::split`]: groups of `a_group` numbers of `a`, each followed by
    /// `b_group` numbers of `b`.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn join(
        &mut self,
        a: &Self::Array,
        a_group: usize,
        b: &Self::Array,
        b_group: usize,
    ) -> Result<Self::Array>;

    /// RMS norm over every group of `weight.len()` numbers: whole rows, or the heads of rows.
    /// Keeps the shape.
    /// `x * weight / sqrt(mean(x²) + epsilon)`.
    /// Source: Zhang and Sennrich 2019, <https://arxiv.org/abs/1910.07467>.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn norm(&mut self, x: &Self::Array, weight: &Self::Vector, epsilon: f32) -> Result<Self::Array>;

    /// Subtracts the mean from every row.
    /// `x: [T, D]` -> `[T, D]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn centre(&mut self, x: &Self::Array) -> Result<Self::Array>;

    /// `x + y`, and its RMS norm, as [`Backend::add`] and [`Backend::norm`] compute them.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn add_norm(
        &mut self,
        x: Self::Array,
        y: &Self::Array,
        weight: &Self::Vector,
        epsilon: f32,
    ) -> Result<(Self::Array, Self::Array)> {
        let sum = self.add(x, y)?;
        let normed = self.norm(&sum, weight, epsilon)?;
        Ok((sum, normed))
    }

    /// Uploads the cosines and sines of a step.
    /// `cos`, `sin`: `[T, rope_width / 2]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn angles(&mut self, cos: Vec<f32>, sin: Vec<f32>, rows: usize) -> Result<Self::Angles>;

    /// Rotates the first `2 * angles` elements of every head of `width`; keeps the shape.
    /// Source: Su et al. 2021, <https://arxiv.org/abs/2104.09864>.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn rope(
        &mut self,
        x: Self::Array,
        width: usize,
        angles: &Self::Angles,
        pairing: Pairing,
    ) -> Result<Self::Array>;

    /// Writes the step's new keys and values, if any, to their blocks, then attends causally within
    /// each sequence.
    /// Returns `[T, H * value_width]`.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn append_and_attend(
        &mut self,
        queries: Queries<Self::Array, Self::Vector>,
        step: &Step,
        kv: &mut Self::Kv,
        shape: &AttentionShape,
    ) -> Result<Self::Array>;

    /// Prepares heads, then continues as [`Backend::append_and_attend`].
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn prepare_and_attend(
        &mut self,
        heads: Heads<Self::Array, Self::Vector, Self::Angles>,
        step: &Step,
        kv: &mut Self::Kv,
        shape: &AttentionShape,
    ) -> Result<Self::Array> {
        prepare_by_parts(self, heads, step, kv, shape)
    }

    /// Convolves each sequence's rows, applies the gated delta rule to its state, and saves the
    /// state at the span's `saves`.
    /// Returns `[T, value_heads * value_width]`.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn delta(
        &mut self,
        input: DeltaInput<Self::Array>,
        weights: &DeltaWeights<&Self::Vector>,
        step: &Step,
        state: &mut Self::Recurrent,
        shape: &DeltaShape,
    ) -> Result<Self::Array>;

    /// Convolves each sequence's rows, preceded by its cached rows, then applies the scan of
    /// Mamba-2 to its state.
    /// Returns `[T, heads * width]`.
    /// Source: Dao and Gu 2024, <https://arxiv.org/abs/2405.21060>.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn scan(
        &mut self,
        input: ScanInput<Self::Array>,
        weights: &ScanWeights<&Self::Vector>,
        step: &Step,
        state: &mut Self::Recurrent,
        shape: &ScanShape,
    ) -> Result<Self::Array>;

    /// `c conv(b x)` over each sequence's rows, preceded by its cached `b x`.
    /// `bcx: [T, b | c | x]` of D each, `taps: [D, kernel]`, the last for the current row ->
    /// `[T, D]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn short_conv(
        &mut self,
        bcx: &Self::Array,
        taps: &Self::Vector,
        step: &Step,
        state: &mut Self::Recurrent,
        kernel: usize,
    ) -> Result<Self::Array>;

    /// [`Backend::norm`] of each of `groups` equal parts of a row, with its own part of `weight`.
    /// `x: [T, weight.len()]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn group_norm(
        &mut self,
        x: &Self::Array,
        weight: &Self::Vector,
        groups: usize,
        epsilon: f32,
    ) -> Result<Self::Array>;

    /// The activation of `gate` and `up`, elementwise.
    /// `gate: [T, F]`, or `[T, 1]` for [`Activation::Sigmoid`]; `up: [T, F]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn gated(&mut self, gate: &Self::Array, up: Self::Array, activation: Activation) -> Result<Self::Array>;

    /// `max(x, 0)²`, elementwise.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn relu_squared(&mut self, x: Self::Array) -> Result<Self::Array>;

    /// The exact GELU, by the error function, elementwise.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn gelu_erf(&mut self, x: Self::Array) -> Result<Self::Array>;

    /// Selects the rows `rows` of `x`.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn rows(&mut self, x: &Self::Array, rows: &[usize]) -> Result<Self::Array>;

    /// Waits until all queued work is done, for backends that compute asynchronously.
    ///
    /// # Errors
    /// As [`Backend::embed`], for all queued work.
    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    /// The `k` greatest finite numbers of row `row` of `x` with their indices, in descending order,
    /// equal ones by index.
    /// Only indices whose bit is set in `mask` count: bit `i % 32` of `mask[i / 32]` for index i.
    /// `None` if reading all numbers is as fast; the default.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn top_k(&mut self, x: &Self::Array, row: usize, k: usize, mask: &[u32]) -> Result<TopK> {
        let _ = (x, row, k, mask);
        Ok(None)
    }

    /// Copies the numbers of `x` to the host, row after row.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn to_host(&mut self, x: &Self::Array) -> Result<Vec<f32>>;

    /// The numbers of `x` for modification on the host: in place if they are in host memory.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn numbers_mut<'a>(&mut self, x: &'a mut Self::Array) -> Result<HostNumbers<'a>> {
        self.to_host(x).map(HostNumbers::Copied)
    }

    /// T, the number of rows of `x`.
    fn count(&self, x: &Self::Array) -> usize;

    /// The inverse of [`Backend::to_host`]: `numbers` as `rows` rows.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn upload(&mut self, numbers: Vec<f32>, rows: usize) -> Result<Self::Array>;
}

/// Implements [`Backend::prepare_and_attend`] with separate ops.
fn prepare_by_parts<B: Backend + ?Sized>(
    backend: &mut B,
    heads: Heads<B::Array, B::Vector, B::Angles>,
    step: &Step,
    kv: &mut B::Kv,
    shape: &AttentionShape,
) -> Result<B::Array> {
    let Heads { q, k, v, sinks, norms: [q_norm, k_norm], norms_last, angles, pairing, factors } = heads;
    let mut ready = |mut x: B::Array, norm: Option<(&B::Vector, f32)>| {
        for norms in [!norms_last, norms_last] {
            match (norms, norm, angles) {
                (true, Some((weight, epsilon)), _) => x = backend.norm(&x, weight, epsilon)?,
                (false, _, Some(angles)) => x = backend.rope(x, shape.key_width, angles, pairing)?,
                _ => {}
            }
        }
        Ok::<_, crate::Error>(x)
    };
    let (mut q, k) = (ready(q, q_norm)?, ready(k, k_norm)?);
    if !factors.is_empty() {
        q = backend.scale(q, &factors)?;
    }
    backend.append_and_attend(Queries { q: &q, k: Some(&k), v: Some(&v), sinks }, step, kv, shape)
}
