//! Records the changes of programs.
//!
//! A change is written down before it is made, so that a call without a result can be taken back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

use super::{
    BEAT, By, Changed, Entry, FILE_BYTES, FILES, JOURNAL, KEPT, KNOWN, SESSION_BYTES, SESSIONS, Seen, State,
    read, state, touch,
};

/// The journal of a session.
/// Its folder is created with the first entry.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Bytes of contents kept.
    bytes: u64,
    /// The work directory at the last complete look.
    known: BTreeMap<PathBuf, Known>,
    /// The number of entries begun.
    begun: usize,
    problem: Option<String>,
}

#[derive(Clone, Debug)]
struct Known {
    /// Tells whether the file is unchanged; `None` means to look again.
    stamp: Option<Stamp>,
    state: State,
}

/// The metadata that changes with a file: its inode, size, permissions, and change time.
type Stamp = (u64, u64, u32, i128, i128);

/// The state of some paths before they were changed.
#[derive(Debug)]
pub struct Before {
    entry: Entry,
    beat: Beat,
}

/// Touches a file as long as it lives.
/// So it is known later until when a killed session may have changed something.
#[derive(Debug)]
struct Beat {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Beat {
    /// The time between two touches.
    const PAUSE: Duration = Duration::from_millis(50);

    fn of(path: &Path) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        // If it can't be created, nothing can be undone.
        let file = File::options().append(true).create(true).open(path).ok();
        let seen = over.clone();
        let beat = move |file: File| {
            while !seen.load(Ordering::Relaxed) {
                touch(&file);
                std::thread::park_timeout(Beat::PAUSE);
            }
        };
        Beat { over, thread: file.map(|file| std::thread::spawn(move || beat(file))) }
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It ends in any case.
            let _ = thread.join();
        }
    }
}

/// How long to keep a session that changed nothing and didn't end.
const UNLISTED: Duration = Duration::from_secs(7 * 24 * 3600);

/// The reason for a program that was cut off and whose changes aren't known.
const CUT_OFF: &str = "it was cut off, and nobody knows what it had changed";

impl Journal {
    /// A journal in this folder.
    pub fn new(folder: PathBuf) -> Self {
        Journal { folder, inner: Mutex::default() }
    }

    /// The file whose time is that of the session; whoever runs the session's programs must
    /// [hold](super::hold) it.
    pub(crate) fn beat(&self) -> PathBuf {
        self.folder.join(BEAT)
    }

    /// Why changes can't be recorded; returned once.
    pub fn problem(&self) -> Option<String> {
        self.inner().problem.take()
    }

