//! The inner stream of pieces that make up an answer, independent of the wire format.
//!
//! A client never gets half of a call, nor a call that an NPC ran itself.

use std::time::{SystemTime, UNIX_EPOCH};

use alara_engine::{Finish, Logprob, TokenLogprobs, ToolCall, Usage};
use serde_json::{Value, json};

use crate::refusal::Refusal;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// The work has begun: from here on it can fail, but no longer be refused.
    /// Comes first, exactly once.
    Begun,
    /// The next piece of the text.
    Text(String),
    /// The tokens of the next piece of text, if requested.
    Logprobs(Vec<TokenLogprobs>),
    /// The tokens of the prompt, if requested.
    /// Come before the answer.
    PromptLogprobs(Vec<TokenLogprobs>),
    /// The next piece of reasoning.
    Reasoning(String),
    /// A complete call; a call truncated by a limit is never sent, so that no client runs half of
    /// one.
    Call(ToolCall),
    /// The answer is complete, and another answer to the same request follows.
    Next(Box<End>),
    /// An action of an NPC with its own tools, if requested: a `call` that begins, its `result`, or
    /// a `question` of the NPC.
    /// Other APIs have no field for it.
    Alara(Value),
    /// The answer is complete.
    /// Comes last, exactly once; its usage covers all answers together.
    End(Box<End>),
}

/// A piece, or the reason why there are no more.
pub type Item = Result<Piece, Refusal>;

/// How an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// The reason.
    pub finish: Finish,
    /// The usage.
    pub usage: Usage,
    /// Data for which other APIs have no field.
    pub alara: Option<Value>,
}

impl End {
    /// Returns the request's stop text that ended the answer.
    pub fn stop_text(&self) -> Option<&str> {
        self.usage.stop_text.as_deref()
    }
}

/// All pieces of an answer combined.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// The tokens of the text, if requested.
    pub logprobs: Vec<TokenLogprobs>,
    /// The tokens of the prompt, if requested.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// The reasoning that preceded it.
    pub reasoning: String,
    /// The calls.
    pub calls: Vec<ToolCall>,
}

impl Answer {
    /// Adds the next piece; the last one contains the data about the whole.
    pub fn push(&mut self, piece: &Piece) {
        match piece {
            Piece::Begun | Piece::Alara(_) | Piece::Next(_) | Piece::End(_) => {}
            Piece::PromptLogprobs(tokens) => self.prompt_logprobs.clone_from(tokens),
            Piece::Logprobs(tokens) => self.logprobs.extend_from_slice(tokens),
            Piece::Text(text) => self.text += text,
            Piece::Reasoning(text) => self.reasoning += text,
            Piece::Call(call) => self.calls.push(call.clone()),
        }
    }
}

/// Writes an answer in one wire format, either streamed in pieces or as a whole.
pub trait Writer: Send {
    /// Returns the content type of the stream.
    fn content_type(&self) -> &'static str {
        "text/event-stream"
    }

    /// Returns a piece as part of the stream; may be empty.
    fn piece(&mut self, piece: &Piece) -> String;

    /// Returns an error in the middle of the stream.
    fn failure(&mut self, refusal: &Refusal) -> String;

    /// Returns a keep-alive event, sent during pauses in the output.
    /// Some clients measure bytes before they time out, others events, so it is an empty event.
    fn beat(&mut self) -> String;

    /// Returns the body of a whole answer.
    fn whole(&mut self, answer: Answer, end: &End) -> Value;

    /// Joins the bodies of several answers; the last one has the usage of all.
    /// Never called for a format that doesn't support several answers.
    fn joined(&self, mut bodies: Vec<Value>) -> Value {
        bodies.pop().unwrap_or_default()
    }
}

/// Formats a server-sent event without a name
/// (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
/// JSON escapes line breaks within strings, so one line is enough.
pub fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// Formats a server-sent event named by the `type` of `value`.
pub fn named_event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default())
}

/// Formats tokens with their alternatives, as in the APIs of OpenAI and Ollama.
pub fn logprobs(tokens: &[TokenLogprobs]) -> Vec<Value> {
    let logprob =
        |token: &Logprob| json!({"token": token.text(), "logprob": token.logprob, "bytes": token.bytes});
    let told = tokens.iter().map(|token| {
        let mut value = logprob(&token.chosen);
        value["top_logprobs"] = token.top.iter().map(logprob).collect();
        value
    });
    told.collect()
}

/// Formats the timings of an answer, as llama.cpp's server does.
pub fn timings(usage: &Usage) -> Value {
    let computed = usage.prompt_tokens.saturating_sub(usage.cached_tokens);
    let speed = |tokens: usize, seconds: f64| if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
    let (prefill, decode) = (usage.prefill_time.as_secs_f64(), usage.decode_time.as_secs_f64());
    json!({
        "cache_n": usage.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": prefill * 1e3,
        "prompt_per_second": speed(computed, prefill),
        "predicted_n": usage.completion_tokens,
        "predicted_ms": decode * 1e3,
        "predicted_per_second": usage.tokens_per_second().unwrap_or_default(),
        "draft_n": usage.drafts.drafted,
        "draft_n_accepted": usage.drafts.accepted,
    })
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
