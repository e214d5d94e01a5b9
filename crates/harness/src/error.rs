//! All errors of the harness, by cause.

use std::path::PathBuf;

pub use alara_team::error::chain;

use crate::model::ModelError;

/// An error of the harness.
/// A tool that fails or a model that stops early is not an error but a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The sandbox can't be had, or a program can't be run in it.
    #[error(transparent)]
    Sandbox(#[from] alara_sandbox::Error),
    /// A team's files can't be used.
    #[error(transparent)]
    Team(#[from] alara_team::Error),
    /// The answers about permissions can't be used.
    #[error(transparent)]
    Answers(#[from] alara_policy::AnswersError),
    /// A trace file can't be written or read.
    #[error("can't use the trace file {}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A line of a trace file is not a record.
    #[error("{}:{line}: not a trace record", path.display())]
    TraceLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The cause.
        source: serde_json::Error,
    },
    /// Another process writes the trace.
    #[error(
        "{} is being written by another alara; it can go on here once that has ended",
        path.display()
    )]
    TraceInUse {
        /// The file.
        path: PathBuf,
    },
    /// A trace contains no conversation.
    #[error("no conversation begins in {}, so none can go on\nhint: alara trace list", path.display())]
    NoConversation {
        /// The file.
        path: PathBuf,
    },
    /// A conversation can't be resumed, since the changes of a call can't be undone.
    #[error("what was cut off in {} can't be taken back", path.display())]
    Resume {
        /// The trace.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The index of traces can't be used.
    #[error("can't use the index of traces {}", path.display())]
    Index {
        /// Its file.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// The model could not answer.
    #[error("the model can't answer")]
    Model(#[source] ModelError),
    /// A model's events ended without `Done`.
    #[error("the model broke off without ending its turn")]
    NoEnd,
}
