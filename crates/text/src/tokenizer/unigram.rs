//! SentencePiece's unigram model, as in T5 and XLM-RoBERTa: of all segmentations of a text into
//! pieces the most likely one.
//!
//! Source: `unigram_model.cc` and `normalizer.cc` of SentencePiece.
//! A score is the logarithm of a piece's probability.

use super::TokenizerError;
use super::charsmap::CharsMap;
use super::kind::Algorithm;
use super::prefixes::Prefixes;
use super::spm::{self, SPACE};
use super::vocabulary::{TokenKind, Vocabulary};
use crate::gguf::Gguf;
use crate::request::{Over, Until};

/// How far the score of a character without a piece is below that of the worst piece.
const UNKNOWN_PENALTY: f64 = 10.0;

#[derive(Debug)]
pub(super) struct Unigram {
    pieces: Prefixes,
    /// The token of each byte, 256, if there are any.
    bytes: Vec<Option<u32>>,
    unknown: u32,
    unknown_score: f64,
    characters: Option<CharsMap>,
    space_prefix: bool,
    /// Whether runs of spaces are collapsed and trimmed at the ends.
    single_spaces: bool,
}

/// The best segmentation up to a position in the text.
#[derive(Clone, Copy)]
struct BestEnd {
    from: usize,
    token: Option<u32>,
    score: f64,
}

impl Unigram {
    /// `unknown` is the token for characters without a piece.
    pub(super) fn new(gguf: &Gguf, vocabulary: &Vocabulary, unknown: u32) -> Result<Unigram, TokenizerError> {
        let metadata = gguf.metadata();
        let key = "tokenizer.ggml.precompiled_charsmap";
        let table = metadata.bytes(key)?.filter(|table| !table.is_empty());
        let damaged = || TokenizerError::Vocabulary {
            file: gguf.name().to_owned(),
            problem: format!("{key} is no table of characters"),
        };
        let characters = table.map(|table| CharsMap::new(&table).ok_or_else(damaged)).transpose()?;
        let normal = || vocabulary.iter().filter(|token| token.2 == TokenKind::Normal);
        let scores = normal().filter_map(|(id, ..)| vocabulary.scores.get(id as usize));
        let worst = scores.copied().min_by(f32::total_cmp).unwrap_or(0.0);
        Ok(Unigram {
            pieces: Prefixes::new(normal().map(|(id, text, _)| (text.as_bytes(), id))),
            bytes: vocabulary.byte_tokens(),
            unknown,
            unknown_score: f64::from(worst) - UNKNOWN_PENALTY,
            characters,
            space_prefix: metadata.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(false),
            single_spaces: metadata.bool("tokenizer.ggml.remove_extra_whitespaces")?.unwrap_or(false),
        })
    }

    fn normalize(&self, text: &str, prefix: bool) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut left = text;
        while let Some(letter) = left.chars().next() {
            let found = self.characters.as_ref().and_then(|characters| characters.longest(left));
            let (length, replacement) = found.unwrap_or((letter.len_utf8(), &left[..letter.len_utf8()]));
            replaced.push_str(replacement);
            left = &left[length..];
        }
        if self.single_spaces {
            replaced = replaced.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        }
        let mut written = String::with_capacity(replaced.len() + replaced.len() / 2);
        if prefix && self.space_prefix && !replaced.is_empty() {
            written.push(SPACE);
        }
        written.extend(replaced.chars().map(spm::written));
        written
    }

    /// The most likely pieces: for each position of the text the best piece that ends there.
    /// A character without a piece has no token.
    ///
    /// # Errors
    /// [`Over`], once `until` ends.
    fn best(&self, scores: &[f32], text: &str, until: &Until) -> Result<Vec<BestEnd>, Over> {
        let nothing = BestEnd { from: 0, token: None, score: f64::NEG_INFINITY };
        let mut steps = vec![nothing; text.len() + 1];
        steps[0].score = 0.0;
        for (step, (from, letter)) in text.char_indices().enumerate() {
            until.at_step(step)?;
            let before = steps[from].score;
            let mut reach = |length: usize, token, score: f64| {
                let step = BestEnd { from, token, score: before + score };
                if step.score > steps[from + length].score {
                    steps[from + length] = step;
                }
            };
            let mut alone = false;
            for (length, id) in self.pieces.of(&text.as_bytes()[from..]) {
                alone |= length == letter.len_utf8();
                reach(length, Some(id), scores.get(id as usize).map_or(0.0, |&score| f64::from(score)));
            }
            if !alone {
                reach(letter.len_utf8(), None, self.unknown_score);
            }
        }
        let mut path = Vec::new();
        let mut at = text.len();
        while at > 0 {
            path.push(steps[at]);
            at = steps[at].from;
        }
        path.reverse();
        Ok(path)
    }
}

impl Algorithm for Unigram {
    fn name(&self) -> &'static str {
        "unigram"
    }

    fn options(&self) -> String {
        format!("{} {} {} {:?}", self.unknown, self.space_prefix, self.single_spaces, self.characters)
    }

    fn space_prefix(&self) -> bool {
        self.space_prefix
    }

    fn normalizes(&self) -> bool {
        self.characters.is_some() || self.single_spaces
    }

    // A run of characters without a piece is one token.
    fn keeps_bytes(&self) -> bool {
        false
    }

    fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        prefix: bool,
        until: &Until,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let text = self.normalize(text, prefix);
        let path = self.best(&vocabulary.scores, &text, until)?;
        let ends = path.iter().skip(1).map(|step| step.from).chain([text.len()]);
        let mut unknown = false;
        for (step, end) in path.iter().zip(ends) {
            let bytes: Option<Vec<u32>> =
                text[step.from..end].bytes().map(|byte| self.bytes[usize::from(byte)]).collect();
            match (step.token, bytes) {
                (Some(id), _) => ids.push(id),
                (None, Some(bytes)) => ids.extend(bytes),
                // A run of them is one token.
                (None, None) if unknown => {}
                (None, None) => ids.push(self.unknown),
            }
            unknown = step.token.is_none();
        }
        Ok(())
    }
}
