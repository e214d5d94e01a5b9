//! The radix tree of computed tokens.
//!
//! A node is a segment of tokens with the blocks that hold their keys and values.
//! Its first block may also contain the last tokens of its parent, if two sequences diverged within
//! a block.
//! Each tenant has a root, under which all of its sequences begin.
//! The tokens of evicted nodes are kept for a while, so that a miss can be explained.
//! Structure only: `eviction` decides what is worth caching.

use std::collections::HashMap;

use super::{BlockId, Cache, Snapshot, Table};

/// The id of a node.
pub type NodeId = usize;

/// A segment of tokens, with any number of continuations.
#[derive(Debug, Default)]
pub struct Node {
    pub parent: Option<NodeId>,
    pub children: Vec<NodeId>,
    /// The tokens; empty only in a root.
    pub tokens: Vec<u32>,
    /// Number of tokens before it.
    pub start: usize,
    /// The blocks of keys and values; `None` = evicted, like all nodes that follow.
    pub blocks: Option<Vec<BlockId>>,
    /// The state needed to continue from its end, in a model with state.
    pub snapshot: Option<Snapshot>,
    /// The last time a prompt contained it, by the tree's clock.
    pub used: u64,
    /// The time its snapshot was taken or last resumed from.
    pub resumed: u64,
    /// Whether it is static text, which is evicted last.
    pub pinned: bool,
    /// Whether a static segment ends here, whose snapshot is evicted last.
    pub ends_segment: bool,
}

impl Node {
    /// Number of tokens from the root to its end.
    pub fn end(&self) -> usize {
        self.start + self.tokens.len()
    }

    /// Whether its keys and values are cached.
    pub fn is_cached(&self) -> bool {
        self.blocks.is_some()
    }
}

/// The known prefix of a text.
#[derive(Debug, Default)]
pub struct Walk {
    /// The nodes, the last one possibly only in part.
    pub path: Vec<NodeId>,
    /// Number of tokens.
    pub len: usize,
}

/// All nodes.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
    roots: HashMap<String, NodeId>,
    /// Advances with each lookup and insertion.
    pub clock: u64,
}

