//! Errors about vocabularies and texts.

use crate::gguf::GgufError;

/// Why a tokenizer can't be made of a file, or a text can't be encoded.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The metadata are damaged, incomplete or of wrong types.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The file's tokenizer uses an unsupported algorithm.
    #[error(
        "{file} has a tokenizer of kind \"{model}\" (tokenizer.ggml.model), which is not built{hint} (built: {known})"
    )]
    UnknownModel {
        /// The file.
        file: String,
        /// `tokenizer.ggml.model`.
        model: String,
        /// The most similar known kind.
        hint: String,
        /// The known kinds.
        known: String,
    },
    /// The splitting rule isn't in the table.
    /// A guessed one would silently give wrong tokens.
    #[error(
        "{file} names the pre-tokenizer \"{pre}\" (tokenizer.ggml.pre), which is not among the {known} known ones{hint}"
    )]
    UnknownPreTokenizer {
        /// The file.
        file: String,
        /// `tokenizer.ggml.pre`.
        pre: String,
        /// Number of names in the table.
        known: usize,
        /// The most similar known name.
        hint: String,
    },
    /// The placeholder that converters write if they don't know the rule.
    #[error(
        "{file} does not say how its tokenizer splits text (tokenizer.ggml.pre is \"default\"): convert the model again, \
         or name the rule in its architecture file"
    )]
    DefaultPreTokenizer {
        /// The file.
        file: String,
    },
    /// The embedded table of rules is broken.
    #[error("models/pretokenizers.yaml: {problem}")]
    Rules {
        /// The problem.
        problem: String,
    },
    /// The vocabulary has no tokens.
    #[error("{file}: the vocabulary is empty (tokenizer.ggml.tokens)")]
    NoTokens {
        /// The file.
        file: String,
    },
    /// Parallel lists have different lengths.
    #[error("{file}: {key} has {entries} entries for {tokens} tokens")]
    ListLength {
        /// The file.
        file: String,
        /// The metadata key of the list.
        key: String,
        /// Length of the list.
        entries: usize,
        /// Length of `tokenizer.ggml.tokens`.
        tokens: usize,
    },
    /// A score is not a number.
    #[error("{file}: the score of token {id} (tokenizer.ggml.scores) is not a number")]
    NotANumber {
        /// The file.
        file: String,
        /// The token.
        id: usize,
    },
    /// A kind of token unknown to this build.
    #[error("{file}: token {id} has the unknown kind {kind} in tokenizer.ggml.token_type")]
    UnknownKind {
        /// The file.
        file: String,
        /// The token.
        id: usize,
        /// Its kind.
        kind: u64,
    },
    /// A token that is too long for a trie.
    #[error("{file}: token {id} has {bytes} bytes; the most is {most}")]
    LongToken {
        /// The file.
        file: String,
        /// The token.
        id: usize,
        /// Its length.
        bytes: usize,
        /// The longest that is allowed.
        most: usize,
    },
    /// The file names no token that ends a text.
    #[error("{file} names no token that ends a text (tokenizer.ggml.eos_token_id)")]
    NoEnd {
        /// The file.
        file: String,
    },
    /// A merge isn't of the form "left right", or one of the two or their concatenation is no
    /// token.
    #[error("{file}: merge {index} of tokenizer.ggml.merges, \"{merge}\", {problem}")]
    BadMerge {
        /// The file.
        file: String,
        /// Its index in the list.
        index: usize,
        /// The entry.
        merge: String,
        /// The problem with it.
        problem: String,
    },
    /// Vocabulary and merges don't fit each other.
    #[error("{file}: the vocabulary is inconsistent: {problem}")]
    Vocabulary {
        /// The file.
        file: String,
        /// The problem.
        problem: String,
    },
    /// The request timed out, or its client disconnected.
    #[error(transparent)]
    Over(#[from] crate::request::Over),
    /// The vocabulary has no tokens for a text, or the splitting rule gave up on it.
    #[error("text can't be tokenized at byte {at}: {problem}")]
    Text {
        /// Offset in the piece of text between special tokens.
        at: usize,
        /// The reason.
        problem: String,
    },
}
