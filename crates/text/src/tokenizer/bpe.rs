//! BPE with a list of merges: splits text into words, in most vocabularies written in the printable
//! alphabet of bytes, whose pairs `tokenizers` merges.

use std::collections::HashSet;

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::{Model, Token};

use super::kind::Algorithm;
use super::pretokenizer::{IgnoreMerges, Rule, Splitter};
use super::vocabulary::{Spelling, TokenKind, Vocabulary};
use super::{TokenizerError, alphabet, spm};
use crate::gguf::Gguf;
use crate::request::Until;

/// Longest word, in bytes: merging can't be interrupted within a word.
/// No language or code has such words.
const LONGEST_WORD: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Bpe {
    merger: BPE,
    splitter: Splitter,
    /// The rule's name in the file.
    name: &'static str,
    rule: &'static Rule,
}

impl Bpe {
    pub(super) fn new(
        gguf: &Gguf,
        vocabulary: &Vocabulary,
        name: &'static str,
        rule: &'static Rule,
    ) -> Result<Bpe, TokenizerError> {
        let key = "tokenizer.ggml.merges";
        let merges = gguf.metadata().strings(key)?.ok_or_else(|| gguf.metadata().missing(key))?;
        let problem = |problem| TokenizerError::Vocabulary { file: gguf.name().to_owned(), problem };
        // Control, unknown and unused tokens are not in the merger's vocabulary, so that no text
        // can be merged into one.
        let mut known = Vocab::with_capacity(vocabulary.len());
        let mut hidden = HashSet::new();
        for (id, text, kind) in vocabulary.iter() {
            if matches!(kind, TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte) {
                // If two tokens have the same text, the first wins.
                known.entry(text.to_owned()).or_insert(id);
            } else {
                hidden.insert(text);
            }
        }
        let mut pairs = Vec::with_capacity(merges.len());
        for (index, merge) in merges.iter().enumerate() {
            let bad = |problem| TokenizerError::BadMerge {
                file: gguf.name().to_owned(),
                index,
                merge: merge.to_owned(),
                problem,
            };
            // In unusual vocabularies a piece may itself begin with a space, so the first character
            // is skipped.
            let first = merge.chars().next().map_or(0, char::len_utf8);
            let space = merge[first..]
                .find(' ')
                .ok_or_else(|| bad("is not two tokens with a space between".into()))?;
            let (left, right) = (&merge[..first + space], &merge[first + space + 1..]);
            let joined = [left, right].concat();
            match [left, right, &joined].into_iter().find(|&text| !known.contains_key(text)) {
                None => pairs.push((left.to_owned(), right.to_owned())),
                Some(text) if hidden.contains(text) => {}
                Some(text) => return Err(bad(format!("names \"{text}\", which is no token"))),
            }
        }
        // Without the merger's word cache: each thread would have its own, which grows with user
        // input.
        let merger = BPE::builder()
            .vocab_and_merges(known, pairs)
            .ignore_merges(rule.ignore_merges == IgnoreMerges::Always)
            .byte_fallback(rule.spelling == Spelling::Pieces)
            .cache_capacity(0)
            .build();
        let merger = merger.map_err(|e| problem(e.to_string()))?;
        Ok(Bpe { merger, splitter: Splitter::new(rule)?, name, rule })
    }
}

impl Algorithm for Bpe {
    fn name(&self) -> &'static str {
        "bpe"
    }

    fn options(&self) -> String {
        let Rule { names: _, split, ignore_merges, add_bos: _, spelling, drop_gaps } = self.rule;
        format!("{split:?} {ignore_merges:?} {spelling:?} {drop_gaps}")
    }

    fn pre_tokenizer(&self) -> Option<&'static str> {
        Some(self.name)
    }

    fn keeps_bytes(&self) -> bool {
        !self.rule.drop_gaps
    }

    fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        _: bool,
        until: &Until,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut letters = String::new();
        let mut words = 0;
        self.splitter.split(text, |at, word| {
            until.at_step(words)?;
            words += 1;
            if word.len() > LONGEST_WORD {
                let problem = format!("a word has {} bytes; the most is {LONGEST_WORD}", word.len());
                return Err(TokenizerError::Text { at, problem });
            }
            letters.clear();
            match self.rule.spelling {
                Spelling::Bytes => letters.extend(word.bytes().map(alphabet::letter)),
                _ => letters.extend(word.chars().map(spm::written)),
            }
            if self.rule.ignore_merges == IgnoreMerges::Lines
                && word.bytes().all(|byte| byte == b'\n')
                && let Some(id) = self.merger.token_to_id(&letters)
            {
                ids.push(id);
                return Ok(());
            }
            let problem = |problem| TokenizerError::Text { at, problem };
            let tokens = self.merger.tokenize(&letters).map_err(|e| problem(e.to_string()))?;
            // The model silently skips text that it has no token for.
            let length = |token: &Token| match self.rule.spelling {
                Spelling::Pieces if vocabulary.kind(token.id) == TokenKind::Byte => {
                    vocabulary.bytes(token.id).len()
                }
                _ => token.value.len(),
            };
            if tokens.iter().map(length).sum::<usize>() != letters.len() {
                return Err(problem(format!("the vocabulary lacks bytes of {word:?}")));
            }
            ids.extend(tokens.iter().map(|token| token.id));
            Ok(())
        })
    }
}
