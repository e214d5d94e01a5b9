//! When the work for a request has to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// When the work for a request has to end, even if unfinished.
/// The default sets no limit.
///
/// The only place that knows a request's deadline and whether its client is still connected:
/// every loop over client input [checks](Until::check) it.
/// It isn't part of the request's content, so any two values are equal.
#[derive(Clone, Debug, Default)]
pub struct Until {
    /// Set once the result is no longer wanted.
    pub cancelled: Option<Arc<AtomicBool>>,
    /// The deadline.
    pub deadline: Option<Instant>,
}

/// The deadline of a request has passed, or its client has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time for the request is over, or its client has left")]
pub struct Over;

impl Until {
    /// Whether the work has to end now.
    pub fn is_over(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|cancelled| cancelled.load(Ordering::Relaxed))
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Checks whether the work may continue.
    ///
    /// # Errors
    /// [`Over`] if not.
    pub fn check(&self) -> Result<(), Over> {
        if self.is_over() { Err(Over) } else { Ok(()) }
    }

    /// [`check`](Self::check) for loops with short steps: checks at every `EVERY`th step only.
    pub fn at_step(&self, step: usize) -> Result<(), Over> {
        const EVERY: usize = 256;
        if step.is_multiple_of(EVERY) { self.check() } else { Ok(()) }
    }

    /// Returns the limit with a deadline at most `time` from now.
    pub(crate) fn within(&self, time: Duration) -> Until {
        let latest = Instant::now().checked_add(time);
        Until { deadline: self.deadline.into_iter().chain(latest).min(), ..self.clone() }
    }
}

impl PartialEq for Until {
    fn eq(&self, _: &Until) -> bool {
        true
    }
}
