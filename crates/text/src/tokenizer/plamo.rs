//! PLaMo 2's tokenizer: of all segmentations of a text into pieces the one with the highest sum of
//! scores.
//! Characters that score better that way become bytes.
//!
//! Scores are integers, in ten-thousandths.
//! Of two equal segmentations, the one with the longer first piece wins.

use super::TokenizerError;
use super::kind::Algorithm;
use super::prefixes::Prefixes;
use super::vocabulary::{TokenKind, Vocabulary};
use crate::gguf::Gguf;
use crate::request::Until;

/// Score of a character that is written in bytes.
const UNKNOWN: i64 = -10_000_000;
/// A piece with a lower score is ignored.
const LEAST: i64 = -20_000_000;

#[derive(Debug)]
pub(super) struct Plamo {
    pieces: Prefixes,
    /// The token of each byte, 256.
    bytes: Vec<u32>,
}

impl Plamo {
    pub(super) fn new(gguf: &Gguf, vocabulary: &Vocabulary) -> Result<Plamo, TokenizerError> {
        let normal = vocabulary.iter().filter(|token| token.2 == TokenKind::Normal);
        let pieces = Prefixes::new(normal.map(|(id, text, _)| (text.as_bytes(), id)));
        let bytes = vocabulary.byte_tokens().into_iter().enumerate().map(|(byte, id)| {
            id.ok_or_else(|| TokenizerError::Vocabulary {
                file: gguf.name().to_owned(),
                problem: format!("there is no token <0x{byte:02X}>"),
            })
        });
        Ok(Plamo { pieces, bytes: bytes.collect::<Result<_, _>>()? })
    }
}

impl Algorithm for Plamo {
    fn name(&self) -> &'static str {
        "plamo2"
    }

    fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        _: bool,
        until: &Until,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let score = |id: u32| {
            let score = vocabulary.scores.get(id as usize).filter(|score| score.is_finite());
            score.map_or(LEAST, |score| (f64::from(*score) * 1e4).round() as i64)
        };
        // For each position: the best score from there to the end, and its first piece.
        let mut best: Vec<(i64, usize, Option<u32>)> = vec![(0, 0, None); text.len() + 1];
        for (step, (from, letter)) in text.char_indices().rev().enumerate() {
            until.at_step(step)?;
            let pieces =
                self.pieces.of(&text.as_bytes()[from..]).map(|(length, id)| (score(id), length, Some(id)));
            let pieces = pieces.filter(|piece| piece.0 > LEAST);
            let ways = [(UNKNOWN, letter.len_utf8(), None)].into_iter().chain(pieces);
            let ways =
                ways.map(|(score, length, id)| (score.saturating_add(best[from + length].0), length, id));
            if let Some(way) = ways.max_by_key(|way| (way.0, way.1, way.2.is_some())) {
                best[from] = way;
            }
        }
        let mut at = 0;
        while at < text.len() {
            let (_, length, id) = best[at];
            match id {
                Some(id) => ids.push(id),
                None => ids.extend(text[at..at + length].bytes().map(|byte| self.bytes[usize::from(byte)])),
            }
            at += length;
        }
        Ok(())
    }
}
