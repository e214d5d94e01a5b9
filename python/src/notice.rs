//! What happens during a run, as JSON.

use alara_engine::Event;
use alara_harness::Notice;
use alara_harness::permission::Question;
use alara_harness::sandbox::{Risk, losses};
use serde_json::{Value, json};

/// A notice; `None`: it only says that something goes on.
pub fn told(notice: &Notice) -> Option<Value> {
    Some(match notice {
        Notice::Event { event: Event::Text { text } | Event::Reasoning { text }, .. } if text.is_empty() => {
            return None;
        }
        // No request asks for it.
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

/// What a person is asked.
pub fn asked(question: &Question) -> Value {
    let risk = match question.risk {
        Some(Risk::Losses(changes)) => losses(changes),
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
