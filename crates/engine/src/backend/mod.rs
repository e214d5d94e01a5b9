//! The verbs over which the decoder is written, and who implements them.
//!
//! A backend owns memory and arithmetic: it knows shapes and blocks, never architectures, tokens' texts or requests.
//! Activations are values of the backend; `x: [T, D]` means T rows of D f32 numbers.

pub mod candle;

use crate::Result;
use crate::architecture::{Activation, Pairing};
use crate::cache::{BlockId, Layout};
use crate::gguf::{TensorData, TensorType};

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvType {
    /// Four bytes a number, exact.
    F32,
    /// Two bytes a number.
    #[default]
    F16,
    /// Blocks of 32 numbers of one byte with an f16 scale.
    Q8_0,
}

impl KvType {
    /// Bytes that `numbers` take; a whole number of 32-number blocks for [`KvType::Q8_0`].
    pub fn bytes(self, numbers: usize) -> usize {
        match self {
            KvType::F32 => 4 * numbers,
            KvType::F16 => 2 * numbers,
            KvType::Q8_0 => numbers.div_ceil(32) * 34,
        }
    }
}

impl std::str::FromStr for KvType {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "f32" => Ok(KvType::F32),
            "f16" => Ok(KvType::F16),
            "q8_0" => Ok(KvType::Q8_0),
            other => Err(format!("`{other}` is none of f32, f16, q8_0")),
        }
    }
}

/// One sequence's share of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// How many of the step's rows are this sequence's; they follow the previous span's.
    pub rows: usize,
    /// How many tokens of the sequence the cache holds already: the position of the first row.
    pub past: usize,
    /// The blocks that hold the sequence's tokens, in order, with room for the new rows.
    pub blocks: Vec<BlockId>,
}

/// What one forward pass computes: T tokens of S sequences, each at its own positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The tokens. `[T]`
    pub tokens: Vec<u32>,
    /// The sequences; their rows sum to T.
    pub spans: Vec<Span>,
    /// The rows whose logits are wanted, ascending.
    pub outputs: Vec<usize>,
}

impl Step {
    /// The position of every row. `[T]`
    pub fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.spans.iter().flat_map(|span| span.past..span.past + span.rows)
    }
}

/// The shape of one attention layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// H, query heads.
    pub heads: usize,
    /// K, key and value heads; query head `h` reads key head `h / (H / K)`.
    pub kv_heads: usize,
    /// Width of a query and key head.
    pub key_width: usize,
    /// Width of a value head.
    pub value_width: usize,
    /// Multiplies the scores.
    pub scale: f32,
}

/// The verbs. Each takes and gives activations; a mistake in shapes is an error of the caller.
pub trait Backend: std::fmt::Debug {
    /// Activations: rows of f32.
    type Array: std::fmt::Debug;
    /// A weight matrix `[out, in]`, quantized or not.
    type Matrix: std::fmt::Debug;
    /// A short vector of f32: a norm's weights, a bias.
    type Vector: std::fmt::Debug;
    /// Cosines and sines of a step's positions.
    type Angles: std::fmt::Debug;
    /// The keys and values of one layer, in blocks.
    type Kv: std::fmt::Debug;

    /// Takes `data` as a matrix of `out` rows of `width` numbers, without copying it where possible.
    /// `None` if the backend can't compute with `kind`.
    ///
    /// # Errors
    /// If the backend can't hold it.
    fn matrix(
        &self,
        data: TensorData,
        kind: TensorType,
        out: usize,
        width: usize,
    ) -> Result<Option<Self::Matrix>>;

    /// Takes `data` as a vector. `None` if the backend can't compute with `kind`.
    ///
    /// # Errors
    /// If the backend can't hold it.
    fn vector(&self, data: TensorData, kind: TensorType) -> Result<Option<Self::Vector>>;

    /// The numbers of `vector`, on the host.
    ///
    /// # Errors
    /// If they can't be read back.
    fn values(&self, vector: &Self::Vector) -> Result<Vec<f32>>;

    /// Room for the keys and values of one layer.
    ///
    /// # Errors
    /// If there is no such room.
    fn kv(&self, layout: Layout, shape: &AttentionShape, kind: KvType) -> Result<Self::Kv>;

    /// Copies the rows of block `from` to block `to`.
    ///
    /// # Errors
    /// If the backend fails.
    fn copy_block(&mut self, kv: &mut Self::Kv, from: BlockId, to: BlockId) -> Result<()>;

    /// Rows of `table` by token. `[T, D]`
    ///
    /// # Errors
    /// If the backend fails; so for all verbs below.
    fn embed(&mut self, table: &Self::Matrix, tokens: &[u32]) -> Result<Self::Array>;

    /// `x wᵀ`. `x: [T, in]`, `w: [out, in]` -> `[T, out]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn matmul(&mut self, x: &Self::Array, w: &Self::Matrix) -> Result<Self::Array>;

    /// `x + bias` on every row.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn bias(&mut self, x: Self::Array, bias: &Self::Vector) -> Result<Self::Array>;

    /// `x + y`.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn add(&mut self, x: Self::Array, y: &Self::Array) -> Result<Self::Array>;

    /// RMS norm over every run of `weight.len()` numbers: whole rows, or the heads of rows. Keeps the shape.
    /// `x * weight / sqrt(mean(x²) + epsilon)`. Source: Zhang and Sennrich 2019, <https://arxiv.org/abs/1910.07467>.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn norm(&mut self, x: &Self::Array, weight: &Self::Vector, epsilon: f32) -> Result<Self::Array>;

    /// Makes the cosines and sines of a step. `cos`, `sin`: `[T, rope_width / 2]`
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
        x: &Self::Array,
        width: usize,
        angles: &Self::Angles,
        pairing: Pairing,
    ) -> Result<Self::Array>;

    /// Writes the step's keys and values into their blocks, then attends causally to each sequence's own.
    /// `q: [T, H * E]`, `k: [T, K * E]`, `v: [T, K * value_width]` -> `[T, H * value_width]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn append_and_attend(
        &mut self,
        q: &Self::Array,
        k: &Self::Array,
        v: &Self::Array,
        step: &Step,
        kv: &mut Self::Kv,
        shape: &AttentionShape,
    ) -> Result<Self::Array>;

    /// `activation(gate) * up`, elementwise. `[T, F]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn gated(&mut self, gate: &Self::Array, up: &Self::Array, activation: Activation) -> Result<Self::Array>;

    /// The rows `rows` of `x`.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn rows(&mut self, x: &Self::Array, rows: &[usize]) -> Result<Self::Array>;

    /// The numbers of `x`, row after row, on the host.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn to_host(&mut self, x: &Self::Array) -> Result<Vec<f32>>;
}
