//! Anthropic's Messages API (<https://docs.claude.com/en/api/messages>): parses requests.
//! [`writer`] writes the responses.

mod writer;

use std::sync::Arc;

use alara_engine::{Message, Request as TurnRequest, Role, Segment, ToolCall, ToolChoice};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use serde_json::{Value, json};

use crate::dispatch::{Shared, answer, with_prompt};
use crate::fields::Fields;
use crate::history::{History, parsed, system_text, tell_call};
use crate::inner::InnerRequest;
use crate::refusal::Refusal;
use crate::response::{Ignored, json_of};
use crate::{body, parameters};
pub use writer::Messages;

/// Returns the routes.
pub fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/v1/messages", post(messages)).route("/v1/messages/count_tokens", post(count_tokens))
}

/// Whether clients of this API request a path.
pub fn is_for(path: &str) -> bool {
    path.starts_with("/v1/messages")
}

/// Formats a refusal as this API formats errors (<https://docs.claude.com/en/api/errors>).
pub fn refusal(refusal: &Refusal) -> Value {
    let kind = match refusal.status {
        400 | 405 | 422 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        503 => "overloaded_error",
        504 => "timeout_error",
        _ => "api_error",
    };
    // Claude Code and Anthropic's other clients search for this phrase.
    let long = refusal.of_length("prompt is too long", |long| {
        let (prompt, context) = (long.prompt, long.context);
        format!("prompt is too long: {prompt} tokens > {context} maximum; {}", long.remedy())
    });
    let message = long.unwrap_or_else(|| refusal.message.clone());
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

async fn messages(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let asked = read(body::fields(&shared, request).await?)?;
    answer(&shared, asked, |model| Box::new(Messages::new(model))).await
}

/// Counts the tokens in the prompt of a request.
async fn count_tokens(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let mut asked = read(body::fields(&shared, request).await?)?;
    let ignored = std::mem::take(&mut asked.ignored);
    let count = with_prompt(&shared, asked, |engine, request| {
        engine.prompt_tokens(request).map_err(|error| Refusal::untokenized("messages", &error))
    });
    let mut response = json_of(&json!({"input_tokens": count.await?.len()}));
    response.extensions_mut().insert(Ignored(ignored));
    Ok(response)
}

/// Parses a request.
///
/// # Errors
/// A field that isn't supported, by name.
pub fn read(mut fields: Fields) -> Result<InnerRequest, Refusal> {
    // Parameters with another name in this API; the others, and those that aren't supported, are
    // the same as in OpenAI's.
    if let Some(stops) = fields.take("stop_sequences") {
        fields.put("stop", stops);
    }
    let mut asked = parameters::read(&mut fields)?;
    let request = &mut asked.request;
    let mut history = History::default();
    let system = text_of(&mut fields, "system")?;
    for mut message in fields.objects("messages")? {
        self::message(&mut message, &mut history)?;
        message.end();
    }
    (request.system, request.messages) = history.end()?;
    let system = system.iter().filter_map(|text| {
        let text = Some(system_text(text)).filter(|text| !text.is_empty())?;
        Some(Segment { name: "system".into(), text: text.to_owned() })
    });
    request.system.splice(0..0, system);
    tools(&mut fields, request)?;
    thinking(&mut fields, request)?;
    for name in ["output_config", "output_format"] {
        let Some(mut given) = fields.object(name)? else { continue };
        if name == "output_format" {
            parameters::format(given, request, false)?;
            continue;
        }
        if let Some(effort) = given.text("effort")? {
            parameters::effort(&given, "effort", &effort, request)?;
        }
        if let Some(format) = given.object("format")? {
            parameters::format(format, request, false)?;
        }
        given.end();
    }
    parameters::response_format(&mut fields, request)?;
    parameters::prefill(&mut fields, request)?;
    parameters::check(&fields, request)?;
    fields.ignore(&["betas", "context_management", "container", "mcp_servers", "inference_geo"]);
    asked.ignored = fields.ignored();
    Ok(asked)
}

/// Returns the texts in a field: a single text, or blocks of type `text`.
fn text_of(fields: &mut Fields, name: &str) -> Result<Vec<String>, Refusal> {
    let texts = match fields.take(name) {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text],
        Some(list) => {
            fields.put(name, list);
            let mut texts = Vec::new();
            for mut block in fields.objects(name)? {
                texts.push(match block.needed("type")?.as_str() {
                    "text" => block.needed("text")?,
                    kind => {
                        return Err(
                            block.refuse("type", &format!("is {kind}, but only text is understood here"))
                        );
                    }
                });
                block.ignore(&["cache_control", "citations"]);
                block.end();
            }
            texts
        }
    };
    Ok(texts.into_iter().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).collect())
}

