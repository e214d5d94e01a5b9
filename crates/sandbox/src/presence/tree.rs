//! Two states of a work directory: before a program, and after it.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::change::Kind;

/// One state of the work directory.
/// Paths are relative to it, and the empty one is the directory itself; a path through a link leads
/// to nothing.
pub trait Tree {
    /// The entry at a path; `None` if there is none.
    /// An entry that can't be read is [`Kind::Other`].
    fn kind(&self, path: &Path) -> Option<Kind>;
    /// The first `most` bytes of a plain file; `None` if it isn't one, or can't be read.
    fn bytes(&self, path: &Path, most: u64) -> Option<Vec<u8>>;
    /// The target of a link.
    fn link(&self, path: &Path) -> Option<PathBuf>;
    /// The names in a directory; none if it isn't one.
    fn names(&self, path: &Path) -> Vec<OsString>;
}

/// Most bytes of a file whose text is read.
const TEXT: u64 = 64 << 10;
/// Most bytes of a file of settings that is read whole.
const LONG: u64 = 16 << 20;

/// The text of a small file; `None` if it is longer, not text, or not a plain file.
pub fn text(tree: &dyn Tree, path: &Path) -> Option<String> {
    let bytes = tree.bytes(path, TEXT + 1)?;
    let is_small = u64::try_from(bytes.len()).is_ok_and(|length| length <= TEXT);
    is_small.then(|| String::from_utf8(bytes).ok()).flatten()
}

/// The text of a file outside of the work directory.
pub fn text_of(path: &Path) -> Option<String> {
    let mut options = File::options();
    options.read(true);
    // To open a pipe is to wait for a writer.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, nix::fcntl::OFlag::O_NONBLOCK.bits());
    let file = options.open(path).ok()?;
    let is_small = file.metadata().is_ok_and(|found| found.is_file() && found.len() <= LONG);
    let mut text = String::new();
    (is_small && file.take(LONG).read_to_string(&mut text).is_ok()).then_some(text)
}

/// The work directory before and after a program.
#[derive(Clone, Copy)]
pub struct States<'a> {
    /// The state before.
    pub before: &'a dyn Tree,
    /// The state after.
    pub now: &'a dyn Tree,
    /// Whether the program created or changed this path.
    pub is_changed: &'a dyn Fn(&Path) -> bool,
}