impl Tree {
    /// The node with this id.
    ///
    /// # Panics
    /// If it doesn't exist.
    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes[id].as_ref().expect("a node that is linked is there")
    }

    /// The node with this id, as [`Tree::node`].
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id].as_mut().expect("a node that is linked is there")
    }

    /// All nodes except the roots.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let there = self.nodes.iter().enumerate().filter_map(|(id, node)| Some((id, node.as_ref()?)));
        there.filter(|(_, node)| node.parent.is_some())
    }

    /// The root of a tenant's texts.
    pub fn root(&self, salt: &str) -> Option<NodeId> {
        self.roots.get(salt).copied()
    }

    /// The salt and the tokens from the root to the end of a node.
    pub fn text(&self, id: NodeId) -> (String, Vec<u32>) {
        let (mut segments, mut at) = (Vec::new(), id);
        while let Some(parent) = self.node(at).parent {
            segments.push(self.node(at).tokens.as_slice());
            at = parent;
        }
        segments.reverse();
        let salt = self.roots.iter().find(|(_, root)| **root == at).map(|(salt, _)| salt.clone());
        (salt.unwrap_or_default(), segments.concat())
    }

    /// The longest known prefix of `tokens`.
    pub fn walk(&self, salt: &str, tokens: &[u32]) -> Walk {
        let mut walk = Walk::default();
        let Some(mut at) = self.root(salt) else { return walk };
        while let Some(next) = tokens.get(walk.len).and_then(|&token| self.child(at, token)) {
            let edge = &self.node(next).tokens;
            let common = edge.iter().zip(&tokens[walk.len..]).take_while(|(a, b)| a == b).count();
            walk.path.push(next);
            walk.len += common;
            if common < edge.len() {
                break;
            }
            at = next;
        }
        walk
    }

    fn child(&self, of: NodeId, first: u32) -> Option<NodeId> {
        self.node(of).children.iter().copied().find(|&child| self.node(child).tokens[0] == first)
    }

    /// Adds the part of `tokens` that `table` holds.
    /// Nothing is stored twice.
    pub fn extend(&mut self, cache: &mut Cache, salt: &str, tokens: &[u32], table: &Table) {
        let tokens = &tokens[..tokens.len().min(table.len())];
        if tokens.is_empty() {
            return;
        }
        let Walk { mut path, len } = self.walk(salt, tokens);
        if let Some(last) = path.last_mut()
            && self.node(*last).end() > len
            && (len < tokens.len() || !self.node(*last).is_cached())
        {
            *last = self.split(cache, *last, len);
        }
        for &id in &path {
            let node = self.node(id);
            // Restores evicted blocks; if something was computed twice, one copy suffices.
            if node.end() <= len
                && node.blocks.as_deref() != Some(blocks_of(table, node.start, node.end(), cache))
            {
                let new = hold_blocks(table, node.start, node.end(), cache);
                let old = self.node_mut(id).blocks.replace(new).unwrap_or_default();
                cache.blocks().drop_all(&old);
            }
            self.node_mut(id).used = self.clock;
        }
        if len == tokens.len() {
            return;
        }
        let last = path.last().copied().or(self.root(salt)).unwrap_or_else(|| self.add_root(salt));
        let node = self.node(last);
        if node.parent.is_some() && node.children.is_empty() && node.snapshot.is_none() && !node.pinned {
            let new = hold_blocks(table, node.start, tokens.len(), cache);
            let node = self.node_mut(last);
            node.tokens.extend_from_slice(&tokens[len..]);
            let old = node.blocks.replace(new).unwrap_or_default();
            cache.blocks().drop_all(&old);
            return;
        }
        let blocks = hold_blocks(table, len, tokens.len(), cache);
        let id = self.add(Node {
            parent: Some(last),
            tokens: tokens[len..].to_vec(),
            start: len,
            blocks: Some(blocks),
            used: self.clock,
            ..Node::default()
        });
        self.node_mut(last).children.push(id);
    }

    /// The node that ends after `at` of `tokens`, splitting one if necessary.
    /// `None` if the tree knows fewer tokens.
    pub fn cut(&mut self, cache: &mut Cache, salt: &str, tokens: &[u32], at: usize) -> Option<NodeId> {
        let walk = self.walk(salt, tokens.get(..at)?);
        let last = *walk.path.last().filter(|_| walk.len == at)?;
        Some(if self.node(last).end() > at { self.split(cache, last, at) } else { last })
    }

    /// Splits a node after `at` tokens, counted from the root.
    /// Returns the new node, which is its first part.
    fn split(&mut self, cache: &mut Cache, id: NodeId, at: usize) -> NodeId {
        let size = cache.layout().block_tokens;
        let node = self.node_mut(id);
        let (start, parent, used, pinned) = (node.start, node.parent, node.used, node.pinned);
        let rest = node.tokens.split_off(at - start);
        let tokens = std::mem::replace(&mut node.tokens, rest);
        node.start = at;
        let blocks = node.blocks.as_mut().map(|blocks| {
            let first = start / size;
            let upper = blocks[..at.div_ceil(size) - first].to_vec();
            // Both nodes hold the block that contains the split.
            blocks.drain(..at / size - first);
            if !at.is_multiple_of(size) {
                cache.blocks().hold(&upper[upper.len() - 1..]);
            }
            upper
        });
        let children = vec![id];
        let upper =
            self.add(Node { parent, children, tokens, start, blocks, used, pinned, ..Node::default() });
        self.node_mut(id).parent = Some(upper);
        if let Some(parent) = parent {
            let children = &mut self.node_mut(parent).children;
            children.iter_mut().filter(|child| **child == id).for_each(|child| *child = upper);
        }
        upper
    }

    /// The blocks of the first `tokens` tokens of the path that ends with `path`.
    pub fn blocks(&self, path: &[NodeId], tokens: usize, block_tokens: usize) -> Vec<BlockId> {
        let mut blocks: Vec<BlockId> = Vec::with_capacity(tokens.div_ceil(block_tokens));
        for node in path.iter().map(|id| self.node(*id)).take_while(|node| node.start < tokens) {
            // A node's first block also contains the end of its parent.
            blocks.truncate(node.start / block_tokens);
            blocks.extend(node.blocks.iter().flatten());
        }
        blocks.truncate(tokens.div_ceil(block_tokens));
        blocks
    }

    /// Evicts the keys and values of a node, and its snapshot.
    /// No cached node may follow it.
    pub fn evict(&mut self, cache: &mut Cache, id: NodeId) {
        let node = self.node_mut(id);
        let (blocks, snapshot) = (node.blocks.take(), node.snapshot.take());
        cache.blocks().drop_all(&blocks.unwrap_or_default());
        if let Some(snapshot) = snapshot {
            cache.release_snapshot(snapshot);
        }
    }

    /// Removes an evicted node that has no continuations.
    pub fn forget(&mut self, id: NodeId) {
        let Some(parent) = self.node(id).parent else { return };
        self.nodes[id] = None;
        self.vacant.push(id);
        self.node_mut(parent).children.retain(|child| *child != id);
        let node = self.node(parent);
        if node.parent.is_none() && node.children.is_empty() {
            self.nodes[parent] = None;
            self.vacant.push(parent);
            self.roots.retain(|_, root| *root != parent);
        }
    }

    fn add_root(&mut self, salt: &str) -> NodeId {
        let root = self.add(Node::default());
        self.roots.insert(salt.to_owned(), root);
        root
    }

    fn add(&mut self, node: Node) -> NodeId {
        match self.vacant.pop() {
            Some(id) => {
                self.nodes[id] = Some(node);
                id
            }
            None => {
                self.nodes.push(Some(node));
                self.nodes.len() - 1
            }
        }
    }
}

/// The blocks of `table` that contain its tokens from `start` to `end`.
fn blocks_of<'a>(table: &'a Table, start: usize, end: usize, cache: &Cache) -> &'a [BlockId] {
    let size = cache.layout().block_tokens;
    &table.full()[start / size..end.div_ceil(size)]
}

/// The blocks of `table` that contain its tokens from `start` to `end`, with a holder added.
fn hold_blocks(table: &Table, start: usize, end: usize, cache: &mut Cache) -> Vec<BlockId> {
    let blocks = blocks_of(table, start, end, cache).to_vec();
    cache.blocks().hold(&blocks);
    blocks
}
