//! From the states of a text's tokens to its embedding.

use alara_text::gguf::Gguf;

use crate::Result;
use crate::architecture::Architecture;
use crate::facts::Facts;

/// How the states of all tokens become one vector.
/// Numbers of `pooling_type` as llama.cpp's `llama.h` has them.
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
    /// As the file says, else the mean.
    /// `None` for a model that ranks texts, and makes no vectors.
    ///
    /// # Errors
    /// If the file says what is not known.
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

/// Makes the vector of one text, of states that come in order.
#[derive(Debug)]
pub struct Pooler {
    pooling: Pooling,
    /// The sum of those that count.
    sum: Vec<f64>,
    /// How many were seen.
    rows: usize,
}

impl Pooler {
    /// For states of `width` numbers.
    pub fn new(pooling: Pooling, width: usize) -> Self {
        Pooler { pooling, sum: vec![0.0; width], rows: 0 }
    }

    /// Takes the next states.
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

    /// The vector, of length 1.
    /// The sum serves as the mean: they differ in length only.
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
