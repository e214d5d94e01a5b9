//! The changes of a session to its work directory, and how to undo them.
//!
//! A session has a folder once it has changed something.
//! `journal.jsonl` has a line for each program that did: the state of each path before and after.
//! `kept` has former contents, each under its SHA-256.
//! The time of `beat` is that of the session, as long as it runs; the file is locked as long as a
//! program runs, even if the session was killed.
//! While the session runs, `known.jsonl` has the earlier state of each path of a directory that is
//! compared as a whole.
//! This module knows files, but not which tools there are, or who may ask for what.

mod back;
mod half;
mod journal;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use back::{Refused, left, net, take_back};
pub use half::{is_half, new_half};
pub use journal::{Before, Journal};

/// alara keeps the contents of files up to this size.
pub const FILE_BYTES: u64 = 8 << 20;
/// Most bytes of contents kept for a session.
pub const SESSION_BYTES: u64 = 256 << 20;
/// Most files of a work directory that is compared as a whole, since a program's changes in it
/// aren't known.
pub const FILES: usize = 20_000;
/// How many of the latest sessions keep their folders.
pub const SESSIONS: usize = 20;

const JOURNAL: &str = "journal.jsonl";
const KEPT: &str = "kept";
const KNOWN: &str = "known.jsonl";
const BEAT: &str = "beat";
/// How long after the last beat of a session a change may still be the session's.
const AFTER: Duration = Duration::from_millis(300);
/// How long to wait for the processes of a dead session, which the kernel is ending.
const PATIENCE: Duration = Duration::from_secs(10);
/// The author of an undo in journals, before the session's name.
const BY: &str = "alara undo ";

/// The state of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum State {
    /// Nothing.
    Nothing,
    /// A file.
    File {
        /// Its permissions.
        mode: u32,
        /// Its length in bytes.
        size: u64,
        /// The SHA-256 of its content; for a file that is unreadable or longer than [`FILE_BYTES`],
        /// the time of its last change.
        content: String,
    },
    /// A directory.
    Directory {
        /// Its permissions.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// The target.
        #[serde(with = "as_text")]
        target: PathBuf,
    },
    /// A pipe, a socket or a device.
    Other,
}

/// A path with its states before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The path, relative to the work directory.
    #[serde(with = "as_text")]
    pub path: PathBuf,
    /// The state before.
    pub before: State,
    /// The state after.
    pub after: State,
}

impl Changed {
    /// The change as a verb.
    pub fn verb(&self) -> &'static str {
        match (&self.before, &self.after) {
            (State::Nothing, _) => "created",
            (_, State::Nothing) => "removed",
            _ => "changed",
        }
    }
}

/// The changes of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The time, as RFC 3339.
    pub time: String,
    /// The work directory.
    #[serde(with = "as_text")]
    pub work: PathBuf,
    /// Who made the changes, with which call.
    pub by: String,
    /// The trace of the call; empty if it has no file.
    #[serde(default, with = "as_text")]
    pub trace: PathBuf,
    /// The scope of the call in that trace.
    #[serde(default)]
    pub scope: String,
    /// The number that connects the lines of an entry's beginning and end.
    #[serde(default)]
    pub number: usize,
    /// Whether this is the line of the beginning; without another one, the program was cut off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// The changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Changed>,
    /// Why the changes are unknown, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncovered: Option<String>,
}

/// A line about the state of a path; the last one for a path counts.
#[derive(Serialize, Deserialize)]
struct Seen {
    #[serde(with = "as_text")]
    path: PathBuf,
    state: State,
}

/// The author of changes, for a journal.
#[derive(Clone, Copy, Debug, Default)]
pub struct By<'a> {
    /// Who, with which call, in words.
    pub text: &'a str,
    /// [`Entry::trace`].
    pub trace: Option<&'a Path>,
    /// [`Entry::scope`].
    pub scope: &'a str,
}

/// A session that changed something.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its name.
    pub id: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Its changes, in order.
    pub entries: Vec<Entry>,
}

