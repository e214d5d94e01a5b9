//! Reports an NPC's work with its own tools while it happens.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use alara_engine::{Event, ToolCall};
use alara_harness::{Notice, ToolResult};
use serde_json::{Value, json};

use crate::answer::Piece;
use crate::slots::Listener;

/// Maximum size, in bytes, of the displayed part of a call's result.
const SHOWN: usize = 16 << 10;

/// Reports the requested events of a run.
pub struct Live<'a> {
    listener: &'a Listener,
    /// Whether to send text as it is generated.
    /// With tools, text may turn out to accompany a call, and then it isn't the answer.
    text: bool,
    /// Whether to report calls and their results.
    calls: bool,
    said: Mutex<Said>,
}

/// Text sent so far.
#[derive(Default)]
struct Said {
    /// Text of this turn, since its last call.
    now: String,
    /// Whether an earlier turn had text.
    before: bool,
}

impl<'a> Live<'a> {
    /// Creates a reporter for `listener`, which receives text and calls as they come, or not.
    pub fn new(listener: &'a Listener, text: bool, calls: bool) -> Self {
        Live { listener, text, calls, said: Mutex::default() }
    }

    /// Reports an event.
    /// Cancels the work once the client has left.
    pub fn notice(&self, notice: &Notice) {
        let heard = match notice {
            Notice::Turn { depth: 0, .. } => {
                self.next();
                true
            }
            Notice::Event { depth: 0, event: Event::Text { text } } if self.text => self.say(text),
            Notice::Event { depth: 0, event: Event::Reasoning { text } } => {
                self.listener.send(Ok(Piece::Reasoning(text.clone())))
            }
            Notice::Call { depth: 0, call } if self.calls => self.tell(json!({"call": begun(call)})),
            Notice::Result { depth: 0, call, result, took } => {
                self.next();
                !self.calls || self.tell(json!({"result": ended(call, result, took.as_secs_f64())}))
            }
            _ => true,
        };
        if !heard {
            self.listener.cancel.store(true, Ordering::Relaxed);
        }
    }

    /// Sends the answer, unless it was sent as it was generated.
    pub fn answer(&self, text: &str) {
        let told = self.said.lock().unwrap_or_else(PoisonError::into_inner).now == text;
        if !told {
            self.say(text);
        }
    }

    /// Starts a separate text.
    fn next(&self) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.before |= !std::mem::take(&mut said.now).is_empty();
    }

    fn say(&self, text: &str) -> bool {
        if text.is_empty() {
            return true;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let between = if said.before && said.now.is_empty() { "\n\n" } else { "" };
        said.now += text;
        self.listener.send(Ok(Piece::Text(format!("{between}{text}"))))
    }

    fn tell(&self, what: Value) -> bool {
        self.listener.send(Ok(Piece::Alara(what)))
    }
}

fn begun(call: &ToolCall) -> Value {
    json!({"id": call.id, "name": call.name, "arguments": call.arguments})
}

fn ended(call: &ToolCall, result: &ToolResult, seconds: f64) -> Value {
    let (output, complaint, left_out) = result.within(SHOWN);
    let mut told = json!({"id": call.id, "ok": result.ok, "seconds": seconds, "output": output});
    if let Some(exit) = result.exit {
        told["exit"] = exit.into();
    }
    if !complaint.is_empty() {
        told["complaint"] = complaint.into();
    }
    if left_out > 0 {
        told["left_out"] = left_out.into();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_bounded() {
        let call = ToolCall { id: "1".into(), name: "f".into(), arguments: serde_json::Map::new() };
        let result = ToolResult::succeeded("é".repeat(SHOWN));
        let told = ended(&call, &result, 0.5);
        let output = told["output"].as_str().unwrap();
        assert!(output.len() < SHOWN + 64 && output.starts_with('é') && output.ends_with('é'));
        // The mark is on a separate line.
        let mark = output.lines().nth(1).unwrap();
        assert_eq!(told["left_out"], 2 * SHOWN - (output.len() - mark.len() - 2));
        assert_eq!(mark, format!("[… {} bytes left out …]", told["left_out"]));
        let failed = ToolResult { exit: Some(3), stderr: "no".into(), ..ToolResult::failed("exit status 3") };
        let expected =
            json!({"id": "1", "ok": false, "exit": 3, "seconds": 0.5, "output": "", "complaint": "no"});
        assert_eq!(ended(&call, &failed, 0.5), expected);
    }
}
