//! The end of a run: hints before an answer is accepted, and a closing answer for runs that reach a
//! limit.

use std::time::Instant;

use alara_engine::{Finish, Message};

use super::named_files::is_there;
use super::written::REMEDY;
use super::{Agent, last_start};
use crate::calls::Calls;
use crate::error::Error;
use crate::run::session::Notice;
use crate::trace::{About, Record};
use crate::types::{Outcome, ToolResult};

/// Most characters of an error that a hint repeats.
const SHOWN: usize = 200;
/// How many times the model is asked again for the call that a phase expects.
const ASKED_AGAIN: usize = 2;

impl Agent<'_, '_> {
    /// Tells the model, once a run each, why its text isn't accepted as the answer yet.
    /// Returns false if the text is accepted.
    /// `left` is the number of turns left.
    pub(super) fn hint(&mut self, message: &Message, left: usize) -> Result<bool, Error> {
        let mut hint = self.unmade_call(message).map(|text| (About::Call, text));
        // With free calls, an answer isn't checked further.
        if !self.decides_alone() {
            hint = hint.or_else(|| Some((About::Empty, self.nothing_done(message)?)));
            hint = hint.or_else(|| Some((About::Failure, self.failure(left)?)));
            hint = hint.or_else(|| Some((About::File, self.missing_file()?)));
        }
        let Some((about, text)) = hint.filter(|(about, _)| !self.was_told(*about)) else { return Ok(false) };
        if about == About::Call {
            let warning = format!(
                "the model wrote something like a call into its text, and is told that it is none; {REMEDY}"
            );
            self.session.notify(&Notice::Warning(&warning));
        }
        self.push(Record::Hint { text, about })?;
        Ok(true)
    }

    /// Tells the model, once a run, that its turn was cut off; returns false if that ends the run.
    pub(super) fn hint_of_cut(&mut self, finish: Finish) -> Result<bool, Error> {
        if self.decides_alone() || self.was_told(About::Cut) {
            return Ok(false);
        }
        let why = match finish {
            Finish::Length => "it was too long",
            _ => "it repeated itself",
        };
        let text = format!("Your last answer was cut off, since {why}. Go on with one short step.");
        self.push(Record::Hint { text, about: About::Cut })?;
        Ok(true)
    }

    /// Asks for the call that a phase expects, in place of the text that the model wrote.
    /// Returns false if it has already asked often enough.
    /// The grammar permits no text there, but an endpoint may not use a grammar.
    pub(super) fn hint_of_phase(&mut self, phase: &str, tools: &str) -> Result<bool, Error> {
        let since = self.of_this_run().take_while(|record| !matches!(record, Record::ToolResult { .. }));
        let asked = since.filter(|record| matches!(record, Record::Hint { about: About::Phase, .. }));
        if asked.count() >= ASKED_AGAIN {
            return Ok(false);
        }
        let text =
            format!("The phase `{phase}` expects a call of one of: {tools}. Make the call, without a text.");
        self.push(Record::Hint { text, about: About::Phase })?;
        Ok(true)
    }

    fn decides_alone(&self) -> bool {
        last_start(&self.records).is_none_or(|start| start.calls == Calls::Free || start.tools.is_empty())
    }

    fn was_told(&self, about: About) -> bool {
        self.of_this_run().any(|record| matches!(record, Record::Hint { about: told, .. } if *told == about))
    }

    /// A file that the task names, that was missing when the task began, and that still is.
    fn missing_file(&self) -> Option<String> {
        // A dry run creates no files.
        if self.npc.accepts_failure || self.session.dry_run {
            return None;
        }
        let text = |name: &str| {
            format!("There is no file {name} in the working directory. If the task asks for it, make it now.")
        };
        let task = self.records().filter_map(|record| match record {
            Record::User { text } => Some(text.as_str()),
            _ => None,
        });
        if let Some(recorded) = self.session.mocks.missing_file(&self.scope, task.last().unwrap_or_default())
        {
            return recorded.map(str::to_owned);
        }
        let work = self.session.sandbox.work();
        self.awaited.iter().find(|name| !is_there(work, name)).map(|name| text(name))
    }

