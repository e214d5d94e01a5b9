//! The end of a run: what is said before an answer counts, and an answer for runs that a limit
//! ends.

use std::time::Instant;

use alara_engine::{Finish, Message};

use super::written::REMEDY;
use super::{Agent, last_start};
use crate::calls::Calls;
use crate::error::Error;
use crate::run::session::Notice;
use crate::trace::Record;
use crate::types::{Outcome, ToolResult};

/// How much of an error a hint repeats, in characters.
const SHOWN: usize = 200;

impl Agent<'_, '_> {
    /// Tells the model, once a run each, why its text is not taken as the answer yet; false if it
    /// is.
    /// `left` turns are left.
    pub(super) fn hint(&mut self, message: &Message, left: usize) -> Result<bool, Error> {
        let mut hint = self.unmade_call(message);
        let unmade = hint.is_some();
        // Whoever decides all by itself is taken at its word.
        if last_start(&self.records).is_some_and(|start| start.calls != Calls::Free) {
            hint = hint.or_else(|| self.nothing_done(message));
            hint = hint.or_else(|| self.failure(left));
        }
        let Some(text) = hint else { return Ok(false) };
        let told = |record: &Record| matches!(record, Record::Hint { text: before, .. } if kind(before) == kind(&text));
        if self.of_this_run().any(told) {
            return Ok(false);
        }
        if unmade {
            let warning = format!(
                "the model wrote something like a call into its text, and is told that it is none; {REMEDY}"
            );
            self.session.notify(&Notice::Warning(&warning));
        }
        self.push(Record::Hint { text, closing: false })?;
        Ok(true)
    }

    /// The records since the last message of the user, the latest first.
    fn of_this_run(&self) -> impl Iterator<Item = &Record> {
        self.records
            .iter()
            .rev()
            .map(|record| &**record)
            .take_while(|record| !matches!(record, Record::User { .. }))
    }

    /// An empty answer of an agent that could have done something.
    fn nothing_done(&self, message: &Message) -> Option<String> {
        let has_tools = last_start(&self.records).is_some_and(|start| !start.tools.is_empty());
        let worked = self.of_this_run().any(|record| matches!(record, Record::ToolResult { .. }));
        (has_tools && !worked && message.content.trim().is_empty()).then(|| {
            "Your answer is empty. Call a tool to begin with the task, or answer with a text.".to_owned()
        })
    }

    /// The failure of the last call, if its program ran and said what went wrong.
    fn failure(&self, left: usize) -> Option<String> {
        if self.npc.accepts_failure {
            return None;
        }
        let last = self.of_this_run().find_map(|record| match record {
            Record::ToolResult { call, result, .. } => Some((call, result)),
            _ => None,
        });
        let (call, result) = last.filter(|(_, result)| failed(result))?;
        let said = said(result);
        (!said.is_empty()).then(|| {
            format!(
                "The last call of {} failed: {said}\n{left} turns are left. Correct it, or do it in another way; \
                 answer only if it can't be done.",
                call.name
            )
        })
    }

    /// The answer as an outcome: an empty one of an agent that did nothing is none.
    pub(super) fn answered(&self, text: String) -> Outcome {
        let worked = self.of_this_run().any(|record| matches!(record, Record::ToolResult { .. }));
        let free = last_start(&self.records).is_none_or(|start| start.calls == Calls::Free);
        match text.trim().is_empty() && !worked && !free {
            true => Outcome::Failed { error: "the model gave an empty answer and did nothing".to_owned() },
            false => Outcome::Answer { text },
        }
    }

    /// How a run ends that a limit stops: with an answer from what is there, if the model gives
    /// one.
    pub(super) fn closed(&mut self, outcome: Outcome, deadline: Option<Instant>) -> Outcome {
        let may = matches!(outcome, Outcome::TurnLimit { .. } | Outcome::Repetition { .. });
        let worked = self.of_this_run().any(|record| matches!(record, Record::ToolResult { .. }));
        // Whoever counts the turns of several runs together ends them himself.
        if !may || !worked || self.turns.is_some() {
            return outcome;
        }
        self.close(deadline).unwrap_or(outcome)
    }

    fn close(&mut self, deadline: Option<Instant>) -> Option<Outcome> {
        let text = "No more calls can be made. Answer now in one or two sentences: what is done or found, and what is not.";
        self.push(Record::Hint { text: text.to_owned(), closing: true }).ok()?;
        let (message, finish) = self.ask_or_shorten(deadline).ok()?.ok()?;
        let answers = message.tool_calls.is_empty() && !message.content.trim().is_empty();
        (answers && finish == Finish::Stop).then_some(Outcome::Answer { text: message.content })
    }
}

/// Whether a program ran and failed.
/// Commands that find nothing say so by the exit status 1 alone.
fn failed(result: &ToolResult) -> bool {
    !result.ok && result.blocked.is_none() && result.exit.is_some_and(|exit| exit != 0)
}

/// What a failed program said last.
fn said(result: &ToolResult) -> String {
    let text =
        if result.stderr.trim().is_empty() { result.output_text() } else { result.stderr.as_str().into() };
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.trim().chars().take(SHOWN).collect()
}

/// By what hints of one kind are known: their first words.
fn kind(text: &str) -> &str {
    text.split_once(' ').map_or(text, |(first, rest)| {
        let second = rest.split(' ').next().unwrap_or_default();
        &text[..first.len() + 1 + second.len()]
    })
}

#[cfg(test)]
#[path = "closing_tests.rs"]
mod tests;
