//! Connects the pool to the lower tiers, on disk and in host memory: which numbers of which layer
//! go into a file, in which order, and how they are restored.
//!
//! Restored tokens are handled like computed ones:
//! a table grows by a file's tokens, the tree learns them, and the state at the file's end becomes
//! a snapshot.
//! So no other module needs to know where numbers came from.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Pool;
use crate::Result;
use crate::backend::Backend;
use crate::cache::disk::{Message, Segment, Sent, Stored};
use crate::cache::host::HostSegment;
use crate::cache::{BLOCK_TOKENS, BlockId, Hit, Prefix, PrefixLocation, SlotId, Table};
use crate::layers::{CacheSlice, LayerCache};
use crate::schedule::STEP_TARGET;

/// Tokens per piece: small enough that extracting one layer's piece doesn't delay a step.
const PIECE_TOKENS: usize = 16 * BLOCK_TOKENS;

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The keys and values of a layer for some tokens.
    Rows { layer: usize, windowed: bool, tokens: Range<usize>, bytes: usize },
    /// The recurrent state of a layer.
    State { layer: usize, bytes: usize },
}

impl Piece {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Piece::Rows { bytes, .. } | Piece::State { bytes, .. } => *bytes,
        }
    }
}

/// A file being written.
#[derive(Debug)]
pub struct SegmentExport {
    segment: Segment,
    pieces: VecDeque<Piece>,
    /// A message that the writer thread was too busy to accept.
    unsent: Option<Message>,
}

/// Progress of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteProgress {
    /// Nothing is left to write.
    Done,
    /// There is more.
    More,
    /// There is more, but the disk is still busy.
    Busy,
}

/// The result of restoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// Nothing was restored.
    Nothing,
    /// Some tokens were restored, and more are available on disk.
    Partial,
    /// Everything available was restored.
    Full,
}

/// A segment available for restoring.
#[derive(Debug)]
enum SegmentSource {
    Disk(Stored),
    Host { segment: Arc<HostSegment>, end: usize },
}

impl SegmentSource {
    /// Number of tokens before it.
    fn start(&self) -> usize {
        match self {
            SegmentSource::Disk(stored) => stored.header.start,
            SegmentSource::Host { segment, .. } => segment.start,
        }
    }

    /// Number of tokens up to its end.
    fn end(&self) -> usize {
        match self {
            SegmentSource::Disk(stored) => stored.header.tokens,
            SegmentSource::Host { end, .. } => *end,
        }
    }

    /// Number of bytes to read from disk.
    fn bytes(&self) -> u64 {
        match self {
            SegmentSource::Disk(stored) => stored.bytes(),
            SegmentSource::Host { .. } => 0,
        }
    }

    /// Recorded time of computing one token.
    fn token_time(&self) -> Duration {
        match self {
            SegmentSource::Disk(stored) => Duration::from_nanos(stored.header.token_ns),
            SegmentSource::Host { .. } => Duration::ZERO,
        }
    }
}

/// Splits tokens into ranges of contiguous rows in the same block.
fn row_ranges(blocks: &[BlockId], tokens: Range<usize>) -> impl Iterator<Item = (CacheSlice, usize)> + '_ {
    let mut at = tokens.start;
    std::iter::from_fn(move || {
        let rows = (BLOCK_TOKENS - at % BLOCK_TOKENS).min(tokens.end - at);
        if rows == 0 {
            return None;
        }
        let block = blocks[at / BLOCK_TOKENS].0 as usize;
        let slice = CacheSlice::Rows { row: block * BLOCK_TOKENS + at % BLOCK_TOKENS, rows };
        at += rows;
        Some((slice, rows))
    })
}

