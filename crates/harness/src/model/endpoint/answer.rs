//! Converts an endpoint's answer into events: pieces of text, reasoning and calls as they arrive,
//! and the totals at the end.
//!
//! It knows nothing of connections.
//! A call that can't be parsed, or of a tool that wasn't offered, is still a call.
//! So the caller that runs tools can refuse it on the record.
//! Only a call that a limit cut off is dropped.

use std::collections::HashSet;
use std::mem;
use std::time::{Duration, Instant};

use alara_engine::{Event, Finish, Format, Parsed, Parser, Reasoning, Request, ToolCall, Turn, Usage};
use serde_json::Value;

use super::chunk::{CallDelta, Chunk, Delta, ReportedUsage, words};
use super::name::offered;
use crate::model::arguments;

/// A decoding speed in tokens per second that no model reaches: a faster answer was buffered and
/// arrives in a burst.
const FASTEST: f64 = 10_000.0;

/// Why an answer is rejected.
#[derive(Debug, PartialEq)]
pub(super) enum Flaw {
    /// It doesn't follow the API.
    Nonsense(String),
    /// The endpoint reports an error.
    Failed(String),
    /// Its content filter has ended it.
    Filtered,
    /// It should be JSON.
    NotJson(String),
}

/// A call that is being written.
#[derive(Debug, Default)]
struct Call {
    index: Option<usize>,
    id: String,
    name: String,
    arguments: String,
}

/// The state of an answer.
pub(super) struct Answer {
    /// If the prompt describes the tools, calls are parts of the text.
    parser: Option<Parser>,
    /// Whether the parser is inside a call.
    writing: bool,
    calls: Vec<Call>,
    /// How many calls the parser has found.
    parsed: usize,
    /// The names of the tools that were offered.
    tools: Vec<String>,
    /// The text, if it has to be JSON.
    json: Option<String>,
    /// The ids of the conversation's calls.
    ids: HashSet<String>,
    next_id: usize,
    finish: Option<String>,
    reported: Option<ReportedUsage>,
    started: Instant,
    first: Option<Instant>,
    last: Instant,
}

