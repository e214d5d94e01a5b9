//! Reads a stream to its end into bounded memory: the first and the last half of a limit, and a
//! count of the rest.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long to wait for the end of a stream whose program has ended: a process that left the group
/// may hold it.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Buffered {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Buffered {
    fn push(&mut self, bytes: &[u8], limit: usize) {
        let (head, tail) = (limit / 2, limit - limit / 2);
        let (first, rest) = bytes.split_at(bytes.len().min(head - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(tail);
        self.tail.drain(..over);
        self.dropped += over as u64;
    }
}

/// A stream that is being read on a thread of its own.
pub struct Capture {
    buffered: Arc<Mutex<Buffered>>,
    seen: Arc<AtomicU64>,
    done: Receiver<()>,
}

impl Capture {
    /// Starts reading `stream`, keeping at most `limit` bytes.
    pub fn start(stream: Option<impl Read + Send + 'static>, limit: usize) -> Self {
        let buffered = Arc::new(Mutex::new(Buffered::default()));
        let seen = Arc::new(AtomicU64::new(0));
        let (sender, done) = channel();
        if let Some(mut stream) = stream {
            let (buffered, seen) = (buffered.clone(), seen.clone());
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    seen.fetch_add(count as u64, Ordering::Relaxed);
                    buffered.lock().unwrap_or_else(PoisonError::into_inner).push(&buffer[..count], limit);
                }
                drop(sender);
            });
        }
        Capture { buffered, seen, done }
    }

    /// How many bytes have come so far.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// What was kept, and how many bytes were dropped between its halves.
    pub fn finish(self) -> (Vec<u8>, u64) {
        // Nothing is ever sent: the end of the stream hangs up.
        let _ = self.done.recv_timeout(GRACE);
        let buffered = std::mem::take(&mut *self.buffered.lock().unwrap_or_else(PoisonError::into_inner));
        let mut bytes = buffered.head;
        bytes.extend(buffered.tail);
        (bytes, buffered.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_both_ends() {
        let check = |input: &str, limit, expected: &str, dropped| {
            let capture = Capture::start(Some(std::io::Cursor::new(input.to_owned())), limit);
            assert_eq!(capture.finish(), (expected.into(), dropped), "{input} limited to {limit}");
        };
        check("", 4, "", 0);
        check("abcd", 4, "abcd", 0);
        check("abcdefgh", 4, "abgh", 4);
        check("abcdefgh", 5, "abfgh", 3);
        check("abc", 0, "", 3);
    }
}
