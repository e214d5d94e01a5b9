//! The upper layer of an overlayfs: a program's writes, separate from the directory that it saw.
//! [`look()`] finds its changes, and [`put()`] takes them over; for a program that still runs,
//! [`stage()`] makes a copy for both.
//!
//! Both start from open directories and follow no links, so that nothing outside the two trees is
//! read or written, even if another process changes them meanwhile.
//! The kernel's format: a removed path is a character device 0/0.
//! A directory that hides the one below has the attribute `user.overlay.opaque`.
//! See the kernel's `filesystems/overlayfs`.

mod copy;
mod covered;
mod git;
mod look;
mod proposed;
mod put;
mod stage;
mod trees;

use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::change::Kind;
pub use covered::Covered;
pub use look::{Reach, look};
pub use proposed::Proposed;
pub use put::put;
pub use stage::{Taken, stage};

/// The prefix of the attributes that the kernel reserves.
const RESERVED: &str = "user.overlay.";
/// The flags for opening directories.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The flags for opening files to read; a pipe in their place doesn't block.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// The files that programs made, each with the inode and change time that identify it.
/// `None` for a directory, of which only the content counts.
#[derive(Debug, Default)]
pub struct Made(HashMap<PathBuf, Option<Stamp>>);

type Stamp = (u64, i64, i64);

impl Made {
    fn has(&self, path: &Path, found: &Stat) -> bool {
        let now = stamp(found);
        self.0.get(path).is_some_and(|made| *made == now)
    }

    fn insert(&mut self, path: &Path, found: &Stat) {
        self.0.insert(path.to_owned(), stamp(found));
    }

    fn remove(&mut self, path: &Path) {
        self.0.remove(path);
    }
}

// The types of these fields differ between systems.
#[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
fn stamp(found: &Stat) -> Option<Stamp> {
    (kind(found) != Kind::Directory).then_some((
        found.st_ino as u64,
        found.st_ctime as i64,
        found.st_ctime_nsec as i64,
    ))
}

fn kind(found: &Stat) -> Kind {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}

/// Whether an entry of the upper layer marks a removed path.
fn is_whiteout(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice && found.st_rdev == 0
}

fn mode(found: &Stat) -> Mode {
    Mode::from_raw_mode(found.st_mode & 0o7777)
}

/// Opens a directory by its path.
fn directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, DIRECTORY, Mode::empty())?)
}

/// Opens the top of an upper layer, which is ours even if a program changed its permissions.
fn top(path: &Path) -> io::Result<OwnedFd> {
    match directory(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // Only alara can put something there.
            rustix::fs::chmod(path, Mode::RWXU)?;
            directory(path)
        }
        opened => opened,
    }
}

/// The entry at `name`; `None` if there is none.
fn stat(directory: &OwnedFd, name: &OsStr) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn open(directory: &OwnedFd, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
}

/// Opens an entry of the upper layer, which is ours regardless of its permissions.
/// They don't change.
fn open_upper(directory: &OwnedFd, name: &OsStr, found: &Stat, flags: OFlags) -> io::Result<OwnedFd> {
    match open(directory, name, flags) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // By its handle, so that a link that replaced it isn't followed.
            let handle = open(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
            rustix::fs::chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), Mode::RWXU)?;
            let opened = open(directory, name, flags)?;
            // Not for a directory to walk through: its entries couldn't be reached.
            if kind(found) != Kind::Directory {
                rustix::fs::fchmod(&opened, mode(found))?;
            }
            Ok(opened)
        }
        opened => opened,
    }
}

/// Opens a file below a directory, if it is readable and no part of its path is a link.
fn below(directory: &OwnedFd, path: &Path) -> Option<File> {
    let (within, name) = parent(directory, path)?;
    Some(open(&within, &name, FILE).ok()?.into())
}

/// The directory that contains a path, and the name in it; no part of the path may be a link.
fn parent(directory: &OwnedFd, path: &Path) -> Option<(OwnedFd, OsString)> {
    let mut names = path.iter();
    let name = names.next_back()?.to_owned();
    let mut within = directory.try_clone().ok()?;
    for name in names {
        within = open(&within, name, DIRECTORY).ok()?;
    }
    Some((within, name))
}

/// The names in a directory, in order.
fn names(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Whether a directory of the upper layer hides the one below it.
fn is_opaque(directory: &OwnedFd) -> bool {
    let mut value = [0; 8];
    rustix::fs::fgetxattr(directory, format!("{RESERVED}opaque"), &mut value)
        .is_ok_and(|length| value[..length] == *b"y")
}

/// The extended attributes of an entry that aren't the kernel's own, if they can be read.
fn attributes(of: &impl AsFd) -> Vec<(CString, Vec<u8>)> {
    let mut list = vec![0; 64 << 10];
    let length = rustix::fs::flistxattr(of, &mut list).unwrap_or(0);
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let compare = names.filter(|name| {
        !["security.", "trusted.", RESERVED].iter().any(|prefix| name.starts_with(prefix.as_bytes()))
    });
    let mut value = vec![0; 64 << 10];
    compare
        .filter_map(|name| {
            let name = CString::new(name).ok()?;
            let length = rustix::fs::fgetxattr(of, name.as_c_str(), &mut value).ok()?;
            Some((name, value[..length].to_vec()))
        })
        .collect()
}
