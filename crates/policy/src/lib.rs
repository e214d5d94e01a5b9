//! Decides about the calls of NPCs: by rules, answers of people and, for tools that a client runs,
//! by lists and gates.
//!
//! Nothing runs here: `harness` makes calls, and `server` passes those of a client's tools on.

pub mod client;
mod error;
pub mod permission;

pub use error::AnswersError;
