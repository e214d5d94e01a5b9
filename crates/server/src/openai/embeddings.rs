//! `POST /v1/embeddings`: refused, since no model of the engine makes any yet.

use crate::refusal::Refusal;

/// Refuses.
pub async fn post() -> Refusal {
    refusal()
}

/// Why there are no embeddings.
pub fn refusal() -> Refusal {
    Refusal::unable("this server makes no embeddings: the engine loads no model for them yet")
}
