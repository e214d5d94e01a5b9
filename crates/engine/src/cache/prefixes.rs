//! The prefix cache: what is cached of prompts and answers, and what a new prompt finds of it.
//!
//! A match compares tokens, never hashes; requests with different salts share nothing.

use super::tree::{NodeId, Tree, Walk};
use super::{BlockId, Cache, OutOfMemory, SlotId, Snapshot, Table};

/// Tokens that a snapshot must save at least: fewer are computed again instead.
pub const SNAPSHOT_MIN_GAIN: usize = 16;

/// Tokens between snapshots of a long prompt, where there is memory to spare and no boundary says
/// that others may diverge there.
/// A prompt that diverges between two of them computes half as many tokens again, on average.
pub const SNAPSHOT_EVERY: usize = 512;

/// Cached tokens that [`MissReason::Diverged`] shows.
const SHOWN: usize = 6;

/// What a sequence asks of the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Prompts share with those of the same salt only.
    pub salt: String,
    /// Cache breakpoints: where others may diverge from it, in tokens, ascending: the ends of
    /// static segments, the start of the turn.
    /// There a snapshot is taken.
    pub boundaries: Vec<usize>,
    /// Tokens of static text that it begins with.
    pub pinned: usize,
}

impl Prefix {
    /// One boundary more.
    pub fn add(&mut self, boundary: usize) {
        if let Err(at) = self.boundaries.binary_search(&boundary) {
            self.boundaries.insert(at, boundary);
        }
    }
}

/// Why no more of a prompt was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissReason {
    /// What is cached goes on otherwise.
    Diverged {
        /// Its next tokens.
        cached: Vec<u32>,
    },
    /// What follows was evicted.
    Evicted {
        /// How many tokens.
        tokens: usize,
    },
    /// What follows is cached, but not the state that it takes to go on from there.
    NoState {
        /// How many tokens.
        tokens: usize,
    },
}

/// What the cache has of a prompt.
#[derive(Debug, Default)]
pub struct Hit {
    path: Vec<NodeId>,
    /// Tokens that need not be computed.
    pub len: usize,
    /// Whose snapshot it goes on from.
    snapshot: Option<NodeId>,
    /// Tokens up to which it is one of the prompts that were seen before.
    pub seen: usize,
    /// Why it is no more; `None` if nothing that is cached goes on after it.
    pub stop: Option<MissReason>,
}

/// Where the cache of a text lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixLocation {
    /// Blocks of layers that see everything, from the first token on.
    pub full: Vec<BlockId>,
    /// Blocks of windowed layers; only those of the last window are valid.
    pub windowed: Vec<BlockId>,
    /// The recurrent state at its end.
    pub slot: Option<SlotId>,
}

/// The radix tree, as sequences see it.
/// A hit shares blocks and moves nothing; many can hold one at once.
#[derive(Debug, Default)]
pub struct Prefixes {
    tree: Tree,
}

impl Prefixes {
    /// The longest cached prefix of `prompt`, at most `limit` tokens.
    pub fn find(&self, cache: &Cache, salt: &str, prompt: &[u32], limit: usize) -> Hit {
        let Walk { path, len: seen } = self.tree.walk(salt, &prompt[..limit.min(prompt.len())]);
        let there = path.iter().take_while(|id| self.tree.node(**id).is_cached()).count();
        let cached = path[..there].last().map_or(0, |id| self.tree.node(*id).end().min(seen));
        let (len, snapshot) = match cache.has_state() {
            false => (cached, None),
            true => self.state(cache, &path[..there], cached),
        };
        let stop = if seen > cached {
            Some(MissReason::Evicted { tokens: seen - len })
        } else if cached > len {
            Some(MissReason::NoState { tokens: cached - len })
        } else {
            self.otherwise(salt, &path, seen)
                .filter(|_| seen < limit)
                .map(|cached| MissReason::Diverged { cached })
        };
        Hit { path, len, snapshot, seen, stop }
    }

