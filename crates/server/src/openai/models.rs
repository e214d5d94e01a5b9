//! `GET /v1/models` and `GET /v1/models/{id}`
//! (<https://platform.openai.com/docs/api-reference/models>), also compatible with Anthropic's
//! clients (<https://docs.claude.com/en/api/models-list>), with `meta` and `status` like
//! llama.cpp's server and its router.

use std::sync::Arc;

use alara_harness::Team;
use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Value, json};

use crate::dispatch::{Shared, blocking, team};
use crate::refusal::Refusal;
use crate::response::json_of;
use crate::served::Listing;
use crate::time::rfc3339;

/// Lists the models, including each NPC.
pub async fn list(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let team = team(&shared).await?;
    let list: Vec<Value> = blocking(move || {
        Ok(shared.listings(&team, None).iter().map(|listing| model(&shared, &team, listing)).collect())
    })
    .await?;
    let end = |model: Option<&Value>| model.map(|model| model["id"].clone());
    Ok(json_of(&json!({
        "object": "list", "has_more": false, "first_id": end(list.first()), "last_id": end(list.last()),
        "data": list,
    })))
}

/// Returns one model.
pub async fn one(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Result<Response, Refusal> {
    let team = team(&shared).await?;
    let found = blocking(move || match shared.listings(&team, Some(&id)).first() {
        Some(listing) => Ok(model(&shared, &team, listing)),
        None => Err(shared.unknown("model", &id, &team)),
    });
    Ok(json_of(&found.await?))
}

fn model(shared: &Shared, team: &Team, listing: &Listing) -> Value {
    let Listing { name, parent, facts, loaded } = listing;
    let context = listing.context();
    let owner = if parent.is_some() { team.name.as_str() } else { "alara" };
    let status = if loaded.is_some() { "loaded" } else { "unloaded" };
    let mut model = json!({
        "id": name, "object": "model", "created": shared.began, "owned_by": owner,
        "type": "model", "display_name": name, "created_at": rfc3339(shared.began, 0),
        "max_model_len": context, "context_length": context,
        "capabilities": listing.capabilities(), "status": {"value": status},
    });
    if let Some(parent) = parent {
        model["parent"] = parent.as_str().into();
        if shared.leads(team, name) {
            model["alara"] = json!({"lead": true});
        }
    }
    if let Some(facts) = facts {
        model["meta"] = json!({
            "n_ctx_train": facts.trained_context, "n_params": facts.parameters, "size": facts.bytes,
        });
    }
    model
}
