//! An answer: whole, or in pieces as server-sent events
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use std::time::{SystemTime, UNIX_EPOCH};

use alara_engine::{ToolCall, Usage};
use serde_json::{Value, json};

use super::Refusal;
use super::request::random;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// The work has begun: from here on it is no longer refused, it can only fail.
    /// Comes first, once.
    Begun,
    /// The next piece of the text.
    Text(String),
    /// The next piece of what the model thinks.
    Reasoning(String),
    /// A call, whole: one that a limit cuts off never leaves the server, so that nobody runs the
    /// half of one.
    Call(ToolCall),
    /// The answer is complete.
    /// Comes last, once.
    End(Box<End>),
}

/// How an answer ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct End {
    /// `stop`, `length` or `tool_calls`.
    pub finish: &'static str,
    /// What it cost.
    pub usage: Usage,
    /// What OpenAI's API has no field for.
    pub alara: Option<Value>,
}

/// What all pieces of an answer have in common.
pub struct Shape {
    id: String,
    created: u64,
    model: String,
    include_usage: bool,
    /// How many calls were told.
    calls: usize,
}

impl Shape {
    /// Of an answer by `model`.
    pub fn new(model: String, include_usage: bool) -> Self {
        let id = format!("chatcmpl-{:016x}{:016x}", random(), random());
        Shape { id, created: now(), model, include_usage, calls: 0 }
    }

    /// A piece as server-sent events; may be none.
    pub fn events(&mut self, piece: &Piece) -> String {
        match piece {
            Piece::Begun => self.delta(&json!({"role": "assistant", "content": ""})),
            Piece::Text(text) => self.delta(&json!({"content": text})),
            Piece::Reasoning(text) => self.delta(&json!({"reasoning_content": text})),
            Piece::Call(call) => {
                let mut value = call_value(call);
                value["index"] = self.calls.into();
                self.calls += 1;
                self.delta(&json!({"tool_calls": [value]}))
            }
            Piece::End(end) => {
                let mut last = self.chunk(&json!([choice("delta", &json!({}), Some(end.finish))]));
                if let Some(alara) = &end.alara {
                    last["alara"] = alara.clone();
                }
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

    /// A failure in the middle of a stream.
    pub fn failure(refusal: &Refusal) -> String {
        event(&refusal.body())
    }

    fn delta(&self, delta: &Value) -> String {
        event(&self.chunk(&json!([choice("delta", delta, None)])))
    }

    fn chunk(&self, choices: &Value) -> Value {
        let mut chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model, "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

/// All pieces of an answer together.
#[derive(Debug, Default)]
pub struct Answer {
    text: String,
    reasoning: String,
    calls: Vec<Value>,
    end: Option<End>,
}

impl Answer {
    /// Takes the next piece.
    pub fn push(&mut self, piece: Piece) {
        match piece {
            Piece::Begun => {}
            Piece::Text(text) => self.text += &text,
            Piece::Reasoning(text) => self.reasoning += &text,
            Piece::Call(call) => self.calls.push(call_value(&call)),
            Piece::End(end) => self.end = Some(*end),
        }
    }

    /// The body of the answer, if it is complete.
    pub fn body(self, shape: &Shape) -> Option<Value> {
        let end = self.end?;
        let content =
            if self.text.is_empty() && !self.calls.is_empty() { Value::Null } else { self.text.into() };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = self.reasoning.into();
        }
        if !self.calls.is_empty() {
            message["tool_calls"] = self.calls.into();
        }
        let mut body = json!({
            "id": shape.id, "object": "chat.completion", "created": shape.created, "model": shape.model,
            "choices": [choice("message", &message, Some(end.finish))], "usage": usage(&end.usage),
        });
        if let Some(alara) = end.alara {
            body["alara"] = alara;
        }
        Some(body)
    }
}

fn choice(what: &str, said: &Value, finish: Option<&str>) -> Value {
    json!({"index": 0, what: said, "logprobs": null, "finish_reason": finish})
}

fn call_value(call: &ToolCall) -> Value {
    let arguments = Value::Object(call.arguments.clone()).to_string();
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
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

/// JSON has no line break outside of its texts, where it is escaped: so one line is enough.
fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
