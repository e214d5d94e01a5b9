//! What models there are, as Ollama tells it.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::body;
use crate::dispatch::{Shared, team, with_model};
use crate::refusal::Refusal;
use crate::response::json_of;
use crate::time::rfc3339;

/// The version of Ollama's API that this is, which clients look at before they use what is newer.
const VERSION: &str = "0.13.0";
/// What stands behind a model's name where nobody says another tag.
const LATEST: &str = ":latest";

/// A name without the tag that means nothing, if only so it is known.
pub fn named(shared: &Shared, name: &str) -> String {
    match name.strip_suffix(LATEST) {
        Some(short) if !shared.is_model(name) => short.to_owned(),
        _ => name.to_owned(),
    }
}

/// The version.
pub async fn version() -> Response {
    json_of(&json!({"version": VERSION}))
}

/// All models.
pub async fn tags(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let team = team(&shared).await?;
    let models: Vec<Value> = shared.known(&team).into_iter().map(|name| model(&shared, name)).collect();
    Ok(json_of(&json!({"models": models})))
}

/// The models that are loaded: the one that is served, for as long as it is.
pub async fn ps(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let context = with_model(&shared, |model| Ok(model.context())).await?;
    let mut model = model(&shared, &shared.model);
    // It stays for as long as the server does.
    model["expires_at"] = "9999-12-31T23:59:59Z".into();
    model["size_vram"] = 0.into();
    model["context_length"] = json!(context);
    Ok(json_of(&json!({"models": [model]})))
}

/// One model.
pub async fn show(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let mut fields = body::fields(&shared, request).await?;
    let name = match fields.text("model")?.or(fields.text("name")?) {
        Some(name) => named(&shared, &name),
        None => return Err(fields.refuse("model", "is missing")),
    };
    known(&shared, &name).await?;
    let about = with_model(&shared, |model| {
        let template = model.local().map(|engine| engine.template().to_owned());
        let capabilities: &[&str] = match model.local() {
            Some(engine) if engine.is_encoder() => &["embedding"],
            Some(_) if model.format().is_none() => &["completion"],
            _ => &["completion", "tools"],
        };
        Ok((model.context(), template, capabilities))
    });
    let (context, template, capabilities) = about.await?;
    let shown = model(&shared, &name);
    Ok(json_of(&json!({
        "modelfile": format!("FROM {name}"), "parameters": "", "template": template.unwrap_or_default(),
        "details": shown["details"], "modified_at": shown["modified_at"], "capabilities": capabilities,
        "model_info": {"general.architecture": "alara", "general.basename": name, "alara.context_length": context},
    })))
}

/// A model that is there is there; another one is the server's owner to get.
pub async fn pull(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let mut fields = body::fields(&shared, request).await?;
    let name = match fields.text("model")?.or(fields.text("name")?) {
        Some(name) => named(&shared, &name),
        None => return Err(fields.refuse("model", "is missing")),
    };
    let stream = fields.flag("stream")?.unwrap_or(true);
    if known(&shared, &name).await.is_err() {
        let message = format!(
            "{name} is not served here; get it by `alara models pull {name}` and serve it by `-m {name}`"
        );
        return Err(Refusal::unknown("model", message));
    }
    let done = json!({"status": "success"});
    if !stream {
        return Ok(json_of(&done));
    }
    let lines = format!("{}\n{done}\n", json!({"status": "pulling manifest"}));
    let mut response = Response::new(lines.into());
    let kind = axum::http::HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(axum::http::header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Refused: files are their owner's.
pub async fn delete() -> Refusal {
    Refusal::forbidden("this server takes no files away; who owns them does it by `alara models rm`")
}

/// Whether there is such a model.
async fn known(shared: &Arc<Shared>, name: &str) -> Result<(), Refusal> {
    let team = team(shared).await?;
    let known = shared.known(&team);
    if shared.is_model(name) || shared.any_model || known.contains(&name) {
        return Ok(());
    }
    let message = format!("model '{name}' not found (known: {})", known.join(", "));
    Err(Refusal::unknown("model", message))
}

/// What is told of each model.
/// Its digest is of its name: whoever compares digests learns whether it is the same one.
fn model(shared: &Shared, name: &str) -> Value {
    let digest = Sha256::digest(name).iter().fold(String::new(), |mut text, byte| {
        // Writing to a text can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    json!({
        "name": name, "model": name, "modified_at": rfc3339(shared.began, 0), "size": 0, "digest": digest,
        "details": {
            "parent_model": "", "format": "gguf", "family": "alara", "families": ["alara"],
            "parameter_size": "", "quantization_level": "",
        },
    })
}
