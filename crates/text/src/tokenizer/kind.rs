//! Kinds of tokenizers, by the value of `tokenizer.ggml.model`.

use std::fmt;

use super::bpe::Bpe;
use super::plamo::Plamo;
use super::pretokenizer::Rule;
use super::rwkv::Rwkv;
use super::spm::Spm;
use super::unigram::Unigram;
use super::vocabulary::{self, Scores, Spelling, TokenKind, Vocabulary};
use super::wordpiece::WordPiece;
use super::{TokenizerError, TokenizerFacts, special};
use crate::gguf::Gguf;
use crate::nearest;
use crate::request::Until;

/// How plain text becomes tokens.
pub(super) trait Algorithm: fmt::Debug + Send + Sync {
    /// The name in reports.
    fn name(&self) -> &'static str;

    /// Everything that distinguishes it from others of its kind with the same vocabulary and
    /// merges.
    fn options(&self) -> String {
        String::new()
    }

    /// Name of the rule that splits text into words, if it has one.
    fn pre_tokenizer(&self) -> Option<&'static str> {
        None
    }

    /// Whether a space is added before a text.
    fn space_prefix(&self) -> bool {
        false
    }

    /// Whether text is changed before it is tokenized, so that decoding doesn't restore it.
    fn normalizes(&self) -> bool {
        false
    }

    /// Whether no token covers more bytes of a text than its own bytes.
    fn keeps_bytes(&self) -> bool {
        !self.normalizes()
    }

    /// Appends the tokens of a text, unless `until` ends first.
    /// `prefix` is set where the model may expect a space before the text.
    fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        prefix: bool,
        until: &Until,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError>;
}

/// The parts of a tokenizer, as read from a file's metadata.
pub(super) struct TokenizerParts {
    pub(super) vocabulary: Vocabulary,
    pub(super) spelling: Spelling,
    pub(super) algorithm: Box<dyn Algorithm>,
    pub(super) bos: Option<u32>,
    pub(super) add_bos: bool,
    /// The token after a whole text.
    pub(super) last: Option<u32>,
}

/// The known values of `tokenizer.ggml.model`.
const KNOWN: [&str; 7] = ["gpt2", "llama", "bert", "t5", "rwkv", "plamo2", "gemma4"];

