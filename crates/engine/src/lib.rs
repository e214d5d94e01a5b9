//! GGUF to tokens to logits to text.
//!
//! The engine knows nothing of agents, does no network, prints nothing and reads no environment.

#[cfg(test)]
#[path = "../../../tests/absent.rs"]
mod absent;
pub mod architecture;
pub mod backend;
pub mod cache;
pub mod chat;
pub mod decoder;
pub mod device;
pub mod engine;
mod error;
pub mod facts;
pub mod gguf;
pub mod grammar;
pub mod jinja;
pub mod layers;
mod listener;
mod logits;
pub mod memory;
pub mod nearest;
pub mod offload;
pub mod placement;
mod pool;
pub mod probe;
mod prompt_lookup;
mod repetition;
pub mod request;
pub mod role;
pub mod sampler;
mod sampling_overrides;
pub mod schedule;
mod sequence;
mod stop;
pub mod tokenizer;

pub use engine::{Engine, Events, Options};
pub use error::{Error, Result};
pub use request::{
    DraftUsage, Event, Finish, GrammarUsage, Message, Miss, Request, Role, Sampling, Segment, Tool, ToolCall,
    ToolChoice, Usage,
};
pub use sampling_overrides::SamplingOverrides;
