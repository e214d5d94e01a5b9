//! Resolves a path, to check it against a rule about a path.
//!
//! Each path has two forms: its text, and its real target through links.
//! Links are followed as far as the path exists; the rest is relative to the deepest folder that
//! does.
//! This module only reads the filesystem.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use alara_sandbox::normalized;

/// Most links that a path may lead through, as on Linux.
const LINKS: usize = 40;
/// Most entries of a folder to check for another name of a file.
const ENTRIES: usize = 20_000;

/// The hard links found for one verdict: which files have another name in which folders.
/// A folder is searched once for each file, however many rules name it.
#[derive(Debug, Default)]
pub struct Looked(RefCell<HashMap<(PathBuf, PathBuf), bool>>);

impl Looked {
    fn has_name_in(&self, path: &Path, folder: &Path) -> bool {
        let about = (path.to_owned(), folder.to_owned());
        let known = self.0.borrow().get(&about).copied();
        known.unwrap_or_else(|| {
            let found = has_name_in(path, folder);
            self.0.borrow_mut().insert(about, found);
            found
        })
    }
}

/// Whether a path, in one of its forms, leads to the path that `pattern` names or below it.
/// A deny or ask rule then matches.
/// Both are relative to `work`.
pub fn reaches(looked: &Looked, work: &Path, path: &str, pattern: &str) -> bool {
    let (path, pattern) = (forms(work, path), forms(work, &home(pattern)));
    let within = |path: &PathBuf| {
        pattern.iter().flatten().any(|place| {
            // Another name of the same folder or file: a hard link, or another case where case
            // doesn't matter.
            path.starts_with(place) || path.ancestors().any(|path| same(path, place))
        })
    };
    let named_within = || {
        let real = path[1].as_ref().zip(pattern[1].as_ref());
        real.is_some_and(|(path, folder)| looked.has_name_in(path, folder))
    };
    path.iter().flatten().any(within) || named_within()
}

/// Whether a path, in every form, leads to the path that `pattern` names; below it, if that ends in
/// `/`.
/// Only then does an allow rule match.
pub fn stays(work: &Path, path: &str, pattern: &str) -> bool {
    // The target of links in the pattern doesn't count: they may have been created since.
    let real_work = real(work, work).unwrap_or_else(|| work.to_owned());
    let places = [work, &real_work].map(|work| normalized(&work.join(home(pattern))));
    let path = forms(work, path);
    let within = |path: &PathBuf| {
        places.iter().any(|place| {
            if pattern.ends_with('/') { path != place && path.starts_with(place) } else { path == place }
        })
    };
    path.iter().all(|form| form.as_ref().is_some_and(within))
}

/// The absolute forms of a path: its text, and its target.
/// The second is missing if links form a cycle.
fn forms(work: &Path, path: &str) -> [Option<PathBuf>; 2] {
    let path = work.join(path);
    [Some(normalized(&path)), real(work, &path)]
}

/// The target of a path for a program that runs in `work`.
fn real(work: &Path, path: &Path) -> Option<PathBuf> {
    let reversed = |path: &Path| path.components().rev().map(owned).collect::<Vec<_>>();
    let mut rest = reversed(path);
    let mut found = PathBuf::new();
    let mut links = 0;
    while let Some(part) = rest.pop() {
        match Path::new(&part).components().next() {
            None | Some(Component::CurDir) => {}
            Some(Component::ParentDir) => drop(found.pop()),
            Some(Component::RootDir | Component::Prefix(_)) => found.push(&part),
            Some(Component::Normal(name)) => {
                // These differ for each process.
                if is_process(&found) && (name == "cwd" || name == "root") {
                    found = if name == "cwd" { work.to_owned() } else { PathBuf::from("/") };
                    continue;
                }
                let next = found.join(name);
                let Ok(target) = std::fs::read_link(&next) else {
                    found = next;
                    continue;
                };
                links += 1;
                if links > LINKS {
                    return None;
                }
                if target.is_absolute() {
                    found = PathBuf::new();
                }
                rest.extend(reversed(&target));
            }
        }
    }
    Some(found)
}

fn owned(part: Component) -> OsString {
    part.as_os_str().to_owned()
}

/// Whether a folder is that of a process in `/proc`.
fn is_process(folder: &Path) -> bool {
    let mut parts = folder.strip_prefix("/proc").into_iter().flat_map(Path::iter);
    let number = |part: &std::ffi::OsStr| part.to_str().is_some_and(|part| part.parse::<u32>().is_ok());
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(id), None, ..) => id == "self" || id == "thread-self" || number(id),
        (Some(_), Some(task), Some(thread), None) => task == "task" && number(thread),
        _ => false,
    }
}

/// A pattern in which `~/` is replaced by the user's home directory.
fn home(pattern: &str) -> String {
    match (pattern.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => format!("{}/{rest}", home.display()),
        _ => pattern.to_owned(),
    }
}

/// Whether two paths are the same existing file or folder.
#[cfg(unix)]
fn same(path: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()));
    identity(path).is_some_and(|found| Some(found) == identity(other))
}

