//! Teams, NPCs, jinxes, the sandbox, the agent loop and its trace.
//!
//! The harness talks to a model through one small trait and knows nothing of its insides; it prints nothing.

pub mod agent;
pub mod error;
mod fields;
#[cfg(test)]
mod ground;
pub mod jinx;
mod markdown;
pub mod model;
pub mod permission;
pub mod replay;
pub mod sandbox;
pub mod scratch;
pub mod session;
pub mod skill;
pub mod source;
pub mod store;
pub mod team;
pub mod tool;
pub mod trace;
pub mod yaml;

pub use agent::{Agent, Outcome};
pub use error::Error;
pub use jinx::{Jinx, ToolResult};
pub use model::{ChatModel, Events, ModelError, ModelSource, ModelSpec, Scripted, Single};
pub use sandbox::{Policy, Sandbox};
pub use session::{Caller, Notice, Session};
pub use team::{Npc, Team};
pub use trace::Trace;
