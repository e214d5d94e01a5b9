//! From a file's metadata to tokens, and back to text.
//!
//! Owns vocabulary, splitting rules and special tokens. Byte pairs are merged by `tokenizers`' BPE model; cutting text at
//! special tokens and into words is done here, because messages' content must never become a control token. Knows nothing
//! of templates or models.

mod alphabet;
mod env;
mod error;
mod pretokenizer;
mod special;
mod stream;
mod vocabulary;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::utils::SysRegex;
use toktrie::TokEnv;

pub use error::TokenizerError;
pub use stream::DecodeStream;
pub use vocabulary::TokenKind;

use crate::gguf::Gguf;
use pretokenizer::Rule;
use special::{Finder, Piece, Roles};
use vocabulary::Vocabulary;

/// The tokenizer of a model. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    core: Arc<Core>,
    env: Arc<EnvCell>,
}

/// Apart from `Core`, which the environment itself holds.
struct EnvCell(OnceLock<TokEnv>);

impl fmt::Debug for EnvCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnvCell")
    }
}

#[derive(Debug)]
struct Core {
    vocabulary: Vocabulary,
    finder: Finder,
    roles: Roles,
    bpe: BPE,
    regex: SysRegex,
    rule: &'static Rule,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
}

impl Tokenizer {
    /// Reads `tokenizer.ggml.*`. Only byte-level BPE (`gpt2`) with a known `tokenizer.ggml.pre` is accepted.
    pub fn from_gguf(gguf: &Gguf) -> Result<Tokenizer, TokenizerError> {
        let metadata = gguf.metadata();
        let required = |key: &str| metadata.str(key)?.ok_or_else(|| metadata.missing(key));
        let file = || gguf.name().to_owned();
        let model = required("tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(TokenizerError::UnknownModel { file: file(), model: model.to_owned() });
        }
        let pre = required("tokenizer.ggml.pre")?;
        let rule = Rule::named(pre).ok_or_else(|| TokenizerError::UnknownPreTokenizer {
            file: file(),
            pre: pre.to_owned(),
            known: Rule::known(),
        })?;
        let regex = SysRegex::new(rule.regex).map_err(|e| TokenizerError::Vocabulary {
            file: file(),
            problem: format!("splitting expression: {e}"),
        })?;
        let vocabulary = Vocabulary::read(gguf)?;
        let bpe = merger(gguf, &vocabulary, rule)?;
        let core = Core {
            finder: Finder::new(&vocabulary),
            roles: Roles::read(gguf, &vocabulary)?,
            bos: special::named(gguf, "tokenizer.ggml.bos_token_id", vocabulary.len())?,
            eos: special::named(gguf, "tokenizer.ggml.eos_token_id", vocabulary.len())?,
            add_bos: metadata.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(rule.add_bos),
            vocabulary,
            bpe,
            regex,
            rule,
        };
        Ok(Tokenizer { core: Arc::new(core), env: Arc::new(EnvCell(OnceLock::new())) })
    }

    /// Tokens of a text, without BOS. User-defined tokens are always recognized, control tokens only with `parse_special`.
    pub fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, TokenizerError> {
        self.core.encode(text, parse_special)
    }

    /// Tokens of a rendered prompt: control tokens are recognized, and BOS stands at the beginning if the model wants it.
    ///
    /// Each of `stand_ins` is a character that stands for a text which must stay plain text: the text is cut at control
    /// tokens first and the characters are replaced after that, so what a message contains can't become a control token.
    pub fn encode_prompt(
        &self,
        text: &str,
        stand_ins: &[(char, String)],
    ) -> Result<Vec<u32>, TokenizerError> {
        let core = &self.core;
        let control = |kind| matches!(kind, TokenKind::Control | TokenKind::Unknown);
        let mut ids = Vec::new();
        core.finder.split(&core.vocabulary, text, control, |piece| {
            match piece {
                Piece::Token(id) => ids.push(id),
                Piece::Text(text) => ids.extend(core.encode(&replace(text, stand_ins), false)?),
            }
            Ok(())
        })?;
        if let (true, Some(bos)) = (core.add_bos, core.bos)
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// The text of tokens; bytes that are not UTF-8 become U+FFFD. Control tokens are left out unless `show_special`.
    pub fn decode(&self, ids: &[u32], show_special: bool) -> String {
        let bytes: Vec<u8> =
            ids.iter().flat_map(|&id| self.core.shown_bytes(id, show_special)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// For tokens that arrive one by one; control tokens are left out.
    pub fn stream(&self) -> DecodeStream {
        DecodeStream::new(self.core.clone())
    }

    /// What a token stands for: its bytes in text, or its name if it is special. Empty for an id beyond the vocabulary.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.core.vocabulary.bytes(id)
    }

    /// The token as the vocabulary writes it, for example `Ġthe`.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.core.vocabulary.texts.get(id as usize)
    }

    /// The token that the vocabulary writes so.
    pub fn id(&self, text: &str) -> Option<u32> {
        let special = |kind| !matches!(kind, TokenKind::Normal | TokenKind::Byte | TokenKind::UserDefined);
        self.core.bpe.token_to_id(text).or_else(|| {
            self.core
                .vocabulary
                .iter()
                .find(|&(_, other, kind)| special(kind) && other == text)
                .map(|token| token.0)
        })
    }

    /// What a token is for. [`TokenKind::Unused`] for an id beyond the vocabulary: models often have more rows than tokens,
    /// and such ids must not be sampled.
    pub fn kind(&self, id: u32) -> TokenKind {
        self.core.vocabulary.kind(id)
    }

    /// Number of tokens in the vocabulary.
    pub fn len(&self) -> usize {
        self.core.vocabulary.len()
    }

    /// Whether the vocabulary is empty. Never: it has at least the token that ends a text.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The token that begins a text, where the file names one.
    pub fn bos(&self) -> Option<u32> {
        self.core.bos
    }

    /// The token that ends a text, where the file names one. An answer may end with others too:
    /// [`is_end_of_turn`](Self::is_end_of_turn).
    pub fn eos(&self) -> Option<u32> {
        self.core.eos
    }

    /// Whether generation stops at this token.
    pub fn is_end_of_turn(&self, id: u32) -> bool {
        self.core.roles.ends.contains(&id)
    }

    /// All tokens at which generation stops, at least one; the file's EOS first.
    pub fn ends_of_turn(&self) -> &[u32] {
        &self.core.roles.ends
    }

    /// Whether the model wants texts to begin with BOS.
    pub fn add_bos(&self) -> bool {
        self.core.add_bos
    }

    /// Name of the rule that cuts text into words, for example `qwen2`.
    pub fn pre_tokenizer(&self) -> &'static str {
        self.core.rule.names[0]
    }

