//! The verbs over which the decoder is written, and who implements them.
//!
//! A backend owns memory and arithmetic: it knows shapes and blocks, never architectures, tokens' texts or requests.
//! Activations are values of the backend; `x: [T, D]` means T rows of D f32 numbers.

pub mod candle;
mod cores;
pub mod native;
mod profiled;
pub mod split;

use std::ops::Range;
use std::time::Duration;

pub use alara_kernels::Isa;
pub use cores::default_threads;
pub use profiled::{Profile, Profiled, Spent, limits};

use crate::Result;
use crate::architecture::{Activation, Pairing};
use crate::cache::{BlockId, Layout, SlotId};
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

/// A part of a model, as it is loaded: what it begins with, its blocks, what it ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The table of embeddings.
    Input,
    /// A block, by its number.
    Block(usize),
    /// The last norm and the matrix that gives logits.
    Output,
}

/// One sequence's share of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// How many of the step's rows are this sequence's; they follow the previous span's.
    pub rows: usize,
    /// How many tokens of the sequence the cache holds already: the position of the first row.
    pub past: usize,
    /// Numbers of the blocks that hold the sequence's tokens, in order, with room for the new rows.
    pub blocks: Vec<u32>,
    /// The same for windowed layers; those wholly before the window may name any block.
    pub windowed: Vec<u32>,
    /// Where the sequence's recurrent state lies. It counts as zero while `past` is 0.
    pub slot: SlotId,
    /// After how many of its rows, ascending, the recurrent state is copied to which other slot too.
    pub saves: Vec<(usize, SlotId)>,
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
    /// Whether a value is the first `value_width` numbers of its key, so that only keys are kept.
    pub values_in_keys: bool,
    /// Multiplies the scores.
    pub scale: f32,
    /// Tokens that a token sees, itself included; `None` = all before it.
    pub window: Option<usize>,
}

impl Span {
    /// Its rows in runs that end where state is saved: how many, and the slot that gets it.
    pub fn runs(&self) -> impl Iterator<Item = (usize, Option<SlotId>)> + '_ {
        let ends = self.saves.iter().map(|(rows, slot)| (*rows, Some(*slot))).chain([(self.rows, None)]);
        let mut before = 0;
        ends.map(move |(end, slot)| (end - std::mem::replace(&mut before, end), slot))
            .filter(|(rows, slot)| *rows > 0 || slot.is_some())
    }

    /// The blocks of a layer with `window`.
    pub fn blocks_for(&self, window: Option<usize>) -> &[u32] {
        if window.is_some() { &self.windowed } else { &self.blocks }
    }
}

impl AttentionShape {
    /// Numbers that the layer keeps for a token: of its key, and of its value.
    pub fn kept(&self) -> (usize, usize) {
        let values = if self.values_in_keys { 0 } else { self.kv_heads * self.value_width };
        (self.kv_heads * self.key_width, values)
    }
}

/// What attends.
#[derive(Debug)]
pub struct Queries<'a, A, V> {
    /// `[T, H * E]`
    pub q: &'a A,
    /// `[T, K * E]`
    pub k: &'a A,
    /// `[T, K * value_width]`; `None` if values are in keys.
    pub v: Option<&'a A>,
    /// An extra score per head, whose share of the softmax goes nowhere. `[H]`
    pub sinks: Option<&'a V>,
}

/// A part of a stack of equal matrices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackShape {
    /// How many matrices.
    pub count: usize,
    /// Rows of each in the file.
    pub out: usize,
    /// Numbers in a row.
    pub width: usize,
    /// The rows that are meant of each.
    pub rows: Range<usize>,
}

/// Which experts a step's rows use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routes {
    /// Experts per row.
    pub used: usize,
    /// `[T, used]`
    pub experts: Vec<u32>,
    /// What multiplies each expert's result. `[T, used]`
    pub weights: Vec<f32>,
}

/// The weights of a layer of experts.
#[derive(Debug)]
pub struct ExpertStacks<S, V> {
    /// `[experts, F, D]`
    pub gate: S,
    /// `[experts, F, D]`
    pub up: S,
    /// `[experts, D, F]`
    pub down: S,
    /// `[experts, F]`
    pub gate_bias: Option<V>,
    /// `[experts, F]`
    pub up_bias: Option<V>,
    /// `[experts, D]`; inside the weighting.
    pub down_bias: Option<V>,
    /// The function on the gate.
    pub activation: Activation,
}

/// The shape of one layer of the gated delta rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaShape {
    /// Heads of queries and keys; value head `j` reads key head `j % key_heads`.
    pub key_heads: usize,
    /// Heads of values.
    pub value_heads: usize,
    /// Width of a query and key head.
    pub key_width: usize,
    /// Width of a value head.
    pub value_width: usize,
    /// Rows that the convolution sees, the current one included.
    pub kernel: usize,
    /// Added to the sum of squares when queries and keys are normalised.
    pub epsilon: f32,
}

