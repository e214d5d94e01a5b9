//! Tokens that are found in text as they are written, and those that end a text.

use super::TokenizerError;
use super::vocabulary::{TokenKind, Vocabulary};
use crate::gguf::Gguf;

/// A piece of a text that was searched for special tokens.
pub(super) enum Piece<'t> {
    Text(&'t str),
    Token(u32),
}

/// Finds tokens by their text: leftmost first, and the longest of those that begin at the same place.
#[derive(Debug)]
pub(super) struct Finder {
    /// By first byte; longest first. Models have some hundred special tokens, most of them beginning with `<`.
    by_first: Vec<Vec<u32>>,
}

impl Finder {
    pub(super) fn new(vocabulary: &Vocabulary) -> Finder {
        let mut by_first = vec![Vec::new(); 256];
        for (id, text, kind) in vocabulary.iter() {
            let special = matches!(kind, TokenKind::Control | TokenKind::UserDefined | TokenKind::Unknown);
            if let (true, Some(&first)) = (special, text.as_bytes().first()) {
                by_first[first as usize].push(id);
            }
        }
        for ids in &mut by_first {
            // Stable, so that of two tokens with one text the first is found.
            ids.sort_by_key(|&id| std::cmp::Reverse(vocabulary.texts.get(id as usize).map_or(0, str::len)));
        }
        Finder { by_first }
    }

    /// Cuts `text` at the tokens of the kinds that are wanted. Empty pieces are left out.
    pub(super) fn split<'t>(
        &self,
        vocabulary: &Vocabulary,
        text: &'t str,
        wanted: impl Fn(TokenKind) -> bool,
        mut visit: impl FnMut(Piece<'t>) -> Result<(), TokenizerError>,
    ) -> Result<(), TokenizerError> {
        let bytes = text.as_bytes();
        let (mut from, mut at) = (0, 0);
        while at < bytes.len() {
            let found = self.by_first[bytes[at] as usize].iter().copied().find(|&id| {
                let spelled = vocabulary.texts.get(id as usize).unwrap_or_default();
                bytes[at..].starts_with(spelled.as_bytes()) && wanted(vocabulary.kind(id))
            });
            let Some(id) = found else {
                at += 1;
                continue;
            };
            // Cuts on character boundaries: a token's text begins with the first byte of a character.
            if from < at {
                visit(Piece::Text(&text[from..at]))?;
            }
            visit(Piece::Token(id))?;
            at += vocabulary.texts.get(id as usize).map_or(1, str::len);
            from = at;
        }
        if from < at { visit(Piece::Text(&text[from..])) } else { Ok(()) }
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

/// Tokens that end a turn or a text in the families that have them; files often name just one of theirs. They count as
/// control tokens even where a file calls them ordinary: no text leads to them in a byte-level vocabulary. (In one of
/// SentencePiece's kind that is not so: Gemma's `</s>` is an HTML tag.)
pub(super) const END_TEXTS: [&str; 20] = [
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

/// The id that a key names, which must be in the vocabulary.
pub(super) fn named(gguf: &Gguf, key: &str, tokens: usize) -> Result<Option<u32>, TokenizerError> {
    match gguf.metadata().u32(key)? {
        Some(id) if id as usize >= tokens => {
            Err(TokenizerError::NoSuchToken { file: gguf.name().to_owned(), key: key.to_owned(), id, tokens })
        }
        id => Ok(id),
    }
}

/// What ends a text, and what is shown although it is a control token.
#[derive(Debug)]
pub(super) struct Roles {
    /// The file's EOS first, then the others. Never empty.
    pub(super) ends: Vec<u32>,
    pub(super) visible: Vec<u32>,
}

impl Roles {
    pub(super) fn read(gguf: &Gguf, vocabulary: &Vocabulary) -> Result<Roles, TokenizerError> {
        let mut ends = Vec::new();
        for key in END_KEYS {
            ends.extend(named(gguf, key, vocabulary.len())?);
        }
        let key = "tokenizer.ggml.eos_token_ids";
        for id in gguf.metadata().u64s(key)?.unwrap_or_default() {
            let id = u32::try_from(id).unwrap_or(u32::MAX);
            if id as usize >= vocabulary.len() {
                let (file, key) = (gguf.name().to_owned(), key.to_owned());
                return Err(TokenizerError::NoSuchToken { file, key, id, tokens: vocabulary.len() });
            }
            ends.push(id);
        }
        let control = |wanted: &str| {
            vocabulary
                .iter()
                .find(|&(_, text, kind)| kind == TokenKind::Control && text == wanted)
                .map(|t| t.0)
        };
        for (id, text, kind) in vocabulary.iter() {
            if kind == TokenKind::Control && END_TEXTS.contains(&text) {
                ends.push(id);
            }
        }
        // Harmony (gpt-oss): `<|end|>` ends a message, after which the model goes on, and the tokens between are structure
        // that its parser reads.
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
        let mut seen = std::collections::HashSet::new();
        ends.retain(|&id| seen.insert(id));
        if ends.is_empty() {
            return Err(TokenizerError::NoEnd { file: gguf.name().to_owned() });
        }
        Ok(Roles { ends, visible })
    }
}
