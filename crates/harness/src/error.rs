//! Everything that can go wrong in the harness, by cause.

use std::path::PathBuf;

/// An error of the harness. A tool that fails or a model that stops early is none: that is a result.
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
    /// A sandbox with walls in a process that did not call [`sandbox::enter`](crate::sandbox::enter).
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
    /// The launcher could not put up a wall.
    #[error("the sandbox can't be set up: {message}")]
    Launcher {
        /// Which wall, and what the system said.
        message: String,
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
}
