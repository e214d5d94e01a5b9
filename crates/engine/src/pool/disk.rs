//! Between the pool and the tier on disk: which numbers of which layer go into a file, in which order, and back from there.
//!
//! What is put back goes the way of what is computed: a table grows by a file's tokens, the tree learns them, the state at
//! the file's end becomes a snapshot. So nothing else needs to know where numbers came from.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::Pool;
use crate::Result;
use crate::backend::Backend;
use crate::cache::disk::{Message, Segment, Sent, Stored};
use crate::cache::{BLOCK_TOKENS, BlockId, Held, Hit, Prefix, SlotId, Table};
use crate::layers::{Kept, Place};
use crate::schedule::BEAT;

/// Tokens of a piece: so little of a layer that taking it out delays no step.
const PIECE_TOKENS: usize = 16 * BLOCK_TOKENS;

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// What a layer keeps of some tokens.
    Rows { layer: usize, windowed: bool, tokens: Range<usize>, bytes: usize },
    /// The recurrent state of a layer.
    State { layer: usize, bytes: usize },
}

impl Piece {
    fn bytes(&self) -> usize {
        match self {
            Piece::Rows { bytes, .. } | Piece::State { bytes, .. } => *bytes,
        }
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct Export {
    segment: Segment,
    pieces: VecDeque<Piece>,
    /// What the thread that writes was too busy to take.
    unsent: Option<Message>,
}

/// How far writing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// There is nothing left to write.
    All,
    /// There is more.
    More,
    /// There is more, but the disk is not as fast.
    Waits,
}

/// What was put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// There is no more in memory than before.
    Nothing,
    /// There is more in memory, and more on disk.
    Part,
    /// There is more in memory.
    Some,
}

/// Runs of rows, neighbours in the same block.
fn runs(blocks: &[BlockId], tokens: Range<usize>) -> impl Iterator<Item = (Place, usize)> + '_ {
    let mut at = tokens.start;
    std::iter::from_fn(move || {
        let rows = (BLOCK_TOKENS - at % BLOCK_TOKENS).min(tokens.end - at);
        if rows == 0 {
            return None;
        }
        let block = blocks[at / BLOCK_TOKENS].0 as usize;
        let place = Place::Rows { row: block * BLOCK_TOKENS + at % BLOCK_TOKENS, rows };
        at += rows;
        Some((place, rows))
    })
}

impl<B: Backend> Pool<B> {
    /// What a file of tokens `start..end` has, in its order.
    fn pieces(&self, start: usize, end: usize) -> VecDeque<Piece> {
        let mut pieces = VecDeque::new();
        for (layer, kept) in self.decoder.kept().into_iter().enumerate() {
            let (windowed, row, from) = match kept {
                Kept::State { bytes } => {
                    pieces.push_back(Piece::State { layer, bytes });
                    continue;
                }
                Kept::Rows { windowed: true, bytes } => (true, bytes, self.cache.seen(end).unwrap_or(0)),
                Kept::Rows { windowed: false, bytes } => (false, bytes, start),
            };
            pieces.extend((from..end).step_by(PIECE_TOKENS).map(|from| {
                let tokens = from..end.min(from + PIECE_TOKENS);
                let bytes = row * tokens.len();
                Piece::Rows { layer, windowed, tokens, bytes }
            }));
        }
        pieces
    }

    /// Queues the static segments of a text, as far as it was computed, for the disk.
    pub(super) fn queue_for_disk(&mut self, prefix: &Prefix, computed: &[u32]) {
        if self.disk.is_none() || !prefix.salt.is_empty() {
            return;
        }
        let mut start = 0;
        let most = prefix.pinned.min(computed.len());
        for &end in prefix.boundaries.iter().filter(|end| (1..=most).contains(*end)) {
            let bytes = self.pieces(start, end).iter().map(|piece| piece.bytes() as u64).sum();
            let held = self.prefixes.held(&self.cache, &prefix.salt, &computed[..end]).is_some();
            let Some(disk) = &mut self.disk else { return };
            // What does not pay alone is kept with what follows it.
            if held && disk.pays(bytes, end - start, self.pace.token) {
                disk.want(Segment { tokens: computed[..end].to_vec(), start });
                start = end;
            }
        }
    }

