//! Where tasks run: one folder a process, below it one a task, gone when they are dropped. What a killed process has
//! left is removed by the next one.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::Error;

const PREFIX: &str = "alara-bench-";

/// The folder `alara-bench-<process id>` of this process. A lock on the file of the same name with `.lock` says that
/// the process lives, whatever other process gets its number later.
#[derive(Debug)]
pub struct Ground {
    folder: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl Ground {
    /// Makes the folder in `base`, and removes those of processes that are gone.
    ///
    /// # Errors
    /// `base` can't be written to.
    pub fn claim(base: &Path) -> Result<Self, Error> {
        let error = |action, path: &Path| {
            let path = path.to_owned();
            move |source| Error::Place { action, path, source }
        };
        fs::create_dir_all(base).map_err(error("make", base))?;
        sweep(base).map_err(error("clean", base))?;
        let folder = base.join(format!("{PREFIX}{}", std::process::id()));
        let lock_path = folder.with_extension("lock");
        let lock = File::create(&lock_path).map_err(error("make", &lock_path))?;
        lock.lock().map_err(error("lock", &lock_path))?;
        fs::create_dir_all(&folder).map_err(error("make", &folder))?;
        let folder = folder.canonicalize().map_err(error("use", &folder))?;
        Ok(Ground { folder, lock_path, _lock: lock })
    }

    /// Fresh folders for one run of the task `id`.
    ///
    /// # Errors
    /// They can't be made, for example because the disk is full.
    pub fn place(&self, id: &str) -> Result<Place, Error> {
        let root = self.folder.join(id);
        let tmp = root.join("tmp");
        let place = Place { work: tmp.join("work"), home: tmp.join(".home"), tmp, root };
        for folder in [&place.work, &place.home] {
            fs::create_dir_all(folder).map_err(|source| Error::Place {
                action: "make",
                path: folder.clone(),
                source,
            })?;
        }
        Ok(place)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // What can't be removed now is removed by the next run.
        let _ = remove(&self.folder).and_then(|()| fs::remove_file(&self.lock_path));
    }
}

/// The folders of one task. They are removed when this is dropped. Work and home lie in what becomes `/tmp`, so that
/// programs see the same paths in every run: `/tmp/work` and `/tmp/.home`.
#[derive(Debug)]
pub struct Place {
    root: PathBuf,
    /// Where the agent works and the task's scripts start.
    pub work: PathBuf,
    /// `HOME`.
    pub home: PathBuf,
    /// What programs see as `/tmp`.
    pub tmp: PathBuf,
}

impl Place {
    /// Whether the disk takes another 64 KiB: programs fail in odd ways where it does not.
    ///
    /// # Errors
    /// What the disk says.
    pub fn probe_disk(&self) -> io::Result<()> {
        let file = self.root.join("probe");
        fs::write(&file, vec![1; 64 * 1024]).and_then(|()| File::open(&file)?.sync_all())?;
        fs::remove_file(&file)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The ground tries again at the end.
        let _ = remove(&self.root);
    }
}

/// Removes the folders below `base` whose process is gone.
fn sweep(base: &Path) -> io::Result<()> {
    for entry in fs::read_dir(base)? {
        let path = entry?.path();
        let ours =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
        if !ours || path.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        // Another user's file can't be opened, and is not ours to remove.
        let Ok(lock) = File::options().write(true).open(&path) else { continue };
        match lock.try_lock() {
            Ok(()) => {
                let _ = remove(&path.with_extension("")).and_then(|()| fs::remove_file(&path));
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(())
}

/// Removes a folder with all that is in it, also folders that forbid it by their permissions.
fn remove(folder: &Path) -> io::Result<()> {
    let result = fs::remove_dir_all(folder);
    match &result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            permit(folder)?;
            fs::remove_dir_all(folder)
        }
        _ => result,
    }
}

#[cfg(unix)]
fn permit(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            permit(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn permit(_folder: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(base: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(base)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn leaves_nothing_behind() {
        let base = tempfile::tempdir().unwrap();
        let ground = Ground::claim(base.path()).unwrap();
        let place = ground.place("a-1").unwrap();
        place.probe_disk().unwrap();
        fs::write(place.work.join("x"), "x").unwrap();
        let closed = place.work.join("closed");
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("y"), "y").unwrap();
        #[cfg(unix)]
        fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
        let work = place.work.clone();
        drop(place);
        assert!(!work.exists());
        drop(ground);
        assert_eq!(names(base.path()), Vec::<String>::new());
    }

    #[test]
    fn removes_what_a_dead_process_left_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        for name in ["alara-bench-1", "alara-bench-2", "something"] {
            fs::create_dir_all(base.path().join(name).join("t/work")).unwrap();
            fs::write(base.path().join(format!("{name}.lock")), "").unwrap();
        }
        let alive = File::options().write(true).open(base.path().join("alara-bench-2.lock")).unwrap();
        alive.lock().unwrap();
        drop(Ground::claim(base.path()).unwrap());
        assert_eq!(
            names(base.path()),
            ["alara-bench-2", "alara-bench-2.lock", "something", "something.lock"].map(str::to_owned)
        );
    }
}
