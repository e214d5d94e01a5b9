//! What happens side by side, on disk before its turn in the trace comes.
//!
//! Branches are merged into a trace in the order of the file, so that its bytes don't depend on
//! threads.
//! Until then their records would be lost with a killed run.
//! So they are written, as they come, into a file beside the trace, each with its position in the
//! order.
//! That file is gone once the trace has all of it; where a run was killed it stays, and [`left`]
//! gives what the trace lacks.

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
    /// The position in the order: how many records stood before the series, which branch of it, and
    /// so on inwards, at last which record.
    at: Vec<usize>,
    #[serde(flatten)]
    line: L,
}

/// The file beside a trace.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    state: Mutex<OpenFile>,
}

#[derive(Debug, Default)]
struct OpenFile {
    file: Option<File>,
    /// How many series are under way.
    series: usize,
}

/// The path of the file beside a trace at `path`.
pub(super) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".branches");
    name.into()
}

impl Journal {
    /// For a new trace at `path`; what an older one has left is gone.
    pub(super) fn new(path: &Path) -> Self {
        let path = beside(path);
        // It need not be there.
        let _ = std::fs::remove_file(&path);
        Journal { path, state: Mutex::default() }
    }

    /// A series begins.
    pub(super) fn begin(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).series += 1;
    }

    /// A series is over, and the trace has all of it.
    pub(super) fn end(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.series = state.series.saturating_sub(1);
        if state.series == 0 && state.file.take().is_some() {
            // What can't be removed shows when it is read, by what is missing.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Writes what has happened in a branch.
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

/// What the file beside the trace at `path` has beyond `lines`, those of the trace.
/// That is nothing, unless the run was killed or is still at work.
///
/// # Errors
/// The file can't be read, or a line in it is no record.
pub(super) fn left(path: &Path, lines: &[Line]) -> Result<Vec<Line>, Error> {
    let path = beside(path);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut placed: Vec<Placed> = super::file::parse(&path)?;
    placed.sort_by(|left, right| left.at.cmp(&right.at));
    let mut left: Vec<Line> = placed.into_iter().map(|placed| placed.line).collect();
    // It may have been killed while they were merged.
    let merged = |count: &usize| {
        let end = lines.len().checked_sub(*count).map(|start| &lines[start..]);
        end.is_some_and(|end| end.iter().zip(&left).all(|(one, other)| one.entry == other.entry))
    };
    let count = (0..=left.len()).rev().find(merged).unwrap_or(0);
    Ok(left.split_off(count))
}
