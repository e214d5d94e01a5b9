//! One turn of the model, as it is asked for.

use alara_engine::{Event, Finish, Request};
use alara_harness::ChatModel;
use serde_json::json;

use crate::job::Listener;
use crate::wire::{End, Piece, Refusal};

/// Has `model` continue the conversation of `request`.
///
/// # Errors
/// The model refuses, or fails.
pub fn complete(model: &dyn ChatModel, request: Request, listener: &Listener) -> Result<(), Refusal> {
    let events = model.chat(request).map_err(|error| Refusal::from(&error))?;
    listener.send(Ok(Piece::Begun));
    for event in events {
        // Leaving drops the events, and that cancels the turn.
        if listener.is_left() {
            return Ok(());
        }
        let piece = match event.map_err(|error| Refusal::from(&error))? {
            Event::Text { text } if !text.is_empty() => Piece::Text(text),
            Event::Reasoning { text } => Piece::Reasoning(text),
            Event::ToolCall(call) => Piece::Call(call),
            Event::Done { finish, usage } => {
                let mut alara = json!({});
                if finish == Finish::Repetition {
                    // OpenAI has no word for it; it is cut off, as by a limit.
                    alara["finish"] = "repetition".into();
                }
                if !usage.loosened.is_empty() {
                    // Who runs the calls has to check them for it.
                    alara["loosened"] = json!(usage.loosened);
                }
                let alara = Some(alara).filter(|alara| *alara != json!({}));
                Piece::End(Box::new(End { finish: word(finish), usage, alara }))
            }
            // Pieces of a call are told as a whole, with the id that the model gives it at its end;
            // one that is cut off is no call.
            Event::Text { .. } | Event::ToolCallDelta { .. } | Event::Incomplete { .. } => continue,
        };
        if !listener.send(Ok(piece)) {
            return Ok(());
        }
    }
    Ok(())
}

/// OpenAI's word for why a turn ended.
fn word(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length | Finish::Repetition => "length",
    }
}
