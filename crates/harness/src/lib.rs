//! Teams, NPCs, jinxes, the sandbox, the agent loop and its trace.
//!
//! The harness talks to a model through one small trait and knows nothing of its internals; it
//! prints nothing.
//!
//! # Layers
//!
//! A module uses only modules on the lines above its own, and on its own line only those to its
//! left:
//!
//! 1. `types`: the values that all modules use; `calls`: whether a turn must be a call.
//! 2. `model`: the way to a model; `error`: all errors.
//! 3. `source`, `yaml`, `markdown`, `fields`: text files, read with their locations.
//! 4. `scratch`, `sandbox`: where programs run; `mcp`: the protocol of MCP servers.
//!    `ledger`: known facts about the world; `expression`: conditions over these facts.
//!    `knowledge`: documents, and the search for passages in them.
//! 5. `jinx`: its data, how it is read, checked and filled in; `skill`: a jinx that is a text.
//!    `gate`: rules about calls, based on earlier results; `phases`: an NPC's calls by phase.
//! 6. `team`: the team that the files of a directory define.
//! 7. `permission`, `client`, `store`, `trace`: decisions, shared values and records of a run.
//!    `state`: where these are stored between runs.
//! 8. `run`: agents, tools, the steps of jinxes, the servers of a session.
//!    It is one recursion.
//! 9. `replay`: repeats a recorded run.
//!
//! # In your own program
//!
//! A model, a directory for its work, a team, and a task:
//!
//! ```standalone_crate
//! use alara_engine::Gguf;
//! use alara_engine::{Engine, Options};
//! use alara_harness::{Agent, Outcome, Policy, Sandbox, Session, Single, Team, sandbox};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // First of all: programs are run by this program, started again in isolation.
//!     sandbox::enter();
//!
//!     let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/alara-tiny.gguf");
//!     let engine = Engine::load(&Gguf::open(file.as_ref())?, &Options::default())?;
//!     // Or a model elsewhere: `Endpoint::new("http://127.0.0.1:11434/v1#qwen3:4b".parse()?, endpoint::Options::default())?`
//!     let models = Single(&engine);
//!
//!     let work = tempfile::tempdir()?;
//!     let sandbox = Sandbox::new(work.path(), Policy::default())?;
//!     // Or `Team::load(directory)`: a team is a directory of text files.
//!     let team = Team::stock("alara")?;
//!
//!     let session = Session::new(&models, &sandbox);
//!     let mut agent = Agent::new(&session, &team, team.npc(None)?, None)?;
//!     match agent.run("Create the file hello.txt with the text hello in it.")? {
//!         Outcome::Answer { text } => println!("{text}"),
//!         other => println!("{}", other.reason()),
//!     }
//!     println!("{} tokens", agent.usage().completion_tokens);
//! #   assert!(agent.usage().completion_tokens > 0);
//!     Ok(())
//! }
//! ```

pub mod calls;
pub mod client;
pub mod context_files;
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
pub mod model;
pub mod permission;
pub mod phases;
#[cfg(test)]
mod policy_tests;
pub mod replay;
pub mod resume;
pub mod run;
pub mod skill;
pub mod source;
pub mod state;
pub mod store;
pub mod team;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod types;
pub mod yaml;

pub use alara_sandbox as sandbox;
pub use alara_sandbox::{scratch, undo};
pub use error::Error;
pub use jinx::Jinx;
pub use model::{
    ChatModel, Embedder, Endpoint, Events, ModelError, ModelSource, ModelSpec, Models, Scripted, Single,
};
pub use run::agent::Agent;
pub use run::session::{Caller, Notice, Session};
pub use run::{agent, session, tool};
pub use sandbox::{Policy, Sandbox};
pub use team::{Npc, Team};
pub use trace::Trace;
pub use types::{Diagnostic, Effect, Limits, Location, Outcome, Severity, ToolResult, Verdict};
