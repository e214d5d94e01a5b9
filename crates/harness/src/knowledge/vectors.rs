//! Vectors of texts, and exact search among them.

use crate::model::Embedder;

use super::Error;

/// How many texts a model gets at a time.
const PART: usize = 32;

/// A vector of length 1 for each text, all of the same width.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vectors {
    width: usize,
    /// `[N, D]`
    numbers: Vec<f32>,
}

impl Vectors {
    /// Those of these texts.
    ///
    /// # Errors
    /// The model can't make them.
    pub fn of(texts: &[String], embedder: &dyn Embedder) -> Result<Self, Error> {
        let mut vectors = Vectors::default();
        for part in texts.chunks(PART) {
            let made = embedder.embed(part).map_err(Error::Embedder)?;
            if vectors.width == 0 {
                vectors.width = made.first().map_or(0, Vec::len);
            }
            let width = vectors.width;
            if made.len() != part.len() || width == 0 || made.iter().any(|vector| vector.len() != width) {
                let lengths: Vec<String> = made.iter().map(|vector| vector.len().to_string()).collect();
                let wanted = format!("{} texts, with vectors of {width} numbers", part.len());
                return Err(Error::Shape {
                    wanted,
                    found: format!("vectors of [{}] numbers", lengths.join(", ")),
                });
            }
            vectors.numbers.extend(made.into_iter().flatten());
        }
        Ok(vectors)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.numbers.len().checked_div(self.width).unwrap_or(0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All texts, the nearest first, with the cosine of the angle.
    ///
    /// # Errors
    /// The query has another width.
    pub fn search(&self, query: &Vectors) -> Result<Vec<(usize, f64)>, Error> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        if query.width != self.width {
            let wanted = format!("a query among vectors of {} numbers", self.width);
            return Err(Error::Shape { wanted, found: format!("one of {}", query.width) });
        }
        let dot = |row: &[f32]| row.iter().zip(&query.numbers).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        let mut found: Vec<(usize, f64)> =
            self.numbers.chunks_exact(self.width).map(dot).enumerate().collect();
        found.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        Ok(found)
    }

    /// As a file: the width as 32 bits, then all numbers, little-endian.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let width = u32::try_from(self.width).unwrap_or(u32::MAX).to_le_bytes();
        width.into_iter().chain(self.numbers.iter().flat_map(|number| number.to_le_bytes())).collect()
    }

    /// From such a file of `count` vectors; `None` if it is none.
    pub(super) fn from_bytes(bytes: &[u8], count: usize) -> Option<Self> {
        let (width, numbers) = bytes.split_first_chunk::<4>()?;
        let width = usize::try_from(u32::from_le_bytes(*width)).ok()?;
        let (numbers, rest) = numbers.as_chunks::<4>();
        let fits = rest.is_empty() && width.checked_mul(count) == Some(numbers.len());
        fits.then(|| Vectors {
            width,
            numbers: numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        })
    }
}
