//! OpenAI's API as JSON over HTTP (<https://platform.openai.com/docs/api-reference>), with and
//! without the prefix `/v1`.

pub mod chat;
mod completions;
mod embeddings;
mod messages;
mod models;
pub mod responses;

use std::sync::Arc;

use alara_engine::{Finish, ToolCall, Usage};
use axum::Router;
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::dispatch::Shared;
use crate::refusal::Refusal;

/// Identifies the software behind an answer: with another version, the same seed may give another
/// answer.
const FINGERPRINT: &str = concat!("alara-", env!("CARGO_PKG_VERSION"));

/// Returns the routes, without `/v1`.
pub fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/chat/completions", post(chat::post))
        .route("/completions", post(completions::post))
        .route("/responses", post(responses::post))
        .route("/responses/{id}", get(responses::get).delete(responses::delete))
        .route("/embeddings", post(embeddings::post))
        .route("/models", get(models::list))
        // Names may contain slashes.
        .route("/models/{*id}", get(models::one))
}

/// Formats a refusal as this API formats errors, for a request to `path`.
pub fn refusal(refusal: &Refusal, path: &str) -> Value {
    let mut body = refusal.body();
    let Some(long) = refusal.length() else { return body };
    let (prompt, context, remedy) = (long.prompt, long.context, long.remedy());
    let (what, field) = match path.rsplit('/').next() {
        Some("responses" | "embeddings") => ("input", "input"),
        Some("completions") if !path.ends_with("/chat/completions") => ("prompt", "prompt"),
        _ => ("messages", "messages"),
    };
    let error = &mut body["error"];
    // Clients that ignore the code search for these words.
    error["message"] = format!(
        "This model's maximum context length is {context} tokens. However, your {what} resulted in {prompt} tokens. \
         Please reduce the length of the {what}; or {remedy}"
    )
    .into();
    error["param"] = field.into();
    // llama.cpp's server, whose routes have no version, sends these too.
    error["n_prompt_tokens"] = prompt.into();
    error["n_ctx"] = context.into();
    if !path.starts_with("/v1/") {
        error["type"] = "exceed_context_size_error".into();
    }
    body
}

/// Returns OpenAI's name for the reason why an answer ended.
fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length | Finish::Repetition => "length",
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {
            "accepted_prediction_tokens": usage.drafts.accepted,
            "rejected_prediction_tokens": usage.drafts.drafted.saturating_sub(usage.drafts.accepted),
        },
    })
}

/// Joins the bodies of several answers to one request: that of the last one, which has the usage of
/// all, with all choices.
fn joined(mut bodies: Vec<Value>) -> Value {
    let mut choices: Vec<Value> = bodies.iter_mut().map(|body| body["choices"][0].take()).collect();
    for (index, choice) in choices.iter_mut().enumerate() {
        choice["index"] = index.into();
    }
    let mut body = bodies.pop().unwrap_or_default();
    body["choices"] = choices.into();
    body
}

/// Returns a call's arguments as text, as in OpenAI's API.
fn arguments(call: &ToolCall) -> String {
    Value::Object(call.arguments.clone()).to_string()
}
