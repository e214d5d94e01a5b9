//! Pools the states of a text's tokens to its embedding.

use alara_text::gguf::Gguf;

use crate::Result;
use crate::architecture::Architecture;
use crate::facts::Facts;

/// How the states of all tokens are pooled to one vector.
/// Numbered as `pooling_type` in llama.cpp's `llama.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean, control tokens included.
    Mean,
    /// The first one, which is that of `[CLS]`.
    First,
    /// The last one.
    Last,
}

impl Pooling {
    /// The pooling in the file; the mean by default.
    /// `None` for a model that ranks texts and has no embeddings.
    ///
    /// # Errors
    /// If the file's value is unknown.
    pub fn of(gguf: &Gguf, architecture: &Architecture) -> Result<Option<Self>> {
        let facts = Facts::new(gguf, architecture)?;
        Ok(match facts.maybe("pooling_type")? {
            None | Some(1) => Some(Pooling::Mean),
            Some(2) => Some(Pooling::First),
            Some(3) => Some(Pooling::Last),
            Some(4) => None,
            Some(other) => {
                return Err(facts.invalid("pooling_type", &format!("{other} is not known")));
            }
        })
    }
}

/// Pools the vector of one text from its states, in order.
#[derive(Debug)]
pub struct Pooler {
    pooling: Pooling,
    /// The sum of the states that count.
    sum: Vec<f64>,
    /// Number of states so far.
    rows: usize,
}

impl Pooler {
    /// A pool for states of `width` numbers.
    pub fn new(pooling: Pooling, width: usize) -> Self {
        Pooler { pooling, sum: vec![0.0; width], rows: 0 }
    }

    /// Adds the next states.
    /// `[T, D]`
    pub fn push(&mut self, states: &[f32]) {
        for state in states.chunks_exact(self.sum.len()) {
            match self.pooling {
                Pooling::First if self.rows > 0 => continue,
                Pooling::Last => self.sum.fill(0.0),
                Pooling::Mean | Pooling::First => {}
            }
            self.sum.iter_mut().zip(state).for_each(|(sum, &number)| *sum += f64::from(number));
            self.rows += 1;
        }
    }

    /// The vector, normalized to length 1.
    /// The sum replaces the mean, since they only differ in length.
    pub fn finish(self) -> Vec<f32> {
        let length = self.sum.iter().map(|number| number * number).sum::<f64>().sqrt();
        let factor = if length > 0.0 { 1.0 / length } else { 0.0 };
        self.sum.iter().map(|number| (number * factor) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_pooled_and_brought_to_length_one() {
        let check = |pooling, expected: [f32; 2]| {
            let mut pooler = Pooler::new(pooling, 2);
            pooler.push(&[1.0, 0.0, 5.0, 8.0]);
            pooler.push(&[0.0, 0.5]);
            for (found, expected) in pooler.finish().iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "{pooling:?}: {found} for {expected}");
            }
        };
        let length = (6f32 * 6.0 + 8.5 * 8.5).sqrt();
        check(Pooling::Mean, [6.0 / length, 8.5 / length]);
        check(Pooling::First, [1.0, 0.0]);
        check(Pooling::Last, [0.0, 1.0]);
        assert_eq!(Pooler::new(Pooling::Mean, 2).finish(), [0.0; 2]);
    }
}
