//! The environment of a program.
//!
//! A program with the network, or with the user's keys, has more rights than others.
//! It must not run what other programs wrote: a program by its name, a module, settings in `HOME`.
//! So it has a separate `HOME`, and only those parts of `PATH` that no program can write to.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// `PATH` if nothing of the user's `PATH` remains.
const SYSTEM: &str = "/usr/local/bin:/usr/bin:/bin";

/// The user's `PATH`.
pub fn path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| SYSTEM.into())
}

/// The user's language.
pub fn language() -> OsString {
    std::env::var_os("LANG").unwrap_or_else(|| "C.UTF-8".into())
}

/// The part of a `PATH` that no program can write to.
/// Programs can write below the directories `writable`, except below those that are `protected`;
/// all are canonical.
pub fn fixed(path: &OsStr, writable: &[&Path], protected: &[PathBuf]) -> OsString {
    let is_fixed = |entry: &PathBuf| {
        // The target of a relative path depends on the work directory.
        let Some(real) = entry.is_absolute().then(|| entry.canonicalize().ok()).flatten() else {
            return false;
        };
        !writable.iter().any(|place| real.starts_with(place))
            || protected.iter().any(|place| real.starts_with(place))
    };
    let entries: Vec<PathBuf> = std::env::split_paths(path).filter(is_fixed).collect();
    match entries.is_empty() {
        true => SYSTEM.into(),
        false => std::env::join_paths(entries).unwrap_or_else(|_| SYSTEM.into()),
    }
}

/// The directories of `PATH` that are in the work directory, or would be if they existed, relative
/// to it.
/// The user's shell runs programs there by name.
pub fn on_path(work: &Path) -> Vec<PathBuf> {
    let path = path();
    let real = |entry: PathBuf| resolved(&std::path::absolute(entry).ok()?);
    let entries: Vec<PathBuf> = std::env::split_paths(&path).filter_map(real).collect();
    entries.iter().filter_map(|entry| entry.strip_prefix(work).ok()).map(Path::to_owned).collect()
}

/// The real path of an entry, even if it doesn't exist yet.
pub fn resolved(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|part| {
        let rest = path.strip_prefix(part).ok()?;
        let real = part.canonicalize().ok()?;
        Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    })
}

/// A path without `.` and `..`, resolved textually.
pub fn normalized(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// The path of `inner` relative to `outer`, under any of their names: a directory may be mounted at
/// several places.
pub fn below(inner: &Path, outer: &Path) -> Option<PathBuf> {
    #[cfg(unix)]
    let same = |one: &Path, other: &Path| {
        use std::os::unix::fs::MetadataExt;
        let number = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
        number(one).is_some_and(|one| number(other) == Some(one))
    };
    #[cfg(not(unix))]
    let same = |one: &Path, other: &Path| one == other;
    let around = inner.ancestors().find(|part| same(part, outer))?;
    inner.strip_prefix(around).ok().map(Path::to_owned)
}

/// The user's home directories: the one in `HOME` and the one that the system reports; real paths.
pub fn homes() -> Vec<PathBuf> {
    #[cfg(unix)]
    let known = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten().map(|user| user.dir);
    #[cfg(not(unix))]
    let known = None;
    let homes = [std::env::home_dir(), known].into_iter().flatten();
    let mut homes: Vec<PathBuf> = homes.filter_map(|home| home.canonicalize().ok()).collect();
    homes.sort();
    homes.dedup();
    homes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_what_programs_can_write_to() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for folder in ["work/.venv/bin", "work/kept/bin", "tools"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(root.join("work/.venv/bin"), root.join("link")).unwrap();
        let work = root.join("work");
        let check = |entries: &[&str], expected: &[&str]| {
            let join =
                |names: &[&str]| std::env::join_paths(names.iter().map(|name| root.join(name))).unwrap();
            let found = fixed(&join(entries), &[&work], &[work.join("kept")]);
            let expected = if expected.is_empty() { SYSTEM.into() } else { join(expected) };
            assert_eq!(found, expected, "{entries:?}");
        };
        check(&["tools", "work/.venv/bin"], &["tools"]);
        check(&["link", "tools", "missing"], &["tools"]);
        check(&["work/kept/bin", "work"], &["work/kept/bin"]);
        check(&["work"], &[]);
        assert_eq!(fixed(OsStr::new(".:bin::/"), &[&work], &[]), OsStr::new("/"));
    }
}