    /// The last point of `path`, at most after `cached` tokens, that a snapshot serves.
    fn state(&self, cache: &Cache, path: &[NodeId], cached: usize) -> (usize, Option<NodeId>) {
        let ends = path.iter().rev().filter(|id| {
            let node = self.tree.node(**id);
            node.snapshot.is_some() && node.end() <= cached
        });
        let before = ends.clone().next().map_or((0, None), |id| (self.tree.node(*id).end(), Some(*id)));
        if before.0 == cached || cache.recurrent() {
            return before;
        }
        // A window that was cached further on may still reach back to here.
        let mut open: Vec<NodeId> = path.last().copied().into_iter().collect();
        while let Some(id) = open.pop() {
            let node = self.tree.node(id);
            let serves = |snapshot: &Snapshot| cache.serves(snapshot, node.end(), cached);
            if node.end() >= cached && node.snapshot.as_ref().is_some_and(serves) {
                return (cached, Some(id));
            }
            open.extend(&node.children);
        }
        before
    }

    /// The next known tokens after the first `seen` tokens of `path`.
    fn otherwise(&self, salt: &str, path: &[NodeId], seen: usize) -> Option<Vec<u32>> {
        let last = path.last().copied().or(self.tree.root(salt))?;
        let node = self.tree.node(last);
        let rest = &node.tokens[seen - node.start..];
        let rest = match rest.is_empty() {
            false => rest,
            true => {
                let children = node.children.iter().map(|id| self.tree.node(*id));
                &children.max_by_key(|child| child.used)?.tokens
            }
        };
        Some(rest[..rest.len().min(SHOWN)].to_vec())
    }

    /// A table that holds `hit`, which must be the latest that was found, and the copy of recurrent
    /// state that the backend must do.
    pub fn attach(&mut self, cache: &mut Cache, hit: &Hit) -> (Table, Option<(SlotId, SlotId)>) {
        self.tree.clock += 1;
        for &id in &hit.path {
            self.tree.node_mut(id).used = self.tree.clock;
        }
        if hit.len == 0 {
            return (Table::default(), None);
        }
        let size = cache.layout().block_tokens;
        let blocks: Vec<BlockId> = self.tree.blocks(&hit.path, hit.len, size);
        let Some(id) = hit.snapshot else {
            return cache.resume(blocks, hit.len, None).unwrap_or_default();
        };
        self.tree.node_mut(id).resumed = self.tree.clock;
        loop {
            let snapshot = self.tree.node(id).snapshot.as_ref();
            if let Some(resumed) = cache.resume(blocks.clone(), hit.len, snapshot) {
                return resumed;
            }
            match self.tree.snapshot_to_evict(Some(id)) {
                Some(other) => self.evict_snapshot(cache, other),
                // All other slots are those of running sequences.
                None => return (Table::default(), None),
            }
        }
    }

    /// Learns what a sequence has computed of `tokens`, so that others can share it from now on.
    pub fn learn(&mut self, cache: &mut Cache, prefix: &Prefix, tokens: &[u32], table: &Table) {
        self.tree.extend(cache, &prefix.salt, tokens, table);
        for &boundary in prefix.boundaries.iter().filter(|boundary| **boundary <= table.len()) {
            if let Some(id) = self.tree.cut(cache, &prefix.salt, tokens, boundary)
                && boundary <= prefix.pinned
            {
                let node = self.tree.node_mut(id);
                (node.pinned, node.ends_segment) = (true, true);
            }
        }
        self.tree.forget_beyond(cache.capacity());
    }

    /// Takes a snapshot after the first `at` tokens, of which the latest step computed the last;
    /// `slot` has its recurrent part.
    pub fn insert_snapshot(
        &mut self,
        cache: &mut Cache,
        prefix: &Prefix,
        tokens: &[u32],
        table: &Table,
        (at, slot): (usize, Option<SlotId>),
    ) {
        self.learn(cache, prefix, tokens, table);
        let snapshot = cache.snapshot(table, at, slot);
        self.put(cache, &prefix.salt, &tokens[..at], snapshot);
    }

