//! `POST /api/embed`, and the older `/api/embeddings`
//! (<https://github.com/ollama/ollama/blob/main/docs/api.md#generate-embeddings>).

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};

use super::catalog::named;
use crate::body;
use crate::dispatch::Shared;
use crate::embeddings::{Asked, embed, inputs, number};
use crate::fields::Fields;
use crate::refusal::Refusal;
use crate::response::{Ignored, json_of};

/// Embeds one or several texts.
pub async fn post(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let begun = Instant::now();
    let mut fields = body::fields(&shared, request).await?;
    let asked = read(&shared, &mut fields, "input")?;
    let ignored = fields.ignored();
    let (model, made) = embed(&shared, asked).await?;
    let embeddings: Value = made.vectors.iter().map(|vector| in_json(vector)).collect();
    let total = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let body = json!({
        "model": model, "embeddings": embeddings, "total_duration": total, "load_duration": 0,
        "prompt_eval_count": made.tokens,
    });
    Ok(json_with_ignored(&body, ignored))
}

/// Embeds one text.
pub async fn post_one(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let mut fields = body::fields(&shared, request).await?;
    if fields.get("prompt").is_some_and(|prompt| !prompt.is_string()) {
        return Err(fields.refuse("prompt", "must be a string"));
    }
    let asked = read(&shared, &mut fields, "prompt")?;
    let ignored = fields.ignored();
    let (_, made) = embed(&shared, asked).await?;
    Ok(json_with_ignored(
        &json!({"embedding": in_json(made.vectors.first().map_or(&[], Vec::as_slice))}),
        ignored,
    ))
}

/// Parses a request; as in Ollama, inputs that are too long are truncated unless the request
/// disables that.
fn read(shared: &Shared, fields: &mut Fields, field: &'static str) -> Result<Asked, Refusal> {
    // Options for loading the model or for sampling don't apply.
    fields.ignore(&["options", "keep_alive"]);
    Ok(Asked {
        model: fields.text("model")?.filter(|name| !name.is_empty()).map(|name| named(shared, &name)),
        inputs: inputs(fields, field)?,
        field,
        truncate: fields.flag("truncate")?.unwrap_or(true),
        dimensions: fields.limit("dimensions", 0)?.filter(|count| *count > 0),
    })
}

fn in_json(vector: &[f32]) -> Value {
    vector.iter().map(|&x| number(x)).collect()
}

fn json_with_ignored(body: &Value, ignored: Vec<String>) -> Response {
    let mut response = json_of(body);
    response.extensions_mut().insert(Ignored(ignored));
    response
}
