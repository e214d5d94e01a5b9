//! Bodies of answers: whole, or server-sent events as the pieces come.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Bytes, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, Sleep, sleep};

use crate::job::Answering;
use crate::wire::{Piece, Shape};

/// How long a stream is silent at most: while a long prompt is computed, or an agent's tools run.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// An answer in JSON.
pub fn json_of(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::text(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer in server-sent events.
pub fn events_of(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// The body of an answer.
pub enum Body {
    /// All of it, if it is not sent yet.
    Whole(Option<Bytes>),
    /// Events.
    /// Dropping it, as when the client leaves, cancels the work.
    Events(Box<Events>),
}

impl Body {
    /// A text.
    pub fn text(text: String) -> Self {
        Body::Whole(Some(text.into()))
    }

    /// The pieces that come, after `first`.
    pub fn events(mut shape: Shape, first: &Piece, answering: Answering) -> Self {
        let begin = shape.events(first);
        Body::Events(Box::new(Events {
            shape,
            begin: Some(begin),
            answering,
            beat: Box::pin(sleep(KEEP_ALIVE)),
        }))
    }
}

/// Server-sent events.
pub struct Events {
    shape: Shape,
    begin: Option<String>,
    answering: Answering,
    /// When something must be said, be it nothing.
    beat: Pin<Box<Sleep>>,
}

impl Events {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<String>> {
        if let Some(begin) = self.begin.take() {
            return Poll::Ready(Some(begin));
        }
        let text = match self.answering.poll_next(context) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(Ok(piece))) => self.shape.events(&piece),
            Poll::Ready(Some(Err(refusal))) => Shape::failure(&refusal),
            Poll::Pending => match self.beat.as_mut().poll(context) {
                Poll::Ready(()) => ": it goes on\n\n".to_owned(),
                Poll::Pending => return Poll::Pending,
            },
        };
        self.beat.as_mut().reset(Instant::now() + KEEP_ALIVE);
        Poll::Ready(Some(text))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Body::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Events(events) => {
                events.poll(context).map(|text| text.map(|text| Ok(Frame::data(Bytes::from(text)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Body::Events(_) => SizeHint::default(),
        }
    }
}
