//! The host memory tier: keys and values of static text that were evicted from a device, in the
//! format of cache files.
//! It lives as long as the process, so its contents need no verification; the least recently used
//! text is evicted first.

use std::collections::HashMap;
use std::sync::Arc;

/// A static segment: the layers' cache of its tokens, as a list of pieces.
#[derive(Debug)]
pub struct HostSegment {
    /// Number of tokens before those cached here.
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

/// The host memory tier.
#[derive(Debug, Default)]
pub struct HostMemory {
    /// Segments by salt and all tokens up to their end; each with the time of last use.
    segments: HashMap<(String, Vec<u32>), (u64, Arc<HostSegment>)>,
    bytes: u64,
    limit: u64,
    clock: u64,
}

impl HostMemory {
    /// A tier of `limit` bytes; 0 caches nothing.
    pub fn new(limit: u64) -> Self {
        HostMemory { limit, ..HostMemory::default() }
    }

    /// Whether the tier caches nothing.
    pub fn is_off(&self) -> bool {
        self.limit == 0
    }

    /// Whether the segment at the end of `tokens` is cached.
    pub fn has(&self, salt: &str, tokens: &[u32]) -> bool {
        self.segments.contains_key(&(salt.to_owned(), tokens.to_vec()))
    }

    /// The segment at the end of `tokens`.
    pub fn get(&self, salt: &str, tokens: &[u32]) -> Option<Arc<HostSegment>> {
        self.segments.get(&(salt.to_owned(), tokens.to_vec())).map(|(_, segment)| segment.clone())
    }

    /// Updates a segment's time of last use.
    pub fn touch(&mut self, salt: &str, tokens: &[u32]) {
        self.clock += 1;
        if let Some((used, _)) = self.segments.get_mut(&(salt.to_owned(), tokens.to_vec())) {
            *used = self.clock;
        }
    }

    /// Caches a segment, evicting others if necessary.
    /// A segment larger than the tier is not cached.
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
        // A segment larger than the tier evicts nothing.
        put(&mut host, 4, 101);
        assert_eq!(cached(&host), [1, 3]);
        // A segment put twice is stored once.
        put(&mut host, 3, 60);
        assert_eq!((cached(&host), host.bytes), (vec![1, 3], 100));
        assert!(host.get("other", &[1]).is_none(), "tenants share nothing");
        assert_eq!(host.get("", &[3]).unwrap().bytes(), 60);
        assert!(HostMemory::default().is_off());
    }
}
