//! Between the pool and the tier in the host's memory: static text that is given up on the device
//! is moved there first.
//! It comes back as what is on disk does, see `disk`.

use super::Pool;
use crate::backend::Backend;
use crate::cache::host::Parked;
use crate::cache::{Lack, SlotId};

impl<B: Backend> Pool<B> {
    /// Moves the static text that is given up next for `lack` to the host's memory, if it is not
    /// there yet.
    /// What the device can't give is lost, as it would be without this: it is computed again.
    pub(super) fn park(&mut self, lack: Lack) {
        if self.host.is_off() {
            return;
        }
        let Some((salt, tokens, start)) = self.prefixes.leaving(&self.cache, lack) else { return };
        if self.host.has(&salt, &tokens) {
            return;
        }
        let Some(held) = self.prefixes.held(&self.cache, &salt, &tokens) else { return };
        let out = self.pieces(start, tokens.len()).into_iter().map(|piece| {
            let mut bytes = Vec::with_capacity(piece.bytes());
            self.take_out(&piece, &held, &mut bytes).map(|()| bytes)
        });
        if let Ok(pieces) = out.collect() {
            self.host.put(&salt, &tokens, Parked { start, pieces });
        }
    }

    /// A slot for a snapshot, if need be that of the least one; `None` if running sequences have
    /// all.
    pub(super) fn slot(&mut self) -> Option<SlotId> {
        if let Some(slot) = self.cache.take_slot() {
            return Some(slot);
        }
        self.park(Lack::State);
        self.prefixes.slot(&mut self.cache)
    }
}
