//! Running: agents, the tools that they call, the steps of jinxes.
//!
//! It is one module because it is one recursion.
//! An agent calls tools, a tool runs a jinx, a step of a jinx may be an agent.
//! `session` is what all of them share, `as_json` its notices as JSON.
//! `tool` is the one place where tools run, `agent` the loop of turns, `steps` runs a jinx.
//! `guarded` asks about what programs take away, `jobs` holds those that run in the background.
//! `mcp` holds the servers of a session, `mocks` the results of a replay.
//! `gates` holds calls against gates and lets these learn from results; `refusals` counts what was
//! refused.
//! `review` and `hooks` are what stands around a call: a person who looks at it, a team's jinxes.

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
