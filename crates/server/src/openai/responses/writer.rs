//! Writes the response to `POST /v1/responses`: a list of items, and in a stream an event for each
//! addition.

use std::sync::Arc;

use alara_engine::{Finish, Message, TokenLogprobs, ToolCall, Usage};
use serde_json::{Value, json};

use crate::answer::{Answer, End, Piece, Writer, logprobs, named_event, now};
use crate::inner::id;
use crate::openai::arguments;
use crate::refusal::Refusal;
use crate::store::{Store, Stored};

/// Writes the response.
pub struct Responses {
    /// The response without its output.
    body: Value,
    /// Where to store the response, and the conversation before it.
    kept: Option<(Arc<Store>, Vec<Message>)>,
    answer: Answer,
    /// Complete items.
    output: Vec<Value>,
    /// The current item.
    open: Option<Open>,
    /// Tokens of the next text.
    tokens: Vec<TokenLogprobs>,
    sequence: usize,
}

/// An incomplete item.
struct Open {
    kind: Kind,
    id: String,
    text: String,
    /// Tokens of the text, if requested.
    tokens: Vec<Value>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Reasoning,
}

impl Kind {
    /// Returns the names of the events about its text, and of the part that contains it.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Kind::Text => ("response.output_text", "output_text"),
            Kind::Reasoning => ("response.reasoning_text", "reasoning_text"),
        }
    }

    fn part(self, text: &str) -> Value {
        match self {
            Kind::Text => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
            Kind::Reasoning => json!({"type": "reasoning_text", "text": text}),
        }
    }

    fn item(self, id: &str, status: &str, content: &[Value]) -> Value {
        match self {
            Kind::Text => json!({
                "id": id, "type": "message", "status": status, "role": "assistant", "content": content,
            }),
            Kind::Reasoning => json!({
                "id": id, "type": "reasoning", "status": status, "summary": [], "content": content,
            }),
        }
    }
}

impl Responses {
    /// Creates a writer for a response by `model`, which repeats the request's fields `echoed`.
    pub fn new(model: &str, echoed: Value, kept: Option<(Arc<Store>, Vec<Message>)>) -> Self {
        let mut body = json!({
            "id": id("resp_"), "object": "response", "created_at": now(), "status": "in_progress",
            "background": false, "error": null, "incomplete_details": null, "instructions": null,
            "max_output_tokens": null, "metadata": {}, "model": model, "output": [], "parallel_tool_calls": true,
            "previous_response_id": null, "reasoning": {"effort": null, "summary": null}, "store": true,
            "temperature": null, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [],
            "top_p": null, "truncation": "disabled", "usage": null,
        });
        if let (Some(body), Value::Object(echoed)) = (body.as_object_mut(), echoed) {
            body.extend(echoed);
        }
        Responses {
            body,
            kept,
            answer: Answer::default(),
            output: Vec::new(),
            open: None,
            tokens: Vec::new(),
            sequence: 0,
        }
    }

    fn event(&mut self, kind: &str, mut fields: Value) -> String {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        self.sequence += 1;
        if let (Some(event), Some(fields)) = (event.as_object_mut(), fields.as_object_mut()) {
            event.append(fields);
        }
        named_event(&event)
    }

