//! Rotary position embedding.

use std::f64::consts::PI;

use super::Weights;
use crate::Result;
use crate::architecture::{Pairing, YarnMultiplies};
use crate::backend::{Backend, Step};
use crate::facts::{Facts, Sizes};

/// The angle of each pair per position, and which elements make a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Radians per position.
    /// `[rope_width / 2]`
    frequencies: Vec<f64>,
    /// Multiplies cosines and sines.
    magnitude: f64,
    pairing: Pairing,
}

/// How the frequencies are adapted to a longer context.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scaling {
    /// Divides all frequencies by a factor; 1 = unchanged.
    Linear { factor: f64 },
    /// Divides slow frequencies by `factor`, keeps fast ones, and interpolates those with between
    /// `fast` and `slow` rotations within `context` positions.
    /// Source: Peng et al. 2023, <https://arxiv.org/abs/2309.00071>.
    Yarn { factor: f64, context: f64, fast: f64, slow: f64 },
}

impl Rope {
    /// The rotation of full-attention layers, of `width` elements, in sequences of up to `context`
    /// tokens.
    ///
    /// # Errors
    /// If a key is invalid, or the divisors have another shape.
    pub fn load<B: Backend>(weights: &Weights<B>, width: usize, context: usize) -> Result<Self> {
        let facts = weights.facts;
        let base = facts.number("rope.freq_base")?.unwrap_or(10_000.0);
        let (scaling, magnitude, _) = scaling(facts)?;
        let mut frequencies = frequencies(width, base.into(), scaling);
        for (frequency, divisor) in frequencies.iter_mut().zip(divisors(weights, width / 2, context)?) {
            *frequency /= f64::from(divisor);
        }
        Ok(Rope { frequencies, magnitude, pairing: facts.architecture.rope.pairing })
    }

    /// The rotation of windowed layers.
    ///
    /// # Errors
    /// As [`Rope::load`].
    pub fn load_windowed<B: Backend>(weights: &Weights<B>, width: usize, context: usize) -> Result<Self> {
        let facts = weights.facts;
        if !facts.architecture.rope.window_unscaled {
            return Self::load(weights, width, context);
        }
        let own = facts.number("rope.freq_base_swa")?;
        let base = own.or(facts.number("rope.freq_base")?).unwrap_or(10_000.0);
        let frequencies = frequencies(width, base.into(), Scaling::Linear { factor: 1.0 });
        Ok(Rope { frequencies, magnitude: 1.0, pairing: facts.architecture.rope.pairing })
    }

    /// The rotation at a step's positions.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn at<B: Backend>(&self, backend: &mut B, step: &Step) -> Result<Rotation<B>> {
        let len = step.tokens.len() * self.frequencies.len();
        let (mut cos, mut sin) = (Vec::with_capacity(len), Vec::with_capacity(len));
        for position in step.positions() {
            for frequency in &self.frequencies {
                let (s, c) = (position as f64 * frequency).sin_cos();
                cos.push((c * self.magnitude) as f32);
                sin.push((s * self.magnitude) as f32);
            }
        }
        Ok(Rotation { angles: backend.angles(cos, sin, step.tokens.len())?, pairing: self.pairing })
    }
}

/// A rotation at the positions of one step.
#[derive(Debug)]
pub struct Rotation<B: Backend> {
    angles: B::Angles,
    pairing: Pairing,
}

impl<B: Backend> Rotation<B> {
    /// Rotates every head of `width`.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(&self, backend: &mut B, x: B::Array, width: usize) -> Result<B::Array> {
        backend.rope(x, width, &self.angles, self.pairing)
    }

    /// The cosines and sines.
    pub fn angles(&self) -> &B::Angles {
        &self.angles
    }

    /// Which numbers of a head rotate together.
    pub fn pairing(&self) -> Pairing {
        self.pairing
    }
}

/// How many elements of a head of width `head` rotate.
///
/// # Errors
/// If the key is invalid.
pub fn rope_width(facts: &Facts, head: usize) -> Result<usize> {
    rotating(facts, "rope.dimension_count", head)
}

/// How many elements of a head in windowed layers rotate.
///
/// # Errors
/// As [`rope_width`].
pub fn windowed_rope_width(facts: &Facts, sizes: &Sizes) -> Result<usize> {
    match sizes.windowed_widths.0 {
        head if head == sizes.key_width && facts.maybe(WINDOWED)?.is_none() => rope_width(facts, head),
        head => rotating(facts, WINDOWED, head),
    }
}

const WINDOWED: &str = "rope.dimension_count_swa";

fn rotating(facts: &Facts, name: &str, head: usize) -> Result<usize> {
    let width = facts.maybe(name)?.unwrap_or(head);
    if width > head || !width.is_multiple_of(2) {
        return Err(facts.invalid(name, &format!("{width} of {head} elements can't rotate")));
    }
    Ok(width)
}

/// The factor of the file's scaling for attention scores; 1 if it only changes angles.
///
/// # Errors
/// If a key is invalid.
pub fn score_factor(facts: &Facts) -> Result<f32> {
    scaling(facts).map(|(_, _, scores)| scores as f32)
}

/// A divisor for each of `pairs` frequencies; empty without divisors.
/// Llama 3.1 and later have one set.
/// Phi-3 and later (longrope) have one set for use within the original training context, and one
/// for use beyond it.
/// The choice holds for a sequence's whole length, so that cached keys stay valid.
/// Sources: llama.cpp `ggml_rope_ext`, frequency factors; Ding et al. 2024,
/// <https://arxiv.org/abs/2402.13753>.
fn divisors<B: Backend>(weights: &Weights<B>, pairs: usize, context: usize) -> Result<Vec<f32>> {
    let of = |name: &str| weights.vector(name, pairs);
    let names = ["rope_factors_short.weight", "rope_factors_long.weight"];
    let divisors = match [of(names[0])?, of(names[1])?] {
        [None, None] => of("rope_freqs.weight")?,
        [Some(short), Some(long)] => Some(if weights.facts.is_long(context)? { long } else { short }),
        [short, _] => return Err(weights.missing(names[usize::from(short.is_some())])),
    };
    divisors.map_or(Ok(Vec::new()), |divisors| weights.backend.values(&divisors))
}

