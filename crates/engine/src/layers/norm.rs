//! RMS norm.

use super::Weights;
use crate::Result;
use crate::backend::Backend;

/// RMS norm over runs of as many numbers as it has weights.
#[derive(Debug)]
pub struct Norm<B: Backend> {
    weight: B::Vector,
    epsilon: f32,
}

impl<B: Backend> Norm<B> {
    /// A norm with these weights.
    pub fn new(weight: B::Vector, epsilon: f32) -> Self {
        Norm { weight, epsilon }
    }

    /// Loads `name.weight: [width]`.
    ///
    /// # Errors
    /// If it is missing or has another shape.
    pub fn load(weights: &Weights<B>, name: &str, width: usize, epsilon: f32) -> Result<Self> {
        Self::maybe(weights, name, width, epsilon)?.ok_or_else(|| weights.missing(&format!("{name}.weight")))
    }

    /// Loads `name.weight: [width]` if it is there.
    ///
    /// # Errors
    /// If it has another shape.
    pub fn maybe(weights: &Weights<B>, name: &str, width: usize, epsilon: f32) -> Result<Option<Self>> {
        let weight = weights.vector(&format!("{name}.weight"), width)?;
        Ok(weight.map(|weight| Norm { weight, epsilon }))
    }

    /// Keeps the shape of `x`.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(&self, backend: &mut B, x: &B::Array) -> Result<B::Array> {
        backend.norm(x, &self.weight, self.epsilon)
    }

    /// `x + y`, and the norm of that.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn after_add(&self, backend: &mut B, x: B::Array, y: &B::Array) -> Result<(B::Array, B::Array)> {
        backend.add_norm(x, y, &self.weight, self.epsilon)
    }

    /// Its weights, and what it adds to the mean of squares.
    pub fn parts(&self) -> (&B::Vector, f32) {
        (&self.weight, self.epsilon)
    }
}

/// `x` after a norm; `None` where there is no norm.
///
/// # Errors
/// If the backend fails.
pub fn normed<B: Backend>(backend: &mut B, norm: Option<&Norm<B>>, x: &B::Array) -> Result<Option<B::Array>> {
    norm.map(|norm| norm.apply(backend, x)).transpose()
}
