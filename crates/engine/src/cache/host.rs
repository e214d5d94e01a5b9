//! The tier in the host's memory: keys and values of static text that were evicted on a device, in
//! the form of a file.
//! It lasts as long as the process does, so nothing in it needs to be checked; the least recently
//! used text is evicted first.

use std::collections::HashMap;
use std::sync::Arc;

/// A static segment: the layers' cache of its tokens, piece after piece.
#[derive(Debug)]
pub struct HostSegment {
    /// Number of tokens before those whose keys and values are here.
    pub start: usize,
    /// The pieces.
    pub pieces: Vec<Vec<u8>>,
}

impl HostSegment {
    /// Bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

/// The tier.
#[derive(Debug, Default)]
pub struct HostMemory {
    /// By salt and all tokens up to the segment's end; with when it was last used.
    segments: HashMap<(String, Vec<u32>), (u64, Arc<HostSegment>)>,
    bytes: u64,
    limit: u64,
    clock: u64,
}

impl HostMemory {
    /// A tier of so many bytes; 0 caches nothing.
    pub fn new(limit: u64) -> Self {
        HostMemory { limit, ..HostMemory::default() }
    }

    /// Whether there can never be anything in it.
    pub fn is_off(&self) -> bool {
        self.limit == 0
    }

    /// Whether the segment at the end of `tokens` is there.
    pub fn has(&self, salt: &str, tokens: &[u32]) -> bool {
        self.segments.contains_key(&(salt.to_owned(), tokens.to_vec()))
    }

    /// The segment at the end of `tokens`.
    pub fn get(&self, salt: &str, tokens: &[u32]) -> Option<Arc<HostSegment>> {
        self.segments.get(&(salt.to_owned(), tokens.to_vec())).map(|(_, segment)| segment.clone())
    }

    /// Says that a segment was used now.
    pub fn touch(&mut self, salt: &str, tokens: &[u32]) {
        self.clock += 1;
        if let Some((used, _)) = self.segments.get_mut(&(salt.to_owned(), tokens.to_vec())) {
            *used = self.clock;
        }
    }

    /// Caches a segment, evicting others.
    /// One that is larger than the tier is not cached.
    pub fn put(&mut self, salt: &str, tokens: &[u32], segment: HostSegment) {
        let bytes = segment.bytes();
        if bytes > self.limit {
            return;
        }
        self.clock += 1;
        let key = (salt.to_owned(), tokens.to_vec());
        if let Some((_, before)) = self.segments.insert(key, (self.clock, Arc::new(segment))) {
            self.bytes -= before.bytes();
        }
        self.bytes += bytes;
        while self.bytes > self.limit {
            let oldest = self.segments.iter().min_by_key(|(_, (used, _))| *used);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { return };
            if let Some((_, gone)) = self.segments.remove(&key) {
                self.bytes -= gone.bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_is_evicted_first() {
        let mut host = HostMemory::new(100);
        let put = |host: &mut HostMemory, token: u32, bytes: usize| {
            host.put("", &[token], HostSegment { start: 0, pieces: vec![vec![token as u8; bytes]] });
        };
        let cached = |host: &HostMemory| (1..6).filter(|token| host.has("", &[*token])).collect::<Vec<u32>>();
        put(&mut host, 1, 40);
        put(&mut host, 2, 40);
        host.touch("", &[1]);
        put(&mut host, 3, 30);
        assert_eq!(cached(&host), [1, 3]);
        // What is larger than the tier evicts nothing.
        put(&mut host, 4, 101);
        assert_eq!(cached(&host), [1, 3]);
        // The same again is there once.
        put(&mut host, 3, 60);
        assert_eq!((cached(&host), host.bytes), (vec![1, 3], 100));
        assert!(host.get("other", &[1]).is_none(), "tenants share nothing");
        assert_eq!(host.get("", &[3]).unwrap().bytes(), 60);
        assert!(HostMemory::default().is_off());
    }
}
