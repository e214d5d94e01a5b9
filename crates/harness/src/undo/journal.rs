//! Writes down what programs change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Changed, Entry, FILE_BYTES, FILES, JOURNAL, KEPT, SESSION_BYTES, SESSIONS, State, read, state};

/// The journal of a session.
/// Its folder is made when there is something to write.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Bytes of contents that are kept.
    bytes: u64,
    /// What was in the work directory when somebody last looked at all of it.
    known: BTreeMap<PathBuf, Known>,
    problem: Option<String>,
}

#[derive(Clone, Debug)]
struct Known {
    /// By which it is told whether it is still that; `None`: look again.
    stamp: Option<Stamp>,
    state: State,
}

/// What changes with a file: its number, size, permissions, and when it was changed.
type Stamp = (u64, u64, u32, i128, i128);

/// What was at some paths.
#[derive(Debug)]
pub struct Before(BTreeMap<PathBuf, State>);

impl Journal {
    /// A journal in this folder.
    pub fn new(folder: PathBuf) -> Self {
        Journal { folder, inner: Mutex::default() }
    }

    /// Why something is not written down, told once.
    pub fn problem(&self) -> Option<String> {
        self.inner().problem.take()
    }

    /// Keeps what is at these paths, and below them, before they are changed.
    pub fn before<'a>(&self, work: &Path, paths: impl Iterator<Item = &'a Path>) -> Before {
        let mut inner = self.inner();
        let mut before = BTreeMap::new();
        for path in paths {
            self.keep_below(&mut inner, work, path, &mut before);
        }
        Before(before)
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

    /// Writes down what has become of these paths.
    pub fn after(&self, work: &Path, before: Before, by: &str) {
        let changed = |(path, before): (PathBuf, State)| {
            let after = state(work, &path).unwrap_or(State::Other);
            (before != after).then_some(Changed { path, before, after })
        };
        let changes = before.0.into_iter().filter_map(changed).collect();
        self.write(&mut self.inner(), work, by, changes, None);
    }

    /// Keeps what is in a directory, as far as there is space, before a program runs of which
    /// nobody tells what it changes.
    pub fn look(&self, work: &Path) {
        let mut inner = self.inner();
        let Ok(mut found) = self.walk(work) else { return };
        // What people write comes before what is made of it.
        found.sort_by_key(|(_, found)| found.len());
        let known = std::mem::take(&mut inner.known);
        for (path, metadata) in found {
            let stamp = Some(stamp(&metadata));
            let same = known.get(&path).filter(|known| known.stamp == stamp);
            let state = match same {
                Some(known) => known.state.clone(),
                None => self.kept(&mut inner, &work.join(&path), &metadata),
            };
            inner.known.insert(path, Known { stamp, state });
        }
    }

    /// Writes down what that program changed.
    pub fn looked(&self, work: &Path, by: &str) {
        let mut inner = self.inner();
        let found = match self.walk(work) {
            Ok(found) => found,
            Err(reason) => return self.write(&mut inner, work, by, Vec::new(), Some(reason)),
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
        self.write(&mut inner, work, by, changes, None);
    }

    /// Everything in a directory, but for the journals themselves.
    fn walk(&self, work: &Path) -> Result<Vec<(PathBuf, fs::Metadata)>, String> {
        let own = self.folder.parent();
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

    /// What is at a path, whose content is kept if there is space.
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
        // Whole, or not there.
        let mut file = tempfile::NamedTempFile::new_in(self.folder.join(KEPT))?;
        file.write_all(bytes)?;
        file.persist(place).map_err(|error| error.error).map(drop)
    }

    /// Makes the folder, and removes those of old sessions.
    fn make(&self) -> io::Result<()> {
        if self.folder.join(KEPT).is_dir() {
            return Ok(());
        }
        make_directory(&self.folder.join(KEPT))?;
        if let Some(root) = self.folder.parent() {
            for old in super::sessions(root)?.into_iter().skip(SESSIONS) {
                let _ = fs::remove_dir_all(old.folder);
            }
        }
        Ok(())
    }

    fn write(
        &self,
        inner: &mut Inner,
        work: &Path,
        by: &str,
        changes: Vec<Changed>,
        uncovered: Option<String>,
    ) {
        if changes.is_empty() && uncovered.is_none() {
            return;
        }
        let time = jiff::Timestamp::now().to_string();
        let entry = Entry { time, work: work.to_owned(), by: by.to_owned(), changes, uncovered };
        let written = self.make().and_then(|()| {
            let mut options = File::options();
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let mut file = options.append(true).create(true).open(self.folder.join(JOURNAL))?;
            file.write_all(format!("{}\n", serde_json::to_string(&entry)?).as_bytes())
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
    /// What was kept of files that nobody changed is not needed.
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
        // These fail where something is left.
        let _ = fs::remove_dir(folder);
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Makes a directory, and those above it, that only the user may look into.
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
    // The time of a directory changes with what is in it.
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

// A longer file could not be held against what is kept.
const _: () = assert!(FILE_BYTES <= SESSION_BYTES);
