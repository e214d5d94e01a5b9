//! RWKV's "world" tokenizer: at each position the longest matching token.

use super::TokenizerError;
use super::kind::Algorithm;
use super::prefixes::Prefixes;
use super::vocabulary::{TokenKind, Vocabulary};
use crate::request::Until;

#[derive(Debug)]
pub(super) struct Rwkv {
    tokens: Prefixes,
}

impl Rwkv {
    pub(super) fn new(vocabulary: &Vocabulary) -> Rwkv {
        let normal = vocabulary.iter().filter(|token| token.2 == TokenKind::Normal);
        Rwkv { tokens: Prefixes::new(normal.map(|(id, _, _)| (vocabulary.bytes(id), id))) }
    }
}

impl Algorithm for Rwkv {
    fn name(&self) -> &'static str {
        "rwkv"
    }

    fn encode(
        &self,
        _: &Vocabulary,
        text: &str,
        _: bool,
        until: &Until,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let (mut at, mut steps) = (0, 0);
        while let Some(first) = text.as_bytes().get(at) {
            until.at_step(steps)?;
            steps += 1;
            let Some((length, id)) = self.tokens.of(&text.as_bytes()[at..]).last() else {
                let problem = format!("the vocabulary lacks the byte {first:#04x}");
                return Err(TokenizerError::Text { at, problem });
            };
            ids.push(id);
            at += length;
        }
        Ok(())
    }
}

/// The bytes of a token written like Python's bytes: `\n`, `\x0f`, `\\`.
pub(super) fn unescape(text: &str, bytes: &mut Vec<u8>) {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('n') => bytes.push(b'\n'),
                Some('t') => bytes.push(b'\t'),
                Some('r') => bytes.push(b'\r'),
                Some('x') => {
                    let digits = letters.as_str().get(..2);
                    if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                        bytes.push(byte);
                        letters.nth(1);
                    }
                }
                Some(other) => push(other, bytes),
                None => bytes.push(b'\\'),
            },
            other => push(other, bytes),
        }
    }
}

fn push(letter: char, bytes: &mut Vec<u8>) {
    bytes.extend(letter.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_as_python_writes_bytes() {
        #[track_caller]
        fn check(text: &str, expected: &[u8]) {
            let mut bytes = Vec::new();
            unescape(text, &mut bytes);
            assert_eq!(bytes, expected);
        }
        check(r"a\n\t\r\\\'", b"a\n\t\r\\'");
        check(r"\x00\xff\x41b", b"\x00\xffAb");
        // Damaged escapes give some result, but no panic.
        check(r"\xg", b"g");
        check(r"\x4", b"4");
        check("\\xé1é\\", "é1é\\".as_bytes());
    }
}
