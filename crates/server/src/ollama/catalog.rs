//! Lists models in the format of Ollama's API.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::body;
use crate::dispatch::{Shared, blocking, team};
use crate::fields::Fields;
use crate::refusal::Refusal;
use crate::response::json_of;
use crate::served::{Facts, Listing};
use crate::time::rfc3339;

/// The supported version of Ollama's API, which clients check before they use newer features.
const VERSION: &str = "0.13.0";
/// The default tag of a model's name.
const LATEST: &str = ":latest";

/// Removes the default tag from a name that is only known without it.
pub fn named(shared: &Shared, name: &str) -> String {
    match name.strip_suffix(LATEST) {
        Some(short) if shared.find(name).is_none() => short.to_owned(),
        _ => name.to_owned(),
    }
}

/// Returns the model that a request is about, from a field that has had two names.
pub fn meant(shared: &Shared, fields: &mut Fields) -> Result<String, Refusal> {
    match fields.text("model")?.or(fields.text("name")?) {
        Some(name) => Ok(named(shared, &name)),
        None => Err(fields.refuse("model", "is missing")),
    }
}

/// Returns the version.
pub async fn version() -> Response {
    json_of(&json!({"version": VERSION}))
}

/// Lists all models.
pub async fn tags(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let team = team(&shared).await?;
    let models: Vec<Value> = blocking(move || {
        Ok(shared.listings(&team, None).iter().map(|listing| model(&shared, listing)).collect())
    })
    .await?;
    Ok(json_of(&json!({"models": models})))
}

/// Lists the loaded models, whoever requested them.
pub async fn ps(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let models: Vec<Value> = blocking(move || {
        let served = shared.models();
        let loaded = shared.workplace.models().loaded().into_iter().map(|loaded| {
            let facts = shared.workplace.facts(&loaded.spec);
            let name = shared.name_of(&served, &loaded.spec);
            let listing = Listing { name, parent: None, facts, loaded: Some(loaded.clone()) };
            let mut model = model(&shared, &listing);
            model["size"] = loaded.bytes.into();
            model["size_vram"] = 0.into();
            model["expires_at"] = shared.keep.goes_at(&loaded).into();
            model["context_length"] = json!(listing.context());
            model
        });
        Ok(loaded.collect())
    })
    .await?;
    Ok(json_of(&json!({"models": models})))
}

/// Shows one model.
pub async fn show(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let mut fields = body::fields(&shared, request).await?;
    let name = meant(&shared, &mut fields)?;
    let team = team(&shared).await?;
    let shown = blocking(move || {
        let found = shared.listings(&team, Some(&name)).into_iter().next();
        let default = || shared.listings(&team, Some(&shared.default.name)).into_iter().next();
        let found = found.or_else(|| if shared.any_model { default() } else { None });
        found.map(|listing| about(&shared, &listing)).ok_or_else(|| shared.unknown("model", &name, &team))
    });
    Ok(json_of(&shown.await?))
}

/// Returns the data about one model.
fn about(shared: &Shared, listing: &Listing) -> Value {
    let shown = model(shared, listing);
    let facts = listing.facts.as_deref();
    let mut info = facts.map_or_else(Map::new, |facts| facts.metadata.clone());
    // The chat template has a separate field.
    info.shift_remove("tokenizer.chat_template");
    info.entry("general.basename").or_insert_with(|| listing.name.clone().into());
    match facts {
        Some(facts) => {
            info.insert("general.architecture".into(), facts.architecture.clone().into());
            info.insert("general.parameter_count".into(), facts.parameters.into());
            // Clients fill prompts up to this length.
            if let Some(context) = listing.context() {
                info.insert(format!("{}.context_length", facts.architecture), context.into());
            }
        }
        // Clients search for a key with this suffix, after the architecture.
        None => {
            info.insert("general.architecture".into(), "alara".into());
            info.insert("alara.context_length".into(), json!(listing.context()));
        }
    }
    json!({
        "modelfile": format!("FROM {}", listing.parent.as_ref().unwrap_or(&listing.name)),
        "parameters": listing.context().map_or_else(String::new, |context| format!("num_ctx {context}")),
        "template": facts.map_or("", |facts| &facts.template),
        "details": shown["details"], "modified_at": shown["modified_at"],
        "capabilities": listing.capabilities(), "model_info": info,
    })
}

/// Refused: the files belong to their owner.
pub async fn delete() -> Refusal {
    Refusal::forbidden("this server takes no files away; who owns them does it by `alara models rm`")
}

/// Refused: a model is a file, and whoever starts the server sets its other names.
pub async fn copy() -> Refusal {
    Refusal::unable(
        "this server copies no models; start it with `--alias NAME=MODEL` for another name of one",
    )
}

/// Refused: models are existing files.
pub async fn create() -> Refusal {
    Refusal::unable(
        "this server makes no models, it serves files that are there: `-m FILE` takes a GGUF file or a folder of \
         safetensors; send system prompt and parameters with each request, or write an agent for them (docs/teams.md)",
    )
}

/// Refused: the server uploads nothing.
pub async fn push() -> Refusal {
    Refusal::unable(
        "this server uploads no models; a model is a file, and `alara models show` prints its path",
    )
}

/// Refused: models are made only of existing files.
pub async fn blobs() -> Refusal {
    Refusal::unable(
        "this server takes no files; `-m FILE` serves one that is there, `alara models pull` gets one",
    )
}

/// Returns a model's entry in the list.
/// For a remote model, whose file isn't known, the digest is that of its name.
fn model(shared: &Shared, listing: &Listing) -> Value {
    let Listing { name, parent, facts, .. } = listing;
    let none = Facts { modified: shared.began, digest: hash(name), ..Facts::default() };
    let facts = facts.as_deref().unwrap_or(&none);
    let families: &[&str] = if facts.architecture.is_empty() { &[] } else { &[facts.architecture.as_str()] };
    json!({
        "name": name, "model": name, "modified_at": rfc3339(facts.modified, 0),
        "size": facts.bytes, "digest": facts.digest,
        "details": {
            "parent_model": parent.as_deref().unwrap_or_default(), "format": "gguf",
            "family": facts.architecture, "families": families,
            "parameter_size": count(facts.parameters), "quantization_level": facts.quantization,
        },
    })
}

fn hash(text: &str) -> String {
    Sha256::digest(text).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Formats a number of parameters like Ollama: 3.5M, 1.7B.
fn count(parameters: u64) -> String {
    let units = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")];
    match units.into_iter().find(|(unit, _)| parameters as f64 >= *unit) {
        Some((unit, letter)) => format!("{:.1}{letter}", parameters as f64 / unit),
        None if parameters == 0 => String::new(),
        None => parameters.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_for_people() {
        let check = |number: u64, expected: &str| assert_eq!(count(number), expected);
        check(0, "");
        check(999, "999");
        check(3_480_000, "3.5M");
        check(1_720_574_976, "1.7B");
        check(8_030_261_248, "8.0B");
        check(1_000_000_000_000, "1.0T");
        check(12_345, "12.3K");
    }
}