    /// Writes the next piece of what is queued, as far as the disk takes it.
    ///
    /// # Errors
    /// If the backend fails.
    pub fn write(&mut self) -> Result<Written> {
        let Some(disk) = &mut self.disk else { return Ok(Written::All) };
        let Some(export) = &mut self.export else {
            let Some(segment) = disk.queue.pop_front() else { return Ok(Written::All) };
            let pieces = self.pieces(segment.start, segment.tokens.len());
            let payload = pieces.iter().map(|piece| piece.bytes() as u64).sum();
            let Some(disk) = &mut self.disk else { return Ok(Written::All) };
            let begun = disk.begin(&segment, payload, self.pace.token);
            self.export = begun.map(|begun| Export { segment, pieces, unsent: Some(begun) });
            return Ok(Written::More);
        };
        let message = match (export.unsent.take(), export.pieces.pop_front()) {
            (Some(message), next) => {
                next.into_iter().for_each(|next| export.pieces.push_front(next));
                message
            }
            (None, None) => Message::End,
            (None, Some(piece)) => match self.prefixes.held(&self.cache, "", &export.segment.tokens) {
                Some(held) => {
                    let mut bytes = Vec::with_capacity(piece.bytes());
                    self.take_out(&piece, &held, &mut bytes)?;
                    Message::Piece(bytes)
                }
                // It was evicted meanwhile.
                None => Message::Abandon,
            },
        };
        let last = matches!(message, Message::End | Message::Abandon);
        let (Some(disk), Some(export)) = (&mut self.disk, &mut self.export) else { return Ok(Written::All) };
        match disk.send(message) {
            Sent::Taken if last => self.export = None,
            Sent::Taken => {}
            Sent::Later(message) => {
                export.unsent = Some(message);
                return Ok(Written::Waits);
            }
            Sent::Off => {
                disk.queue.clear();
                self.export = None;
            }
        }
        Ok(Written::More)
    }

    fn take_out(&self, piece: &Piece, held: &Held, out: &mut Vec<u8>) -> Result<()> {
        match piece {
            Piece::State { layer, .. } => {
                held.slot.map_or(Ok(()), |slot| self.decoder.save(*layer, Place::Slot(slot), out))
            }
            Piece::Rows { layer, windowed, tokens, .. } => {
                let blocks = if *windowed { &held.windowed } else { &held.full };
                runs(blocks, tokens.clone()).try_for_each(|(place, _)| self.decoder.save(*layer, place, out))
            }
        }
    }

    /// Puts back what is on disk of the static text of a prompt beyond `hit`, if that is estimated to be faster than computing it.
    /// While somebody is `decoding`, no more files than a step has time for, but one.
    ///
    /// # Errors
    /// If the backend fails.
    pub(super) fn restore(
        &mut self,
        prefix: &Prefix,
        prompt: &[u32],
        hit: &Hit,
        decoding: bool,
    ) -> Result<Restored> {
        let most = prefix.pinned.min(prompt.len().saturating_sub(1));
        if self.disk.is_none() || !prefix.salt.is_empty() || most <= hit.len {
            return Ok(Restored::Nothing);
        }
        let ends = prefix.boundaries.iter().rev().filter(|end| **end > hit.len && **end <= most);
        match ends.copied().find_map(|end| self.chain(&prompt[..=end])) {
            Some(chain) => self.put_back(prompt, hit.len, chain, decoding),
            None => Ok(Restored::Nothing),
        }
    }

    /// The files that lead from what is in memory to all of `prompt` but its last token.
    fn chain(&self, prompt: &[u32]) -> Option<Vec<Stored>> {
        let disk = self.disk.as_ref()?;
        let mut chain = vec![disk.open(&prompt[..prompt.len() - 1])?];
        loop {
            let start = chain.last()?.header.start;
            if self.find("", &prompt[..=start]).len == start {
                chain.reverse();
                return Some(chain);
            }
            chain.push(disk.open(&prompt[..start])?);
        }
    }

