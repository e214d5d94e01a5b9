//! Temporary folders that don't outlive their owner for long.
//! They are gone when they are dropped.
//! What a killed process has left is removed by the next one.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Error;

const PREFIX: &str = "alara-";

/// A folder `alara-<process id>-<n>`.
/// A lock on the file of the same name with `.lock` says that its owner lives, whatever other
/// process gets its number later.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes the folder in `base`, and removes those of owners that are gone.
    ///
    /// # Errors
    /// `base` can't be written to.
    pub fn claim(base: &Path) -> Result<Self, Error> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let error = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Directory { what: "temporary directory", path, source }
        };
        fs::create_dir_all(base).map_err(error(base))?;
        sweep(base).map_err(error(base))?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = base.join(format!("{PREFIX}{}-{number}", std::process::id()));
        let lock_path = folder.with_extension("lock");
        let lock = File::create(&lock_path).map_err(error(&lock_path))?;
        lock.lock().map_err(error(&lock_path))?;
        private(&folder).map_err(error(&folder))?;
        let folder = folder.canonicalize().map_err(error(&folder))?;
        Ok(Scratch { folder, lock_path, _lock: lock })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What can't be removed now is removed by the next run.
        let _ = remove(&self.folder).and_then(|()| fs::remove_file(&self.lock_path));
    }
}

/// A new folder that only its owner may enter.
/// One that is there already is not ours.
fn private(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().mode(0o700).create(folder)
    }
    #[cfg(not(unix))]
    fs::create_dir(folder)
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
///
/// # Errors
/// Something in it can't be removed.
pub fn remove(folder: &Path) -> io::Result<()> {
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
        let (one, two) = (Scratch::claim(base.path()).unwrap(), Scratch::claim(base.path()).unwrap());
        assert_ne!(one.path(), two.path());
        let closed = one.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("y"), "y").unwrap();
        #[cfg(unix)]
        fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
        drop((one, two));
        assert_eq!(names(base.path()), Vec::<String>::new());
    }

    #[test]
    fn removes_what_a_dead_process_left_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        for name in ["alara-1-0", "alara-2-0", "something"] {
            fs::create_dir_all(base.path().join(name).join("t/work")).unwrap();
            fs::write(base.path().join(format!("{name}.lock")), "").unwrap();
        }
        let alive = File::options().write(true).open(base.path().join("alara-2-0.lock")).unwrap();
        alive.lock().unwrap();
        drop(Scratch::claim(base.path()).unwrap());
        let left = ["alara-2-0", "alara-2-0.lock", "something", "something.lock"].map(str::to_owned);
        assert_eq!(names(base.path()), left);
    }
}
