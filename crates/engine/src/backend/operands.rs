//! Operands of ops besides activations: weights that belong together, and settings.

use std::ops::Range;

use crate::Result;
use crate::architecture::{Activation, Pairing};

/// The operands of attention.
#[derive(Debug)]
pub struct Queries<'a, A, V> {
    /// `[T, H * E]`
    pub q: &'a A,
    /// `[T, K * E]`; `None` if the step's keys and values are already cached.
    pub k: Option<&'a A>,
    /// `[T, K * value_width]`; `None` if values are part of the keys, or already cached.
    pub v: Option<&'a A>,
    /// An extra score per head, whose share of the softmax is discarded.
    /// `[H]`
    pub sinks: Option<&'a V>,
}

/// Queries, keys and values as their matrices produce them, with the preparation before attention.
/// Heads of queries and keys are normalized, then rotated, or vice versa.
#[derive(Debug)]
pub struct Heads<'a, A, V, G> {
    /// `[T, H * E]`
    pub q: A,
    /// `[T, K * E]`
    pub k: A,
    /// `[T, K * value_width]`
    pub v: A,
    /// See [`Queries`].
    pub sinks: Option<&'a V>,
    /// RMS norms of queries and of keys with their epsilon: over each head, or over all heads
    /// together if the weights are that long.
    pub norms: [Option<(&'a V, f32)>; 2],
    /// Whether heads are rotated before they are normalized.
    pub norms_last: bool,
    /// Cosines and sines of the step's positions; `None` = no rotation.
    pub angles: Option<&'a G>,
    /// Which numbers of a head rotate together.
    pub pairing: Pairing,
    /// Factors for each row's queries, applied last; empty = none.
    pub factors: Vec<f32>,
}

/// The greatest numbers and their indices in descending order; `None` if reading all is as fast.
pub type TopK = Option<Vec<(f32, u32)>>;

/// Modifiable numbers on the host.
#[derive(Debug)]
pub enum HostNumbers<'a> {
    /// The original numbers.
    InPlace(&'a mut [f32]),
    /// A copy.
    Copied(Vec<f32>),
}

impl std::ops::Deref for HostNumbers<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            HostNumbers::InPlace(numbers) => numbers,
            HostNumbers::Copied(numbers) => numbers,
        }
    }
}

impl std::ops::DerefMut for HostNumbers<'_> {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            HostNumbers::InPlace(numbers) => numbers,
            HostNumbers::Copied(numbers) => numbers,
        }
    }
}

/// A part of a stack of matrices of equal shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackShape {
    /// Number of matrices.
    pub count: usize,
    /// Rows per matrix in the file.
    pub out: usize,
    /// Numbers per row.
    pub width: usize,
    /// The rows of each matrix that are used.
    pub rows: Range<usize>,
}

/// The weights of a layer of experts.
#[derive(Clone, Debug)]
pub struct ExpertStacks<S, V> {
    /// `[experts, F, D]`; `[experts, 2 F, D]` if each expert's up rows follow its gate rows.
    pub gate: S,
    /// `[experts, F, D]`; `None` if they are part of `gate`, for a backend that
    /// [joins matrices](super::Backend::joins_matrices).
    pub up: Option<S>,
    /// `[experts, D, F]`
    pub down: S,
    /// `[experts, F]`, or with up's as in `gate`.
    pub gate_bias: Option<V>,
    /// `[experts, F]`
    pub up_bias: Option<V>,
    /// `[experts, D]`; added before the weighting.
    pub down_bias: Option<V>,
    /// The activation of the gate.
    pub activation: Activation,
}

impl<S, V> ExpertStacks<S, V> {
    /// Borrows the weights, as backends take them.
    pub fn by_ref(&self) -> ExpertStacks<&S, &V> {
        ExpertStacks {
            gate: &self.gate,
            up: self.up.as_ref(),
            down: &self.down,
            gate_bias: self.gate_bias.as_ref(),
            up_bias: self.up_bias.as_ref(),
            down_bias: self.down_bias.as_ref(),
            activation: self.activation,
        }
    }

