//! Takes an upper layer over into the directory below it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, Stat};

use super::copy::{Copy, dress};
use super::look::{Content, compare};
use super::{
    DIRECTORY, FILE, Made, directory, is_opaque, is_whiteout, kind, names, open, open_upper, stat, top,
};
use crate::change::{Change, Kind};
use crate::undo::new_half;

/// Makes `lower` look as it does under the layer in `upper`.
/// `changes` is the result of [`look`](super::look()); entries that are new, or that programs made
/// earlier, are recorded in `made`.
/// First everything new is written, each file by one rename, then the rest is removed: an
/// interruption in between loses nothing.
/// The directory itself keeps its permissions, even if a program changed them.
/// The look has bounded the depth of folders.
///
/// # Errors
/// An entry can't be written: a full disk, a directory that forbids it.
/// The changes made before that stay.
pub fn put(upper: &Path, lower: &Path, changes: &[Change], made: &mut Made) -> io::Result<()> {
    let root = directory(lower)?;
    let layer = top(upper)?;
    write(&layer, &root, Path::new(""), &mut Copy::to(&root)?, made)?;
    clear(&layer, &root)?;
    for change in changes.iter().filter(|change| change.own || change.before.is_none()) {
        let found = rustix::fs::statat(CWD, lower.join(&change.path), AtFlags::SYMLINK_NOFOLLOW);
        match found.ok().filter(|_| change.after.is_some()) {
            Some(found) => made.insert(&change.path, &found),
            None => made.remove(&change.path),
        }
    }
    Ok(())
}

/// Writes the entries of `upper`.
/// A file that programs made still counts as made after it is rewritten without new content.
fn write(upper: &OwnedFd, lower: &OwnedFd, path: &Path, copy: &mut Copy, made: &mut Made) -> io::Result<()> {
    for name in names(upper)? {
        let Some(above) = stat(upper, &name)?.filter(|above| !is_whiteout(above)) else { continue };
        let below = stat(lower, &name)?;
        if kind(&above) == Kind::Directory {
            if below.is_none_or(|below| kind(&below) != Kind::Directory) {
                remove(lower, &name)?;
                rustix::fs::mkdirat(lower, &name, Mode::RWXU)?;
            }
            let (inner, covered) =
                (open_upper(upper, &name, &above, DIRECTORY)?, open(lower, &name, DIRECTORY)?);
            write(&inner, &covered, &path.join(&name), copy, made)?;
            continue;
        }
        if below.is_some_and(|below| same(&above, &below) && same_file(upper, lower, &name, &above)) {
            continue;
        }
        if below.is_some_and(|below| kind(&below) == Kind::Directory) {
            remove(lower, &name)?;
        }
        let path = path.join(&name);
        let own = below.is_some_and(|below| made.has(&path, &below));
        let new = new_half();
        let placed = copy.place(upper, lower, &name, &above, OsStr::new(&new));
        if let Err(error) = placed.and_then(|made| if made { rename(lower, &new, &name) } else { Ok(()) }) {
            // The temporary entry has a name that can't be guessed.
            let _ = rustix::fs::unlinkat(lower, &new, AtFlags::empty());
            return Err(error);
        }
        if let (true, Some(found)) = (own, stat(lower, &name)?) {
            made.insert(&path, &found);
        }
        copy.placed(lower, &name, &above, path);
    }
    Ok(())
}

/// Whether two entries are the same except for their content.
fn same(above: &Stat, below: &Stat) -> bool {
    let facts = |found: &Stat| (found.st_mode, found.st_size, found.st_mtime, found.st_mtime_nsec);
    facts(above) == facts(below)
}

/// Whether two files of the same size and time, one of which was only opened for writing, have the
/// same content.
fn same_file(upper: &OwnedFd, lower: &OwnedFd, name: &OsStr, above: &Stat) -> bool {
    if kind(above) != Kind::File {
        return false;
    }
    let files = open_upper(upper, name, above, FILE).and_then(|above| Ok((open(lower, name, FILE)?, above)));
    files
        .and_then(|(below, above)| compare(below.into(), above.into()))
        .is_ok_and(|compare| compare == Content::Same)
}

fn rename(directory: &OwnedFd, from: &str, to: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::renameat(directory, from, directory, to)?)
}

/// Removes the entries that `upper` marks as removed, and sets the permissions and times of
/// directories last, since the permissions may forbid writing in them.
fn clear(upper: &OwnedFd, lower: &OwnedFd) -> io::Result<()> {
    for name in names(upper)? {
        let Some(above) = stat(upper, &name)? else { continue };
        if is_whiteout(&above) {
            remove(lower, &name)?;
        } else if kind(&above) == Kind::Directory {
            let (inner, covered) =
                (open_upper(upper, &name, &above, DIRECTORY)?, open(lower, &name, DIRECTORY)?);
            if is_opaque(&inner) {
                for name in names(&covered)? {
                    if stat(&inner, &name)?.is_none() {
                        remove(&covered, &name)?;
                    }
                }
            }
            clear(&inner, &covered)?;
            dress(&inner, &covered, &above)?;
        }
    }
    Ok(())
}

/// Removes the entry at `name`, if there is one.
fn remove(directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let Some(found) = stat(directory, name)? else { return Ok(()) };
    if kind(&found) != Kind::Directory {
        return Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?);
    }
    let inner = open(directory, name, DIRECTORY)?;
    for name in names(&inner)? {
        remove(&inner, &name)?;
    }
    Ok(rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?)
}
