//! The disk tier: keeps the cache of static text across restarts.
//!
//! A file is a node of the tree: a segment of tokens with all tokens before it, the segment's keys
//! and values, and a snapshot at its end.
//! Its name is a hash of the model's fingerprint and of the tokens, both of which are in its
//! header.
//! A separate thread writes it under a temporary name and publishes it by renaming, so that it is
//! either complete or absent.
//! It is checksummed, so that later damage is detected.
//! Any problem with a file or the folder costs a line in the log and the time to compute, never an
//! answer.
//! Owns files and names; `pool/disk.rs` transfers the numbers.
//!
//! Only text without a salt is cached, so that files don't undo the separation of tenants.
//!
//! The CPU never reads a file that a GPU helped to compute.

mod file;
mod folder;
mod writer;

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

pub use file::{Fault, Stored};
pub use folder::{Cleared, Entry, claim, clear, list, total_bytes};
use writer::Writer;
pub use writer::{Message, Sent};

/// Incremented whenever the meaning of the bytes in a file changes.
const LAYOUT: u32 = 1;

/// Assumed read speed in bytes per second until it is measured: a slow solid-state disk.
const READ_SPEED: f64 = 500e6;

/// Fewer bytes than this are too few to measure the speed.
const MEASURED: u64 = 16 << 20;

/// How many segments may wait for writing.
const QUEUED: usize = 64;

/// Minimum time to open and verify a file.
const READ_OVERHEAD: Duration = Duration::from_millis(2);

/// Settings of the disk tier.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder; created with access for the user only if it doesn't exist.
    pub folder: PathBuf,
    /// Most bytes of all files; the least recently used are evicted first.
    pub limit: u64,
    /// How long a dropped engine continues writing queued segments.
    /// With [`Duration::MAX`] it writes all of them.
    pub patience: Duration,
    /// Whether to read and write everything possible, not only what is estimated to be faster to
    /// read than to compute.
    /// For tests.
    pub always: bool,
    /// Receives messages about problems.
    pub log: Log,
    /// Receives the results of writing.
    pub outcome: Arc<Outcome>,
}

/// Results of writing.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Whether writing was given up.
    pub off: AtomicBool,
    /// Number of files to be written.
    pub wanted: AtomicUsize,
    /// Number of files written.
    pub written: AtomicUsize,
}

/// Receives messages for the user.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(&str) + Send + Sync>);

impl Log {
    /// Passes each message to `to`, from any thread.
    pub fn new(to: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Log(Arc::new(to))
    }

    fn line(&self, line: fmt::Arguments) {
        (self.0)(&format!("prefix cache: {line}"));
    }
}

