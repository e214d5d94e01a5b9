//! Recognises files that git rewrites for itself, so that a commit needs no confirmation.

use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use super::below;

/// Most bytes of a file to read; of a log, from its end.
const BYTES: u64 = 64 << 10;
/// The first bytes of an index.
const INDEX: &[u8] = b"DIRC";

/// Whether a rewritten file of a `.git` is the work of git, and nothing is lost by it.
/// The commit that a branch was at is not lost as long as the branch's log names it; removing a log
/// entry is a loss by itself.
/// In an index, only the files staged for the next commit may differ.
/// With `own`, the path is in a repository's own folder, where only branches and the files of the
/// work tree, in the folder `own`, may be rewritten.
pub fn keeps(path: &Path, own: Option<&Path>, upper: &OwnedFd, lower: &OwnedFd) -> bool {
    let placed = match own {
        None => split(path),
        Some(own) => Some(within(path, own)),
    };
    let Some((git, inner)) = placed else { return false };
    let is_own = own.is_none_or(|own| git == own);
    let read = |tree| end(tree, path);
    let logged = |old: &[u8]| {
        let log = git.join("logs").join(&inner);
        let log = end(upper, &log).or_else(|| end(lower, &log)).unwrap_or_default();
        log.windows(old.len()).any(|part| part == old)
    };
    match inner.to_str() {
        Some("COMMIT_EDITMSG" | "ORIG_HEAD") if is_own => true,
        Some("index") if is_own => begins(upper, path, INDEX),
        Some("HEAD") if is_own => match (read(lower), read(upper)) {
            (Some(old), Some(new)) => {
                (is_branch(&new) || is_commit(&new))
                    && (is_branch(&old) || (is_commit(&old) && logged(old.trim_ascii())))
            }
            _ => false,
        },
        _ if inner.starts_with("refs") => match (read(lower), read(upper)) {
            (Some(old), Some(new)) => is_commit(&new) && is_commit(&old) && logged(old.trim_ascii()),
            _ => false,
        },
        _ => false,
    }
}

/// The innermost `.git` of a path, and the rest of the path.
fn split(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let parts: Vec<Component> = path.components().collect();
    let at = parts.iter().rposition(|part| part.as_os_str() == ".git")?;
    Some((parts[..=at].iter().collect(), parts[at + 1..].iter().collect()))
}

/// The folder of a work tree or repository that contains a path of the repository's folder, and the
/// rest of the path.
fn within(path: &Path, own: &Path) -> (PathBuf, PathBuf) {
    path.strip_prefix(own)
        .map_or_else(|_| (PathBuf::new(), path.to_owned()), |inner| (own.to_owned(), inner.to_owned()))
}

/// The end of a file; all of a short one.
fn end(tree: &OwnedFd, path: &Path) -> Option<Vec<u8>> {
    let mut file = below(tree, path)?;
    let found = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    file.seek(SeekFrom::Start(found.len().saturating_sub(BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn begins(tree: &OwnedFd, path: &Path, with: &[u8]) -> bool {
    let mut bytes = Vec::new();
    let read = below(tree, path).and_then(|file| file.take(with.len() as u64).read_to_end(&mut bytes).ok());
    read.is_some() && bytes == with
}

/// Whether a `HEAD` names a branch.
fn is_branch(text: &[u8]) -> bool {
    text.trim_ascii()
        .strip_prefix(b"ref: refs/heads/")
        .is_some_and(|name| name.is_ascii() && !name.is_empty())
}

/// Whether a text is a commit hash.
fn is_commit(text: &[u8]) -> bool {
    let name = text.trim_ascii();
    matches!(name.len(), 40 | 64) && name.iter().all(u8::is_ascii_hexdigit)
}
