//! Teams, NPCs, jinxes, the sandbox, the agent loop and its trace.
//!
//! The harness talks to a model through one small trait and knows nothing of its insides; it prints nothing.

pub mod error;
pub mod sandbox;

pub use error::Error;
