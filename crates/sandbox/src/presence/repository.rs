//! What git accepts as a repository, and what it obeys in one.
//!
//! A folder of any name is a repository if it contains `HEAD`, `objects` and `refs`, or `HEAD` and
//! a `commondir` that names the location of the rest.
//! The rules are those of git's `setup.c` (`is_git_directory`, `validate_headref`,
//! `read_gitfile_gently`, `get_common_dir`), as of version 2.47; a test compares them with git.

use std::path::{Component, Path, PathBuf};

use super::tree::{States, Tree, text};
use crate::change::Kind;
use crate::git;

/// How much of a `HEAD` git reads.
const HEAD_BYTES: u64 = 255;
/// The largest file that git accepts as a gitfile.
const GITFILE_BYTES: u64 = 1 << 20;
/// The length of the shorter of git's two kinds of object names.
const NAME_LETTERS: usize = 40;

/// Whether git accepts a folder as a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Taken {
    /// No.
    No,
    /// It depends on something that isn't visible here or changes without a trace: a link's target,
    /// a folder elsewhere, permissions.
    Perhaps,
    /// Yes.
    Yes,
}

/// Whether git accepts a folder itself as a repository's own: a `.git`, or one without a work tree.
pub fn is_git_directory(tree: &dyn Tree, folder: &Path) -> Taken {
    let head = head(tree, folder);
    if head == Taken::No {
        return Taken::No;
    }
    let commondir = folder.join("commondir");
    let parts =
        |folder: &Path| reached(tree, &folder.join("objects")).min(reached(tree, &folder.join("refs")));
    let rest = match tree.kind(&commondir) {
        None => parts(folder),
        Some(_) => {
            let named = tree.bytes(&commondir, GITFILE_BYTES).and_then(|bytes| path(&bytes));
            let there = named.and_then(|named| within(tree, folder, &named).ok());
            // A missing part may be added later, when it is no longer checked as a part of this
            // one.
            there.map_or(Taken::Perhaps, |folder| parts(&folder).max(Taken::Perhaps))
        }
    };
    head.min(rest)
}

/// Whether git accepts a folder as the top of a repository: of its work tree, or without one.
pub fn is_top(tree: &dyn Tree, folder: &Path) -> Taken {
    let dot = folder.join(".git");
    match tree.kind(&dot) {
        // A file that is no gitfile is an error, and git looks no further.
        Some(Kind::File) => gitfile(tree, folder, &dot),
        Some(Kind::Link) => Taken::Perhaps,
        _ => is_git_directory(tree, &dot).max(is_git_directory(tree, folder)),
    }
}

/// Whether the file `dot` leads to a repository.
fn gitfile(tree: &dyn Tree, folder: &Path, dot: &Path) -> Taken {
    let Some(bytes) = tree.bytes(dot, GITFILE_BYTES + 1) else { return Taken::Perhaps };
    let is_long = u64::try_from(bytes.len()).is_ok_and(|length| length > GITFILE_BYTES);
    let Some(named) = bytes.strip_prefix(b"gitdir: ").filter(|_| !is_long) else { return Taken::No };
    if named.iter().all(|byte| matches!(byte, b'\n' | b'\r')) {
        return Taken::No;
    }
    match path(named).map(|named| within(tree, folder, &named)) {
        Some(Ok(folder)) => is_git_directory(tree, &folder),
        Some(Err(taken)) => taken,
        None => Taken::Perhaps,
    }
}

/// Whether `HEAD` names a branch or a commit.
fn head(tree: &dyn Tree, folder: &Path) -> Taken {
    let path = folder.join("HEAD");
    match tree.kind(&path) {
        None | Some(Kind::Directory) => Taken::No,
        Some(Kind::Link) => match tree.link(&path) {
            Some(target) if target.as_os_str().as_encoded_bytes().starts_with(b"refs/") => Taken::Yes,
            Some(_) => Taken::No,
            None => Taken::Perhaps,
        },
        Some(Kind::Other) => Taken::Perhaps,
        Some(Kind::File) => match tree.bytes(&path, HEAD_BYTES) {
            Some(bytes) if is_head(&bytes) => Taken::Yes,
            Some(_) => Taken::No,
            // It may become readable.
            None => Taken::Perhaps,
        },
    }
}

fn is_head(bytes: &[u8]) -> bool {
    let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let names_branch = bytes.strip_prefix(b"ref:").is_some_and(|rest| {
        let spaces = rest.iter().take_while(is_space).count();
        rest[spaces..].starts_with(b"refs/")
    });
    names_branch || bytes.get(..NAME_LETTERS).is_some_and(|name| name.iter().all(u8::is_ascii_hexdigit))
}

/// Whether git can reach `objects` or `refs`; a file counts if it is executable.
fn reached(tree: &dyn Tree, path: &Path) -> Taken {
    match tree.kind(path) {
        None => Taken::No,
        Some(Kind::Directory) => Taken::Yes,
        Some(Kind::File | Kind::Link | Kind::Other) => Taken::Perhaps,
    }
}

