//! Errors about checkpoints.

use std::io;

/// Why a checkpoint can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// One of its files is missing, or can't be read.
    #[error(
        "can't open {file}: a checkpoint is model.safetensors with config.json and tokenizer.json beside it; get the whole folder"
    )]
    Open {
        /// The path.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// One of its files isn't valid JSON of the expected form.
    #[error("{file} is no JSON as it should be: get it again")]
    Json {
        /// The path.
        file: String,
        /// The JSON error.
        source: serde_json::Error,
    },
    /// The table of tensors is invalid, or the file is truncated.
    #[error("{file}: {problem} (is it a partial download?)")]
    Tensors {
        /// The path.
        file: String,
        /// The problem and its position.
        problem: String,
    },
    /// It contains settings that the computation would ignore.
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
