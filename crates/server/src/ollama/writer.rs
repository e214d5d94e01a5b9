//! Writes the responses of `/api/chat` and `/api/generate`: a JSON object, or in a stream one
//! object per line.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use alara_engine::{Finish, TokenLogprobs, ToolCall};
use serde_json::{Value, json};

use crate::answer::{Answer, End, Piece, Writer, logprobs};
use crate::refusal::Refusal;
use crate::time::rfc3339;

/// The route that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/api/chat`.
    Chat,
    /// `/api/generate`.
    Generate,
}

impl Route {
    /// Returns the content in this route's field; `before` is the number of earlier calls.
    fn content(self, text: &str, thinking: &str, calls: &[ToolCall], before: usize) -> Value {
        match self {
            Route::Chat => {
                let mut message = json!({"role": "assistant", "content": text});
                if !thinking.is_empty() {
                    message["thinking"] = thinking.into();
                }
                if !calls.is_empty() {
                    let calls = calls.iter().enumerate();
                    message["tool_calls"] = calls.map(|(index, call)| called(before + index, call)).collect();
                }
                json!({"message": message})
            }
            Route::Generate => {
                let mut said = json!({"response": text});
                if !thinking.is_empty() {
                    said["thinking"] = thinking.into();
                }
                said
            }
        }
    }
}

fn called(index: usize, call: &ToolCall) -> Value {
    json!({"id": call.id, "function": {"index": index, "name": call.name, "arguments": call.arguments}})
}

/// Writes the response.
pub struct Lines {
    route: Route,
    model: String,
    begun: Instant,
    /// Number of calls sent.
    calls: usize,
    /// Tokens of the next text.
    tokens: Vec<TokenLogprobs>,
}

impl Lines {
    /// Creates a writer for a response by `model` to a request that arrived at `begun`.
    pub fn new(route: Route, model: &str, begun: Instant) -> Self {
        Lines { route, model: model.to_owned(), begun, calls: 0, tokens: Vec::new() }
    }

    fn line(&self, said: Value, end: Option<&End>) -> Value {
        let mut line = begin(&self.model);
        extend(&mut line, said);
        line["done"] = end.is_some().into();
        if let Some(end) = end {
            let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let usage = &end.usage;
            let reason = match end.finish {
                Finish::Length | Finish::Repetition => "length",
                Finish::Stop | Finish::ToolCalls => "stop",
            };
            let costs = json!({
                "done_reason": reason,
                "total_duration": nanoseconds(self.begun.elapsed()),
                "load_duration": 0,
                "prompt_eval_count": usage.prompt_tokens,
                "prompt_eval_duration": nanoseconds(usage.prefill_time),
                "eval_count": usage.completion_tokens,
                "eval_duration": nanoseconds(usage.decode_time),
            });
            extend(&mut line, costs);
            if let Some(alara) = &end.alara {
                line["alara"] = alara.clone();
            }
        }
        line
    }
}

impl Writer for Lines {
    fn content_type(&self) -> &'static str {
        "application/x-ndjson"
    }

    fn piece(&mut self, piece: &Piece) -> String {
        let line = match piece {
            Piece::Begun | Piece::PromptLogprobs(_) | Piece::Next(_) | Piece::Alara(_) => {
                return String::new();
            }
            Piece::Logprobs(tokens) => {
                self.tokens.clone_from(tokens);
                return String::new();
            }
            Piece::Text(text) => {
                let tokens = std::mem::take(&mut self.tokens);
                with_logprobs(self.line(self.route.content(text, "", &[], 0), None), &tokens)
            }
            Piece::Reasoning(text) => self.line(self.route.content("", text, &[], 0), None),
            Piece::Call(call) => {
                self.calls += 1;
                let calls = std::slice::from_ref(call);
                self.line(self.route.content("", "", calls, self.calls - 1), None)
            }
            Piece::End(end) => self.line(self.route.content("", "", &[], 0), Some(end)),
        };
        format!("{line}\n")
    }

    fn failure(&mut self, refusal: &Refusal) -> String {
        format!("{}\n", super::refusal(refusal))
    }

    /// A line with empty text: these streams consist only of lines.
    fn beat(&mut self) -> String {
        format!("{}\n", self.line(self.route.content("", "", &[], 0), None))
    }

    fn whole(&mut self, answer: Answer, end: &End) -> Value {
        let said = self.route.content(&answer.text, &answer.reasoning, &answer.calls, 0);
        with_logprobs(self.line(said, Some(end)), &answer.logprobs)
    }
}

/// Adds the tokens of its text to a line, if they are requested.
fn with_logprobs(mut line: Value, tokens: &[TokenLogprobs]) -> Value {
    if !tokens.is_empty() {
        line["logprobs"] = logprobs(tokens).into();
    }
    line
}

/// Returns the answer to a request without content, by which clients load or unload a model.
pub fn nothing(route: Route, model: &str, reason: &str) -> Value {
    let mut line = begin(model);
    extend(&mut line, route.content("", "", &[], 0));
    extend(&mut line, json!({"done": true, "done_reason": reason}));
    line
}

fn begin(model: &str) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({"model": model, "created_at": rfc3339(now.as_secs(), now.subsec_nanos())})
}

fn extend(line: &mut Value, more: Value) {
    if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
        line.extend(more);
    }
}
