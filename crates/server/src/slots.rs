//! Work that blocks, beside the connections: who may work now, and how the pieces of an answer come
//! from there.
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

/// How many pieces may wait for the client before the model has to.
const PIECES: usize = 1024;
/// How often a client that does not read is looked at again.
const LOOK: Duration = Duration::from_millis(10);
/// Bounds of what a client that is refused is told to wait, in seconds.
const WAIT: (u64, u64) = (1, 60);

/// What is to be done.
/// It tells its pieces, or gives the reason why it can't begin or go on.
pub type Work = Box<dyn FnOnce(&Listener) -> Result<(), Refusal> + Send>;

/// How many may work, and how many may wait for that.
pub struct Slots {
    parallel: usize,
    queue: usize,
    places: Arc<Semaphore>,
    slots: Arc<Semaphore>,
    /// How long a client that holds the line may read nothing while pieces wait for it.
    patience: Duration,
    /// Milliseconds that work took lately: a mean in which the latest count most.
    took: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
}

impl Slots {
    /// For `parallel` that work and `queue` that wait.
    pub fn new(parallel: usize, queue: usize, patience: Duration, metrics: Arc<Metrics>) -> Self {
        let semaphore = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        let places = semaphore(parallel.saturating_add(queue));
        Slots { parallel, queue, places, slots: semaphore(parallel), patience, took: Arc::default(), metrics }
    }

    /// How many may work at a time.
    pub fn parallel(&self) -> usize {
        self.parallel
    }

    /// How many work.
    fn working(&self) -> usize {
        self.parallel.saturating_sub(self.slots.available_permits())
    }

    /// How many wait.
    fn waiting(&self) -> usize {
        let here = (self.parallel + self.queue).saturating_sub(self.places.available_permits());
        here.saturating_sub(self.working())
    }

    /// How many work, and how many wait.
    pub fn load(&self) -> Load {
        Load { parallel: self.parallel, working: self.working(), waiting: self.waiting() }
    }

    /// Seconds until those who wait now will have been served, by what work took lately.
    pub fn wait(&self) -> u64 {
        let all = self.took.load(Ordering::Relaxed) * self.waiting() as u64;
        (all / 1000).div_ceil(self.parallel as u64).clamp(WAIT.0, WAIT.1)
    }

    /// Does `work` on a thread of its own when there is a slot, until `deadline`.
    /// What it tells is heard by the answering.
    /// When that is dropped, the listener's `cancel` is set; the slot is free once the work has
    /// ended.
    ///
    /// # Errors
    /// Too many wait already, or the time is over before there is a slot.
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
            // Several that end at once may lose one of them, which a mean can do without.
            took.store((took.load(Ordering::Relaxed) * 7 + this) / 8, Ordering::Relaxed);
            drop(held);
        });
        Ok(Answering { receiver, cancel, deadline: Box::pin(sleep_until(deadline)), ended: false })
    }
}

/// Whom the work tells what it has.
pub struct Listener {
    sender: mpsc::Sender<Item>,
    deadline: Instant,
    patience: Duration,
    /// Set when nobody listens any more.
    pub cancel: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
}

impl Listener {
    /// Tells a piece.
    /// False if nobody listens any more.
    pub fn send(&self, item: Item) -> bool {
        self.metrics.count(&item);
        let mut item = item;
        // A client that holds the line but does not read must not hold the slot for long.
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

    /// When the work is to end that comes before the first piece.
    pub fn until(&self) -> Until {
        Until { cancelled: Some(self.cancel.clone()), deadline: Some(self.deadline.into_std()) }
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
