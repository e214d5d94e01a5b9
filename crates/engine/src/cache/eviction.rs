//! Chooses what to evict when memory runs out: the part that saves the least time per byte and was
//! not used for long.

use super::Cache;
use super::tree::{Node, NodeId, Tree};

/// Position at which attending to all previous tokens takes about as long as the rest of the model.
/// An estimate: between two and eight thousand for common shapes.
const ATTENTION_EQUALS: f64 = 4096.0;

/// Share of the blocks, and of the snapshots, that unused static text may occupy: a quarter.
const PINNED_SHARE: usize = 4;

/// The cost of computing tokens `start..end`, in units of the first token.
fn cost(start: usize, end: usize) -> f64 {
    let (start, end) = (start as f64, end as f64);
    (end - start) * (1.0 + (start + end) / 2.0 / ATTENTION_EQUALS)
}

impl Tree {
    fn recency(&self, used: u64) -> f64 {
        1.0 / (self.clock.saturating_sub(used) + 1) as f64
    }

    /// The node whose keys and values to evict next: a leaf of the cached tree whose eviction frees
    /// blocks.
    /// If there is none, a node before such a leaf.
    pub fn node_to_evict(&self, cache: &Cache) -> Option<NodeId> {
        let last =
            |node: &Node| node.is_cached() && !node.children.iter().any(|&id| self.node(id).is_cached());
        let blocks_held = |node: &Node| self.blocks_of_its_own(cache, node);
        let pinned: usize =
            self.nodes().filter(|(_, node)| node.pinned).map(|(_, node)| blocks_held(node)).sum();
        let protect = pinned <= cache.layout().blocks / PINNED_SHARE;
        let worth = |node: &Node, blocks: usize| match cache.has_state() && node.snapshot.is_none() {
            // No prompt can continue from there.
            true => 0.0,
            false => cost(node.start, node.end()) / blocks as f64 * self.recency(node.used),
        };
        let candidates = self.nodes().filter(|(_, node)| last(node)).filter_map(|(id, node)| {
            let blocks = blocks_held(node);
            (blocks > 0).then(|| ((protect && node.pinned, worth(node, blocks)), id))
        });
        // Two nodes that diverged within a block each have a copy of it, while their parent holds
        // only one:
        // it may become free although running sequences hold everything after the parent.
        let follows_some = |node: &Node| {
            std::iter::successors(node.parent, |&id| self.node(id).parent)
                .any(|id| blocks_held(self.node(id)) > 0)
        };
        let in_the_way = || self.nodes().find(|(_, node)| last(node) && follows_some(node));
        least(candidates).or_else(|| in_the_way().map(|(id, _)| id))
    }

    /// Number of blocks held only by `node` and by its predecessors in the same block.
    fn blocks_of_its_own(&self, cache: &Cache, node: &Node) -> usize {
        let Some([first, rest @ ..]) = node.blocks.as_deref() else { return 0 };
        let size = cache.layout().block_tokens;
        let (mut holders, mut at) = (1, node.parent);
        while let Some(before) =
            at.map(|id| self.node(id)).filter(|before| before.end() > node.start / size * size)
        {
            let same = before.blocks.as_ref().and_then(|blocks| blocks.last()) == Some(first);
            holders += u32::from(same);
            at = before.parent;
        }
        usize::from(cache.holders(*first) == holders)
            + rest.iter().filter(|block| cache.holders(**block) == 1).count()
    }

    /// The node whose snapshot to evict next, other than `except`.
    pub fn snapshot_to_evict(&self, except: Option<NodeId>) -> Option<NodeId> {
        let all = || self.nodes().filter(|(_, node)| node.snapshot.is_some());
        let pinned = all().filter(|(_, node)| node.ends_segment).count();
        let protect = pinned <= (all().count() / PINNED_SHARE).max(2);
        let candidates = all().filter(|(id, _)| Some(*id) != except).map(|(id, node)| {
            let worth = cost(self.snapshot_before(node), node.end()) * self.recency(node.resumed);
            ((protect && node.ends_segment, worth), id)
        });
        least(candidates)
    }

    /// The end of the last snapshot on the path to `node`, excluding its own: without its own,
    /// tokens from there would be recomputed.
    pub fn snapshot_before(&self, node: &Node) -> usize {
        let mut at = node.parent;
        while let Some(id) = at {
            let node = self.node(id);
            if node.snapshot.is_some() {
                return node.end();
            }
            at = node.parent;
        }
        0
    }

    /// Drops the token lists of evicted nodes, least recently used first, until at most `most`
    /// tokens remain.
    pub fn forget_beyond(&mut self, most: usize) {
        let mut evicted: usize =
            self.nodes().filter(|(_, node)| !node.is_cached()).map(|(_, node)| node.tokens.len()).sum();
        while evicted > most {
            let ends = self.nodes().filter(|(_, node)| !node.is_cached() && node.children.is_empty());
            let Some((id, tokens)) =
                ends.min_by_key(|(_, node)| node.used).map(|(id, node)| (id, node.tokens.len()))
            else {
                return;
            };
            self.forget(id);
            evicted -= tokens;
        }
    }
}

fn least(candidates: impl Iterator<Item = ((bool, f64), NodeId)>) -> Option<NodeId> {
    let order = |a: &(bool, f64), b: &(bool, f64)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1));
    candidates.min_by(|(a, _), (b, _)| order(a, b)).map(|(_, id)| id)
}
