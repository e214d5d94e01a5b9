//! What a layer would change, for a person to look at and to edit.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;

use super::{Stamp, below, directory, open_upper, parent, stamp, stat, top};
use crate::sandbox::change::{Change, Kind};
use crate::sandbox::proposal::{Proposal, ProposedFile};

/// A longer file is named only.
const BYTES: u64 = 1 << 20;

/// What an upper layer changes in the directory below it.
#[derive(Debug)]
pub struct Proposed<'a> {
    upper: OwnedFd,
    lower: OwnedFd,
    changes: &'a [Change],
    /// What tells whether what is below is still that.
    stamps: Vec<Option<Stamp>>,
    edited: Mutex<Vec<PathBuf>>,
}

impl<'a> Proposed<'a> {
    /// Of the layer in `upper`, which makes these `changes`.
    ///
    /// # Errors
    /// One of the two directories can't be opened.
    pub fn new(upper: &Path, lower: &Path, changes: &'a [Change]) -> io::Result<Self> {
        let (upper, lower) = (top(upper)?, directory(lower)?);
        let stamps = stamps(&lower, changes);
        Ok(Proposed { upper, lower, changes, stamps, edited: Mutex::default() })
    }

    /// Whether what a person has seen is what happens if the changes are `now` those.
    pub fn holds(&self, now: &[Change]) -> bool {
        let is_same = if self.edited().is_empty() {
            now == self.changes
        } else {
            // What was edited may come to nothing.
            now.iter().all(|change| self.changes.iter().any(|seen| seen.path == change.path))
        };
        is_same && stamps(&self.lower, self.changes) == self.stamps
    }

    fn content(&self, tree: &OwnedFd, path: &Path, kind: Option<Kind>) -> Option<Option<Vec<u8>>> {
        if kind != Some(Kind::File) {
            return Some(None);
        }
        let file = below(tree, path)?;
        let is_short = file.metadata().is_ok_and(|found| found.is_file() && found.len() <= BYTES);
        let mut bytes = Vec::new();
        (is_short && file.take(BYTES).read_to_end(&mut bytes).is_ok()).then_some(Some(bytes))
    }

    fn file(&self, change: &Change) -> Option<ProposedFile> {
        if [change.before, change.after].iter().flatten().any(|kind| *kind != Kind::File) {
            return None;
        }
        let before = self.content(&self.lower, &change.path, change.before)?;
        let after = self.content(&self.upper, &change.path, change.after)?;
        Some(ProposedFile { path: change.path.clone(), before, after })
    }
}

impl Proposal for Proposed<'_> {
    fn files(&self) -> Vec<ProposedFile> {
        self.changes.iter().filter_map(|change| self.file(change)).collect()
    }

    fn others(&self) -> Vec<String> {
        let is_folder = |change: &Change| change.before.is_none() && change.after == Some(Kind::Directory);
        let told =
            |change: &&Change| change.reaches_others() || (!is_folder(change) && self.file(change).is_none());
        self.changes.iter().filter(told).map(ToString::to_string).collect()
    }

    fn texts(&self) -> Vec<(PathBuf, String)> {
        let text = |file: ProposedFile| Some((file.path, String::from_utf8(file.after?).ok()?));
        self.files().into_iter().filter_map(text).collect()
    }

    fn edit(&self, path: &Path, text: &str) -> Result<(), String> {
        let write = || write_to(&self.upper, path)?.write_all(text.as_bytes());
        write().map_err(|error| format!("{} can't be written: {error}", path.display()))?;
        self.edited.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
        Ok(())
    }

    fn edited(&self) -> Vec<PathBuf> {
        self.edited.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn stamps(lower: &OwnedFd, changes: &[Change]) -> Vec<Option<Stamp>> {
    let found = |path: &Path| {
        let (folder, name) = parent(lower, path)?;
        stat(&folder, &name).ok()?.as_ref().and_then(stamp)
    };
    changes.iter().map(|change| found(&change.path)).collect()
}

/// A file of the layer, emptied to be written anew.
fn write_to(upper: &OwnedFd, path: &Path) -> io::Result<File> {
    let (folder, name) = parent(upper, path).ok_or(io::ErrorKind::NotFound)?;
    let found = stat(&folder, &name)?.ok_or(io::ErrorKind::NotFound)?;
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(open_upper(&folder, &name, &found, flags)?.into())
}
