//! Errors of the hub.

use ureq::http::StatusCode;

/// Why the hub didn't provide a file.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error(
        "{repository} is gated: its owner gives it to those who agree to terms\n\
         hint: agree at {endpoint}/{repository}, then set HF_TOKEN to a token of your account, or run `hf auth login`"
    )]
    Gated { endpoint: String, repository: String },
    #[error(
        "{endpoint} has no repository {repository}, or shows it to some accounts only\n\
         hint: check the name; for a private repository set HF_TOKEN"
    )]
    NoRepository { endpoint: String, repository: String },
    #[error("{repository} has no revision {revision}")]
    NoRevision { repository: String, revision: String },
    #[error("{repository} has no file {file}\nhint: see {endpoint}/{repository}/tree/main")]
    NoFile { endpoint: String, repository: String, file: String },
    #[error("{endpoint} does not accept the token\nhint: set HF_TOKEN to a valid one, or to nothing")]
    Token { endpoint: String },
    #[error("{url} answered {status}{message}")]
    Refused { url: String, status: StatusCode, message: String },
    #[error(
        "can't download from {url}: {reason}\n\
         hint: try again later, which goes on where it stopped; behind a proxy set HTTPS_PROXY; HF_ENDPOINT names \
         another hub"
    )]
    Broken { url: String, reason: String },
    #[error(
        "{url} answered what makes no sense: {reason}\n\
         hint: a proxy or a login page may answer in its place; HF_ENDPOINT names another hub"
    )]
    Nonsense { url: String, reason: String },
    #[error(
        "the disk of {path} is full: {reason}; what was downloaded is removed\n\
         hint: make room, or set HF_HOME to a folder on another disk"
    )]
    Full { path: String, reason: String },
    #[error("the download of {file} was stopped; a later one goes on where it stopped")]
    Stopped { file: String },
    #[error("can't write {path}")]
    Write { path: String, source: std::io::Error },
    #[error(
        "{file} is damaged: its SHA-256 is {found}, but should be {expected}; what was downloaded is removed\n\
         hint: pull it again"
    )]
    Checksum { file: String, found: String, expected: String },
}
