//! Runs agents, the tools that they call, and the steps of jinxes.
//!
//! This is one module because it is one recursion.
//! An agent calls tools, a tool runs a jinx, a step of a jinx may be an agent.
//! All of them share `session`; `as_json` writes its notices as JSON.
//! `tool` is the one place where tools run, `agent` the loop of turns, and `steps` runs a jinx.
//! `guarded` asks about destructive programs, and `jobs` holds those that run in the background.
//! `mcp` holds the servers of a session, `mocks` the results of a replay.
//! `gates` checks calls against gates and lets gates learn from results; `refusals` counts refused
//! calls.
//! `review` and `hooks` surround a call: a person's review of it, and a team's jinxes.

pub mod agent;
pub mod as_json;
pub mod gates;
mod guarded;
pub mod hooks;
pub mod jobs;
pub mod mcp;
pub mod mocks;
mod refusals;
mod remedies;
mod review;
pub mod session;
pub mod steps;
pub mod tool;

pub use agent::Agent;
pub use jobs::{JobAction, Jobs};
pub use mocks::Mocks;
pub use refusals::{last_change_refused, refusals};
pub use session::{Caller, Notice, Session};
pub use steps::{Memo, Responses};
