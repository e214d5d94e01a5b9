//! The prompt that a model reads for a turn.

use alara_engine::{PromptToken, Request};
use serde_json::{Value, json};

/// The prompt of a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// The tokens that a model on this machine continues.
    Tokens(Vec<PromptToken>),
    /// The request to the model's server, which makes a prompt of it.
    Json(Value),
}

impl Prompt {
    /// The parts of a request whose prompt is unknown.
    pub(super) fn of_parts(request: &Request) -> Self {
        let Request { system, messages, tools, .. } = request;
        Prompt::Json(json!({"system": system, "messages": messages, "tools": tools}))
    }
}