/// The path in a file, as git reads it.
fn path(bytes: &[u8]) -> Option<PathBuf> {
    let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |at| at + 1);
    let bytes = &bytes[..end];
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let path = std::str::from_utf8(&bytes[..end]).ok()?;
    (!path.is_empty()).then(|| PathBuf::from(path))
}

/// The target of a path from `folder`, if it is within the work directory.
/// Otherwise whether git may find a repository there.
fn within(tree: &dyn Tree, folder: &Path, path: &Path) -> Result<PathBuf, Taken> {
    let mut found = folder.to_owned();
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if found.as_os_str().is_empty() => return Err(Taken::Perhaps),
            Component::ParentDir => drop(found.pop()),
            Component::RootDir | Component::Prefix(_) => return Err(Taken::Perhaps),
            Component::Normal(name) => {
                found.push(name);
                match tree.kind(&found) {
                    Some(Kind::Directory) => {}
                    Some(Kind::Link | Kind::Other) => return Err(Taken::Perhaps),
                    Some(Kind::File) | None if parts.peek().is_some() => return Err(Taken::No),
                    Some(Kind::File) | None => {}
                }
            }
        }
    }
    Ok(found)
}

/// A part of a repository's own folder that git obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obeyed {
    /// Settings, most of which are harmless.
    Settings,
    /// A path that tells git where its other parts are, or what to run.
    Always,
}

/// Whether git obeys the entry at `path` in a repository's own folder.
fn is_obeyed(path: &Path, kind: Kind) -> Option<Obeyed> {
    let lower = path.to_str()?.to_lowercase();
    let is_hook = || lower.starts_with("hooks/") && !is_sample(&lower);
    let is_list = || lower.ends_with("/git-rebase-todo") || lower.ends_with("sequencer/todo");
    match lower.as_str() {
        "config" | "config.worktree" => Some(Obeyed::Settings),
        // Programs see the folders that these name from the next session on.
        "commondir" | "objects/info/alternates" => Some(Obeyed::Always),
        "hooks" if kind == Kind::Link => Some(Obeyed::Always),
        _ => (is_hook() || is_list()).then_some(Obeyed::Always),
    }
}

/// Whether a file in a folder of hooks is one of git's samples, which git doesn't run.
pub fn is_sample(path: &str) -> bool {
    path.to_lowercase().ends_with(".sample")
}

/// Whether git obeys a program's change of `path`, which is no directory, in a folder whose
/// contents make it a repository.
pub fn obeys(path: &Path, kind: Kind, states: &States) -> bool {
    path.ancestors().skip(1).any(|folder| {
        let Some(part) = path.strip_prefix(folder).ok().and_then(|inner| is_obeyed(inner, kind)) else {
            return false;
        };
        is_git_directory(states.now, folder) != Taken::No
            && match part {
                Obeyed::Always => true,
                Obeyed::Settings => {
                    // Settings written before the folder was a repository were never confirmed.
                    let was_one = is_git_directory(states.before, folder) != Taken::No;
                    !are_harmless(path, states.now, was_one.then_some(states.before))
                }
            }
    })
}

/// Whether the change of `path` turns a folder into a repository, so that git obeys files that were
/// there before.
pub fn makes_one(path: &Path, states: &States) -> bool {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return false;
    };
    if !["head", "objects", "refs", "commondir"].contains(&name.to_lowercase().as_str())
        || is_git_directory(states.now, folder) == Taken::No
        || is_git_directory(states.before, folder) != Taken::No
    {
        return false;
    }
    // The program's own changes there are checked separately.
    let is_left = |path: &Path| states.now.kind(path).is_some() && !(states.is_changed)(path);
    let settings = ["config", "config.worktree"].map(|name| folder.join(name));
    let hooks = folder.join("hooks");
    let is_hook =
        |name: &std::ffi::OsString| !name.to_str().is_some_and(is_sample) && is_left(&hooks.join(name));
    settings.iter().any(|path| is_left(path) && !are_harmless(path, states.now, None))
        || ["commondir", "rebase-merge/git-rebase-todo", "sequencer/todo"]
            .iter()
            .any(|name| is_left(&folder.join(name)))
        || (states.now.kind(&hooks) == Some(Kind::Link) && is_left(&hooks))
        || states.now.names(&hooks).iter().any(is_hook)
}

/// Whether the changes of a settings file make git run nothing new.
pub fn are_harmless(path: &Path, now: &dyn Tree, before: Option<&dyn Tree>) -> bool {
    let settings = |tree| text(tree, path).as_deref().and_then(git::settings);
    let before = before.and_then(settings).unwrap_or_default();
    settings(now)
        .is_some_and(|now| now.iter().all(|setting| before.contains(setting) || git::is_harmless(setting)))
}

#[cfg(unix)]
#[cfg(test)]
#[path = "repository_tests.rs"]
mod tests;
