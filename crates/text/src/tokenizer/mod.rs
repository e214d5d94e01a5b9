//! Builds a tokenizer from a file's metadata, encodes text and decodes tokens.
//!
//! Owns vocabulary, splitting rules and special tokens.
//! `kind` selects an algorithm by its name in files.
//! `tokenizers`' BPE model merges pairs.
//! This module itself splits text at special tokens and into words, because the content of messages
//! must never become a control token.
//! It also implements the other algorithms.
//! Knows nothing of templates, and of models only the facts in their architecture file.

mod alphabet;
mod bpe;
mod charsmap;
mod env;
mod error;
mod facts;
mod fingerprint;
mod kind;
mod plamo;
mod prefixes;
mod pretokenizer;
mod retype;
mod rwkv;
mod special;
mod spm;
mod stream;
mod unigram;
mod vocabulary;
mod wordpiece;

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use toktrie::TokEnv;

pub use error::TokenizerError;
pub use facts::TokenizerFacts;
pub use stream::DecodeStream;
pub use vocabulary::TokenKind;

use crate::gguf::{Gguf, Strings};
use crate::request::Until;
use kind::{Algorithm, TokenizerParts};
use special::{Finder, Roles, SpecialSplit};
use vocabulary::Vocabulary;

/// The tokenizer of a model.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    core: Arc<Core>,
    env: Arc<EnvCell>,
    until: Until,
}

/// Separate from `Core`, which the environment itself holds.
struct EnvCell(OnceLock<TokEnv>);

impl fmt::Debug for EnvCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnvCell")
    }
}

#[derive(Debug)]
struct Core {
    vocabulary: Vocabulary,
    /// Finds tokens that only prompts may contain: control tokens and the unknown token.
    control: Finder,
    /// Finds user-defined tokens.
    user_defined: Finder,
    roles: Roles,
    algorithm: Box<dyn Algorithm>,
    /// Most bytes of a text that one token covers.
    longest: usize,
    /// Ids of unused tokens.
    unused: Vec<u32>,
    /// A bit for each other id: bit `id % 32` of word `id / 32`.
    candidates: Vec<u32>,
    /// The candidates without tokens that end a turn.
    endless: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    /// The token after a whole text.
    last: Option<u32>,
    note: Option<String>,
    fingerprint: [u8; 32],
}

impl Tokenizer {
    /// Reads `tokenizer.ggml.*`, and takes values that the file omits from `facts`.
    /// Supports BPE with merges (`gpt2`, `gemma4`, `whitespace`) with a known `tokenizer.ggml.pre`,
    /// SentencePiece's BPE (`llama`) and unigram model (`t5`),
    /// WordPiece (`bert`), and the tokenizers of RWKV (`rwkv`) and PLaMo 2 (`plamo2`).
    ///
    /// # Errors
    /// If the kind of tokenizer or its splitting rule is unknown, or the lists are incomplete or
    /// contradict each other.
    pub fn with_facts(gguf: &Gguf, facts: &TokenizerFacts) -> Result<Tokenizer, TokenizerError> {
        let TokenizerParts { vocabulary, spelling, algorithm, bos, add_bos, last } =
            kind::build(gguf, facts)?;
        let merges = gguf.metadata().strings("tokenizer.ggml.merges")?;
        let none = Strings::default();
        let finder = |kinds: &[TokenKind]| {
            Finder::new(&vocabulary, |kind| kinds.contains(&kind)).map_err(|e| TokenizerError::Vocabulary {
                file: gguf.name().to_owned(),
                problem: format!("special tokens: {e}"),
            })
        };
        let roles = Roles::read(gguf, &vocabulary, spelling, last)?;
        let candidates = candidates(&vocabulary);
        let core = Core {
            longest: if algorithm.keeps_bytes() { vocabulary.longest() } else { vocabulary::LONGEST },
            control: finder(&[TokenKind::Control, TokenKind::Unknown])?,
            user_defined: finder(&[TokenKind::UserDefined])?,
            unused: vocabulary
                .iter()
                .filter(|token| token.2 == TokenKind::Unused)
                .map(|token| token.0)
                .collect(),
            endless: without(&candidates, &roles.ends),
            candidates,
            roles,
            bos,
            last,
            eos: special::named(gguf, "tokenizer.ggml.eos_token_id", vocabulary.len())?,
            add_bos,
            note: special::note(gguf, vocabulary.len()),
            fingerprint: fingerprint::of(&vocabulary, &*algorithm, merges.unwrap_or(&none)),
            vocabulary,
            algorithm,
        };
        let env = Arc::new(EnvCell(OnceLock::new()));
        Ok(Tokenizer { core: Arc::new(core), env, until: Until::default() })
    }

