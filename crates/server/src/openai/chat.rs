//! `POST /v1/chat/completions` (<https://platform.openai.com/docs/api-reference/chat>).

use std::sync::Arc;

use alara_engine::{TokenLogprobs, ToolCall};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};

use super::{FINGERPRINT, arguments, finish_reason, messages, usage};
use crate::answer::{Answer, End, Piece, Writer, event, logprobs, now, timings};
use crate::dispatch::{Shared, answer};
use crate::fields::Fields;
use crate::inner::{InnerRequest, id};
use crate::refusal::Refusal;
use crate::{body, parameters};

/// Answers a request.
pub async fn post(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let (asked, include_usage) = read(body::fields(&shared, request).await?)?;
    let timings = asked.timings;
    answer(&shared, asked, |model| Box::new(Chat::new(model, include_usage, timings))).await
}

/// Parses a request; also returns whether the stream ends with the usage.
///
/// # Errors
/// A field that isn't supported, by name.
pub fn read(mut fields: Fields) -> Result<(InnerRequest, bool), Refusal> {
    let choices = parameters::choices(&mut fields)?;
    let logprobs = parameters::logprobs(&mut fields)?;
    let mut asked = parameters::read(&mut fields)?;
    asked.choices = choices;
    let include_usage = parameters::stream_options(&mut fields, asked.stream)?;
    if !fields.has("messages") {
        return Err(fields.refuse("messages", "is missing"));
    }
    let request = &mut asked.request;
    request.logprobs = logprobs;
    (request.system, request.messages) = messages::read(&mut fields)?;
    parameters::tools(&mut fields, request)?;
    parameters::response_format(&mut fields, request)?;
    parameters::thinking(&mut fields, request)?;
    parameters::prefill(&mut fields, request)?;
    parameters::check(&fields, request)?;
    if let Some(mut alara) = fields.object("alara")? {
        asked.events = alara.flag("events")?.unwrap_or(false);
        asked.ask = alara.flag("ask")?.unwrap_or(false);
        asked.key = alara.text("key")?.unwrap_or_default();
        if asked.ask && !asked.stream {
            return Err(alara.refuse("ask", "needs `stream`: a question is an event of it"));
        }
        alara.end();
    }
    asked.ignored = fields.ignored();
    Ok((asked, include_usage))
}

/// Writes the response.
pub struct Chat {
    id: String,
    created: u64,
    model: String,
    include_usage: bool,
    timings: bool,
    /// Index of the current answer.
    index: usize,
    /// Number of its calls sent so far.
    calls: usize,
    /// Tokens of the next text.
    tokens: Vec<TokenLogprobs>,
}

impl Chat {
    /// Creates a writer for a response by `model`.
    pub fn new(model: &str, include_usage: bool, timings: bool) -> Self {
        let (id, model) = (id("chatcmpl-"), model.to_owned());
        Chat { id, created: now(), model, include_usage, timings, index: 0, calls: 0, tokens: Vec::new() }
    }

    fn delta(&self, delta: &Value) -> String {
        event(&self.chunk(&json!([self.choice("delta", delta, None)])))
    }

    fn choice(&self, what: &str, said: &Value, end: Option<&End>) -> Value {
        let finish = end.map(|end| finish_reason(end.finish));
        let mut choice = json!({"index": self.index, what: said, "logprobs": null, "finish_reason": finish});
        if let Some(text) = end.and_then(End::stop_text) {
            // As in vLLM.
            choice["stop_reason"] = text.into();
        }
        choice
    }

    /// Returns the chunk with the role, which begins each answer of a stream.
    fn role(&self) -> String {
        self.delta(&json!({"role": "assistant", "content": ""}))
    }

    /// Returns the last chunk of an answer.
    fn last(&self, end: &End) -> Value {
        self.chunk(&json!([self.choice("delta", &json!({}), Some(end))]))
    }

    fn chunk(&self, choices: &Value) -> Value {
        let mut chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "system_fingerprint": FINGERPRINT, "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// Adds data for which other APIs have no field.
    fn more(&self, body: &mut Value, end: &End) {
        if let Some(alara) = &end.alara {
            body["alara"] = alara.clone();
        }
        if self.timings {
            body["timings"] = timings(&end.usage);
        }
    }
}

impl Writer for Chat {
    fn piece(&mut self, piece: &Piece) -> String {
        match piece {
            Piece::Begun => self.role(),
            // This API has no tokens of the prompt.
            Piece::PromptLogprobs(_) => String::new(),
            Piece::Logprobs(tokens) => {
                self.tokens.clone_from(tokens);
                String::new()
            }
            Piece::Text(text) => {
                let mut choice = self.choice("delta", &json!({"content": text}), None);
                choice["logprobs"] = content(&std::mem::take(&mut self.tokens));
                event(&self.chunk(&json!([choice])))
            }
            Piece::Reasoning(text) => self.delta(&json!({"reasoning_content": text})),
            Piece::Call(call) => {
                let mut value = call_value(call);
                value["index"] = self.calls.into();
                self.calls += 1;
                self.delta(&json!({"tool_calls": [value]}))
            }
            Piece::Next(end) => {
                let last = event(&self.last(end));
                self.index += 1;
                self.calls = 0;
                last + &self.role()
            }
            Piece::Alara(what) => {
                let mut chunk = self.chunk(&json!([self.choice("delta", &json!({}), None)]));
                chunk["alara"] = what.clone();
                event(&chunk)
            }
            Piece::End(end) => {
                let mut last = self.last(end);
                self.more(&mut last, end);
                let mut events = event(&last);
                if self.include_usage {
                    let mut chunk = self.chunk(&json!([]));
                    chunk["usage"] = usage(&end.usage);
                    events += &event(&chunk);
                }
                events + "data: [DONE]\n\n"
            }
        }
    }

    fn failure(&mut self, refusal: &Refusal) -> String {
        event(&refusal.body())
    }

    fn beat(&mut self) -> String {
        self.delta(&json!({}))
    }

    fn whole(&mut self, answer: Answer, end: &End) -> Value {
        let Answer { text, reasoning, calls, logprobs: tokens, .. } = answer;
        let said = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
        let mut message = json!({"role": "assistant", "content": said, "refusal": null});
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.iter().map(call_value).collect();
        }
        let mut choice = self.choice("message", &message, Some(end));
        choice["logprobs"] = content(&tokens);
        let mut body = json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "system_fingerprint": FINGERPRINT, "choices": [choice], "usage": usage(&end.usage),
        });
        self.more(&mut body, end);
        body
    }

    fn joined(&self, bodies: Vec<Value>) -> Value {
        super::joined(bodies)
    }
}

/// Formats tokens for this API; null if none are requested.
fn content(tokens: &[TokenLogprobs]) -> Value {
    if tokens.is_empty() { Value::Null } else { json!({"content": logprobs(tokens), "refusal": null}) }
}

fn call_value(call: &ToolCall) -> Value {
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments(call)}})
}

#[cfg(test)]
#[path = "chat_tests.rs"]
mod request_tests;
#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