/// Builds the parts for the file's kind of tokenizer.
pub(super) fn build(gguf: &Gguf, facts: &TokenizerFacts) -> Result<TokenizerParts, TokenizerError> {
    let metadata = gguf.metadata();
    let key = "tokenizer.ggml.model";
    let add_bos = metadata.bool("tokenizer.ggml.add_bos_token")?;
    let add_eos = metadata.bool("tokenizer.ggml.add_eos_token")?;
    let named = |key: &str, vocabulary: &Vocabulary| special::named(gguf, key, vocabulary.len());
    match metadata.str(key)?.ok_or_else(|| metadata.missing(key))? {
        model @ ("gpt2" | "gemma4" | "whitespace") => {
            let (name, rule) = match model {
                "gemma4" => Rule::named(gguf, model)?,
                _ => Rule::of(gguf, vocabulary::size(gguf)?, facts)?,
            };
            let vocabulary = Vocabulary::read(gguf, rule.spelling, Scores::Absent)?;
            let algorithm = Box::new(Bpe::new(gguf, &vocabulary, name, rule)?);
            let add_bos = rule.add_bos.given(add_bos);
            parts(gguf, vocabulary, rule.spelling, algorithm, add_bos, add_eos.unwrap_or(false))
        }
        "llama" => {
            let vocabulary = Vocabulary::read(gguf, Spelling::Pieces, Scores::Telling)?;
            // Scores determine the result; some files list merges as well.
            // The splitting rule has no meaning here.
            let prefix = metadata.bool("tokenizer.ggml.add_space_prefix")?.or(facts.space_prefix);
            let algorithm = Box::new(Spm::new(&vocabulary, prefix.unwrap_or(true)));
            parts(
                gguf,
                vocabulary,
                Spelling::Pieces,
                algorithm,
                add_bos.unwrap_or(true),
                add_eos.unwrap_or(false),
            )
        }
        "bert" => {
            let vocabulary = Vocabulary::read(gguf, Spelling::Pieces, Scores::Absent)?;
            let called = |text: &str| vocabulary.iter().find(|token| token.1 == text).map(|token| token.0);
            let first = named("tokenizer.ggml.bos_token_id", &vocabulary)?;
            let first = first.or(named("tokenizer.ggml.cls_token_id", &vocabulary)?);
            // The key is misspelled in files.
            let last = named("tokenizer.ggml.seperator_token_id", &vocabulary)?;
            let (bos, last) = (first.or_else(|| called("[CLS]")), last.or_else(|| called("[SEP]")));
            let algorithm = Box::new(WordPiece::new(gguf, &vocabulary, unknown(gguf, &vocabulary)?)?);
            let add_bos = add_bos.unwrap_or(true);
            Ok(TokenizerParts { vocabulary, spelling: Spelling::Pieces, algorithm, bos, add_bos, last })
        }
        "t5" => {
            let vocabulary = Vocabulary::read(gguf, Spelling::Pieces, Scores::Present)?;
            let algorithm = Box::new(Unigram::new(gguf, &vocabulary, unknown(gguf, &vocabulary)?)?);
            parts(
                gguf,
                vocabulary,
                Spelling::Pieces,
                algorithm,
                add_bos.unwrap_or(false),
                add_eos.unwrap_or(true),
            )
        }
        "rwkv" => {
            let vocabulary = Vocabulary::read(gguf, Spelling::Escaped, Scores::Absent)?;
            let algorithm = Box::new(Rwkv::new(&vocabulary));
            parts(
                gguf,
                vocabulary,
                Spelling::Escaped,
                algorithm,
                add_bos.unwrap_or(false),
                add_eos.unwrap_or(false),
            )
        }
        "plamo2" => {
            let vocabulary = Vocabulary::read(gguf, Spelling::Plain, Scores::Present)?;
            let algorithm = Box::new(Plamo::new(gguf, &vocabulary)?);
            parts(
                gguf,
                vocabulary,
                Spelling::Plain,
                algorithm,
                add_bos.unwrap_or(false),
                add_eos.unwrap_or(false),
            )
        }
        other => Err(TokenizerError::UnknownModel {
            file: gguf.name().to_owned(),
            model: other.to_owned(),
            hint: nearest::hint(other, KNOWN.into_iter()),
            known: KNOWN.join(", "),
        }),
    }
}

/// Adds BOS and EOS as the file names them.
fn parts(
    gguf: &Gguf,
    vocabulary: Vocabulary,
    spelling: Spelling,
    algorithm: Box<dyn Algorithm>,
    add_bos: bool,
    add_eos: bool,
) -> Result<TokenizerParts, TokenizerError> {
    let bos = special::named(gguf, "tokenizer.ggml.bos_token_id", vocabulary.len())?;
    let eos = special::named(gguf, "tokenizer.ggml.eos_token_id", vocabulary.len())?;
    Ok(TokenizerParts { vocabulary, spelling, algorithm, bos, add_bos, last: eos.filter(|_| add_eos) })
}

/// The token for text that the vocabulary has no piece for.
fn unknown(gguf: &Gguf, vocabulary: &Vocabulary) -> Result<u32, TokenizerError> {
    let key = "tokenizer.ggml.unknown_token_id";
    let named = special::named(gguf, key, vocabulary.len())?;
    let seen = || {
        let is = |(_, text, kind): &(u32, &str, TokenKind)| *kind == TokenKind::Unknown || *text == "[UNK]";
        vocabulary.iter().find(is).map(|token| token.0)
    };
    Ok(named.or_else(seen).ok_or_else(|| gguf.metadata().missing(key))?)
}
