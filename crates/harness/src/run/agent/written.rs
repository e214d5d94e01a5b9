//! Calls that a model writes into its text instead of making them: recognised and run, or answered
//! with a hint.

use alara_engine::{
    Event, Finish, Message, Recovered, Request, Tool, Usage, Written, fits, nearest, written,
};
use serde_json::json;

use super::{Agent, last_start};
use crate::run::session::Notice;
use crate::trace::Record;

/// The remedy that a warning suggests to a person.
pub(super) const REMEDY: &str = "--tool-format generic describes to the model how calls are written";

impl Agent<'_, '_> {
    /// The call in the text of a turn that called nothing.
    /// A text that has to be JSON has no calls.
    fn found(&self, message: &Message) -> Option<Written> {
        let start = last_start(&self.records).filter(|start| start.schema.is_none())?;
        let mut asked = Request { tools: start.tools.clone(), ..Request::default() };
        start.calls.ask(&mut asked);
        written(&message.content, &asked.tools, &fits).filter(|_| message.tool_calls.is_empty())
    }

    /// Makes calls of those that end the text of a turn.
    /// They run as any others: only if the tool list, the inputs and the rules permit.
    /// The engine does this itself; this is for endpoints.
    pub(super) fn take_written(&self, message: &mut Message, finish: Finish, usage: &mut Usage) -> Finish {
        if finish != Finish::Stop {
            return finish;
        }
        let Some(Written::Calls { text, calls }) = self.found(message) else { return finish };
        let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        let names = names.join(", ");
        self.session.notify(&Notice::Warning(&format!(
            "the model wrote its call of {names} as text: taken as a call; {REMEDY}"
        )));
        let before = self.records().filter(|record| matches!(record, Record::ToolResult { .. })).count();
        let mut reader = self.reader();
        let rest = message.content[text.len()..].trim().to_owned();
        usage.recovered = Some(Box::new(Recovered { text: rest, again: false }));
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

    /// The hint for a text that was meant as a call and isn't one.
    pub(super) fn unmade_call(&self, message: &Message) -> Option<String> {
        let start = last_start(&self.records)?;
        if let Some(Written::Attempt { tool }) = self.found(message) {
            return Some(format!(
                "Nothing was run: a call of `{tool}` seems to stand in your text, but none that is complete and ends it. \
                 Make the call, or give your answer again."
            ));
        }
        let names: Vec<&str> = start.tools.iter().map(|tool| tool.name.as_str()).collect();
        let unknown = unknown(&message.content).filter(|name| !names.contains(&name.as_str()))?;
        if names.is_empty() || start.schema.is_some() {
            return None;
        }
        let near = nearest(&unknown, names.iter().copied())
            .map_or(String::new(), |near| format!(" Did you mean `{near}`?"));
        Some(format!(
            "Nothing was run: there is no tool `{unknown}`; the tools are: {}.{near}",
            names.join(", ")
        ))
    }
}

/// The name of the tool that a whole answer calls, whether or not such a tool exists.
fn unknown(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("\"name\"")?;
    let name = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?.split('"').next()?;
    let tool = Tool {
        name: name.to_owned(),
        description: String::new(),
        parameters: json!({"type": "object"}),
        strict: false,
    };
    let makes = rest.contains("\"arguments\"") || rest.contains("\"parameters\"");
    let calls = written(text, &[tool], &fits).filter(|_| makes)?;
    matches!(calls, Written::Calls { .. }).then(|| name.to_owned())
}

#[cfg(test)]
#[path = "written_tests.rs"]
mod tests;
