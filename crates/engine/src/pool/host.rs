//! Between the pool and the tier in the host's memory: static text that is evicted on the device is
//! moved there first.
//! It is restored as what is on disk is, see `disk`.

use super::Pool;
use crate::backend::Backend;
use crate::cache::host::HostSegment;
use crate::cache::{OutOfMemory, SlotId};

impl<B: Backend> Pool<B> {
    /// Moves the static text that is evicted next to the host's memory, if it is not there yet.
    /// What the device can't give is lost, as it would be without this: it is computed again.
    pub(super) fn move_to_host(&mut self, kind: OutOfMemory) {
        if self.host.is_off() {
            return;
        }
        let Some((salt, tokens, start)) = self.prefixes.eviction_candidate(&self.cache, kind) else { return };
        if self.host.has(&salt, &tokens) {
            return;
        }
        let Some(location) = self.prefixes.locate(&self.cache, &salt, &tokens) else { return };
        let out = self.pieces(start, tokens.len()).into_iter().map(|piece| {
            let mut bytes = Vec::with_capacity(piece.bytes());
            self.read_piece(&piece, &location, &mut bytes).map(|()| bytes)
        });
        if let Ok(pieces) = out.collect() {
            self.host.put(&salt, &tokens, HostSegment { start, pieces });
        }
    }

    /// A slot for recurrent state, if need be an evicted snapshot's; `None` if the model has no
    /// such state.
    ///
    /// # Errors
    /// If running sequences have all slots.
    pub(super) fn slot(&mut self) -> Result<Option<SlotId>, OutOfMemory> {
        if !self.cache.recurrent() {
            return Ok(None);
        }
        if let Some(slot) = self.cache.take_slot() {
            return Ok(Some(slot));
        }
        self.move_to_host(OutOfMemory::Snapshots);
        self.prefixes.slot(&mut self.cache).map(Some).ok_or(OutOfMemory::Snapshots)
    }
}
