//! Finds the changes that an upper layer makes to the directory below it.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

use super::trees::Layered;
use super::{
    DIRECTORY, FILE, Made, below, directory, git, is_opaque, is_whiteout, kind, names, open, open_upper,
    parent, stat, top,
};
use crate::change::{Change, Kind, is_deep};
use crate::presence::{self, Asked, States};

/// What a program's changes may affect besides its own files.
#[derive(Clone, Copy)]
pub struct Reach<'a> {
    /// Directories of the work directory that are on a shell's `PATH`.
    pub on_path: &'a [PathBuf],
    /// Git's answers about the work directory.
    pub git: &'a Asked,
    /// For a repository's own folder: the subfolder that belongs to the work tree.
    pub own: Option<&'a Path>,
}

/// Everything that the layer in `upper` changes in `lower`, in the order of the paths.
/// The contents of a directory that is gone count with it.
/// Changes of only permissions or times are left out, unless others may now write the entry, or a
/// tool obeys it that didn't before.
/// If an entry is [too deep](is_deep), only its existence is reported.
/// `made` are the files whose loss needs no confirmation.
/// `reach` tells what tools obey because of their settings.
///
/// # Errors
/// One of the two directories can't be read.
pub fn look(upper: &Path, lower: &Path, reach: Reach, made: &Made) -> io::Result<Vec<Change>> {
    let mut look = Look { made, changes: Vec::new(), runs: HashSet::new() };
    let (upper, lower) = (top(upper)?, directory(lower)?);
    look.within(&upper, Some(&lower), Path::new(""))?;
    look.find_moved(&upper, &lower);
    let is_file = |change: &Change| (change.before, change.after) == (Some(Kind::File), Some(Kind::File));
    for change in look.changes.iter_mut().filter(|change| change.loses && is_file(change)) {
        change.loses = !git::keeps(&change.path, reach.own, &upper, &lower);
    }
    let before = Layered { upper: None, lower: &lower };
    let now = Layered { upper: Some(&upper), lower: &lower };
    let is_changed = |path: &Path| {
        parent(&upper, path).is_some_and(|(folder, name)| !matches!(stat(&folder, &name), Ok(None)))
    };
    let states = States { before: &before, now: &now, is_changed: &is_changed };
    let places = reach.git.within(&before, look.changes.iter().map(|change| change.path.as_path()));
    for change in &mut look.changes {
        let Some(kind) = change.after else { continue };
        change.obeyed_by = presence::obeyed(&change.path, kind, &states, &places);
        if reach.own.is_some() && kind != Kind::Directory {
            change.obeyed_by = change.obeyed_by.or_else(|| presence::obeyed_in_git(&change.path));
        }
        let is_found = || reach.on_path.iter().any(|folder| change.path.parent() == Some(folder));
        if kind != Kind::Directory && is_found() {
            change.obeyed_by = change.obeyed_by.or(Some("a shell"));
        }
    }
    let Look { mut changes, runs, .. } = look;
    changes.retain(|change| change.obeyed_by.is_some() || !runs.contains(&change.path));
    Ok(changes)
}

/// The files that were at or below a path.
struct Counted {
    files: usize,
    /// Whether programs of this sandbox made all of it.
    own: bool,
    /// A folder that is too deep to count.
    deep: Option<PathBuf>,
}

struct Look<'a> {
    made: &'a Made,
    changes: Vec<Change>,
    /// Paths that are executable now and might not have been before.
    runs: HashSet<PathBuf>,
}

