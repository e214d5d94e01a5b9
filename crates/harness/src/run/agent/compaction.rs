//! Keeps a conversation within the model's context: when it gets too long, a summary replaces the
//! older messages.
//!
//! Static segments and tools don't change, so their cached state stays valid.
//! Compaction is never silent: a record and a notice report which messages were replaced, and the
//! trace keeps them.

use std::time::Instant;

use alara_engine::{Finish, Message, Role};

use super::{Agent, Given};
use crate::error::Error;
use crate::run::session::Notice;
use crate::team::Npc;
use crate::trace::{self, Record};
use crate::types::{Limits, Outcome};

/// Bytes per token, roughly: fewer than in most texts, so that lengths are overestimated rather
/// than underestimated.
const TOKEN_BYTES: usize = 3;
/// Most tokens of a summary.
const SUMMARY_TOKENS: usize = 512;
/// Most bytes of a message that the model reads when it writes the summary.
const EXCERPT_BYTES: usize = 1200;
const SUMMARIZE: &str = "Sum up the conversation below between a user and an assistant, so that the assistant can go on without it. \
    Say what the user wants, what was done and found (names, paths, numbers), and what is still to be done. \
    Be brief: at most 150 words.";

impl Agent<'_, '_> {
    /// Most tokens that the next prompt may have; `None` if the limit is unknown.
    pub(super) fn window(&self) -> Option<usize> {
        let limits = &self.npc.limits;
        let context = self.model.context();
        // Leave space for the answer, but never most of the context.
        let fits = |context: usize| context - limits.turn_tokens.min(context / 4);
        match (limits.window, context.map(fits)) {
            (Some(window), Some(most)) => Some(window.min(most)),
            (window, most) => window.or(most),
        }
    }

