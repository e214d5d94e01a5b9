//! Notices and questions of a run as JSON, for programs that follow it.

use alara_engine::Event;
use serde_json::{Value, json};

use super::session::Notice;
use crate::permission::Question;
use crate::sandbox::{Risk, losses};

/// The JSON object of a notice: its kind in `notice`, and its fields.
/// Returns `None` for a notice that only shows the progress of a turn, or that is a prompt.
pub fn of_notice(notice: &Notice) -> Option<Value> {
    Some(match notice {
        Notice::Event { event: Event::Text { text } | Event::Reasoning { text }, .. } if text.is_empty() => {
            return None;
        }
        Notice::Prompt { .. } => return None,
        Notice::Turn { npc, depth, turn } => {
            json!({"notice": "turn", "npc": npc, "depth": depth, "turn": turn})
        }
        Notice::Event { depth, event } => json!({"notice": "model", "depth": depth, "event": event}),
        Notice::Call { depth, call } => json!({"notice": "call", "depth": depth, "call": call}),
        Notice::Result { depth, call, result, took } => json!({
            "notice": "result",
            "depth": depth,
            "call": call,
            "ok": result.ok,
            "output": result.output_text(),
            "error": result.complaint(),
            "seconds": took.as_secs_f64(),
        }),
        Notice::Emit(response) => json!({"notice": "response", "response": response}),
        Notice::Warning(text) => json!({"notice": "warned", "text": text}),
        Notice::Unchanged { what, nobody } => json!({"notice": "unchanged", "what": what, "nobody": nobody}),
        Notice::Job { job, call, ended } => {
            json!({"notice": "job", "job": job, "call": call, "ended": ended})
        }
        Notice::Compaction { messages } => json!({"notice": "compaction", "messages": messages}),
    })
}

/// The JSON object of a question: who wants to make which call, and which data it may destroy.
pub fn of_question(question: &Question) -> Value {
    let risk = match question.risk {
        Some(Risk::Losses(changes, _)) => losses(changes),
        Some(Risk::Writes(proposal)) => proposal.others(),
        Some(Risk::Unknown) => vec!["may do anything to files of the work directory".to_owned()],
        Some(Risk::Refused(changes)) => losses(changes),
        None => Vec::new(),
    };
    json!({
        "npc": question.npc,
        "jinx": question.jinx.name,
        "arguments": question.arguments,
        "variables": question.variables,
        "risk": risk,
    })
}