    /// Caches what a sequence that goes no further has computed of `tokens`.
    pub fn insert(&mut self, cache: &mut Cache, prefix: &Prefix, tokens: &[u32], table: Table) {
        self.tree.clock += 1;
        self.learn(cache, prefix, tokens, &table);
        let computed = &tokens[..tokens.len().min(table.len())];
        let snapshot = cache.take_snapshot(table);
        match cache.has_state() && !computed.is_empty() {
            true => self.put(cache, &prefix.salt, computed, snapshot),
            false => cache.release_snapshot(snapshot),
        }
    }

    /// Where all lies that going on after `tokens` takes; `None` if any of it is not cached.
    pub fn locate(&self, cache: &Cache, salt: &str, tokens: &[u32]) -> Option<PrefixLocation> {
        let Walk { path, len } = self.tree.walk(salt, tokens);
        let cached = path.iter().all(|id| self.tree.node(*id).is_cached());
        if !cached || len < tokens.len() {
            return None;
        }
        let full = self.tree.blocks(&path, len, cache.layout().block_tokens);
        if !cache.has_state() {
            return Some(PrefixLocation { full, windowed: Vec::new(), slot: None });
        }
        let last = self.tree.node(*path.last()?);
        let snapshot = last.snapshot.as_ref().filter(|_| last.end() == len)?;
        let (windowed, slot) = cache.location(snapshot, len)?;
        Some(PrefixLocation { full, windowed: windowed.to_vec(), slot })
    }

    /// Puts `snapshot` after all of `tokens`, unless there is one.
    fn put(&mut self, cache: &mut Cache, salt: &str, tokens: &[u32], snapshot: Snapshot) {
        let clock = self.tree.clock;
        let node = self.tree.cut(cache, salt, tokens, tokens.len()).map(|id| self.tree.node_mut(id));
        match node.filter(|node| node.snapshot.is_none() && node.is_cached()) {
            Some(node) => (node.snapshot, node.resumed) = (Some(snapshot), clock),
            None => cache.release_snapshot(snapshot),
        }
    }

    /// A slot for a snapshot, if need be an evicted one's; `None` if running sequences have all.
    pub fn slot(&mut self, cache: &mut Cache) -> Option<SlotId> {
        loop {
            if let Some(slot) = cache.take_slot() {
                return Some(slot);
            }
            let node = self.tree.snapshot_to_evict(None)?;
            self.evict_snapshot(cache, node);
        }
    }

    /// Evicts what is worth least of what holds the memory that ran out; false if there is nothing.
    pub fn evict(&mut self, cache: &mut Cache, kind: OutOfMemory) -> bool {
        match kind {
            OutOfMemory::Blocks => self.tree.node_to_evict(cache).map(|id| self.tree.evict(cache, id)),
            OutOfMemory::Snapshots => {
                self.tree.snapshot_to_evict(None).map(|id| self.evict_snapshot(cache, id))
            }
        }
        .is_some()
    }

    /// The static text that [`Prefixes::evict`] would evict next: its salt, its tokens from the
    /// beginning on, and how many of them could be resumed from without it.
    /// `None` if that is no static text.
    pub fn eviction_candidate(&self, cache: &Cache, kind: OutOfMemory) -> Option<(String, Vec<u32>, usize)> {
        let id = match kind {
            OutOfMemory::Blocks => self.tree.node_to_evict(cache),
            OutOfMemory::Snapshots => self.tree.snapshot_to_evict(None),
        }?;
        let node = self.tree.node(id);
        let start = if cache.has_state() { self.tree.snapshot_before(node) } else { node.start };
        let is_static = match kind {
            OutOfMemory::Blocks => node.pinned,
            OutOfMemory::Snapshots => node.ends_segment,
        };
        is_static.then(|| {
            let (salt, tokens) = self.tree.text(id);
            (salt, tokens, start)
        })
    }

    fn evict_snapshot(&mut self, cache: &mut Cache, id: NodeId) {
        if let Some(snapshot) = self.tree.node_mut(id).snapshot.take() {
            cache.release_snapshot(snapshot);
        }
    }
}

#[cfg(test)]
#[path = "prefixes_tests.rs"]
mod tests;
