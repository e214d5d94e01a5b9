//! The body of a streamed answer: pieces in a wire format, as they come.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::time::{Instant, Sleep, sleep};

use crate::answer::{Piece, Writer};
use crate::slots::Answering;

/// Maximum silence of a stream, during prefill of a long prompt or a run of an agent's tools.
const BEAT: Duration = Duration::from_secs(10);

/// The body of a stream.
/// Dropping it, as when the client disconnects, cancels the work.
pub struct Stream {
    writer: Box<dyn Writer>,
    begin: Option<String>,
    answering: Answering,
    /// Maximum silence.
    pause: Duration,
    /// Time of the next keep-alive event.
    beat: Pin<Box<Sleep>>,
}

impl Stream {
    /// Creates a body from the pieces that come after `first`.
    pub fn new(mut writer: Box<dyn Writer>, first: &Piece, answering: Answering) -> Self {
        let begin = writer.piece(first);
        Stream { writer, begin: Some(begin), answering, pause: BEAT, beat: Box::pin(sleep(BEAT)) }
    }

    /// Postpones the next keep-alive event.
    fn rest(&mut self) {
        let until = Instant::now() + self.pause;
        self.beat.as_mut().reset(until);
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
                            self.rest();
                            self.writer.beat()
                        }
                        Poll::Pending => return Poll::Pending,
                    },
                },
            };
            // An empty frame would end the body.
            if !text.is_empty() {
                self.rest();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant as Clock;

    use alara_engine::{Finish, Usage};
    use serde_json::{Value, json};

    use super::*;
    use crate::answer::End;
    use crate::slots::{Listener, Slots};
    use crate::{anthropic, ollama, openai};

    /// Returns the events of a stream whose work sends nothing.
    fn silent(writer: Box<dyn Writer>) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let slots = Slots::new(1, 1, Duration::from_secs(5), Arc::default());
            let work = |listener: &Listener| {
                listener.send(Ok(Piece::Begun));
                std::thread::sleep(Duration::from_millis(300));
                let end = End { finish: Finish::Stop, usage: Usage::default(), alara: None };
                listener.send(Ok(Piece::End(Box::new(end))));
                Ok(())
            };
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut answering = slots.start(deadline, Box::new(work)).await.unwrap();
            let first = answering.next().await.unwrap().unwrap();
            let mut stream = Stream::new(writer, &first, answering);
            stream.pause = Duration::from_millis(20);
            stream.rest();
            let mut said = Vec::new();
            while let Some(text) = std::future::poll_fn(|context| stream.poll(context)).await {
                said.push(text);
            }
            said
        })
    }

    #[test]
    fn a_waiting_stream_sends_empty_events() {
        let begun = Clock::now();
        type IsBeat = fn(&Value) -> bool;
        let formats: [(Box<dyn Writer>, IsBeat); 5] = [
            (Box::new(anthropic::Messages::new("m")), |event| *event == json!({"type": "ping"})),
            (Box::new(openai::chat::Chat::new("m", false, false)), |event| {
                event["choices"]
                    == json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": null}])
            }),
            // Codex counts events, not bytes.
            (Box::new(openai::responses::Responses::new("m", json!({}), None)), |event| {
                event["type"] == "response.in_progress" && event["sequence_number"].as_u64() > Some(1)
            }),
            (Box::new(ollama::Lines::new(ollama::Route::Chat, "m", begun)), |event| {
                event["message"]["content"] == "" && event["done"] == false
            }),
            (Box::new(ollama::Lines::new(ollama::Route::Generate, "m", begun)), |event| {
                event["response"] == "" && event["done"] == false
            }),
        ];
        for (writer, is_beat) in formats {
            let said = silent(writer);
            let event = |text: &String| {
                let data = text.split_once("data: ").map_or(text.as_str(), |(_, data)| data);
                serde_json::from_str::<Value>(data.trim()).ok()
            };
            let beats = said.iter().filter_map(event).filter(is_beat).count();
            assert!(beats >= 3, "{said:?}");
        }
    }
}
