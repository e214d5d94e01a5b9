//! The events of a turn being generated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::Poll;
use std::time::Duration;

use alara_text::request::Event;

use crate::{Error, Result};

/// The events of one turn, as they happen.
/// None follow an error or `Done`.
#[derive(Debug)]
pub struct Events {
    pub(super) receiver: mpsc::Receiver<Result<Event>>,
    pub(super) cancelled: Arc<AtomicBool>,
    pub(super) ended: bool,
}

impl Events {
    /// The next event; pending if none arrives within `time`, for example during a long prefill.
    pub fn poll(&mut self, time: Duration) -> Poll<Option<Result<Event>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let event = match self.receiver.recv_timeout(time) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => return Poll::Pending,
            Err(RecvTimeoutError::Disconnected) => Err(Error::Stopped),
        };
        self.ended = matches!(event, Ok(Event::Done { .. }) | Err(_));
        Poll::Ready(Some(event))
    }
}

impl Iterator for Events {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Poll::Ready(event) = self.poll(Duration::MAX) {
                return event;
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}
