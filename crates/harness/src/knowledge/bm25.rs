//! Okapi BM25 with the weights of Lucene, which are never below 0:
//! <https://en.wikipedia.org/wiki/Okapi_BM25>.
//!
//! This doesn't use a crate or SQLite's FTS5: the words must be those below, a word in more than
//! half of a small library must still count, and the rest is a screen of arithmetic.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

const K1: f64 = 1.5;
const B: f64 = 0.75;

/// Words that don't indicate the subject of a text.
const COMMON: [&str; 34] = [
    "a", "about", "an", "and", "are", "as", "at", "be", "by", "did", "do", "does", "for", "from", "how",
    "in", "is", "it", "of", "on", "or", "that", "the", "to", "was", "were", "what", "when", "where", "which",
    "who", "why", "with", "",
];

/// The texts that contain each word, and how often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bm25 {
    /// For each word, the texts that contain it, and how often.
    postings: BTreeMap<String, Vec<(usize, u32)>>,
    /// The number of words in each text.
    lengths: Vec<u32>,
}

impl Bm25 {
    /// Adds the next text.
    pub fn add(&mut self, text: &str) {
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        let mut length = 0;
        for word in words(text) {
            *counts.entry(word).or_default() += 1;
            length += 1;
        }
        for (word, count) in counts {
            self.postings.entry(word).or_default().push((self.lengths.len(), count));
        }
        self.lengths.push(length);
    }

    /// The texts with a word of the query, the best first, with their scores.
    /// They contain at least this share of the query's words.
    pub fn search(&self, query: &str, least: f64) -> Vec<(usize, f64)> {
        let wanted: BTreeSet<String> = words(query).collect();
        let total = self.lengths.len() as f64;
        let usual = self.lengths.iter().map(|length| f64::from(*length)).sum::<f64>() / total.max(1.0);
        // The score, and how many of the words a text contains.
        let mut scores: BTreeMap<usize, (f64, usize)> = BTreeMap::new();
        for postings in wanted.iter().filter_map(|word| self.postings.get(word)) {
            let holding = postings.len() as f64;
            let rarity = ((total - holding + 0.5) / (holding + 0.5)).ln_1p();
            for (text, count) in postings {
                let count = f64::from(*count);
                let length = K1 * (1.0 - B + B * f64::from(self.lengths[*text]) / usual);
                let score = scores.entry(*text).or_default();
                score.0 += rarity * count * (K1 + 1.0) / (count + length);
                score.1 += 1;
            }
        }
        let fits = scores.into_iter().filter(|(_, (_, words))| *words as f64 >= least * wanted.len() as f64);
        let mut found: Vec<(usize, f64)> = fits.map(|(text, (score, _))| (text, score)).collect();
        found.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        found
    }
}

/// The words of a text to index: in lower case, without common ones and without the plural `s`.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_lowercase);
    words.filter(|word| !COMMON.contains(&word.as_str())).map(|mut word| {
        if word.ends_with('s') && word.chars().nth(3).is_some() {
            word.pop();
        }
        word
    })
}
