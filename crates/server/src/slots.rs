//! Slots for blocking work: limit how much runs at once, and carry the pieces of an answer to the
//! connection.
//!
//! A client that disconnects cancels its work.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use alara_engine::Until;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::answer::{Item, Piece};
use crate::metrics::{Load, Metrics};
use crate::refusal::Refusal;

/// Number of pieces that may wait for the client before the model pauses.
const PIECES: usize = 1024;
/// Polling interval for a client that doesn't read.
const LOOK: Duration = Duration::from_millis(10);
/// Bounds, in seconds, of the delay suggested to a refused client.
const WAIT: (u64, u64) = (1, 60);

/// Work to do.
/// It sends its pieces, or returns the reason why it can't begin or continue.
pub type Work = Box<dyn FnOnce(&Listener) -> Result<(), Refusal> + Send>;

/// Limits for running and waiting work.
pub struct Slots {
    parallel: usize,
    queue: usize,
    places: Arc<Semaphore>,
    slots: Arc<Semaphore>,
    /// How long a connected client may stop reading while pieces wait for it.
    patience: Duration,
    /// Recent duration of work in milliseconds: a mean with more weight on recent values.
    took: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
}

impl Slots {
    /// Creates slots for `parallel` running and `queue` waiting requests.
    pub fn new(parallel: usize, queue: usize, patience: Duration, metrics: Arc<Metrics>) -> Self {
        let semaphore = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        let places = semaphore(parallel.saturating_add(queue));
        Slots { parallel, queue, places, slots: semaphore(parallel), patience, took: Arc::default(), metrics }
    }

    /// Returns the maximum number of running requests.
    pub fn parallel(&self) -> usize {
        self.parallel
    }

    /// Returns the number of running requests.
    fn working(&self) -> usize {
        self.parallel.saturating_sub(self.slots.available_permits())
    }

    /// Returns the number of waiting requests.
    fn waiting(&self) -> usize {
        let here = (self.parallel + self.queue).saturating_sub(self.places.available_permits());
        here.saturating_sub(self.working())
    }

    /// Returns the numbers of running and waiting requests.
    pub fn load(&self) -> Load {
        Load { parallel: self.parallel, working: self.working(), waiting: self.waiting() }
    }

    /// Estimates, from recent durations, the seconds until the waiting requests are done.
    pub fn wait(&self) -> u64 {
        let all = self.took.load(Ordering::Relaxed) * self.waiting() as u64;
        (all / 1000).div_ceil(self.parallel as u64).clamp(WAIT.0, WAIT.1)
    }

    /// Runs `work` on a separate thread when a slot is free, until `deadline`.
    /// Its pieces arrive at the returned [`Answering`].
    /// Dropping that sets the listener's `cancel`; the slot becomes free when the work has ended.
    ///
    /// # Errors
    /// Too many requests are waiting, or the deadline passes before a slot is free.
    pub async fn start(&self, deadline: Instant, work: Work) -> Result<Answering, Refusal> {
        let busy = || Refusal::busy(self.wait());
        let place = self.places.clone().try_acquire_owned().map_err(|_| busy())?;
        let slot = timeout_at(deadline, self.slots.clone().acquire_owned()).await;
        let slot = slot.map_err(|_| Refusal::late())?.map_err(|_| busy())?;
        let held: (OwnedSemaphorePermit, OwnedSemaphorePermit) = (place, slot);
        let (sender, receiver) = mpsc::channel(PIECES);
        let cancel = Arc::new(AtomicBool::new(false));
        let (patience, metrics) = (self.patience, self.metrics.clone());
        let listener = Listener { sender, deadline, patience, cancel: cancel.clone(), metrics };
        let took = self.took.clone();
        let begun = Instant::now();
        tokio::task::spawn_blocking(move || {
            if let Err(refusal) = work(&listener) {
                listener.send(Err(refusal));
            }
            let this = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            // Simultaneous updates may lose one value, which doesn't matter for a mean.
            took.store((took.load(Ordering::Relaxed) * 7 + this) / 8, Ordering::Relaxed);
            drop(held);
        });
        Ok(Answering { receiver, cancel, deadline: Box::pin(sleep_until(deadline)), ended: false })
    }
}

/// The receiver of the work's output.
pub struct Listener {
    sender: mpsc::Sender<Item>,
    deadline: Instant,
    patience: Duration,
    /// Set when the client has left.
    pub cancel: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
}

impl Listener {
    /// Sends a piece.
    /// Returns false if the client has left.
    pub fn send(&self, item: Item) -> bool {
        self.metrics.count(&item);
        let mut item = item;
        // A connected client that doesn't read must not occupy the slot for long.
        let until = self.deadline.min(Instant::now() + self.patience);
        loop {
            match self.sender.try_send(item) {
                Ok(()) => return true,
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
                Err(mpsc::error::TrySendError::Full(back)) => item = back,
            }
            if Instant::now() >= until {
                self.cancel.store(true, Ordering::Relaxed);
            }
            if self.is_left() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Returns the condition under which work before the first piece has to end.
    pub fn until(&self) -> Until {
        Until { cancelled: Some(self.cancel.clone()), deadline: Some(self.deadline.into_std()) }
    }

    /// Whether the client has left.
    pub fn is_left(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

/// The pieces of an answer as they come.
/// Dropping it cancels the work.
pub struct Answering {
    receiver: mpsc::Receiver<Item>,
    cancel: Arc<AtomicBool>,
    deadline: Pin<Box<Sleep>>,
    ended: bool,
}

impl Answering {
    /// Polls for the next piece; none after the end or an error.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let item = match self.receiver.poll_recv(context) {
            Poll::Ready(item) => item.unwrap_or_else(|| Err(Refusal::silent())),
            Poll::Pending => match self.deadline.as_mut().poll(context) {
                Poll::Ready(()) => Err(Refusal::late()),
                Poll::Pending => return Poll::Pending,
            },
        };
        self.ended = matches!(item, Ok(Piece::End(_)) | Err(_));
        if item.is_err() {
            self.cancel.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Some(item))
    }

    /// Like [`poll_next`](Self::poll_next).
    pub async fn next(&mut self) -> Option<Item> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
    }
}
