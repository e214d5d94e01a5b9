//! The turns of the model in a trace, each with its request.

use std::sync::Arc;

use alara_engine::{Request, Usage};

use super::{Line, Record, Start, fold};

/// A turn of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Its conversation, see [`Entry::scope`](super::Entry::scope).
    pub scope: String,
    /// Its number in the conversation, from 1.
    pub number: usize,
    /// The settings of the conversation.
    pub start: Start,
    /// Its request.
    pub request: Request,
    /// Its usage.
    pub usage: Usage,
    /// When the last record before it was written, as RFC 3339.
    pub time: String,
}

/// Why a trace doesn't have a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoTurn {
    /// No such conversation begins in it.
    Scope {
        /// The conversations that do.
        known: Vec<String>,
    },
    /// The conversation has fewer turns.
    Number {
        /// The conversation.
        scope: String,
        /// How many it has.
        turns: usize,
    },
}

/// A turn of a trace: in the conversation `scope`, by default the first one; with this number, by
/// default the last.
///
/// # Errors
/// There is no such conversation, or it has no such turn.
pub fn turn(lines: &[Line], scope: Option<&str>, number: Option<usize>) -> Result<Turn, NoTurn> {
    let mut known: Vec<&str> = Vec::new();
    for line in lines.iter().filter(|line| matches!(*line.entry.record, Record::Start(_))) {
        if !known.contains(&line.entry.scope.as_str()) {
            known.push(&line.entry.scope);
        }
    }
    let found = scope.map_or(known.first(), |scope| known.iter().find(|known| **known == scope));
    let Some(&scope) = found else {
        return Err(NoTurn::Scope { known: known.into_iter().map(str::to_owned).collect() });
    };
    let own = |line: &&Line| line.entry.scope == scope;
    let is_turn = |line: &&Line| matches!(*line.entry.record, Record::Assistant { .. });
    let turns = lines.iter().filter(own).filter(is_turn).count();
    let number = number.unwrap_or(turns);
    let (mut records, mut learnt): (Vec<Arc<Record>>, Vec<Arc<Record>>) = Default::default();
    let (mut start, mut time, mut seen) = (None, "", 0);
    for line in lines {
        match &*line.entry.record {
            // Every conversation shares the gates' facts, whoever caused them.
            Record::Ledger { .. } => learnt.push(line.entry.record.clone()),
            _ if line.entry.scope != scope => continue,
            Record::Start(new) => {
                // Only the user's conversation continues; others start over.
                if !line.entry.is_the_users() {
                    records.clone_from(&learnt);
                }
                start = Some(&**new);
            }
            Record::Assistant { usage, .. } => {
                seen += 1;
                if let (true, Some(start)) = (seen == number, start) {
                    return Ok(Turn {
                        scope: scope.to_owned(),
                        number,
                        start: start.clone(),
                        request: fold::request(records.iter().map(|record| &**record)),
                        usage: usage.clone(),
                        time: time.to_owned(),
                    });
                }
            }
            _ => {}
        }
        records.push(line.entry.record.clone());
        time = &line.time;
    }
    Err(NoTurn::Number { scope: scope.to_owned(), turns })
}

#[cfg(test)]
mod tests {
    use alara_engine::{Finish, Message};
    use serde_json::json;

    use super::*;
    use crate::trace::Entry;

    fn line(scope: &str, record: Record) -> Line {
        let entry = Entry { scope: scope.to_owned(), record: Arc::new(record) };
        Line { time: "2026-07-01T12:00:00Z".into(), entry }
    }

    fn start(scope: &str, npc: &str) -> Line {
        let start = json!({
            "version": "0", "team": "t", "npc": npc, "model": "m", "work": "/w", "sandbox": "none",
            "limits": crate::types::Limits::default(), "system": [], "tools": [],
            "sampling": alara_engine::Sampling::default(),
        });
        line(scope, Record::Start(serde_json::from_value(start).unwrap()))
    }

    fn user(scope: &str, text: &str) -> Line {
        line(scope, Record::User { text: text.into() })
    }

    fn answer(scope: &str, text: &str, prompt_tokens: usize) -> Line {
        let message = Message::assistant(text, Vec::new());
        let usage = Usage { prompt_tokens, ..Usage::default() };
        line(scope, Record::Assistant { message, finish: Finish::Stop, usage })
    }

    #[test]
    fn turns_are_counted_in_their_conversation() {
        let lines = [
            start("", "lead"),
            user("", "a"),
            answer("", "b", 1),
            user("", "c"),
            start("call_1", "critic"),
            user("call_1", "x"),
            answer("call_1", "y", 2),
            answer("", "d", 3),
            // A call with the same id again.
            start("call_1", "critic"),
            user("call_1", "z"),
            answer("call_1", "w", 4),
        ];
        let check = |scope: Option<&str>, number, npc: &str, texts: &[&str], tokens| {
            let turn = turn(&lines, scope, number).unwrap();
            let said: Vec<&str> =
                turn.request.messages.iter().map(|message| message.content.as_str()).collect();
            assert_eq!((said.as_slice(), turn.usage.prompt_tokens), (texts, tokens));
            assert_eq!((turn.start.npc.as_str(), turn.scope), (npc, scope.unwrap_or_default().to_owned()));
        };
        check(None, Some(1), "lead", &["a"], 1);
        check(None, Some(2), "lead", &["a", "b", "c"], 3);
        check(Some(""), None, "lead", &["a", "b", "c"], 3);
        check(Some("call_1"), Some(1), "critic", &["x"], 2);
        check(Some("call_1"), Some(2), "critic", &["z"], 4);
        let none = |scope, number| turn(&lines, scope, number).unwrap_err();
        let known = vec![String::new(), "call_1".to_owned()];
        assert_eq!(none(Some("call_2"), None), NoTurn::Scope { known });
        for number in [0, 3] {
            assert_eq!(none(None, Some(number)), NoTurn::Number { scope: String::new(), turns: 2 });
        }
        let unanswered = &lines[..2];
        let none = turn(unanswered, None, None).unwrap_err();
        assert_eq!(none, NoTurn::Number { scope: String::new(), turns: 0 });
        assert_eq!(turn(&[], None, None).unwrap_err(), NoTurn::Scope { known: Vec::new() });
    }
}