impl Look<'_> {
    fn within(&mut self, upper: &OwnedFd, lower: Option<&OwnedFd>, path: &Path) -> io::Result<()> {
        for name in names(upper)? {
            let Some(above) = stat(upper, &name)? else { continue };
            let below = lower.map(|lower| stat(lower, &name)).transpose()?.flatten();
            let path = path.join(&name);
            let after = (!is_whiteout(&above)).then(|| kind(&above));
            let both = below.as_ref().zip(lower);
            if after != Some(Kind::Directory) {
                match both {
                    None if after.is_some() => self.created(path, after),
                    None => {}
                    Some((below, lower)) => {
                        self.replaced((upper, &above), (lower, below), &name, path, after);
                    }
                }
                continue;
            }
            if is_deep(&path) {
                self.changes.push(change(path, below.as_ref(), after));
                continue;
            }
            let inner = open_upper(upper, &name, &above, DIRECTORY)?;
            let covered = match both {
                Some((below, lower)) if kind(below) == Kind::Directory => {
                    let own = self.made.has(&path, below);
                    if opens(&above, below) && !own {
                        self.changes.push(Change { opens: true, ..change(path.clone(), Some(below), after) });
                    }
                    Some(open(lower, &name, DIRECTORY)?)
                }
                Some((below, lower)) => {
                    self.gone(lower, below, &name, path.clone(), after);
                    None
                }
                None => {
                    self.created(path.clone(), after);
                    None
                }
            };
            if let Some(covered) = covered.as_ref().filter(|_| is_opaque(&inner)) {
                for name in names(covered)? {
                    if let (None, Some(below)) = (stat(&inner, &name)?, stat(covered, &name)?) {
                        self.gone(covered, &below, &name, path.join(&name), None);
                    }
                }
            }
            self.within(&inner, covered.as_ref(), &path)?;
        }
        Ok(())
    }

    fn created(&mut self, path: PathBuf, after: Option<Kind>) {
        self.changes.push(change(path, None, after));
    }

    /// Reports an entry that is gone, with all of its content.
    fn gone(&mut self, lower: &OwnedFd, below: &Stat, name: &OsStr, path: PathBuf, after: Option<Kind>) {
        let mut counted = Counted { files: 0, own: true, deep: None };
        self.count(&mut counted, lower, below, name, &path);
        let Counted { files, own, deep } = counted;
        self.changes.push(Change { files, own, loses: !own, ..change(path, Some(below), after) });
        self.changes.extend(deep.map(|path| change(path, None, None)));
    }

    /// Counts the files at or below a path.
    fn count(&self, counted: &mut Counted, lower: &OwnedFd, below: &Stat, name: &OsStr, path: &Path) {
        counted.own &= self.made.has(path, below);
        if kind(below) != Kind::Directory {
            counted.files += 1;
            return;
        }
        if is_deep(path) {
            counted.deep = Some(path.to_owned());
            return;
        }
        // An unreadable directory is not ours.
        let inner = open(lower, name, DIRECTORY).and_then(|inner| Ok((names(&inner)?, inner)));
        let Ok((names, inner)) = inner else {
            counted.own = false;
            return;
        };
        for name in names {
            match stat(&inner, &name) {
                Ok(Some(below)) => self.count(counted, &inner, &below, &name, &path.join(&name)),
                _ => counted.own = false,
            }
        }
    }

    /// Reports an entry that was replaced, where the old or the new one isn't a directory.
    fn replaced(
        &mut self,
        (upper, above): (&OwnedFd, &Stat),
        (lower, below): (&OwnedFd, &Stat),
        name: &OsStr,
        path: PathBuf,
        after: Option<Kind>,
    ) {
        let before = Some(kind(below));
        let own = self.made.has(&path, below);
        let opens = after == before && opens(above, below) && !own;
        let compare = match (before, after) {
            (Some(Kind::File), Some(Kind::File)) => {
                let files = open_upper(upper, name, above, FILE)
                    .and_then(|above| Ok((open(lower, name, FILE)?, above)));
                files.and_then(|(below, above)| compare(below.into(), above.into())).unwrap_or(Content::Lost)
            }
            (Some(Kind::Link), Some(Kind::Link)) => {
                let target = |directory| rustix::fs::readlinkat(directory, name, Vec::new());
                match (target(lower), target(upper)) {
                    (Ok(below), Ok(above)) if below == above => Content::Same,
                    _ => Content::Lost,
                }
            }
            (before, after) if before == after => Content::Same,
            _ => Content::Lost,
        };
        // A hook that isn't executable has no effect; new permissions can enable it.
        let runs = above.st_mode & !below.st_mode & 0o111 != 0;
        match compare {
            Content::Same if !opens && !runs => {}
            Content::Same if !opens => {
                self.runs.insert(path.clone());
                self.changes.push(Change { own, ..change(path, Some(below), after) });
            }
            Content::Same | Content::Extended => {
                self.changes.push(Change { own, opens, ..change(path, Some(below), after) });
            }
            Content::Lost => {
                let index = self.changes.len();
                self.gone(lower, below, name, path, after);
                self.changes[index].opens = opens;
            }
        }
    }

    /// Finds the new locations of files that are gone.
    fn find_moved(&mut self, upper: &OwnedFd, lower: &OwnedFd) {
        let is_gone =
            |change: &Change| change.loses && change.before == Some(Kind::File) && change.after.is_none();
        if !self.changes.iter().any(is_gone) {
            return;
        }
        let mut by_size: HashMap<u64, Vec<PathBuf>> = HashMap::new();
        for change in
            self.changes.iter().filter(|change| change.before.is_none() && change.after == Some(Kind::File))
        {
            if let Some(size) = below(upper, &change.path).and_then(|file| Some(file.metadata().ok()?.len()))
            {
                by_size.entry(size).or_default().push(change.path.clone());
            }
        }
        for change in self.changes.iter_mut().filter(|change| is_gone(change)) {
            let same = |place: &&PathBuf| {
                let files = below(lower, &change.path).zip(below(upper, place));
                files.is_some_and(|(below, above)| matches!(compare(below, above), Ok(Content::Same)))
            };
            let size = below(lower, &change.path).and_then(|file| Some(file.metadata().ok()?.len()));
            change.moved = size.and_then(|size| by_size.get(&size)?.iter().find(same).cloned());
        }
    }
}

/// A change that, as far as is known yet, loses nothing and affects no one else.
fn change(path: PathBuf, before: Option<&Stat>, after: Option<Kind>) -> Change {
    let before = before.map(kind);
    let (files, moved, own, loses, opens, obeyed_by) = (0, None, false, false, false, None);
    Change { path, before, after, files, moved, own, loses, opens, obeyed_by }
}

/// Whether users who couldn't write the entry below can write the one above.
fn opens(above: &Stat, below: &Stat) -> bool {
    above.st_mode & !below.st_mode & 0o022 != 0
}

/// How much of a file's content its replacement still holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// All of it, and nothing else.
    Same,
    /// All of it, followed by more.
    Extended,
    /// Not all of it.
    Lost,
}

/// Compares the old and the new content of a file.
pub fn compare(mut below: File, mut above: File) -> io::Result<Content> {
    let (old, new) = (below.metadata()?.len(), above.metadata()?.len());
    if new < old {
        return Ok(Content::Lost);
    }
    let (mut one, mut other) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let length = below.read(&mut one)?;
        if length == 0 {
            return Ok(if new == old { Content::Same } else { Content::Extended });
        }
        above.read_exact(&mut other[..length])?;
        if one[..length] != other[..length] {
            return Ok(Content::Lost);
        }
    }
}
