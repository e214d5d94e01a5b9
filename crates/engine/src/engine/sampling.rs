//! From what a request says of texts to what a sampler knows of tokens.

use crate::Result;
use crate::request::{Biased, Sampling};
use crate::sampler::{Breakers, Sampler};
use crate::tokenizer::Tokenizer;

/// Most tokens of a breaker.
const LONGEST: usize = 20;

/// The sampler of a turn.
/// A biased text is each of its tokens, as llama.cpp takes it.
///
/// # Errors
/// If the vocabulary has no tokens for a text.
pub fn sampler(sampling: &Sampling, tokenizer: &Tokenizer) -> Result<Sampler> {
    let mut logit_bias = Vec::with_capacity(sampling.logit_bias.len());
    for (of, bias) in &sampling.logit_bias {
        let tokens = match of {
            Biased::Token(token) => vec![*token],
            Biased::Text(text) => tokenizer.encode_within(text)?,
        };
        logit_bias.extend(tokens.into_iter().map(|token| (Biased::Token(token), *bias)));
    }
    let sampler = Sampler::new(&Sampling { logit_bias, ..sampling.clone() });
    Ok(match sampling.dry_multiplier == 0.0 {
        true => sampler,
        false => sampler.with_breakers(breakers(&sampling.dry_sequence_breakers, tokenizer)?),
    })
}

/// The breakers that `texts` are: every token that contains one.
/// A token that ends with the beginning of one is one too, together with the tokens of its rest.
/// Source: `get_overlapping_token_sequences` of llama.cpp.
fn breakers(texts: &[String], tokenizer: &Tokenizer) -> Result<Breakers> {
    let mut sequences = Vec::new();
    for text in texts.iter().filter(|text| !text.is_empty()) {
        for token in 0..tokenizer.len() as u32 {
            let bytes = tokenizer.token_bytes(token);
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                sequences.push(vec![token]);
                continue;
            }
            let begins = |&at: &usize| bytes.ends_with(&text.as_bytes()[..at]);
            for at in (1..text.len()).filter(|&at| text.is_char_boundary(at)).filter(begins) {
                let rest = tokenizer.encode_within(&text[at..])?;
                sequences.push(std::iter::once(token).chain(rest).take(LONGEST).collect());
            }
        }
    }
    Ok(Breakers::new(sequences))
}
