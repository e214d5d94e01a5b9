//! Everything that a language model reads and writes, except for its computation.
//!
//! GGUF files, tokenizers, chat templates and tool formats, the parser of what a model writes,
//! grammars that constrain it, and samplers that choose the next token.
//! [`request`] has the types that all of them share.
//! Nothing here knows tensors, agents or the network, prints, or reads the environment.

#[cfg(test)]
#[path = "../../../tests/absent.rs"]
mod absent;
pub mod chat;
pub mod file;
pub mod gguf;
pub mod grammar;
pub mod jinja;
mod nearest;
pub mod prompt_lookup;
pub mod repetition;
pub mod request;
pub mod sampler;
mod sampling_overrides;
pub mod stop;
pub mod tokenizer;
pub mod tools;

pub use nearest::{nearest, resembles};
