//! Log-probabilities of a turn's tokens, kept until they are reported with their text.

use std::collections::VecDeque;

use alara_text::request::{Logprob, TokenLogprobs};
use alara_text::tokenizer::Tokenizer;

/// Records the log-probabilities of a turn's tokens.
#[derive(Debug, Default)]
pub struct Logprobs {
    /// How many of the most likely tokens are reported for each.
    top: usize,
    /// Whether to report the token that ends the turn too, and an incomplete character that a limit
    /// cut off.
    whole: bool,
    /// The logits for the next token; empty if it isn't sampled.
    logits: Vec<f32>,
    /// Tokens whose text has not been reported, each with its offset in the text.
    pending: VecDeque<(usize, TokenLogprobs)>,
    /// How many bytes of text the tokens decode to, and how many of these certainly belong to the
    /// answer:
    /// the possible beginning of a stop text doesn't.
    decoded: usize,
    released: usize,
}

impl Logprobs {
    /// A recorder that also reports the `top` most likely tokens.
    /// With `whole` it reports all tokens, even those without text.
    pub fn new(top: usize, whole: bool) -> Self {
        Logprobs { top, whole, ..Logprobs::default() }
    }

    /// Reads the model's original logits for the next token.
    pub fn read(&mut self, logits: &[f32], tokenizer: &Tokenizer) {
        self.logits.clear();
        self.logits.extend_from_slice(within(logits, tokenizer));
    }

    /// Records the next token: as sampled if its logits were read.
    pub fn note(&mut self, token: u32, tokenizer: &Tokenizer) {
        let noted = match self.logits.is_empty() {
            true => certain(token, tokenizer),
            false => of(token, &self.logits, self.top, tokenizer),
        };
        self.pending.push_back((self.decoded, noted));
        self.logits.clear();
    }

    /// Records the token that ends the turn, which has no text.
    pub fn note_end(&mut self, token: u32, tokenizer: &Tokenizer) {
        if self.whole {
            self.note(token, tokenizer);
        }
    }

    /// Records the length of the latest token's text in bytes.
    pub fn decoded(&mut self, length: usize) {
        self.decoded += length;
    }

    /// Records how many more bytes of the text belong to the answer.
    pub fn release(&mut self, length: usize) {
        self.released += length;
    }

    /// The tokens whose text begins in the part released since the last call.
    pub fn take(&mut self) -> Vec<TokenLogprobs> {
        let count = self.pending.iter().take_while(|(start, _)| *start < self.released).count();
        self.pending.drain(..count).map(|(_, token)| token).collect()
    }

    /// The tokens without text at the end of the turn, if they are reported.
    pub fn take_rest(&mut self) -> Vec<TokenLogprobs> {
        let rest = std::mem::take(&mut self.pending);
        rest.into_iter().filter(|_| self.whole).map(|(_, token)| token).collect()
    }
}

/// Records the log-probabilities of a prompt's tokens as its logits arrive.
#[derive(Debug)]
pub struct PromptLogprobs {
    top: usize,
    tokens: Vec<TokenLogprobs>,
}

impl PromptLogprobs {
    /// A recorder for a prompt that begins with `first`, with the `top` most likely tokens.
    pub fn new(top: usize, first: u32, tokenizer: &Tokenizer) -> Self {
        PromptLogprobs { top, tokens: vec![certain(first, tokenizer)] }
    }

    /// Records the next token with the logits after the one before it.
    pub fn note(&mut self, token: u32, logits: &[f32], tokenizer: &Tokenizer) {
        self.tokens.push(of(token, within(logits, tokenizer), self.top, tokenizer));
    }

    /// All recorded tokens.
    pub fn into_tokens(self) -> Vec<TokenLogprobs> {
        self.tokens
    }
}

/// Drops the logits of rows beyond the vocabulary.
fn within<'l>(logits: &'l [f32], tokenizer: &Tokenizer) -> &'l [f32] {
    &logits[..tokenizer.len().min(logits.len())]
}

/// A forced token.
fn certain(token: u32, tokenizer: &Tokenizer) -> TokenLogprobs {
    TokenLogprobs { chosen: entry(token, 0.0, tokenizer), top: Vec::new() }
}

/// A token with the logits that it could be sampled from, and the `top` most likely ones.
fn of(token: u32, logits: &[f32], top: usize, tokenizer: &Tokenizer) -> TokenLogprobs {
    let total = log_sum_exp(logits);
    let chosen = logits.get(token as usize).map_or(f64::NEG_INFINITY, |&logit| f64::from(logit));
    let top = top_k(logits, top).into_iter();
    TokenLogprobs {
        chosen: entry(token, chosen - total, tokenizer),
        top: top.map(|(logit, token)| entry(token, f64::from(logit) - total, tokenizer)).collect(),
    }
}

fn entry(token: u32, logprob: f64, tokenizer: &Tokenizer) -> Logprob {
    let logprob = if logprob >= f64::from(Logprob::LEAST) { logprob as f32 } else { Logprob::LEAST };
    Logprob { token, bytes: tokenizer.token_bytes(token).to_vec(), logprob }
}

/// The logarithm of the sum of the exponentials, without overflow.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let finite = || logits.iter().copied().filter(|logit| logit.is_finite());
    let most = finite().fold(f32::NEG_INFINITY, f32::max);
    f64::from(most) + finite().map(|logit| f64::from((logit - most).exp())).sum::<f64>().ln()
}

/// The top `count` finite logits with their tokens, in descending order, equal ones by token.
fn top_k(logits: &[f32], count: usize) -> Vec<(f32, u32)> {
    let mut top: Vec<(f32, u32)> = Vec::with_capacity(count + 1);
    if count == 0 {
        return top;
    }
    for (&logit, token) in logits.iter().zip(0..) {
        let is_above = |other: &(f32, u32)| other.0 >= logit;
        if !logit.is_finite() || top.len() == count && top.last().is_some_and(is_above) {
            continue;
        }
        top.insert(top.partition_point(is_above), (logit, token));
        top.truncate(count);
    }
    top
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