    /// Puts back `chain`, each of whose files goes on where the one before ends. Without it there would be `known` tokens.
    fn put_back(
        &mut self,
        prompt: &[u32],
        known: usize,
        mut chain: Vec<Stored>,
        decoding: bool,
    ) -> Result<Restored> {
        let base = chain.first().map_or(0, |first| first.header.start);
        let bytes: u64 = chain.iter().map(Stored::bytes).sum();
        let end = chain.last().map_or(0, |last| last.header.tokens);
        let paces = chain.iter().map(|stored| Duration::from_nanos(stored.header.token_ns));
        let pace = if self.pace.token.is_zero() { paces.max().unwrap_or_default() } else { self.pace.token };
        let Some(disk) = self.disk.as_ref().filter(|disk| disk.pays(bytes, end - known, pace)) else {
            return Ok(Restored::Nothing);
        };
        let mut files = chain.len();
        if decoding {
            // Somebody waits for a token.
            let all = chain.iter().scan(0, |sum, stored| {
                *sum += stored.bytes();
                Some(*sum)
            });
            files = all.take_while(|bytes| disk.reading(*bytes) <= BEAT).count().max(1);
        }
        let part = files < chain.len();
        chain.truncate(files);
        let bytes: u64 = chain.iter().map(Stored::bytes).sum();
        let begun = Instant::now();
        let hit = self.find("", &prompt[..=base]);
        let mut table = self.attach(&hit)?;
        let mut all = table.len() == base;
        for stored in &mut chain {
            all = all && self.put_back_one(prompt, &mut table, stored)?;
        }
        let there = table.len() > base;
        self.release(table);
        if let Some(disk) = &mut self.disk {
            if all {
                disk.read(bytes, begun);
            }
            // What others go on from is kept longest.
            chain.iter().rev().for_each(Stored::touch);
        }
        Ok(match (there, all && part) {
            (false, _) => Restored::Nothing,
            (true, true) => Restored::Part,
            (true, false) => Restored::Some,
        })
    }

    /// False if the file is not believed, or there is no room for it.
    fn put_back_one(&mut self, prompt: &[u32], table: &mut Table, stored: &mut Stored) -> Result<bool> {
        let (start, end) = (table.len(), stored.header.tokens);
        let layout = self.pieces(start, end);
        if let Err(fault) = stored.expect(layout.iter().map(Piece::bytes)) {
            self.disk.iter().for_each(|disk| disk.distrust(&stored.path, &fault));
            return Ok(false);
        }
        // As steps do it: windowed layers have no room for all at once.
        while table.len() < end {
            let tokens = BLOCK_TOKENS.min(end - table.len());
            if !self.reserve(table, tokens)? {
                return Ok(false);
            }
            table.advance(tokens);
        }
        let slot = match self.cache.recurrent() {
            true => match self.prefixes.slot(&mut self.cache) {
                Some(slot) => Some(slot),
                None => return Ok(false),
            },
            false => None,
        };
        let mut bytes = Vec::new();
        for piece in &layout {
            bytes.resize(piece.bytes(), 0);
            let put = match stored.read(&mut bytes) {
                Ok(()) => self.put_in(piece, table, start, slot, &bytes).map(|()| true),
                Err(fault) => {
                    self.disk.iter().for_each(|disk| disk.distrust(&stored.path, &fault));
                    Ok(false)
                }
            };
            // Nobody has learned of what was put back so far.
            if !matches!(put, Ok(true)) {
                slot.into_iter().for_each(|slot| self.cache.release_slot(slot));
                return put;
            }
        }
        let prefix = Prefix { boundaries: vec![end], pinned: end, ..Prefix::default() };
        match self.cache.has_state() {
            true => self.prefixes.keep_state(&mut self.cache, &prefix, &prompt[..end], table, (end, slot)),
            false => self.prefixes.learn(&mut self.cache, &prefix, &prompt[..end], table),
        }
        Ok(true)
    }

    /// Puts a piece where `table`, and `slot` for recurrent state, have room for it. Windows before token `start` are there already.
    fn put_in(
        &mut self,
        piece: &Piece,
        table: &Table,
        start: usize,
        slot: Option<SlotId>,
        bytes: &[u8],
    ) -> Result<()> {
        let (layer, windowed, tokens) = match piece {
            Piece::State { layer, .. } => {
                return slot.map_or(Ok(()), |slot| self.decoder.load_back(*layer, Place::Slot(slot), bytes));
            }
            Piece::Rows { layer, windowed, tokens, .. } => (*layer, *windowed, tokens),
        };
        let blocks = if windowed { table.windowed() } else { table.full() };
        let row = bytes.len() / tokens.len().max(1);
        let (mut rest, mut at) = (bytes, tokens.start);
        for (place, rows) in runs(blocks, tokens.clone()) {
            let (bytes, after) = rest.split_at(row * rows);
            (rest, at) = (after, at + rows);
            if at > start {
                self.decoder.load_back(layer, place, bytes)?;
            }
        }
        Ok(())
    }
}
