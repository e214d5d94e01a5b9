//! Programs that run in parallel with others: servers, long builds.

use std::collections::VecDeque;
use std::io::Read;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use super::isolation::launcher;
use super::{Sandbox, Service, exit_code};
use super::{layer, supervise};
use crate::Error;
use crate::undo::Before;

/// Most bytes of unread output.
const WAITING: usize = 1 << 20;
/// How long a program may take to exit when asked.
const GRACE: Duration = Duration::from_secs(3);
/// How long to wait for the last output of a program that has ended.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// A program that runs until it exits, is ended, or this is dropped.
#[derive(Debug)]
pub struct Job {
    service: Service,
    output: Arc<Mutex<Waiting>>,
    /// Closed at the end of the output.
    followed: Mutex<Receiver<()>>,
    begun: Instant,
    /// Whether it was asked to exit.
    asked: AtomicBool,
    ended: OnceLock<Ended>,
    /// The earlier state of the work directory, if its changes are recorded as the job's.
    pub(super) before: Mutex<Option<Before>>,
    #[cfg(target_os = "linux")]
    limits: supervise::Limits,
    /// Its layer, if it doesn't write to the work directory itself.
    #[cfg(target_os = "linux")]
    pub(super) layer: Mutex<Option<(tempfile::TempDir, layer::Taken)>>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The exit status, or 128 + the signal's number.
    /// `None` if it had to be killed.
    pub exit: Option<i32>,
    /// The same in words: "exit status 1".
    pub how: String,
}

/// Output that hasn't been read yet.
#[derive(Debug, Default)]
struct Waiting {
    bytes: VecDeque<u8>,
    dropped: u64,
}

impl Job {
    /// Starts `command` as a job of `sandbox`.
    pub(super) fn start(
        command: Command,
        sandbox: &Sandbox,
        before: Option<Before>,
    ) -> std::io::Result<Self> {
        let (service, pipes) = Service::start(command, sandbox.launched())?;
        drop(pipes.stdin);
        let output = Arc::default();
        let (over, followed) = channel();
        follow(pipes.stdout, &output, over.clone());
        follow(pipes.stderr, &output, over);
        Ok(Job {
            service,
            output,
            followed: Mutex::new(followed),
            begun: Instant::now(),
            asked: AtomicBool::new(false),
            ended: OnceLock::new(),
            before: Mutex::new(before),
            #[cfg(target_os = "linux")]
            limits: sandbox.limits(),
            #[cfg(target_os = "linux")]
            layer: Mutex::default(),
        })
    }

    /// How long it has been running.
    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// How it ended; `None` if it still runs after waiting for `within`.
    pub fn ended(&self, within: Duration) -> Option<&Ended> {
        if self.ended.get().is_none() && self.service.is_over(within) {
            let _ = self.ended.set(self.end_in_words());
        }
        self.ended.get()
    }

    fn end_in_words(&self) -> Ended {
        let status = self.service.status();
        #[cfg(target_os = "linux")]
        if let Some(limit) = status.filter(|_| self.service.is_launched()).and_then(supervise::Limit::of) {
            return Ended { exit: None, how: self.limits.broken(limit) };
        }
        let exit = status.map(exit_code);
        let how = match exit {
            _ if self.asked.load(Ordering::Relaxed) => "ended when asked to".to_owned(),
            Some(code) => format!("exit status {code}"),
            None => "killed".to_owned(),
        };
        Ended { exit, how }
    }

    /// Its raw stdout and stderr since the last call, and how many bytes were dropped before that.
    pub fn read(&self) -> (String, u64) {
        let over = self.ended(Duration::ZERO).is_some();
        if over {
            // Nothing is ever sent.
            let followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = followed.recv_timeout(LAST_OUTPUT);
        }
        let mut waiting = self.waiting();
        let mut bytes: Vec<u8> = waiting.bytes.drain(..).collect();
        if !over {
            // An incomplete character at the end is left for the next call.
            let rest = unfinished(&bytes);
            waiting.bytes.extend(bytes.drain(bytes.len() - rest..));
        }
        #[cfg(target_os = "linux")]
        if over {
            // The processes that it left running are gone with it.
            let _ = launcher::left(&mut bytes);
        }
        (String::from_utf8_lossy(&bytes).into_owned(), std::mem::take(&mut waiting.dropped))
    }

