//! Why a model can't be found, read or downloaded.
//!
//! A message names what is wrong and where; after `\nhint: ` it may say what to do.

use std::io;

use ureq::http::StatusCode;

/// Why there is no such model, or why it can't be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that means no model, more than one, or something else.
    #[error("{0}")]
    Name(String),
    /// A file or folder that is no model.
    #[error("{0}")]
    File(String),
    /// The environment names no folder for models, or no proper hub.
    #[error("{0}")]
    Environment(String),
    /// An embedded file of the catalog can't be parsed.
    #[error("the catalog is broken: {0}")]
    Catalog(String),
    /// A download that isn't begun.
    #[error("{0}")]
    Download(String),
    /// The hub didn't provide a file.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The engine can't read a file as a model.
    #[error(transparent)]
    Engine(#[from] alara_engine::Error),
    /// The system refuses to read or write.
    #[error("{what}")]
    Io {
        /// What was done, and to which path.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// Returns an error of a kind, with a message as `format!` makes it.
macro_rules! bail {
    ($kind:ident, $($message:tt)+) => {
        return Err($crate::error::Error::$kind(format!($($message)+)))
    };
}

/// Returns such an error unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $kind:ident, $($message:tt)+) => {
        if !$condition {
            return Err($crate::error::Error::$kind(format!($($message)+)));
        }
    };
}

pub(crate) use {bail, ensure};

impl Error {
    /// Returns what makes an error of the system's: `what` was done, and to which path.
    pub(crate) fn io(what: String) -> impl FnOnce(io::Error) -> Error {
        |source| Error::Io { what, source }
    }
}

/// The result of looking for a model.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the hub didn't provide a file.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// Its users have to agree to terms first.
    #[error(
        "{repository} is gated: its owner gives it to those who agree to terms\n\
         hint: agree at {endpoint}/{repository}, then set HF_TOKEN to a token of your account, or run `hf auth login`"
    )]
    Gated {
        /// The hub's address.
        endpoint: String,
        /// `owner/name`.
        repository: String,
    },
    /// There is no such repository, or it is hidden.
    #[error(
        "{endpoint} has no repository {repository}, or shows it to some accounts only\n\
         hint: check the name; for a private repository set HF_TOKEN"
    )]
    NoRepository {
        /// The hub's address.
        endpoint: String,
        /// `owner/name`.
        repository: String,
    },
    /// The repository has no such commit, branch or tag.
    #[error("{repository} has no revision {revision}")]
    NoRevision {
        /// `owner/name`.
        repository: String,
        /// What was asked for.
        revision: String,
    },
    /// The revision has no such file.
    #[error("{repository} has no file {file}\nhint: see {endpoint}/{repository}/tree/main")]
    NoFile {
        /// The hub's address.
        endpoint: String,
        /// `owner/name`.
        repository: String,
        /// The file's path in the repository.
        file: String,
    },
    /// The hub doesn't know the token.
    #[error("{endpoint} does not accept the token\nhint: set HF_TOKEN to a valid one, or to nothing")]
    Token {
        /// The hub's address.
        endpoint: String,
    },
    /// The hub refuses for another reason.
    #[error("{url} answered {status}{message}")]
    Refused {
        /// The address that was asked.
        url: String,
        /// The HTTP status.
        status: StatusCode,
        /// The server's message, after a colon.
        message: String,
    },
    /// The connection failed again and again.
    #[error(
        "can't download from {url}: {reason}\n\
         hint: try again later, which goes on where it stopped; behind a proxy set HTTPS_PROXY; HF_ENDPOINT names \
         another hub"
    )]
    Broken {
        /// The address that was asked.
        url: String,
        /// The problem.
        reason: String,
    },
    /// An answer against the protocol.
    #[error(
        "{url} answered what makes no sense: {reason}\n\
         hint: a proxy or a login page may answer in its place; HF_ENDPOINT names another hub"
    )]
    Nonsense {
        /// The address that was asked.
        url: String,
        /// The problem.
        reason: String,
    },
    /// The disk has no space left.
    #[error(
        "the disk of {path} is full: {reason}; what was downloaded is removed\n\
         hint: make room, or set HF_HOME to a folder on another disk"
    )]
    Full {
        /// The file on this machine.
        path: String,
        /// The problem.
        reason: String,
    },
    /// The caller stopped the download.
    #[error("the download of {file} was stopped; a later one goes on where it stopped")]
    Stopped {
        /// The file's path in the repository.
        file: String,
    },
    /// The file that a download writes to can't be written.
    #[error("can't write {path}")]
    Write {
        /// The file on this machine.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// What came is not the file.
    #[error(
        "{file} is damaged: its SHA-256 is {found}, but should be {expected}; what was downloaded is removed\n\
         hint: pull it again"
    )]
    Checksum {
        /// The file's path in the repository.
        file: String,
        /// The SHA-256 of what came.
        found: String,
        /// The SHA-256 by the hub.
        expected: String,
    },
}
