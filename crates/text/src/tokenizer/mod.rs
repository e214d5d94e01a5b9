//! From a file's metadata to tokens, and back to text.
//!
//! Owns vocabulary, splitting rules and special tokens.
//! `kind` has the algorithms by the names that files give them.
//! Pairs are merged by `tokenizers`' BPE model.
//! Cutting text at special tokens and into words is done here, because messages' content must never
//! become a control token.
//! So are the other algorithms.
//! Knows nothing of templates, and of models just what their architecture file says.

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

/// Apart from `Core`, which the environment itself holds.
struct EnvCell(OnceLock<TokEnv>);

impl fmt::Debug for EnvCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnvCell")
    }
}

#[derive(Debug)]
struct Core {
    vocabulary: Vocabulary,
    /// Finds what only prompts may contain: control tokens and the unknown token.
    control: Finder,
    /// Finds user-defined tokens.
    user_defined: Finder,
    roles: Roles,
    algorithm: Box<dyn Algorithm>,
    /// Most bytes of a text that one token covers.
    longest: usize,
    /// Ids that mean nothing.
    unused: Vec<u32>,
    /// A bit for each other id: bit `id % 32` of word `id / 32`.
    candidates: Vec<u32>,
    /// The same without tokens that end a turn.
    endless: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    /// What stands after a whole text.
    last: Option<u32>,
    note: Option<String>,
    fingerprint: [u8; 32],
}

impl Tokenizer {
    /// Reads `tokenizer.ggml.*`, and takes from `facts` what the file leaves out.
    /// Accepted are BPE by merges (`gpt2`, `gemma4`, `whitespace`) with a known
    /// `tokenizer.ggml.pre`, and SentencePiece's BPE (`llama`) and unigram model (`t5`).
    /// So are WordPiece (`bert`), and those of RWKV (`rwkv`) and PLaMo 2 (`plamo2`).
    ///
    /// # Errors
    /// If the kind of tokenizer or its splitting rule is not known, or the lists are incomplete or
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

    /// This tokenizer, but encoding ends with [`TokenizerError::Over`] once `until` is over.
    #[must_use]
    pub fn until(&self, until: &Until) -> Tokenizer {
        Tokenizer { until: until.clone(), ..self.clone() }
    }

    /// How many bytes a text has at most that so many tokens stand for.
    pub fn most_bytes(&self, tokens: usize) -> usize {
        tokens.saturating_mul(self.core.longest)
    }

    /// How many tokens stand at least for a text of so many bytes.
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

    /// Tokens of a whole text for a model that was not trained to go on with it, such as one for
    /// embeddings.
    /// BOS stands before it and a separator or EOS after it, where the model wants them.
    ///
    /// # Errors
    /// If the vocabulary has no tokens for the text.
    pub fn encode_whole(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, TokenizerError> {
        let first = self.core.bos.filter(|_| self.core.add_bos);
        let text = self.encode(text, parse_special)?;
        Ok(first.into_iter().chain(text).chain(self.core.last).collect())
    }

    /// The token that [`encode_whole`](Self::encode_whole) puts after a text, if it does.
    pub fn closing(&self) -> Option<u32> {
        self.core.last
    }

    /// Tokens of a text that stands within another one.
    /// Control tokens are recognized.
    ///
    /// # Errors
    /// If the vocabulary has no tokens for the text.
    pub fn encode_within(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.core.encode(text, true, false, &self.until)
    }

    /// Tokens of a rendered prompt: control tokens are recognized, and BOS stands at the beginning
    /// if the model wants it.
    ///
    /// Each of `placeholders` is a character in place of a text which must stay plain text.
    /// The text is cut at control tokens first and the characters are replaced after that.
    /// No user-defined token reaches into what they are replaced by.
    /// So what a message contains can't become a control token, nor a mark of the template.
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

    /// The text after encoding and decoding: `text` itself, if the vocabulary is whole.
    /// (SentencePiece writes spaces as U+2581, so this character comes back as a space. Where it
    /// puts a space before text, that comes after special tokens too.)
    ///
    /// # Errors
    /// If the vocabulary has no tokens for the text.
    pub fn round_trip(&self, text: &str) -> Result<String, TokenizerError> {
        Ok(self.decode(&self.encode(text, false)?, true))
    }

    /// The text of tokens; bytes that are not UTF-8 become U+FFFD.
    /// Control tokens are left out unless `show_special`.
    /// Where the model puts a space before text, the first token loses it again.
    pub fn decode(&self, ids: &[u32], show_special: bool) -> String {
        let bytes: Vec<u8> = (ids.iter().enumerate())
            .flat_map(|(index, &id)| self.core.shown_bytes(id, show_special, index == 0))
            .copied()
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// For tokens that arrive one by one; control tokens are left out.
    pub fn stream(&self) -> DecodeStream {
        DecodeStream::new(self.core.clone())
    }

    /// What a token stands for: its bytes in text, or its name if it is special.
    /// Empty for an id beyond the vocabulary.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.core.vocabulary.bytes(id)
    }

    /// The token as the vocabulary writes it, for example `Ġthe`.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.core.vocabulary.texts.get(id as usize)
    }

