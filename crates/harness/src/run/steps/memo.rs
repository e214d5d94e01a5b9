//! A cache of results, so that the same question isn't asked twice.
//! Never caches steps that write.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::trace::Trace;
use crate::types::ToolResult;

/// A hash of everything that a result depends on.
pub(super) type Key = [u8; 32];

/// The cached results of a session.
/// A parallel branch sees the results from before it began, and its own: so the course of a run
/// never depends on threads.
#[derive(Debug, Default)]
pub struct Memo {
    /// Results by the trace of the branch; 0 holds those that all can see.
    cached: Mutex<HashMap<usize, HashMap<Key, Cached>>>,
}

#[derive(Clone, Debug)]
struct Cached {
    result: ToolResult,
    /// `None` keeps it as long as the session.
    until: Option<Instant>,
}

/// The key of everything that a result depends on.
pub(super) fn key(parts: &impl Serialize) -> Option<Key> {
    Some(Sha256::digest(serde_json::to_vec(parts).ok()?).into())
}

impl Memo {
    /// The result for `key`, if `branch` can see it and it is still fresh.
    pub(super) fn find(&self, branch: Option<&Trace>, key: &Key) -> Option<ToolResult> {
        let cached = self.lock();
        let found = [branch_key(branch), 0].iter().find_map(|branch| cached.get(branch)?.get(key))?;
        found.until.is_none_or(|until| Instant::now() < until).then(|| found.result.clone())
    }

    pub(super) fn keep(&self, branch: Option<&Trace>, key: Key, result: ToolResult, lifetime: Duration) {
        let cached = Cached { result, until: Instant::now().checked_add(lifetime) };
        self.lock().entry(branch_key(branch)).or_default().insert(key, cached);
    }

    /// Makes the results cached in `branch` visible in `into`, or forgets them.
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
