//! The changes of a layer, for a person to review and edit.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;

use super::{Covered, Stamp, below, directory, open_upper, parent, stamp, stat, top};
use crate::change::{Change, Kind};
use crate::proposal::{Proposal, ProposedFile};

/// A longer file is only listed.
const BYTES: u64 = 1 << 20;

/// The changes of layers to the directories below them.
#[derive(Debug)]
pub struct Proposed<'a> {
    parts: Vec<Part<'a>>,
    edited: Mutex<Vec<PathBuf>>,
}

/// The changes of one layer.
#[derive(Debug)]
struct Part<'a> {
    upper: OwnedFd,
    lower: OwnedFd,
    /// The prefix of its paths in messages.
    named: &'a Path,
    changes: &'a [Change],
    /// Stamps that tell whether the entries below are unchanged.
    stamps: Vec<Option<Stamp>>,
}

impl<'a> Proposed<'a> {
    /// The proposal of layers, each of which makes the `changes` at its index.
    ///
    /// # Errors
    /// One of the directories can't be opened.
    pub fn new(layers: &[Covered<'a>], changes: &'a [Vec<Change>]) -> io::Result<Self> {
        let part = |(layer, changes): (&Covered<'a>, &'a Vec<Change>)| {
            let (upper, lower) = (top(&layer.upper)?, directory(layer.lower)?);
            let stamps = stamps(&lower, changes);
            Ok(Part { upper, lower, named: layer.named, changes, stamps })
        };
        let parts = layers.iter().zip(changes).map(part).collect::<io::Result<_>>()?;
        Ok(Proposed { parts, edited: Mutex::default() })
    }

    /// Whether the person saw exactly the changes that would happen now, which are `now`.
    pub fn holds(&self, now: &[Vec<Change>]) -> bool {
        let is_edited = !self.edited().is_empty();
        let both = || self.parts.iter().zip(now);
        both().count() == now.len() && both().all(|(part, now)| part.holds(now, is_edited))
    }
}

impl Part<'_> {
    fn holds(&self, now: &[Change], is_edited: bool) -> bool {
        let is_same = if is_edited {
            // An edit may have removed a change.
            now.iter().all(|change| self.changes.iter().any(|seen| seen.path == change.path))
        } else {
            now == self.changes
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
        Some(ProposedFile { path: self.named.join(&change.path), before, after })
    }

    fn others(&self) -> impl Iterator<Item = String> {
        let is_folder = |change: &Change| change.before.is_none() && change.after == Some(Kind::Directory);
        let told = move |change: &&Change| {
            change.reaches_others() || (!is_folder(change) && self.file(change).is_none())
        };
        self.changes.iter().filter(told).map(move |change| change.named(self.named).to_string())
    }
}

impl Proposal for Proposed<'_> {
    fn files(&self) -> Vec<ProposedFile> {
        self.parts
            .iter()
            .flat_map(|part| part.changes.iter().filter_map(|change| part.file(change)))
            .collect()
    }

    fn others(&self) -> Vec<String> {
        self.parts.iter().flat_map(Part::others).collect()
    }

    fn texts(&self) -> Vec<(PathBuf, String)> {
        let text = |file: ProposedFile| Some((file.path, String::from_utf8(file.after?).ok()?));
        self.files().into_iter().filter_map(text).collect()
    }

    fn edit(&self, path: &Path, text: &str) -> Result<(), String> {
        // The work directory's part has no prefix, and matches a path that no other part matches.
        let within = |part: &Part| Some((part.upper.try_clone().ok()?, path.strip_prefix(part.named).ok()?));
        let write = || {
            let (upper, path) = self.parts.iter().rev().find_map(within).ok_or(io::ErrorKind::NotFound)?;
            write_to(&upper, path)?.write_all(text.as_bytes())
        };
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

/// Opens a file of the layer, truncated for writing.
fn write_to(upper: &OwnedFd, path: &Path) -> io::Result<File> {
    let (folder, name) = parent(upper, path).ok_or(io::ErrorKind::NotFound)?;
    let found = stat(&folder, &name)?.ok_or(io::ErrorKind::NotFound)?;
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(open_upper(&folder, &name, &found, flags)?.into())
}
