//! SentencePiece's BPE: characters merged into the piece with the best score, and bytes for
//! characters without a piece.
//!
//! Source: `bpe_model.cc` of SentencePiece.
//! Of pairs with equal scores the leftmost is merged first.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

use super::TokenizerError;
use super::kind::Algorithm;
use super::vocabulary::{TokenKind, Vocabulary};
use crate::request::{Over, Until};

/// The character for a space in pieces.
pub(super) const SPACE: char = '\u{2581}';

/// The representation of a character in pieces.
pub(super) fn written(letter: char) -> char {
    if letter == ' ' { SPACE } else { letter }
}

#[derive(Debug)]
pub(super) struct Spm {
    /// Pieces that text is merged into: only ordinary ones, so that text can't be merged into a
    /// control token.
    ids: HashMap<Box<str>, u32>,
    /// The token of each byte, 256.
    bytes: Vec<Option<u32>>,
    /// Length of the longest piece in bytes.
    longest: usize,
    /// Whether a space is added before a text.
    space_prefix: bool,
}

/// A run of characters merged so far.
/// An empty symbol has been merged into another.
struct Symbol {
    start: usize,
    end: usize,
    /// Index of the symbol before, and after.
    before: usize,
    after: usize,
}

const NONE: usize = usize::MAX;

/// Two adjacent symbols that form a piece.
/// The greatest pair is merged next.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Length of both, which reveals whether one has been merged since.
    bytes: usize,
}

impl Pair {
    fn rank(&self) -> (f32, Reverse<usize>) {
        (self.score, Reverse(self.left))
    }
}

impl Ord for Pair {
    fn cmp(&self, other: &Pair) -> Ordering {
        let ((score, left), (others, others_left)) = (self.rank(), other.rank());
        score.total_cmp(&others).then(left.cmp(&others_left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Pair) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Pair) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

impl Spm {
    pub(super) fn new(vocabulary: &Vocabulary, space_prefix: bool) -> Spm {
        let mut ids: HashMap<Box<str>, u32> = HashMap::new();
        for (id, text, _) in vocabulary.iter().filter(|token| token.2 == TokenKind::Normal) {
            // If two tokens have the same text, the first wins.
            ids.entry(text.into()).or_insert(id);
        }
        let longest = ids.keys().map(|text| text.len()).max().unwrap_or(0);
        Spm { ids, bytes: vocabulary.byte_tokens(), longest, space_prefix }
    }

    /// The symbols that remain when no two adjacent ones form a piece.
    /// Takes O(n log n) steps for n characters.
    ///
    /// # Errors
    /// [`Over`], once `until` ends.
    fn merge(&self, scores: &[f32], text: &str, until: &Until) -> Result<impl Iterator<Item = Symbol>, Over> {
        let mut symbols: Vec<Symbol> = (text.char_indices().enumerate())
            .map(|(index, (start, letter))| Symbol {
                start,
                end: start + letter.len_utf8(),
                before: index.wrapping_sub(1),
                after: index + 1,
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.after = NONE;
        }
        let pair = |symbols: &[Symbol], left: usize, right: usize| {
            let piece = symbols.get(left)?.start..symbols.get(right)?.end;
            let bytes = piece.len();
            let id = if bytes > self.longest { None } else { self.ids.get(&text[piece]).copied() };
            Some(Pair { score: scores.get(id? as usize).copied().unwrap_or(0.0), left, right, bytes })
        };
        let mut queue: BinaryHeap<Pair> =
            (1..symbols.len()).filter_map(|right| pair(&symbols, right - 1, right)).collect();
        let mut steps = 0;
        while let Some(Pair { left, right, bytes, .. }) = queue.pop() {
            until.at_step(steps)?;
            steps += 1;
            let length = |symbol: &Symbol| symbol.end - symbol.start;
            let (first, second) = (length(&symbols[left]), length(&symbols[right]));
            if first == 0 || second == 0 || first + second != bytes {
                continue;
            }
            let after = symbols[right].after;
            symbols[left].end = symbols[right].end;
            symbols[left].after = after;
            symbols[right].start = symbols[right].end;
            if let Some(after) = symbols.get_mut(after) {
                after.before = left;
            }
            let before = symbols[left].before;
            queue.extend(pair(&symbols, before, left));
            queue.extend(pair(&symbols, left, after));
        }
        Ok(symbols.into_iter().filter(|symbol| symbol.start < symbol.end))
    }
}

impl Algorithm for Spm {
    fn name(&self) -> &'static str {
        "sentencepiece"
    }

    fn options(&self) -> String {
        self.space_prefix.to_string()
    }

    fn space_prefix(&self) -> bool {
        self.space_prefix
    }

    fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        prefix: bool,
        until: &Until,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut written = String::with_capacity(text.len() + text.len() / 2);
        let prefix = prefix && self.space_prefix;
        if prefix {
            written.push(SPACE);
        }
        written.extend(text.chars().map(self::written));
        for symbol in self.merge(&vocabulary.scores, &written, until)? {
            let piece = &written[symbol.start..symbol.end];
            if let Some(id) = self.ids.get(piece).copied() {
                ids.push(id);
                continue;
            }
            for byte in piece.bytes() {
                let missing = || {
                    // A space is longer in the written form.
                    let before = written[..symbol.start].chars().count().saturating_sub(usize::from(prefix));
                    let at = text.char_indices().nth(before).map_or(0, |(at, _)| at);
                    let problem = format!("the vocabulary lacks {piece:?} and the byte <0x{byte:02X}>");
                    TokenizerError::Text { at, problem }
                };
                ids.push(self.bytes[byte as usize].ok_or_else(missing)?);
            }
        }
        Ok(())
    }
}
