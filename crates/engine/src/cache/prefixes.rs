//! What is kept of prompts and answers, and what a new prompt finds of it.

use super::tree::{NodeId, Tree, Walk};
use super::{BlockId, Cache, Lack, SlotId, Snapshot, Table};

/// Tokens that a snapshot must save at least: fewer are computed again instead.
pub const SNAPSHOT_GAIN: usize = 16;

/// Tokens between points of a long prompt at which its state is kept, where there is room to spare,
/// though nobody said that others may part from it there.
/// A prompt that parts from it between two of them computes half as many tokens again, on average.
pub const SNAPSHOT_EVERY: usize = 512;

/// Tokens of what was kept that [`Stop::Diverged`] shows.
const SHOWN: usize = 6;

/// What a sequence asks of the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Prompts share with those of the same salt only.
    pub salt: String,
    /// Where others may part from it, in tokens, ascending: the ends of static segments, the start
    /// of the turn.
    /// There the state of a model that has one is kept.
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
pub enum Stop {
    /// What was kept goes on otherwise.
    Diverged {
        /// Its next tokens.
        kept: Vec<u32>,
    },
    /// What follows was kept once.
    Evicted {
        /// How many tokens.
        tokens: usize,
    },
    /// What follows is kept, but not the state that it takes to go on from there.
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
    /// Why it is no more; `None` if nothing that was kept goes on after it.
    pub stop: Option<Stop>,
}

