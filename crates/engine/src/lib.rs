//! GGUF to tokens to logits to text.
//!
//! The engine knows nothing of agents, does no network, prints nothing and reads no environment.

pub mod chat;
pub mod grammar;
pub mod request;
pub mod sampler;

pub use request::{
    Event, Finish, Message, Request, Role, Sampling, Segment, Tool, ToolCall, ToolChoice, Usage,
};
