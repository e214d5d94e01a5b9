//! A text file, and diagnostics about it.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::types::{Diagnostic, Location, Severity};

/// What editors of Windows write at the head of a text in UTF-8.
const MARK: char = '\u{feff}';

/// A text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where it is; a built-in one has a path relative to the repository.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
}

impl Source {
    /// A file that says `text`; a byte order mark at its head is no part of that.
    pub fn new(path: PathBuf, text: String) -> Self {
        let text = text.strip_prefix(MARK).map(str::to_owned).unwrap_or(text);
        Source { path, text }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It can't be read, or is no text.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Ok(Source::new(path.to_owned(), text))
    }

    /// The file's name without its ending.
    pub fn stem(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Something odd that stops nobody.
    pub fn warning(&self, location: Location, message: impl Into<String>) -> Diagnostic {
        let (path, message) = (self.path.clone(), message.into());
        Diagnostic { path, location, severity: Severity::Warning, message }
    }

    /// Something that can't be used.
    pub fn error(&self, location: Location, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Error, ..self.warning(location, message) }
    }
}
