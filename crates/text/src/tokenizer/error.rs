//! What can be wrong with a vocabulary or a text.

use crate::gguf::GgufError;

/// Why a tokenizer can't be made of a file, or a text can't be encoded.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The metadata is damaged, incomplete or of other types.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The file's tokenizer works by an algorithm that is not here.
    #[error(
        "{file} has a tokenizer of kind \"{model}\" (tokenizer.ggml.model), which is not built{hint} (built: {known})"
    )]
    UnknownModel {
        /// The file.
        file: String,
        /// `tokenizer.ggml.model`.
        model: String,
        /// The known kind that is most like it.
        hint: String,
        /// The known kinds.
        known: String,
    },
    /// A splitting rule that is not in the table.
    /// Guessing one would give wrong tokens without a sign of it.
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
        /// The known name that is most like it.
        hint: String,
    },
    /// What converters write that don't know the rule.
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
        /// What was found.
        problem: String,
    },
    /// There is nothing to encode with.
    #[error("{file}: the vocabulary is empty (tokenizer.ggml.tokens)")]
    NoTokens {
        /// The file.
        file: String,
    },
    /// Lists that belong together have different lengths.
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
    /// A score that can't be compared.
    #[error("{file}: the score of token {id} (tokenizer.ggml.scores) is not a number")]
    NotANumber {
        /// The file.
        file: String,
        /// The token.
        id: usize,
    },
    /// A kind of token that did not exist when this was written.
    #[error("{file}: token {id} has the unknown kind {kind} in tokenizer.ggml.token_type")]
    UnknownKind {
        /// The file.
        file: String,
        /// The token.
        id: usize,
        /// Its kind.
        kind: u64,
    },
    /// A token longer than a trie can hold.
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
    /// Nothing says where an answer ends.
    #[error("{file} names no token that ends a text (tokenizer.ggml.eos_token_id)")]
    NoEnd {
        /// The file.
        file: String,
    },
    /// A merge that is not "left right", both and the two together tokens.
    #[error("{file}: merge {index} of tokenizer.ggml.merges, \"{merge}\", {problem}")]
    BadMerge {
        /// The file.
        file: String,
        /// Its place in the list.
        index: usize,
        /// The entry.
        merge: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Vocabulary and merges don't fit each other.
    #[error("{file}: the vocabulary is inconsistent: {problem}")]
    Vocabulary {
        /// The file.
        file: String,
        /// What was found.
        problem: String,
    },
    /// The time for the request is over, or its client has left.
    #[error(transparent)]
    Over(#[from] crate::request::Over),
    /// A text that the vocabulary has no tokens for, or that the splitting rule gave up on.
    #[error("text can't be tokenized at byte {at}: {problem}")]
    Text {
        /// Place in the piece of text between special tokens.
        at: usize,
        /// Why.
        problem: String,
    },
}