impl DeltaShape {
    /// Channels that are convolved: queries, keys, values.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_width + self.value_heads * self.value_width
    }

    /// Numbers of a sequence's state: the convolution's history, and a matrix for each value head.
    pub fn kept(&self) -> (usize, usize) {
        ((self.kernel - 1) * self.channels(), self.value_heads * self.key_width * self.value_width)
    }
}

/// What the gated delta rule reads.
#[derive(Debug)]
pub struct DeltaInput<'a, A> {
    /// Before the convolution. `[T, channels]`
    pub qkv: &'a A,
    /// Before the sigmoid. `[T, value_heads]`
    pub beta: &'a A,
    /// Before the softplus. `[T, value_heads]`
    pub alpha: &'a A,
}

/// The weights of the gated delta rule.
#[derive(Debug)]
pub struct DeltaWeights<V> {
    /// The convolution; the last tap is the current row's. `[channels, kernel]`
    pub conv: V,
    /// Multiplies the decay's softplus; not above 0. `[value_heads]`
    pub a: V,
    /// Added to `alpha`. `[value_heads]`
    pub dt: V,
}

/// `f` of each, or the first error.
pub(crate) fn try_map<T, U, const N: usize>(
    items: [T; N],
    mut f: impl FnMut(T) -> Result<U>,
) -> Result<[U; N]> {
    let mut error = None;
    let all = items.map(|item| match error {
        None => f(item).map_err(|e| error = Some(e)).ok(),
        Some(_) => None,
    });
    match error {
        Some(error) => Err(error),
        None => Ok(all.map(|item| item.expect("there was no error"))),
    }
}

impl<S, V> ExpertStacks<S, V> {
    /// The same by reference, as backends take it.
    pub fn by_ref(&self) -> ExpertStacks<&S, &V> {
        ExpertStacks {
            gate: &self.gate,
            up: &self.up,
            down: &self.down,
            gate_bias: self.gate_bias.as_ref(),
            up_bias: self.up_bias.as_ref(),
            down_bias: self.down_bias.as_ref(),
            activation: self.activation,
        }
    }
}

impl<V> DeltaWeights<V> {
    /// The same by reference, as backends take it.
    pub fn by_ref(&self) -> DeltaWeights<&V> {
        DeltaWeights { conv: &self.conv, a: &self.a, dt: &self.dt }
    }
}

fn not_kept() -> crate::Error {
    let message = "this backend keeps nothing elsewhere; the native one does".to_owned();
    crate::Error::Backend { operation: "keep the prefix cache on disk".to_owned(), message }
}

/// The verbs. Each takes and gives activations; a mistake in shapes is an error of the caller.
pub trait Backend: std::fmt::Debug {
    /// Activations: rows of f32.
    type Array: std::fmt::Debug;
    /// A weight matrix `[out, in]`, quantized or not.
    type Matrix: std::fmt::Debug;
    /// Equal weight matrices: experts, or the heads of a layer.
    type Stack: std::fmt::Debug;
    /// Numbers in f32: a norm's weights, a bias.
    type Vector: std::fmt::Debug;
    /// Cosines and sines of a step's positions.
    type Angles: std::fmt::Debug;
    /// The keys and values of one layer, in blocks.
    type Kv: std::fmt::Debug;
    /// The recurrent state of one layer, in slots.
    type State: std::fmt::Debug;

    /// Whether a row's result never depends on what shares its step, bit for bit: then a token that is computed beside others, as a
    /// drafted one is, gets the logits that it would get alone.
    fn is_row_invariant(&self) -> bool {
        false
    }

    /// Says which part of the model is loaded, and made room for, from now on. It matters to a backend that is made of two.
    fn begin(&self, part: Part) {
        let _ = part;
    }

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

    /// Takes `data` as a stack, as [`Backend::matrix`] does.
    ///
    /// # Errors
    /// If the backend can't hold it.
    fn stack(&self, data: TensorData, kind: TensorType, shape: StackShape) -> Result<Option<Self::Stack>>;

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

    /// Room for the state of one layer.
    ///
    /// # Errors
    /// If there is no such room.
    fn state(&self, slots: usize, shape: &DeltaShape) -> Result<Self::State>;

    /// Copies the rows of block `from` to block `to`.
    ///
    /// # Errors
    /// If the backend fails.
    fn copy_block(&mut self, kv: &mut Self::Kv, from: BlockId, to: BlockId) -> Result<()>;

    /// Copies the recurrent state of slot `from` to slot `to`.
    ///
    /// # Errors
    /// If the backend fails.
    fn copy_state(&mut self, state: &mut Self::State, from: SlotId, to: SlotId) -> Result<()>;

