//! A text file and what there is to say about places in it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::Error;
use crate::jinx::Place;

/// A text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where it is; a built-in one has a path relative to the repository.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It stops nobody.
    Warning,
    /// The file, or the part that it is about, can't be used.
    Error,
}

/// Something to say about a place of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    #[serde(flatten)]
    pub place: Place,
    /// How bad it is.
    pub severity: Severity,
    /// What is odd, and what may have been meant.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{}: {severity}: {}", self.location(), self.message)
    }
}

impl Diagnostic {
    /// Place and message, where it is clear how bad it is.
    pub fn plain(&self) -> String {
        format!("{}: {}", self.location(), self.message)
    }

    fn location(&self) -> String {
        match self.place.line {
            0 => self.path.display().to_string(),
            line => format!("{}:{line}:{}", self.path.display(), self.place.column),
        }
    }
}

impl Source {
    /// Reads a file.
    ///
    /// # Errors
    /// It can't be read, or is no text.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Ok(Source { path: path.to_owned(), text })
    }

    /// The file's name without its ending.
    pub fn stem(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Something odd that stops nobody.
    pub fn warning(&self, place: Place, message: impl Into<String>) -> Diagnostic {
        let (path, message) = (self.path.clone(), message.into());
        Diagnostic { path, place, severity: Severity::Warning, message }
    }

    /// Something that can't be used.
    pub fn error(&self, place: Place, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Error, ..self.warning(place, message) }
    }
}
