//! What the answers of all wire formats have in common.

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::refusal::Refusal;

/// What of a request was not honoured; an answer carries it as far as `routes`.
#[derive(Clone, Debug)]
pub struct Ignored(pub Vec<String>);

impl IntoResponse for Refusal {
    /// Without a body, which `routes` writes: what it looks like depends on the wire format.
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(self);
        response
    }
}

/// An answer in JSON.
pub fn json_of(value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