    /// Whether there is unread output.
    pub fn has_output(&self) -> bool {
        !self.waiting().bytes.is_empty()
    }

    /// Ends it with all that it started: asks it to exit, and kills it if it doesn't.
    pub fn end(&self) {
        if self.ended(Duration::ZERO).is_some() {
            return;
        }
        self.asked.store(true, Ordering::Relaxed);
        #[cfg(target_os = "linux")]
        let leave = if self.service.is_launched() { launcher::LEAVE } else { TERM };
        #[cfg(all(unix, not(target_os = "linux")))]
        let leave = TERM;
        #[cfg(unix)]
        self.service.signal(leave);
        if self.ended(GRACE).is_none() {
            self.service.kill();
            let _ = self.ended(Duration::ZERO);
        }
    }

    /// Why it failed to start, if its output so far reports that.
    pub fn failure(&self, output: &str) -> Option<Error> {
        #[cfg(target_os = "linux")]
        {
            let exit = self.ended(Duration::ZERO)?.exit;
            let message = launcher::complaint(exit, output.as_bytes());
            message.filter(|_| self.service.is_launched()).map(|message| Error::Launcher { message })
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = output;
            None
        }
    }

    /// Discards its changes that haven't been taken over.
    pub fn discard(&self) {
        #[cfg(target_os = "linux")]
        if let Some((folder, _)) = self.layer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = crate::scratch::remove(folder.path());
        }
    }

    /// Shows it the current state of the work directory.
    pub fn refresh(&self) {
        #[cfg(target_os = "linux")]
        if self.layer.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            self.service.signal(launcher::REFRESH);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(unix)]
const TERM: nix::sys::signal::Signal = nix::sys::signal::Signal::SIGTERM;

/// Reads a stream to its end on a separate thread.
fn follow(mut stream: impl Read + Send + 'static, into: &Arc<Mutex<Waiting>>, over: Sender<()>) {
    let into = into.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let mut waiting = into.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(&buffer[..count]);
        }
        drop(over);
    });
}

impl Waiting {
    /// Appends bytes; drops the oldest ones to make space.
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let over = self.bytes.len().saturating_sub(WAITING);
        self.bytes.drain(..over);
        self.dropped += over as u64;
    }
}

/// How many bytes at the end are an incomplete character.
fn unfinished(bytes: &[u8]) -> usize {
    let end = &bytes[bytes.len().saturating_sub(3)..];
    // The start of a character that needs more bytes than there are.
    let begins = |at: usize| match end[at] {
        0xc2..=0xdf => at + 2 > end.len(),
        0xe0..=0xef => at + 3 > end.len(),
        0xf0..=0xf4 => at + 4 > end.len(),
        _ => false,
    };
    (0..end.len()).rev().find(|at| begins(*at)).map_or(0, |at| end.len() - at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_output_is_dropped_and_counted() {
        let mut waiting = Waiting::default();
        waiting.push(&vec![b'a'; WAITING]);
        waiting.push(b"bcd");
        assert_eq!((waiting.bytes.len(), waiting.dropped, waiting.bytes[WAITING - 1]), (WAITING, 3, b'd'));
    }

    #[test]
    fn a_character_is_not_cut() {
        for (text, cut, expected) in
            [("a", 0, 0), ("é", 1, 1), ("a€", 1, 2), ("😀", 1, 3), ("😀", 0, 0), ("é", 0, 0)]
        {
            let bytes = &text.as_bytes()[..text.len() - cut];
            assert_eq!(unfinished(bytes), expected, "{text} without {cut} bytes");
        }
        assert_eq!(unfinished(b"\xff\x80"), 0);
    }
}
