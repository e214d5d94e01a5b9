//! An endpoint's JSON: pieces of answers, and errors.
//! Parsing is lenient: servers differ in what they leave out.

use serde::Deserialize;
use serde_json::Value;

/// A piece of an answer, or a whole one.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk {
    pub(super) choices: Option<Vec<Choice>>,
    pub(super) usage: Option<ReportedUsage>,
    pub(super) error: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice {
    pub(super) delta: Option<Delta>,
    /// In place of `delta`, if the answer is not streamed.
    pub(super) message: Option<Delta>,
    pub(super) finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Delta {
    pub(super) content: Option<String>,
    pub(super) refusal: Option<String>,
    pub(super) reasoning_content: Option<String>,
    /// As [`reasoning_content`](Self::reasoning_content), under another name.
    pub(super) reasoning: Option<String>,
    pub(super) tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CallDelta {
    pub(super) index: Option<usize>,
    pub(super) id: Option<String>,
    pub(super) function: Option<FunctionDelta>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct FunctionDelta {
    pub(super) name: Option<String>,
    /// A piece of JSON text; some servers send the object itself.
    pub(super) arguments: Option<Value>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct ReportedUsage {
    pub(super) prompt_tokens: Option<usize>,
    pub(super) completion_tokens: Option<usize>,
    pub(super) prompt_tokens_details: Option<Details>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Details {
    pub(super) cached_tokens: Option<usize>,
}

/// The text of a server's error: that of `{message}`, or of any other form.
pub(super) fn words(error: &Value) -> String {
    let inner = ["error", "message", "detail"].into_iter().find_map(|key| error.get(key));
    match (inner, error) {
        (Some(inner), _) => words(inner),
        (None, Value::String(text)) => text.clone(),
        (None, other) => other.to_string(),
    }
}