    /// Returns the tokenizer, with encoding failing as [`TokenizerError::Over`] once `until` ends.
    #[must_use]
    pub fn until(&self, until: &Until) -> Tokenizer {
        Tokenizer { until: until.clone(), ..self.clone() }
    }

    /// The most bytes of a text that this many tokens can represent.
    pub fn most_bytes(&self, tokens: usize) -> usize {
        tokens.saturating_mul(self.core.longest)
    }

    /// The fewest tokens that can represent a text of this many bytes.
    pub fn fewest_tokens(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.core.longest)
    }

    /// Tokens of a text, without BOS.
    /// User-defined tokens are always recognized, control tokens only with `parse_special`.
    ///
    /// # Errors
    /// If the vocabulary has no tokens for the text.
    pub fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, TokenizerError> {
        self.core.encode(text, parse_special, true, &self.until)
    }

    /// Tokens of a whole text for a model that doesn't continue it, such as an embedding model.
    /// Adds BOS before it and a separator or EOS after it if the model expects them.
    ///
    /// # Errors
    /// If the vocabulary has no tokens for the text.
    pub fn encode_whole(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, TokenizerError> {
        let first = self.core.bos.filter(|_| self.core.add_bos);
        let text = self.encode(text, parse_special)?;
        Ok(first.into_iter().chain(text).chain(self.core.last).collect())
    }

    /// The token that [`encode_whole`](Self::encode_whole) appends to a text, if any.
    pub fn closing(&self) -> Option<u32> {
        self.core.last
    }

    /// Tokens of a text that is part of another one.
    /// Control tokens are recognized.
    ///
    /// # Errors
    /// If the vocabulary has no tokens for the text.
    pub fn encode_within(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.core.encode(text, true, false, &self.until)
    }

    /// Tokens of a rendered prompt: control tokens are recognized, and BOS is prepended if the
    /// model expects it.
    ///
    /// Each of `placeholders` is a character that replaces a text which must stay plain text.
    /// The text is first split at control tokens, then the characters are replaced.
    /// User-defined tokens don't match inside the replacements.
    /// So the content of a message can't become a control token, nor a mark of the template.
    ///
    /// # Errors
    /// If the vocabulary has no tokens for the text.
    pub fn encode_prompt(
        &self,
        text: &str,
        placeholders: &[(char, String)],
    ) -> Result<Vec<u32>, TokenizerError> {
        let core = &self.core;
        let mut ids = Vec::new();
        for (step, piece) in core.control.split(text, &[]).enumerate() {
            self.until.at_step(step)?;
            match piece {
                SpecialSplit::Token(id) => ids.push(id),
                SpecialSplit::Text(text) => {
                    let (text, plain) = replace(text, placeholders);
                    core.encode_text(&text, &plain, true, &self.until, &mut ids)?;
                }
            }
        }
        if let (true, Some(bos)) = (core.add_bos, core.bos)
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// The text after encoding and decoding: equals `text` if the vocabulary is complete.
    /// (SentencePiece writes spaces as U+2581, so this character is decoded as a space. If it adds
    /// a space before text, it does so after special tokens too.)
    ///
    /// # Errors
    /// If the vocabulary has no tokens for the text.
    pub fn round_trip(&self, text: &str) -> Result<String, TokenizerError> {
        Ok(self.decode(&self.encode(text, false)?, true))
    }

    /// The text of tokens; bytes that are not UTF-8 become U+FFFD.
    /// Control tokens are left out unless `show_special`.
    /// If the model adds a space before text, the first token loses it again.
    pub fn decode(&self, ids: &[u32], show_special: bool) -> String {
        let bytes: Vec<u8> = (ids.iter().enumerate())
            .flat_map(|(index, &id)| self.core.shown_bytes(id, show_special, index == 0))
            .copied()
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A decoder for tokens that arrive one by one; leaves out control tokens.
    pub fn stream(&self) -> DecodeStream {
        DecodeStream::new(self.core.clone())
    }

    /// The bytes of a token: its bytes in text, or its name if it is special.
    /// Empty for an id beyond the vocabulary.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.core.vocabulary.bytes(id)
    }

    /// The token's text in the vocabulary, for example `Ġthe`.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.core.vocabulary.texts.get(id as usize)
    }

    /// The token with this text in the vocabulary, preferably an ordinary one.
    /// A linear search.
    pub fn id(&self, text: &str) -> Option<u32> {
        let mut other = None;
        for (id, _, kind) in self.core.vocabulary.iter().filter(|token| token.1 == text) {
            if matches!(kind, TokenKind::Normal | TokenKind::Byte) {
                return Some(id);
            }
            other.get_or_insert(id);
        }
        other
    }

    /// Texts that must be protected in a prompt's plain text: they would become control tokens, or
    /// the unknown one.
    pub fn control_texts(&self) -> impl Iterator<Item = &str> {
        let special = |kind| matches!(kind, TokenKind::Control | TokenKind::Unknown);
        self.core.vocabulary.iter().filter(move |token| special(token.2)).map(|token| token.1)
    }

    /// User-defined tokens that look like marks: `<tool_call>`, but not whitespace, a word or a
    /// sign.
    pub fn marks(&self) -> impl Iterator<Item = &str> {
        let is_mark = |text: &&str| {
            let ends = [text.chars().next(), text.chars().next_back()];
            text.chars().any(char::is_alphanumeric)
                && ends
                    .iter()
                    .flatten()
                    .all(|end| !end.is_alphanumeric() && !end.is_whitespace() && *end != '▁')
        };
        let tokens = self.core.vocabulary.iter().filter(|token| token.2 == TokenKind::UserDefined);
        tokens.map(|token| token.1).filter(is_mark)
    }

    /// Masks tokens that must not be sampled: unused ones, and embedding rows without a token.
    /// With `endless`, also those that end a turn.
    pub fn mask(&self, logits: &mut [f32], endless: bool) {
        if let Some(padding) = logits.get_mut(self.len()..) {
            padding.fill(f32::NEG_INFINITY);
        }
        let ends = if endless { self.ends_of_turn() } else { &[] };
        for &id in self.core.unused.iter().chain(ends) {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }

    /// The tokens that [`Tokenizer::mask`] keeps: bit `id % 32` of word `id / 32`.
    pub fn candidates(&self, endless: bool) -> &[u32] {
        if endless { &self.core.endless } else { &self.core.candidates }
    }

    /// The kind of a token.
    /// `Unused` for an id beyond the vocabulary: models often have more rows than tokens, and such
    /// ids must not be sampled.
    pub fn kind(&self, id: u32) -> TokenKind {
        self.core.vocabulary.kind(id)
    }

    /// Number of tokens in the vocabulary.
    pub fn len(&self) -> usize {
        self.core.vocabulary.len()
    }

    /// Whether the vocabulary is empty.
    /// Never: such a file is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A warning for the user: special tokens that the file names, but its vocabulary doesn't have.
    /// They are treated as not named.
    pub fn note(&self) -> Option<&str> {
        self.core.note.as_deref()
    }

    /// The token that begins a text, if the file names one.
    pub fn bos(&self) -> Option<u32> {
        self.core.bos
    }

    /// The token that ends a text, if the file names one.
    /// An answer may end with other tokens too: [`is_end_of_turn`](Self::is_end_of_turn).
    pub fn eos(&self) -> Option<u32> {
        self.core.eos
    }

    /// Whether generation stops at this token.
    pub fn is_end_of_turn(&self, id: u32) -> bool {
        self.core.roles.ends.contains(&id)
    }

    /// All tokens at which generation stops, at least one; the file's EOS first.
    pub fn ends_of_turn(&self) -> &[u32] {
        &self.core.roles.ends
    }

    /// Whether the model expects texts to begin with BOS.
    pub fn add_bos(&self) -> bool {
        self.core.add_bos
    }

    /// Name of the algorithm: `bpe`, `sentencepiece`, `wordpiece`, `unigram`, `rwkv` or `plamo2`.
    pub fn algorithm(&self) -> &'static str {
        self.core.algorithm.name()
    }

    /// Whether text is changed before it is tokenized, for example in case and accents, so that
    /// decoding doesn't restore it.
    pub fn normalizes(&self) -> bool {
        self.core.algorithm.normalizes()
    }

    /// Name of the rule that splits text into words, for example `qwen2`.
    /// Only BPE has one.
    pub fn pre_tokenizer(&self) -> Option<&'static str> {
        self.core.algorithm.pre_tokenizer()
    }

    /// SHA-256 of everything that determines the tokens of a text: texts, kinds and scores of the
    /// tokens, merges, and rules.
    /// Two tokenizers with the same fingerprint agree on every text.
    pub fn fingerprint(&self) -> [u8; 32] {
        self.core.fingerprint
    }

    /// The vocabulary as a trie for grammars.
    /// Built on first use (about 0.3 s for 150 000 tokens), then shared.
    pub fn env(&self) -> TokEnv {
        self.env.0.get_or_init(|| env::build(&self.core)).clone()
    }
}