    /// Sends the next piece of a text, or of reasoning.
    fn write_delta(&mut self, kind: Kind, text: &str) -> String {
        let mut events = String::new();
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            events += &self.close();
            let id = id(if kind == Kind::Text { "msg_" } else { "rs_" });
            let (item, index) = (kind.item(&id, "in_progress", &[]), self.output.len());
            events += &self.event("response.output_item.added", json!({"output_index": index, "item": item}));
            let part = kind.part("");
            events += &self.event(
                "response.content_part.added",
                json!({"item_id": id, "output_index": index, "content_index": 0, "part": part}),
            );
            self.open = Some(Open { kind, id, text: String::new(), tokens: Vec::new() });
        }
        let tokens = logprobs(&std::mem::take(&mut self.tokens));
        let Some(open) = &mut self.open else { return events };
        open.text += text;
        let mut fields = json!({
            "item_id": open.id, "output_index": self.output.len(), "content_index": 0, "delta": text,
        });
        if kind == Kind::Text {
            fields["logprobs"] = json!(tokens);
            open.tokens.extend(tokens);
        }
        events + &self.event(&format!("{}.delta", kind.names().0), fields)
    }

    /// Ends the current item.
    fn close(&mut self) -> String {
        let Some(Open { kind, id, text, tokens }) = self.open.take() else { return String::new() };
        let (index, mut part) = (self.output.len(), kind.part(&text));
        let mut said = json!({"item_id": id, "output_index": index, "content_index": 0, "text": text});
        if kind == Kind::Text {
            (said["logprobs"], part["logprobs"]) = (json!(tokens), json!(tokens));
        }
        let item = kind.item(&id, "completed", std::slice::from_ref(&part));
        self.output.push(item.clone());
        self.event(&format!("{}.done", kind.names().0), said)
            + &self.event(
                "response.content_part.done",
                json!({"item_id": id, "output_index": index, "content_index": 0, "part": part}),
            )
            + &self.event("response.output_item.done", json!({"output_index": index, "item": item}))
    }

    /// Sends a complete call.
    fn call(&mut self, call: &ToolCall) -> String {
        let mut events = self.close();
        let (id, index, arguments) = (id("fc_"), self.output.len(), arguments(call));
        let item = |status: &str, arguments: &str| {
            json!({
                "id": id, "type": "function_call", "status": status, "call_id": call.id, "name": call.name,
                "arguments": arguments,
            })
        };
        let added = json!({"output_index": index, "item": item("in_progress", "")});
        events += &self.event("response.output_item.added", added);
        let place = json!({"item_id": id, "output_index": index});
        let with = |name: &str| {
            let mut fields = place.clone();
            fields[name] = arguments.as_str().into();
            fields
        };
        events += &self.event("response.function_call_arguments.delta", with("delta"));
        let mut done = with("arguments");
        done["name"] = call.name.as_str().into();
        events += &self.event("response.function_call_arguments.done", done);
        let item = item("completed", &arguments);
        self.output.push(item.clone());
        events + &self.event("response.output_item.done", json!({"output_index": index, "item": item}))
    }

    /// Returns the whole response, and stores it.
    fn end(&mut self, end: &End) -> Value {
        // Clients retry after an incomplete answer; a repetition would happen again.
        let cut = end.finish == Finish::Length;
        self.body["status"] = if cut { "incomplete" } else { "completed" }.into();
        if cut {
            self.body["incomplete_details"] = json!({"reason": "max_output_tokens"});
            if let Some(last) = self.output.last_mut() {
                last["status"] = "incomplete".into();
            }
        }
        self.body["output"] = self.output.clone().into();
        self.body["usage"] = usage(&end.usage);
        if let Some(alara) = &end.alara {
            self.body["alara"] = alara.clone();
        }
        if let (Some((store, mut messages)), Some(id)) = (self.kept.take(), self.body["id"].as_str()) {
            let Answer { text, reasoning, calls, .. } = std::mem::take(&mut self.answer);
            let mut said = Message::assistant(text, calls);
            said.reasoning_content = Some(reasoning).filter(|reasoning| !reasoning.is_empty());
            messages.push(said);
            store.put(id, &Stored { messages, body: self.body.clone() });
        }
        self.body.clone()
    }
}

impl Writer for Responses {
    fn piece(&mut self, piece: &Piece) -> String {
        self.answer.push(piece);
        match piece {
            Piece::Begun => {
                let response = json!({"response": self.body});
                self.event("response.created", response.clone())
                    + &self.event("response.in_progress", response)
            }
            Piece::Logprobs(tokens) => {
                self.tokens.clone_from(tokens);
                String::new()
            }
            // This API has only one answer.
            Piece::PromptLogprobs(_) | Piece::Next(_) | Piece::Alara(_) => String::new(),
            Piece::Text(text) => self.write_delta(Kind::Text, text),
            Piece::Reasoning(text) => self.write_delta(Kind::Reasoning, text),
            Piece::Call(call) => self.call(call),
            Piece::End(end) => {
                let events = self.close();
                let body = self.end(end);
                let kind =
                    if body["status"] == "completed" { "response.completed" } else { "response.incomplete" };
                events + &self.event(kind, json!({"response": body}))
            }
        }
    }

    fn failure(&mut self, refusal: &Refusal) -> String {
        let error = &refusal.body()["error"];
        self.body["status"] = "failed".into();
        self.body["error"] = json!({"code": "server_error", "message": error["message"]});
        let response = json!({"response": self.body});
        self.event("response.failed", response)
    }

    /// The watchdog of Codex ignores comments, and treats this event as a heartbeat.
    fn beat(&mut self) -> String {
        let response = json!({"response": self.body});
        self.event("response.in_progress", response)
    }

    fn whole(&mut self, answer: Answer, end: &End) -> Value {
        self.answer = answer.clone();
        // The same items as in a stream, without its events.
        if !answer.reasoning.is_empty() {
            self.write_delta(Kind::Reasoning, &answer.reasoning);
        }
        if !answer.text.is_empty() || answer.calls.is_empty() {
            self.tokens.clone_from(&answer.logprobs);
            self.write_delta(Kind::Text, &answer.text);
        }
        answer.calls.iter().for_each(|call| drop(self.call(call)));
        self.close();
        self.end(end)
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        // Reasoning tokens aren't counted separately.
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    })
}
