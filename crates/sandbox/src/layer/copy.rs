//! Copies entries of an upper layer, without taking more disk space than they do there.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::{FILE, attributes, kind, mode, open_upper, parent, stat};
use crate::change::Kind;

/// Identifies a file: device and inode.
type FileNumber = (u64, u64);

/// Copies entries of a layer to a tree.
pub struct Copy {
    root: OwnedFd,
    /// For files with several names: where in the tree the copy is, and which file it is.
    links: HashMap<FileNumber, (PathBuf, FileNumber)>,
}

impl Copy {
    /// A copier to the tree `root`.
    pub fn to(root: &OwnedFd) -> io::Result<Self> {
        Ok(Copy { root: root.try_clone()?, links: HashMap::new() })
    }

    /// Copies an entry to the name `new`.
    /// Returns `false` for an entry that can't be copied, such as a socket without a listener.
    pub fn place(
        &self,
        upper: &OwnedFd,
        lower: &OwnedFd,
        name: &OsStr,
        above: &Stat,
        new: &OsStr,
    ) -> io::Result<bool> {
        // A replacement must be complete before it replaces the old entry.
        let replaces = new != name && stat(lower, name)?.is_some();
        match kind(above) {
            Kind::File if self.link(lower, above, new) => {}
            Kind::File => {
                let mut from = File::from(open_upper(upper, name, above, FILE)?);
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mut to = File::from(rustix::fs::openat(lower, new, flags, Mode::RUSR | Mode::WUSR)?);
                content(&mut from, &mut to)?;
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
                rustix::fs::mknodat(lower, new, FileType::Fifo, kept(above), 0)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Records where the copy of an entry is now, so that the entry's other names become links to
    /// it.
    pub fn placed(&mut self, lower: &OwnedFd, name: &OsStr, above: &Stat, path: PathBuf) {
        if kind(above) == Kind::File
            && above.st_nlink > 1
            && let Ok(Some(copy)) = stat(lower, name)
        {
            self.links.entry(number(above)).or_insert((path, number(&copy)));
        }
    }

    /// Whether `new` could be made a hard link to an earlier copy.
    fn link(&self, lower: &OwnedFd, above: &Stat, new: &OsStr) -> bool {
        let Some((path, copy)) = self.links.get(&number(above)) else { return false };
        let Some((folder, name)) = parent(&self.root, path) else { return false };
        if rustix::fs::linkat(folder, name, lower, new, AtFlags::empty()).is_err() {
            return false;
        }
        // Another process may have replaced it meanwhile.
        let is_it = matches!(stat(lower, new), Ok(Some(found)) if number(&found) == *copy);
        if !is_it {
            let _ = rustix::fs::unlinkat(lower, new, AtFlags::empty());
        }
        is_it
    }
}

// The types of these fields differ between systems.
#[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
fn number(found: &Stat) -> FileNumber {
    (found.st_dev as u64, found.st_ino as u64)
}

/// Copies the contents of a file, and keeps its holes.
fn content(from: &mut File, to: &mut File) -> io::Result<()> {
    let length = from.metadata()?.len();
    let mut at = 0;
    while at < length {
        let data = rustix::fs::seek(&*from, SeekFrom::Data(at));
        let found = data.and_then(|begin| Ok((begin, rustix::fs::seek(&*from, SeekFrom::Hole(begin))?)));
        let (begin, end) = match found {
            Ok((begin, end)) => (begin, end.min(length)),
            // Only a hole remains.
            Err(Errno::NXIO) => break,
            // This filesystem doesn't report holes.
            Err(Errno::INVAL) => (at, length),
            Err(error) => return Err(error.into()),
        };
        from.seek(io::SeekFrom::Start(begin))?;
        to.seek(io::SeekFrom::Start(begin))?;
        io::copy(&mut Read::by_ref(from).take(end.saturating_sub(begin)), to)?;
        at = end.max(at + 1);
    }
    to.set_len(length)
}

/// The permissions that the copy of an entry gets: never set-user-ID, and set-group-ID only on a
/// directory, where it has another meaning.
fn kept(found: &Stat) -> Mode {
    let as_owner = if kind(found) == Kind::Directory { Mode::SUID } else { Mode::SUID | Mode::SGID };
    mode(found) - as_owner
}

/// Gives `to` the owner, attributes, permissions and times of `from`.
// The types of these fields differ between systems.
#[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
pub fn dress(from: &impl AsFd, to: &impl AsFd, found: &Stat) -> io::Result<()> {
    let now = rustix::fs::fstat(to)?;
    if (now.st_uid, now.st_gid) != (found.st_uid, found.st_gid) {
        rustix::fs::fchown(to, Some(Uid::from_raw(found.st_uid)), Some(Gid::from_raw(found.st_gid)))?;
    }
    for (name, value) in attributes(from) {
        // Not every filesystem supports all of them.
        let _ = rustix::fs::fsetxattr(to, name.as_c_str(), &value, XattrFlags::empty());
    }
    rustix::fs::fchmod(to, kept(found))?;
    let last_access = Timespec { tv_sec: found.st_atime as i64, tv_nsec: found.st_atime_nsec as _ };
    let last_modification = Timespec { tv_sec: found.st_mtime as i64, tv_nsec: found.st_mtime_nsec as _ };
    Ok(rustix::fs::futimens(to, &Timestamps { last_access, last_modification })?)
}
