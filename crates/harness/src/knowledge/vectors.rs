//! Vectors of texts, exact search among them, and their storage.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::model::Embedder;

use super::Error;

/// How many texts a model gets at once.
const PART: usize = 32;

/// A vector of length 1 for each text, all of the same width.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vectors {
    width: usize,
    /// `[N, D]`
    numbers: Vec<f32>,
}

impl Vectors {
    /// The vectors of these texts.
    ///
    /// # Errors
    /// The model can't compute them.
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
    /// The query's vector has another width.
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

    /// All numbers, little-endian.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }
}

type TextHash = [u8; 32];
/// Most bytes of a file of vectors.
/// A longer file keeps only the vectors of the library being searched.
const LARGEST: usize = 256 << 20;

/// All vectors that a model has computed, by the hashes of their texts.
/// So a change of a document costs only the vectors of its changed chunks.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Kept {
    width: usize,
    rows: BTreeMap<TextHash, Vec<f32>>,
}

impl Kept {
    /// The vectors of these texts, and whether some of them are new.
    ///
    /// # Errors
    /// The model can't compute them.
    pub(super) fn of(&mut self, texts: &[String], embedder: &dyn Embedder) -> Result<(Vectors, bool), Error> {
        let hashes: Vec<TextHash> = texts.iter().map(|text| Sha256::digest(text).into()).collect();
        let mut asked = BTreeSet::new();
        let missing: Vec<(TextHash, &String)> = (hashes.iter().copied().zip(texts))
            .filter(|(hash, _)| !self.rows.contains_key(hash) && asked.insert(*hash))
            .collect();
        if !missing.is_empty() {
            let wanted: Vec<String> = missing.iter().map(|(_, text)| (*text).clone()).collect();
            let made = Vectors::of(&wanted, embedder)?;
            if self.width != made.width && !self.rows.is_empty() {
                // They come from another model, so the cached ones are invalid.
                *self = Kept::default();
                return self.of(texts, embedder);
            }
            self.width = made.width;
            if (self.rows.len() + made.len()) * (32 + 4 * made.width) > LARGEST {
                let wanted: BTreeSet<&TextHash> = hashes.iter().collect();
                self.rows.retain(|hash, _| wanted.contains(hash));
            }
            for ((hash, _), row) in missing.iter().zip(made.numbers.chunks_exact(made.width.max(1))) {
                self.rows.insert(*hash, row.to_vec());
            }
        }
        let numbers = hashes.iter().filter_map(|hash| self.rows.get(hash)).flatten().copied().collect();
        Ok((Vectors { width: self.width, numbers }, !missing.is_empty()))
    }

    /// As a file: the width as 32 bits, then for each text its hash and its numbers, little-endian.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = u32::try_from(self.width).unwrap_or(u32::MAX).to_le_bytes().to_vec();
        for (hash, row) in &self.rows {
            bytes.extend_from_slice(hash);
            bytes.extend(row.iter().flat_map(|number| number.to_le_bytes()));
        }
        bytes
    }

    /// Parses such a file; `None` if it is invalid.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (width, rows) = bytes.split_first_chunk::<4>()?;
        let width = usize::try_from(u32::from_le_bytes(*width)).ok()?;
        let size = width.checked_mul(4)?.checked_add(32)?;
        if width == 0 || !rows.len().is_multiple_of(size) {
            return None;
        }
        let row = |row: &[u8]| {
            let (hash, numbers) = row.split_first_chunk::<32>()?;
            let numbers = numbers.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
            Some((*hash, numbers.collect()))
        };
        Some(Kept { width, rows: rows.chunks_exact(size).filter_map(row).collect() })
    }
}
