//! The thread that writes files, so that no request waits for a disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::file::CHECKSUM;
use super::{Options, Pending, folder};

/// How many messages may be queued: several MiB.
const WAITING: usize = 4;

/// Interval of checks whether the thread has ended.
const LOOK: Duration = Duration::from_millis(2);

/// How many names to try for an unfinished file.
const NAMES: usize = 16;

/// A message to the writer thread.
#[derive(Debug)]
pub enum Message {
    /// Begins a file.
    Begin {
        /// The file's name.
        name: String,
        /// Everything before its payload.
        header: Vec<u8>,
        /// Size of its payload in bytes.
        payload: u64,
    },
    /// The next piece.
    Piece(Vec<u8>),
    /// Completes the file.
    End,
    /// Discards the file.
    Abandon,
}

/// The result of sending a message.
#[derive(Debug)]
pub enum Sent {
    /// The message was accepted.
    Taken,
    /// The thread is busy; try again.
    Later(Message),
    /// Writing was given up.
    Off,
}

/// The writer thread, started with the first file.
#[derive(Debug)]
pub struct Writer {
    options: Options,
    pending: Pending,
    thread: Option<(SyncSender<Message>, JoinHandle<()>)>,
}

impl Writer {
    /// Writes to the folder of `options`.
    /// Removes names from `pending` once they are no longer being written.
    pub fn new(options: &Options, pending: Pending) -> Self {
        Writer { options: options.clone(), pending, thread: None }
    }

    /// Whether writing was given up.
    pub fn is_off(&self) -> bool {
        self.options.outcome.off.load(Ordering::Relaxed)
    }

    /// Sends a message.
    pub fn send(&mut self, message: Message) -> Sent {
        if self.is_off() {
            return Sent::Off;
        }
        if self.thread.is_none() {
            let (sender, messages) = sync_channel(WAITING);
            let (options, pending) = (self.options.clone(), self.pending.clone());
            let thread = std::thread::Builder::new().name("prefix cache".into());
            match thread.spawn(move || write_all(&options, &pending, &messages)) {
                Ok(thread) => self.thread = Some((sender, thread)),
                Err(_) => return Sent::Off,
            }
        }
        let Some((sender, _)) = &self.thread else { return Sent::Off };
        match sender.try_send(message) {
            Ok(()) => Sent::Taken,
            Err(TrySendError::Full(message)) => Sent::Later(message),
            Err(TrySendError::Disconnected(_)) => Sent::Off,
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            let begun = Instant::now();
            while !thread.is_finished() && begun.elapsed() < self.options.patience {
                std::thread::sleep(LOOK);
            }
        }
    }
}

/// Processes messages.
/// The first error ends it: a full disk or a read-only folder won't be better for the next file.
fn write_all(options: &Options, pending: &Pending, messages: &Receiver<Message>) {
    let mut open: Option<Unfinished> = None;
    while let Ok(message) = messages.recv() {
        let done = match message {
            Message::Begin { name, header, payload } => {
                drop(open.take());
                Unfinished::begin(options, pending, &name, &header, payload).map(|begun| open = Some(begun))
            }
            Message::Piece(bytes) => open.as_mut().map_or(Ok(()), |file| file.piece(&bytes)),
            Message::End => {
                options.outcome.written.fetch_add(1, Ordering::Relaxed);
                open.take().map_or(Ok(()), Unfinished::publish)
            }
            Message::Abandon => {
                drop(open.take());
                Ok(())
            }
        };
        if let Err(error) = done {
            let folder = options.folder.display();
            options.log.line(format_args!(
                "can't write to {folder}: {error}; nothing more is kept there in this run"
            ));
            options.outcome.off.store(true, Ordering::Relaxed);
            return;
        }
    }
}

/// A file being written; removed on drop unless completed.
#[derive(Debug)]
struct Unfinished {
    file: File,
    path: PathBuf,
    /// The path under which it is published.
    name: PathBuf,
    published: bool,
    pending: Pending,
}

impl Unfinished {
    fn begin(
        options: &Options,
        pending: &Pending,
        name: &str,
        header: &[u8],
        payload: u64,
    ) -> io::Result<Self> {
        let Options { folder, limit, .. } = options;
        folder::claim(folder)?;
        folder::evict_until_fits(folder, payload.saturating_add(header.len() as u64), *limit)?;
        let mut create = OpenOptions::new();
        create.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut create, 0o600);
        // Processes in other containers may have the same id.
        let mut tries = (0..NAMES).map(|_| {
            let path = folder.join(folder::unfinished(name));
            create.open(&path).map(|file| (file, path))
        });
        let taken = |made: &io::Result<_>| {
            made.as_ref().is_err_and(|error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists)
        };
        let (file, path) =
            tries.find(|made| !taken(made)).unwrap_or(Err(io::ErrorKind::AlreadyExists.into()))?;
        // Without file locks, leftover files stay until the cache is cleared.
        let _ = file.try_lock();
        let mut unfinished =
            Unfinished { file, path, name: folder.join(name), published: false, pending: pending.clone() };
        unfinished.file.write_all(header)?;
        Ok(unfinished)
    }

    fn piece(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        let checksum: [u8; CHECKSUM] = crc32fast::hash(bytes).to_le_bytes();
        self.file.write_all(&checksum)
    }

    fn publish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        match fs::rename(&self.path, &self.name) {
            // The cache was cleared meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed?,
        }
        self.published = true;
        #[cfg(unix)]
        if let Some(folder) = self.name.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.published {
            let _ = fs::remove_file(&self.path);
        }
        if let Some(name) = self.name.file_name().and_then(|name| name.to_str()) {
            super::names(&self.pending).remove(name);
        }
    }
}
