//! `POST /v1/embeddings`: refused, since no model of the engine makes any yet.

use crate::refusal::Refusal;

/// Refuses.
pub async fn post() -> Refusal {
    Refusal::no_embeddings()
}