impl<B: Backend> Pool<B> {
    /// The pieces of a file of tokens `start..end`, in its order.
    pub(super) fn pieces(&self, start: usize, end: usize) -> VecDeque<Piece> {
        let mut pieces = VecDeque::new();
        for (layer, cache) in self.decoder.caches() {
            let (windowed, row, from) = match cache {
                LayerCache::Recurrent { bytes } => {
                    pieces.push_back(Piece::State { layer, bytes });
                    continue;
                }
                LayerCache::Kv { windowed: true, bytes } => (true, bytes, self.cache.seen(end).unwrap_or(0)),
                LayerCache::Kv { windowed: false, bytes } => (false, bytes, start),
            };
            pieces.extend((from..end).step_by(PIECE_TOKENS).map(|from| {
                let tokens = from..end.min(from + PIECE_TOKENS);
                let bytes = row * tokens.len();
                Piece::Rows { layer, windowed, tokens, bytes }
            }));
        }
        pieces
    }

    /// Queues the computed static segments of a text for the disk.
    pub(super) fn queue_for_disk(&mut self, prefix: &Prefix, computed: &[u32]) {
        if self.disk.is_none() || !prefix.salt.is_empty() {
            return;
        }
        let mut start = 0;
        let most = prefix.pinned.min(computed.len());
        for &end in prefix.boundaries.iter().filter(|end| (1..=most).contains(*end)) {
            let bytes = self.pieces(start, end).iter().map(|piece| piece.bytes() as u64).sum();
            let cached = self.prefixes.locate(&self.cache, &prefix.salt, &computed[..end]).is_some();
            let Some(disk) = &mut self.disk else { return };
            // A segment that isn't worthwhile alone is written together with the next one.
            if cached && disk.pays(bytes, end - start, self.step_times.prefill_token) {
                disk.want(Segment { tokens: computed[..end].to_vec(), start });
                start = end;
            }
        }
    }

