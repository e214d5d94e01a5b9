//! What is about to be written, for a person to look at and perhaps to edit before it is.

use std::fmt;
use std::path::{Path, PathBuf};

use super::change::Change;

/// A file as it would become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedFile {
    /// The path, relative to the work directory; absolute if it lies in a git folder elsewhere.
    pub path: PathBuf,
    /// What is in it; `None` = there is no such file.
    pub before: Option<Vec<u8>>,
    /// What would be in it; `None` = it would be gone.
    pub after: Option<Vec<u8>>,
}

/// What is about to be written.
pub trait Proposal: fmt::Debug + Sync {
    /// The files whose contents are known, in the order of their paths.
    fn files(&self) -> Vec<ProposedFile>;
    /// What else would change, each as a phrase: "removes a/ with 3 files".
    fn others(&self) -> Vec<String>;
    /// The texts that can be edited, each with the path of a file that its name says what it is.
    fn texts(&self) -> Vec<(PathBuf, String)>;
    /// Lets one of them be `text`.
    ///
    /// # Errors
    /// Why it can't be, for the person.
    fn edit(&self, path: &Path, text: &str) -> Result<(), String>;
    /// The paths of those that were edited.
    fn edited(&self) -> Vec<PathBuf>;
}

/// The files that would be lost by what is written over them.
pub fn overwritten(changes: &[Change], proposal: &dyn Proposal) -> Vec<ProposedFile> {
    let is_lost = |file: &ProposedFile| {
        let mut lost = changes.iter().filter(|change| change.needs_a_yes());
        file.before.is_some() && file.after.is_some() && lost.any(|change| change.path == file.path)
    };
    proposal.files().into_iter().filter(is_lost).collect()
}
