//! Connects the pool to the host memory tier: static text is moved there before the device evicts
//! it.
//! It is restored like text on disk, see `disk`.

use super::Pool;
use crate::backend::Backend;
use crate::cache::host::HostSegment;
use crate::cache::{OutOfMemory, SlotId};

impl<B: Backend> Pool<B> {
    /// Moves the static text that would be evicted next to host memory, if it isn't there yet.
    /// If the device can't provide it, it is lost and recomputed, as without this tier.
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

    /// A slot for recurrent state, evicting a snapshot if necessary; `None` if the model has no
    /// such state.
    ///
    /// # Errors
    /// If running sequences use all slots.
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