    /// The records since the last user message, the latest first.
    fn of_this_run(&self) -> impl Iterator<Item = &Record> {
        self.records
            .iter()
            .rev()
            .map(|record| &**record)
            .take_while(|record| !matches!(record, Record::User { .. }))
    }

    /// The hint for an empty answer of an agent that could have called a tool.
    fn nothing_done(&self, message: &Message) -> Option<String> {
        let has_tools = last_start(&self.records).is_some_and(|start| !start.tools.is_empty());
        let worked = self.of_this_run().any(|record| matches!(record, Record::ToolResult { .. }));
        (has_tools && !worked && message.content.trim().is_empty()).then(|| {
            "Your answer is empty. Call a tool to begin with the task, or answer with a text.".to_owned()
        })
    }

    /// The hint for the failure of the last call, if its program ran and printed an error.
    fn failure(&self, left: usize) -> Option<String> {
        if self.npc.accepts_failure {
            return None;
        }
        let last = self.of_this_run().find_map(|record| match record {
            Record::ToolResult { call, result, .. } => Some((call, result)),
            _ => None,
        });
        let (call, result) = last.filter(|(_, result)| failed(result))?;
        let said = last_output(result);
        (!said.is_empty()).then(|| {
            format!(
                "The last call of {} failed: {said}\n{left} turns are left. Correct it, or do it in another way; \
                 answer only if it can't be done.",
                call.name
            )
        })
    }

    /// Turns the answer into an outcome: an empty answer of an agent that did nothing is a failure.
    pub(super) fn answered(&self, text: String) -> Outcome {
        let worked = self.of_this_run().any(|record| matches!(record, Record::ToolResult { .. }));
        let free = last_start(&self.records).is_none_or(|start| start.calls == Calls::Free);
        match text.trim().is_empty() && !worked && !free {
            true => Outcome::Failed { error: "the model gave an empty answer and did nothing".to_owned() },
            false => Outcome::Answer { text },
        }
    }

    /// Ends a run that reached a limit: with an answer from its work so far, if the model gives
    /// one.
    pub(super) fn closed(&mut self, outcome: Outcome, deadline: Option<Instant>) -> Outcome {
        let may = matches!(outcome, Outcome::TurnLimit { .. } | Outcome::Repetition { .. });
        let worked = self.of_this_run().any(|record| matches!(record, Record::ToolResult { .. }));
        // A caller that counts turns over several runs ends them itself.
        if !may || !worked || self.turns.is_some() {
            return outcome;
        }
        match self.close(deadline) {
            Some(answer) => {
                self.stopped = Some(outcome);
                answer
            }
            None => outcome,
        }
    }

    fn close(&mut self, deadline: Option<Instant>) -> Option<Outcome> {
        let text = "No more calls can be made. Answer now in one or two sentences: what is done or found, and what is not.";
        self.push(Record::Hint { text: text.to_owned(), about: About::Closing }).ok()?;
        let (message, finish) = self.ask_or_shorten(deadline).ok()?.ok()?;
        let answers = message.tool_calls.is_empty() && !message.content.trim().is_empty();
        (answers && finish == Finish::Stop).then_some(Outcome::Answer { text: message.content })
    }
}

/// Whether a program ran and failed.
/// Commands that find nothing report that only by exit status 1.
fn failed(result: &ToolResult) -> bool {
    !result.ok && result.blocked.is_none() && result.exit.is_some_and(|exit| exit != 0)
}

/// The last output of a failed program.
fn last_output(result: &ToolResult) -> String {
    let text =
        if result.stderr.trim().is_empty() { result.output_text() } else { result.stderr.as_str().into() };
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.trim().chars().take(SHOWN).collect()
}

#[cfg(test)]
#[path = "closing_tests.rs"]
mod tests;