    /// Maps all weights with `stack` and `vector`, up to the first error.
    pub(crate) fn try_map<T, U>(
        self,
        stack: impl Fn(S) -> Result<T>,
        vector: impl Fn(V) -> Result<U>,
    ) -> Result<ExpertStacks<T, U>> {
        Ok(ExpertStacks {
            gate: stack(self.gate)?,
            up: self.up.map(&stack).transpose()?,
            down: stack(self.down)?,
            gate_bias: self.gate_bias.map(&vector).transpose()?,
            up_bias: self.up_bias.map(&vector).transpose()?,
            down_bias: self.down_bias.map(&vector).transpose()?,
            activation: self.activation,
        })
    }
}

/// The activations of the gated delta rule.
#[derive(Debug)]
pub struct DeltaInput<'a, A> {
    /// Before the convolution.
    /// `[T, channels]`
    pub qkv: &'a A,
    /// Before the sigmoid.
    /// `[T, value_heads]`
    pub beta: &'a A,
    /// Before the softplus.
    /// `[T, value_heads]`
    pub alpha: &'a A,
}

/// The weights of the gated delta rule.
#[derive(Clone, Debug)]
pub struct DeltaWeights<V> {
    /// The convolution; the last tap is the current row's.
    /// `[channels, kernel]`
    pub conv: V,
    /// Multiplies the decay's softplus; not above 0.
    /// `[value_heads]`
    pub a: V,
    /// Added to `alpha`.
    /// `[value_heads]`
    pub dt: V,
}

impl<V> DeltaWeights<V> {
    /// Borrows the weights, as backends take them.
    pub fn by_ref(&self) -> DeltaWeights<&V> {
        DeltaWeights { conv: &self.conv, a: &self.a, dt: &self.dt }
    }

    /// Maps all weights with `vector`, up to the first error.
    pub(crate) fn try_map<U>(self, vector: impl Fn(V) -> Result<U>) -> Result<DeltaWeights<U>> {
        Ok(DeltaWeights { conv: vector(self.conv)?, a: vector(self.a)?, dt: vector(self.dt)? })
    }
}

/// The activations of Mamba-2's scan.
#[derive(Debug)]
pub struct ScanInput<'a, A> {
    /// Inputs, B and C, before the convolution.
    /// `[T, channels]`
    pub xbc: &'a A,
    /// Before the softplus.
    /// `[T, heads]`
    pub dt: &'a A,
}

/// The weights of Mamba-2's scan.
#[derive(Clone, Debug)]
pub struct ScanWeights<V> {
    /// The convolution; the last tap is the current row's.
    /// `[channels, kernel]`
    pub conv: V,
    /// Added to the convolution's result.
    /// `[channels]`
    pub conv_bias: Option<V>,
    /// Multiplies the step in the decay's exponent; not above 0.
    /// `[heads]`
    pub a: V,
    /// Multiplies the input that bypasses the state.
    /// `[heads]`
    pub d: V,
    /// Added to `dt`.
    /// `[heads]`
    pub dt_bias: V,
}

impl<V> ScanWeights<V> {
    /// Borrows the weights, as backends take them.
    pub fn by_ref(&self) -> ScanWeights<&V> {
        let ScanWeights { conv, conv_bias, a, d, dt_bias } = self;
        ScanWeights { conv, conv_bias: conv_bias.as_ref(), a, d, dt_bias }
    }

    /// Maps all weights with `vector`, up to the first error.
    pub(crate) fn try_map<U>(self, vector: impl Fn(V) -> Result<U>) -> Result<ScanWeights<U>> {
        Ok(ScanWeights {
            conv: vector(self.conv)?,
            conv_bias: self.conv_bias.map(&vector).transpose()?,
            a: vector(self.a)?,
            d: vector(self.d)?,
            dt_bias: vector(self.dt_bias)?,
        })
    }
}

/// Maps each element with `f`, up to the first error.
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
