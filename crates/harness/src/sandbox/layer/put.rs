//! Takes an upper layer over into the directory below it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags};

use super::look::{Content, compare};
use super::{
    DIRECTORY, FILE, Made, attributes, directory, is_opaque, is_whiteout, kind, mode, names, open,
    open_upper, stat,
};
use crate::sandbox::change::{Change, Kind};
use crate::undo::new_half;

/// Makes `lower` what it is under the layer in `upper`.
/// `changes` is what [`look`](super::look()) tells of it; what is new or was made here before is
/// noted in `made`.
/// First everything new is there, each file by one renaming, then the rest is removed: what breaks
/// off in between loses nothing.
///
/// # Errors
/// Something can't be written: a full disk, a directory that forbids it.
/// What was done till then stays.
pub fn put(upper: &Path, lower: &Path, changes: &[Change], made: &mut Made) -> io::Result<()> {
    let root = directory(lower)?;
    let layer = directory(upper)?;
    write(&layer, &root)?;
    clear(&layer, &root)?;
    let own = rustix::fs::fstat(&layer)?;
    if mode(&rustix::fs::fstat(&root)?) != mode(&own) {
        rustix::fs::fchmod(&root, mode(&own))?;
    }
    for change in changes.iter().filter(|change| change.own || change.before.is_none()) {
        let found = rustix::fs::statat(CWD, lower.join(&change.path), AtFlags::SYMLINK_NOFOLLOW);
        match found.ok().filter(|_| change.after.is_some()) {
            Some(found) => made.insert(&change.path, &found),
            None => made.remove(&change.path),
        }
    }
    Ok(())
}

/// Writes what is there in `upper`.
fn write(upper: &OwnedFd, lower: &OwnedFd) -> io::Result<()> {
    for name in names(upper)? {
        let Some(above) = stat(upper, &name)?.filter(|above| !is_whiteout(above)) else { continue };
        let below = stat(lower, &name)?;
        if kind(&above) == Kind::Directory {
            if below.is_none_or(|below| kind(&below) != Kind::Directory) {
                remove(lower, &name)?;
                rustix::fs::mkdirat(lower, &name, Mode::RWXU)?;
            }
            write(&open_upper(upper, &name, &above, DIRECTORY)?, &open(lower, &name, DIRECTORY)?)?;
            continue;
        }
        if below.is_some_and(|below| same(&above, &below) && same_file(upper, lower, &name, &above)) {
            continue;
        }
        if below.is_some_and(|below| kind(&below) == Kind::Directory) {
            remove(lower, &name)?;
        }
        let new = new_half();
        let placed = place(upper, lower, &name, &above, OsStr::new(&new));
        if let Err(error) = placed.and_then(|made| if made { rename(lower, &new, &name) } else { Ok(()) }) {
            // What is there is not to be found by anybody.
            let _ = rustix::fs::unlinkat(lower, &new, AtFlags::empty());
            return Err(error);
        }
    }
    Ok(())
}

/// Whether two entries are the same but for their content.
fn same(above: &Stat, below: &Stat) -> bool {
    let facts = |found: &Stat| (found.st_mode, found.st_size, found.st_mtime, found.st_mtime_nsec);
    facts(above) == facts(below)
}

/// Whether two files of one size and time, of which one was only opened to be written, have the
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

/// Makes a copy of an entry under the name `new`.
/// `false`: of what can't be copied, as a socket that nobody listens at any more.
pub(super) fn place(
    upper: &OwnedFd,
    lower: &OwnedFd,
    name: &OsStr,
    above: &Stat,
    new: &OsStr,
) -> io::Result<bool> {
    // What takes another one's place must be whole before it does.
    let replaces = new != name && stat(lower, name)?.is_some();
    match kind(above) {
        Kind::File => {
            let mut from = File::from(open_upper(upper, name, above, FILE)?);
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut to = File::from(rustix::fs::openat(lower, new, flags, Mode::RUSR | Mode::WUSR)?);
            io::copy(&mut from, &mut to)?;
            dress(&from, &to, above)?;
            if replaces {
                to.sync_all()?;
            }
        }
        Kind::Link => {
            let target = rustix::fs::readlinkat(upper, name, Vec::new())?;
            rustix::fs::symlinkat(target, lower, new)?;
        }
        _ if FileType::from_raw_mode(above.st_mode) == FileType::Fifo => {
            rustix::fs::mknodat(lower, new, FileType::Fifo, mode(above), 0)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Gives `to` the owner, attributes, permissions and times of `from`.
// The types of these fields differ from system to system.
#[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
pub(super) fn dress(from: &impl AsFd, to: &impl AsFd, found: &Stat) -> io::Result<()> {
    let now = rustix::fs::fstat(to)?;
    if (now.st_uid, now.st_gid) != (found.st_uid, found.st_gid) {
        rustix::fs::fchown(to, Some(Uid::from_raw(found.st_uid)), Some(Gid::from_raw(found.st_gid)))?;
    }
    for (name, value) in attributes(from) {
        // Not every filesystem has all of them.
        let _ = rustix::fs::fsetxattr(to, name.as_c_str(), &value, XattrFlags::empty());
    }
    rustix::fs::fchmod(to, mode(found))?;
    let last_access = Timespec { tv_sec: found.st_atime as i64, tv_nsec: found.st_atime_nsec as _ };
    let last_modification = Timespec { tv_sec: found.st_mtime as i64, tv_nsec: found.st_mtime_nsec as _ };
    Ok(rustix::fs::futimens(to, &Timestamps { last_access, last_modification })?)
}

fn rename(directory: &OwnedFd, from: &str, to: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::renameat(directory, from, directory, to)?)
}

/// Removes what `upper` says is gone, and gives directories their permissions and times, which may
/// forbid to write in them.
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

/// Removes what is at `name`, if anything is.
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
