//! The routes, and the processing common to all of them: access, format of refusals, metrics and
//! log.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER, WARNING, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;

use crate::access::{self, Need};
use crate::dispatch::Shared;
use crate::fields::Fields;
use crate::inner::InnerRequest;
use crate::refusal::Refusal;
use crate::response::{Ignored, json_of};
use crate::{anthropic, native, ollama, openai, page};

/// Maximum size, in bytes, of the header that lists ignored fields.
const WARNED: usize = 1 << 10;

/// Returns all routes.
pub fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .merge(openai::routes())
        .nest("/v1", openai::routes())
        .merge(anthropic::routes())
        .merge(ollama::routes())
        .merge(native::routes())
        .merge(page::routes())
        .route("/openapi.json", get(openapi))
        .fallback(nothing)
        .method_not_allowed_fallback(not_so)
        .layer(middleware::from_fn_with_state(shared.clone(), around))
        .with_state(shared)
}

/// Parses a request body without its route; its fields determine the wire format.
///
/// # Errors
/// A field that isn't supported, by name, or the body isn't a conversation.
pub fn read_any(body: &[u8]) -> Result<InnerRequest, Refusal> {
    let fields = Fields::read(body)?;
    let tool_has = |name: &str| {
        let tools = fields.get("tools").and_then(Value::as_array);
        tools.is_some_and(|tools| tools.iter().any(|tool| tool.get(name).is_some()))
    };
    let has = |names: &[&str]| names.iter().any(|name| fields.has(name));
    match () {
        () if has(&["input"]) => openai::responses::read_alone(fields),
        () if has(&["system", "stop_sequences", "anthropic_version"]) || tool_has("input_schema") => {
            anthropic::read(fields)
        }
        () if has(&["options", "think", "format"]) => ollama::read_chat(fields),
        () if has(&["messages"]) => openai::chat::read(fields).map(|(asked, _)| asked),
        () => Err(Refusal::invalid("messages", "the request has neither `messages` nor `input`")),
    }
}

/// Describes the server for programs (<https://spec.openapis.org/oas/v3.1.0>).
async fn openapi() -> Response {
    let mut response = Response::new(Body::from(include_str!("openapi.json")));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn nothing(request: Request) -> Refusal {
    let message = format!("there is no {} here; the routes are at /openapi.json", request.uri().path());
    Refusal::new(404, "invalid_request_error", message).coded("not_found")
}

async fn not_so(request: Request) -> Refusal {
    let message = format!("{} is not for {}", request.uri().path(), request.method());
    Refusal::new(405, "invalid_request_error", message).coded("method_not_allowed")
}

/// Processing for every request.
async fn around(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let asker = access::is_plain(request.headers(), request.uri())
        .and_then(|()| shared.access.origin(request.headers(), page::is_page(&path)));
    let (origin, mut response) = match asker {
        Err(refusal) => (None, refusal.into_response()),
        Ok(origin) if method == Method::OPTIONS && origin.is_some() => {
            let response = shared.access.preflight(request.headers());
            (origin, response)
        }
        Ok(origin) => {
            let need =
                if native::is_health(&path) || page::is_page(&path) { Need::Nothing } else { Need::Token };
            match shared.access.token(request.headers(), need) {
                Ok(()) => (origin, next.run(request).await),
                Err(refusal) => (origin, refusal.into_response()),
            }
        }
    };
    let mut told = String::new();
    if let Some(refusal) = response.extensions_mut().remove::<Refusal>() {
        told = format!(": {}", refusal.message);
        response = refusal_response(&refusal, &path);
    }
    if let Some(Ignored(ignored)) = response.extensions_mut().remove::<Ignored>()
        && !ignored.is_empty()
    {
        let ignored = format!("ignored: {}", ignored.join(", "));
        told = format!(": {ignored}");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{}\"", plain(&ignored))) {
            response.headers_mut().insert(WARNING, value);
        }
    }
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    if let Some(origin) = origin {
        shared.access.admit(&origin, response.headers_mut());
    }
    let status = response.status().as_u16();
    shared.metrics.request(status);
    if !native::is_health(&path) {
        let took = begun.elapsed().as_secs_f64();
        shared.workplace.log(&format!("{method} {path} {status} {took:.2} s{told}"));
    }
    response
}

/// Replaces the characters that a header can't contain.
fn plain(text: &str) -> String {
    let fits = |c: char| if (' '..='~').contains(&c) && c != '"' && c != '\\' { c } else { '?' };
    text.chars().take(WARNED).map(fits).collect()
}

/// Formats a refusal for the clients of `path`.
fn refusal_response(refusal: &Refusal, path: &str) -> Response {
    let body = match () {
        () if anthropic::is_for(path) => anthropic::refusal(refusal),
        () if ollama::is_for(path) => ollama::refusal(refusal),
        () => openai::refusal(refusal, path),
    };
    let mut response = json_of(&body);
    *response.status_mut() =
        StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    // OpenAI's and Anthropic's clients retry any 5xx error, unless this header forbids it.
    let again = if refusal.retry.is_some() { "true" } else { "false" };
    headers.insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static(again));
    if let Some(seconds) = refusal.retry {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if refusal.status == 401 {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_body_has_tells_its_wire_format() {
        let said = json!([{"role": "user", "content": "hi"}]);
        let schema = json!({"type": "object"});
        let function = json!({"name": "f", "description": "Does", "parameters": schema});
        let nested = json!([{"type": "function", "function": function}]);
        let mut flat = function.clone();
        flat["type"] = "function".into();
        let anthropic = json!([{"name": "f", "description": "Does", "input_schema": schema}]);
        let system = json!({"role": "system", "content": "Be brief."});
        let with_system = json!([system, said[0]]);
        let bodies = [
            json!({"messages": with_system, "tools": nested}),
            json!({"messages": with_system, "tools": nested, "options": {"num_ctx": 5}}),
            json!({"messages": said, "system": "Be brief.", "tools": anthropic}),
            json!({"messages": said, "system": [{"type": "text", "text": "Be brief."}], "tools": anthropic}),
            json!({"input": "hi", "instructions": "Be brief.", "tools": [flat]}),
        ];
        for body in bodies {
            let asked = read_any(body.to_string().as_bytes()).unwrap().request;
            assert_eq!((asked.system.len(), asked.system[0].text.as_str()), (1, "Be brief."), "{body}");
            assert_eq!((asked.tools[0].name.as_str(), &asked.tools[0].parameters), ("f", &schema), "{body}");
            assert_eq!(asked.messages[0].content, "hi", "{body}");
        }
        let refused = |body: &Value| read_any(body.to_string().as_bytes()).unwrap_err().message;
        assert!(refused(&json!({"prompt": "hi"})).contains("neither `messages` nor `input`"));
        assert!(refused(&json!([])).contains("no JSON object"));
    }
}
