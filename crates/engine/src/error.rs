//! What can go wrong in the engine, by cause.

mod checkpoint;
mod device;

use alara_text::gguf::GgufError;
pub use checkpoint::CheckpointError;
pub use device::DeviceProblem;

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with the nouns that a person needs to mend it.
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
    #[error("{file}: the architecture `{name}` is not supported{near} (supported: {known})")]
    UnknownArchitecture {
        /// The model file.
        file: String,
        /// What it calls its architecture.
        name: String,
        /// The names that are known.
        known: String,
        /// The one of them that is most like it, if any is, as a part of the sentence.
        near: String,
    },
    /// An embedded architecture file is wrong.
    #[error("architecture file {name}: {message}")]
    ArchitectureFile {
        /// The file.
        name: String,
        /// The reader's message.
        message: String,
    },
    /// The file is one of those that lie beside models.
    #[error("{file} is no language model but {what}; {remedy}")]
    NotAModel {
        /// The file.
        file: String,
        /// What it is.
        what: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// The model makes embeddings only.
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
    /// The file holds tensors or keys that nobody reads, so what they stand for would be left out.
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
        /// What it needs, for people.
        needs: String,
        /// Tokens of the context.
        context: usize,
        /// The bytes that it may take, for people.
        available: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The device that was asked for can't be used.
    #[error("{device} can't be used: {problem}")]
    Device {
        /// What it is called.
        device: String,
        /// Why, and what to do.
        problem: DeviceProblem,
    },
    /// The layers that were asked for don't fit on the device, or none does.
    #[error("{file}: {reason}")]
    Placement {
        /// The model file.
        file: String,
        /// Which layers, the sizes, and what to do.
        reason: String,
    },
    /// The device's memory is full in the middle of something.
    #[error(
        "the GPU's memory is full at: {operation}{}; put fewer layers there (--gpu-layers), take a smaller context (--ctx) or keep \
         keys and values in eight bits (--kv q8_0)",
        step.map_or_else(String::new, |(tokens, longest)| format!(", in a step of {tokens} tokens, the longest sequence with {longest}"))
    )]
    DeviceMemory {
        /// What was being computed.
        operation: String,
        /// Tokens of the step, and of the longest sequence in it; `None` while the model is loaded.
        step: Option<(usize, usize)>,
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
        /// Tokens of the prompt; the fewest that it can have, where it is refused before it is
        /// tokenized.
        prompt: usize,
        /// Tokens of the context.
        context: usize,
        /// Tokens that the model was trained for, so the longest context that it can have.
        trained: usize,
    },
    /// The time for the request is over, or its client has left.
    #[error(transparent)]
    Over(#[from] alara_text::request::Over),
    /// The KV cache has no room for the sequence beside those that are running.
    #[error(
        "the KV cache holds {capacity} tokens, not enough for this request; use a smaller context or fewer jobs"
    )]
    OutOfBlocks {
        /// Tokens that fit in all.
        capacity: usize,
    },
    /// The request asks for tools, but the model's call format is not known.
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
        /// The marker that is no token.
        marker: &'static str,
    },
    /// The chat template is missing or fails.
    #[error(transparent)]
    Template(#[from] alara_text::chat::TemplateError),
    /// The grammar refuses a schema, or fails in the middle of a turn.
    #[error(transparent)]
    Grammar(#[from] alara_text::grammar::GrammarError),
    /// The file brings no chat template, and none that is built in serves its model for sure.
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
    /// The file's chat template can't be compiled, and none that is built in serves its model for
    /// sure.
    #[error("{file}: {reason}")]
    BrokenTemplate {
        /// The model file.
        file: String,
        /// What is wrong, and where.
        reason: alara_text::chat::TemplateError,
    },
    /// A table that is built in is wrong.
    #[error("models/templates/families.yaml: {message}")]
    FamilyTable {
        /// The reader's message.
        message: String,
    },
    /// No token may follow: every logit is minus infinity or no number.
    #[error(
        "the model gives no token that could follow: its logits are not finite, or logit_bias \
             bans all that may follow"
    )]
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
        /// The first line of the backend's message.
        message: String,
    },
    /// The thread that owns the model is gone.
    #[error("the engine has stopped")]
    Stopped,
}

impl Error {
    /// Whether the time for the request is over, or its client has left.
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

    /// The same error for one more of those whom it concerns.
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