    /// Shortens the conversation if the next prompt would be longer than the window.
    pub(super) fn fit(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        match self.window() {
            Some(window) if self.tokens() > window => {
                self.shorten(window / 3 * TOKEN_BYTES, deadline).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Whether a jinx asked for compaction in this conversation, after the first `count` entries of
    /// the trace.
    pub(super) fn compaction_is_asked_for(&self, count: usize) -> bool {
        let entries = self.trace.since(count);
        let inner = |scope: &str| {
            entries.iter().any(|entry| {
                matches!(*entry.record, Record::Start(_))
                    && scope.strip_prefix(&entry.scope).is_some_and(|rest| rest.starts_with('/'))
            })
        };
        entries.iter().any(|entry| match &*entry.record {
            Record::Emit { response } => response["type"] == "compaction" && !inner(&entry.scope),
            _ => false,
        })
    }

    /// Estimates the length of the next prompt: the token count of the last turn, plus the bytes of
    /// the messages since then.
    fn tokens(&self) -> usize {
        let counted = self.records.iter().rposition(|record| match &**record {
            Record::Assistant { usage, .. } => usage.prompt_tokens > 0,
            Record::Compaction { .. } => true,
            _ => false,
        });
        let (known, since) = match counted.map(|index| (index, &*self.records[index])) {
            Some((index, Record::Assistant { usage, .. })) => {
                (usage.prompt_tokens + usage.completion_tokens, index + 1)
            }
            // The summary invalidates the count of everything before it.
            Some(_) => {
                let request = trace::request(self.records());
                let system: usize = request.system.iter().map(|segment| segment.text.len()).sum();
                let tools = serde_json::to_string(&request.tools).map_or(0, |text| text.len());
                let messages: usize = request.messages.iter().map(bytes).sum();
                return (system + tools + messages) / TOKEN_BYTES;
            }
            None => (0, 0),
        };
        let lengths = self.records[since..].iter().map(|record| match &**record {
            Record::User { text } | Record::Hint { text, .. } | Record::ToolResult { text, .. } => text.len(),
            _ => 0,
        });
        known + lengths.sum::<usize>() / TOKEN_BYTES
    }

    /// Replaces messages by a summary, except the last ones of at most `recent` bytes.
    /// Returns whether there was anything to replace.
    pub(super) fn shorten(&mut self, recent: usize, deadline: Option<Instant>) -> Result<bool, Error> {
        let messages = trace::messages(self.records());
        let window = self.window().unwrap_or(usize::MAX / TOKEN_BYTES);
        let kept = kept(&messages, recent);
        let (old, recent) = messages.split_at(messages.len() - kept);
        // A summary that replaces only one message gains nothing.
        if old.len() < 2 {
            return Ok(false);
        }
        let answer = self.summary(old, window, deadline)?;
        let mut summary = format!("[{} earlier messages are summed up here.]", old.len());
        // Read the task from the records: an earlier summary may have replaced it among the
        // messages.
        let task = self.records.iter().rev().find_map(|record| match &**record {
            Record::User { text } => Some(text),
            _ => None,
        });
        let restated =
            recent.iter().any(|message| task.is_some_and(|task| message.content.contains(task.as_str())));
        if let Some(task) = task.filter(|_| !restated) {
            summary += &format!("\nThe last task: {}", excerpt(task, window / 4 * TOKEN_BYTES));
        }
        summary += &match answer {
            Some(answer) => format!("\n{}", answer.trim()),
            None => "\n(No summary could be made.)".to_owned(),
        };
        let replaced = old.len();
        self.push(Record::Compaction { summary, kept })?;
        self.session.notify(&Notice::Compaction { messages: replaced });
        Ok(true)
    }

    /// The model's summary of `messages`, written in a separate conversation; `None` if it fails.
    fn summary(
        &self,
        messages: &[Message],
        window: usize,
        deadline: Option<Instant>,
    ) -> Result<Option<String>, Error> {
        let transcript: Vec<String> = messages.iter().map(line).collect();
        let transcript = excerpt(&transcript.join("\n"), window.saturating_mul(TOKEN_BYTES) / 2);
        let turn_tokens = SUMMARY_TOKENS.min(window / 4).max(1);
        let npc = Npc {
            limits: Limits { turns: 1, turn_tokens, window: None, ..self.npc.limits },
            ..self.npc.clone()
        };
        let place = format!("compaction_{}", self.records.len());
        let caller = self.caller(deadline);
        let (scope, depth) = (caller.scope_of(&place), self.depth + 1);
        let given = Given { scope, depth, hook: self.hook, ..Given::default() };
        let mut agent = Agent::start(self.session, self.trace, self.team, &npc, given, Vec::new())?;
        agent.deadline = deadline;
        let outcome = match agent.run(&format!("{SUMMARIZE}\n\n{transcript}")) {
            Ok(outcome) => outcome,
            Err(Error::Model(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let summary = agent.records().find_map(|record| match record {
            // A summary that was cut off at its limit is still usable.
            Record::Assistant { message, finish: Finish::Stop | Finish::Length, .. } => {
                Some(message.content.clone())
            }
            _ => None,
        });
        Ok(summary.filter(|text| {
            matches!(outcome, Outcome::Answer { .. } | Outcome::Length) && !text.trim().is_empty()
        }))
    }
}

/// How many of the last messages, except the very first, have at most `limit` bytes together.
/// They begin with one that doesn't depend on an earlier message.
/// At least the last turn with its results is kept.
fn kept(messages: &[Message], limit: usize) -> usize {
    let (mut kept, mut size) = (0, 0);
    for (index, message) in messages.iter().enumerate().skip(1).rev() {
        size += bytes(message);
        if kept > 0 && size > limit {
            break;
        }
        // A result belongs to the call before it.
        if message.role != Role::Tool {
            kept = messages.len() - index;
        }
    }
    kept
}

fn bytes(message: &Message) -> usize {
    let calls: usize = message
        .tool_calls
        .iter()
        .map(|call| call.name.len() + serde_json::to_string(&call.arguments).map_or(0, |text| text.len()))
        .sum();
    message.content.len() + calls
}

/// A message as a line of text.
fn line(message: &Message) -> String {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "result",
    };
    let mut line = format!("{role}: {}", excerpt(message.content.trim(), EXCERPT_BYTES));
    for call in &message.tool_calls {
        let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
        line += &format!(" [calls {} {}]", call.name, excerpt(&arguments, EXCERPT_BYTES));
    }
    line
}

/// The text without its middle, if it has more than `limit` bytes.
fn excerpt(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(limit / 2);
    let tail = text.ceil_char_boundary(text.len() - limit / 2);
    format!("{} … {}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use alara_engine::{Event, Request, Usage};
    use serde_json::json;

    use super::*;
    use crate::model::{ChatModel, Events, ModelError, Reply, Scripted, Single};
    use crate::run::session::Session;
    use crate::testing::Fixture;

    /// A model with a small context that counts its tokens.
    struct Small<'a>(&'a Scripted, usize);

    impl ChatModel for Small<'_> {
        fn name(&self) -> &str {
            "small"
        }

        fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
            let prompt = serde_json::to_string(&(&request.system, &request.messages)).unwrap().len() / 4;
            if prompt > self.1 {
                let error = alara_engine::Error::PromptTooLong { prompt, context: self.1, trained: self.1 };
                return Err(ModelError::new(error));
            }
            let events = self.0.chat(request)?;
            Ok(Box::new(events.map(move |event| match event? {
                Event::Done { finish, usage } => {
                    Ok(Event::Done { finish, usage: Usage { prompt_tokens: prompt, ..usage } })
                }
                other => Ok(other),
            })))
        }

        fn context(&self) -> Option<usize> {
            Some(self.1)
        }
    }

    /// The stock team's worker with a window of 380 tokens.
    fn narrow(fixture: &Fixture) -> Npc {
        let npc = fixture.team.npc(None).unwrap().clone();
        Npc { limits: Limits { window: Some(380), ..npc.limits }, ..npc }
    }

    fn print(letter: char, count: usize) -> Reply {
        Reply::call("shell", json!({"command": format!("printf '{letter}%.0s' $(seq {count})")}))
    }

    #[test]
    fn a_long_conversation_is_summed_up_and_goes_on() {
        let fixture = Fixture::new();
        let summary = Reply::text("It printed a and b.");
        let script = Scripted::new([
            print('a', 250),
            print('b', 250),
            print('c', 250),
            summary,
            print('d', 100),
            Reply::text("Done."),
        ]);
        let model = Small(&script, 2000);
        let source = Single(&model);
        let notices = std::sync::Mutex::new(Vec::new());
        let session = Session::new(&source, &fixture.sandbox).observed(|notice| {
            if let Notice::Compaction { messages } = notice {
                notices.lock().unwrap().push(*messages);
            }
        });
        let npc = narrow(&fixture);
        let mut agent = Agent::new(&session, &fixture.team, &npc, None).unwrap();
        assert_eq!(agent.run("print letters").unwrap(), Outcome::Answer { text: "Done.".into() });
        assert_eq!(*notices.lock().unwrap(), [5]);

        let requests = script.requests();
        let asked = &requests[3];
        assert!(asked.tools.is_empty() && asked.system.is_empty());
        assert!(asked.messages[0].content.contains("user: print letters\nassistant:  [calls shell"));
        let after = &requests[4];
        assert_eq!((&after.system, &after.tools), (&requests[0].system, &requests[0].tools));
        assert_eq!(
            after.messages[0].content,
            "[5 earlier messages are summed up here.]\nThe last task: print letters\nIt printed a and b."
        );
        // The last call and its result are still complete.
        assert_eq!(after.messages.len(), 3);
        assert!(after.messages[2].content.contains(&"c".repeat(250)));
        // The trace holds all messages, and folds to the same conversation.
        let entries = session.trace.entries();
        let own = entries.iter().filter(|entry| entry.scope.is_empty()).map(|entry| &*entry.record);
        assert_eq!(trace::request(own).messages.len(), 6);
        assert!(entries.iter().any(|entry| entry.scope == "compaction_11"), "{entries:#?}");
    }

    #[test]
    fn the_task_outlives_every_summary() {
        let fixture = Fixture::new();
        let sums = || Reply::text("Some letters.").when("Sum up the conversation");
        let mut replies: Vec<Reply> = ('a'..='j').map(|letter| print(letter, 250)).collect();
        replies.extend((0..10).map(|_| sums()));
        replies.push(Reply::text("Done."));
        let script = Scripted::new(replies);
        let model = Small(&script, 2000);
        let source = Single(&model);
        let session = Session::new(&source, &fixture.sandbox);
        let npc = narrow(&fixture);
        let mut agent = Agent::new(&session, &fixture.team, &npc, None).unwrap();
        assert_eq!(agent.run("print letters").unwrap(), Outcome::Answer { text: "Done.".into() });
        let summaries: Vec<String> = agent
            .records()
            .filter_map(|record| match record {
                Record::Compaction { summary, .. } => Some(summary.clone()),
                _ => None,
            })
            .collect();
        assert!(summaries.len() > 2, "{summaries:#?}");
        assert!(
            summaries.iter().all(|summary| summary.ends_with("The last task: print letters\nSome letters."))
        );
    }

    #[test]
    fn without_a_summary_that_is_said() {
        let fixture = Fixture::new();
        // The model breaks off when it is asked for the summary; the script then has a reply for
        // the next turn.
        let failing = Reply { finish: Some(Finish::Repetition), ..Reply::text("a a a") };
        let script =
            Scripted::new([print('a', 250), print('b', 250), print('c', 250), failing, Reply::text("Done.")]);
        let model = Small(&script, 2000);
        let source = Single(&model);
        let session = Session::new(&source, &fixture.sandbox);
        let npc = narrow(&fixture);
        let mut agent = Agent::new(&session, &fixture.team, &npc, None).unwrap();
        assert_eq!(agent.run("print").unwrap(), Outcome::Answer { text: "Done.".into() });
        let message = &script.requests()[4].messages[0].content;
        assert!(message.ends_with("The last task: print\n(No summary could be made.)"), "{message}");
    }

    #[test]
    fn a_single_message_that_is_too_long_is_an_error() {
        let fixture = Fixture::new();
        let script = Scripted::new([Reply::text("never")]);
        let model = Small(&script, 100);
        let source = Single(&model);
        let session = Session::new(&source, &fixture.sandbox);
        let npc = fixture.team.npc(None).unwrap();
        let mut agent = Agent::new(&session, &fixture.team, npc, None).unwrap();
        let error = agent.run(&"x".repeat(2000)).unwrap_err();
        assert!(matches!(error, Error::Model(error) if error.too_long()));
    }

    #[test]
    fn what_is_kept_begins_with_a_message_that_can_stand_first() {
        let call = alara_engine::ToolCall { id: "1".into(), name: "t".into(), arguments: Default::default() };
        let turn =
            || [Message::assistant("12345", vec![call.clone()]), Message::tool_result(&call, "1234567890")];
        let mut messages = vec![Message::user("first")];
        messages.extend(turn());
        messages.extend(turn());
        messages.push(Message::user("second"));
        messages.extend(turn());
        let check = |limit, expected| assert_eq!(kept(&messages, limit), expected, "{limit}");
        check(0, 2);
        check(30, 3);
        check(45, 5);
        check(1000, 7);
    }
}