/// Where what is kept of a text lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
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
    /// The longest kept prefix of `prompt`, at most `limit` tokens.
    pub fn find(&self, cache: &Cache, salt: &str, prompt: &[u32], limit: usize) -> Hit {
        let Walk { path, len: seen } = self.tree.walk(salt, &prompt[..limit.min(prompt.len())]);
        let there = path.iter().take_while(|id| self.tree.node(**id).is_kept()).count();
        let kept = path[..there].last().map_or(0, |id| self.tree.node(*id).end().min(seen));
        let (len, snapshot) = match cache.has_state() {
            false => (kept, None),
            true => self.state(cache, &path[..there], kept),
        };
        let stop = if seen > kept {
            Some(Stop::Evicted { tokens: seen - len })
        } else if kept > len {
            Some(Stop::NoState { tokens: kept - len })
        } else {
            self.otherwise(salt, &path, seen).filter(|_| seen < limit).map(|kept| Stop::Diverged { kept })
        };
        Hit { path, len, snapshot, seen, stop }
    }

    /// The last point of `path`, at most after `kept` tokens, that a snapshot serves.
    fn state(&self, cache: &Cache, path: &[NodeId], kept: usize) -> (usize, Option<NodeId>) {
        let ends = path.iter().rev().filter(|id| {
            let node = self.tree.node(**id);
            node.snapshot.is_some() && node.end() <= kept
        });
        let before = ends.clone().next().map_or((0, None), |id| (self.tree.node(*id).end(), Some(*id)));
        if before.0 == kept || cache.recurrent() {
            return before;
        }
        // A window that was kept further on may still reach back to here.
        let mut open: Vec<NodeId> = path.last().copied().into_iter().collect();
        while let Some(id) = open.pop() {
            let node = self.tree.node(id);
            let serves = |snapshot: &Snapshot| cache.serves(snapshot, node.end(), kept);
            if node.end() >= kept && node.snapshot.as_ref().is_some_and(serves) {
                return (kept, Some(id));
            }
            open.extend(&node.children);
        }
        before
    }

    /// The next tokens of what was kept beyond the first `seen` tokens of `path`.
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
            match self.tree.least_snapshot(Some(id)) {
                Some(other) => self.give_up_snapshot(cache, other),
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

    /// Keeps the state after the first `at` tokens, of which the latest step computed the last;
    /// `slot` has its recurrent part.
    pub fn keep_state(
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

    /// Keeps what a sequence that goes no further has computed of `tokens`.
    pub fn keep(&mut self, cache: &mut Cache, prefix: &Prefix, tokens: &[u32], table: Table) {
        self.tree.clock += 1;
        self.learn(cache, prefix, tokens, &table);
        let computed = &tokens[..tokens.len().min(table.len())];
        let snapshot = cache.take_snapshot(table);
        match cache.has_state() && !computed.is_empty() {
            true => self.put(cache, &prefix.salt, computed, snapshot),
            false => cache.release_snapshot(snapshot),
        }
    }

    /// Where all that going on after `tokens` takes lies; `None` if any of it is not kept.
    pub fn held(&self, cache: &Cache, salt: &str, tokens: &[u32]) -> Option<Held> {
        let Walk { path, len } = self.tree.walk(salt, tokens);
        let kept = path.iter().all(|id| self.tree.node(*id).is_kept());
        if !kept || len < tokens.len() {
            return None;
        }
        let full = self.tree.blocks(&path, len, cache.layout().block_tokens);
        if !cache.has_state() {
            return Some(Held { full, windowed: Vec::new(), slot: None });
        }
        let last = self.tree.node(*path.last()?);
        let snapshot = last.snapshot.as_ref().filter(|_| last.end() == len)?;
        let (windowed, slot) = cache.lies(snapshot, len)?;
        Some(Held { full, windowed: windowed.to_vec(), slot })
    }

    /// Puts `snapshot` after all of `tokens`, unless there is one.
    fn put(&mut self, cache: &mut Cache, salt: &str, tokens: &[u32], snapshot: Snapshot) {
        let clock = self.tree.clock;
        let node = self.tree.cut(cache, salt, tokens, tokens.len()).map(|id| self.tree.node_mut(id));
        match node.filter(|node| node.snapshot.is_none() && node.is_kept()) {
            Some(node) => (node.snapshot, node.resumed) = (Some(snapshot), clock),
            None => cache.release_snapshot(snapshot),
        }
    }

    /// A slot for a snapshot, if need be that of the least one; `None` if running sequences have
    /// all.
    pub fn slot(&mut self, cache: &mut Cache) -> Option<SlotId> {
        loop {
            if let Some(slot) = cache.take_slot() {
                return Some(slot);
            }
            let least = self.tree.least_snapshot(None)?;
            self.give_up_snapshot(cache, least);
        }
    }

    /// Gives up the least of what holds `lack`; false if there is nothing that could be.
    pub fn evict(&mut self, cache: &mut Cache, lack: Lack) -> bool {
        match lack {
            Lack::Blocks => self.tree.least_node(cache).map(|id| self.tree.evict(cache, id)),
            Lack::State => self.tree.least_snapshot(None).map(|id| self.give_up_snapshot(cache, id)),
        }
        .is_some()
    }

    /// The static text that [`Prefixes::evict`] would give up next: its salt, its tokens from the
    /// beginning on, and how many of them come before what is to be kept of it: up to where
    /// something else can be gone on from.
    /// `None` if that is no static text.
    pub fn leaving(&self, cache: &Cache, lack: Lack) -> Option<(String, Vec<u32>, usize)> {
        let id = match lack {
            Lack::Blocks => self.tree.least_node(cache),
            Lack::State => self.tree.least_snapshot(None),
        }?;
        let node = self.tree.node(id);
        let start = if cache.has_state() { self.tree.snapshot_before(node) } else { node.start };
        let leaves = match lack {
            Lack::Blocks => node.pinned,
            Lack::State => node.ends_segment,
        };
        leaves.then(|| {
            let (salt, tokens) = self.tree.text(id);
            (salt, tokens, start)
        })
    }

    fn give_up_snapshot(&mut self, cache: &mut Cache, id: NodeId) {
        if let Some(snapshot) = self.tree.node_mut(id).snapshot.take() {
            cache.release_snapshot(snapshot);
        }
    }
}

#[cfg(test)]
#[path = "prefixes_tests.rs"]
mod tests;
