//! Ollama's API (<https://github.com/ollama/ollama/blob/main/docs/api.md>): reads what is asked.
//! The answer is written by [`writer`]; what models there are is told by [`catalog`].

mod catalog;
mod embed;
mod writer;

use std::sync::Arc;
use std::time::Instant;

use alara_engine::{Message, Role, Sampling, ToolCall};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{delete, get, post};
use serde_json::{Value, json};

use crate::dispatch::{Shared, answer, with_engine};
use crate::fields::Fields;
use crate::history::{History, parsed, tell_call};
use crate::inner::InnerRequest;
use crate::refusal::Refusal;
use crate::response::json_of;
use crate::{body, infill, parameters};
use writer::{Lines, Route};

/// The routes.
pub fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/chat", post(chat))
        .route("/api/generate", post(generate))
        .route("/api/embed", post(embed::post))
        .route("/api/embeddings", post(embed::post_one))
        .route("/api/tags", get(catalog::tags))
        .route("/api/ps", get(catalog::ps))
        .route("/api/show", post(catalog::show))
        .route("/api/version", get(catalog::version))
        .route("/api/pull", post(catalog::pull))
        .route("/api/delete", delete(catalog::delete))
}

/// Whether clients of this API ask for a path.
pub fn is_for(path: &str) -> bool {
    path.starts_with("/api/")
}

/// How tokens are drawn where neither the request nor the model's file says so: Ollama's defaults.
fn sampling() -> Sampling {
    Sampling { temperature: 0.8, top_k: 40, top_p: 0.9, repetition_penalty: 1.1, ..Sampling::default() }
}

async fn chat(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let begun = Instant::now();
    let mut fields = body::fields(&shared, request).await?;
    let mut asked = read(&shared, &mut fields)?;
    let mut history = History::default();
    let mut calls = Calls::default();
    for message in fields.objects("messages")? {
        self::message(message, &mut history, &mut calls)?;
    }
    parameters::tools(&mut fields, &mut asked.request)?;
    asked.ignored = fields.ignored();
    let Ok((system, messages)) = history.end() else {
        return Ok(json_of(&writer::nothing(Route::Chat, asked.model.as_deref().unwrap_or_default())));
    };
    (asked.request.system, asked.request.messages) = (system, messages);
    answer(&shared, asked, |model| Box::new(Lines::new(Route::Chat, model, begun))).await
}

async fn generate(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let begun = Instant::now();
    let mut fields = body::fields(&shared, request).await?;
    let mut asked = read(&shared, &mut fields)?;
    let prompt = fields.text("prompt")?.unwrap_or_default();
    let system = fields.text("system")?.unwrap_or_default();
    let suffix = fields.text("suffix")?.filter(|suffix| !suffix.is_empty());
    let raw = fields.flag("raw")?.unwrap_or(false);
    fields.unsupported(&[("template", ""), ("images", ""), ("context", "")])?;
    asked.ignored = fields.ignored();
    let model = asked.model.clone().unwrap_or_default();
    if prompt.is_empty() && suffix.is_none() {
        return Ok(json_of(&writer::nothing(Route::Generate, &model)));
    }
    match suffix {
        Some(suffix) => {
            let infilled = with_engine(&shared, move |engine| infill::prompt(engine, &prompt, &suffix, ""));
            asked.request.prompt = Some(infilled.await?);
        }
        None if raw => asked.request.prompt = Some(prompt),
        None => {
            let mut history = History::default();
            history.system(&system);
            history.add(Message::user(prompt));
            (asked.request.system, asked.request.messages) = history.end()?;
        }
    }
    answer(&shared, asked, |model| Box::new(Lines::new(Route::Generate, model, begun))).await
}

