//! One turn of the model, as it is asked for.

use alara_engine::{Event, Finish, Request};
use alara_harness::ChatModel;
use serde_json::json;

use crate::answer::{End, Piece};
use crate::refusal::Refusal;
use crate::slots::Listener;

/// Has `model` continue the conversation of `request`.
///
/// # Errors
/// The model refuses, or fails.
pub fn complete(model: &dyn ChatModel, request: Request, listener: &Listener) -> Result<(), Refusal> {
    if request.prompt.is_some() && model.local().is_none() {
        return Err(Refusal::unable("a prompt without a conversation takes a model of this machine"));
    }
    // The engine has no stop texts in JSON, which says itself where it ends: a client that wants
    // some gets what stands before them.
    let mut cut = Cut::new(if request.schema.is_some() { request.stop.clone() } else { Vec::new() });
    let request = if request.schema.is_some() { Request { stop: Vec::new(), ..request } } else { request };
    let events = model.chat(request).map_err(|error| Refusal::from(&error))?;
    listener.send(Ok(Piece::Begun));
    for event in events {
        // Leaving drops the events, and that cancels the turn.
        if listener.is_left() {
            return Ok(());
        }
        let piece = match event.map_err(|error| Refusal::from(&error))? {
            Event::Text { text } => match cut.next(&text) {
                text if text.is_empty() => continue,
                text => Piece::Text(text),
            },
            Event::Reasoning { text } => Piece::Reasoning(text),
            Event::ToolCall(call) => Piece::Call(call),
            Event::Done { finish, usage } => {
                let rest = cut.rest();
                if !rest.is_empty() && !listener.send(Ok(Piece::Text(rest))) {
                    return Ok(());
                }
                let mut alara = json!({});
                if finish == Finish::Repetition {
                    // Other APIs have no word for it; it is cut off, as by a limit.
                    alara["finish"] = "repetition".into();
                }
                if !usage.loosened.is_empty() {
                    // Who runs the calls has to check them for it.
                    alara["loosened"] = json!(usage.loosened);
                }
                let alara = Some(alara).filter(|alara| *alara != json!({}));
                let finish = if cut.found { Finish::Stop } else { finish };
                Piece::End(Box::new(End { finish, usage, alara }))
            }
            // Pieces of a call are told as a whole, with the id that the model gives it at its end;
            // one that is cut off is no call.
            Event::ToolCallDelta { .. } | Event::Incomplete { .. } | Event::Logprobs { .. } => continue,
        };
        if !listener.send(Ok(piece)) {
            return Ok(());
        }
    }
    Ok(())
}

/// What of a text stands before the first of some others.
struct Cut {
    stops: Vec<String>,
    /// What may be the beginning of one of them.
    held: String,
    /// Whether one was found, after which nothing more is told.
    found: bool,
}

impl Cut {
    fn new(stops: Vec<String>) -> Self {
        Cut { stops, held: String::new(), found: false }
    }

    /// What of the text so far is told now, given its next piece.
    fn next(&mut self, piece: &str) -> String {
        if self.found || (self.stops.is_empty() && self.held.is_empty()) {
            return if self.found { String::new() } else { piece.to_owned() };
        }
        self.held += piece;
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop)).min() {
            self.found = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let begins = |from: usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[from..]));
        let keep = self.held.char_indices().map(|(at, _)| at).find(|&at| begins(at));
        let held = self.held.split_off(keep.unwrap_or(self.held.len()));
        std::mem::replace(&mut self.held, held)
    }

    /// What was held back, at the end.
    fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_before_what_stops_them() {
        let check = |stops: &[&str], pieces: &[&str], expected: &[&str], found: bool| {
            let mut cut = Cut::new(stops.iter().map(ToString::to_string).collect());
            let mut told: Vec<String> = pieces.iter().map(|piece| cut.next(piece)).collect();
            told.push(cut.rest());
            told.retain(|text| !text.is_empty());
            assert_eq!(
                (told.iter().map(String::as_str).collect::<Vec<_>>(), cut.found),
                (expected.to_vec(), found)
            );
        };
        check(&[], &["a", "b"], &["a", "b"], false);
        check(&["END"], &["a E", "N", "D b", "c"], &["a "], true);
        check(&["END"], &["a E", "Nx"], &["a ", "ENx"], false);
        check(&["END"], &["a E"], &["a ", "E"], false);
        check(&["bb", "ab"], &["xabb"], &["x"], true);
        check(&["é!"], &["é", "é", "!"], &["é"], true);
    }
}
