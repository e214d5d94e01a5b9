//! Connections and routes.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Stage;
use crate::body::{Body, json_of};
use crate::chat::{self, Shared};
use crate::wire::Refusal;

/// Most connections at a time; a further one is closed at once.
const CONNECTIONS: usize = 256;
/// Most bytes of a request's head.
const HEAD: usize = 32 << 10;
/// Most bytes of a request's body: more than fits the context of any model.
const BODY: u64 = 8 << 20;
/// Most bytes of a body that is too long, and heard out all the same: who is still sending does not
/// read why it is refused.
const HEARD: u64 = 4 * BODY;
/// How long to wait where the system has no room for a connection.
const PAUSE: Duration = Duration::from_millis(50);
/// The routes, for who looks for another.
const ROUTES: &str = "GET /health, GET /v1/models, POST /v1/chat/completions";

/// Serves until it is to stop, then lets the running requests finish, or not.
pub async fn serve(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<Stage>,
) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    let stage = stop.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match (accepted, room.clone().try_acquire_owned()) {
                (Ok((stream, _)), Ok(held)) => {
                    let connection = connection(stream, shared.clone(), stage.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(held);
                    });
                }
                (Ok(_), Err(_)) => {}
                (Err(_), _) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
            _ = stop.wait_for(|stage| *stage != Stage::Serving) => break,
        }
    }
    drop(listener);
    tokio::select! {
        () = async { while connections.join_next().await.is_some() {} } => {}
        _ = stop.wait_for(|stage| *stage == Stage::Cancelling) => connections.shutdown().await,
    }
    Ok(())
}

/// Serves one connection.
/// When the client leaves, hyper drops what is being done for it.
async fn connection(stream: TcpStream, shared: Arc<Shared>, mut stop: watch::Receiver<Stage>) {
    // Pieces of an answer are small, and should not wait for each other.
    let _ = stream.set_nodelay(true);
    let head = shared.head_time;
    let service = service_fn(move |request| answer(shared.clone(), request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(HEAD);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stage| *stage != Stage::Serving) => connection.as_mut().graceful_shutdown(),
    }
    // An error is the client's: it left, or does not speak HTTP.
    let _ = connection.await;
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let mut response = route(&shared, request).await.unwrap_or_else(|refusal| refused(&refusal));
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    Ok(response)
}

async fn route(shared: &Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let path = request.uri().path().to_owned();
    shared.access.check(request.headers(), path == "/health")?;
    let allowed = match path.as_str() {
        "/health" | "/v1/models" => Method::GET,
        "/v1/chat/completions" => Method::POST,
        _ => {
            let message = format!("there is no {path} here; the routes are {ROUTES}");
            return Err(Refusal::new(404, "invalid_request_error", message).coded("not_found"));
        }
    };
    if *request.method() != allowed {
        let message = format!("{path} is for {allowed} only");
        return Err(Refusal::new(405, "invalid_request_error", message).coded("method_not_allowed"));
    }
    match path.as_str() {
        "/health" => Ok(json_of(StatusCode::OK, &json!({"status": "ok"}))),
        "/v1/models" => Ok(json_of(StatusCode::OK, &chat::models(shared).await?)),
        _ => {
            let body = timeout(shared.head_time * 3, read(request.into_body())).await;
            let body =
                body.map_err(|_| Refusal::new(408, "invalid_request_error", "the body came too slowly"))??;
            chat::chat(shared, &body).await
        }
    }
}

async fn read(mut body: Incoming) -> Result<Vec<u8>, Refusal> {
    let too_long = || {
        let message = format!("a request's body may have {} MiB", BODY >> 20);
        Refusal::new(413, "invalid_request_error", message).coded("request_too_large")
    };
    if body.size_hint().lower() > HEARD {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    let mut heard = 0;
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_| Refusal::new(400, "invalid_request_error", "the body broke off"))?;
        let data = frame.data_ref().map_or(&[][..], |data| &data[..]);
        heard += data.len() as u64;
        if heard > HEARD {
            return Err(too_long());
        }
        if heard <= BODY {
            bytes.extend_from_slice(data);
        }
    }
    if heard > BODY {
        return Err(too_long());
    }
    Ok(bytes)
}

fn refused(refusal: &Refusal) -> Response<Body> {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_of(status, &refusal.body());
    let headers = response.headers_mut();
    // OpenAI's clients send whatever fails with 5xx again, unless they are told.
    headers.insert("x-should-retry", HeaderValue::from_static(if refusal.again { "true" } else { "false" }));
    if refusal.again {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
