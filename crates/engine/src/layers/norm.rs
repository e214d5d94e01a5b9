//! RMS norm and layer norm.

use alara_text::gguf::{TensorData, TensorType};

use super::Weights;
use crate::Result;
use crate::architecture::NormKind;
use crate::backend::Backend;

/// A norm over groups of as many numbers as it has weights.
#[derive(Debug)]
pub struct Norm<B: Backend> {
    weight: B::Vector,
    epsilon: f32,
    /// Whether the mean of each row is subtracted first, which turns an RMS norm into a layer norm.
    centred: bool,
}

impl<B: Backend> Norm<B> {
    /// A norm with these weights.
    pub fn new(weight: B::Vector, epsilon: f32) -> Self {
        Norm { weight, epsilon, centred: false }
    }

    /// Loads `name.weight: [width]`.
    ///
    /// # Errors
    /// If it is missing or has another shape.
    pub fn load(weights: &Weights<B>, name: &str, width: usize, epsilon: f32) -> Result<Self> {
        Self::maybe(weights, name, width, epsilon)?.ok_or_else(|| weights.missing(&format!("{name}.weight")))
    }

    /// Loads `name.weight: [width]` if present.
    ///
    /// # Errors
    /// If it has another shape.
    pub fn maybe(weights: &Weights<B>, name: &str, width: usize, epsilon: f32) -> Result<Option<Self>> {
        let weight = weights.vector(&format!("{name}.weight"), width)?;
        Ok(weight.map(|weight| Norm { weight, epsilon, centred: false }))
    }

    /// An RMS norm with weights of 1.
    ///
    /// # Errors
    /// If the backend can't allocate it.
    pub fn weightless(weights: &Weights<B>, width: usize, epsilon: f32) -> Result<Self> {
        let ones = TensorData::of(1f32.to_le_bytes().repeat(width));
        let weight = weights.backend.vector(ones, TensorType::F32)?;
        let weight = weight.ok_or_else(|| weights.missing("a norm's weights"))?;
        Ok(Norm { weight, epsilon, centred: false })
    }

    /// Returns the norm with another kind, over whole rows.
    #[must_use]
    pub fn of_kind(self, kind: NormKind) -> Self {
        Norm { centred: kind == NormKind::Layer, ..self }
    }

    /// Applies the norm; keeps the shape of `x`.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(&self, backend: &mut B, x: &B::Array) -> Result<B::Array> {
        if self.centred {
            let centred = backend.centre(x)?;
            return backend.norm(&centred, &self.weight, self.epsilon);
        }
        backend.norm(x, &self.weight, self.epsilon)
    }

    /// `x + y`, and the norm of the sum.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn after_add(&self, backend: &mut B, x: B::Array, y: &B::Array) -> Result<(B::Array, B::Array)> {
        if self.centred {
            let sum = backend.add(x, y)?;
            let normed = self.apply(backend, &sum)?;
            return Ok((sum, normed));
        }
        backend.add_norm(x, y, &self.weight, self.epsilon)
    }

    /// The weights of an RMS norm, and its epsilon.
    pub fn parts(&self) -> (&B::Vector, f32) {
        (&self.weight, self.epsilon)
    }
}

/// `x` after a norm; `None` without a norm.
///
/// # Errors
/// If the backend fails.
pub fn normed<B: Backend>(backend: &mut B, norm: Option<&Norm<B>>, x: &B::Array) -> Result<Option<B::Array>> {
    norm.map(|norm| norm.apply(backend, x)).transpose()
}
