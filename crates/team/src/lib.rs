//! The CAT data layer: teams, NPCs, jinxes, skills, gates and phases as text files.
//!
//! This crate reads and checks files, and fills in templates.
//! It runs nothing for a model: `policy` decides about calls, and `harness` makes them.
//!
//! # Layers
//!
//! A module uses only modules on the lines above its own, and on its own line only those to its
//! left:
//!
//! 1. `types`: the values that all modules use; `calls`: whether a turn must be a call.
//! 2. `error`; `source`, `yaml`, `markdown`, `fields`: text files, read with their locations.
//! 3. `ledger`: known facts about the world; `expression`: conditions over these facts.
//!    `hidden`: tools that must be unlocked; `model_spec`, `mcp`, `knowledge`: the models, servers
//!    and documents that a file names.
//! 4. `jinx`: its data, how it is read, checked and filled in; `skill`: a jinx that is a text.
//!    `gate`: rules about calls, based on earlier results; `phases`: an NPC's calls by phase.
//! 5. `team`: the team that the files of a directory define; `store`: its shared values.
//! 6. `prompt`: what a model learns of an NPC before the conversation.

pub mod calls;
pub mod error;
pub mod expression;
mod fields;
pub mod gate;
pub mod hidden;
pub mod jinx;
pub mod knowledge;
pub mod ledger;
mod markdown;
pub mod mcp;
pub mod model_spec;
pub mod phases;
pub mod prompt;
pub mod skill;
pub mod source;
pub mod store;
pub mod team;
pub mod types;
pub mod yaml;

pub use error::Error;
pub use jinx::Jinx;
pub use team::{Npc, Team};
pub use types::{Diagnostic, Effect, Limits, Location, Outcome, Severity, ToolResult, Verdict};
