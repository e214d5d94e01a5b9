//! A cache of results, so that the same question is not asked twice.
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

/// The cached results of a session.
/// What runs beside other work sees what was cached before it began, and its own: so the course of
/// a run never depends on threads.
#[derive(Debug, Default)]
pub struct Memo {
    /// By the trace of the work that runs beside other work; 0 = all that is known to everybody.
    cached: Mutex<HashMap<usize, HashMap<Key, Cached>>>,
}

#[derive(Clone, Debug)]
struct Cached {
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
        let cached = self.lock();
        let found = [branch_key(branch), 0].iter().find_map(|branch| cached.get(branch)?.get(key))?;
        found.until.is_none_or(|until| Instant::now() < until).then(|| found.result.clone())
    }

    pub(super) fn keep(&self, branch: Option<&Trace>, key: Key, result: ToolResult, lifetime: Duration) {
        let cached = Cached { result, until: Instant::now().checked_add(lifetime) };
        self.lock().entry(branch_key(branch)).or_default().insert(key, cached);
    }

    /// Makes what was cached in `branch` known in `into`, or forgets it.
    pub(super) fn join(&self, branch: &Trace, into: Option<Option<&Trace>>) {
        let mut cached = self.lock();
        let found = cached.remove(&branch_key(Some(branch)));
        if let (Some(found), Some(into)) = (found, into) {
            cached.entry(branch_key(into)).or_default().extend(found);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, HashMap<Key, Cached>>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn branch_key(branch: Option<&Trace>) -> usize {
    branch.map_or(0, |trace| std::ptr::from_ref(trace).addr())
}
