//! Everything that can go wrong in the harness, by cause.

use std::path::PathBuf;

use alara_engine::nearest;

use crate::model::ModelError;
use crate::types::Diagnostic;

/// An error of the harness.
/// A tool that fails or a model that stops early is none: that is a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory that the sandbox needs.
    #[error("the {what} {} can't be used", path.display())]
    Directory {
        /// What it is needed for.
        what: &'static str,
        /// The directory as it was given.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A sandbox with isolation in a process that did not call
    /// [`sandbox::enter`](crate::sandbox::enter).
    #[error("the sandbox has no launcher: `sandbox::enter()` must be the first call in `main`")]
    NoLauncher,
    /// A private `/tmp` was asked for and can't be had.
    #[error(
        "a private /tmp can't be enforced on this machine (enforced: {enforced}); \
         it needs Linux with unprivileged user namespaces"
    )]
    PrivateTmp {
        /// What can be enforced.
        enforced: String,
    },
    /// The launcher could not set up the isolation.
    #[error("the sandbox can't be set up: {message}")]
    Launcher {
        /// Which part of it, and the system's error.
        message: String,
    },
    /// Something that programs must not change, and could.
    #[error("{} lies in the work directory, and this machine can't keep steps from changing it: {why}\n\
             hint: work in another directory (--workdir); `alara doctor` says what is missing here",
            path.display())]
    Unprotected {
        /// What it is.
        path: PathBuf,
        /// What is missing.
        why: &'static str,
    },
    /// A program can't be started.
    #[error("can't start `{program}`")]
    Spawn {
        /// The program's name.
        program: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The end of a program can't be awaited.
    #[error("can't wait for a program")]
    Wait {
        /// Why not.
        source: std::io::Error,
    },
    /// The layer that a guarded program writes to.
    #[error("the layer over the work directory, in {}, {what}", path.display())]
    Layer {
        /// What can't be done with it.
        what: &'static str,
        /// Where layers are kept.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// What a guarded program did can't be done to the work directory.
    #[error("what a program wrote can't be taken over into {}; what was written till then stays", path.display())]
    Taken {
        /// The work directory.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A directory that should be a team.
    #[error(
        "there is no team in {}: a team is a directory with a .ctx file and .npc files, and jinxes/ if it has its own",
        path.display()
    )]
    NoTeam {
        /// The directory.
        path: PathBuf,
    },
    /// A team whose NPCs can't be used, or that has none.
    #[error("nobody leads the team in {}: none of its NPCs can be used{problems}", path.display())]
    NoNpc {
        /// The directory.
        path: PathBuf,
        /// What is wrong in its files, a line for each.
        problems: String,
    },
    /// A name that nothing has.
    #[error("there is no {what} `{name}`{hint} (known: {known})")]
    Unknown {
        /// What was looked for.
        what: &'static str,
        /// The name.
        name: String,
        /// A suggestion, or nothing.
        hint: String,
        /// All the names that there are.
        known: String,
    },
    /// A file or directory that can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file of answers about permissions.
    #[error("the file of answers {} can't be used; delete it to start anew", path.display())]
    Answers {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// An answer about permissions that can't be written down.
    #[error("this answer holds only for now, since {} can't be written", path.display())]
    Answer {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file that can't be used.
    #[error("{}", .0.plain())]
    Invalid(Diagnostic),
    /// A trace file that can't be written or read.
    #[error("can't use the trace file {}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A line of a trace file that is no record.
    #[error("{}:{line}: not a trace record", path.display())]
    TraceLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Why not.
        source: serde_json::Error,
    },
    /// A trace that somebody else writes.
    #[error(
        "{} is being written by another alara; it can go on here once that has ended",
        path.display()
    )]
    TraceInUse {
        /// The file.
        path: PathBuf,
    },
    /// A trace that holds no conversation.
    #[error("no conversation begins in {}, so none can go on\nhint: alara trace list", path.display())]
    NoConversation {
        /// The file.
        path: PathBuf,
    },
    /// A conversation that can't go on, since what a call had changed can't be taken back.
    #[error("what was cut off in {} can't be taken back", path.display())]
    Resume {
        /// The trace.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The index of traces can't be used.
    #[error("can't use the index of traces {}", path.display())]
    Index {
        /// Its file.
        path: PathBuf,
        /// Why not.
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
    /// For a name that is not among the known ones, with the one that may have been meant.
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
