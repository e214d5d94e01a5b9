//! Takes back what a session changed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{BY, By, Changed, Journal, KEPT, Recorded, State, is_within, new_half, state};

/// Why nothing was taken back: paths relative to the work directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// What somebody else has changed since.
    pub changed: Vec<PathBuf>,
    /// What was there before and was not kept: too long, or no file.
    pub lost: Vec<PathBuf>,
}

/// What a session changed in a work directory all in all, in the order of the paths.
/// What it changed and changed back is left out.
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

/// What of that is not as it was before, with what is there now.
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

/// Makes everything that a session changed in `work` what it was before, and tells which paths that
/// took.
/// Refused as a whole if something has been changed since or can't be had back, unless by `force`:
/// then what has been changed is overwritten, and what can't be had back stays.
/// It is written into `journal` like anything else that changes files.
///
/// # Errors
/// A file can't be read or written.
/// What was done till then is in the journal.
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
    // What is in a directory goes before it.
    for Changed { path, before, after } in todo.iter().rev() {
        let whole = work.join(path);
        match (before, after) {
            (State::Nothing, _)
            | (State::Directory { .. }, State::Directory { .. })
            | (State::File { .. } | State::Link { .. }, State::File { .. }) => {}
            (State::Directory { .. }, _) => match fs::remove_dir(&whole) {
                // Somebody has put something of his own in there.
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
                // By its name it is removed later if this is killed before it is renamed.
                let beside = whole.with_file_name(new_half());
                let written = write(&beside, &kept, *mode).and_then(|()| fs::rename(&beside, &whole));
                written.inspect_err(|_| drop(fs::remove_file(&beside)))?;
            }
        }
    }
    Ok(())
}

/// Writes a new file; what it holds is on the disk then.
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