impl Recorded {
    /// Reads the journal of a session.
    /// If a program was cut off, the current state counts as its change, unless that is younger
    /// than the session.
    ///
    /// # Errors
    /// It can't be read.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let mut entries = entries(folder)?;
        for Entry { time, work, changes, uncovered, .. } in entries.iter_mut().filter(|entry| entry.begun) {
            if uncovered.is_some()
                && let Some(known) = known(folder, work, time)
            {
                (*changes, *uncovered) = (known, None);
            }
            for change in &mut *changes {
                change.after = state(work, &change.path).unwrap_or(State::Other);
            }
            let beat = fs::metadata(folder.join(BEAT)).and_then(|beat| beat.modified()).ok();
            let until = beat.map(|beat| beat + AFTER);
            let is_its = |change: &Changed| until.is_some_and(|until| !is_younger(work, &change.path, until));
            changes.retain(|change| change.before != change.after && is_its(change));
        }
        entries.retain(|entry| !entry.changes.is_empty() || entry.uncovered.is_some());
        let id = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Recorded { id, folder: folder.to_owned(), entries })
    }

    /// Whether it undid another session.
    pub fn is_undo(&self) -> bool {
        self.entries.iter().all(|entry| entry.by.starts_with(BY))
    }

    /// The name of the session that it undid, if it is an undo.
    pub fn undoes(&self) -> Option<&str> {
        self.entries.first().filter(|_| self.is_undo())?.by.strip_prefix(BY)
    }

    /// Whether the content of a state was kept.
    pub fn has(&self, state: &State) -> bool {
        match state {
            State::File { content, .. } => self.folder.join(KEPT).join(content).is_file(),
            State::Other => false,
            _ => true,
        }
    }
}

/// The SHA-256 of bytes, in hexadecimal digits.
fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The lines of a journal; the line of a beginning only if there is no end.
fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
    let text = fs::read_to_string(folder.join(JOURNAL))?;
    // The last line of a program that was killed may be incomplete.
    let mut entries: Vec<Entry> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let ended: BTreeSet<usize> =
        entries.iter().filter(|entry| !entry.begun).map(|entry| entry.number).collect();
    entries.retain(|entry| !entry.begun || !ended.contains(&entry.number));
    Ok(entries)
}

/// Signals, as long as the file is open, that a program of a session still runs, though the session
/// itself may be dead.
/// Returns `None` if the program's changes aren't recorded.
pub fn hold(beat: &Path) -> Option<File> {
    let file = File::options().append(true).open(beat).ok()?;
    file.lock_shared().ok().map(|()| file)
}

/// Records that a session was alive until now.
pub fn touch(beat: &File) {
    // If this fails, nothing can be undone.
    let _ = beat.set_modified(SystemTime::now());
}

/// Waits until a killed run's processes, identified by its trace, are gone.
///
/// # Errors
/// They still run after some seconds.
pub fn wait(root: &Path, trace: &Path) -> io::Result<()> {
    let begun = Instant::now();
    for folder in fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let is_its = |entry: &Entry| entry.begun && entry.trace == trace;
        if !entries(&folder).is_ok_and(|entries| entries.iter().any(is_its)) {
            continue;
        }
        let Ok(beat) = File::options().append(true).open(folder.join(BEAT)) else { continue };
        while let Err(fs::TryLockError::WouldBlock) = beat.try_lock() {
            if begun.elapsed() > PATIENCE {
                let message =
                    format!("what an earlier session started still runs (see {})", folder.display());
                return Err(io::Error::other(message));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// Whether a path has been changed since.
fn is_younger(work: &Path, path: &Path, until: SystemTime) -> bool {
    let whole = work.join(path);
    let at = match (fs::symlink_metadata(&whole), whole.parent()) {
        (Ok(found), _) => changed_at(&found),
        // A missing file was removed from its folder.
        (Err(_), Some(folder)) => fs::metadata(folder).and_then(|found| found.modified()).ok(),
        (Err(_), None) => None,
    };
    at.is_some_and(|at| at > until)
}

/// When a file was last changed: its content, its name or its permissions.
pub fn changed_at(found: &Metadata) -> Option<SystemTime> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let (seconds, more) = (u64::try_from(found.ctime()).ok()?, u32::try_from(found.ctime_nsec()).ok()?);
        Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, more))
    }
    #[cfg(not(unix))]
    found.modified().ok()
}

