//! Reads a stream to its end into bounded memory: the first and the last half of a limit, as whole
//! lines, with a count of the dropped rest between them.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cut;

/// How long to wait for the end of a stream whose program has ended: a process that left the group
/// may hold it open.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Buffered {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
    /// How many lines ended in the dropped part, and whether one ended at its end.
    lines: u64,
    whole: bool,
}

impl Buffered {
    fn push(&mut self, bytes: &[u8], limit: usize) {
        let (head, tail) = (limit / 2, limit - limit / 2);
        let (first, rest) = bytes.split_at(bytes.len().min(head - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(tail);
        if over > 0 {
            self.whole = self.tail[over - 1] == b'\n';
            self.lines += cut::lines(self.tail.range(..over));
            self.tail.drain(..over);
            self.dropped += over as u64;
        }
    }

    /// The captured bytes, and how many bytes were dropped between their halves.
    fn finish(mut self) -> (Vec<u8>, u64) {
        let tail = self.tail.make_contiguous();
        if self.dropped == 0 {
            return ([&self.head, &*tail].concat(), 0);
        }
        if self.head.is_empty() && tail.is_empty() {
            return (Vec::new(), self.dropped);
        }
        let (head, rest) = self.head.split_at(cut::head(&self.head));
        let (more, tail) = tail.split_at(cut::tail(tail, self.whole));
        let dropped = self.dropped + (rest.len() + more.len()) as u64;
        let lines = self.lines + cut::lines(rest) + cut::lines(more);
        (cut::joined(head, lines, dropped, tail), dropped)
    }
}

/// A stream that a thread reads.
pub struct Capture {
    buffered: Arc<Mutex<Buffered>>,
    seen: Arc<AtomicU64>,
    done: Receiver<()>,
}

impl Capture {
    /// Starts reading `stream`; keeps at most `limit` bytes.
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

    /// How many bytes have been read so far.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// The captured bytes, with a mark between their halves, and how many bytes were dropped there.
    pub fn finish(self) -> (Vec<u8>, u64) {
        // Nothing is ever sent: the end of the stream closes the channel.
        let _ = self.done.recv_timeout(GRACE);
        let buffered = std::mem::take(&mut *self.buffered.lock().unwrap_or_else(PoisonError::into_inner));
        buffered.finish()
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
        check("abcdefgh", 4, "ab\n[… 4 bytes left out …]\ngh", 4);
        check("abcdefgh", 5, "ab\n[… 3 bytes left out …]\nfgh", 3);
        check("abc", 0, "", 3);
    }

    #[test]
    fn lines_stay_whole() {
        let numbers: String = (1..=2_000_000).map(|number| format!("{number}\n")).collect();
        let (kept, dropped) = Capture::start(Some(std::io::Cursor::new(numbers.clone())), 1 << 20).finish();
        let kept = String::from_utf8(kept).unwrap();
        let (head, tail) = kept.split_once("[… ").unwrap();
        let (mark, tail) = tail.split_once("…]\n").unwrap();
        assert!(numbers.starts_with(head) && head.ends_with('\n') && numbers.ends_with(tail));
        let first: u64 = tail.lines().next().unwrap().parse().unwrap();
        let missing = first - 1 - head.lines().count() as u64;
        assert_eq!(mark, format!("{missing} lines, {dropped} bytes left out "));
        assert_eq!(head.len() as u64 + dropped + tail.len() as u64, numbers.len() as u64);
    }
}