/// Parses a message: a text, or blocks.
/// Tool results are in messages of the user, and become separate messages.
fn message(fields: &mut Fields, history: &mut History) -> Result<(), Refusal> {
    let role = match fields.needed("role")?.as_str() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        _ => return Err(fields.refuse("role", "must be user, assistant or system")),
    };
    let mut message = Message { role, ..Message::user("") };
    match fields.take("content") {
        None => return Err(fields.refuse("content", "is missing")),
        Some(Value::String(text)) => message.content = text,
        Some(list) => {
            fields.put("content", list);
            for block in fields.objects("content")? {
                self::block(block, &mut message, history)?;
            }
        }
    }
    let nothing = message.content.is_empty() && message.tool_calls.is_empty();
    if !(nothing && message.reasoning_content.is_none()) {
        history.add(message);
    }
    Ok(())
}

fn block(mut block: Fields, message: &mut Message, history: &mut History) -> Result<(), Refusal> {
    block.ignore(&["cache_control", "citations", "signature"]);
    let kind = block.needed("type")?;
    match kind.as_str() {
        "text" => {
            let between = if message.content.is_empty() { "" } else { "\n\n" };
            message.content += &format!("{between}{}", block.needed("text")?);
        }
        "thinking" => {
            let before = message.reasoning_content.take().unwrap_or_default();
            message.reasoning_content = Some(before + &block.needed("thinking")?);
        }
        // Only Anthropic can read it.
        "redacted_thinking" => block.ignore(&["data"]),
        "tool_use" => {
            let (id, name) = (block.needed("id")?, block.needed("name")?);
            match parsed(block.take("input")) {
                Ok(arguments) => message.tool_calls.push(ToolCall { id, name, arguments }),
                Err(text) => {
                    tell_call(message, &name, &text);
                    history.record_written_call(id, name);
                }
            }
        }
        "tool_result" => {
            let id = Some(block.needed("tool_use_id")?);
            let content = text_of(&mut block, "content")?.join("\n");
            // Models recognize a failure by its text.
            let failed =
                block.flag("is_error")?.unwrap_or(false) && !content.to_lowercase().contains("error");
            let content = if failed { format!("Error: {content}") } else { content };
            history.add(Message { role: Role::Tool, tool_call_id: id, ..Message::user(content) });
        }
        _ => {
            return Err(
                block.refuse("type", &format!("is {kind}, but only text and tools are understood here"))
            );
        }
    }
    block.end();
    Ok(())
}

/// Parses the tools.
/// Omits and reports those that Anthropic would run itself.
fn tools(fields: &mut Fields, request: &mut TurnRequest) -> Result<(), Refusal> {
    for mut tool in fields.objects("tools")? {
        match tool.text("type")?.as_deref() {
            None | Some("custom") => {
                tool.ignore(&["cache_control", "input_examples", "defer_loading", "eager_input_streaming"]);
                request.tools.push(parameters::function(tool, "input_schema")?);
            }
            Some(kind) => tool.tell_place(kind),
        }
    }
    parameters::unique(fields, &request.tools)?;
    request.parallel_tool_calls = true;
    let Some(mut choice) = fields.object("tool_choice")? else { return Ok(()) };
    let kind = choice.needed("type")?;
    let wanted = match kind.as_str() {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Named(choice.needed("name")?),
        _ => return Err(choice.refuse("type", "must be auto, any, none or tool")),
    };
    let parallel = choice.flag("disable_parallel_tool_use")?.map(|disabled| !disabled);
    choice.end();
    parameters::choose(fields, request, wanted, parallel)
}

fn thinking(fields: &mut Fields, request: &mut TurnRequest) -> Result<(), Refusal> {
    let Some(mut thinking) = fields.object("thinking")? else { return Ok(()) };
    let kind = thinking.needed("type")?;
    request.thinking = match kind.as_str() {
        "enabled" => Some(true),
        "disabled" => Some(false),
        "adaptive" => None,
        _ => return Err(thinking.refuse("type", "must be enabled, disabled or adaptive")),
    };
    request.reasoning_tokens = thinking.limit("budget_tokens", 0)?;
    thinking.ignore(&["display"]);
    thinking.end();
    Ok(())
}

#[cfg(test)]
mod tests;
