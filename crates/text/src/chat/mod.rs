//! From a conversation to a prompt, and from generated text to an answer.
//!
//! Owns chat templates and tool-call formats.
//! Knows nothing of models, tensors or caches, and only the texts of special tokens.

pub mod formats;
pub(crate) mod json;
pub(crate) mod template;

pub use formats::may_open;
pub use formats::{Format, ParseOptions, Parsed, Parser, Reasoning, Thinking, Turn, Written, written};
pub use json::dumps;
pub use template::{ChatTemplate, Prompt, TemplateError, generic_messages};
pub use template::{Family, Traits};

#[cfg(test)]
mod history_tests;
