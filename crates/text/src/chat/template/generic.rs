//! The generic format: whatever a template leaves out is written into texts, which every template
//! prints.
//!
//! A template that prints no tools gets them in its system prompt, one line each, with one example
//! call.
//! One that prints no calls gets them as the assistant's text; one that prints no results gets them
//! as the user's.
//! Works on messages as templates read them, after control tokens in them were escaped, so that the
//! marks written here are the format's own.
//! Knows a template only through its [`Dialect`].

use std::collections::HashSet;

use serde_json::{Value, json};

use super::messages::{Dialect, tool_value};
use super::signature::signature;
use super::{TemplateError, example};
use crate::chat::Format;
use crate::chat::formats::fences;
use crate::request::{Request, ToolCall};

/// Describes how results are given.
const ANSWERED: &str = "\nYou then get the result in <tool_response> tags.";
pub(super) const RESPONSE: (&str, &str) = ("<tool_response>\n", "\n</tool_response>");

/// The messages of a conversation for a model behind a message API, whose template can't be
/// inspected.
/// Tools, calls and results become texts in `format`.
///
/// # Errors
/// [`TemplateError::Generic`].
pub fn generic_messages(request: &Request, format: &Format) -> Result<Vec<Value>, TemplateError> {
    let nothing_printed = Dialect::of("", &HashSet::new());
    let mut messages = nothing_printed.messages(request);
    calls_as_text(&mut messages, format)?;
    let mut messages = with_results_as_text(messages);
    let tools: Vec<Value> = request.tools.iter().map(tool_value).collect();
    describe(&mut messages, &tools, format, true, must(request))?;
    Ok(messages)
}

/// Appends to the system prompt the list of `tools` and how to call them, with one example.
/// With `answered`, results come as [`with_results_as_text`] writes them; with `must`, each answer
/// has to be a call.
pub(super) fn describe(
    messages: &mut Vec<Value>,
    tools: &[Value],
    format: &Format,
    answered: bool,
    must: bool,
) -> Result<(), TemplateError> {
    if tools.is_empty() {
        return Ok(());
    }
    let section = match format.in_fences() {
        true => blocks(tools, format, answered)?,
        false => calls(tools, format, answered, must)?,
    };
    match messages.first_mut().filter(|first| first["role"] == "system") {
        Some(system) => system["content"] = joined(text(system), "\n\n", &section).into(),
        None => messages.insert(0, json!({"role": "system", "content": section})),
    }
    Ok(())
}

fn calls(tools: &[Value], format: &Format, answered: bool, must: bool) -> Result<String, TemplateError> {
    let shown = match must {
        true => "Each of your answers is one call of a tool below",
        false => "You have the tools below. To use one, end your answer with a call",
    };
    let mut section = format!("# Tools\n\n{shown}, in exactly this form:");
    if let Some(tool) = tools.first() {
        section += &format!("\n{}", example(&tool["function"], format)?);
    }
    if answered {
        section += ANSWERED;
    }
    section += "\n";
    tools.iter().for_each(|tool| section += &format!("\n{}", signature(&tool["function"])));
    Ok(section)
}

/// Describes tools that are called by blocks, whether or not a turn must call.
/// Code needs no explanation.
fn blocks(tools: &[Value], format: &Format, answered: bool) -> Result<String, TemplateError> {
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap_or_default().to_owned();
    let mut section =
        "# Tools\n\nYou act by code, which is run for you. To act, end your answer with one block:"
            .to_owned();
    let shown: Vec<&Value> = tools.iter().filter(|tool| !fences::answers(&name(tool))).collect();
    for (index, tool) in shown.iter().enumerate() {
        let or = if index == 0 { "" } else { "\nor" };
        section += &format!("{or}\n{}", example(&tool["function"], format)?);
    }
    if answered {
        section += ANSWERED;
    }
    section += "\nA block is run and not kept: to make a file, let its code write the file.";
    section += "\nWhen the task is done, say so in one short sentence, without a block.";
    let described = shown.into_iter().filter(|tool| !fences::runs_code(&name(tool)));
    let lines: Vec<String> = described.map(|tool| signature(&tool["function"])).collect();
    if !lines.is_empty() {
        section += &format!("\n\n{}", lines.join("\n"));
    }
    Ok(section)
}

/// Appends an assistant's calls to its text, as the model writes them.
pub(super) fn calls_as_text(messages: &mut [Value], format: &Format) -> Result<(), TemplateError> {
    for message in messages {
        let calls = message.as_object_mut().and_then(|message| message.shift_remove("tool_calls"));
        let Some(Value::Array(calls)) = calls else { continue };
        message["content"] = joined(text(message), "\n", &written(&calls, format)?).into();
    }
    Ok(())
}

/// Returns the conversation with results as user messages.
/// Consecutive results become one message, together with the user's text right after them, so that
/// user and assistant alternate.
pub(super) fn with_results_as_text(messages: Vec<Value>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::with_capacity(messages.len());
    let mut after_result = false;
    for mut message in messages {
        let is_result = message["role"] == "tool";
        if is_result {
            let (open, close) = RESPONSE;
            message = json!({"role": "user", "content": format!("{open}{}{close}", text(&message))});
        }
        match out.last_mut().filter(|_| after_result && message["role"] == "user") {
            Some(turn) => turn["content"] = joined(text(turn), "\n", text(&message)).into(),
            None => out.push(message),
        }
        after_result = is_result;
    }
    out
}

/// Puts the system prompt before the user's first words, for templates without a system role.
pub(super) fn with_system_in_first_turn(messages: &mut Vec<Value>) {
    if messages.first().is_none_or(|first| first["role"] != "system") {
        return;
    }
    let system = messages.remove(0);
    match messages.first_mut().filter(|first| first["role"] == "user") {
        Some(user) => user["content"] = joined(text(&system), "\n\n", text(user)).into(),
        None => messages.insert(0, json!({"role": "user", "content": text(&system)})),
    }
}

/// Whether each answer must be a call.
pub(super) fn must(request: &Request) -> bool {
    request.tool_choice.must_call()
}

fn text(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

/// Joins two texts with `glue` if neither is empty.
fn joined(first: &str, glue: &str, second: &str) -> String {
    let glue = if first.is_empty() || second.is_empty() { "" } else { glue };
    format!("{first}{glue}{second}")
}

/// An example call of the tool, with realistic values.
fn example(function: &Value, format: &Format) -> Result<String, TemplateError> {
    let arguments = example::arguments(&function["parameters"]);
    // Formats with ids use nine characters.
    let call = json!({"id": "example01", "function": {"name": function["name"], "arguments": arguments}});
    written(&[call], format)
}

/// The calls of a turn, as the model writes them.
fn written(calls: &[Value], format: &Format) -> Result<String, TemplateError> {
    let call = |call: &Value| {
        let id = call["id"].as_str().unwrap_or_default().to_owned();
        serde_json::from_value(call["function"].clone()).map(|function| ToolCall { id, ..function })
    };
    let calls: serde_json::Result<Vec<ToolCall>> = calls.iter().map(call).collect();
    calls.and_then(|calls| format.render_calls(&calls)).map_err(|error| failed(&error))
}

fn failed(error: &serde_json::Error) -> TemplateError {
    TemplateError::Generic { message: error.to_string() }
}

#[cfg(test)]
mod tests;
