//! The vocabulary in llguidance's form.

use std::sync::Arc;

use toktrie::{TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

use super::{Core, TokenKind};
use crate::request::Until;

struct Env {
    core: Arc<Core>,
    trie: TokTrie,
}

pub(super) fn build(core: &Arc<Core>) -> TokEnv {
    let words: Vec<Vec<u8>> = (core.vocabulary.iter())
        .map(|(id, text, kind)| match kind {
            // Bytes that occur in no text, so that a grammar can only reach these tokens by name.
            TokenKind::Control | TokenKind::Unknown | TokenKind::Unused => {
                [&[TokTrie::SPECIAL_TOKEN_MARKER], text.as_bytes()].concat()
            }
            _ => core.vocabulary.bytes(id).to_vec(),
        })
        .collect();
    let mut info = TokRxInfo::new(words.len() as u32, core.roles.ends[0]);
    info.tok_bos = core.bos;
    let trie = TokTrie::from(&info, &words).with_eos_tokens(&core.roles.ends);
    Arc::new(Env { core: core.clone(), trie })
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            let ids = self.core.encode(text, false, false, &Until::default()).unwrap_or_default();
            // Kinds that change text, or that have an unknown token, may have altered it.
            let bytes = ids.iter().flat_map(|&id| self.core.vocabulary.bytes(id));
            if bytes.eq(text.as_bytes()) { ids } else { self.trie.greedy_tokenize(text.as_bytes()) }
        })
    }
}
