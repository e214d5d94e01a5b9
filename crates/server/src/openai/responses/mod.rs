//! `POST /v1/responses` (<https://platform.openai.com/docs/api-reference/responses>): parses
//! requests.
//! [`writer`] writes the responses.

mod writer;

use std::sync::Arc;

use alara_engine::{Message, Role, Segment, ToolCall, ToolChoice};
use axum::extract::{Path, Request, State};
use axum::response::Response;
use serde_json::{Value, json};

use super::messages::content;
use crate::dispatch::{Shared, answer, blocking};
use crate::fields::Fields;
use crate::history::{History, parsed, system_text, tell_call};
use crate::inner::InnerRequest;
use crate::refusal::Refusal;
use crate::response::json_of;
use crate::{body, parameters};
pub use writer::Responses;

/// Fields of a request that the response repeats; for the others it has the effective values.
const ECHOED: [&str; 12] = [
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "reasoning",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
];

/// A parsed request.
#[derive(Debug, PartialEq)]
struct Read {
    asked: InnerRequest,
    /// The fields that the response repeats.
    echoed: Value,
    /// Whether to store the response for later requests.
    store: bool,
}

/// Answers a request.
pub async fn post(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let fields = body::bytes(&shared, request).await?;
    let worker = shared.clone();
    // May read files.
    let Read { asked, echoed, store } = blocking(move || {
        let known = |id: &str| worker.store.get(id).map(|stored| stored.messages);
        read(Fields::read(&fields)?, known)
    })
    .await?;
    let messages = asked.request.messages.clone();
    let kept = store.then(|| (shared.store.clone(), messages));
    answer(&shared, asked, |model| Box::new(Responses::new(model, echoed, kept))).await
}

