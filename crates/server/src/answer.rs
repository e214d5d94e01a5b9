//! What an answer is made of, whatever the wire format: the one inner stream of pieces.
//!
//! A client never gets half of a call, nor a call that an NPC ran itself.

use std::time::{SystemTime, UNIX_EPOCH};

use alara_engine::{Finish, Logprob, TokenLogprobs, ToolCall, Usage};
use serde_json::{Value, json};

use crate::refusal::Refusal;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// The work has begun: from here on it is no longer refused, it can only fail.
    /// Comes first, once.
    Begun,
    /// The next piece of the text.
    Text(String),
    /// The tokens of the piece of text that comes next, if they are asked for.
    Logprobs(Vec<TokenLogprobs>),
    /// The tokens of the prompt, if they are asked for.
    /// Come before the answer.
    PromptLogprobs(Vec<TokenLogprobs>),
    /// The next piece of what the model thinks.
    Reasoning(String),
    /// A call, whole: one that a limit cuts off never leaves the server, so that nobody runs the
    /// half of one.
    Call(ToolCall),
    /// The answer is complete, and another one to the same request follows.
    Next(Box<End>),
    /// What an NPC does while it works with its own tools, if that is asked for: a `call` that
    /// begins, or its `result`; or a `question` that it has.
    /// Other APIs have no field for it.
    Alara(Value),
    /// The answer is complete.
    /// Comes last, once; its usage is that of all answers together.
    End(Box<End>),
}

/// A piece, or why there are no more.
pub type Item = Result<Piece, Refusal>;

/// How an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// Why.
    pub finish: Finish,
    /// What it cost.
    pub usage: Usage,
    /// What other APIs have no field for.
    pub alara: Option<Value>,
}

impl End {
    /// The text of the request's that ended the answer.
    pub fn stop_text(&self) -> Option<&str> {
        self.usage.stop_text.as_deref()
    }
}

/// All pieces of an answer together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// What is said.
    pub text: String,
    /// The tokens of that, if they are asked for.
    pub logprobs: Vec<TokenLogprobs>,
    /// The tokens of the prompt, if they are asked for.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// What was thought before.
    pub reasoning: String,
    /// What is called.
    pub calls: Vec<ToolCall>,
}

impl Answer {
    /// Takes the next piece; the last one has what is to be told of the whole.
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

/// Writes an answer in one wire format.
/// It is either streamed, piece by piece, or told as a whole.
pub trait Writer: Send {
    /// What kind of stream it is.
    fn content_type(&self) -> &'static str {
        "text/event-stream"
    }

    /// What a piece is in the stream; may be nothing.
    fn piece(&mut self, piece: &Piece) -> String;

    /// A failure in the middle of the stream.
    fn failure(&mut self, refusal: &Refusal) -> String;

    /// A keep-alive event, sent while there is no output.
    /// Some clients count bytes before they give up, others events, so it is an empty event.
    fn beat(&mut self) -> String;

    /// The body of a whole answer.
    fn whole(&mut self, answer: Answer, end: &End) -> Value;

    /// The body of several answers, by the bodies of each; the last one has the usage of all.
    /// A format without a place for that is never asked for it.
    fn joined(&self, mut bodies: Vec<Value>) -> Value {
        bodies.pop().unwrap_or_default()
    }
}

/// A server-sent event without a name
/// (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
/// JSON has no line break outside of its texts, where it is escaped: so one line is enough.
pub fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A server-sent event by the name that `value` has as its `type`.
pub fn named_event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default())
}

/// Tokens with what could have come in their place, as OpenAI's and Ollama's APIs tell them.
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

/// How long an answer took, as llama.cpp's server tells it.
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
