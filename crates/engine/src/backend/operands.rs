//! What ops take beside activations: weights that belong together, and what is done with them.

use std::ops::Range;

use crate::Result;
use crate::architecture::{Activation, Pairing};

/// What attends.
#[derive(Debug)]
pub struct Queries<'a, A, V> {
    /// `[T, H * E]`
    pub q: &'a A,
    /// `[T, K * E]`; `None` if the step's keys and values are there already.
    pub k: Option<&'a A>,
    /// `[T, K * value_width]`; `None` if values are in keys, or there already.
    pub v: Option<&'a A>,
    /// An extra score per head, whose share of the softmax goes nowhere.
    /// `[H]`
    pub sinks: Option<&'a V>,
}

/// Queries, keys and values as they come from their matrices, and what is done to them before they
/// meet.
/// Heads of queries and keys are normed, then rotated, or the other way around.
#[derive(Debug)]
pub struct Heads<'a, A, V, G> {
    /// `[T, H * E]`
    pub q: A,
    /// `[T, K * E]`
    pub k: A,
    /// `[T, K * value_width]`
    pub v: A,
    /// As of [`Queries`].
    pub sinks: Option<&'a V>,
    /// RMS norms of queries and of keys, and what they add: over each head, or over all heads
    /// together if they are as long.
    pub norms: [Option<(&'a V, f32)>; 2],
    /// Whether heads are rotated first, and then normed.
    pub norms_last: bool,
    /// Cosines and sines of the step's positions; `None`: nothing is rotated.
    pub angles: Option<&'a G>,
    /// Which numbers of a head are rotated together.
    pub pairing: Pairing,
    /// Multiplies each row's queries in the end; empty = nothing does.
    pub factors: Vec<f32>,
}

/// The greatest numbers and their indices, the greatest first; `None`: to read all is as good.
pub type TopK = Option<Vec<(f32, u32)>>;

/// Numbers on the host, to be worked on.
#[derive(Debug)]
pub enum HostNumbers<'a> {
    /// Where they lie.
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

/// The weights of a layer of experts.
#[derive(Clone, Debug)]
pub struct ExpertStacks<S, V> {
    /// `[experts, F, D]`; with up's rows after each gate's `[experts, 2 F, D]`.
    pub gate: S,
    /// `[experts, F, D]`; `None` if they are in `gate`, as a backend that
    /// [joins matrices](super::Backend::joins_matrices) gets them.
    pub up: Option<S>,
    /// `[experts, D, F]`
    pub down: S,
    /// `[experts, F]`, or as `gate` with up's.
    pub gate_bias: Option<V>,
    /// `[experts, F]`
    pub up_bias: Option<V>,
    /// `[experts, D]`; inside the weighting.
    pub down_bias: Option<V>,
    /// The function on the gate.
    pub activation: Activation,
}

impl<S, V> ExpertStacks<S, V> {
    /// The same by reference, as backends take it.
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

    /// The same through `stack` and `vector`, or their first error.
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

/// What the gated delta rule reads.
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
    /// The same by reference, as backends take it.
    pub fn by_ref(&self) -> DeltaWeights<&V> {
        DeltaWeights { conv: &self.conv, a: &self.a, dt: &self.dt }
    }

    /// The same through `vector`, or its first error.
    pub(crate) fn try_map<U>(self, vector: impl Fn(V) -> Result<U>) -> Result<DeltaWeights<U>> {
        Ok(DeltaWeights { conv: vector(self.conv)?, a: vector(self.a)?, dt: vector(self.dt)? })
    }
}

/// What the scan of Mamba-2 reads.
#[derive(Debug)]
pub struct ScanInput<'a, A> {
    /// Inputs, B and C, before the convolution.
    /// `[T, channels]`
    pub xbc: &'a A,
    /// Before the softplus.
    /// `[T, heads]`
    pub dt: &'a A,
}

/// The weights of the scan of Mamba-2.
#[derive(Clone, Debug)]
pub struct ScanWeights<V> {
    /// The convolution; the last tap is the current row's.
    /// `[channels, kernel]`
    pub conv: V,
    /// Added to what is convolved.
    /// `[channels]`
    pub conv_bias: Option<V>,
    /// Multiplies the step in the decay's exponent; not above 0.
    /// `[heads]`
    pub a: V,
    /// Multiplies the input that goes past the state.
    /// `[heads]`
    pub d: V,
    /// Added to `dt`.
    /// `[heads]`
    pub dt_bias: V,
}

impl<V> ScanWeights<V> {
    /// The same by reference, as backends take it.
    pub fn by_ref(&self) -> ScanWeights<&V> {
        let ScanWeights { conv, conv_bias, a, d, dt_bias } = self;
        ScanWeights { conv, conv_bias: conv_bias.as_ref(), a, d, dt_bias }
    }

    /// The same through `vector`, or its first error.
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
