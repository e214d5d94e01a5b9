//! The prefix cache: caches prompts and answers, and looks up prefixes of new prompts.
//!
//! A match compares tokens, never hashes; requests with different salts share nothing.

use super::tree::{NodeId, Tree, Walk};
use super::{BlockId, Cache, OutOfMemory, SlotId, Snapshot, Table};

/// Fewest tokens that a snapshot must save: recomputing fewer is cheaper.
pub const SNAPSHOT_MIN_GAIN: usize = 16;

/// Tokens between snapshots of a long prompt, if memory is available and no boundary marks a likely
/// point of divergence.
/// A prompt that diverges between two snapshots recomputes half of this on average.
pub const SNAPSHOT_EVERY: usize = 512;

/// How many cached tokens [`MissReason::Diverged`] shows.
const SHOWN: usize = 6;

/// How a sequence uses the prefix cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Prompts only share cache entries with prompts of the same salt.
    pub salt: String,
    /// Cache breakpoints, in tokens, ascending: where other prompts may diverge from it, at the
    /// ends of static segments and at the start of the turn.
    /// A snapshot is taken at each.
    pub boundaries: Vec<usize>,
    /// Number of static tokens at its beginning.
    pub pinned: usize,
}

impl Prefix {
    /// Adds a boundary.
    pub fn add(&mut self, boundary: usize) {
        if let Err(at) = self.boundaries.binary_search(&boundary) {
            self.boundaries.insert(at, boundary);
        }
    }
}

/// Why no more tokens of a prompt were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissReason {
    /// The cached tokens continue differently.
    Diverged {
        /// The next cached tokens.
        cached: Vec<u32>,
    },
    /// The following tokens were evicted.
    Evicted {
        /// Number of evicted tokens.
        tokens: usize,
    },
    /// The following tokens are cached, but not the state needed to continue from them.
    NoState {
        /// Number of cached tokens without state.
        tokens: usize,
    },
}

/// The cached part of a prompt.
#[derive(Debug, Default)]
pub struct Hit {
    path: Vec<NodeId>,
    /// Number of tokens that need not be computed.
    pub len: usize,
    /// The node whose snapshot to continue from.
    snapshot: Option<NodeId>,
    /// Number of tokens shared with any earlier prompt.
    pub seen: usize,
    /// Why no more tokens were found; `None` if no cached prompt continues after them.
    pub stop: Option<MissReason>,
}

/// The location of a text's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixLocation {
    /// Blocks of full-attention layers, from the first token on.
    pub full: Vec<BlockId>,
    /// Blocks of windowed layers; only those in the last window are valid.
    pub windowed: Vec<BlockId>,
    /// The recurrent state at the text's end.
    pub slot: Option<SlotId>,
}

/// The prefix cache's interface for sequences, on top of the radix tree.
/// A hit shares blocks without copying; many sequences can hold the same one.
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

    /// The last point of `path`, within the `cached` tokens, with a usable snapshot.
    fn state(&self, cache: &Cache, path: &[NodeId], cached: usize) -> (usize, Option<NodeId>) {
        let ends = path.iter().rev().filter(|id| {
            let node = self.tree.node(**id);
            node.snapshot.is_some() && node.end() <= cached
        });
        let before = ends.clone().next().map_or((0, None), |id| (self.tree.node(*id).end(), Some(*id)));
        if before.0 == cached || cache.recurrent() {
            return before;
        }
        // A window that was cached later in the sequence may still reach back to here.
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

    /// A table that holds `hit`, which must be the latest one found, and the copy of recurrent
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
                // Running sequences use all other slots.
                None => return (Table::default(), None),
            }
        }
    }

    /// Registers the computed part of `tokens`, so that other sequences can share it from now on.
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

    /// Takes a snapshot after the first `at` tokens, the last of which were computed by the latest
    /// step;
    /// `slot` contains its recurrent part.
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

    /// Caches the computed part of `tokens` of a finished sequence.
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

    /// The location of everything needed to continue after `tokens`; `None` if any of it isn't
    /// cached.
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

    /// Stores `snapshot` after all of `tokens`, unless there is one.
    fn put(&mut self, cache: &mut Cache, salt: &str, tokens: &[u32], snapshot: Snapshot) {
        let clock = self.tree.clock;
        let node = self.tree.cut(cache, salt, tokens, tokens.len()).map(|id| self.tree.node_mut(id));
        match node.filter(|node| node.snapshot.is_none() && node.is_cached()) {
            Some(node) => (node.snapshot, node.resumed) = (Some(snapshot), clock),
            None => cache.release_snapshot(snapshot),
        }
    }

    /// A slot for a snapshot, evicting another if necessary; `None` if running sequences use them
    /// all.
    pub fn slot(&mut self, cache: &mut Cache) -> Option<SlotId> {
        loop {
            if let Some(slot) = cache.take_slot() {
                return Some(slot);
            }
            let node = self.tree.snapshot_to_evict(None)?;
            self.evict_snapshot(cache, node);
        }
    }

    /// Evicts the least valuable holder of the exhausted memory; false if there is none.
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
    /// beginning, and how many of them could be continued from without it.
    /// `None` if the next eviction isn't static text.
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
