//! Derives from the records: the next request, the usage, and a form in which two runs can be
//! compared.

use std::collections::BTreeMap;

use alara_engine::{Message, Request, Role, Tool, Usage};
use serde_json::Value;

use super::followed::Followed;
use super::steering::Steering;
use super::{Entry, Record};
use crate::calls::Calls;
use crate::hidden;
use crate::ledger::Ledger;
use crate::phases::Machine;

/// The request for the next turn of a conversation, from its own records.
pub fn request<'a>(records: impl IntoIterator<Item = &'a Record>) -> Request {
    let (mut request, examples) = fold(records);
    request.messages.splice(..0, examples.iter().cloned());
    request
}

/// The messages of a conversation, from its own records, without the examples before them.
pub fn messages<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<Message> {
    fold(records).0.messages
}

/// The request for the next turn, and the examples that come before its messages.
fn fold<'a>(records: impl IntoIterator<Item = &'a Record>) -> (Request, &'a [Message]) {
    let mut request = Request::default();
    let mut examples: &[Message] = &[];
    let mut before = None;
    let mut calls = Calls::Free;
    let mut followed = Followed::default();
    let mut steering = Steering::default();
    for record in records {
        followed.follow(record);
        steering.follow(record);
        match record {
            Record::Start(start) => {
                request.system.clone_from(&start.system);
                request.tools.clone_from(&start.tools);
                request.sampling = start.sampling.clone();
                request.thinking = start.thinking;
                examples = &start.examples;
                calls = start.calls;
                request.schema.clone_from(&start.schema);
                request.max_tokens = Some(start.limits.turn_tokens);
                request.reasoning_tokens = start.limits.reasoning_tokens;
            }
            Record::User { text } => {
                before = Some(Before::Length {
                    messages: request.messages.len(),
                    last: request.messages.last().map_or(0, |last| last.content.len()),
                });
                match request.messages.last_mut() {
                    // A turn that was cut off left the previous message without an answer; many
                    // templates require alternating roles.
                    Some(last) if last.role == Role::User => last.content += &format!("\n\n{text}"),
                    _ => request.messages.push(Message::user(text)),
                }
            }
            Record::Hint { text, .. } => request.messages.push(Message::user(text)),
            Record::Assistant { message, .. } => request.messages.push(message.clone()),
            Record::ToolResult { call, text, .. } => request.messages.push(Message::tool_result(call, text)),
            Record::Compaction { summary, kept } => {
                before = before.map(|before| Before::All(before.messages(request.messages.clone())));
                let recent = request.messages.len().saturating_sub(*kept);
                request.messages.splice(..recent, [Message::user(summary)]);
                // Many templates require that the user and the assistant alternate.
                if request.messages.get(1).is_some_and(|next| next.role == Role::User) {
                    let next = request.messages.remove(1);
                    request.messages[0].content += &format!("\n\n{}", next.content);
                }
            }
            Record::Retract => {
                if let Some(before) = before.take() {
                    request.messages = before.messages(request.messages);
                }
            }
            Record::ToolCall { .. }
            | Record::Permission { .. }
            | Record::Changed { .. }
            | Record::Ledger { .. }
            | Record::Jinx { .. }
            | Record::Job { .. }
            | Record::Emit { .. }
            | Record::Phase(_)
            | Record::End { .. } => {}
        }
        // State blocks are appended to a message of the user or a result, once that is complete.
        if let Record::User { .. }
        | Record::Hint { .. }
        | Record::ToolResult { .. }
        | Record::Compaction { .. } = record
        {
            followed.tell(&mut request.messages);
        }
    }
    let mut unlocked = followed.unlocked();
    let choice = followed.machine().map(|machine| {
        unlocked.retain(|tool| machine.permits_call(hidden::CALL, Some(&tool.name)));
        let finish = steering.finish(&request.tools);
        machine.choice(&request.tools, &unlocked, finish.as_deref())
    });
    // Before that, the name may be any text: a list of names would reveal them.
    if !unlocked.is_empty() {
        let bound = unlocked.into_iter().map(hidden::bound).collect();
        request.bound.insert(hidden::CALL.to_owned(), bound);
    }
    calls.ask(&mut request);
    steering.force(&mut request);
    if let Some(choice) = choice {
        request.tool_choice = choice;
        // A call may lead to a phase in which the next one is not permitted.
        request.parallel_tool_calls = false;
    }
    steering.hold(&mut request);
    (request, examples)
}

/// The state of a conversation among its phases, from its own records; `None` if it has no phases.
pub fn phases<'a>(records: impl IntoIterator<Item = &'a Record>) -> Option<Machine<'a>> {
    let mut followed = Followed::default();
    records.into_iter().for_each(|record| followed.follow(record));
    followed.machine().cloned()
}

/// The hidden tools that are unlocked in a conversation, from its own records, in the order of
/// unlocking.
pub fn unlocked<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<&'a Tool> {
    let mut followed = Followed::default();
    records.into_iter().for_each(|record| followed.follow(record));
    followed.unlocked()
}

