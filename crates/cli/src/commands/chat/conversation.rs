//! A conversation with one NPC: its records, and the user's other actions that the NPC doesn't know
//! of yet.

use std::sync::Arc;

use alara_engine::{Message, Role, Usage};
use alara_harness::trace::{self, Record};

use crate::progress::call_line;
use crate::screen::printable;

/// A conversation with one NPC.
#[derive(Default)]
pub struct Conversation {
    /// The records so far.
    pub records: Vec<Arc<Record>>,
    /// News for the NPC, sent with the next message.
    pub news: Vec<String>,
}

impl Conversation {
    /// Returns the next message: `text`, preceded by news for the NPC.
    pub fn message(&self, text: &str) -> String {
        let parts: Vec<&str> = self.news.iter().map(String::as_str).chain([text]).collect();
        parts.join("\n\n")
    }

    /// Returns the user's last message that wasn't taken back.
    pub fn last_question(&self) -> Option<&str> {
        let mut taken_back = 0;
        self.records.iter().rev().find_map(|record| match &**record {
            Record::Retract => {
                taken_back += 1;
                None
            }
            Record::User { .. } if taken_back > 0 => {
                taken_back -= 1;
                None
            }
            Record::User { text } => Some(text.as_str()),
            _ => None,
        })
    }

    /// Returns the usage of its turns, from the record `from` on.
    pub fn usage(&self, from: usize) -> Usage {
        trace::usage(self.records.iter().skip(from).map(|record| &**record))
    }

    /// Returns the usage of its last turn.
    pub fn last_turn(&self) -> Option<&Usage> {
        self.records.iter().rev().find_map(|record| match &**record {
            Record::Assistant { usage, .. } => Some(usage),
            _ => None,
        })
    }

    /// Counts turns and calls.
    pub fn counts(&self) -> (usize, usize) {
        let count = |is: fn(&Record) -> bool| self.records.iter().filter(|record| is(record)).count();
        let turns = count(|record| matches!(record, Record::Assistant { .. }));
        (turns, count(|record| matches!(record, Record::ToolCall { .. })))
    }

    /// Returns the last `limit` messages as Markdown, or all if it is `None`.
    pub fn transcript(&self, npc: &str, limit: Option<usize>) -> String {
        let messages = trace::messages(self.records.iter().map(|record| &**record));
        let skipped = limit.map_or(0, |limit| messages.len().saturating_sub(limit));
        messages[skipped..].iter().map(|message| section(npc, message)).collect()
    }
}

fn section(npc: &str, message: &Message) -> String {
    let who = match message.role {
        Role::System => "system",
        Role::User => "you",
        Role::Assistant => npc,
        Role::Tool => message.name.as_deref().unwrap_or("tool"),
    };
    let mut text = format!("## {who}\n");
    let content = printable(message.content.trim());
    if message.role == Role::Tool {
        text += &format!("```json\n{content}\n```\n");
    } else if !content.is_empty() {
        text += &format!("{content}\n");
    }
    for call in &message.tool_calls {
        text += &format!("```text\n{}\n```\n", call_line(call));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use alara_engine::Finish;

    use super::*;

    #[test]
    fn what_was_said_last() {
        let user = |text: &str| Record::User { text: text.into() };
        let answer = |text: &str| Record::Assistant {
            message: Message::assistant(text, Vec::new()),
            finish: Finish::Stop,
            usage: Usage::default(),
        };
        let check = |records: Vec<Record>, last: Option<&str>, transcript: &str| {
            let records = records.into_iter().map(Arc::new).collect();
            let conversation = Conversation { records, news: Vec::new() };
            assert_eq!(conversation.last_question(), last);
            assert_eq!(conversation.transcript("worker", Some(2)), transcript);
        };
        check(Vec::new(), None, "");
        check(vec![user("a"), answer("b")], Some("a"), "## you\na\n\n## worker\nb\n\n");
        check(
            vec![user("a"), answer("b"), user("c"), answer("d"), Record::Retract],
            Some("a"),
            "## you\na\n\n## worker\nb\n\n",
        );
        check(vec![user("a"), Record::Retract], None, "");
    }
}