/// Reads what chat and generation have in common.
fn read(shared: &Shared, fields: &mut Fields) -> Result<InnerRequest, Refusal> {
    let think = fields.take("think");
    let format = fields.take("format");
    let stream = fields.flag("stream")?.unwrap_or(true);
    let model = catalog::named(shared, &fields.needed("model")?);
    let mut options = fields.object("options")?.map_or_else(|| fields.within(json!({}), "options"), Ok)?;
    // What this API calls otherwise; the rest of the options is as with OpenAI's other servers.
    if let Some(limit) = options.limit("num_predict", 0)?.filter(|limit| *limit > 0) {
        options.put("max_tokens", limit.into());
    }
    let mut asked = parameters::read(&mut options)?;
    // How the model was loaded, which is up to who started the server.
    options.ignore(&[
        "num_ctx",
        "num_batch",
        "num_gpu",
        "main_gpu",
        "use_mmap",
        "num_thread",
        "num_keep",
        "numa",
    ]);
    options.end();
    asked.model = Some(model);
    asked.stream = stream;
    asked.sampling = Some(sampling());
    asked.request.thinking = match think {
        None => None,
        Some(Value::Bool(think)) => Some(think),
        Some(Value::String(effort)) => Some(parameters::effort(fields, "think", &effort)?),
        Some(_) => return Err(fields.refuse("think", "must be true, false or an effort")),
    };
    asked.request.schema = match format {
        None => None,
        Some(Value::String(format)) if format.is_empty() => None,
        Some(Value::String(format)) if format == "json" => Some(json!({"type": "object"})),
        Some(schema @ Value::Object(_)) => Some(schema),
        Some(_) => return Err(fields.refuse("format", "must be json or a JSON schema")),
    };
    fields.ignore(&["keep_alive"]);
    fields.unsupported(&[("logprobs", ""), ("top_logprobs", "")])?;
    Ok(asked)
}

/// Calls that were made and have no result yet: with this API, a result may name its tool only.
#[derive(Default)]
struct Calls {
    open: Vec<(String, String)>,
    count: usize,
}

impl Calls {
    /// The id of the call that a result is of: the first of that name, else the first.
    fn answered(&mut self, name: Option<&str>) -> Option<String> {
        let named = self.open.iter().position(|(_, called)| Some(called.as_str()) == name);
        let at = named.or(Some(0)).filter(|at| *at < self.open.len())?;
        Some(self.open.remove(at).0)
    }
}

fn message(mut fields: Fields, history: &mut History, calls: &mut Calls) -> Result<(), Refusal> {
    let role = match fields.needed("role")?.as_str() {
        "system" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => return Err(fields.refuse("role", "must be system, user, assistant or tool")),
    };
    fields.unsupported(&[("images", "")])?;
    let content = fields.text("content")?.unwrap_or_default();
    let mut message = Message { role, ..Message::user(content) };
    if role == Role::Assistant {
        message.reasoning_content = fields.text("thinking")?.filter(|text| !text.is_empty());
        for mut call in fields.objects("tool_calls")? {
            call.ignore(&["type"]);
            let id = call.text("id")?.unwrap_or_else(|| format!("call_{}", calls.count));
            calls.count += 1;
            let function = call.take("function").unwrap_or_default();
            let mut function = call.within(function, "function")?;
            call.end();
            let name = function.needed("name")?;
            let arguments = parsed(function.take("arguments"));
            function.ignore(&["index"]);
            function.end();
            calls.open.push((id.clone(), name.clone()));
            match arguments {
                Ok(arguments) => message.tool_calls.push(ToolCall { id, name, arguments }),
                Err(text) => {
                    tell_call(&mut message, &name, &text);
                    history.told(id, name);
                }
            }
        }
    }
    if role == Role::Tool {
        message.name = fields.text("tool_name")?.or(fields.text("name")?);
        let id = fields.text("tool_call_id")?;
        calls.open.retain(|(open, _)| Some(open) != id.as_ref());
        message.tool_call_id = id.or_else(|| calls.answered(message.name.as_deref()));
    }
    fields.end();
    history.add(message);
    Ok(())
}

#[cfg(test)]
mod tests;
