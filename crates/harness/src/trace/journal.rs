//! Stores the records of parallel branches on disk before they are merged into the trace.
//!
//! Branches are merged into a trace in the order of the jinx's file, so that its bytes don't depend
//! on threads.
//! Until then, a killed run would lose their records.
//! So each record is immediately written to a file next to the trace, with its position in the
//! order.
//! The file is removed once the trace has all of it; after a killed run it stays, and [`left`]
//! returns the records that the trace lacks.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::{Entry, Line};
use crate::error::Error;

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Placed<L = Line> {
    /// The position in the order: the number of records before the series, the index of the branch,
    /// and so on inwards, finally the index of the record.
    at: Vec<usize>,
    #[serde(flatten)]
    line: L,
}

/// The file next to a trace.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    state: Mutex<OpenFile>,
}

#[derive(Debug, Default)]
struct OpenFile {
    file: Option<File>,
    /// How many series are running.
    series: usize,
}

/// The path of the file next to a trace at `path`.
pub(super) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".branches");
    name.into()
}

impl Journal {
    /// A journal for a new trace at `path`; removes an older one's leftovers.
    pub(super) fn new(path: &Path) -> Self {
        let path = beside(path);
        // It need not exist.
        let _ = std::fs::remove_file(&path);
        Journal { path, state: Mutex::default() }
    }

    /// Begins a series.
    pub(super) fn begin(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).series += 1;
    }

    /// Ends a series whose records are all in the trace.
    pub(super) fn end(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.series = state.series.saturating_sub(1);
        if state.series == 0 && state.file.take().is_some() {
            // A file that can't be removed does no harm: a reader compares it with the trace.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Writes a record of a branch.
    ///
    /// # Errors
    /// The file can't be written.
    pub(super) fn write(&self, at: Vec<usize>, entry: &Entry) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let written = (|| {
            let file = match &mut state.file {
                Some(file) => file,
                none => none.insert(super::file::create(&self.path)?),
            };
            let line = Placed { at, line: Line { time: jiff::Timestamp::now().to_string(), entry } };
            file.write_all(format!("{}\n", serde_json::to_string(&line)?).as_bytes())
        })();
        written.map_err(|source| Error::Trace { path: self.path.clone(), source })
    }
}

/// The records in the file next to the trace at `path` beyond `lines`, those of the trace.
/// There are none, unless the run was killed or is still working.
///
/// # Errors
/// The file can't be read, or a line in it is not a record.
pub(super) fn left(path: &Path, lines: &[Line]) -> Result<Vec<Line>, Error> {
    let path = beside(path);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut placed: Vec<Placed> = super::file::parse(&path)?;
    placed.sort_by(|left, right| left.at.cmp(&right.at));
    let mut left: Vec<Line> = placed.into_iter().map(|placed| placed.line).collect();
    // The run may have been killed while they were merged.
    let merged = |count: &usize| {
        let end = lines.len().checked_sub(*count).map(|start| &lines[start..]);
        end.is_some_and(|end| end.iter().zip(&left).all(|(one, other)| one.entry == other.entry))
    };
    let count = (0..=left.len()).rev().find(merged).unwrap_or(0);
    Ok(left.split_off(count))
}
