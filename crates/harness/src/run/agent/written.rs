//! Calls that a model writes into its text, where it should make them: recognised, or answered with
//! a hint.

use alara_engine::{Event, Finish, Message, Request, Written, written};

use super::{Agent, last_start};
use crate::error::Error;
use crate::run::session::Notice;
use crate::trace::Record;

/// What a person can do about it.
const REMEDY: &str = "--tool-format generic describes to the model how calls are written";

impl Agent<'_, '_> {
    /// What stands in the text of a turn that called nothing.
    /// A text that has to be JSON has no calls.
    fn found(&self, message: &Message) -> Option<Written> {
        let start = last_start(&self.records).filter(|start| start.schema.is_none())?;
        let mut asked = Request { tools: start.tools.clone(), ..Request::default() };
        start.calls.ask(&mut asked);
        written(&message.content, &asked.tools).filter(|_| message.tool_calls.is_empty())
    }

    /// Makes calls of those that end the text of a turn.
    /// They are run as any others: only if list, inputs and rules permit.
    pub(super) fn take_written(&self, message: &mut Message, finish: Finish) -> Finish {
        if finish != Finish::Stop {
            return finish;
        }
        let Some(Written::Calls { format, text, calls }) = self.found(message) else { return finish };
        let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        let (names, format) = (names.join(", "), format.name);
        self.session.notify(&Notice::Warning(&format!(
            "the model wrote its call of {names} as text, in the {format} format: taken as a call; {REMEDY}"
        )));
        let before = self.records().filter(|record| matches!(record, Record::ToolResult { .. })).count();
        let mut reader = self.reader();
        message.content = text;
        for call in calls {
            match reader.read(Event::ToolCall(call)) {
                Some(Event::ToolCall(call)) => message.tool_calls.push(call),
                Some(Event::Text { text }) => message.content = text,
                _ => {}
            }
        }
        if message.tool_calls.is_empty() {
            return finish;
        }
        for (index, call) in message.tool_calls.iter_mut().enumerate() {
            call.id = format!("written_{}", before + index);
        }
        Finish::ToolCalls
    }

    /// Tells the model, once a run, that what looks like a call in its text is none; false if it is
    /// an answer.
    pub(super) fn hint_at_written(&mut self, message: &Message) -> Result<bool, Error> {
        let turn = self.records.iter().rev().take_while(|record| !matches!(***record, Record::User { .. }));
        if turn.into_iter().any(|record| matches!(**record, Record::Hint { .. })) {
            return Ok(false);
        }
        let Some(Written::Attempt { tool }) = self.found(message) else { return Ok(false) };
        self.session.notify(&Notice::Warning(&format!(
            "the model wrote something like a call of {tool} into its text, and is told that it is none; {REMEDY}"
        )));
        let text = format!(
            "Nothing was run: a call of `{tool}` seems to stand in your text, but none that is complete and ends it. To use a tool, end \
                your turn with one complete tool call. If you meant your text as the answer, give it again."
        );
        self.push(Record::Hint { text })?;
        Ok(true)
    }
}