    /// How long [`Backend::delta`] has copied state to where spans say so, since this was last asked; zero where nobody measures it.
    fn saving(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Appends what is kept of `rows` tokens from row `row` of the blocks on to `out`, as [`Backend::load_rows`] takes it.
    ///
    /// # Errors
    /// If the backend can't; so by default, and for the three verbs that follow.
    fn save_rows(&self, kv: &Self::Kv, row: usize, rows: usize, out: &mut Vec<u8>) -> Result<()> {
        let _ = (kv, row, rows, out);
        Err(not_kept())
    }

    /// Puts back what [`Backend::save_rows`] gave for `rows` rows, to any place.
    ///
    /// # Errors
    /// As [`Backend::save_rows`].
    fn load_rows(&mut self, kv: &mut Self::Kv, row: usize, rows: usize, bytes: &[u8]) -> Result<()> {
        let _ = (kv, row, rows, bytes);
        Err(not_kept())
    }

    /// Appends the recurrent state of `slot` to `out`, as [`Backend::load_state`] takes it.
    ///
    /// # Errors
    /// As [`Backend::save_rows`].
    fn save_state(&self, state: &Self::State, slot: SlotId, out: &mut Vec<u8>) -> Result<()> {
        let _ = (state, slot, out);
        Err(not_kept())
    }

    /// Puts back what [`Backend::save_state`] gave, to any slot.
    ///
    /// # Errors
    /// As [`Backend::save_rows`].
    fn load_state(&mut self, state: &mut Self::State, slot: SlotId, bytes: &[u8]) -> Result<()> {
        let _ = (state, slot, bytes);
        Err(not_kept())
    }

    /// Rows of `table` by token. `[T, D]`
    ///
    /// # Errors
    /// If the backend fails; so for all verbs below.
    fn embed(&mut self, table: &Self::Matrix, tokens: &[u32]) -> Result<Self::Array>;

    /// `x wᵀ` for some `w` at once. `x: [T, in]`, `w: [out, in]` -> `[T, out]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn matmuls<const N: usize>(&mut self, x: &Self::Array, w: [&Self::Matrix; N])
    -> Result<[Self::Array; N]>;

    /// `x wᵀ`. `x: [T, in]`, `w: [out, in]` -> `[T, out]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn matmul(&mut self, x: &Self::Array, w: &Self::Matrix) -> Result<Self::Array> {
        let [y] = self.matmuls(x, [w])?;
        Ok(y)
    }

    /// Every matrix of the stack by its own part of each row. `x: [T, count * in]`, `w: [count, out, in]` ->
    /// `[T, count * out]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn stacked(&mut self, x: &Self::Array, w: &Self::Stack) -> Result<Self::Array>;

    /// Every row by the experts that are meant for it: the sum of `weight * down(activation(gate(x), up(x)))`, in the
    /// order of the routes. `x: [T, D]` -> `[T, D]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn experts(
        &mut self,
        x: &Self::Array,
        routes: &Routes,
        stacks: &ExpertStacks<&Self::Stack, &Self::Vector>,
    ) -> Result<Self::Array>;

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

    /// Multiplies every row by its factor, or all rows by the only one.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn scale(&mut self, x: Self::Array, factors: &[f32]) -> Result<Self::Array>;

    /// Cuts every run of `run` numbers after `at`. `x: [T, n * run]` -> `[T, n * at]`, `[T, n * (run - at)]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn split(&mut self, x: &Self::Array, run: usize, at: usize) -> Result<(Self::Array, Self::Array)>;

    /// The reverse of [`Backend::split`]: runs of `a_run` numbers of `a`, each followed by one of `b_run` of `b`.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn join(&mut self, a: &Self::Array, a_run: usize, b: &Self::Array, b_run: usize) -> Result<Self::Array>;

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
        x: Self::Array,
        width: usize,
        angles: &Self::Angles,
        pairing: Pairing,
    ) -> Result<Self::Array>;

    /// Writes the step's keys and values into their blocks, then attends causally to each sequence's own.
    /// Gives `[T, H * value_width]`.
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

    /// Convolves each sequence's rows, applies the gated delta rule to its state, and saves that where the span says so. Gives `[T, value_heads * value_width]`.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn delta(
        &mut self,
        input: DeltaInput<Self::Array>,
        weights: &DeltaWeights<&Self::Vector>,
        step: &Step,
        state: &mut Self::State,
        shape: &DeltaShape,
    ) -> Result<Self::Array>;

    /// The activation of `gate` and `up`, elementwise. `gate: [T, F]`, or `[T, 1]` for [`Activation::Sigmoid`];
    /// `up: [T, F]`
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn gated(&mut self, gate: &Self::Array, up: Self::Array, activation: Activation) -> Result<Self::Array>;

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

    /// T, the number of rows of `x`.
    fn count(&self, x: &Self::Array) -> usize;

    /// The reverse of [`Backend::to_host`]: `numbers` as `rows` rows.
    ///
    /// # Errors
    /// As [`Backend::embed`].
    fn upload(&mut self, numbers: Vec<f32>, rows: usize) -> Result<Self::Array>;
}
