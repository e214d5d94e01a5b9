//! A directory with a layer over it, after the program has ended, for inspection.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

use super::{Made, Reach, look, put};
use crate::change::Change;

/// A directory and the layer over it.
pub struct Covered<'a> {
    /// The layer.
    pub upper: PathBuf,
    /// The directory.
    pub lower: &'a Path,
    /// The prefix of its paths in messages: empty for the work directory.
    pub named: &'a Path,
    /// What its files mean to tools.
    pub reach: Reach<'a>,
    /// The files that programs made in it.
    pub made: MutexGuard<'a, Made>,
}

impl Covered<'_> {
    /// The changes of the layer, see [`look`](look()).
    ///
    /// # Errors
    /// As [`look`](look()).
    pub fn look(&self) -> io::Result<Vec<Change>> {
        look(&self.upper, self.lower, self.reach, &self.made)
    }

    /// Takes the layer over, see [`put`](put()).
    ///
    /// # Errors
    /// As [`put`](put()).
    pub fn put(&mut self, changes: &[Change]) -> io::Result<()> {
        put(&self.upper, self.lower, changes, &mut self.made)
    }

    /// A change with its path as messages show it.
    pub fn for_display(&self, change: &Change) -> Change {
        change.named(self.named)
    }
}
