//! The gated short convolution: mixes a few rows channel by channel, between two products.
//! Source: Liquid AI 2025, <https://arxiv.org/abs/2511.23404>.

use super::{Linear, Weights};
use crate::Result;
use crate::backend::{Backend, StateShape, Step};
use crate::facts::Sizes;

/// One layer of a short convolution.
#[derive(Debug)]
pub struct ShortConv<B: Backend> {
    /// Projection to the factor before, the factor after, and the input of the convolution.
    bcx: Linear<B>,
    /// The last tap is for the current row.
    /// `[D, kernel]`
    taps: B::Vector,
    output: Linear<B>,
    kernel: usize,
    width: usize,
}

impl<B: Backend> ShortConv<B> {
    /// Loads the layer of block number `layer`.
    ///
    /// # Errors
    /// If a key or tensor is missing, or has another shape.
    pub fn load(weights: &Weights<B>, layer: usize, sizes: &Sizes) -> Result<Self> {
        let name = |part: &str| format!("blk.{layer}.shortconv.{part}");
        let (width, kernel) = (sizes.width, weights.facts.size("shortconv.l_cache")?);
        let conv = name("conv.weight");
        Ok(ShortConv {
            bcx: Linear::load(weights, &name("in_proj"), 3 * width, width)?,
            taps: weights.table(&conv, kernel, width)?.ok_or_else(|| weights.missing(&conv))?,
            output: Linear::load(weights, &name("out_proj"), width, width)?,
            kernel,
            width,
        })
    }

    /// The shape of the recurrent state.
    pub fn state_shape(&self) -> StateShape {
        StateShape::convolved(self.kernel, self.width)
    }

    /// `x: [T, D]` -> `[T, D]`
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(
        &self,
        backend: &mut B,
        x: &B::Array,
        step: &Step,
        state: &mut B::Recurrent,
    ) -> Result<B::Array> {
        let bcx = self.bcx.apply(backend, x)?;
        let mixed = backend.short_conv(&bcx, &self.taps, step, state, self.kernel)?;
        self.output.apply(backend, &mixed)
    }
}
