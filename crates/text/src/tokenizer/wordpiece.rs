//! BERT's WordPiece: removes accents and case from text, splits it at whitespace, punctuation and
//! Han characters, and words into the longest pieces.
//! Decoding doesn't restore the original text.
//!
//! In files, a piece that begins a word has U+2581 before it, and one that continues a word is
//! bare.

use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::{
    NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
};

use super::TokenizerError;
use super::kind::Algorithm;
use super::prefixes::Prefixes;
use super::spm::SPACE;
use super::vocabulary::{TokenKind, Vocabulary};
use crate::gguf::Gguf;
use crate::request::Until;

/// Longest word, in characters.
/// Longer words become the unknown token.
const LONGEST_WORD: usize = 100;
/// Minimum size of a piece, in bytes.
const PIECE: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct WordPiece {
    pieces: Prefixes,
    /// The token for words that can't be composed of pieces.
    unknown: u32,
    lowercase: bool,
    strip_accents: bool,
}

impl WordPiece {
    pub(super) fn new(
        gguf: &Gguf,
        vocabulary: &Vocabulary,
        unknown: u32,
    ) -> Result<WordPiece, TokenizerError> {
        let metadata = gguf.metadata();
        let lowercase = metadata.bool("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
        let strip_accents = metadata.bool("tokenizer.ggml.normalizer.strip_accents")?.unwrap_or(lowercase);
        let normal = vocabulary.iter().filter(|token| token.2 == TokenKind::Normal);
        let pieces = Prefixes::new(normal.map(|(id, text, _)| (text.as_bytes(), id)));
        Ok(WordPiece { pieces, unknown, lowercase, strip_accents })
    }

    fn words(&self, text: &str) -> tokenizers::Result<PreTokenizedString> {
        let mut normalized = NormalizedString::from(text);
        BertNormalizer::new(true, true, Some(self.strip_accents), self.lowercase)
            .normalize(&mut normalized)?;
        let mut words = PreTokenizedString::from(normalized);
        BertPreTokenizer.pre_tokenize(&mut words)?;
        Ok(words)
    }

    /// Appends the pieces of a word, each the longest match.
    fn spell(&self, word: &str, ids: &mut Vec<u32>) {
        let before = ids.len();
        let written = format!("{SPACE}{word}");
        let mut left = written.as_bytes();
        while !left.is_empty() {
            match self.pieces.of(left).last() {
                Some((length, id)) if word.chars().count() <= LONGEST_WORD => {
                    ids.push(id);
                    left = &left[length..];
                }
                _ => {
                    ids.truncate(before);
                    return ids.push(self.unknown);
                }
            }
        }
    }
}

/// Splits the text into pieces of at least [`PIECE`] bytes that end before whitespace, as words do:
/// normalization can't be interrupted within a piece.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let from = text.ceil_char_boundary(PIECE);
        let end = text[from..].find(' ').map_or(text.len(), |at| from + at);
        let (piece, rest) = text.split_at(end);
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

impl Algorithm for WordPiece {
    fn name(&self) -> &'static str {
        "wordpiece"
    }

    fn options(&self) -> String {
        format!("{} {} {}", self.unknown, self.lowercase, self.strip_accents)
    }

    fn space_prefix(&self) -> bool {
        true
    }

    fn normalizes(&self) -> bool {
        true
    }

    fn encode(
        &self,
        _: &Vocabulary,
        text: &str,
        _: bool,
        until: &Until,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let problem = |error: tokenizers::Error| TokenizerError::Text { at: 0, problem: error.to_string() };
        for piece in pieces(text) {
            until.check()?;
            let words = self.words(piece).map_err(problem)?;
            let words = words.get_splits(OffsetReferential::Normalized, OffsetType::Byte).into_iter();
            for (step, (word, ..)) in words.enumerate() {
                until.at_step(step)?;
                self.spell(word, ids);
            }
        }
        Ok(())
    }
}
