//! What can be wrong with a checkpoint.

use std::io;

/// Why a checkpoint can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file of it is absent, or can't be read.
    #[error(
        "can't open {file}: a checkpoint is model.safetensors with config.json and tokenizer.json beside it; get the whole folder"
    )]
    Open {
        /// The path.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// A file of it that should be JSON.
    #[error("{file} is no JSON as it should be: get it again")]
    Json {
        /// The path.
        file: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The table of tensors is wrong, or the file ends before they do.
    #[error("{file}: {problem} (is it a partial download?)")]
    Tensors {
        /// The path.
        file: String,
        /// What is wrong, and where.
        problem: String,
    },
    /// It has what would be left out of the computation.
    #[error(
        "{file} has {what}, which this build does not know how to compute: it would give wrong vectors; take a GGUF \
         file of the model"
    )]
    NotUnderstood {
        /// The path.
        file: String,
        /// A key, tensor or part of the tokenizer.
        what: String,
    },
}
