//! The hub's cache on this machine, in the layout that Hugging Face's tools share.
//!
//! ```text
//! models--OWNER--NAME/blobs/ETAG               the bytes of a file; ETAG.incomplete while they come
//! models--OWNER--NAME/snapshots/COMMIT/FILE    a link to them
//! models--OWNER--NAME/refs/main                the commit that a branch was at
//! .locks/models--OWNER--NAME/ETAG.lock         held by whoever downloads it
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::hub::{is_commit, is_sha256};
use crate::name::{is_gguf, is_inside};

/// Suffix of a file that isn't complete yet.
/// Hugging Face's tools can continue such a file too.
pub const INCOMPLETE: &str = "incomplete";

/// Maximum folder depth of a snapshot.
const DEPTH: usize = 4;

/// The hub's cache folder.
#[derive(Clone, Debug)]
pub struct Cache {
    /// The folder.
    pub root: PathBuf,
}

/// A GGUF file in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    /// `owner/name`.
    pub repository: String,
    /// Path within the repository.
    pub file: String,
    /// Where it is, as a link in a snapshot.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

impl Cache {
    /// Returns the folder of a repository.
    pub fn folder(&self, repository: &str) -> PathBuf {
        self.root.join(folder_name(repository))
    }

    /// Returns the path of the blob with this etag.
    pub fn blob(&self, repository: &str, etag: &str) -> PathBuf {
        self.folder(repository).join("blobs").join(etag)
    }

    /// Returns the path of the blob while it is incomplete.
    pub fn partial(&self, repository: &str, etag: &str) -> PathBuf {
        self.folder(repository).join("blobs").join(format!("{etag}.{INCOMPLETE}"))
    }

    /// Returns the lock file that a downloader of that blob holds.
    pub fn lock(&self, repository: &str, etag: &str) -> PathBuf {
        self.root.join(".locks").join(folder_name(repository)).join(format!("{etag}.lock"))
    }

    /// Returns the path of a file that is completely downloaded.
    /// If `sha256` is given, the file must match it; of several commits, prefers the one that
    /// `main` last pointed to.
    pub fn find(&self, repository: &str, file: &str, sha256: Option<&str>) -> Option<PathBuf> {
        let folder = self.folder(repository);
        let main = fs::read_to_string(folder.join("refs/main")).unwrap_or_default();
        let mut snapshots = folders(&folder.join("snapshots"));
        snapshots.sort_by_key(|path| !path.ends_with(main.trim()));
        let other = |path: &Path| match (sha256, blob_name(path)) {
            (Some(wanted), Some(found)) if is_sha256(&found) => !found.eq_ignore_ascii_case(wanted),
            _ => false,
        };
        snapshots.into_iter().map(|path| path.join(file)).find(|path| path.is_file() && !other(path))
    }

    /// Returns all completely downloaded GGUF files, each once.
    pub fn files(&self) -> Vec<Cached> {
        let mut found = BTreeMap::new();
        for folder in folders(&self.root) {
            let Some(repository) = folder.file_name().and_then(|name| repository(name.to_str()?)) else {
                continue;
            };
            let mut files = Vec::new();
            for snapshot in folders(&folder.join("snapshots")) {
                collect(&snapshot, "", DEPTH, &mut files);
            }
            for file in files {
                let Some(path) = self.find(&repository, &file, None) else { continue };
                let bytes = fs::metadata(&path).map_or(0, |about| about.len());
                let cached = Cached { repository: repository.clone(), file: file.clone(), path, bytes };
                found.insert((repository.clone(), file), cached);
            }
        }
        found.into_values().collect()
    }

    /// Links `file` of `commit` to the blob, and records that `revision` points to that commit.
    pub fn publish(
        &self,
        repository: &str,
        etag: &str,
        commit: &str,
        revision: &str,
        file: &str,
    ) -> io::Result<PathBuf> {
        let snapshot = self.folder(repository).join("snapshots").join(commit);
        let path = snapshot.join(file);
        let parent = path.parent().unwrap_or(&snapshot);
        fs::create_dir_all(parent)?;
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path)?;
        }
        let up = "../".repeat(2 + file.matches('/').count());
        link(&format!("{up}blobs/{etag}"), &self.blob(repository, etag), &path)?;
        if !is_commit(revision) {
            let refs = self.folder(repository).join("refs");
            fs::create_dir_all(&refs)?;
            let new = refs.join(format!("{revision}.{INCOMPLETE}"));
            fs::File::create(&new)?.write_all(commit.as_bytes())?;
            fs::rename(new, refs.join(revision))?;
        }
        Ok(path)
    }

    /// Returns all paths that belong to these files: links and blobs in all snapshots, and remains
    /// of unfinished downloads from the repository.
    pub fn belongings(&self, repository: &str, files: &[String]) -> Vec<PathBuf> {
        let folder = self.folder(repository);
        let mut links = Vec::new();
        let mut blobs = Vec::new();
        let mut kept = Vec::new();
        for snapshot in folders(&folder.join("snapshots")) {
            let mut all = Vec::new();
            collect_all(&snapshot, DEPTH, &mut all);
            for path in all {
                let own = files.iter().any(|file| path == snapshot.join(file));
                let blob = blob_name(&path).map(|name| folder.join("blobs").join(name));
                if own {
                    links.push(path);
                    blobs.extend(blob.filter(|blob| blob.is_file()));
                } else {
                    kept.extend(blob);
                }
            }
        }
        blobs.sort();
        blobs.dedup();
        blobs.retain(|blob| !kept.contains(blob));
        let partial = |path: &PathBuf| {
            let etag = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            path.extension().is_some_and(|ending| ending == INCOMPLETE) && !self.is_locked(repository, etag)
        };
        let partials = entries(&folder.join("blobs")).into_iter().filter(partial);
        links.into_iter().chain(blobs).chain(partials).collect()
    }

    /// Whether someone is downloading that file now.
    fn is_locked(&self, repository: &str, etag: &str) -> bool {
        let lock = fs::File::open(self.lock(repository, etag));
        lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock)))
    }

    /// Removes these paths, and any folders of the repository that become empty.
    pub fn remove(&self, repository: &str, belongings: &[PathBuf]) -> io::Result<()> {
        for path in belongings {
            fs::remove_file(path)?;
        }
        let folder = self.folder(repository);
        for snapshot in folders(&folder.join("snapshots")) {
            remove_empty(&snapshot, DEPTH);
        }
        if folders(&folder.join("snapshots")).is_empty() && entries(&folder.join("blobs")).is_empty() {
            let _ = fs::remove_dir_all(folder);
            let _ = fs::remove_dir_all(self.root.join(".locks").join(folder_name(repository)));
        }
        Ok(())
    }
}

