//! Byte-level BPE: words, written in the printable alphabet, whose byte pairs `tokenizers` merges.

use std::collections::HashSet;

use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::utils::SysRegex;

use super::pretokenizer::{self, Rule};
use super::vocabulary::{TokenKind, Vocabulary};
use super::{TokenizerError, alphabet};
use crate::gguf::{Gguf, Strings};

#[derive(Debug)]
pub(super) struct Bpe {
    merger: BPE,
    regex: SysRegex,
    pub(super) rule: &'static Rule,
}

impl Bpe {
    pub(super) fn new(
        gguf: &Gguf,
        vocabulary: &Vocabulary,
        merges: &Strings,
        rule: &'static Rule,
    ) -> Result<Bpe, TokenizerError> {
        let problem = |problem| TokenizerError::Vocabulary { file: gguf.name().to_owned(), problem };
        let regex = SysRegex::new(rule.regex).map_err(|e| problem(format!("splitting expression: {e}")))?;
        // Control, unknown and unused tokens are not in the merger's vocabulary, so that no text can be merged into one.
        let mut known = Vocab::with_capacity(vocabulary.len());
        let mut hidden = HashSet::new();
        for (id, text, kind) in vocabulary.iter() {
            if matches!(kind, TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte) {
                // The first wins where two tokens have one text.
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
            // A piece may itself begin with a space in odd vocabularies, so the first character is not looked at.
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
        // Without the merger's cache of words: each thread would have its own, which grows with what users write.
        let merger = BPE::builder()
            .vocab_and_merges(known, pairs)
            .ignore_merges(rule.ignore_merges)
            .cache_capacity(0)
            .build();
        Ok(Bpe { merger: merger.map_err(|e| problem(e.to_string()))?, regex, rule })
    }

    /// The token that is written so.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.merger.token_to_id(text)
    }

    /// Appends the tokens of a text.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let mut letters = String::new();
        pretokenizer::split(&self.regex, text, |at, word| {
            letters.clear();
            letters.extend(word.bytes().map(alphabet::letter));
            let problem = |problem| TokenizerError::Text { at, problem };
            let tokens = self.merger.tokenize(&letters).map_err(|e| problem(e.to_string()))?;
            // The model leaves out what it has no token for.
            if tokens.iter().map(|token| token.value.len()).sum::<usize>() != letters.len() {
                return Err(problem(format!("the vocabulary lacks bytes of {word:?}")));
            }
            ids.extend(tokens.iter().map(|token| token.id));
            Ok(())
        })
    }
}
