//! Why answers about permissions can't be used.

use std::path::PathBuf;

/// The file of a person's answers can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AnswersError {
    /// The file of answers about permissions can't be used.
    #[error("the file of answers {} can't be used; delete it to start anew", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// An answer about permissions can't be saved.
    #[error("this answer holds only for now, since {} can't be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}
