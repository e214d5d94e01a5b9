//! Results that are kept for a while, so that the same question is not asked twice.
//! Never for what writes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::trace::Trace;
use crate::types::ToolResult;

/// What a result depends on, as a hash.
pub(super) type Key = [u8; 32];

/// The kept results of a session.
/// What runs beside other work sees what was kept before it began, and its own: so the course of a
/// run never depends on threads.
#[derive(Debug, Default)]
pub struct Memo {
    /// By the trace of the work that runs beside other work; 0 = all that is known to everybody.
    kept: Mutex<HashMap<usize, HashMap<Key, Kept>>>,
}

#[derive(Clone, Debug)]
struct Kept {
    result: ToolResult,
    /// `None` = as long as the session.
    until: Option<Instant>,
}

/// The key of everything that a result depends on.
pub(super) fn key(parts: &impl Serialize) -> Option<Key> {
    Some(Sha256::digest(serde_json::to_vec(parts).ok()?).into())
}

impl Memo {
    /// The result for `key`, if it is known in `branch` and still fresh.
    pub(super) fn find(&self, branch: Option<&Trace>, key: &Key) -> Option<ToolResult> {
        let kept = self.lock();
        let found = [place(branch), 0].iter().find_map(|place| kept.get(place)?.get(key))?;
        found.until.is_none_or(|until| Instant::now() < until).then(|| found.result.clone())
    }

    pub(super) fn keep(&self, branch: Option<&Trace>, key: Key, result: ToolResult, lifetime: Duration) {
        let kept = Kept { result, until: Instant::now().checked_add(lifetime) };
        self.lock().entry(place(branch)).or_default().insert(key, kept);
    }

    /// Makes what was kept in `branch` known in `into`, or forgets it.
    pub(super) fn join(&self, branch: &Trace, into: Option<Option<&Trace>>) {
        let mut kept = self.lock();
        let found = kept.remove(&place(Some(branch)));
        if let (Some(found), Some(into)) = (found, into) {
            kept.entry(place(into)).or_default().extend(found);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, HashMap<Key, Kept>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(branch: Option<&Trace>) -> usize {
    branch.map_or(0, |trace| std::ptr::from_ref(trace).addr())
}
