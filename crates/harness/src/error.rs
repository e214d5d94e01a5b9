//! All errors of the harness, by cause.

use std::path::PathBuf;

use alara_engine::nearest;

use crate::model::ModelError;
use crate::types::Diagnostic;

/// An error of the harness.
/// A tool that fails or a model that stops early is not an error but a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The sandbox can't be had, or a program can't be run in it.
    #[error(transparent)]
    Sandbox(#[from] alara_sandbox::Error),
    /// A directory that should be a team.
    #[error(
        "there is no team in {}: a team is a directory with a .ctx file and .npc files, and jinxes/ if it has its own",
        path.display()
    )]
    NoTeam {
        /// The directory.
        path: PathBuf,
    },
    /// A team has no usable NPCs.
    #[error("nobody leads the team in {}: none of its NPCs can be used{problems}", path.display())]
    NoNpc {
        /// The directory.
        path: PathBuf,
        /// The problems in its files, one per line.
        problems: String,
    },
    /// An unknown name.
    #[error("there is no {what} `{name}`{hint} (known: {known})")]
    Unknown {
        /// The kind of thing that it should name.
        what: &'static str,
        /// The name.
        name: String,
        /// A suggestion, or nothing.
        hint: String,
        /// All known names.
        known: String,
    },
    /// A file or directory can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file of answers about permissions can't be used.
    #[error("the file of answers {} can't be used; delete it to start anew", path.display())]
    Answers {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// An answer about permissions can't be saved.
    #[error("this answer holds only for now, since {} can't be written", path.display())]
    Answer {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file is unusable.
    #[error("{}", .0.plain())]
    Invalid(Diagnostic),
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

impl Error {
    /// The error for an unknown name, with a suggestion from the known ones.
    pub fn unknown<'a>(what: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.collect();
        let hint = nearest(name, known.iter().copied()).map(|near| format!(", did you mean `{near}`?"));
        Error::Unknown {
            what,
            name: name.to_owned(),
            hint: hint.unwrap_or_default(),
            known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
        }
    }
}

/// An error and its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
