//! `GET /v1/models` and `GET /v1/models/{id}`
//! (<https://platform.openai.com/docs/api-reference/models>), as Anthropic's clients read it too
//! (<https://docs.claude.com/en/api/models-list>).

use std::sync::Arc;

use alara_harness::Team;
use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Value, json};

use crate::dispatch::{Shared, team, with_model};
use crate::refusal::Refusal;
use crate::response::json_of;

/// The model, and each NPC as one.
pub async fn list(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let (team, context) = (team(&shared).await?, context(&shared).await);
    let list: Vec<Value> =
        shared.known(&team).into_iter().map(|id| model(&shared, &team, id, context)).collect();
    let end = |model: Option<&Value>| model.map(|model| model["id"].clone());
    Ok(json_of(&json!({
        "object": "list", "has_more": false, "first_id": end(list.first()), "last_id": end(list.last()),
        "data": list,
    })))
}

/// One of them.
pub async fn one(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Result<Response, Refusal> {
    let (team, context) = (team(&shared).await?, context(&shared).await);
    let known = shared.known(&team);
    if shared.is_model(&id) || known.contains(&id.as_str()) {
        return Ok(json_of(&model(&shared, &team, &id, context)));
    }
    let message = format!("there is no model `{id}` (known: {})", known.join(", "));
    Err(Refusal::unknown("model", message).coded("model_not_found"))
}

/// Most tokens of a conversation.
/// A model that can't be asked has none that is known.
async fn context(shared: &Arc<Shared>) -> Option<usize> {
    with_model(shared, |model| Ok(model.context())).await.ok().flatten()
}

fn model(shared: &Shared, team: &Team, id: &str, context: Option<usize>) -> Value {
    let owner = if shared.is_model(id) { "alara" } else { &team.name };
    // NPCs may have models of their own.
    let context = context.filter(|_| shared.is_model(id));
    json!({
        "id": id, "object": "model", "created": shared.began, "owned_by": owner,
        "type": "model", "display_name": id, "created_at": crate::time::rfc3339(shared.began, 0),
        "max_model_len": context, "context_length": context,
    })
}
