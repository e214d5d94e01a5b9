//! What an architecture file says about its tokenizer.

use serde::Deserialize;

/// Facts that some files of an architecture leave out, the key `tokenizer` of an architecture file.
/// What a file says itself counts for more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerFacts {
    /// The splitting rule where `tokenizer.ggml.pre` is absent or `default`.
    /// Default: none, such a file is refused.
    pub pre: Option<String>,
    /// Size of the vocabulary to which `pre` applies, where an architecture has several.
    /// Default: any.
    pub tokens: Option<usize>,
    /// Whether SentencePiece puts a space before a text where `tokenizer.ggml.add_space_prefix` is
    /// absent.
    /// Default: yes.
    pub space_prefix: Option<bool>,
}
