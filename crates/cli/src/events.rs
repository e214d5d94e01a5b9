//! The events of a run as JSON, one object a line, for programs that follow it.

use alara_engine::Event;
use alara_harness::Notice;
use alara_harness::permission::Question;
use serde_json::{Value, json};

use crate::ui;

/// Prints the event of a notice, if it is one.
pub fn print(notice: &Notice) {
    if let Some(event) = event(notice) {
        ui::line(&event.to_string());
    }
}

/// Prints that a person is asked.
pub fn print_question(question: &Question) {
    let Question { npc, jinx, arguments, .. } = question;
    ui::line(
        &json!({"event": "question", "npc": npc, "tool": jinx.name, "arguments": arguments}).to_string(),
    );
}

/// The event of a notice; `None` = it is no event by itself.
fn event(notice: &Notice) -> Option<Value> {
    Some(match notice {
        Notice::Turn { npc, depth, turn } => {
            json!({"event": "turn", "depth": depth, "npc": npc, "turn": turn})
        }
        Notice::Event { depth, event: Event::Text { text } } if !text.is_empty() => {
            json!({"event": "text", "depth": depth, "text": text})
        }
        Notice::Event { depth, event: Event::Reasoning { text } } if !text.is_empty() => {
            json!({"event": "reasoning", "depth": depth, "text": text})
        }
        Notice::Call { depth, call } => json!({
            "event": "call", "depth": depth, "id": call.id, "tool": call.name, "arguments": call.arguments,
        }),
        Notice::Result { depth, call, result, took } => json!({
            "event": "result", "depth": depth, "id": call.id, "tool": call.name, "ok": result.ok,
            "output": result.output, "error": result.complaint(), "seconds": took.as_secs_f64(),
        }),
        Notice::Emit(response) => json!({"event": "response", "response": response}),
        Notice::Warning(text) => json!({"event": "warning", "text": text}),
        Notice::Unchanged { what, nobody } => json!({"event": "refused", "what": what, "asked": !nobody}),
        Notice::Job { job, call, ended } => json!({"event": "job", "job": job, "call": call, "ended": ended}),
        Notice::Compaction { messages } => json!({"event": "compaction", "messages": messages}),
        Notice::Event { .. } | Notice::Prompt { .. } => return None,
    })
}
