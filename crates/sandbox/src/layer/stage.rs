//! What a program that still runs has written to its upper layer since somebody last looked.
//! It is a copy, which nothing changes while it is looked at and taken over.

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

/// What of an upper layer was taken over, and what of it tells whether it is still that.
/// So what others have made of it since is not undone by an old copy.
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

/// Copies to the empty directory `to` what is new in `upper` since `taken`, as an upper layer of
/// its own.
/// Gives what is taken once that is taken over.
///
/// # Errors
/// Something can't be read or written; what vanishes meanwhile is no error.
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
    /// What was taken, by the directory that it lies in.
    children: HashMap<PathBuf, Vec<OsString>>,
    now: Taken,
    copy: Copy,
}

impl Stage<'_> {
    /// Whether there was something new in a directory.
    /// `whole`: everything counts as new.
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
        // What was made and removed again leaves no trace in a directory that only the layer had.
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
        // That it is there tells enough.
        if is_deep(&path) {
            return Ok(true);
        }
        let copy = open(to, name, DIRECTORY)?;
        // One that hides what was there is what it holds, and nothing else.
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

    /// Copies an entry that is no directory; `false` = it has vanished.
    fn copy(&self, upper: &OwnedFd, to: &OwnedFd, name: &OsStr, above: &Stat) -> io::Result<bool> {
        if is_whiteout(above) {
            return remove_in(to, name).map(|()| true);
        }
        // What can't be copied is left where it is.
        self.copy.place(upper, to, name, above, name).map(|_| true)
    }
}

/// Says in an upper layer that there is nothing.
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
