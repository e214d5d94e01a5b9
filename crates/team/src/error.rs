//! Why the files of a team can't be used.

use std::path::PathBuf;

use alara_text::nearest;

use crate::types::Diagnostic;

/// A team that can't be used, or a name that it doesn't know.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory that should be a team.
    #[error(
        "there is no team in {}: a team is a directory with a .ctx file and .npc files, and jinxes/ if it has its own",
        path.display()
    )]
    NoTeam {
        /// The directory.
        path: PathBuf,
    },
    /// A team has no usable NPCs.
    #[error("nobody leads the team in {}: none of its NPCs can be used{problems}", path.display())]
    NoNpc {
        /// The directory.
        path: PathBuf,
        /// The problems in its files, one per line.
        problems: String,
    },
    /// An unknown name.
    #[error("there is no {what} `{name}`{hint} (known: {known})")]
    Unknown {
        /// The kind of thing that it should name.
        what: &'static str,
        /// The name.
        name: String,
        /// A suggestion, or nothing.
        hint: String,
        /// All known names.
        known: String,
    },
    /// A file or directory can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file is unusable.
    #[error("{}", .0.plain())]
    Invalid(Diagnostic),
}

impl Error {
    /// The error for an unknown name, with a suggestion from the known ones.
    pub fn unknown<'a>(what: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.collect();
        let hint = nearest(name, known.iter().copied()).map(|near| format!(", did you mean `{near}`?"));
        Error::Unknown {
            what,
            name: name.to_owned(),
            hint: hint.unwrap_or_default(),
            known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
        }
    }
}

/// An error and its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