    /// Writes the next queued piece, if the disk accepts it.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn write(&mut self) -> Result<WriteProgress> {
        let Some(disk) = &mut self.disk else { return Ok(WriteProgress::Done) };
        let Some(export) = &mut self.export else {
            let Some(segment) = disk.queue.pop_front() else { return Ok(WriteProgress::Done) };
            let pieces = self.pieces(segment.start, segment.tokens.len());
            let payload = pieces.iter().map(|piece| piece.bytes() as u64).sum();
            let Some(disk) = &mut self.disk else { return Ok(WriteProgress::Done) };
            let begun = disk.begin(&segment, payload, self.step_times.prefill_token);
            self.export = begun.map(|begun| SegmentExport { segment, pieces, unsent: Some(begun) });
            return Ok(WriteProgress::More);
        };
        let message = match (export.unsent.take(), export.pieces.pop_front()) {
            (Some(message), next) => {
                next.into_iter().for_each(|next| export.pieces.push_front(next));
                message
            }
            (None, None) => Message::End,
            (None, Some(piece)) => match self.prefixes.locate(&self.cache, "", &export.segment.tokens) {
                Some(location) => {
                    let mut bytes = Vec::with_capacity(piece.bytes());
                    self.read_piece(&piece, &location, &mut bytes)?;
                    Message::Piece(bytes)
                }
                // The segment was evicted meanwhile.
                None => Message::Abandon,
            },
        };
        let last = matches!(message, Message::End | Message::Abandon);
        let (Some(disk), Some(export)) = (&mut self.disk, &mut self.export) else {
            return Ok(WriteProgress::Done);
        };
        match disk.send(message) {
            Sent::Taken if last => self.export = None,
            Sent::Taken => {}
            Sent::Later(message) => {
                export.unsent = Some(message);
                return Ok(WriteProgress::Busy);
            }
            Sent::Off => {
                disk.queue.clear();
                self.export = None;
            }
        }
        Ok(WriteProgress::More)
    }

    pub(super) fn read_piece(
        &self,
        piece: &Piece,
        location: &PrefixLocation,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match piece {
            Piece::State { layer, .. } => {
                location.slot.map_or(Ok(()), |slot| self.decoder.save(*layer, CacheSlice::Slot(slot), out))
            }
            Piece::Rows { layer, windowed, tokens, .. } => {
                let blocks = if *windowed { &location.windowed } else { &location.full };
                row_ranges(blocks, tokens.clone())
                    .try_for_each(|(slice, _)| self.decoder.save(*layer, slice, out))
            }
        }
    }

    /// Restores the static text of a prompt beyond `hit` from host memory or disk, if that is
    /// estimated to be faster than computing it.
    /// While a sequence is `decoding`, restores only as much as fits into a step's time, but at
    /// least one segment.
    /// Also returns the number of tokens from disk.
    ///
    /// # Errors
    /// If the backend fails.
    pub(super) fn restore(
        &mut self,
        prefix: &Prefix,
        prompt: &[u32],
        hit: &Hit,
        decoding: bool,
    ) -> Result<(Restored, usize)> {
        let most = prefix.pinned.min(prompt.len().saturating_sub(1));
        let disk = self.disk.is_some() && prefix.salt.is_empty();
        if !disk && self.host.is_off() || most <= hit.len {
            return Ok((Restored::Nothing, 0));
        }
        let ends = prefix.boundaries.iter().rev().filter(|end| **end > hit.len && **end <= most);
        match ends.copied().find_map(|end| self.chain(&prefix.salt, &prompt[..=end])) {
            Some(chain) => self.restore_chain(&prefix.salt, prompt, hit.len, chain, decoding),
            None => Ok((Restored::Nothing, 0)),
        }
    }

    /// The segment at the end of `tokens`, if a lower tier has it.
    fn open(&self, salt: &str, tokens: &[u32]) -> Option<SegmentSource> {
        if let Some(segment) = self.host.get(salt, tokens) {
            return Some(SegmentSource::Host { segment, end: tokens.len() });
        }
        let disk = self.disk.as_ref().filter(|_| salt.is_empty())?;
        disk.open(tokens).map(SegmentSource::Disk)
    }

    /// The segments that lead from the part in memory to all of `prompt` except its last token.
    fn chain(&self, salt: &str, prompt: &[u32]) -> Option<Vec<SegmentSource>> {
        let mut chain = vec![self.open(salt, &prompt[..prompt.len() - 1])?];
        loop {
            let start = chain.last()?.start();
            if self.find(salt, &prompt[..=start]).len == start {
                chain.reverse();
                return Some(chain);
            }
            chain.push(self.open(salt, &prompt[..start])?);
        }
    }

    /// Restores `chain`, a sequence of adjacent segments.
    /// Without it, `known` tokens would be cached.
    fn restore_chain(
        &mut self,
        salt: &str,
        prompt: &[u32],
        known: usize,
        mut chain: Vec<SegmentSource>,
        decoding: bool,
    ) -> Result<(Restored, usize)> {
        let base = chain.first().map_or(0, SegmentSource::start);
        let bytes = |chain: &[SegmentSource]| chain.iter().map(SegmentSource::bytes).sum::<u64>();
        let end = chain.last().map_or(0, SegmentSource::end);
        let times = chain.iter().map(SegmentSource::token_time);
        let token_time = if self.step_times.prefill_token.is_zero() {
            times.max().unwrap_or_default()
        } else {
            self.step_times.prefill_token
        };
        if bytes(&chain) > 0
            && !self.disk.as_ref().is_some_and(|disk| disk.pays(bytes(&chain), end - known, token_time))
        {
            return Ok((Restored::Nothing, 0));
        }
        let mut segments = chain.len();
        if decoding && let Some(disk) = &self.disk {
            // Another sequence waits for its next token.
            let all = chain.iter().scan(0, |sum, source| {
                *sum += source.bytes();
                Some(*sum)
            });
            segments =
                all.take_while(|bytes| *bytes == 0 || disk.reading(*bytes) <= STEP_TARGET).count().max(1);
        }
        let part = segments < chain.len();
        chain.truncate(segments);
        let (bytes, begun) = (bytes(&chain), Instant::now());
        let hit = self.find(salt, &prompt[..=base]);
        let mut table = self.attach(&hit)?;
        let (mut all, mut from_disk) = (table.len() == base, 0);
        for source in &mut chain {
            let start = table.len();
            all = all && self.restore_segment(salt, prompt, &mut table, source)?;
            from_disk += if source.bytes() > 0 { table.len().saturating_sub(start.max(known)) } else { 0 };
        }
        let there = table.len() > base;
        self.release(table);
        if let Some(disk) = self.disk.as_mut().filter(|_| all && bytes > 0) {
            disk.read(bytes, begun);
        }
        // Segments that others continue from are evicted last.
        for source in chain.iter().rev() {
            match source {
                SegmentSource::Disk(stored) => stored.touch(),
                SegmentSource::Host { end, .. } => self.host.touch(salt, &prompt[..*end]),
            }
        }
        let restored = match (there, all && part) {
            (false, _) => Restored::Nothing,
            (true, true) => Restored::Partial,
            (true, false) => Restored::Full,
        };
        Ok((restored, from_disk))
    }

    /// False if a file is invalid, or memory runs out.
    fn restore_segment(
        &mut self,
        salt: &str,
        prompt: &[u32],
        table: &mut Table,
        source: &mut SegmentSource,
    ) -> Result<bool> {
        let (start, end) = (table.len(), source.end());
        let layout = self.pieces(start, end);
        if let SegmentSource::Disk(stored) = source
            && let Err(fault) = stored.expect(layout.iter().map(Piece::bytes))
        {
            self.disk.iter().for_each(|disk| disk.distrust(&stored.path, &fault));
            return Ok(false);
        }
        // Like steps do: windowed layers don't have blocks for everything at once.
        while table.len() < end {
            let tokens = BLOCK_TOKENS.min(end - table.len());
            if !self.reserve(table, tokens)? {
                return Ok(false);
            }
            table.advance(tokens);
        }
        let Ok(slot) = self.slot() else { return Ok(false) };
        let mut bytes = Vec::new();
        for (at, piece) in layout.iter().enumerate() {
            let put = match source {
                SegmentSource::Host { segment, .. } => {
                    self.write_piece(piece, table, start, slot, &segment.pieces[at]).map(|()| true)
                }
                SegmentSource::Disk(stored) => {
                    bytes.resize(piece.bytes(), 0);
                    match stored.read(&mut bytes) {
                        Ok(()) => self.write_piece(piece, table, start, slot, &bytes).map(|()| true),
                        Err(fault) => {
                            self.disk.iter().for_each(|disk| disk.distrust(&stored.path, &fault));
                            Ok(false)
                        }
                    }
                }
            };
            // The tree hasn't learned the tokens restored so far.
            if !matches!(put, Ok(true)) {
                slot.into_iter().for_each(|slot| self.cache.release_slot(slot));
                return put;
            }
        }
        let prefix = Prefix { boundaries: vec![end], pinned: end, salt: salt.to_owned() };
        match self.cache.has_state() {
            true => {
                self.prefixes.insert_snapshot(&mut self.cache, &prefix, &prompt[..end], table, (end, slot));
            }
            false => self.prefixes.learn(&mut self.cache, &prefix, &prompt[..end], table),
        }
        Ok(true)
    }

    /// Writes a piece to the blocks of `table`, or to `slot` for recurrent state.
    /// Windows before token `start` are already present.
    fn write_piece(
        &mut self,
        piece: &Piece,
        table: &Table,
        start: usize,
        slot: Option<SlotId>,
        bytes: &[u8],
    ) -> Result<()> {
        let (layer, windowed, tokens) = match piece {
            Piece::State { layer, .. } => {
                return slot
                    .map_or(Ok(()), |slot| self.decoder.load_back(*layer, CacheSlice::Slot(slot), bytes));
            }
            Piece::Rows { layer, windowed, tokens, .. } => (*layer, *windowed, tokens),
        };
        let blocks = if windowed { table.windowed() } else { table.full() };
        let row = bytes.len() / tokens.len().max(1);
        let (mut rest, mut at) = (bytes, tokens.start);
        for (slice, rows) in row_ranges(blocks, tokens.clone()) {
            let (bytes, after) = rest.split_at(row * rows);
            (rest, at) = (after, at + rows);
            if at > start {
                self.decoder.load_back(layer, slice, bytes)?;
            }
        }
        Ok(())
    }
}