impl Core {
    /// `prefix` is set if the text is at the beginning, not within another one.
    fn encode(
        &self,
        text: &str,
        parse_special: bool,
        prefix: bool,
        until: &Until,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        if parse_special {
            for (step, piece) in self.control.split(text, &[]).enumerate() {
                until.at_step(step)?;
                match piece {
                    SpecialSplit::Token(id) => ids.push(id),
                    SpecialSplit::Text(text) => self.encode_text(text, &[], prefix, until, &mut ids)?,
                }
            }
        } else {
            self.encode_text(text, &[], prefix, until, &mut ids)?;
        }
        Ok(ids)
    }

    /// Encodes text without control tokens; in the ranges of `plain` without user-defined ones too.
    fn encode_text(
        &self,
        text: &str,
        plain: &[Range<usize>],
        prefix: bool,
        until: &Until,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        for (step, piece) in self.user_defined.split(text, plain).enumerate() {
            until.at_step(step)?;
            match piece {
                SpecialSplit::Token(id) => ids.push(id),
                SpecialSplit::Text(text) => {
                    self.algorithm.encode(&self.vocabulary, text, prefix, until, ids)?;
                }
            }
        }
        Ok(())
    }

    /// `first` is set if no token precedes it.
    fn shown_bytes(&self, id: u32, show_special: bool, first: bool) -> &[u8] {
        let kind = self.vocabulary.kind(id);
        let shown = match kind {
            TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte => true,
            _ => show_special || self.roles.visible.contains(&id),
        };
        let bytes = if shown { self.vocabulary.bytes(id) } else { &[] };
        if first && self.algorithm.space_prefix() && kind == TokenKind::Normal {
            return bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        bytes
    }
}

/// The bits with those of these tokens cleared.
fn without(bits: &[u32], tokens: &[u32]) -> Vec<u32> {
    let mut bits = bits.to_vec();
    for token in tokens {
        bits[*token as usize / 32] &= !(1 << (token % 32));
    }
    bits
}

/// A bit for each token that isn't unused.
fn candidates(vocabulary: &Vocabulary) -> Vec<u32> {
    let mut words = vec![0; vocabulary.len().div_ceil(32)];
    for token in vocabulary.iter().filter(|token| token.2 != TokenKind::Unused) {
        words[token.0 as usize / 32] |= 1 << (token.0 % 32);
    }
    words
}

/// The text with placeholders replaced, and the ranges of the replacements.
fn replace(text: &str, placeholders: &[(char, String)]) -> (String, Vec<Range<usize>>) {
    let (mut replaced, mut ranges) = (String::with_capacity(text.len()), Vec::new());
    let first = placeholders.iter().map(|(placeholder, _)| *placeholder).min();
    for letter in text.chars() {
        // Most characters sort before all placeholders, so they need no search.
        let some = first.is_some_and(|first| letter >= first);
        match placeholders.iter().filter(|_| some).find(|(placeholder, _)| *placeholder == letter) {
            Some((_, plain)) => {
                ranges.push(replaced.len()..replaced.len() + plain.len());
                replaced.push_str(plain);
            }
            None => replaced.push(letter),
        }
    }
    (replaced, ranges)
}
