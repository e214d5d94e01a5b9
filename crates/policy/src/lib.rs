//! Decides about the calls of NPCs.
//!
//! [`decision`] is the decision about a call, by the phase, the list, the gates and the rules of
//! its NPC.
//! [`permission`] matches rules with calls, and remembers the answers of people.
//! [`client`] decides about tools that a client runs.
//!
//! Nothing runs here: `harness` makes calls, and `server` passes those of a client's tools on.

pub mod client;
pub mod decision;
mod error;
pub mod permission;

pub use decision::Decision;
pub use error::AnswersError;
