//! When the work for a request is to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// When the work for a request must end, finished or not.
/// The default: when it is done.
///
/// It is the one place that knows a request's time limit and whether its client is still there:
/// every loop over what a client sent [asks](Until::check) it.
/// It is no part of what is asked, so that any two are equal.
#[derive(Clone, Debug, Default)]
pub struct Until {
    /// Set once nobody waits for it any more.
    pub cancelled: Option<Arc<AtomicBool>>,
    /// When the time is over.
    pub deadline: Option<Instant>,
}

/// The time for a request is over, or its client has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time for the request is over, or its client has left")]
pub struct Over;

impl Until {
    /// Whether it is to end now.
    pub fn is_over(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|cancelled| cancelled.load(Ordering::Relaxed))
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Whether it may go on.
    ///
    /// # Errors
    /// [`Over`] if not.
    pub fn check(&self) -> Result<(), Over> {
        if self.is_over() { Err(Over) } else { Ok(()) }
    }

    /// [`check`](Self::check) for loops with short steps: it asks at every `EVERY`th one.
    pub fn at_step(&self, step: usize) -> Result<(), Over> {
        const EVERY: usize = 256;
        if step.is_multiple_of(EVERY) { self.check() } else { Ok(()) }
    }

    /// The same, and after so much time from now at the latest.
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
