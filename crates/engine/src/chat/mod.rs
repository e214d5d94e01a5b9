//! From a conversation to a prompt, and from generated text to an answer.
//!
//! Owns chat templates and tool-call formats.
//! Knows nothing of models, tensors or caches, and of tokens only the texts of the special ones.

pub mod formats;
pub(crate) mod json;
pub mod template;

pub use formats::{Format, ParseOptions, Parsed, Parser, Reasoning, Thinking, Turn, Written, written};
#[cfg(test)]
pub(crate) use json::dumps;
pub use template::{ChatTemplate, Family, Prompt, TemplateError, Traits, generic_messages};

#[cfg(test)]
mod history_tests;
