//! The radix tree over tokens: what was computed, by the tokens that it was computed from.
//!
//! A node is a segment of tokens with the blocks in which their keys and values lie.
//! Its first block may hold the last tokens of its parent too, where two sequences diverged within
//! a block.
//! Below a root all sequences of one tenant begin.
//! The tokens of what was evicted stay for a while, so that a miss can be explained.
//! Structure only: `eviction` says what is worth caching.

use std::collections::HashMap;

use super::{BlockId, Cache, Snapshot, Table};

/// Names a node.
pub type NodeId = usize;

/// A segment of tokens, which several further ones may follow.
#[derive(Debug, Default)]
pub struct Node {
    pub parent: Option<NodeId>,
    pub children: Vec<NodeId>,
    /// Empty in a root only.
    pub tokens: Vec<u32>,
    /// Number of tokens before it.
    pub start: usize,
    /// Where the keys and values lie; `None` = evicted, as is all that follows.
    pub blocks: Option<Vec<BlockId>>,
    /// What going on from its end takes, in a model with state.
    pub snapshot: Option<Snapshot>,
    /// When a prompt last had it, by the tree's clock.
    pub used: u64,
    /// When its snapshot was made or last gone on from.
    pub resumed: u64,
    /// Whether it is static text, which is evicted last.
    pub pinned: bool,
    /// Whether a static segment ends with it, whose snapshot is evicted last.
    pub ends_segment: bool,
}

impl Node {
    /// Number of tokens up to its end.
    pub fn end(&self) -> usize {
        self.start + self.tokens.len()
    }

    /// Whether its keys and values are there.
    pub fn is_cached(&self) -> bool {
        self.blocks.is_some()
    }
}

/// How far the tree knows a text.
#[derive(Debug, Default)]
pub struct Walk {
    /// The nodes, the last of them perhaps in part.
    pub path: Vec<NodeId>,
    /// The tokens.
    pub len: usize,
}

/// All nodes.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
    roots: HashMap<String, NodeId>,
    /// Counts what is looked up and inserted.
    pub clock: u64,
}

impl Tree {
    /// A node that is there.
    ///
    /// # Panics
    /// If it is not.
    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes[id].as_ref().expect("a node that is linked is there")
    }

    /// As [`Tree::node`].
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id].as_mut().expect("a node that is linked is there")
    }

    /// All nodes but the roots.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let there = self.nodes.iter().enumerate().filter_map(|(id, node)| Some((id, node.as_ref()?)));
        there.filter(|(_, node)| node.parent.is_some())
    }

    /// Where the texts of a tenant begin.
    pub fn root(&self, salt: &str) -> Option<NodeId> {
        self.roots.get(salt).copied()
    }

    /// The salt and the tokens up to the end of a node.
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

    /// How far the tree knows `tokens`.
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

    /// Holds what `table` has of `tokens`.
    /// Nothing is held twice.
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
            // What was evicted is there again; and of what was computed twice one copy is enough.
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

    /// The node that ends after `at` of `tokens`, cut there if need be.
    /// `None` if the tree does not know as many.
    pub fn cut(&mut self, cache: &mut Cache, salt: &str, tokens: &[u32], at: usize) -> Option<NodeId> {
        let walk = self.walk(salt, tokens.get(..at)?);
        let last = *walk.path.last().filter(|_| walk.len == at)?;
        Some(if self.node(last).end() > at { self.split(cache, last, at) } else { last })
    }

    /// Cuts a node after `at` tokens, counted from the root.
    /// Gives the new node, its first part.
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
            // The block in which the cut lies is held by both.
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
            // A node's first block has the end of its parent as well.
            blocks.truncate(node.start / block_tokens);
            blocks.extend(node.blocks.iter().flatten());
        }
        blocks.truncate(tokens.div_ceil(block_tokens));
        blocks
    }

    /// Evicts the keys and values of a node, and its snapshot.
    /// Nothing that is cached may follow it.
    pub fn evict(&mut self, cache: &mut Cache, id: NodeId) {
        let node = self.node_mut(id);
        let (blocks, snapshot) = (node.blocks.take(), node.snapshot.take());
        cache.blocks().drop_all(&blocks.unwrap_or_default());
        if let Some(snapshot) = snapshot {
            cache.release_snapshot(snapshot);
        }
    }

    /// Forgets the tokens of a node that nothing follows and that is evicted.
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

/// The blocks of `table` in which its tokens from `start` to `end` lie.
fn blocks_of<'a>(table: &'a Table, start: usize, end: usize, cache: &Cache) -> &'a [BlockId] {
    let size = cache.layout().block_tokens;
    &table.full()[start / size..end.div_ceil(size)]
}

/// The same, with one holder more.
fn hold_blocks(table: &Table, start: usize, end: usize, cache: &mut Cache) -> Vec<BlockId> {
    let blocks = blocks_of(table, start, end, cache).to_vec();
    cache.blocks().hold(&blocks);
    blocks
}
