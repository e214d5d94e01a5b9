//! The body of a streamed answer: pieces as they come, in a wire format.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::time::{Instant, Sleep, sleep};

use crate::answer::{Piece, Writer};
use crate::slots::Answering;

/// How long a stream is silent at most: while a long prompt is computed, or an agent's tools run.
const BEAT: Duration = Duration::from_secs(10);

/// The body.
/// Dropping it, as when the client disconnects, cancels the work.
pub struct Stream {
    writer: Box<dyn Writer>,
    begin: Option<String>,
    answering: Answering,
    /// When something must be said, be it nothing.
    beat: Pin<Box<Sleep>>,
}

impl Stream {
    /// The pieces that come, after `first`.
    pub fn new(mut writer: Box<dyn Writer>, first: &Piece, answering: Answering) -> Self {
        let begin = writer.piece(first);
        Stream { writer, begin: Some(begin), answering, beat: Box::pin(sleep(BEAT)) }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<String>> {
        loop {
            let text = match self.begin.take() {
                Some(begin) => begin,
                None => match self.answering.poll_next(context) {
                    Poll::Ready(None) => return Poll::Ready(None),
                    Poll::Ready(Some(Ok(piece))) => self.writer.piece(&piece),
                    Poll::Ready(Some(Err(refusal))) => self.writer.failure(&refusal),
                    Poll::Pending => match self.beat.as_mut().poll(context) {
                        Poll::Ready(()) => {
                            self.beat.as_mut().reset(Instant::now() + BEAT);
                            self.writer.beat()
                        }
                        Poll::Pending => return Poll::Pending,
                    },
                },
            };
            // An empty frame would say that the body ends.
            if !text.is_empty() {
                self.beat.as_mut().reset(Instant::now() + BEAT);
                return Poll::Ready(Some(text));
            }
        }
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.poll(context).map(|text| text.map(|text| Ok(Frame::data(Bytes::from(text)))))
    }
}
