//! What can go wrong in the engine, by cause.

use crate::gguf::GgufError;

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with the nouns that a person needs to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file can't be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The tokenizer can't be built, or can't encode.
    #[error(transparent)]
    Tokenizer(#[from] crate::tokenizer::TokenizerError),
    /// A required metadata key is missing.
    #[error("{file}: the metadata key `{key}` is missing")]
    MissingKey {
        /// The model file.
        file: String,
        /// The key.
        key: String,
    },
    /// A metadata key holds what makes no sense.
    #[error("{file}: metadata key `{key}`: {reason}")]
    InvalidKey {
        /// The model file.
        file: String,
        /// The key.
        key: String,
        /// What is wrong with its value.
        reason: String,
    },
    /// No architecture file accepts the model.
    #[error("{file}: the architecture `{name}` is not supported (supported: {known})")]
    UnknownArchitecture {
        /// The model file.
        file: String,
        /// What it calls its architecture.
        name: String,
        /// The names that are known.
        known: String,
    },
    /// An embedded architecture file is wrong.
    #[error("architecture file {name}: {message}")]
    ArchitectureFile {
        /// The file.
        name: String,
        /// What the reader said.
        message: String,
    },
    /// A required tensor is missing.
    #[error("{file}: the tensor `{name}` is missing")]
    MissingTensor {
        /// The model file.
        file: String,
        /// The tensor.
        name: String,
    },
    /// A tensor has another shape than the metadata says.
    #[error("{file}: tensor `{name}` has the shape {found:?}, expected {expected:?} (innermost first)")]
    TensorShape {
        /// The model file.
        file: String,
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<u64>,
        /// The shape that the metadata calls for.
        expected: Vec<u64>,
    },
    /// A tensor is of a type that the backend can't compute with.
    #[error("{file}: tensor `{name}` is of type {kind}, which can't be computed with yet")]
    TensorType {
        /// The model file.
        file: String,
        /// The tensor.
        name: String,
        /// Its type.
        kind: String,
    },
    /// A token id outside the vocabulary was given.
    #[error("token {token} is outside the vocabulary of {vocabulary}")]
    TokenOutOfRange {
        /// The token.
        token: u32,
        /// How many there are.
        vocabulary: usize,
    },
    /// The prompt leaves no room in the context.
    #[error("the prompt has {prompt} tokens, but the context holds {context}")]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens of the context.
        context: usize,
    },
    /// The KV cache has no room for the sequence beside those that are running.
    #[error(
        "the KV cache holds {capacity} tokens, not enough for this request; use a smaller context or fewer jobs"
    )]
    OutOfBlocks {
        /// Tokens that fit in all.
        capacity: usize,
    },
    /// The request asks for tools, but the model's call format is not known.
    #[error("{model} has no known tool-call format; choose one with --tool-format hermes")]
    NoToolFormat {
        /// The model's name.
        model: String,
    },
    /// The chat template is missing or fails.
    #[error(transparent)]
    Template(#[from] crate::chat::TemplateError),
    /// The grammar refuses a schema, or fails in the middle of a turn.
    #[error(transparent)]
    Grammar(#[from] crate::grammar::GrammarError),
    /// The file brings no chat template.
    #[error("{file}: the file has no chat template (metadata key `tokenizer.chat_template`)")]
    NoTemplate {
        /// The model file.
        file: String,
    },
    /// No token may follow: every logit is minus infinity or no number.
    #[error("the model gives no token that could follow: its logits are not finite")]
    NoToken,
    /// The request contradicts itself.
    #[error("invalid request: {reason}")]
    InvalidRequest {
        /// What is wrong.
        reason: String,
    },
    /// The backend failed in an operation.
    #[error("{operation}: {message}")]
    Backend {
        /// What was being computed.
        operation: String,
        /// The first line of what the backend said.
        message: String,
    },
    /// The thread that owns the model is gone.
    #[error("the engine has stopped")]
    Stopped,
}
