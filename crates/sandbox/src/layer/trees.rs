//! The work directory before and after a program: the directory below a layer, and both together.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

use super::{DIRECTORY, FILE, is_opaque, is_whiteout, kind, names, open, open_upper, stat};
use crate::change::Kind;
use crate::presence::Tree;

/// A directory below a layer, with or without the layer over it.
pub struct Layered<'a> {
    /// The layer; `None` for the state before.
    pub upper: Option<&'a OwnedFd>,
    /// The directory below.
    pub lower: &'a OwnedFd,
}

/// The two halves of an open directory.
struct Halves {
    upper: Option<OwnedFd>,
    lower: Option<OwnedFd>,
}

/// Where an entry was found.
struct Found {
    folder: OwnedFd,
    stat: Stat,
    above: bool,
}

impl Halves {
    /// The entry at a name: in the layer, otherwise below it.
    fn find(self, name: &OsStr) -> io::Result<Option<Found>> {
        if let Some(folder) = self.upper
            && let Some(stat) = stat(&folder, name)?
        {
            return Ok((!is_whiteout(&stat)).then_some(Found { folder, stat, above: true }));
        }
        let Some(folder) = self.lower else { return Ok(None) };
        Ok(stat(&folder, name)?.map(|stat| Found { folder, stat, above: false }))
    }

    /// The directory at a name; `None` if there is none.
    fn enter(self, name: &OsStr) -> io::Result<Option<Self>> {
        let above = match &self.upper {
            Some(folder) => stat(folder, name)?,
            None => None,
        };
        let below = || -> io::Result<Option<OwnedFd>> {
            let Some(folder) = &self.lower else { return Ok(None) };
            let is_folder = stat(folder, name)?.is_some_and(|found| kind(&found) == Kind::Directory);
            is_folder.then(|| open(folder, name, DIRECTORY)).transpose()
        };
        let halves = match (above, &self.upper) {
            (Some(above), Some(folder)) => {
                if kind(&above) != Kind::Directory {
                    return Ok(None);
                }
                let inner = open_upper(folder, name, &above, DIRECTORY)?;
                let lower = if is_opaque(&inner) { None } else { below()? };
                Halves { upper: Some(inner), lower }
            }
            _ => Halves { upper: None, lower: below()? },
        };
        Ok((halves.upper.is_some() || halves.lower.is_some()).then_some(halves))
    }
}

impl Layered<'_> {
    fn top(&self) -> io::Result<Halves> {
        let upper = self.upper.map(OwnedFd::try_clone).transpose()?;
        Ok(Halves { upper, lower: Some(self.lower.try_clone()?) })
    }

    fn folder(&self, path: &Path) -> io::Result<Option<Halves>> {
        let mut halves = self.top()?;
        for name in path {
            match halves.enter(name)? {
                Some(inner) => halves = inner,
                None => return Ok(None),
            }
        }
        Ok(Some(halves))
    }

    fn find(&self, path: &Path) -> io::Result<Option<(Found, OsString)>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let Some(halves) = self.folder(parent)? else { return Ok(None) };
        Ok(halves.find(name)?.map(|found| (found, name.to_owned())))
    }

    fn open(&self, path: &Path) -> Option<File> {
        let (Found { folder, stat, above }, name) = self.find(path).ok()??;
        let file = if above { open_upper(&folder, &name, &stat, FILE) } else { open(&folder, &name, FILE) };
        let file: File = file.ok()?.into();
        file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
    }
}

impl Tree for Layered<'_> {
    fn kind(&self, path: &Path) -> Option<Kind> {
        if path.as_os_str().is_empty() {
            return Some(Kind::Directory);
        }
        match self.find(path) {
            Ok(found) => found.map(|(found, _)| kind(&found.stat)),
            Err(_) => Some(Kind::Other),
        }
    }

    fn bytes(&self, path: &Path, most: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(path)?.take(most).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        let (found, name) = self.find(path).ok()??;
        let target = rustix::fs::readlinkat(&found.folder, &name, Vec::new()).ok()?;
        Some(OsString::from_vec(target.into_bytes()).into())
    }

    fn names(&self, path: &Path) -> Vec<OsString> {
        let Ok(Some(halves)) = self.folder(path) else { return Vec::new() };
        let listed = |half: &Option<OwnedFd>| half.as_ref().and_then(|half| names(half).ok());
        let above = listed(&halves.upper).unwrap_or_default();
        let below = listed(&halves.lower).unwrap_or_default();
        let mut all: Vec<OsString> = above.into_iter().chain(below).collect();
        all.sort();
        all.dedup();
        all.retain(|name| self.kind(&path.join(name)).is_some());
        all
    }
}
