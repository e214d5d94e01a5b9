//! Errors of the engine, by cause.

mod checkpoint;
mod device;

use alara_text::gguf::GgufError;
pub use checkpoint::CheckpointError;
pub use device::DeviceProblem;

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine, with the details that a user needs to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file can't be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The checkpoint can't be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The tokenizer can't be built, or can't encode.
    #[error(transparent)]
    Tokenizer(#[from] alara_text::tokenizer::TokenizerError),
    /// A required metadata key is missing.
    #[error("{file}: the metadata key `{key}` is missing")]
    MissingKey {
        /// The model file.
        file: String,
        /// The key.
        key: String,
    },
    /// The value of a metadata key is invalid.
    #[error("{file}: metadata key `{key}`: {reason}")]
    InvalidKey {
        /// The model file.
        file: String,
        /// The key.
        key: String,
        /// The problem with its value.
        reason: String,
    },
    /// No architecture file accepts the model.
    #[error("{file}: the architecture `{name}` is not supported{near} (supported: {known})")]
    UnknownArchitecture {
        /// The model file.
        file: String,
        /// The file's name of its architecture.
        name: String,
        /// The known names.
        known: String,
        /// The most similar known name, if any, as a part of the sentence.
        near: String,
    },
    /// An embedded architecture file is invalid.
    #[error("architecture file {name}: {message}")]
    ArchitectureFile {
        /// The file.
        name: String,
        /// The reader's message.
        message: String,
    },
    /// The file is a companion file of a model.
    #[error("{file} is no language model but {what}; {remedy}")]
    NotAModel {
        /// The file.
        file: String,
        /// The kind of file.
        what: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// The model only makes embeddings.
    #[error(
        "{model} is an encoder: it makes embeddings and writes no text; name another model for that, or ask this one \
         for embeddings"
    )]
    Encoder {
        /// The model.
        model: String,
    },
    /// A required tensor is missing.
    #[error("{file}: the tensor `{name}` is missing")]
    MissingTensor {
        /// The model file.
        file: String,
        /// The tensor.
        name: String,
    },
    /// The file contains tensors or keys that nothing reads, so the computation would ignore them.
    #[error(
        "{file} holds {what}, which this build does not know what to compute with: it would give wrong answers; take another conversion \
         of the model"
    )]
    NotUnderstood {
        /// The model file.
        file: String,
        /// Names of tensors and metadata keys.
        what: String,
    },
    /// A tensor's shape differs from the one that the metadata implies.
    #[error("{file}: tensor `{name}` has the shape {found:?}, expected {expected:?} (innermost first)")]
    TensorShape {
        /// The model file.
        file: String,
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<u64>,
        /// The expected shape.
        expected: Vec<u64>,
    },
    /// A tensor has a type that the backend doesn't support.
    #[error("{file}: tensor `{name}` is of type {kind}, which can't be computed with; {instead}")]
    TensorType {
        /// The model file.
        file: String,
        /// The tensor.
        name: String,
        /// Its type.
        kind: String,
        /// What to download instead.
        instead: &'static str,
    },
    /// The model needs more memory than it may take.
    #[error("{file} needs {needs} at a context of {context} tokens, but {available} can be had; {remedy}")]
    OutOfMemory {
        /// The model file.
        file: String,
        /// The memory that it needs, formatted.
        needs: String,
        /// Context length in tokens.
        context: usize,
        /// The memory that it may take, formatted.
        available: String,
        /// A suggestion.
        remedy: &'static str,
    },
    /// The requested device can't be used.
    #[error("{device} can't be used: {problem}")]
    Device {
        /// The device's name.
        device: String,
        /// The reason, and what to do.
        problem: DeviceProblem,
    },
    /// The requested layers don't fit on the device, or no layer does.
    #[error("{file}: {reason}")]
    Placement {
        /// The model file.
        file: String,
        /// The layers, their sizes, and what to do.
        reason: String,
    },
    /// The device's memory became full during an operation.
    #[error(
        "the GPU's memory is full at: {operation}{}; put fewer layers there (--gpu-layers), take a smaller context (--ctx) or keep \
         keys and values in eight bits (--kv q8_0)",
        step.map_or_else(String::new, |(tokens, longest)| format!(", in a step of {tokens} tokens, the longest sequence with {longest}"))
    )]
    DeviceMemory {
        /// The operation.
        operation: String,
        /// Number of tokens in the step and in its longest sequence; `None` while the model is
        /// being loaded.
        step: Option<(usize, usize)>,
    },
    /// A token id is outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocabulary}")]
    TokenOutOfRange {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// The prompt doesn't fit the context.
    #[error("the prompt has {prompt} tokens, but the context holds {context}")]
    PromptTooLong {
        /// Number of tokens in the prompt; a lower bound if it is refused before tokenization.
        prompt: usize,
        /// Tokens of the context.
        context: usize,
        /// The context length that the model was trained for, which is the longest possible one.
        trained: usize,
    },
    /// The request timed out, or its client disconnected.
    #[error(transparent)]
    Over(#[from] alara_text::request::Over),
    /// The KV cache has no room for the sequence besides those running.
    #[error(
        "the KV cache holds {capacity} tokens, not enough for this request; use a smaller context or fewer jobs"
    )]
    OutOfBlocks {
        /// Capacity of the cache in tokens.
        capacity: usize,
    },
    /// The request has tools, but the model's call format is unknown.
    #[error("the chat template of {model} describes tools, but in no known tool-call format")]
    NoToolFormat {
        /// The model's name.
        model: String,
    },
    /// The vocabulary can't express the tool-call format.
    #[error("{model} can't write calls in the {format} format: {marker} is no token of its vocabulary")]
    ToolFormat {
        /// The model's name.
        model: String,
        /// The format's name.
        format: &'static str,
        /// The missing marker.
        marker: &'static str,
    },
    /// The chat template is missing or fails.
    #[error(transparent)]
    Template(#[from] alara_text::chat::TemplateError),
    /// The grammar refuses a schema, or fails during a turn.
    #[error(transparent)]
    Grammar(#[from] alara_text::grammar::GrammarError),
    /// The file has no chat template, and no built-in one matches its model with certainty.
    #[error(
        "{file}: the file has no chat template (metadata key `tokenizer.chat_template`), and its model is none of those \
         that one is built in for: {families}"
    )]
    NoTemplate {
        /// The model file.
        file: String,
        /// Families with a built-in template.
        families: String,
    },
    /// The file's chat template can't be compiled, and no built-in one matches its model with
    /// certainty.
    #[error("{file}: {reason}")]
    BrokenTemplate {
        /// The model file.
        file: String,
        /// The error and its position.
        reason: alara_text::chat::TemplateError,
    },
    /// A built-in table is invalid.
    #[error("models/templates/families.yaml: {message}")]
    FamilyTable {
        /// The reader's message.
        message: String,
    },
    /// No token may follow: every logit is minus infinity or NaN.
    #[error(
        "the model gives no token that could follow: its logits are not finite, or logit_bias \
             bans all that may follow"
    )]
    NoToken,
    /// The request contradicts itself.
    #[error("invalid request: {reason}")]
    InvalidRequest {
        /// The contradiction.
        reason: String,
    },
    /// An operation of the backend failed.
    #[error("{operation}: {message}")]
    Backend {
        /// The operation.
        operation: String,
        /// The first line of the backend's message.
        message: String,
    },
    /// The thread that owns the model is gone.
    #[error("the engine has stopped")]
    Stopped,
}

impl Error {
    /// Whether the error means that the request timed out, or its client disconnected.
    pub fn is_over(&self) -> bool {
        use alara_text::grammar::GrammarError;
        use alara_text::tokenizer::TokenizerError;
        matches!(
            self,
            Error::Over(_)
                | Error::Tokenizer(TokenizerError::Over(_))
                | Error::Grammar(GrammarError::Over(_))
        )
    }

    /// A copy of the error, for another affected sequence.
    pub(crate) fn again(&self) -> Error {
        match self {
            Error::DeviceMemory { operation, step } => {
                Error::DeviceMemory { operation: operation.clone(), step: *step }
            }
            Error::Device { device, problem } => {
                Error::Device { device: device.clone(), problem: problem.clone() }
            }
            Error::Gguf(GgufError::Changed { file }) => GgufError::Changed { file: file.clone() }.into(),
            other => Error::Backend { operation: "step".into(), message: other.to_string() },
        }
    }
}
