//! Why a program can't be run in the sandbox, by cause.

use std::path::PathBuf;

/// An error of the sandbox.
/// A program that fails is none: that is its [`Output`](crate::Output).
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
    /// [`enter`](crate::enter).
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
}
