//! Locations in files, and diagnostics.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// A location in a file: line and column, from 1; 0 for the file as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Location {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Everything still works.
    Warning,
    /// The file, or the part that it is about, is unusable.
    Error,
}

/// A message about a location in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file.
    pub path: PathBuf,
    /// The location in it.
    #[serde(flatten)]
    pub location: Location,
    /// The severity.
    pub severity: Severity,
    /// The problem, and what was probably meant.
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
    /// Location and message, for output where the severity is known.
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
