//! A matrix, with a bias if the file has one.

use std::ops::Range;

use super::Weights;
use crate::Result;
use crate::backend::{Backend, try_map};

/// `x wᵀ + b`.
#[derive(Debug)]
pub struct Linear<B: Backend> {
    weight: B::Matrix,
    bias: Option<B::Vector>,
}

impl<B: Backend> Linear<B> {
    /// Loads `name.weight: [out, width]` and, if present, `name.bias: [out]`.
    ///
    /// # Errors
    /// If the weight is missing or has another shape.
    pub fn load(weights: &Weights<B>, name: &str, out: usize, width: usize) -> Result<Self> {
        Self::load_rows(weights, name, out, width, 0..out)
    }

    /// As [`Linear::load`], but only `rows`: one of several matrices that are fused in the file.
    ///
    /// # Errors
    /// As [`Linear::load`].
    pub fn load_rows(
        weights: &Weights<B>,
        name: &str,
        out: usize,
        width: usize,
        rows: Range<usize>,
    ) -> Result<Self> {
        let weight_name = format!("{name}.weight");
        let weight = weights.matrix_rows(&weight_name, out, width, rows.clone())?;
        let weight = weight.ok_or_else(|| weights.missing(&weight_name))?;
        Ok(Linear { weight, bias: weights.vector_part(&format!("{name}.bias"), out, rows)? })
    }

    /// Joins the linear layers `names`, of `out` rows each, if the backend prefers it and the file
    /// has them in one type, without biases.
    ///
    /// # Errors
    /// As [`Linear::load`].
    pub fn load_joined(
        weights: &Weights<B>,
        names: &[String],
        out: usize,
        width: usize,
    ) -> Result<Option<Self>> {
        let tensors = |part: &str| names.iter().map(|name| format!("{name}.{part}")).collect::<Vec<_>>();
        if !weights.backend.joins_matrices() || tensors("bias").iter().any(|bias| weights.has(bias)) {
            return Ok(None);
        }
        let weight = weights.joined(&tensors("weight"), out, width)?;
        Ok(weight.map(|weight| Linear { weight, bias: None }))
    }

    /// `x: [T, width]` -> `[T, out]`
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(&self, backend: &mut B, x: &B::Array) -> Result<B::Array> {
        let [y] = Linear::apply_all([self], backend, x)?;
        Ok(y)
    }

    /// Applies several layers to the same input, see [`Linear::apply`].
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply_all<const N: usize>(
        all: [&Self; N],
        backend: &mut B,
        x: &B::Array,
    ) -> Result<[B::Array; N]> {
        let products = backend.matmuls(x, all.map(|linear| &linear.weight))?;
        let mut linears = all.into_iter();
        try_map(products, |y| match linears.next().and_then(|linear| linear.bias.as_ref()) {
            Some(bias) => backend.bias(y, bias),
            None => Ok(y),
        })
    }
}
