//! GGUF to tokens to logits to text.
//!
//! The engine knows nothing of agents, does no network, prints nothing and reads no environment.

pub mod gguf;
pub mod request;
pub mod tokenizer;

pub use request::{
    Event, Finish, Message, Request, Role, Sampling, Segment, Tool, ToolCall, ToolChoice, Usage,
};
