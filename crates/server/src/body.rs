//! The body of a request.

use std::future::poll_fn;
use std::pin::Pin;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use tokio::time::timeout;

use crate::dispatch::Shared;
use crate::fields::Fields;
use crate::refusal::Refusal;

/// Maximum body size in bytes: more than fits any model's context.
const BODY: u64 = 8 << 20;
/// Maximum size, in bytes, of an oversized body that is still read to its end: a client that is
/// still sending doesn't read the refusal.
const HEARD: u64 = 4 * BODY;

/// Reads the fields of a request's body.
///
/// # Errors
/// The body arrives too slowly, is too long, or isn't a JSON object.
pub async fn fields(shared: &Shared, request: Request) -> Result<Fields, Refusal> {
    Fields::read(&bytes(shared, request).await?)
}

/// Reads the bytes of a request's body.
///
/// # Errors
/// The body arrives too slowly, or is too long.
pub async fn bytes(shared: &Shared, request: Request) -> Result<Vec<u8>, Refusal> {
    let body = timeout(shared.head_time * 3, read(request.into_body())).await;
    body.map_err(|_| Refusal::new(408, "invalid_request_error", "the body came too slowly"))?
}

async fn read(mut body: Body) -> Result<Vec<u8>, Refusal> {
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