fn folder_name(repository: &str) -> String {
    format!("models--{}", repository.replace('/', "--"))
}

/// Returns the repository that a cache folder belongs to.
/// An owner's name can't contain `--`; a repository's may.
fn repository(folder: &str) -> Option<String> {
    let (owner, name) = folder.strip_prefix("models--")?.split_once("--")?;
    Some(format!("{owner}/{name}"))
}

/// Returns the name of a file's blob: the name of the file that a link leads to.
fn blob_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// Lists the subfolders of a folder.
/// Skips links, so that nothing is followed out of the cache.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let real = |path: &PathBuf| path.symlink_metadata().is_ok_and(|about| about.is_dir());
    entries(folder).into_iter().filter(real).collect()
}

/// Collects the GGUF files below `folder`, as paths within the repository.
fn collect(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<String>) {
    for path in entries(folder) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let file = format!("{prefix}{name}");
        if path.symlink_metadata().is_ok_and(|about| about.is_dir()) {
            if depth > 0 {
                collect(&path, &format!("{file}/"), depth - 1, files);
            }
        } else if is_gguf(name) && is_inside(&file) && !files.contains(&file) {
            files.push(file);
        }
    }
}

fn collect_all(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for path in entries(folder) {
        if path.symlink_metadata().is_ok_and(|about| about.is_dir()) {
            if depth > 0 {
                collect_all(&path, depth - 1, files);
            }
        } else {
            files.push(path);
        }
    }
}

fn remove_empty(folder: &Path, depth: usize) {
    if depth > 0 {
        for inner in folders(folder) {
            remove_empty(&inner, depth - 1);
        }
    }
    // Fails if the folder isn't empty, as it should.
    let _ = fs::remove_dir(folder);
}

#[cfg(unix)]
fn link(target: &str, _: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(not(unix))]
fn link(_: &str, blob: &Path, path: &Path) -> io::Result<()> {
    fs::hard_link(blob, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().join("hub") };
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let put = |etag: &str, commit: &str, file: &str| {
            let blob = cache.blob("o/r--x", etag);
            fs::create_dir_all(blob.parent().unwrap()).unwrap();
            fs::write(blob, "GGUF").unwrap();
            cache.publish("o/r--x", etag, commit, "main", file).unwrap()
        };
        let old = put(&"a".repeat(64), &one, "q4/a.gguf");
        let new = put(&"b".repeat(64), &two, "q4/a.gguf");
        let other = put(&"c".repeat(64), &two, "b.gguf");
        assert_eq!(fs::read_to_string(&new).unwrap(), "GGUF");
        assert_eq!(cache.find("o/r--x", "q4/a.gguf", None).as_ref(), Some(&new));
        assert_eq!(cache.find("o/r--x", "q4/a.gguf", Some(&"A".repeat(64))), Some(old));
        assert_eq!(cache.find("o/r--x", "q4/a.gguf", Some(&"d".repeat(64))), None);

        let files = cache.files();
        let names: Vec<&str> = files.iter().map(|cached| cached.file.as_str()).collect();
        assert_eq!(names, ["b.gguf", "q4/a.gguf"]);
        assert_eq!((files[1].repository.as_str(), files[1].bytes), ("o/r--x", 4));

        let belongings = cache.belongings("o/r--x", &["q4/a.gguf".into()]);
        assert_eq!(belongings.len(), 4, "two links, two blobs: {belongings:?}");
        cache.remove("o/r--x", &belongings).unwrap();
        assert!(other.is_file() && cache.find("o/r--x", "q4/a.gguf", None).is_none());
        cache.remove("o/r--x", &cache.belongings("o/r--x", &["b.gguf".into()])).unwrap();
        assert!(!cache.folder("o/r--x").exists());
    }

    #[test]
    fn a_blob_stays_as_long_as_another_file_is_it() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().to_owned() };
        let (etag, commit) = ("a".repeat(64), "1".repeat(40));
        let blob = cache.blob("o/r", &etag);
        fs::create_dir_all(blob.parent().unwrap()).unwrap();
        fs::write(&blob, "GGUF").unwrap();
        for file in ["a.gguf", "same.gguf"] {
            cache.publish("o/r", &etag, &commit, &commit, file).unwrap();
        }
        cache.remove("o/r", &cache.belongings("o/r", &["a.gguf".into()])).unwrap();
        assert!(blob.is_file() && cache.find("o/r", "same.gguf", None).is_some());
    }
}
