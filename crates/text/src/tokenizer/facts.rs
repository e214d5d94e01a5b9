//! The tokenizer facts in an architecture file.

use serde::Deserialize;

/// Facts that some model files omit; the key `tokenizer` of an architecture file.
/// The model file's own values take precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerFacts {
    /// The splitting rule if `tokenizer.ggml.pre` is absent or `default`.
    /// Default: none; such a file is refused.
    pub pre: Option<String>,
    /// Size of the vocabulary to which `pre` applies, if an architecture has several.
    /// Default: any.
    pub tokens: Option<usize>,
    /// Whether SentencePiece puts a space before a text if `tokenizer.ggml.add_space_prefix` is
    /// absent.
    /// Default: yes.
    pub space_prefix: Option<bool>,
}
