//! Work that blocks, beside the connections: who may work now, and how the pieces of an answer come
//! from there.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::wire::{Piece, Refusal};

/// How many pieces may wait for the client before the model has to.
const PIECES: usize = 64;
/// How often a client that does not read is looked at again.
const LOOK: Duration = Duration::from_millis(10);

/// A piece, or why there are no more.
pub type Item = Result<Piece, Refusal>;

/// What is to be done.
/// It tells its pieces, or gives the reason why it can't begin or go on.
pub type Work = Box<dyn FnOnce(&Listener) -> Result<(), Refusal> + Send>;

/// How many may work, and how many may wait for that.
pub struct Slots {
    places: Arc<Semaphore>,
    slots: Arc<Semaphore>,
}

impl Slots {
    /// Room for `parallel` that work and `queue` that wait.
    pub fn new(parallel: usize, queue: usize) -> Self {
        let semaphore = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Slots { places: semaphore(parallel.saturating_add(queue)), slots: semaphore(parallel) }
    }

    /// Does `work` on a thread of its own when there is a slot, until `deadline`.
    /// What it tells is heard by the answering; when that is dropped, the listener's `cancel` is
    /// set, and the slot is free once the work has ended.
    ///
    /// # Errors
    /// Too many wait already, or the time is over before there is a slot.
    pub async fn start(&self, deadline: Instant, work: Work) -> Result<Answering, Refusal> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| Refusal::busy())?;
        let slot = timeout_at(deadline, self.slots.clone().acquire_owned()).await;
        let slot = slot.map_err(|_| Refusal::late())?.map_err(|_| Refusal::busy())?;
        let held: (OwnedSemaphorePermit, OwnedSemaphorePermit) = (place, slot);
        let (sender, receiver) = mpsc::channel(PIECES);
        let cancel = Arc::new(AtomicBool::new(false));
        let listener = Listener { sender, deadline, cancel: cancel.clone() };
        tokio::task::spawn_blocking(move || {
            if let Err(refusal) = work(&listener) {
                listener.send(Err(refusal));
            }
            drop(held);
        });
        Ok(Answering { receiver, cancel, deadline: Box::pin(sleep_until(deadline)), ended: false })
    }
}

/// Whom the work tells what it has.
pub struct Listener {
    sender: mpsc::Sender<Item>,
    deadline: Instant,
    /// Set when nobody listens any more.
    pub cancel: Arc<AtomicBool>,
}

impl Listener {
    /// Tells a piece.
    /// False if nobody listens any more.
    pub fn send(&self, item: Item) -> bool {
        let mut item = item;
        loop {
            match self.sender.try_send(item) {
                Ok(()) => return true,
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
                Err(mpsc::error::TrySendError::Full(back)) => item = back,
            }
            // A client that holds the line but does not read must not hold the slot for ever.
            if Instant::now() >= self.deadline {
                self.cancel.store(true, Ordering::Relaxed);
            }
            if self.is_left() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether nobody listens any more.
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
    /// The next piece; none after the end or an error.
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

    /// As [`poll_next`](Self::poll_next).
    pub async fn next(&mut self) -> Option<Item> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
    }
}