impl Default for Log {
    /// Discards messages.
    fn default() -> Self {
        Log::new(|_| {})
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

/// What a file's contents depend on besides its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// A fingerprint of the sequence `parts` (concatenations differ), of this program's build and
    /// of the layout.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        let program =
            concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"), " ", env!("ALARA_BUILD"))
                .as_bytes();
        for part in [program, &LAYOUT.to_le_bytes()].iter().chain(parts) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Fingerprint(hash.finalize().into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A static segment to be written: the end of a text whose beginning is already cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Tokens from the beginning of the text to the segment's end.
    pub tokens: Vec<u32>,
    /// Number of tokens before the segment.
    pub start: usize,
}

/// Names of files that are queued, being written, or too large.
type Pending = Arc<Mutex<HashSet<String>>>;

fn names(pending: &Pending) -> MutexGuard<'_, HashSet<String>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The disk tier of one model's engine.
#[derive(Debug)]
pub struct Disk {
    options: Options,
    model: String,
    fingerprint: Fingerprint,
    writer: Writer,
    pending: Pending,
    /// Whether files being too large was already logged.
    warned: bool,
    /// Segments to be written.
    pub queue: VecDeque<Segment>,
    /// The measured speed in bytes per second.
    speed: f64,
}

impl Disk {
    /// The tier for a model.
    /// `model` is the name in listings.
    /// `None`, with a log message, if the folder is unsuitable.
    pub fn new(options: Options, model: &str, fingerprint: Fingerprint) -> Option<Self> {
        if let Err(error) = claim(&options.folder) {
            options.log.line(format_args!("{} is not used: {error}", options.folder.display()));
            options.outcome.off.store(true, Ordering::Relaxed);
            return None;
        }
        let pending = Pending::default();
        Some(Disk {
            writer: Writer::new(&options, pending.clone()),
            options,
            model: model.to_owned(),
            fingerprint,
            pending,
            warned: false,
            queue: VecDeque::new(),
            speed: READ_SPEED,
        })
    }

    /// The file for the end of `tokens`, if there is a valid one.
    pub fn open(&self, tokens: &[u32]) -> Option<Stored> {
        let path = self.options.folder.join(self.name(tokens));
        match Stored::open(&path) {
            Ok(stored) => {
                let same =
                    stored.header.fingerprint == self.fingerprint.to_string() && stored.tokens == tokens;
                if !same {
                    self.distrust(&path, &Fault::Damaged("it holds another text than its name says"));
                }
                same.then_some(stored)
            }
            Err(Fault::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(fault) => {
                self.distrust(&path, &fault);
                None
            }
        }
    }

    /// Logs that a file isn't used, and removes it if it is damaged, so that it can be rewritten.
    pub fn distrust(&self, path: &Path, fault: &Fault) {
        self.options.log.line(format_args!("{} is ignored: {fault}", path.display()));
        if let Fault::Damaged(_) = fault {
            // In a read-only folder it stays.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Whether reading `bytes` is estimated to be faster than computing `tokens` tokens at `pace`
    /// each.
    pub fn pays(&self, bytes: u64, tokens: usize, pace: Duration) -> bool {
        self.options.always || self.reading(bytes).as_secs_f64() < tokens as f64 * pace.as_secs_f64()
    }

    /// The estimated time to read `bytes`.
    pub fn reading(&self, bytes: u64) -> Duration {
        READ_OVERHEAD + Duration::from_secs_f64(bytes as f64 / self.speed)
    }

    /// Sets the read speed to this many bytes per second.
    #[cfg(test)]
    pub fn assume(&mut self, speed: f64) {
        self.speed = speed;
    }

    /// Updates the speed from a read of `bytes` that began at `since`.
    pub fn read(&mut self, bytes: u64, since: Instant) {
        if bytes >= MEASURED {
            let took = since.elapsed().saturating_sub(READ_OVERHEAD).max(Duration::from_millis(1));
            self.speed = (self.speed + bytes as f64 / took.as_secs_f64()) / 2.0;
        }
    }

    /// How long writing queued segments may take once there are no more requests.
    pub fn patience(&self) -> Duration {
        self.options.patience
    }

    /// Queues a segment, unless it is stored, queued or too large, or writing was given up.
    pub fn want(&mut self, segment: Segment) {
        let name = self.name(&segment.tokens);
        let waits = self.queue.len() < QUEUED || self.options.patience == Duration::MAX;
        if waits
            && !self.writer.is_off()
            && !names(&self.pending).contains(&name)
            && !self.options.folder.join(&name).exists()
        {
            self.options.outcome.wanted.fetch_add(1, Ordering::Relaxed);
            names(&self.pending).insert(name);
            self.queue.push_back(segment);
        }
    }

    /// The message that begins the file of `segment`, whose keys, values and state take `payload`
    /// bytes; `None` if it is too large.
    pub fn begin(&mut self, segment: &Segment, payload: u64, pace: Duration) -> Option<Message> {
        let header = file::Header {
            model: self.model.clone(),
            fingerprint: self.fingerprint.to_string(),
            start: segment.start,
            tokens: segment.tokens.len(),
            payload,
            token_ns: pace.as_nanos() as u64,
        };
        let (name, header) = (self.name(&segment.tokens), header.bytes(&segment.tokens));
        let (bytes, limit) = (payload.saturating_add(header.len() as u64), self.options.limit);
        if bytes <= limit {
            return Some(Message::Begin { name, header, payload });
        }
        if !std::mem::replace(&mut self.warned, true) {
            self.options.log.line(format_args!(
                "{} tokens take {bytes} bytes, more than the limit of {limit}, and are not kept",
                segment.tokens.len() - segment.start
            ));
        }
        None
    }

    /// Sends a message to the writer thread.
    pub fn send(&mut self, message: Message) -> Sent {
        self.writer.send(message)
    }

    fn name(&self, tokens: &[u32]) -> String {
        let mut hash = Sha256::new();
        hash.update(self.fingerprint.0);
        tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
        folder::name(&hash.finalize().into())
    }
}

#[cfg(test)]
mod tests;