    /// The token that the vocabulary writes so, an ordinary one if there is one.
    /// Looks through all of them.
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

    /// Texts that a prompt's plain text must not contain unprotected: in it they are control
    /// tokens, or the unknown one.
    pub fn control_texts(&self) -> impl Iterator<Item = &str> {
        let special = |kind| matches!(kind, TokenKind::Control | TokenKind::Unknown);
        self.core.vocabulary.iter().filter(move |token| special(token.2)).map(|token| token.1)
    }

    /// User-defined tokens that look like marks: `<tool_call>`, but no white space, no word and no
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

    /// Makes tokens that mean nothing impossible to sample: unused ones, and rows of the embedding
    /// without a token.
    /// If `endless`, those that end a turn too.
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

    /// The tokens that [`Tokenizer::mask`] leaves: bit `id % 32` of word `id / 32`.
    pub fn candidates(&self, endless: bool) -> &[u32] {
        if endless { &self.core.endless } else { &self.core.candidates }
    }

    /// What a token is for.
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

    /// What a person should know: special tokens that the file names, but its vocabulary doesn't
    /// have.
    /// They count as not named.
    pub fn note(&self) -> Option<&str> {
        self.core.note.as_deref()
    }

    /// The token that begins a text, where the file names one.
    pub fn bos(&self) -> Option<u32> {
        self.core.bos
    }

    /// The token that ends a text, where the file names one.
    /// An answer may end with others too: [`is_end_of_turn`](Self::is_end_of_turn).
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

    /// Whether the model wants texts to begin with BOS.
    pub fn add_bos(&self) -> bool {
        self.core.add_bos
    }

    /// Name of the algorithm: `bpe`, `sentencepiece`, `wordpiece`, `unigram`, `rwkv` or `plamo2`.
    pub fn algorithm(&self) -> &'static str {
        self.core.algorithm.name()
    }

    /// Whether text is changed before it is cut into tokens, so that it does not come back as it
    /// was: case and accents, say.
    pub fn normalizes(&self) -> bool {
        self.core.algorithm.normalizes()
    }

    /// Name of the rule that cuts text into words, for example `qwen2`.
    /// Only BPE has one.
    pub fn pre_tokenizer(&self) -> Option<&'static str> {
        self.core.algorithm.pre_tokenizer()
    }

    /// SHA-256 of all that decides which tokens a text becomes: texts, kinds and scores of the
    /// tokens, merges, and rules.
    /// Two tokenizers of one fingerprint agree on every text.
    pub fn fingerprint(&self) -> [u8; 32] {
        self.core.fingerprint
    }

    /// The vocabulary as a trie for grammars.
    /// Built at the first call (some 0.3 s for 150 000 tokens), then shared.
    pub fn env(&self) -> TokEnv {
        self.env.0.get_or_init(|| env::build(&self.core)).clone()
    }
}

impl Core {
    /// `prefix`: the text stands at the beginning, not within one.
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

    /// Text without control tokens; in the ranges of `plain` without user-defined ones too.
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

    /// `first`: no token stands before it.
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

/// The bits without those of these tokens.
fn without(bits: &[u32], tokens: &[u32]) -> Vec<u32> {
    let mut bits = bits.to_vec();
    for token in tokens {
        bits[*token as usize / 32] &= !(1 << (token % 32));
    }
    bits
}

/// A bit for each token that means something.
fn candidates(vocabulary: &Vocabulary) -> Vec<u32> {
    let mut words = vec![0; vocabulary.len().div_ceil(32)];
    for token in vocabulary.iter().filter(|token| token.2 != TokenKind::Unused) {
        words[token.0 as usize / 32] |= 1 << (token.0 % 32);
    }
    words
}

/// The text with what placeholders stand for, and where that is.
fn replace(text: &str, placeholders: &[(char, String)]) -> (String, Vec<Range<usize>>) {
    let (mut replaced, mut ranges) = (String::with_capacity(text.len()), Vec::new());
    let first = placeholders.iter().map(|(placeholder, _)| *placeholder).min();
    for letter in text.chars() {
        // Most letters come before all of them, so that they need no search.
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
