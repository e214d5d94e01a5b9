//! MCP servers as a team's files name them, and what their names and texts may contain.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::types::{Location, hex};

/// Longest name of a tool in a prompt; some endpoints accept no more.
pub const NAME_BYTES: usize = 64;
/// The name of a server's start in rules and questions, as if it were a jinx.
pub const START: &str = "mcp";

/// A server as a file names it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Server {
    /// Its name: `[A-Za-z0-9_-]+`.
    pub name: String,
    /// How to reach it.
    #[serde(flatten)]
    pub way: Way,
    /// The environment variables that a program gets, or the headers to send.
    #[serde(rename = "with", skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<(String, Given)>,
    /// Whether a program needs the network.
    /// Default false.
    pub network: bool,
    /// The only tools to use, by the server's names.
    /// `None` for all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Wall-clock limit for each call.
    /// Default 60 s.
    pub timeout: Duration,
    /// The file that names it.
    #[serde(skip)]
    pub path: PathBuf,
    /// Its location in the file.
    #[serde(skip)]
    pub location: Location,
}

/// How to reach a server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// A program and its arguments; messages go over its pipes.
    Program(Vec<String>),
    /// An address.
    Http {
        /// `http://…` or `https://…`.
        url: String,
        /// `None` for streamable HTTP, or the older transport if the server doesn't know that.
        transport: Option<Transport>,
    },
}

/// How messages are sent over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Each message is a request (protocol 2025-03-26 and later).
    StreamableHttp,
    /// One stream of events from the server, which names the address for messages to it (protocol
    /// 2024-11-05).
    Sse,
}

/// A value of a variable or a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum Given {
    /// The text in the file.
    /// It is shown.
    Text(String),
    /// The value of an environment variable.
    /// It is never shown.
    Variable(String),
    /// As [`Variable`](Self::Variable), after `Bearer `.
    Bearer(String),
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Given::Text(text) => write!(f, "{text:?}"),
            Given::Variable(name) => write!(f, "${name}"),
            Given::Bearer(name) => write!(f, "Bearer ${name}"),
        }
    }
}

impl From<Given> for String {
    fn from(given: Given) -> String {
        given.to_string()
    }
}

impl Given {
    /// The value, and the part of it that must not be shown.
    ///
    /// # Errors
    /// The name of a variable that isn't set.
    pub fn value(&self) -> Result<(String, Option<String>), String> {
        let secret = |name: &String| std::env::var(name).map_err(|_| name.clone());
        Ok(match self {
            Given::Text(text) => (text.clone(), None),
            Given::Variable(name) => secret(name).map(|value| (value.clone(), Some(value)))?,
            Given::Bearer(name) => {
                secret(name).map(|value| (format!("Bearer {}", value.trim()), Some(value)))?
            }
        })
    }
}

impl Server {
    /// Everything that its start involves, in one line without secrets: for the question to a
    /// person, and for the trace.
    pub fn start(&self) -> String {
        let mut text = match &self.way {
            Way::Program(words) => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            Way::Http { url, .. } => url.clone(),
        };
        if !self.given.is_empty() {
            let given = self.given.iter().map(|(name, given)| format!("{name}={given}"));
            text += &format!(" with {}", given.collect::<Vec<_>>().join(", "));
        }
        text + if self.network { " and the network" } else { "" }
    }

    /// The files that its command names, if it starts in the directory `work`.
    pub fn files(&self, work: &Path) -> Vec<PathBuf> {
        let Way::Program(words) = &self.way else { return Vec::new() };
        // A program without a slash is looked up in `PATH`.
        let named = words.iter().enumerate().filter(|(at, word)| *at > 0 || word.contains('/'));
        named.map(|(_, word)| work.join(word)).filter(|path| path.is_file()).collect()
    }

    /// A hash of the contents of these files; `None` if there are none.
    pub fn content(&self, work: &Path) -> Option<String> {
        let files = self.files(work);
        let mut hasher = Sha256::new();
        for path in &files {
            let path_bytes = path.as_os_str().as_encoded_bytes();
            hasher.update((path_bytes.len() as u64).to_le_bytes());
            hasher.update(path_bytes);
            // An unreadable file can't be run either, which gives an error then.
            if let Ok(mut file) = std::fs::File::open(path) {
                let _ = std::io::copy(&mut file, &mut hasher);
            }
        }
        (!files.is_empty()).then(|| hex(&hasher.finalize()))
    }
}

/// A word of a command, quoted so that it stays separate.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("{word:?}") }
}

/// A name that a prompt can contain: other characters become `_`, and a long name is cut.
pub fn name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    name.chars().take(NAME_BYTES).map(plain).collect()
}

/// External text as a message may show it: on one line, and short.
pub fn printable(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    clean.trim().to_owned()
}
