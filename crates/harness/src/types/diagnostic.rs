//! Locations in files, and diagnostics.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// A location in a file: line and column, from 1; 0 = the file as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Location {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
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

/// A message about a location in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    #[serde(flatten)]
    pub location: Location,
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
    /// Location and message, where it is clear how bad it is.
    pub fn plain(&self) -> String {
        format!("{}: {}", self.location(), self.message)
    }

    fn location(&self) -> String {
        match self.location.line {
            0 => self.path.display().to_string(),
            line => format!("{}:{line}:{}", self.path.display(), self.location.column),
        }
    }
}
