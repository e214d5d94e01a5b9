//! Copies what a running program has written to its upper layer since the last look.
//! The copy can't change while it is inspected and taken over.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, Stat, XattrFlags};

use super::copy::{Copy, dress};
use super::{
    DIRECTORY, RESERVED, Stamp, directory, is_opaque, is_whiteout, kind, names, open, open_upper, stamp,
    stat, top,
};
use crate::change::{Kind, is_deep};

/// The entries of an upper layer that were taken over, with stamps that tell whether they are
/// unchanged.
/// So an old copy doesn't undo later changes by others.
#[derive(Debug, Default)]
pub struct Taken(HashMap<PathBuf, Mark>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// The path was removed.
    Gone,
    Folder {
        opaque: bool,
    },
    Other(Option<Stamp>),
}

/// Copies the entries of `upper` that are new since `taken` to the empty directory `to`, as a
/// separate upper layer.
/// Returns the value for `taken` after that layer is taken over.
///
/// # Errors
/// An entry can't be read or written; an entry that vanishes meanwhile is no error.
pub fn stage(upper: &Path, to: &Path, taken: &Taken) -> io::Result<Taken> {
    let mut children: HashMap<PathBuf, Vec<OsString>> = HashMap::new();
    for (path, _) in taken.0.iter().filter(|(_, mark)| **mark != Mark::Gone) {
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            children.entry(parent.to_owned()).or_default().push(name.to_owned());
        }
    }
    let (upper, to) = (top(upper)?, directory(to)?);
    let mut stage = Stage { taken, children, now: Taken::default(), copy: Copy::to(&to)? };
    stage.within(&upper, &to, Path::new(""), false)?;
    Ok(stage.now)
}

struct Stage<'a> {
    taken: &'a Taken,
    /// The entries taken, by their directory.
    children: HashMap<PathBuf, Vec<OsString>>,
    now: Taken,
    copy: Copy,
}

impl Stage<'_> {
    /// Whether a directory had new entries.
    /// With `whole`, every entry counts as new.
    fn within(&mut self, upper: &OwnedFd, to: &OwnedFd, path: &Path, whole: bool) -> io::Result<bool> {
        let mut any = false;
        for name in names(upper)? {
            let Some(above) = stat(upper, &name)? else { continue };
            let path = path.join(&name);
            if kind(&above) == Kind::Directory {
                any |= self.folder(upper, to, (&name, &above), path, whole)?;
                continue;
            }
            let mark = if is_whiteout(&above) { Mark::Gone } else { Mark::Other(stamp(&above)) };
            if whole || self.taken.0.get(&path) != Some(&mark) {
                if !there(self.copy(upper, to, &name, &above))? {
                    continue;
                }
                self.copy.placed(to, &name, &above, path.clone());
                any = true;
            }
            self.now.0.insert(path, mark);
        }
        // In a directory that exists only in the layer, an entry that was made and removed leaves
        // no trace.
        for name in self.children.get(path).into_iter().flatten() {
            if stat(upper, name)?.is_none() {
                remove_in(to, name)?;
                self.now.0.insert(path.join(name), Mark::Gone);
                any = true;
            }
        }
        Ok(any)
    }

    fn folder(
        &mut self,
        upper: &OwnedFd,
        to: &OwnedFd,
        (name, above): (&OsStr, &Stat),
        path: PathBuf,
        whole: bool,
    ) -> io::Result<bool> {
        let inner = match open_upper(upper, name, above, DIRECTORY) {
            Err(error) if vanished(&error) => return Ok(false),
            opened => opened?,
        };
        let opaque = is_opaque(&inner);
        let mark = Mark::Folder { opaque };
        let new = whole || self.taken.0.get(&path) != Some(&mark);
        rustix::fs::mkdirat(to, name, Mode::RWXU)?;
        // Its existence is enough.
        if is_deep(&path) {
            return Ok(true);
        }
        let copy = open(to, name, DIRECTORY)?;
        // A directory that hides the one below has only its own entries.
        let hides = new && opaque;
        let any = self.within(&inner, &copy, &path, whole || hides)?;
        self.now.0.insert(path, mark);
        if !new && !any {
            rustix::fs::unlinkat(to, name, AtFlags::REMOVEDIR)?;
            return Ok(false);
        }
        if hides {
            rustix::fs::fsetxattr(&copy, format!("{RESERVED}opaque"), b"y", XattrFlags::empty())?;
        }
        dress(&inner, &copy, above)?;
        Ok(true)
    }

    /// Copies an entry that isn't a directory; returns `false` if it has vanished.
    fn copy(&self, upper: &OwnedFd, to: &OwnedFd, name: &OsStr, above: &Stat) -> io::Result<bool> {
        if is_whiteout(above) {
            return remove_in(to, name).map(|()| true);
        }
        // An entry that can't be copied stays where it is.
        self.copy.place(upper, to, name, above, name).map(|_| true)
    }
}

/// Marks an entry as removed in an upper layer.
fn remove_in(to: &OwnedFd, name: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::mknodat(to, name, FileType::CharacterDevice, Mode::empty(), 0)?)
}

fn vanished(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn there(copied: io::Result<bool>) -> io::Result<bool> {
    match copied {
        Err(error) if vanished(&error) => Ok(false),
        copied => copied,
    }
}