/// The earlier state of each path of a directory that may have changed since a program that was cut
/// off began at `time`; `None` if that is unknown.
fn known(folder: &Path, work: &Path, time: &str) -> Option<Vec<Changed>> {
    // The clocks of a machine may have different resolutions.
    let begun = SystemTime::from(time.parse::<jiff::Timestamp>().ok()?) - Duration::from_secs(1);
    let text = fs::read_to_string(folder.join(KNOWN)).ok()?;
    let seen = text.lines().filter_map(|line| serde_json::from_str::<Seen>(line).ok());
    let mut states: BTreeMap<PathBuf, State> = seen.map(|seen| (seen.path, seen.state)).collect();
    for (path, found) in journal::walk(work, folder.parent()).ok()? {
        match changed_at(&found) {
            Some(at) if at < begun => drop(states.remove(&path)),
            _ => drop(states.entry(path).or_insert(State::Nothing)),
        }
    }
    let changed = |(path, before): (PathBuf, State)| Changed { path, after: before.clone(), before };
    Some(states.into_iter().map(changed).collect())
}

/// The sessions with folders in `root`, the latest first.
///
/// # Errors
/// The folder can't be read.
pub fn sessions(root: &Path) -> io::Result<Vec<Recorded>> {
    let mut found: Vec<Recorded> = match fs::read_dir(root) {
        Ok(entries) => entries.flatten().filter_map(|entry| Recorded::read(&entry.path()).ok()).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    found.retain(|session| !session.entries.is_empty());
    found.sort_by(|one, other| other.entries[0].time.cmp(&one.entries[0].time));
    Ok(found)
}

/// The state of a path in a directory.
/// Links are not followed.
fn state(work: &Path, path: &Path) -> io::Result<State> {
    if !is_within(work, path) {
        return Ok(State::Nothing);
    }
    let whole = work.join(path);
    let found = match fs::symlink_metadata(&whole) {
        Ok(found) => found,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(State::Nothing);
        }
        Err(error) => return Err(error),
    };
    Ok(read(&whole, &found)?.0)
}

/// Whether all parents of a path are directories.
fn is_within(work: &Path, path: &Path) -> bool {
    let parents = path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
    parents.into_iter().all(|parent| work.join(parent).symlink_metadata().is_ok_and(|found| found.is_dir()))
}

/// The state of a path, and its content if it can be kept.
fn read(path: &Path, found: &Metadata) -> io::Result<(State, Option<Vec<u8>>)> {
    let mode = mode(found);
    if found.is_dir() {
        return Ok((State::Directory { mode }, None));
    }
    if found.is_symlink() {
        return Ok((State::Link { target: fs::read_link(path)? }, None));
    }
    if !found.is_file() {
        return Ok((State::Other, None));
    }
    let bytes = if found.len() > FILE_BYTES { None } else { fs::read(path).ok() };
    let size = bytes.as_ref().map_or(found.len(), |bytes| bytes.len() as u64);
    let content = bytes.as_ref().map_or_else(|| at(found), |bytes| sha256(bytes));
    Ok((State::File { mode, size, content }, bytes))
}

/// When a file was last changed.
fn at(found: &Metadata) -> String {
    let since = found.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    format!("at {}", since.unwrap_or_default().as_nanos())
}

#[cfg(unix)]
fn mode(found: &Metadata) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o7777
}

#[cfg(not(unix))]
fn mode(_found: &Metadata) -> u32 {
    0
}

/// Serialises paths as texts: bytes that aren't UTF-8, and `%`, become `%` and two digits.
mod as_text {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
            text.push_str(&chunk.valid().replace('%', "%25"));
            chunk.invalid().iter().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
        }
        serializer.serialize_str(&text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut bytes = Vec::with_capacity(text.len());
        let mut parts = text.split('%');
        bytes.extend(parts.next().unwrap_or_default().bytes());
        for part in parts {
            let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(byte.ok_or_else(|| serde::de::Error::custom("`%` without two digits"))?);
            bytes.extend(part[2..].bytes());
        }
        path(bytes).ok_or_else(|| serde::de::Error::custom("a path that this system can't have"))
    }

    #[cfg(unix)]
    fn path(bytes: Vec<u8>) -> Option<PathBuf> {
        Some(std::os::unix::ffi::OsStringExt::from_vec(bytes)).map(|name: std::ffi::OsString| name.into())
    }

    #[cfg(not(unix))]
    fn path(bytes: Vec<u8>) -> Option<PathBuf> {
        String::from_utf8(bytes).ok().map(PathBuf::from)
    }
}

#[cfg(test)]
mod tests;
