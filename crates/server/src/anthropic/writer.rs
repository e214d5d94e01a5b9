//! Writes the response to `POST /v1/messages`: blocks, and in a stream the events of each
//! (<https://docs.claude.com/en/docs/build-with-claude/streaming>).

use alara_engine::{Finish, ToolCall, Usage};
use serde_json::{Value, json};

use crate::answer::{Answer, End, Piece, Writer, named_event};
use crate::inner::id;
use crate::refusal::Refusal;

/// Writes the response.
pub struct Messages {
    id: String,
    model: String,
    /// The current block.
    open: Option<Kind>,
    /// The number of complete blocks.
    blocks: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Thinking,
}

impl Kind {
    fn block(self, text: &str) -> Value {
        match self {
            Kind::Text => json!({"type": "text", "text": text}),
            Kind::Thinking => json!({"type": "thinking", "thinking": text, "signature": ""}),
        }
    }

    fn delta(self, text: &str) -> Value {
        match self {
            Kind::Text => json!({"type": "text_delta", "text": text}),
            Kind::Thinking => json!({"type": "thinking_delta", "thinking": text}),
        }
    }
}

impl Messages {
    /// Creates a writer for a response by `model`.
    pub fn new(model: &str) -> Self {
        Messages { id: id("msg_"), model: model.to_owned(), open: None, blocks: 0 }
    }

    fn message(&self, content: &[Value], end: Option<&End>) -> Value {
        // The usage of the prompt is known only at the end.
        let usage = end.map_or_else(|| usage(&Usage::default()), |end| self::usage(&end.usage));
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": end.map(stop_reason), "stop_sequence": end.and_then(End::stop_text), "usage": usage,
        })
    }

    fn start(&self, block: &Value) -> String {
        named_event(&json!({"type": "content_block_start", "index": self.blocks, "content_block": block}))
    }

    fn delta(&self, delta: &Value) -> String {
        named_event(&json!({"type": "content_block_delta", "index": self.blocks, "delta": delta}))
    }

    /// Ends the current block.
    fn stop(&mut self) -> String {
        let stop = named_event(&json!({"type": "content_block_stop", "index": self.blocks}));
        self.blocks += 1;
        stop
    }

    fn close(&mut self) -> String {
        match self.open.take() {
            None => String::new(),
            // Clients that send reasoning back must include its signature; ours is empty.
            Some(Kind::Thinking) => {
                self.delta(&json!({"type": "signature_delta", "signature": ""})) + &self.stop()
            }
            Some(Kind::Text) => self.stop(),
        }
    }

    fn write_delta(&mut self, kind: Kind, text: &str) -> String {
        let mut events = String::new();
        if self.open != Some(kind) {
            events += &self.close();
            events += &self.start(&kind.block(""));
            self.open = Some(kind);
        }
        events + &self.delta(&kind.delta(text))
    }
}

impl Writer for Messages {
    fn piece(&mut self, piece: &Piece) -> String {
        match piece {
            Piece::Begun => {
                let message = self.message(&[], None);
                named_event(&json!({"type": "message_start", "message": message}))
            }
            // This API has no tokens in responses, and only one answer.
            Piece::Logprobs(_) | Piece::PromptLogprobs(_) | Piece::Next(_) | Piece::Alara(_) => String::new(),
            Piece::Text(text) => self.write_delta(Kind::Text, text),
            Piece::Reasoning(text) => self.write_delta(Kind::Thinking, text),
            Piece::Call(call) => {
                let input = Value::Object(call.arguments.clone()).to_string();
                let mut events = self.close() + &self.start(&tool_use(call, &json!({})));
                events += &self.delta(&json!({"type": "input_json_delta", "partial_json": input}));
                events + &self.stop()
            }
            Piece::End(end) => {
                let delta = json!({"stop_reason": stop_reason(end), "stop_sequence": end.stop_text()});
                let mut last = json!({"type": "message_delta", "delta": delta, "usage": usage(&end.usage)});
                if let Some(alara) = &end.alara {
                    last["alara"] = alara.clone();
                }
                self.close() + &named_event(&last) + &named_event(&json!({"type": "message_stop"}))
            }
        }
    }

    fn failure(&mut self, refusal: &Refusal) -> String {
        named_event(&super::refusal(refusal))
    }

    fn beat(&mut self) -> String {
        named_event(&json!({"type": "ping"}))
    }

    fn whole(&mut self, answer: Answer, end: &End) -> Value {
        let mut content = Vec::new();
        if !answer.reasoning.is_empty() {
            content.push(Kind::Thinking.block(&answer.reasoning));
        }
        if !answer.text.is_empty() {
            content.push(Kind::Text.block(&answer.text));
        }
        content
            .extend(answer.calls.iter().map(|call| tool_use(call, &Value::Object(call.arguments.clone()))));
        let mut message = self.message(&content, Some(end));
        if let Some(alara) = &end.alara {
            message["alara"] = alara.clone();
        }
        message
    }
}

fn tool_use(call: &ToolCall, input: &Value) -> Value {
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
}

/// Returns this API's name for the reason why an answer ended.
fn stop_reason(end: &End) -> &'static str {
    match end.finish {
        Finish::Stop if end.stop_text().is_some() => "stop_sequence",
        // After `max_tokens`, clients retry and would get an identical answer.
        Finish::Stop | Finish::Repetition => "end_turn",
        Finish::ToolCalls => "tool_use",
        Finish::Length => "max_tokens",
    }
}

/// Formats the usage; cached tokens are excluded from the other counts.
fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    })
}
