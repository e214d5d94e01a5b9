//! Tools that other programs offer, by the Model Context Protocol
//! (<https://modelcontextprotocol.io/specification/2026-07-28>, and the versions before).
//!
//! A server's tool is a jinx of the NPCs that name the server: on their list, in the grammar,
//! checked against rules, and traced.
//! `offer` cleans a server's descriptions of its tools (`schema`: of their arguments), and
//! `resources` makes a tool that reads its resources.
//! `client` talks to a server, over `rpc` and a program's pipes (`stdio`) or `http` (with
//! `headers`), in the version of the protocol that `greeting` finds.
//! `content` reads results.
//! [`Server`] is a server as a team's file names it.
//! `run` starts each once a session, with consent.
//!
//! alara doesn't trust a server's messages: they are bounded and cleaned, and a server that fails
//! affects only its own tools.

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

pub use alara_team::mcp::{Given, START, Server, Transport, Way};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The state of a server that an NPC names, as the trace records it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Its name.
    pub server: String,
    /// See [`Server::start`].
    pub start: String,
    /// Who permitted or forbade its start.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Its own name and version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Its names for its tools, by the model's names for them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub tools: Map<String, Value>,
    /// Why it has no tools; empty if it has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}
