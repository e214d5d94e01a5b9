//! What a model reads where it is asked for a turn.

use alara_engine::{PromptToken, Request};
use serde_json::{Value, json};

/// What a model reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// The tokens that a model on this machine goes on from.
    Tokens(Vec<PromptToken>),
    /// The request to the server of the model, which makes a prompt of it.
    Json(Value),
}

impl Prompt {
    /// The parts of a request, where its prompt is unknown.
    pub(super) fn of_parts(request: &Request) -> Self {
        let Request { system, messages, tools, .. } = request;
        Prompt::Json(json!({"system": system, "messages": messages, "tools": tools}))
    }
}