/// Returns a stored response.
pub async fn get(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Result<Response, Refusal> {
    let name = id.clone();
    let stored = blocking(move || Ok(shared.store.get(&name))).await?;
    stored.map(|stored| json_of(&stored.body)).ok_or_else(|| unknown("id", &id))
}

/// Deletes a stored response.
pub async fn delete(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Result<Response, Refusal> {
    let name = id.clone();
    match blocking(move || Ok(shared.store.remove(&name))).await? {
        true => Ok(json_of(&json!({"id": id, "object": "response", "deleted": true}))),
        false => Err(unknown("id", &id)),
    }
}

fn unknown(param: &str, id: &str) -> Refusal {
    Refusal::unknown(param, format!("there is no response `{id}` (any more); send the conversation itself"))
        .coded("previous_response_not_found")
}

/// Parses a request that doesn't continue an earlier one.
///
/// # Errors
/// A field that isn't supported, by name.
pub fn read_alone(fields: Fields) -> Result<InnerRequest, Refusal> {
    read(fields, |_| None).map(|read| read.asked)
}

/// Parses a request; `known` returns stored conversations.
fn read(mut fields: Fields, known: impl FnOnce(&str) -> Option<Vec<Message>>) -> Result<Read, Refusal> {
    let echoed: serde_json::Map<String, Value> =
        ECHOED.iter().filter_map(|name| Some(((*name).to_owned(), fields.get(name)?.clone()))).collect();
    let store = fields.flag("store")?.unwrap_or(true);
    if let Some(limit) = fields.limit("max_output_tokens", 1)? {
        fields.put("max_tokens", limit.into());
    }
    // Here, tokens are requested by a word, or by the number of alternatives.
    let included = fields.get("include").and_then(Value::as_array);
    if included.is_some_and(|list| list.iter().any(|name| name == "message.output_text.logprobs"))
        || fields.get("top_logprobs").is_some_and(|top| *top != 0)
    {
        fields.put("logprobs", true.into());
    }
    let logprobs = parameters::logprobs(&mut fields)?;
    let mut asked = parameters::read(&mut fields)?;
    let request = &mut asked.request;
    request.logprobs = logprobs;
    let before = match fields.text("previous_response_id")? {
        Some(id) => known(&id).ok_or_else(|| unknown("previous_response_id", &id))?,
        None => Vec::new(),
    };
    let instructions = fields.text("instructions")?.unwrap_or_default();
    (request.system, request.messages) = input(&mut fields, before)?;
    let instructions = system_text(&instructions);
    if !instructions.is_empty() {
        let text = instructions.to_owned();
        request.system.insert(0, Segment { name: "instructions".into(), text });
    }
    tools(&mut fields, request)?;
    if let Some(mut text) = fields.object("text")? {
        if let Some(format) = text.object("format")? {
            parameters::format(format, request, false)?;
        }
        text.end();
    }
    if let Some(mut reasoning) = fields.object("reasoning")? {
        if let Some(effort) = reasoning.text("effort")? {
            parameters::effort(&reasoning, "effort", &effort, request)?;
        }
        // Reasoning is always sent in full.
        reasoning.ignore(&["summary", "generate_summary"]);
        reasoning.end();
    }
    parameters::response_format(&mut fields, request)?;
    parameters::thinking(&mut fields, request)?;
    fields.ignore(&["include", "truncation", "stream_options", "prompt_cache_options"]);
    parameters::prefill(&mut fields, request)?;
    parameters::check(&fields, request)?;
    asked.ignored = fields.ignored();
    Ok(Read { asked, echoed: Value::Object(echoed), store })
}

/// Parses the input: a text, or items.
fn input(fields: &mut Fields, before: Vec<Message>) -> Result<(Vec<Segment>, Vec<Message>), Refusal> {
    let mut history = History::after(before);
    match fields.take("input") {
        None => return Err(fields.refuse("input", "is missing")),
        Some(Value::String(text)) => history.add(Message::user(text)),
        Some(list) => {
            fields.put("input", list);
            let mut open = None;
            for item in fields.objects("input")? {
                self::item(item, &mut history, &mut open)?;
            }
            history.extend(open);
        }
    }
    history.end().map_err(|_| fields.refuse("input", "is empty"))
}

/// Parses an item.
/// Reasoning, text and calls of a turn are separate items; `open` is the turn that they belong to,
/// while it continues.
fn item(mut item: Fields, history: &mut History, open: &mut Option<Message>) -> Result<(), Refusal> {
    let kind = item.text("type")?.unwrap_or_else(|| "message".into());
    item.ignore(&["id", "status", "phase"]);
    let turn = || Message::assistant("", Vec::new());
    match kind.as_str() {
        "message" => {
            let role = item.needed("role")?;
            let text = content(&mut item, "content")?;
            match role.as_str() {
                "assistant" => {
                    // A second text begins another turn.
                    if open
                        .as_ref()
                        .is_some_and(|turn| !turn.content.is_empty() || !turn.tool_calls.is_empty())
                    {
                        history.extend(open.take());
                    }
                    open.get_or_insert_with(turn).content = text;
                }
                "user" | "system" | "developer" => {
                    history.extend(open.take());
                    match role.as_str() {
                        "user" => history.add(Message::user(text)),
                        _ => history.system(&text),
                    }
                }
                _ => return Err(item.refuse("role", "must be system, developer, user or assistant")),
            }
        }
        "reasoning" => {
            history.extend(open.take());
            let thought = thought(&mut item)?;
            item.ignore(&["encrypted_content"]);
            open.get_or_insert_with(turn).reasoning_content = Some(thought).filter(|text| !text.is_empty());
        }
        "function_call" => {
            let (id, name) = (item.needed("call_id")?, item.needed("name")?);
            let message = open.get_or_insert_with(turn);
            match parsed(item.take("arguments")) {
                Ok(arguments) => message.tool_calls.push(ToolCall { id, name, arguments }),
                Err(text) => {
                    tell_call(message, &name, &text);
                    history.record_written_call(id, name);
                }
            }
        }
        "function_call_output" => {
            history.extend(open.take());
            let id = Some(item.needed("call_id")?);
            let content = content(&mut item, "output")?;
            history.add(Message { role: Role::Tool, tool_call_id: id, ..Message::user(content) });
        }
        // Actions of other servers' own tools; models of this server have none.
        _ => {
            item.tell_place(&kind);
            return Ok(());
        }
    }
    item.end();
    Ok(())
}

/// Returns the text of a reasoning item.
fn thought(item: &mut Fields) -> Result<String, Refusal> {
    let mut text = String::new();
    for list in ["content", "summary"] {
        for mut part in item.objects(list)? {
            part.ignore(&["type"]);
            let said = part.text("text")?.unwrap_or_default();
            if list == "content" || text.is_empty() {
                text += &said;
            }
            part.end();
        }
    }
    Ok(text)
}

/// Parses the tools, which are functions.
/// Omits and reports those that another server would run itself.
fn tools(fields: &mut Fields, request: &mut alara_engine::Request) -> Result<(), Refusal> {
    for mut tool in fields.objects("tools")? {
        match tool.needed("type")?.as_str() {
            "function" => request.tools.push(parameters::function(tool, "parameters")?),
            kind => tool.tell_place(kind),
        }
    }
    parameters::unique(fields, &request.tools)?;
    let parallel = fields.flag("parallel_tool_calls")?;
    let choice = match fields.take("tool_choice") {
        None => ToolChoice::Auto,
        Some(Value::String(choice)) => parameters::choice_called(fields, &choice)?,
        Some(value) => {
            let mut choice = fields.within(value, "tool_choice")?;
            match choice.needed("type")?.as_str() {
                "function" => ToolChoice::Named(choice.needed("name")?),
                "allowed_tools" => parameters::among(choice)?,
                _ => return Err(choice.refuse("type", "must be function or allowed_tools")),
            }
        }
    };
    parameters::choose(fields, request, choice, parallel)
}

#[cfg(test)]
mod tests;
