//! The records of a run as they come, in memory and line by line in a file.

use std::fs::{DirBuilder, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alara_engine::Usage;
use serde::{Deserialize, Serialize};

use super::{Entry, Record, usage};
use crate::error::Error;

/// A line of a trace file: an entry and when it was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line<E = Entry> {
    /// When, as RFC 3339.
    pub time: String,
    /// What happened, and where.
    #[serde(flatten)]
    pub entry: E,
}

/// The records of a run, in memory and, if wanted, in a file. Shared by all that work on the run.
#[derive(Debug, Default)]
pub struct Trace {
    inner: Mutex<Inner>,
    path: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: Vec<Entry>,
    file: Option<File>,
}

impl Trace {
    /// A trace that lives in memory only. Work that runs beside other work keeps its own, which is then
    /// [joined](Self::join), so that the order of a trace never depends on threads.
    pub fn in_memory() -> Self {
        Trace::default()
    }

    /// A trace that is also written to a new file at `path`, whose directories are made. Only the user may read what is made: it
    /// holds what tools saw.
    ///
    /// # Errors
    /// The file can't be created, or exists already.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let error = |source| Error::Trace { path: path.to_owned(), source };
        if let Some(parent) = path.parent() {
            make_directory(parent).map_err(error)?;
        }
        let mut options = File::options();
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.append(true).create_new(true).open(path).map_err(error)?;
        let inner = Inner { entries: Vec::new(), file: Some(file) };
        Ok(Trace { inner: Mutex::new(inner), path: Some(path.to_owned()) })
    }

    /// Appends what happened in the conversation `scope`.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn push(&self, scope: &str, record: Record) -> Result<Arc<Record>, Error> {
        let record = Arc::new(record);
        self.append(Entry { scope: scope.to_owned(), record: record.clone() })?;
        Ok(record)
    }

    /// Appends all that happened in `branch`.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn join(&self, branch: Trace) -> Result<(), Error> {
        let inner = branch.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        inner.entries.into_iter().try_for_each(|entry| self.append(entry))
    }

    fn append(&self, entry: Entry) -> Result<(), Error> {
        let mut inner = self.lock();
        if let (Some(path), Some(file)) = (&self.path, &mut inner.file) {
            let line = Line { time: jiff::Timestamp::now().to_string(), entry: &entry };
            let written = serde_json::to_string(&line)
                .map_err(std::io::Error::from)
                .and_then(|line| file.write_all(format!("{line}\n").as_bytes()));
            written.map_err(|source| Error::Trace { path: path.clone(), source })?;
        }
        inner.entries.push(entry);
        Ok(())
    }

    /// Everything that has happened so far, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.clone()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether nothing has happened yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has happened after the first `count` entries.
    pub fn since(&self, count: usize) -> Vec<Entry> {
        self.lock().entries[count..].to_vec()
    }

    /// What all turns of the run cost together, those of conversations inside of it too.
    pub fn usage(&self) -> Usage {
        usage(self.lock().entries.iter().map(|entry| &*entry.record))
    }

    /// Where the trace is written.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a directory and those above it that only the user may look into; those that are there stay as they are.
///
/// # Errors
/// It can't be made.
pub fn make_directory(path: &Path) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// Reads the lines of a trace file. A last line that a killed run left unfinished is left out.
///
/// # Errors
/// The file can't be read, or another line is no record.
pub fn lines(path: &Path) -> Result<Vec<Line>, Error> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Error::Trace { path: path.to_owned(), source })?;
    let mut lines = Vec::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        match serde_json::from_str(line) {
            Ok(line) => lines.push(line),
            Err(_) if !line.ends_with('\n') => {}
            Err(source) => return Err(Error::TraceLine { path: path.to_owned(), line: index + 1, source }),
        }
    }
    Ok(lines)
}

/// Reads the entries of a trace file.
///
/// # Errors
/// As [`lines`].
pub fn read(path: &Path) -> Result<Vec<Entry>, Error> {
    Ok(lines(path)?.into_iter().map(|line| line.entry).collect())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_user_reads_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state/traces/1.jsonl");
        Trace::create(&path).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }
}
