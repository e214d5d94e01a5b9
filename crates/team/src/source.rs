//! A text file, and diagnostics about it.

use std::io;
use std::path::{Path, PathBuf};

use alara_text::file;

use crate::error::Error;
use crate::types::{Diagnostic, Location, Severity};

/// The byte order mark that Windows editors write at the beginning of UTF-8 text.
const MARK: char = '\u{feff}';

/// Reads the text of a file.
///
/// # Errors
/// It can't be read, is no regular file, or is not UTF-8.
pub fn read(path: &Path) -> io::Result<String> {
    file::read_text(path, file::TEXT).map_err(no_text)
}

/// An error while reading a text, in terms of the file.
pub(crate) fn no_text(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::InvalidData => io::Error::new(error.kind(), "it is no UTF-8 text: save it as one"),
        _ => error,
    }
}

/// A text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its path; that of a built-in file is relative to the repository.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

impl Source {
    /// A file with `text`; a byte order mark at its beginning is removed.
    pub fn new(path: PathBuf, text: String) -> Self {
        let text = text.strip_prefix(MARK).map(str::to_owned).unwrap_or(text);
        Source { path, text }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It can't be read, or is not text.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let text = read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Ok(Source::new(path.to_owned(), text))
    }

    /// The file's name without its extension.
    pub fn stem(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// A warning, for a problem that doesn't stop the work.
    pub fn warning(&self, location: Location, message: impl Into<String>) -> Diagnostic {
        let (path, message) = (self.path.clone(), message.into());
        Diagnostic { path, location, severity: Severity::Warning, message }
    }

    /// An error, for a part that is unusable.
    pub fn error(&self, location: Location, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Error, ..self.warning(location, message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_encodings_are_told_in_our_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jinx");
        std::fs::write(&path, b"caf\xe9").unwrap();
        let error = Source::from_file(&path).unwrap_err();
        let told = crate::error::chain(&error);
        assert!(told.ends_with("a.jinx: it is no UTF-8 text: save it as one"), "{told}");
    }
}
