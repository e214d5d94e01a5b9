//! What the model thought of the tokens of a turn, until they are reported with their text.

use crate::request::{Logprob, TokenLogprobs};
use crate::tokenizer::Tokenizer;

/// Notes the probabilities of a turn's tokens.
#[derive(Debug, Default)]
pub struct Logprobs {
    /// How many of the most likely tokens are reported beside each.
    top: usize,
    /// The logits that the next token is sampled from; empty if it isn't sampled.
    logits: Vec<f32>,
    /// Tokens whose text has not been reported.
    pending: Vec<TokenLogprobs>,
}

impl Logprobs {
    /// Those of a turn, with so many of the most likely tokens.
    pub fn new(top: usize) -> Self {
        Logprobs { top, ..Logprobs::default() }
    }

    /// Takes note of the model's own logits for the next token.
    /// Rows beyond the vocabulary have no part in the probabilities.
    pub fn read(&mut self, logits: &[f32], tokenizer: &Tokenizer) {
        self.logits.clear();
        self.logits.extend_from_slice(&logits[..tokenizer.len().min(logits.len())]);
    }

    /// Takes note of the next token: sampled if its logits were read.
    pub fn note(&mut self, token: u32, tokenizer: &Tokenizer) {
        let entry = |token: u32, logprob: f64| {
            let logprob = if logprob >= f64::from(Logprob::LEAST) { logprob as f32 } else { Logprob::LEAST };
            Logprob { token, bytes: tokenizer.token_bytes(token).to_vec(), logprob }
        };
        if self.logits.is_empty() {
            self.pending.push(TokenLogprobs { chosen: entry(token, 0.0), top: Vec::new() });
            return;
        }
        let total = log_sum_exp(&self.logits);
        let chosen = self.logits.get(token as usize).map_or(f64::NEG_INFINITY, |&logit| f64::from(logit));
        let top = top_k(&self.logits, self.top);
        self.pending.push(TokenLogprobs {
            chosen: entry(token, chosen - total),
            top: top.into_iter().map(|(logit, token)| entry(token, f64::from(logit) - total)).collect(),
        });
        self.logits.clear();
    }

    /// The tokens that have come since this was asked last.
    pub fn take(&mut self) -> Vec<TokenLogprobs> {
        std::mem::take(&mut self.pending)
    }
}

/// The logarithm of the sum of the exponentials, without overflow.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let finite = || logits.iter().filter(|logit| logit.is_finite()).map(|&logit| f64::from(logit));
    let most = finite().fold(f64::NEG_INFINITY, f64::max);
    most + finite().map(|logit| (logit - most).exp()).sum::<f64>().ln()
}

/// The `count` top finite logits with their tokens, the greatest first and of equals the lowest
/// token.
fn top_k(logits: &[f32], count: usize) -> Vec<(f32, u32)> {
    let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    let mut all: Vec<(f32, u32)> =
        logits.iter().copied().zip(0..).filter(|(logit, _)| logit.is_finite()).collect();
    if count < all.len() {
        all.select_nth_unstable_by(count, order);
        all.truncate(count);
    }
    all.sort_unstable_by(order);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_ones_come_first() {
        let logits = [1.0, f32::NAN, 3.0, f32::NEG_INFINITY, 3.0, 2.0];
        assert_eq!(top_k(&logits, 3), [(3.0, 2), (3.0, 4), (2.0, 5)]);
        assert_eq!(top_k(&logits, 9).len(), 4);
        assert_eq!(top_k(&logits, 0), []);
    }

    #[test]
    fn sums_neither_overflow_nor_take_in_what_is_impossible() {
        let check = |logits: &[f32], expected: f64| {
            let found = log_sum_exp(logits);
            assert!((found - expected).abs() < 1e-9, "{logits:?}: {found} not {expected}");
        };
        check(&[0.0, 0.0, f32::NEG_INFINITY, f32::NAN], 2f64.ln());
        check(&[1000.0, 1000.0], 1000.0 + 2f64.ln());
        check(&[-1000.0], -1000.0);
    }
}
