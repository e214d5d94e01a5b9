//! When the work for a request is to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// When what is done for a request before its first token is to end, done or not.
/// The default: when it is done.
///
/// It is no part of what is asked, so that any two are equal.
#[derive(Clone, Debug, Default)]
pub struct Until {
    /// Set once nobody waits for it any more.
    pub cancelled: Option<Arc<AtomicBool>>,
    /// When the time is over.
    pub deadline: Option<Instant>,
}

impl Until {
    /// Whether it is to end now.
    pub fn is_over(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|cancelled| cancelled.load(Ordering::Relaxed))
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
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