impl Answer {
    /// The empty answer to `request`, which was sent at `started`.
    pub(super) fn new(request: &Request, format: Option<&'static Format>, started: Instant) -> Self {
        let turn = |format: &'static Format| Turn {
            format,
            tools: request.tools.clone(),
            tool_choice: request.tool_choice.clone(),
            bound: request.bound.clone(),
            parallel_tool_calls: request.parallel_tool_calls,
            reasoning: Reasoning::Optional,
            thinking: Some(format.thinking),
            schema: request.schema.clone(),
            grammar: None,
            string_limit: None,
            raw: false,
        };
        let calls = || request.messages.iter().flat_map(|message| &message.tool_calls);
        Answer {
            parser: format.map(|format| Parser::new(&turn(format))),
            writing: false,
            calls: Vec::new(),
            parsed: 0,
            tools: request.tools.iter().map(|tool| tool.name.clone()).collect(),
            json: request.schema.as_ref().map(|_| String::new()),
            ids: calls().map(|call| call.id.clone()).collect(),
            next_id: calls().count(),
            finish: None,
            reported: None,
            started,
            first: None,
            last: started,
        }
    }

    /// Whether the endpoint has sent a finish reason.
    pub(super) fn is_ended(&self) -> bool {
        self.finish.is_some()
    }

    /// Processes the next piece, as JSON.
    pub(super) fn push(&mut self, data: &str) -> Result<Vec<Event>, Flaw> {
        let chunk: Chunk = serde_json::from_str(data).map_err(|error| {
            let start: String = data.chars().take(80).collect();
            Flaw::Nonsense(format!("{error} in {start:?}"))
        })?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(Flaw::Failed(words(&error)));
        }
        self.reported = chunk.usage.or(self.reported);
        let mut out = Vec::new();
        for choice in chunk.choices.into_iter().flatten().take(1) {
            let whole = choice.delta.is_none();
            self.delta(choice.delta.or(choice.message).unwrap_or_default(), whole, &mut out);
            self.finish = choice.finish_reason.or(self.finish.take());
        }
        if !out.is_empty() {
            self.last = Instant::now();
            self.first.get_or_insert(self.last);
        }
        Ok(out)
    }

    /// Processes a piece of an answer, or a `whole` one, in which no call continues an earlier one.
    fn delta(&mut self, delta: Delta, whole: bool, out: &mut Vec<Event>) {
        let nonempty = |text: Option<String>| text.filter(|text| !text.is_empty());
        if let Some(text) = nonempty(delta.reasoning_content).or(nonempty(delta.reasoning)) {
            out.push(Event::Reasoning { text });
        }
        for text in [delta.content, delta.refusal].into_iter().filter_map(nonempty) {
            match &mut self.parser {
                Some(parser) => {
                    let parsed = parser.push(&text);
                    self.parsed(parsed, out);
                }
                None => self.text(text, out),
            }
        }
        for (at, call) in delta.tool_calls.into_iter().flatten().enumerate() {
            let index = if whole { Some(at) } else { call.index };
            self.call(CallDelta { index, ..call }, out);
        }
    }

    fn text(&mut self, text: String, out: &mut Vec<Event>) {
        if let Some(json) = &mut self.json {
            json.push_str(&text);
        }
        out.push(Event::Text { text });
    }

    fn call(&mut self, delta: CallDelta, out: &mut Vec<Event>) {
        let id = delta.id.unwrap_or_default();
        let function = delta.function.unwrap_or_default();
        let name = function.name.unwrap_or_default();
        let piece = match function.arguments {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(value) => value.to_string(),
        };
        // Find the call that it continues.
        // Some servers number no calls, or give all the same number, but send each id, or name,
        // once.
        let named = !name.is_empty() && !piece.is_empty();
        let goes_on = |call: &Call| match delta.index {
            Some(_) => call.index == delta.index && (id.is_empty() || call.id.is_empty() || call.id == id),
            // Without a number, a repeated name means another call, at the latest once the one
            // before is complete.
            None if !id.is_empty() => call.id == id && !(named && is_json(&call.arguments)),
            None => name.is_empty(),
        };
        let known = match delta.index {
            None if id.is_empty() => self.calls.len().checked_sub(1).filter(|&at| goes_on(&self.calls[at])),
            _ => self.calls.iter().rposition(goes_on),
        };
        let at = known.unwrap_or_else(|| {
            self.calls.push(Call { index: delta.index, ..Call::default() });
            self.calls.len() - 1
        });
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = id;
        }
        call.arguments += &piece;
        // Reported once its name is known, with the arguments up to then.
        if call.name.is_empty() && !name.is_empty() {
            call.name = offered(&name, &self.tools).to_owned();
            let (name, arguments) = (Some(call.name.clone()), call.arguments.clone());
            out.push(Event::ToolCallDelta { index: at, name, arguments });
        } else if !call.name.is_empty() && !piece.is_empty() {
            out.push(Event::ToolCallDelta { index: at, name: None, arguments: piece });
        }
    }

    /// Processes the parser's results for the text.
    fn parsed(&mut self, parsed: Vec<Parsed>, out: &mut Vec<Event>) {
        for piece in parsed {
            match piece {
                Parsed::Text(text) => {
                    self.writing = false;
                    self.text(text, out);
                }
                Parsed::Reasoning(text) => out.push(Event::Reasoning { text }),
                Parsed::Delta { name, arguments } => {
                    let named = mem::replace(&mut self.writing, true);
                    let name = (!named).then_some(name);
                    out.push(Event::ToolCallDelta { index: self.parsed, name, arguments });
                }
                Parsed::Incomplete { id, name, arguments } => {
                    self.writing = false;
                    self.end(Call { id, name, arguments, index: None }, out);
                }
                Parsed::ToolCall { id, name, arguments } => {
                    self.writing = false;
                    self.parsed += 1;
                    let id = self.id(id);
                    out.push(Event::ToolCall(ToolCall { id, name, arguments }));
                }
            }
        }
    }

    /// Ends the answer; returns the remaining events, `Done` last.
    pub(super) fn finish(mut self) -> Result<Vec<Event>, Flaw> {
        let mut out = Vec::new();
        if let Some(mut parser) = self.parser.take() {
            let parsed = parser.finish();
            self.parsed(parsed, &mut out);
        }
        for (index, mut call) in mem::take(&mut self.calls).into_iter().enumerate() {
            if call.arguments.trim().is_empty() {
                // This is how servers write a call without arguments.
                call.arguments = "{}".to_owned();
                let arguments = call.arguments.clone();
                out.push(Event::ToolCallDelta { index, name: None, arguments });
            }
            self.end(call, &mut out);
        }
        let finish = match self.finish.as_deref() {
            Some("content_filter") => return Err(Flaw::Filtered),
            Some("error") => return Err(Flaw::Failed("it gives no reason".into())),
            _ if self.is_cut() => Finish::Length,
            _ if self.parsed > 0 => Finish::ToolCalls,
            _ => Finish::Stop,
        };
        if let Some(json) = self.json.filter(|_| finish == Finish::Stop) {
            serde_json::from_str::<Value>(&json).map_err(|error| Flaw::NotJson(error.to_string()))?;
        }
        let first = self.first.unwrap_or(self.last);
        let mut usage = Usage {
            time_to_first_token: first - self.started,
            decode_time: self.last - first,
            ..Usage::default()
        };
        if let Some(reported) = self.reported {
            usage.prompt_tokens = reported.prompt_tokens.unwrap_or(0);
            usage.completion_tokens = reported.completion_tokens.unwrap_or(0);
            usage.cached_tokens =
                reported.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0);
        }
        // A call that arrives as a whole, or a buffered answer, doesn't show the speed.
        if usage.decode_time.as_secs_f64() * FASTEST < usage.completion_tokens as f64 {
            usage.decode_time = Duration::ZERO;
        }
        out.push(Event::Done { finish, usage });
        Ok(out)
    }

    /// Whether a limit ended the answer.
    fn is_cut(&self) -> bool {
        matches!(self.finish.as_deref(), Some("length" | "max_tokens" | "model_length"))
    }

    fn end(&mut self, call: Call, out: &mut Vec<Event>) {
        let Call { id, name, arguments: text, .. } = call;
        let arguments = arguments::read(&text);
        if self.is_cut() && (name.is_empty() || arguments::flaw(&arguments).is_some()) {
            return out.push(Event::Incomplete { name, arguments: text });
        }
        self.parsed += 1;
        let id = self.id(id);
        out.push(Event::ToolCall(ToolCall { id, name, arguments }));
    }

    /// The id that the endpoint gave a call, if no other call of the conversation has it; otherwise
    /// a fresh one.
    fn id(&mut self, given: String) -> String {
        if !given.is_empty() && self.ids.insert(given.clone()) {
            return given;
        }
        loop {
            let id = format!("call_{}", self.next_id);
            self.next_id += 1;
            if self.ids.insert(id.clone()) {
                return id;
            }
        }
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok()
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