/// Whether a file with several names (hard links) has one below a folder.
/// In a folder with too many entries, or an unreadable one, the answer is yes.
#[cfg(unix)]
fn has_name_in(path: &Path, folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Some(file) = path.symlink_metadata().ok().filter(|found| found.is_file() && found.nlink() > 1) else {
        return false;
    };
    let mut left = vec![folder.to_owned()];
    let mut seen = 0;
    while let Some(folder) = left.pop() {
        let entries = match folder.read_dir() {
            Err(error) if is_none(&error) => continue,
            Err(_) => return true,
            Ok(entries) => entries,
        };
        for entry in entries {
            seen += 1;
            // The entry's own metadata, not that of a link's target.
            let found = entry.and_then(|entry| Ok((entry.metadata()?, entry)));
            let (found, entry) = match found {
                Err(error) if is_none(&error) => continue,
                Err(_) => return true,
                Ok(found) => found,
            };
            if seen > ENTRIES || (found.dev(), found.ino()) == (file.dev(), file.ino()) {
                return true;
            }
            if found.is_dir() {
                left.push(entry.path());
            }
        }
    }
    false
}

/// Whether the folder doesn't exist, or no longer does.
#[cfg(unix)]
fn is_none(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

#[cfg(not(unix))]
fn same(_path: &Path, _other: &Path) -> bool {
    false
}

#[cfg(not(unix))]
fn has_name_in(_path: &Path, _folder: &Path) -> bool {
    false
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn reaches(work: &Path, path: &str, pattern: &str) -> bool {
        super::reaches(&Looked::default(), work, path, pattern)
    }

    /// A work directory with `secrets/a`, `keep.txt`, and links to them.
    fn work() -> tempfile::TempDir {
        let work = tempfile::tempdir().unwrap();
        for folder in ["secrets", "sub", "out"] {
            fs::create_dir(work.path().join(folder)).unwrap();
        }
        fs::write(work.path().join("secrets/a"), "").unwrap();
        fs::write(work.path().join("keep.txt"), "").unwrap();
        symlink("secrets", work.path().join("link")).unwrap();
        symlink("secrets/new", work.path().join("dangling")).unwrap();
        symlink("../secrets", work.path().join("out/link")).unwrap();
        symlink("circle", work.path().join("circle")).unwrap();
        fs::hard_link(work.path().join("keep.txt"), work.path().join("other.txt")).unwrap();
        fs::create_dir_all(work.path().join("secrets/deep/er")).unwrap();
        fs::write(work.path().join("secrets/deep/er/b"), "").unwrap();
        fs::hard_link(work.path().join("secrets/deep/er/b"), work.path().join("sub/name")).unwrap();
        fs::hard_link(work.path().join("sub/name"), work.path().join("out/name")).unwrap();
        symlink("name", work.path().join("out/name-link")).unwrap();
        work
    }

    #[test]
    fn a_folder_is_reached_by_each_of_its_paths() {
        let root = work();
        let work = root.path();
        let absolute = work.join("secrets/a").display().to_string();
        let roundabout = format!("{}/x/../../{}/secrets/a", work.display(), {
            work.file_name().unwrap().to_str().unwrap()
        });
        for path in [
            "secrets/a",
            "secrets/../secrets/a",
            "x/../secrets/a",
            "./secrets//a",
            "secrets/new/deep",
            "secrets",
            "link/a",
            "out/link/new",
            "sub/../link/../secrets/a",
            "dangling",
            "sub/name",
            "out/name-link",
            "/proc/self/cwd/secrets/a",
            "/proc/self/root/proc/self/cwd/secrets/a",
            &absolute,
            &roundabout,
        ] {
            assert!(reaches(work, path, "secrets/"), "{path}");
        }
        for path in ["secretsx/a", "sub/secrets/a", "keep.txt", "other.txt", "out/a", "circle", ""] {
            assert!(!reaches(work, path, "secrets/"), "{path}");
        }
        // The rule may name the folder by another path too.
        assert!(reaches(work, "secrets/a", "link/") && reaches(work, "link/a", &format!("{absolute}/..")));
        // Links on the way to the work directory don't matter.
        let beside = tempfile::tempdir().unwrap();
        symlink(work, beside.path().join("w")).unwrap();
        assert!(reaches(&beside.path().join("w"), &absolute, "secrets/"));
    }

    #[test]
    fn a_file_is_that_path_alone() {
        let root = work();
        let work = root.path();
        for path in ["keep.txt", "./keep.txt", "sub/../keep.txt", "other.txt"] {
            assert!(reaches(work, path, "keep.txt"), "{path}");
        }
        for path in ["sub/keep.txt", "keep.txt2", "/keep.txt"] {
            assert!(!reaches(work, path, "keep.txt"), "{path}");
        }
    }

    #[test]
    fn a_folder_that_can_t_be_read_may_hold_another_name() {
        use std::os::unix::fs::PermissionsExt;
        let root = work();
        let deep = root.path().join("secrets/deep");
        fs::create_dir(deep.join("closed")).unwrap();
        assert!(!reaches(root.path(), "keep.txt", "secrets/"));
        fs::set_permissions(deep.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        // The superuser can read it anyway.
        let is_closed = deep.join("closed").read_dir().is_err();
        assert_eq!(reaches(root.path(), "keep.txt", "secrets/"), is_closed);
        assert!(!reaches(root.path(), "keep.txt", "missing/") && !reaches(root.path(), "new", "secrets/"));
    }

    #[test]
    fn what_is_allowed_leads_nowhere_else() {
        let root = work();
        let work = root.path();
        for (path, pattern) in [("out/a", "out/"), ("out/new/b", "./out/"), ("keep.txt", "keep.txt")] {
            assert!(stays(work, path, pattern), "{path} {pattern}");
        }
        for (path, pattern) in [
            ("out/../keep.txt", "out/"),
            ("out/link/a", "out/"),
            ("out", "out/"),
            ("dangling", "dangling"),
            ("circle", "circle"),
            ("link/a", "out/"),
        ] {
            assert!(!stays(work, path, pattern), "{path} {pattern}");
        }
    }
}
