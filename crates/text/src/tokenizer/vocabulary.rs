//! Tokens by id: text, kind and bytes.

use serde::Deserialize;

use super::{TokenizerError, alphabet, retype, rwkv, special, spm};
use crate::gguf::{Gguf, GgufError, Strings};

/// The kind of a token, as `tokenizer.ggml.token_type` numbers it from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// Represents text that the vocabulary lacks.
    Unknown,
    /// Structure, such as the beginning of a turn: never produced from plain text, and not shown.
    Control,
    /// Always recognized as a whole, and shown, such as `<think>`.
    UserDefined,
    /// An unused id.
    Unused,
    /// One byte, written `<0xAB>`.
    Byte,
}

/// Limits of the trie that grammars traverse: bytes in one token, with a marker before special
/// ones, and in all tokens together.
/// GLM has a token of 1024 spaces.
/// Files that exceed them are damaged.
pub(super) const LONGEST: usize = 1024;
const LARGEST: usize = 1 << 22;

/// How ordinary tokens are written in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Spelling {
    /// In GPT-2's printable alphabet.
    #[default]
    Bytes,
    /// As text, with U+2581 for a space, and `<0xAB>` for a byte.
    Pieces,
    /// As text, and `<0xAB>` for a byte.
    #[serde(skip)]
    Plain,
    /// Like Python's bytes literals.
    #[serde(skip)]
    Escaped,
}

/// Whether tokens have scores, and what these reveal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scores {
    Absent,
    Present,
    /// They have, and the scores distinguish user-defined pieces from others, whatever their
    /// labels.
    Telling,
}

#[derive(Debug)]
pub(super) struct Vocabulary {
    pub(super) texts: Strings,
    /// Scores of tokens that are chosen by score; otherwise empty.
    pub(super) scores: Vec<f32>,
    kinds: Vec<TokenKind>,
    /// Bytes of all tokens, one after the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Vocabulary {
    /// Reads texts, kinds and scores of tokens.
    pub(super) fn read(gguf: &Gguf, spelling: Spelling, kind: Scores) -> Result<Vocabulary, TokenizerError> {
        let rows = rows(gguf);
        let texts = texts(gguf)?;
        let texts = if texts.len() > rows { texts.iter().take(rows).collect() } else { texts.clone() };
        let mut kinds = kinds(gguf, rows, texts.len())?;
        let scores = match kind {
            Scores::Absent => Vec::new(),
            Scores::Present | Scores::Telling => scores(gguf, rows, texts.len())?,
        };
        for (id, (text, kind)) in texts.iter().zip(&mut kinds).enumerate() {
            if matches!(kind, TokenKind::Normal | TokenKind::UserDefined)
                && special::ends_text(text, spelling)
            {
                *kind = TokenKind::Control;
            } else if *kind == TokenKind::UserDefined && is_padding(text, id) {
                *kind = TokenKind::Unused;
            }
        }
        if kind == Scores::Telling {
            retype::user_defined(&texts, &scores, &mut kinds, &special::named_ids(gguf));
        }

        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(texts.len());
        for (id, (text, kind)) in texts.iter().zip(&kinds).enumerate() {
            let start = bytes.len();
            spell(text, *kind, spelling, &mut bytes);
            let length = bytes.len() - start + usize::from(*kind != TokenKind::Normal);
            if length > LONGEST {
                let file = gguf.name().to_owned();
                return Err(TokenizerError::LongToken { file, id, bytes: length, most: LONGEST });
            }
            ends.push(bytes.len());
        }
        if bytes.len() + texts.len() >= LARGEST {
            let problem =
                format!("{} tokens of {} bytes are more than any model has", texts.len(), bytes.len());
            return Err(TokenizerError::Vocabulary { file: gguf.name().to_owned(), problem });
        }
        Ok(Vocabulary { texts, scores, kinds, bytes, ends })
    }

    /// Length of the longest token in bytes, at least 1.
    pub(super) fn longest(&self) -> usize {
        let starts = std::iter::once(&0).chain(&self.ends);
        self.ends.iter().zip(starts).map(|(end, start)| end - start).max().unwrap_or(0).max(1)
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// `Unused` for an id beyond the vocabulary: models often have more rows than named tokens.
    pub(super) fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Unused)
    }

    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start..end]
    }

    /// The token of each byte, 256.
    /// Of several tokens for one byte the first counts.
    pub(super) fn byte_tokens(&self) -> Vec<Option<u32>> {
        let mut tokens = vec![None; 256];
        for (id, _, kind) in self.iter() {
            if let (TokenKind::Byte, &[byte]) = (kind, self.bytes(id)) {
                tokens[usize::from(byte)].get_or_insert(id);
            }
        }
        tokens
    }

    /// Ids, texts and kinds of all tokens.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str, TokenKind)> {
        (0u32..).zip(self.texts.iter().zip(&self.kinds)).map(|(id, (text, &kind))| (id, text, kind))
    }
}

