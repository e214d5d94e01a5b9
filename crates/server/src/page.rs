//! The web page at `/`: its embedded files, and the route for answers to NPCs' questions.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::response::Response;
use axum::routing::{get, post};
use include_dir::{Dir, include_dir};
use serde_json::json;

use crate::body;
use crate::dispatch::Shared;
use crate::questions::read_answer;
use crate::refusal::Refusal;
use crate::response::{Ignored, json_of};

/// Files of the page.
static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/page");
/// Content security policy: the page may only run its own files and connect to this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";
/// Content types by file extension.
const KINDS: [(&str, &str); 7] = [
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("json", "application/json"),
    ("webmanifest", "application/manifest+json"),
];

/// Returns the routes of the page: `/`, each of its files by name, and the route for answers to
/// questions.
pub fn routes() -> Router<Arc<Shared>> {
    let mut router = Router::new().route("/", get(file)).route("/v1/alara/answers", post(answer));
    for file in served() {
        router = router.route(&format!("/{}", file.path().display()), get(self::file));
    }
    router
}

/// Whether a path is one of the page's files, which need no token.
pub fn is_page(path: &str) -> bool {
    path == "/"
        || served().any(|file| file.path().to_str().is_some_and(|name| path.strip_prefix('/') == Some(name)))
}

/// Returns the files of known types directly in the folder.
fn served() -> impl Iterator<Item = &'static include_dir::File<'static>> {
    FILES.files().filter(|file| kind(file).is_some())
}

fn kind(file: &include_dir::File) -> Option<&'static str> {
    let end = file.path().extension()?.to_str()?;
    KINDS.iter().find(|(known, _)| *known == end).map(|(_, kind)| *kind)
}

async fn file(request: Request) -> Result<Response, Refusal> {
    let path = match request.uri().path() {
        "/" => "index.html",
        path => path.trim_start_matches('/'),
    };
    let found = FILES.get_file(path).and_then(|file| Some((file, kind(file)?)));
    let Some((file, kind)) = found else {
        let message = "this build has no page; programs find the routes at /openapi.json";
        return Err(Refusal::new(404, "invalid_request_error", message).coded("not_found"));
    };
    let mut response = Response::new(Body::from(file.contents()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

/// Answers a question sent in a stream, by its id.
async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let mut fields = body::fields(&shared, request).await?;
    let (id, word) = (fields.needed("id")?, fields.needed("answer")?);
    let Some(answer) = read_answer(&word) else {
        return Err(fields.refuse("answer", "must be `yes`, `session` or `no`"));
    };
    let ignored = fields.ignored();
    if !shared.questions.answer(&id, answer) {
        let message = "no question with this `id` waits: it was answered, or its stream has ended";
        return Err(Refusal::unknown("id", message).coded("not_found"));
    }
    let mut response = json_of(&json!({"id": id, "answer": word}));
    response.extensions_mut().insert(Ignored(ignored));
    Ok(response)
}
