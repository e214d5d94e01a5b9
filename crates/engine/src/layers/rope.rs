//! Rotary position embedding.

use super::Weights;
use crate::Result;
use crate::architecture::{Architecture, Pairing, Sizes};
use crate::backend::{Backend, Step};

/// The angle of each pair per position, and which elements make a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Radians per position. `[rope_width / 2]`
    frequencies: Vec<f64>,
    pairing: Pairing,
}

impl Rope {
    /// `base^(-2j / rope_width) / factor / divisor_j`, with the divisors of `rope_freqs.weight` if it is there
    /// (Llama 3.1 and later). Source: llama.cpp `ggml_rope_ext`, with its frequency factors.
    ///
    /// # Errors
    /// If the divisors have another shape.
    pub fn load<B: Backend>(
        weights: &Weights<B>,
        architecture: &Architecture,
        sizes: &Sizes,
    ) -> Result<Self> {
        let half = sizes.rope_width / 2;
        let divisors = match weights.vector("rope_freqs.weight", half)? {
            Some(divisors) => weights.backend.values(&divisors)?,
            None => vec![1.0; half],
        };
        let (base, factor) = (f64::from(sizes.rope_base), f64::from(sizes.rope_factor));
        let frequency = |(j, &divisor): (usize, &f32)| {
            base.powf(-2.0 * j as f64 / sizes.rope_width as f64) / factor / f64::from(divisor)
        };
        Ok(Rope {
            frequencies: divisors.iter().enumerate().map(frequency).collect(),
            pairing: architecture.rope.pairing,
        })
    }

    /// The angles of a step's positions.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn angles<B: Backend>(&self, backend: &mut B, step: &Step) -> Result<B::Angles> {
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in step.positions() {
            for frequency in &self.frequencies {
                let (s, c) = (position as f64 * frequency).sin_cos();
                cos.push(c as f32);
                sin.push(s as f32);
            }
        }
        backend.angles(cos, sin, step.tokens.len())
    }

    /// Rotates every head of `width`. Keeps the shape of `x`.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply<B: Backend>(
        &self,
        backend: &mut B,
        x: &B::Array,
        width: usize,
        angles: &B::Angles,
    ) -> Result<B::Array> {
        backend.rope(x, width, angles, self.pairing)
    }
}
