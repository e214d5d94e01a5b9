//! Ollama's API (<https://github.com/ollama/ollama/blob/main/docs/api.md>): parses requests.
//! [`writer`] writes the responses; [`catalog`] lists the models.

mod catalog;
mod embed;
mod pull;
mod writer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use alara_engine::{Engine, Message, Role, Sampling, ToolCall, Until};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{any, delete, get, post};
use serde_json::{Value, json};

use crate::dispatch::{Shared, answer, blocking, with_engine};
use crate::fields::Fields;
use crate::history::{History, parsed, tell_call};
use crate::inner::InnerRequest;
use crate::refusal::Refusal;
use crate::response::json_of;
use crate::{body, infill, keep, parameters};
pub use writer::{Lines, Route};

/// Returns the routes.
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
        .route("/api/pull", post(pull::pull))
        .route("/api/delete", delete(catalog::delete))
        .route("/api/copy", post(catalog::copy))
        .route("/api/create", post(catalog::create))
        .route("/api/push", post(catalog::push))
        .route("/api/blobs/{digest}", any(catalog::blobs))
}

/// Whether clients of this API request a path.
pub fn is_for(path: &str) -> bool {
    path.starts_with("/api/")
}

/// Formats a refusal as this API formats errors.
pub fn refusal(refusal: &Refusal) -> Value {
    let long = refusal.of_length("the input length exceeds the context length", |long| {
        let (prompt, context) = (long.prompt, long.context);
        let words = "the input length exceeds the context length";
        format!("{words}: {prompt} tokens > {context}; {}", long.remedy())
    });
    json!({"error": long.unwrap_or_else(|| refusal.message.clone())})
}

/// Returns Ollama's default sampling parameters, for use if neither the request nor the model's
/// file has any.
fn sampling() -> Sampling {
    Sampling { temperature: 0.8, top_k: 40, top_p: 0.9, repetition_penalty: 1.1, ..Sampling::default() }
}

async fn chat(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let begun = Instant::now();
    let mut asked = read_chat(body::fields(&shared, request).await?)?;
    asked.model = asked.model.map(|name| catalog::named(&shared, &name));
    if asked.request.messages.is_empty() && asked.request.system.is_empty() {
        return load(&shared, Route::Chat, asked).await;
    }
    answer(&shared, asked, |model| Box::new(Lines::new(Route::Chat, model, begun))).await
}

/// Parses a request for `/api/chat`; one without messages only loads or unloads the model.
///
/// # Errors
/// A field that isn't supported, by name.
pub fn read_chat(mut fields: Fields) -> Result<InnerRequest, Refusal> {
    let mut asked = read(&mut fields)?;
    let mut history = History::default();
    let mut calls = Calls::default();
    for message in fields.objects("messages")? {
        self::message(message, &mut history, &mut calls)?;
    }
    parameters::tools(&mut fields, &mut asked.request)?;
    parameters::check(&fields, &asked.request)?;
    if let Ok((system, messages)) = history.end() {
        (asked.request.system, asked.request.messages) = (system, messages);
        parameters::prefill(&mut fields, &mut asked.request)?;
    }
    asked.ignored = fields.ignored();
    Ok(asked)
}

/// Loads the model of a request without content, or unloads it if the request asks for that.
/// A model in use is unloaded after its work.
async fn load(shared: &Arc<Shared>, route: Route, asked: InnerRequest) -> Result<Response, Refusal> {
    let name = asked.model.unwrap_or_else(|| shared.default.name.clone());
    let goes = asked.keep_alive == Some(Some(Duration::ZERO));
    let (loading, model) = (shared.clone(), name.clone());
    blocking(move || loading.keep_loaded(&model, asked.keep_alive, goes)).await?;
    Ok(json_of(&writer::nothing(route, &name, if goes { "unload" } else { "load" })))
}

async fn generate(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let begun = Instant::now();
    let mut fields = body::fields(&shared, request).await?;
    let mut asked = read(&mut fields)?;
    asked.model = asked.model.map(|name| catalog::named(&shared, &name));
    let prompt = fields.text("prompt")?.unwrap_or_default();
    let system = fields.text("system")?.unwrap_or_default();
    let suffix = fields.text("suffix")?.filter(|suffix| !suffix.is_empty());
    let raw = fields.flag("raw")?.unwrap_or(false);
    fields.unsupported(&[("template", ""), ("images", ""), ("context", "")])?;
    parameters::check(&fields, &asked.request)?;
    asked.ignored = fields.ignored();
    if prompt.is_empty() && suffix.is_none() {
        return load(&shared, Route::Generate, asked).await;
    }
    match suffix {
        Some(suffix) => {
            let infilled = move |engine: &Engine, _: &Until| infill::prompt(engine, &prompt, &suffix, "");
            let infilled = with_engine(&shared, asked.model.as_deref(), infilled).await?;
            asked.request.prompt = Some(infilled);
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

/// Parses the common fields of chat and generation.
fn read(fields: &mut Fields) -> Result<InnerRequest, Refusal> {
    let think = fields.take("think");
    let format = fields.take("format");
    let stream = fields.flag("stream")?.unwrap_or(true);
    let model = fields.text("model")?.filter(|name| !name.is_empty());
    let mut options = fields.object("options")?.map_or_else(|| fields.within(json!({}), "options"), Ok)?;
    // Options with another name in this API; the others are the same as in OpenAI-compatible
    // servers.
    if let Some(limit) = options.limit("num_predict", 0)?.filter(|limit| *limit > 0) {
        options.put("max_tokens", limit.into());
    }
    let mut asked = parameters::read(&mut options)?;
    // Options for loading the model, which are up to the server's owner.
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
    asked.model = model;
    asked.stream = stream;
    asked.sampling = Some(sampling());
    match think {
        None => {}
        Some(Value::Bool(think)) => asked.request.thinking = Some(think),
        Some(Value::String(effort)) => parameters::effort(fields, "think", &effort, &mut asked.request)?,
        Some(_) => return Err(fields.refuse("think", "must be true, false or an effort")),
    }
    asked.request.schema = match format {
        None => None,
        Some(Value::String(format)) if format.is_empty() => None,
        Some(Value::String(format)) if format == "json" => Some(json!({"type": "object"})),
        Some(schema @ Value::Object(_)) => Some(schema),
        Some(_) => return Err(fields.refuse("format", "must be json or a JSON schema")),
    };
    asked.keep_alive = match fields.take("keep_alive") {
        None => None,
        Some(value) => Some(keep::read(&value).ok_or_else(|| {
            fields.refuse("keep_alive", "must be a duration such as 5m, or a number of seconds")
        })?),
    };
    parameters::response_format(fields, &mut asked.request)?;
    asked.request.logprobs = parameters::logprobs(fields)?;
    Ok(asked)
}

/// Calls without a result so far: in this API, a result may name only its tool.
#[derive(Default)]
struct Calls {
    open: Vec<(String, String)>,
    count: usize,
}

impl Calls {
    /// Returns the id of the call that a result answers: the first with that name, else the first.
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
                    history.record_written_call(id, name);
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