    /// Saves the contents at and below these paths before they are changed, and records that they
    /// will be.
    pub fn before<'a>(&self, work: &Path, paths: impl Iterator<Item = &'a Path>, by: By) -> Before {
        let mut inner = self.inner();
        let mut before = BTreeMap::new();
        for path in paths {
            self.keep_below(&mut inner, work, path, &mut before);
        }
        let same = |(path, before): (PathBuf, State)| Changed { path, after: before.clone(), before };
        let changes: Vec<Changed> = before.into_iter().map(same).collect();
        self.begin(&mut inner, work, by, changes, None)
    }

    /// Writes the line of an entry's beginning, unless nothing will be changed.
    fn begin(
        &self,
        inner: &mut Inner,
        work: &Path,
        by: By,
        changes: Vec<Changed>,
        uncovered: Option<String>,
    ) -> Before {
        inner.begun += 1;
        let entry = Entry {
            time: jiff::Timestamp::now().to_string(),
            work: work.to_owned(),
            by: by.text.to_owned(),
            trace: by.trace.and_then(|path| std::path::absolute(path).ok()).unwrap_or_default(),
            scope: by.scope.to_owned(),
            number: inner.begun,
            begun: true,
            changes,
            uncovered,
        };
        if !entry.changes.is_empty() || entry.uncovered.is_some() {
            self.note(inner, JOURNAL, &[&entry]);
        }
        Before { entry, beat: Beat::of(&self.beat()) }
    }

    /// Writes the line of an entry's end.
    fn end(&self, inner: &mut Inner, mut entry: Entry, changes: Vec<Changed>, uncovered: Option<String>) {
        if entry.changes.is_empty() && entry.uncovered.is_none() {
            return;
        }
        (entry.begun, entry.changes, entry.uncovered) = (false, changes, uncovered);
        self.note(inner, JOURNAL, &[&entry]);
    }

    fn keep_below(&self, inner: &mut Inner, work: &Path, path: &Path, before: &mut BTreeMap<PathBuf, State>) {
        let whole = work.join(path);
        let Ok(found) = fs::symlink_metadata(&whole) else {
            before.insert(path.to_owned(), State::Nothing);
            return;
        };
        before.insert(path.to_owned(), self.kept(inner, &whole, &found));
        if found.is_dir() {
            for entry in fs::read_dir(&whole).into_iter().flatten().flatten() {
                self.keep_below(inner, work, &path.join(entry.file_name()), before);
            }
        }
    }

    /// Records the new state of these paths.
    pub fn after(&self, before: Before) {
        let Before { entry, beat } = before;
        let changed = |Changed { path, before, .. }: &Changed| {
            let after = state(&entry.work, path).unwrap_or(State::Other);
            (*before != after).then(|| Changed { path: path.clone(), before: before.clone(), after })
        };
        let changes = entry.changes.iter().filter_map(changed).collect();
        self.end(&mut self.inner(), entry, changes, None);
        drop(beat);
    }

    /// Saves the contents of a directory, as far as there is space, before a program with unknown
    /// changes runs.
    pub fn look(&self, work: &Path, by: By) -> Before {
        let mut inner = self.inner();
        let before = self.begin(&mut inner, work, by, Vec::new(), Some(CUT_OFF.to_owned()));
        let mut known = std::mem::take(&mut inner.known);
        let Ok(mut found) = walk(work, self.folder.parent()) else {
            // The earlier listing is outdated.
            let _ = fs::remove_file(self.folder.join(KNOWN));
            return before;
        };
        // Files that people write come before files generated from them.
        found.sort_by_key(|(_, found)| found.len());
        let mut news = Vec::new();
        for (path, metadata) in found {
            let stamp = Some(stamp(&metadata));
            let old = known.remove(&path);
            let state = match old.as_ref().filter(|known| known.stamp == stamp) {
                Some(same) => same.state.clone(),
                None => self.kept(&mut inner, &work.join(&path), &metadata),
            };
            if old.is_none_or(|old| old.state != state) {
                news.push(Seen { path: path.clone(), state: state.clone() });
            }
            inner.known.insert(path, Known { stamp, state });
        }
        news.extend(known.into_keys().map(|path| Seen { path, state: State::Nothing }));
        self.note(&mut inner, KNOWN, &news);
        before
    }

    /// Records the changes of that program.
    pub fn looked(&self, before: Before) -> usize {
        let Before { entry, beat: _beat } = before;
        let work = &entry.work;
        let mut inner = self.inner();
        let found = match walk(work, self.folder.parent()) {
            Ok(found) => found,
            Err(reason) => {
                self.end(&mut inner, entry, Vec::new(), Some(reason));
                return 0;
            }
        };
        let mut changes = Vec::new();
        let mut gone = std::mem::take(&mut inner.known);
        for (path, metadata) in found {
            let old = gone.remove(&path);
            let new = match old.as_ref().filter(|old| old.stamp == Some(stamp(&metadata))) {
                Some(same) => same.clone(),
                None => {
                    let after = state(work, &path).unwrap_or(State::Other);
                    let before = old.map_or(State::Nothing, |old| old.state);
                    if before != after {
                        changes.push(Changed { path: path.clone(), before, after: after.clone() });
                    }
                    Known { stamp: None, state: after }
                }
            };
            inner.known.insert(path, new);
        }
        changes.extend(gone.into_iter().map(|(path, old)| Changed {
            path,
            before: old.state,
            after: State::Nothing,
        }));
        changes.sort_by(|one, other| one.path.cmp(&other.path));
        let seen = |change: &Changed| Seen { path: change.path.clone(), state: change.after.clone() };
        let news: Vec<Seen> = changes.iter().map(seen).collect();
        self.end(&mut inner, entry, changes, None);
        self.note(&mut inner, KNOWN, &news);
        news.len()
    }

    /// The state of a path, whose content is saved if there is space.
    fn kept(&self, inner: &mut Inner, path: &Path, found: &fs::Metadata) -> State {
        let Ok((state, bytes)) = read(path, found) else { return State::Other };
        if let (State::File { content, .. }, Some(bytes)) = (&state, bytes) {
            let size = bytes.len() as u64;
            let place = self.folder.join(KEPT).join(content);
            if !place.exists() && inner.bytes + size <= SESSION_BYTES {
                match self.keep(&place, &bytes) {
                    Ok(()) => inner.bytes += size,
                    Err(error) => inner.problem = Some(format!("{}: {error}", place.display())),
                }
            }
        }
        state
    }

    fn keep(&self, place: &Path, bytes: &[u8]) -> io::Result<()> {
        self.make()?;
        // Complete, or not there at all.
        let mut file = tempfile::NamedTempFile::new_in(self.folder.join(KEPT))?;
        file.write_all(bytes)?;
        file.persist(place).map_err(|error| error.error).map(drop)
    }

    /// Creates the folder, and removes those of old sessions.
    fn make(&self) -> io::Result<()> {
        if self.folder.join(KEPT).is_dir() {
            return Ok(());
        }
        make_directory(&self.folder.join(KEPT))?;
        if let Some(root) = self.folder.parent() {
            let sessions = super::sessions(root)?;
            let (kept, old) = sessions.split_at(sessions.len().min(SESSIONS));
            old.iter().for_each(|old| drop(fs::remove_dir_all(&old.folder)));
            // A session that was killed before it changed something is in no list.
            for entry in fs::read_dir(root)?.flatten() {
                let age = entry.metadata().and_then(|found| found.modified()).map(|at| at.elapsed());
                let is_old = age.is_ok_and(|age| age.is_ok_and(|age| age > UNLISTED));
                if is_old && !kept.iter().any(|kept| kept.folder == entry.path()) {
                    let _ = fs::remove_dir_all(entry.path());
                }
            }
        }
        Ok(())
    }

    /// Appends lines to a file of the folder.
    fn note(&self, inner: &mut Inner, file: &str, lines: &[impl Serialize]) {
        let written = self.make().and_then(|()| {
            let mut options = File::options();
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let mut text = String::new();
            for line in lines {
                text += &format!("{}\n", serde_json::to_string(line)?);
            }
            options.append(true).create(true).open(self.folder.join(file))?.write_all(text.as_bytes())
        });
        if let Err(error) = written {
            inner.problem = Some(format!("{}: {error}", self.folder.display()));
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Journal {
    /// Contents of files that weren't changed aren't needed.
    fn drop(&mut self) {
        let folder = self.folder.join(KEPT);
        let Ok(kept) = fs::read_dir(&folder) else { return };
        let entries = super::Recorded::read(&self.folder).map(|session| session.entries).unwrap_or_default();
        let named = |change: &Changed| match &change.before {
            State::File { content, .. } => Some(content.clone()),
            _ => None,
        };
        let named: BTreeSet<String> =
            entries.iter().flat_map(|entry| &entry.changes).filter_map(named).collect();
        for entry in kept.flatten().filter(|entry| !named.contains(&*entry.file_name().to_string_lossy())) {
            let _ = fs::remove_file(entry.path());
        }
        let _ = fs::remove_file(self.folder.join(KNOWN));
        let _ = fs::remove_file(self.folder.join(BEAT));
        if entries.is_empty() {
            let _ = fs::remove_file(self.folder.join(JOURNAL));
        }
        // These fail if the folder isn't empty.
        let _ = fs::remove_dir(folder);
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Everything in a directory except the folder `own`, or why that is too much.
pub(super) fn walk(work: &Path, own: Option<&Path>) -> Result<Vec<(PathBuf, fs::Metadata)>, String> {
    let (mut found, mut left) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(work.join(&folder)).into_iter().flatten().flatten() {
            let path = folder.join(entry.file_name());
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() && own != Some(&work.join(&path)) {
                left.push(path.clone());
            }
            found.push((path, metadata));
            if found.len() > FILES {
                return Err(format!("the work directory has more than {FILES} files"));
            }
        }
    }
    Ok(found)
}

/// Creates a directory and its parents, which only the user may read.
fn make_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

#[cfg(unix)]
fn stamp(found: &fs::Metadata) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let nanoseconds = |seconds: i64, more: i64| i128::from(seconds) * 1_000_000_000 + i128::from(more);
    let (changed, modified) =
        (nanoseconds(found.ctime(), found.ctime_nsec()), nanoseconds(found.mtime(), found.mtime_nsec()));
    // The time of a directory changes with its entries.
    match found.is_dir() {
        true => (found.ino(), 0, found.mode(), 0, 0),
        false => (found.ino(), found.len(), found.mode(), changed, modified),
    }
}

#[cfg(not(unix))]
fn stamp(found: &fs::Metadata) -> Stamp {
    let since = found.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let modified = since.unwrap_or_default().as_nanos() as i128;
    if found.is_dir() { (0, 0, 0, 0, 0) } else { (0, found.len(), 0, 0, modified) }
}

// A longer file couldn't be compared with the saved one.
const _: () = assert!(FILE_BYTES <= SESSION_BYTES);
