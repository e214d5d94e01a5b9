//! Changes that are about to be written, for a person to review and perhaps edit first.

use std::fmt;
use std::path::{Path, PathBuf};

use super::change::Change;

/// A file with its old and new contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedFile {
    /// The path, relative to the work directory; absolute if it is in a git folder elsewhere.
    pub path: PathBuf,
    /// The old contents; `None` if there is no such file.
    pub before: Option<Vec<u8>>,
    /// The new contents; `None` if the file would be removed.
    pub after: Option<Vec<u8>>,
}

/// Changes that are about to be written.
pub trait Proposal: fmt::Debug + Sync {
    /// The files with known contents, in the order of their paths.
    fn files(&self) -> Vec<ProposedFile>;
    /// The other changes, each as a phrase: "removes a/ with 3 files".
    fn others(&self) -> Vec<String>;
    /// The texts that can be edited, each with a path whose extension tells the text's type.
    fn texts(&self) -> Vec<(PathBuf, String)>;
    /// Replaces one of the texts by `text`.
    ///
    /// # Errors
    /// Why this isn't possible, for the person.
    fn edit(&self, path: &Path, text: &str) -> Result<(), String>;
    /// The paths of the edited texts.
    fn edited(&self) -> Vec<PathBuf>;
}

/// The files that would be lost by being overwritten.
pub fn overwritten(changes: &[Change], proposal: &dyn Proposal) -> Vec<ProposedFile> {
    let is_lost = |file: &ProposedFile| {
        let mut lost = changes.iter().filter(|change| change.needs_a_yes());
        file.before.is_some() && file.after.is_some() && lost.any(|change| change.path == file.path)
    };
    proposal.files().into_iter().filter(is_lost).collect()
}
