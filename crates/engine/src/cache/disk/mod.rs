//! The tier on disk: the cache of static text, across restarts.
//!
//! A file is a node of the tree: a segment of tokens and all before it, the segment's keys and
//! values, and a snapshot at its end.
//! Its name is a hash of the model's fingerprint and of its tokens, and its header has both.
//! A thread of its own writes it under a temporary name and publishes it by renaming, so that there
//! is all of it or nothing.
//! It is checksummed, so that what was damaged later is not believed.
//! Whatever is wrong with a file or the folder costs a line in the log and the time to compute,
//! never an answer.
//! Owns files and names; `pool/disk.rs` knows where the numbers come from and go.
//!
//! Only text without a salt is cached: what separates tenants must not be undone by a file.
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

/// Changes whenever the bytes in a file mean something else.
const LAYOUT: u32 = 1;

/// Bytes a second that reading is taken to bring, until it is measured: a slow solid-state disk.
const READ_SPEED: f64 = 500e6;

/// Fewer bytes than this say nothing about the speed.
const MEASURED: u64 = 16 << 20;

/// How many segments may wait to be written.
const QUEUED: usize = 64;

/// What opening and checking a file takes at least.
const READ_OVERHEAD: Duration = Duration::from_millis(2);

/// Where the tier lies, and how much it may hold.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder; it is made, for the user alone, if there is none.
    pub folder: PathBuf,
    /// Most bytes of all files in it; what was not used for the longest time goes first.
    pub limit: u64,
    /// How long an engine that is dropped goes on writing what is queued.
    /// With [`Duration::MAX`], whatever is wanted is written.
    pub patience: Duration,
    /// Whether to read and write whatever can be, not only what is estimated to be read faster than
    /// computed.
    /// For tests.
    pub always: bool,
    /// Where lines go about what went wrong.
    pub log: Log,
    /// Where what became of it is noted.
    pub outcome: Arc<Outcome>,
}

/// What became of what was to be written.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Whether nothing can be written any more.
    pub off: AtomicBool,
    /// Files that were to be written.
    pub wanted: AtomicUsize,
    /// Of these, how many were.
    pub written: AtomicUsize,
}

/// Takes lines for the user.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(&str) + Send + Sync>);

impl Log {
    /// Gives each line to `to`, from any thread.
    pub fn new(to: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Log(Arc::new(to))
    }

    fn line(&self, line: fmt::Arguments) {
        (self.0)(&format!("prefix cache: {line}"));
    }
}

impl Default for Log {
    /// Forgets them.
    fn default() -> Self {
        Log::new(|_| {})
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

/// What a file's contents depend on beside its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of everything in `parts`, each told apart from the next, and of this program's build and
    /// layout.
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

/// A static segment that is to be written: the end of a text, whose beginning is cached already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// From the first token of the text to the segment's end.
    pub tokens: Vec<u32>,
    /// Number of tokens before the segment.
    pub start: usize,
}

/// Names of files that wait, are being written, or don't fit.
type Pending = Arc<Mutex<HashSet<String>>>;

fn names(pending: &Pending) -> MutexGuard<'_, HashSet<String>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tier, as the engine of one model sees it.
#[derive(Debug)]
pub struct Disk {
    options: Options,
    model: String,
    fingerprint: Fingerprint,
    writer: Writer,
    pending: Pending,
    /// Whether it was logged that files are too large.
    warned: bool,
    /// What is to be written.
    pub queue: VecDeque<Segment>,
    /// Bytes a second, as it was last measured.
    speed: f64,
}

impl Disk {
    /// The tier for a model.
    /// `model` is what lists call it.
    /// `None`, and a line, if the folder is not fit.
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

    /// The file that has the end of `tokens`, if there is one that can be believed.
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

    /// Says that a file is not used, and removes it if it is damaged, so that it can be written
    /// anew.
    pub fn distrust(&self, path: &Path, fault: &Fault) {
        self.options.log.line(format_args!("{} is ignored: {fault}", path.display()));
        if let Fault::Damaged(_) = fault {
            // In a folder that can't be changed it stays.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Whether reading `bytes` is estimated to be faster than computing `tokens` tokens at `pace`,
    /// the time for one of them.
    pub fn pays(&self, bytes: u64, tokens: usize, pace: Duration) -> bool {
        self.options.always || self.reading(bytes).as_secs_f64() < tokens as f64 * pace.as_secs_f64()
    }

    /// How long reading `bytes` is estimated to take.
    pub fn reading(&self, bytes: u64) -> Duration {
        READ_OVERHEAD + Duration::from_secs_f64(bytes as f64 / self.speed)
    }

    /// Takes it for granted that so many bytes are read in a second.
    #[cfg(test)]
    pub fn assume(&mut self, speed: f64) {
        self.speed = speed;
    }

    /// Learns how long reading `bytes` took.
    pub fn read(&mut self, bytes: u64, since: Instant) {
        if bytes >= MEASURED {
            let took = since.elapsed().saturating_sub(READ_OVERHEAD).max(Duration::from_millis(1));
            self.speed = (self.speed + bytes as f64 / took.as_secs_f64()) / 2.0;
        }
    }

    /// How long what is queued may take once there are no more requests.
    pub fn patience(&self) -> Duration {
        self.options.patience
    }

    /// Queues a segment, unless it is there, is queued, would not fit, or nothing can be written.
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

    /// Hands a message to the thread that writes.
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
