//! A running turn: a thread that talks to the endpoint, and its events.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

use alara_engine::{Event, Format, Request};

use super::answer::{Answer, Flaw};
use super::client::{Asked, Client, Trouble};
use super::{EndpointError, sse};
use crate::model::{BEAT, ModelError, nothing};

/// Most bytes of an answer.
const MOST: u64 = 256 << 20;

/// The events of a turn.
/// Dropping it closes the connection, whatever it is waiting for.
pub(super) struct Turn {
    client: Arc<Client>,
    agent: ureq::Agent,
    events: Receiver<Result<Event, EndpointError>>,
    /// Nothing is sent here: when it is dropped, the thread stops waiting for its next try.
    _listener: Sender<Infallible>,
    /// When the last piece arrived, once the answer has begun.
    heard: Option<Instant>,
    ended: bool,
}

impl Turn {
    /// Requests the turn.
    ///
    /// # Errors
    /// [`EndpointError::Thread`].
    pub(super) fn start(
        client: Arc<Client>,
        model: &str,
        format: Option<&'static Format>,
        request: Request,
        body: String,
    ) -> io::Result<Self> {
        let agent = client.agent();
        let (sender, events) = channel();
        let (listener, listening) = channel();
        let worker = Worker {
            client: client.clone(),
            agent: agent.clone(),
            model: model.to_owned(),
            format,
            request,
            body,
            sender,
            listening,
            started: Instant::now(),
            begun: false,
        };
        std::thread::Builder::new().name("endpoint".into()).spawn(move || worker.run())?;
        Ok(Turn { client, agent, events, _listener: listener, heard: None, ended: false })
    }
}

impl Iterator for Turn {
    type Item = Result<Event, ModelError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let idle = self.client.options.idle;
        let event = match self.events.recv_timeout(BEAT) {
            Ok(event) => {
                if self.heard.is_some() || !matches!(&event, Ok(Event::Text { text }) if text.is_empty()) {
                    self.heard = Some(Instant::now());
                }
                event
            }
            Err(RecvTimeoutError::Timeout) if self.heard.is_some_and(|heard| heard.elapsed() > idle) => {
                Err(EndpointError::Silent { url: self.client.url(), seconds: idle.as_secs() })
            }
            Err(RecvTimeoutError::Timeout) => Ok(nothing()),
            Err(RecvTimeoutError::Disconnected) => Err(self.client.nonsense("its answer could not be taken")),
        };
        self.ended = matches!(event, Ok(Event::Done { .. }) | Err(_));
        Some(event.map_err(ModelError::new))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.agent.clone().shutdown();
    }
}

/// The state of the thread.
struct Worker {
    client: Arc<Client>,
    agent: ureq::Agent,
    model: String,
    format: Option<&'static Format>,
    request: Request,
    body: String,
    sender: Sender<Result<Event, EndpointError>>,
    listening: Receiver<Infallible>,
    started: Instant,
    /// Whether an event was sent.
    /// Then the turn can't be retried.
    begun: bool,
}

impl Worker {
    fn run(mut self) {
        let options = self.client.options.clone();
        let mut tries = 0;
        let error = loop {
            let (error, wait) = match self.attempt() {
                Ok(()) => return,
                Err(Trouble::Final(error)) => break error,
                Err(Trouble::Passing { error, wait }) => (error, wait),
            };
            if self.begun || tries == options.retries {
                break error;
            }
            let wait = wait.unwrap_or_else(|| options.backoff.saturating_mul(1 << tries.min(16)));
            tries += 1;
            if self.listening.recv_timeout(wait.min(options.longest_wait)) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        };
        let _ = self.sender.send(Err(error));
    }

    /// Sends the request once, and passes on the answer.
    fn attempt(&mut self) -> Result<(), Trouble> {
        let with_tools = self.format.is_none() && !self.request.tools.is_empty();
        let asked = Asked { model: &self.model, with_tools };
        let response = self.client.post(&self.agent, &self.body, asked)?;
        let mut reader = response.into_body().into_with_config().limit(MOST).reader();
        let mut answer = Answer::new(&self.request, self.format, self.started);
        let mut events = sse::Events::default();
        // An answer that isn't streamed, which begins unlike any event.
        let mut whole: Option<Vec<u8>> = None;
        let mut buffer = vec![0; 1 << 14];
        let mut any = false;
        loop {
            let bytes = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => &buffer[..count],
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.client.trouble(error.into())),
            };
            if !any && bytes.trim_ascii_start().starts_with(b"{") {
                whole = Some(Vec::new());
            }
            any |= !bytes.trim_ascii_start().is_empty();
            if let Some(whole) = &mut whole {
                whole.extend_from_slice(bytes);
                continue;
            }
            for data in events.push(bytes) {
                if data.trim() == "[DONE]" {
                    return self.end(answer);
                }
                let events = answer.push(&data).map_err(|flaw| self.flawed(flaw))?;
                if !self.send(events) {
                    return Ok(());
                }
            }
            // Comments keep the listener waiting too.
            let _ = self.sender.send(Ok(nothing()));
        }
        if let Some(whole) = whole {
            let text = String::from_utf8_lossy(&whole);
            let events = answer.push(&text).map_err(|flaw| self.flawed(flaw))?;
            self.send(events);
            return self.end(answer);
        }
        if answer.is_ended() {
            return self.end(answer);
        }
        if any && !events.any() {
            return Err(Trouble::Final(self.client.nonsense("there are no events in its answer")));
        }
        let error =
            EndpointError::BrokenOff { url: self.client.url(), reason: "the answer has no end".into() };
        Err(Trouble::Passing { error, wait: None })
    }

    fn end(&mut self, answer: Answer) -> Result<(), Trouble> {
        let events = answer.finish().map_err(|flaw| self.flawed(flaw))?;
        self.send(events);
        Ok(())
    }

    /// Sends events; returns false if the receiver is gone.
    fn send(&mut self, events: Vec<Event>) -> bool {
        self.begun |= !events.is_empty();
        events.into_iter().all(|event| self.sender.send(Ok(event)).is_ok())
    }

    fn flawed(&self, flaw: Flaw) -> Trouble {
        let (client, url) = (&self.client, self.client.url());
        Trouble::Final(match flaw {
            Flaw::Nonsense(reason) => client.nonsense(&reason),
            Flaw::Failed(message) => {
                EndpointError::Failed { url, message: format!(": {}", client.shown(&message)) }
            }
            Flaw::Filtered => EndpointError::Filtered { url },
            Flaw::NotJson(reason) => EndpointError::NotJson { reason },
        })
    }
}