/// The facts that the gates of a conversation's NPC know, from its own records, each with its path
/// and in the text for the model.
pub fn facts<'a>(records: impl IntoIterator<Item = &'a Record>) -> BTreeMap<String, String> {
    let mut followed = Followed::default();
    records.into_iter().for_each(|record| followed.follow(record));
    followed.facts()
}

/// The messages before the last one of the user.
enum Before {
    /// Their number, and the length of the last one: they are still there.
    Length { messages: usize, last: usize },
    /// The messages themselves: the conversation has been compacted since.
    All(Vec<Message>),
}

impl Before {
    /// The messages, given the current ones.
    fn messages(self, mut now: Vec<Message>) -> Vec<Message> {
        match self {
            Before::All(messages) => messages,
            Before::Length { messages, last } => {
                now.truncate(messages);
                if let Some(message) = now.last_mut() {
                    message.content.truncate(last);
                }
                now
            }
        }
    }
}

/// The ledger of each gate, by its file, after these records.
pub fn ledgers<'a>(records: impl IntoIterator<Item = &'a Record>) -> BTreeMap<String, Ledger> {
    let mut ledgers = BTreeMap::new();
    records.into_iter().for_each(|record| take_over(&mut ledgers, record));
    ledgers
}

/// Applies the ledger changes of a record.
pub(super) fn take_over(ledgers: &mut BTreeMap<String, Ledger>, record: &Record) {
    let Record::Ledger { gate, changes } = record else { return };
    let ledger = ledgers.entry(gate.clone()).or_default();
    changes.iter().for_each(|change| ledger.apply(change));
}

/// The usage of turns together; the time to the first token is the first turn's.
pub fn usage<'a>(records: impl IntoIterator<Item = &'a Record>) -> Usage {
    let mut total = Usage::default();
    for record in records {
        if let Record::Assistant { usage, .. } = record {
            total += usage.clone();
        }
    }
    total
}

/// An entry without the parts that differ between two equal runs: times and the work directory.
pub fn normalised(entry: &Entry) -> Value {
    let mut value = serde_json::to_value(entry).unwrap_or_default();
    // The number of drafted tokens also depends on times.
    let times = ["time_to_first_token", "prefill_time", "snapshot_time", "decode_time", "grammar", "drafts"];
    if let Some(usage) = value.get_mut("usage").and_then(Value::as_object_mut) {
        times.iter().for_each(|time| drop(usage.shift_remove(*time)));
    }
    if let Some(record) = value.as_object_mut() {
        let differing = match *entry.record {
            Record::Start(_) => "work",
            Record::ToolResult { .. } | Record::Jinx { .. } => "seconds",
            _ => return value,
        };
        record.shift_remove(differing);
    }
    value
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alara_engine::Finish;

    use super::*;

    fn user(text: &str) -> Record {
        Record::User { text: text.into() }
    }

    fn assistant(text: &str) -> Record {
        let message = Message::assistant(text, Vec::new());
        Record::Assistant { message, finish: Finish::Stop, usage: Usage::default() }
    }

    #[test]
    fn what_is_taken_back_was_never_said() {
        let check = |records: &[Record], expected: &[&str]| {
            let messages = request(records).messages;
            let texts: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
            assert_eq!(texts, expected, "{records:?}");
        };
        check(&[user("a"), assistant("b"), user("c"), assistant("d")], &["a", "b", "c", "d"]);
        check(&[user("a"), assistant("b"), user("c"), assistant("d"), Record::Retract], &["a", "b"]);
        check(&[user("a"), user("b")], &["a\n\nb"]);
        let hint = || Record::Hint { text: "h".into(), about: super::super::About::Failure };
        check(&[user("a"), assistant("b"), hint(), assistant("c")], &["a", "b", "h", "c"]);
        check(&[user("a"), assistant("b"), user("c"), assistant("d"), hint(), Record::Retract], &["a", "b"]);
        check(&[user("a"), user("b"), assistant("c"), Record::Retract, user("d")], &["a\n\nd"]);
        check(&[user("a"), Record::Retract, Record::Retract], &[]);
        let shorter = || Record::Compaction { summary: "s".into(), kept: 1 };
        let long = || [user("a"), assistant("b"), user("c"), assistant("d"), shorter()];
        check(&long(), &["s", "d"]);
        check(&[long().as_slice(), &[shorter(), Record::Retract]].concat(), &["a", "b"]);
        check(&[long().as_slice(), &[user("e"), Record::Retract]].concat(), &["s", "d"]);
    }

    #[test]
    fn times_are_not_compared() {
        let entry = |record| Entry { scope: String::new(), record: Arc::new(record) };
        let shown = |seconds: f64| {
            let usage = Usage {
                prompt_tokens: 3,
                decode_time: std::time::Duration::from_secs_f64(seconds),
                ..Usage::default()
            };
            let message = Message::assistant("x", Vec::new());
            normalised(&entry(Record::Assistant { message, finish: Finish::Stop, usage }))
        };
        assert_eq!(shown(1.0), shown(2.0));
        assert_eq!(shown(1.0)["usage"]["prompt_tokens"], 3);
        assert_ne!(shown(1.0), normalised(&entry(assistant("x"))));
        assert_eq!(normalised(&entry(user("a"))), serde_json::json!({"record": "user", "text": "a"}));
    }
}