    /// The vocabulary as a trie for grammars. Built at the first call (some 0.3 s for 150 000 tokens), then shared.
    pub fn env(&self) -> TokEnv {
        self.env.0.get_or_init(|| env::build(&self.core)).clone()
    }
}

impl Core {
    fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        let wanted = |kind| parse_special || kind == TokenKind::UserDefined;
        self.finder.split(&self.vocabulary, text, wanted, |piece| {
            match piece {
                Piece::Token(id) => ids.push(id),
                Piece::Text(text) => self.encode_plain(text, &mut ids)?,
            }
            Ok(())
        })?;
        Ok(ids)
    }

    /// Words, each written in the printable alphabet and merged.
    fn encode_plain(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let mut letters = String::new();
        pretokenizer::split(&self.regex, text, |at, word| {
            letters.clear();
            letters.extend(word.bytes().map(alphabet::letter));
            let problem = |problem| TokenizerError::Text { at, problem };
            let tokens = self.bpe.tokenize(&letters).map_err(|e| problem(e.to_string()))?;
            // The model leaves out what it has no token for.
            if tokens.iter().map(|token| token.value.len()).sum::<usize>() != letters.len() {
                return Err(problem(format!("the vocabulary lacks bytes of {word:?}")));
            }
            ids.extend(tokens.iter().map(|token| token.id));
            Ok(())
        })
    }

    fn shown_bytes(&self, id: u32, show_special: bool) -> &[u8] {
        let shown = match self.vocabulary.kind(id) {
            TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte => true,
            _ => show_special || self.roles.visible.contains(&id),
        };
        if shown { self.vocabulary.bytes(id) } else { &[] }
    }
}

fn replace(text: &str, stand_ins: &[(char, String)]) -> String {
    let mut replaced = String::with_capacity(text.len());
    for letter in text.chars() {
        match stand_ins.iter().find(|(stand_in, _)| *stand_in == letter) {
            Some((_, plain)) => replaced.push_str(plain),
            None => replaced.push(letter),
        }
    }
    replaced
}

/// The model that merges byte pairs. Control, unknown and unused tokens are not in its vocabulary, so that no text can be
/// merged into one.
fn merger(gguf: &Gguf, vocabulary: &Vocabulary, rule: &Rule) -> Result<BPE, TokenizerError> {
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
    let key = "tokenizer.ggml.merges";
    let list = gguf.metadata().strings(key)?.ok_or_else(|| gguf.metadata().missing(key))?;
    let mut merges = Vec::with_capacity(list.len());
    let mut joined = String::new();
    for (index, merge) in list.iter().enumerate() {
        // A piece may itself begin with a space in odd vocabularies, so the first character is not looked at.
        let first = merge.chars().next().map_or(0, char::len_utf8);
        let Some(space) = merge[first..].find(' ') else {
            return Err(TokenizerError::BadMerge {
                file: gguf.name().to_owned(),
                index,
                merge: merge.to_owned(),
            });
        };
        let (left, right) = (&merge[..first + space], &merge[first + space + 1..]);
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        if !(hidden.contains(joined.as_str()) || hidden.contains(left) || hidden.contains(right)) {
            merges.push((left.to_owned(), right.to_owned()));
        }
    }
    BPE::builder()
        .vocab_and_merges(known, merges)
        .ignore_merges(rule.ignore_merges)
        .build()
        .map_err(|e| TokenizerError::Vocabulary { file: gguf.name().to_owned(), problem: e.to_string() })
}
