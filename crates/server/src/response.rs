//! Common parts of the responses of all wire formats.

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::refusal::Refusal;

/// The ignored parts of a request, which a response carries up to `routes`.
#[derive(Clone, Debug)]
pub struct Ignored(pub Vec<String>);

impl IntoResponse for Refusal {
    /// Without a body, which `routes` writes in the wire format of the request.
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(self);
        response
    }
}

/// Creates a JSON response.
pub fn json_of(value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
