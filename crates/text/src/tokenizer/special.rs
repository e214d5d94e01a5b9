//! Tokens that are matched literally in text, and tokens that end a text.

use std::collections::HashSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

use super::TokenizerError;
use super::vocabulary::{Spelling, TokenKind, Vocabulary};
use crate::gguf::{Gguf, Value};

/// A piece of a text split at special tokens.
pub(super) enum SpecialSplit<'t> {
    Text(&'t str),
    Token(u32),
}

/// Finds tokens by their text: leftmost first, and the longest of those that begin at the same
/// position.
#[derive(Debug)]
pub(super) struct Finder {
    automaton: AhoCorasick,
    /// The token of each pattern.
    ids: Vec<u32>,
}

impl Finder {
    /// A finder for tokens of the wanted kinds.
    pub(super) fn new(
        vocabulary: &Vocabulary,
        wanted: impl Fn(TokenKind) -> bool,
    ) -> Result<Finder, aho_corasick::BuildError> {
        let mut seen = HashSet::new();
        let (ids, texts): (Vec<u32>, Vec<&[u8]>) = (vocabulary.iter())
            .filter(|&(_, _, kind)| wanted(kind))
            .map(|(id, _, _)| (id, vocabulary.bytes(id)))
            // If two tokens have the same text, the first wins.
            .filter(|&(_, text)| !text.is_empty() && seen.insert(text))
            .unzip();
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts)?;
        Ok(Finder { automaton, ids })
    }

    /// Splits `text` at the tokens that don't overlap the ranges of `plain`, which are in order.
    /// Empty pieces are left out, so that texts and tokens alternate properly.
    pub(super) fn split<'t>(
        &self,
        text: &'t str,
        plain: &[Range<usize>],
    ) -> impl Iterator<Item = SpecialSplit<'t>> {
        let mut from = 0;
        let is_outside = move |found: &aho_corasick::Match| {
            let next = plain.partition_point(|range| range.end <= found.start());
            plain.get(next).is_none_or(|range| range.start >= found.end())
        };
        let found = self.automaton.find_iter(text).filter(is_outside).map(Some).chain([None]);
        found
            .flat_map(move |found| {
                // Splits at character boundaries, since a token's text is whole characters.
                let until = found.map_or(text.len(), |found| found.start());
                let before = SpecialSplit::Text(&text[from..until]);
                from = found.map_or(text.len(), |found| found.end());
                let token = found.and_then(|found| self.ids.get(found.pattern().as_usize()));
                [Some(before), token.map(|&id| SpecialSplit::Token(id))]
            })
            .flatten()
            .filter(|piece| !matches!(piece, SpecialSplit::Text("")))
    }
}

/// Keys by which the file assigns roles to ids.
const END_KEYS: [&str; 6] = [
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.fim_rep_token_id",
    "tokenizer.ggml.fim_sep_token_id",
];

/// Tokens that end a turn or a text in the families that have them; files often name only one of
/// theirs.
/// They are treated as control tokens even if a file labels them as ordinary.
const END_TEXTS: [&str; 20] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<|fim_pad|>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<|file_sep|>",
];

/// Whether a token with this text ends a turn or a text.
/// In SentencePiece vocabularies `</s>` only does if the file names it: Gemma's is an HTML tag.
/// RWKV has no control tokens.
pub(super) fn ends_text(text: &str, spelling: Spelling) -> bool {
    let tag = spelling == Spelling::Pieces && text == "</s>";
    END_TEXTS.contains(&text) && !tag && spelling != Spelling::Escaped
}

/// All ids to which the file assigns a role.
pub(super) fn named_ids(gguf: &Gguf) -> Vec<u32> {
    let keys = gguf.metadata().iter().map(|(key, _)| key);
    let keys = keys.filter(|key| key.starts_with("tokenizer.ggml.") && key.ends_with("_token_id"));
    keys.filter_map(|key| gguf.metadata().u32(key).ok().flatten()).collect()
}

/// The id that a key names, if it is in the vocabulary.
/// An id outside is treated as not named.
pub(super) fn named(gguf: &Gguf, key: &str, tokens: usize) -> Result<Option<u32>, TokenizerError> {
    match gguf.metadata().get(key).and_then(Value::integer) {
        Some(id) => Ok(u32::try_from(id).ok().filter(|&id| (id as usize) < tokens)),
        // Absent, or not a number.
        None => Ok(gguf.metadata().u32(key)?),
    }
}

/// A message about special tokens that the file names but its vocabulary doesn't have; `None` if
/// there are none.
pub(super) fn note(gguf: &Gguf, tokens: usize) -> Option<String> {
    let keys = gguf.metadata().iter().map(|(key, _)| key);
    let keys = keys.filter(|key| key.starts_with("tokenizer.ggml.") && key.ends_with("_token_id"));
    let wrong = keys.filter_map(|key| {
        let id = gguf.metadata().get(key).and_then(Value::integer)?;
        (!(0..tokens as i128).contains(&id)).then(|| format!("{key} is {id}"))
    });
    let all = gguf.metadata().u64s("tokenizer.ggml.eos_token_ids").ok().flatten().unwrap_or_default();
    let all = all.into_iter().filter(|&id| id >= tokens as u64);
    let wrong = wrong.chain(all.map(|id| format!("tokenizer.ggml.eos_token_ids has {id}")));
    let wrong: Vec<String> = wrong.collect();
    let named = wrong.join(", ");
    (!wrong.is_empty())
        .then(|| format!("{}: {named}, but there are {tokens} tokens: left aside", gguf.name()))
}

/// The tokens that end a text, and the control tokens that are shown anyway.
#[derive(Debug)]
pub(super) struct Roles {
    /// The file's EOS first, then the others.
    /// Never empty.
    pub(super) ends: Vec<u32>,
    pub(super) visible: Vec<u32>,
}

impl Roles {
    /// `last` is the token after a whole text; it ends a text if no other token does.
    pub(super) fn read(
        gguf: &Gguf,
        vocabulary: &Vocabulary,
        spelling: Spelling,
        last: Option<u32>,
    ) -> Result<Roles, TokenizerError> {
        let mut ends = Vec::new();
        for key in END_KEYS {
            ends.extend(named(gguf, key, vocabulary.len())?);
        }
        let key = "tokenizer.ggml.eos_token_ids";
        for id in gguf.metadata().u64s(key)?.unwrap_or_default() {
            ends.extend(u32::try_from(id).ok().filter(|&id| (id as usize) < vocabulary.len()));
        }
        let control = |wanted: &str| {
            vocabulary
                .iter()
                .find(|&(_, text, kind)| kind == TokenKind::Control && text == wanted)
                .map(|t| t.0)
        };
        for (id, text, kind) in vocabulary.iter() {
            if kind == TokenKind::Control && ends_text(text, spelling) {
                ends.push(id);
            }
        }
        // Harmony (gpt-oss): `<|end|>` ends a message, after which the model continues, and the
        // tokens in between are structure that its parser reads.
        let mut visible = Vec::new();
        if let (Some(_), Some(_), Some(end)) =
            (control("<|return|>"), control("<|call|>"), control("<|end|>"))
        {
            ends.retain(|&id| id != end);
            visible.push(end);
            visible.extend(
                ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"].into_iter().filter_map(control),
            );
        }
        if ends.is_empty() {
            ends.extend(last);
        }
        let mut seen = HashSet::new();
        ends.retain(|&id| seen.insert(id));
        if ends.is_empty() {
            return Err(TokenizerError::NoEnd { file: gguf.name().to_owned() });
        }
        Ok(Roles { ends, visible })
    }
}
