//! Tokens that are found in text as they are written, and those that end a text.

use std::collections::HashSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

use super::TokenizerError;
use super::vocabulary::{Spelling, TokenKind, Vocabulary};
use crate::gguf::{Gguf, Value};

/// A piece of a text that was searched for special tokens.
pub(super) enum SpecialSplit<'t> {
    Text(&'t str),
    Token(u32),
}

/// Finds tokens by their text: leftmost first, and the longest of those that begin at the same
/// place.
#[derive(Debug)]
pub(super) struct Finder {
    automaton: AhoCorasick,
    /// The token of each pattern.
    ids: Vec<u32>,
}

impl Finder {
    /// For the tokens of the kinds that are wanted.
    pub(super) fn new(
        vocabulary: &Vocabulary,
        wanted: impl Fn(TokenKind) -> bool,
    ) -> Result<Finder, aho_corasick::BuildError> {
        let mut seen = HashSet::new();
        let (ids, texts): (Vec<u32>, Vec<&[u8]>) = (vocabulary.iter())
            .filter(|&(_, _, kind)| wanted(kind))
            .map(|(id, _, _)| (id, vocabulary.bytes(id)))
            // The first wins where two tokens have one text.
            .filter(|&(_, text)| !text.is_empty() && seen.insert(text))
            .unzip();
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts)?;
        Ok(Finder { automaton, ids })
    }

    /// Cuts `text` at the tokens that don't reach into one of the ranges of `plain`, which are in
    /// order.
    /// Empty pieces are left out, so that a text comes first or after a token.
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
                // Cuts on character boundaries: a token's text is whole characters.
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

/// Ids that the file gives to roles.
const END_KEYS: [&str; 6] = [
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.fim_rep_token_id",
    "tokenizer.ggml.fim_sep_token_id",
];

/// Tokens that end a turn or a text in the families that have them; files often name just one of
/// theirs.
/// They count as control tokens even where a file calls them ordinary.
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

/// Whether a token that is written so ends a turn or a text.
/// Among SentencePiece's, `</s>` does so only where the file names it: Gemma's is an HTML tag.
/// RWKV has no control tokens.
pub(super) fn ends_text(text: &str, spelling: Spelling) -> bool {
    let tag = spelling == Spelling::Pieces && text == "</s>";
    END_TEXTS.contains(&text) && !tag && spelling != Spelling::Escaped
}

/// All ids to which the file gives a role.
pub(super) fn named_ids(gguf: &Gguf) -> Vec<u32> {
    let keys = gguf.metadata().iter().map(|(key, _)| key);
    let keys = keys.filter(|key| key.starts_with("tokenizer.ggml.") && key.ends_with("_token_id"));
    keys.filter_map(|key| gguf.metadata().u32(key).ok().flatten()).collect()
}

/// The id that a key names, as far as it is in the vocabulary.
/// One that is not counts as not named.
pub(super) fn named(gguf: &Gguf, key: &str, tokens: usize) -> Result<Option<u32>, TokenizerError> {
    match gguf.metadata().get(key).and_then(Value::integer) {
        Some(id) => Ok(u32::try_from(id).ok().filter(|&id| (id as usize) < tokens)),
        // Absent, or no number.
        None => Ok(gguf.metadata().u32(key)?),
    }
}

/// What the file says of special tokens that its vocabulary does not have, for a person; `None` if
/// there is no such thing.
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

/// What ends a text, and what is shown although it is a control token.
#[derive(Debug)]
pub(super) struct Roles {
    /// The file's EOS first, then the others.
    /// Never empty.
    pub(super) ends: Vec<u32>,
    pub(super) visible: Vec<u32>,
}

impl Roles {
    /// `last` is what stands after a whole text; it ends a text where nothing else does.
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
        // Harmony (gpt-oss): `<|end|>` ends a message, after which the model goes on, and the
        // tokens between are structure that its parser reads.
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