/// `base^(-2j / width)` for each pair j, scaled.
fn frequencies(width: usize, base: f64, scaling: Scaling) -> Vec<f64> {
    let pairs = (0..width / 2).map(|j| (j, base.powf(-2.0 * j as f64 / width as f64)));
    match scaling {
        Scaling::Linear { factor } => pairs.map(|(_, frequency)| frequency / factor).collect(),
        Scaling::Yarn { factor, context, fast, slow } => {
            // The index of the pair that makes `rotations` rotations within the context.
            let pair =
                |rotations: f64| width as f64 * (context / (rotations * 2.0 * PI)).ln() / (2.0 * base.ln());
            let low = pair(fast).floor().max(0.0);
            let high = pair(slow).ceil().min(width as f64 - 1.0);
            pairs
                .map(|(j, frequency)| {
                    let slowness = ((j as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                    frequency / factor * slowness + frequency * (1.0 - slowness)
                })
                .collect()
        }
    }
}

/// The scaling in the file, its magnitude, and its factor for attention scores.
fn scaling(facts: &Facts) -> Result<(Scaling, f64, f64)> {
    let number =
        |name: &str, default: f32| facts.number(name).map(|value| f64::from(value.unwrap_or(default)));
    let factor = number("rope.scaling.factor", 1.0)?;
    if factor <= 0.0 {
        return Err(facts.invalid("rope.scaling.factor", "it must be above 0"));
    }
    // Read all keys whatever the type is: a key that only another type uses has no effect, but must
    // not count as unread.
    let context = match facts.maybe("rope.scaling.original_context_length")? {
        Some(context) => context,
        None => facts.size("context_length")?,
    };
    let fast = number("rope.scaling.yarn_beta_fast", 32.0)?;
    let slow = number("rope.scaling.yarn_beta_slow", 1.0)?;
    let attention = number("rope.scaling.attn_factor", 1.0)?;
    let multiplier = number("rope.scaling.yarn_log_multiplier", 0.0)?;
    let own_multiplier = number("rope.scaling.mscale", 1.0)?;
    let others = ["rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"];
    let others = [(others[0], number(others[0], 1.0)?), (others[1], number(others[1], 1.0)?)];
    match facts.text("rope.scaling.type")?.as_deref() {
        None | Some("linear") => Ok((Scaling::Linear { factor }, attention, 1.0)),
        Some("none") => Ok((Scaling::Linear { factor: 1.0 }, attention, 1.0)),
        // The divisors contain all of the scaling.
        Some("longrope") if facts.tensor("rope_factors_long.weight").is_some() => {
            Ok((Scaling::Linear { factor: 1.0 }, attention, 1.0))
        }
        Some("yarn") => {
            // A negative value means that it is not set.
            if let Some((name, _)) = others.iter().find(|(_, value)| *value >= 0.0 && *value != 1.0) {
                return Err(facts.invalid(name, "another value than 1 is not supported"));
            }
            let scaling = Scaling::Yarn { factor, context: context as f64, fast, slow };
            let growth = |by: f64| if factor <= 1.0 { 1.0 } else { 1.0 + 0.1 * by * factor.ln() };
            // Source: llama.cpp `llama-context.cpp`, the net product of the factors in the context
            // and the operator.
            let scores = facts.architecture.rope.yarn_multiplies == YarnMultiplies::Scores;
            let (own, net) = match multiplier == 0.0 {
                true => (1.0, 1.0),
                false if scores => (1.0, growth(1.0)),
                false => (own_multiplier, growth(multiplier)),
            };
            let magnitude = attention * growth(own) / net;
            // The key already contains a tenth.
            let of_scores = if scores { (magnitude * growth(10.0 * multiplier)).powi(2) } else { 1.0 };
            Ok((scaling, magnitude, of_scores))
        }
        Some(other) => {
            Err(facts.invalid("rope.scaling.type", &format!("`{other}` scaling is not supported")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yarn_with_factor_one_is_plain() {
        let yarn = Scaling::Yarn { factor: 1.0, context: 4096.0, fast: 32.0, slow: 1.0 };
        let plain = frequencies(64, 10_000.0, Scaling::Linear { factor: 1.0 });
        for (a, b) in frequencies(64, 10_000.0, yarn).iter().zip(&plain) {
            assert!((a - b).abs() < 1e-15);
        }
    }

    #[test]
    fn yarn_mixes_between_the_pairs_that_the_reference_names() {
        // GPT-OSS: pairs up to 8 are unchanged, from 18 on they are divided by 32.
        let yarn = Scaling::Yarn { factor: 32.0, context: 4096.0, fast: 32.0, slow: 1.0 };
        let plain = frequencies(64, 150_000.0, Scaling::Linear { factor: 1.0 });
        let scaled = frequencies(64, 150_000.0, yarn);
        let ratio: Vec<f64> = plain.iter().zip(&scaled).map(|(a, b)| a / b).collect();
        assert!(ratio[..=8].iter().all(|r| (r - 1.0).abs() < 1e-12));
        assert!(ratio[9] > 1.0 && ratio[17] < 32.0);
        assert!(ratio[18..].iter().all(|r| (r - 32.0).abs() < 1e-9));
    }
}