/// Number of embedding rows: tokens beyond them can't be computed.
/// Without an embedding there is no limit.
fn rows(gguf: &Gguf) -> usize {
    let rows = gguf.tensor("token_embd.weight").and_then(|tensor| tensor.shape.get(1).copied());
    rows.and_then(|rows| usize::try_from(rows).ok()).unwrap_or(usize::MAX)
}

/// The texts that the file lists, at least one.
fn texts(gguf: &Gguf) -> Result<&Strings, TokenizerError> {
    let texts = required(gguf, "tokenizer.ggml.tokens", |key| gguf.metadata().strings(key))?;
    if texts.is_empty() || rows(gguf) == 0 {
        return Err(TokenizerError::NoTokens { file: gguf.name().to_owned() });
    }
    Ok(texts)
}

/// Number of tokens that [`Vocabulary::read`] reads.
pub(super) fn size(gguf: &Gguf) -> Result<usize, TokenizerError> {
    Ok(texts(gguf)?.len().min(rows(gguf)))
}

fn required<T>(
    gguf: &Gguf,
    key: &str,
    read: impl FnOnce(&str) -> Result<Option<T>, GgufError>,
) -> Result<T, GgufError> {
    read(key)?.ok_or_else(|| gguf.metadata().missing(key))
}

/// A list with one entry per token, truncated to `rows` like the tokens.
fn aligned<T>(
    gguf: &Gguf,
    key: &str,
    mut list: Vec<T>,
    rows: usize,
    tokens: usize,
) -> Result<Vec<T>, TokenizerError> {
    list.truncate(rows);
    if list.len() == tokens {
        return Ok(list);
    }
    let (file, key) = (gguf.name().to_owned(), key.to_owned());
    Err(TokenizerError::ListLength { file, key, entries: list.len(), tokens })
}

/// The kinds of tokens; all ordinary if the file doesn't list them.
fn kinds(gguf: &Gguf, rows: usize, tokens: usize) -> Result<Vec<TokenKind>, TokenizerError> {
    let key = "tokenizer.ggml.token_type";
    let Some(numbers) = gguf.metadata().u64s(key)? else { return Ok(vec![TokenKind::Normal; tokens]) };
    let unknown = |id, kind| TokenizerError::UnknownKind { file: gguf.name().to_owned(), id, kind };
    let numbers = aligned(gguf, key, numbers, rows, tokens)?.into_iter().enumerate();
    numbers.map(|(id, number)| kind_of(number).ok_or_else(|| unknown(id, number))).collect()
}

fn scores(gguf: &Gguf, rows: usize, tokens: usize) -> Result<Vec<f32>, TokenizerError> {
    let key = "tokenizer.ggml.scores";
    let scores = aligned(gguf, key, required(gguf, key, |key| gguf.metadata().f32s(key))?, rows, tokens)?;
    if let Some(id) = scores.iter().position(|score| score.is_nan()) {
        return Err(TokenizerError::NotANumber { file: gguf.name().to_owned(), id });
    }
    // -0 and 0 are one score.
    Ok(scores.into_iter().map(|score| score + 0.0).collect())
}

/// Whether a converter made the token up for an unused row of the embedding.
/// Their type marks them for matching in text, where they mean nothing.
fn is_padding(text: &str, id: usize) -> bool {
    text.strip_prefix("[PAD").and_then(|rest| rest.strip_suffix(']')).is_some_and(|n| n.parse() == Ok(id))
}

fn kind_of(number: u64) -> Option<TokenKind> {
    Some(match number {
        // 0 is "undefined", which some converters write for ordinary tokens.
        0 | 1 => TokenKind::Normal,
        2 => TokenKind::Unknown,
        3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        5 => TokenKind::Unused,
        6 => TokenKind::Byte,
        _ => return None,
    })
}

/// Appends the bytes that a token represents.
fn spell(text: &str, kind: TokenKind, spelling: Spelling, bytes: &mut Vec<u8>) {
    match kind {
        TokenKind::Normal | TokenKind::UserDefined if spelling == Spelling::Pieces => {
            bytes.extend(text.replace(spm::SPACE, " ").as_bytes());
        }
        TokenKind::Normal if spelling == Spelling::Escaped => rwkv::unescape(text, bytes),
        TokenKind::Normal if spelling == Spelling::Bytes => {
            for letter in text.chars() {
                match alphabet::byte(letter) {
                    Some(byte) => bytes.push(byte),
                    None => bytes.extend(letter.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
        }
        TokenKind::Byte => {
            let hex = text.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
            match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                Some(byte) => bytes.push(byte),
                None => bytes.extend(text.as_bytes()),
            }
        }
        _ => bytes.extend(text.as_bytes()),
    }
}
