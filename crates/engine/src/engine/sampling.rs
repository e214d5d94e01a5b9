//! Converts the texts in a request's sampling options to tokens for the sampler.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use alara_text::request::{Biased, Sampling, Until};
use alara_text::sampler::{self, Sampler};
use alara_text::tokenizer::Tokenizer;

use crate::{Error, Result};

/// Most bytes of a breaker that count, and most tokens of one, as in llama.cpp
/// (`llama_sampler_init_dry`).
const LONGEST_TEXT: usize = 40;
const LONGEST: usize = 20;
/// How many breakers are cached.
const REMEMBERED: usize = 64;

/// Token sequences that form a breaker.
type Sequences = Arc<[Box<[u32]>]>;

/// Cache of DRY's breakers by text, most recently used last: each requires a scan of the whole
/// vocabulary.
#[derive(Debug, Default)]
pub struct Breakers {
    known: Mutex<Vec<(String, Sequences)>>,
}

impl Breakers {
    /// Builds the sampler of a turn.
    /// A biased text biases each of its tokens, as in llama.cpp.
    ///
    /// # Errors
    /// If the vocabulary has no tokens for a text, there are too many breakers, or the request has
    /// ended.
    pub fn sampler(&self, sampling: &Sampling, tokenizer: &Tokenizer, until: &Until) -> Result<Sampler> {
        let tokenizer = &tokenizer.until(until);
        let logit_bias = biases(&sampling.logit_bias, tokenizer, until)?;
        let sampler = Sampler::new(&Sampling { logit_bias, ..sampling.clone() });
        let texts = &sampling.dry_sequence_breakers;
        if sampling.dry_multiplier == 0.0 {
            return Ok(sampler);
        }
        if texts.len() > Sampling::MOST_BREAKERS {
            let (most, all) = (Sampling::MOST_BREAKERS, texts.len());
            let reason = format!("dry_sequence_breakers has {all} texts; the most is {most}");
            return Err(Error::InvalidRequest { reason });
        }
        let all = texts.iter().map(|text| self.sequences(text, tokenizer, until));
        let all = all.collect::<Result<Vec<Sequences>>>()?;
        let sequences = all.iter().flat_map(|sequences| sequences.iter().map(AsRef::as_ref));
        Ok(sampler.with_breakers(sampler::Breakers::new(sequences)))
    }

    fn sequences(&self, text: &str, tokenizer: &Tokenizer, until: &Until) -> Result<Sequences> {
        let text = &text[..text.floor_char_boundary(LONGEST_TEXT)];
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let find = |known: &mut Vec<(String, Sequences)>| {
            let at = known.iter().position(|(other, _)| other == text)?;
            let found = known.remove(at);
            known.push(found.clone());
            Some(found.1)
        };
        if let Some(sequences) = find(&mut known()) {
            return Ok(sequences);
        }
        // Computed without holding the lock.
        let sequences: Sequences = breaker(text, tokenizer, until)?.into();
        let mut known = known();
        if known.len() >= REMEMBERED {
            known.remove(0);
        }
        known.push((text.to_owned(), sequences.clone()));
        Ok(sequences)
    }
}

/// Converts the biases to one per token.
fn biases(given: &[(Biased, f32)], tokenizer: &Tokenizer, until: &Until) -> Result<Vec<(Biased, f32)>> {
    let mut biases: Vec<(Biased, f32)> = Vec::new();
    let mut places = HashMap::new();
    for (step, (of, bias)) in given.iter().enumerate() {
        until.at_step(step)?;
        let tokens = match of {
            Biased::Token(token) => vec![*token],
            Biased::Text(text) => tokenizer.encode_within(text)?,
        };
        for token in tokens {
            match places.entry(token) {
                Entry::Vacant(place) => {
                    place.insert(biases.len());
                    biases.push((Biased::Token(token), *bias));
                }
                Entry::Occupied(place) => {
                    let known = &mut biases[*place.get()].1;
                    let banned = *known <= Sampling::BANNED || *bias <= Sampling::BANNED;
                    // Biases that don't ban a token individually don't ban it together.
                    let sum = (*known + bias).max(Sampling::BANNED.next_up());
                    *known = if banned { Sampling::BANNED } else { sum };
                }
            }
        }
    }
    Ok(biases)
}

/// The token sequences for a breaker: every token that contains its text.
/// A token that ends with the beginning of the text also counts, followed by the tokens of the
/// rest.
/// Source: `get_overlapping_token_sequences` of llama.cpp.
fn breaker(text: &str, tokenizer: &Tokenizer, until: &Until) -> Result<Vec<Box<[u32]>>> {
    let mut sequences = Vec::new();
    if text.is_empty() {
        return Ok(sequences);
    }
    // The tokens of the text's remainder at each position, computed on demand.
    let mut rests: Vec<Option<Vec<u32>>> = vec![None; text.len()];
    for token in 0..tokenizer.len() as u32 {
        until.at_step(token as usize)?;
        let bytes = tokenizer.token_bytes(token);
        if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
            sequences.push([token].into());
            continue;
        }
        let begins = |&at: &usize| text.is_char_boundary(at) && bytes.ends_with(&text.as_bytes()[..at]);
        for at in (1..text.len()).filter(begins) {
            let rest = match &mut rests[at] {
                Some(rest) => rest,
                unknown => unknown.insert(tokenizer.encode_within(&text[at..])?),
            };
            sequences.push(std::iter::once(token).chain(rest.iter().copied()).take(LONGEST).collect());
        }
    }
    Ok(sequences)
}

#[cfg(test)]
#[path = "sampling_tests.rs"]
mod tests;
