//! Tools that other programs offer, by the Model Context Protocol
//! (<https://modelcontextprotocol.io/specification/2026-07-28>, and the versions before).
//!
//! A tool of a server is a jinx of the NPCs that name the server: on their list, in the grammar,
//! held against rules, traced.
//! `offer` cleans a server's descriptions of its tools (`schema`: of their arguments), and
//! `resources` makes one that reads them.
//! `client` speaks with a server, over `rpc` and a program's pipes (`stdio`) or `http` (with
//! `headers`), in the version of the protocol that `greeting` finds.
//! `content` reads results.
//! `team` reads a [`Server`] from a file.
//! `run` starts each once a session, with consent.
//!
//! What a server says is nobody's word: it is bounded and cleaned, and a server that fails takes
//! nothing down but its own tools.

pub(crate) mod client;
mod content;
mod greeting;
mod headers;
mod http;
pub(crate) mod offer;
mod protocol;
pub(crate) mod resources;
pub(crate) mod rpc;
mod schema;
mod stdio;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::types::{Location, hex};

/// What rules and questions call the start of a server, as if it were a jinx.
pub const START: &str = "mcp";

/// A server as a file names it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Server {
    /// What it is called: `[A-Za-z0-9_-]+`.
    pub name: String,
    /// How it is reached.
    #[serde(flatten)]
    pub way: Way,
    /// The environment variables that a program gets, or the headers that are sent.
    #[serde(rename = "with", skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<(String, Given)>,
    /// Whether a program needs the network.
    /// Default false.
    pub network: bool,
    /// The only tools that are taken, by the server's names.
    /// `None` = all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Wall-clock limit for each call.
    /// Default 60 s.
    pub timeout: Duration,
    /// The file that names it.
    #[serde(skip)]
    pub path: PathBuf,
    /// Where in the file.
    #[serde(skip)]
    pub location: Location,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// A program and its arguments; it is spoken with over its pipes.
    Program(Vec<String>),
    /// An address.
    Http {
        /// `http://…` or `https://…`.
        url: String,
        /// `None` = streamable HTTP, or the older one if the server does not know that.
        transport: Option<Transport>,
    },
}

/// How HTTP is used.
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
    /// As it stands in the file.
    /// It is shown.
    Text(String),
    /// What an environment variable holds.
    /// It is never shown.
    Variable(String),
    /// The same after `Bearer `.
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
    /// The value, and what of it must not be shown.
    ///
    /// # Errors
    /// The variable is not set; its name.
    fn value(&self) -> Result<(String, Option<String>), String> {
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
    /// All that its start means, in one line without secrets: what a person is asked about, and
    /// what the trace tells.
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

    /// The files that its command names, when it starts in the directory `work`.
    pub fn files(&self, work: &Path) -> Vec<PathBuf> {
        let Way::Program(words) = &self.way else { return Vec::new() };
        // A program without a slash is looked up in `PATH`.
        let named = words.iter().enumerate().filter(|(at, word)| *at > 0 || word.contains('/'));
        named.map(|(_, word)| work.join(word)).filter(|path| path.is_file()).collect()
    }

    /// A hash of what these files say; `None`: there are none.
    pub fn content(&self, work: &Path) -> Option<String> {
        let files = self.files(work);
        let mut hasher = Sha256::new();
        for path in &files {
            let path_bytes = path.as_os_str().as_encoded_bytes();
            hasher.update((path_bytes.len() as u64).to_le_bytes());
            hasher.update(path_bytes);
            // What can't be read can't be run either, and says so then.
            if let Ok(mut file) = std::fs::File::open(path) {
                let _ = std::io::copy(&mut file, &mut hasher);
            }
        }
        (!files.is_empty()).then(|| hex(&hasher.finalize()))
    }
}

/// A word of a command as it stands apart from others.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("{word:?}") }
}

/// What became of a server that an NPC names, as the trace tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Its name.
    pub server: String,
    /// See [`Server::start`].
    pub start: String,
    /// Who permitted its start, or forbade it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// What it calls itself, and its version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// What it calls its tools, by what the model calls them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub tools: Map<String, Value>,
    /// Why there are none; empty if there are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// Foreign words as a message may show them: on one line, and short.
pub(crate) fn printable(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    clean.trim().to_owned()
}
