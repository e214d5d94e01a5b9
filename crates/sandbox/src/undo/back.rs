//! Undoes the changes of a session.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{BY, By, Changed, Journal, KEPT, Recorded, State, is_within, new_half, state};

/// Why nothing was undone: paths relative to the work directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Paths that somebody else has changed since.
    pub changed: Vec<PathBuf>,
    /// Paths whose earlier state wasn't kept: too long, or not a file.
    pub lost: Vec<PathBuf>,
}

/// The net changes of a session to a work directory, in the order of the paths.
/// Changes that it reverted itself are left out.
pub fn net(session: &Recorded, work: &Path) -> Vec<Changed> {
    let mut paths: BTreeMap<&Path, (&State, &State)> = BTreeMap::new();
    let entries = session.entries.iter().filter(|entry| entry.work == work);
    for Changed { path, before, after } in entries.flat_map(|entry| &entry.changes) {
        paths.entry(path).and_modify(|known| known.1 = after).or_insert((before, after));
    }
    let changed = paths.into_iter().filter(|(_, (before, after))| before != after);
    let change = |(path, (before, after)): (&Path, (&State, &State))| Changed {
        path: path.to_owned(),
        before: before.clone(),
        after: after.clone(),
    };
    changed.map(change).collect()
}

/// The changes that aren't reverted yet, each with the current state.
///
/// # Errors
/// A file can't be read.
pub fn left(session: &Recorded, work: &Path) -> io::Result<Vec<(Changed, State)>> {
    let mut left = Vec::new();
    for change in net(session, work) {
        let now = state(work, &change.path)?;
        if now != change.before {
            left.push((change, now));
        }
    }
    Ok(left)
}

/// Reverts everything that a session changed in `work`, and returns the paths that this changed.
/// Refused as a whole if a path has been changed since or can't be restored, unless `force` is set:
/// then later changes are overwritten, and what can't be restored stays.
/// The changes are recorded in `journal` like any others.
///
/// # Errors
/// A file can't be read or written.
/// The changes up to then are in the journal.
pub fn take_back(
    session: &Recorded,
    work: &Path,
    journal: &Journal,
    force: bool,
) -> io::Result<Result<Vec<Changed>, Refused>> {
    let mut refused = Refused::default();
    let mut todo = Vec::new();
    for (change, now) in left(session, work)? {
        if now != change.after {
            refused.changed.push(change.path.clone());
        }
        match session.has(&change.before) {
            true => todo.push(Changed { before: now, after: change.before, path: change.path }),
            false => refused.lost.push(change.path),
        }
    }
    if !force && refused != Refused::default() {
        return Ok(Err(refused));
    }
    let by = format!("{BY}{}", session.id);
    let by = By { text: &by, ..By::default() };
    let before = journal.before(work, todo.iter().map(|change| change.path.as_path()), by);
    let done = restore(session, work, &todo);
    journal.after(before);
    done.map(|()| Ok(todo))
}

fn restore(session: &Recorded, work: &Path, todo: &[Changed]) -> io::Result<()> {
    // The contents of a directory go before it.
    for Changed { path, before, after } in todo.iter().rev() {
        let whole = work.join(path);
        match (before, after) {
            (State::Nothing, _)
            | (State::Directory { .. }, State::Directory { .. })
            | (State::File { .. } | State::Link { .. }, State::File { .. }) => {}
            (State::Directory { .. }, _) => match fs::remove_dir(&whole) {
                // Somebody has put other files in there.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                removed => removed?,
            },
            _ => fs::remove_file(&whole)?,
        }
    }
    for Changed { path, after, .. } in todo {
        let whole = work.join(path);
        if !matches!(after, State::Nothing) && !is_within(work, path) {
            let message = format!("{}: what it lies in is no directory any more", whole.display());
            return Err(io::Error::other(message));
        }
        match after {
            State::Nothing | State::Other => {}
            State::Directory { mode } => {
                if !whole.is_dir() {
                    fs::create_dir(&whole)?;
                }
                permit(&whole, *mode)?;
            }
            State::Link { target } => link(target, &whole)?,
            State::File { mode, content, .. } => {
                let kept = fs::read(session.folder.join(KEPT).join(content))?;
                // If this is killed before the rename, the file is removed later by its name.
                let beside = whole.with_file_name(new_half());
                let written = write(&beside, &kept, *mode).and_then(|()| fs::rename(&beside, &whole));
                written.inspect_err(|_| drop(fs::remove_file(&beside)))?;
            }
        }
    }
    Ok(())
}

/// Writes a new file, and flushes it to disk.
fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    file.write_all(content)?;
    permit(path, mode)?;
    file.sync_all()
}

#[cfg(unix)]
fn permit(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

#[cfg(not(unix))]
fn permit(_path: &Path, _mode: u32) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn link(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(not(unix))]
fn link(_target: &Path, _path: &Path) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}
