//! Teams, NPCs, jinxes, the sandbox, the agent loop and its trace.
//!
//! The harness talks to a model through one small trait and knows nothing of its internals; it
//! prints nothing.
//!
//! # Layers
//!
//! Teams and their files are in the crate `team`, decisions about calls in `policy`.
//! A module here uses only modules on the lines above its own:
//!
//! 1. `error`: all errors; `model`: the way to a model.
//! 2. `mcp`: the protocol of MCP servers; `knowledge`: the search in documents.
//! 3. `trace`, `context_files`: records of a run.
//!    `state`: where these are stored between runs.
//! 4. `run`: agents, tools, the steps of jinxes, the servers of a session.
//!    It is one recursion.
//! 5. `replay`: repeats a recorded run; `resume`: continues one.
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

pub mod context_files;
pub mod error;
pub mod knowledge;
pub mod mcp;
pub mod model;
#[cfg(test)]
mod policy_tests;
pub mod replay;
pub mod resume;
pub mod run;
pub mod state;
#[cfg(test)]
mod testing;
pub mod trace;

pub use alara_policy::{client, permission};
pub use alara_sandbox as sandbox;
pub use alara_sandbox::{scratch, undo};
pub use alara_team::{
    Diagnostic, Effect, Error as TeamError, Jinx, Limits, Location, Npc, Outcome, Severity, Team, ToolResult,
    Verdict, calls, expression, gate, hidden, jinx, ledger, phases, prompt, skill, source, store, team,
    types, yaml,
};
pub use error::Error;
pub use model::{
    ChatModel, Embedder, Endpoint, Events, ModelError, ModelSource, ModelSpec, Models, Scripted, Single,
};
pub use run::agent::Agent;
pub use run::session::{Caller, Notice, Session};
pub use run::{agent, session, tool};
pub use sandbox::{Policy, Sandbox};
pub use trace::Trace;
