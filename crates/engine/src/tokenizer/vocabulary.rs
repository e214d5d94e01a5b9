//! Tokens by id: text, kind and bytes.

use super::special::END_TEXTS;
use super::{TokenizerError, alphabet};
use crate::gguf::{Gguf, Strings};

/// What a token is for, as `tokenizer.ggml.token_type` numbers it from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// Stands for what the vocabulary lacks.
    Unknown,
    /// Structure, such as the beginning of a turn: never made from plain text, and not shown.
    Control,
    /// Always recognized as a whole, and shown, such as `<think>`.
    UserDefined,
    /// A place that is kept free.
    Unused,
    /// One byte, written `<0xAB>`.
    Byte,
}

/// Limits of the trie that grammars walk: bytes in a token (with a marker before special ones; GLM has one of 1024 spaces)
/// and in all of them together. Beyond these, files are damaged.
const LONGEST: usize = 1024;
const LARGEST: usize = 1 << 22;

#[derive(Debug)]
pub(super) struct Vocabulary {
    pub(super) texts: Strings,
    kinds: Vec<TokenKind>,
    /// Bytes of all tokens, one after the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Vocabulary {
    pub(super) fn read(gguf: &Gguf) -> Result<Vocabulary, TokenizerError> {
        let file = || gguf.name().to_owned();
        let key = "tokenizer.ggml.tokens";
        let metadata = gguf.metadata();
        let texts = metadata.strings(key)?.ok_or_else(|| metadata.missing(key))?.clone();
        let mut kinds = match metadata.u64s("tokenizer.ggml.token_type")? {
            None => vec![TokenKind::Normal; texts.len()],
            Some(kinds) if kinds.len() != texts.len() => {
                return Err(TokenizerError::KindCount {
                    file: file(),
                    kinds: kinds.len(),
                    tokens: texts.len(),
                });
            }
            Some(kinds) => (kinds.into_iter().enumerate())
                .map(|(id, kind)| {
                    kind_of(kind).ok_or_else(|| TokenizerError::UnknownKind { file: file(), id, kind })
                })
                .collect::<Result<_, _>>()?,
        };
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(texts.len());
        for (id, (text, kind)) in texts.iter().zip(&mut kinds).enumerate() {
            if matches!(kind, TokenKind::Normal | TokenKind::UserDefined) && END_TEXTS.contains(&text) {
                *kind = TokenKind::Control;
            }
            let start = bytes.len();
            spell(text, *kind, &mut bytes);
            let length = bytes.len() - start + usize::from(*kind != TokenKind::Normal);
            if length > LONGEST {
                return Err(TokenizerError::LongToken { file: file(), id, bytes: length, most: LONGEST });
            }
            ends.push(bytes.len());
        }
        if bytes.len() + texts.len() >= LARGEST {
            let problem =
                format!("{} tokens of {} bytes are more than any model has", texts.len(), bytes.len());
            return Err(TokenizerError::Vocabulary { file: file(), problem });
        }
        Ok(Vocabulary { texts, kinds, bytes, ends })
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Unused for an id beyond the vocabulary: models often have more rows than named tokens.
    pub(super) fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Unused)
    }

    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start..end]
    }

    /// Ids, texts and kinds of all tokens.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str, TokenKind)> {
        (0u32..).zip(self.texts.iter().zip(&self.kinds)).map(|(id, (text, &kind))| (id, text, kind))
    }
}

fn kind_of(number: u64) -> Option<TokenKind> {
    Some(match number {
        // 0 is "undefined", which some converters leave for ordinary tokens.
        0 | 1 => TokenKind::Normal,
        2 => TokenKind::Unknown,
        3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        5 => TokenKind::Unused,
        6 => TokenKind::Byte,
        _ => return None,
    })
}

/// Appends the bytes that a token stands for.
fn spell(text: &str, kind: TokenKind, bytes: &mut Vec<u8>) {
    match kind {
        TokenKind::Normal => {
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
