//! Temporary folders that don't outlive their owner for long.
//! Dropping one removes it.
//! The next process removes the leftovers of a killed one.
//! All are in a private folder of the user: where everybody may write, others could create files
//! with their names.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Error;

const PREFIX: &str = "alara-";
/// How many names to try for the user's own folder, if others have taken some.
const NAMES: usize = 8;
/// How often to look for it: another process may remove it when it is empty.
const TRIES: usize = 100;

/// A folder `alara-<process id>-<n>`.
/// A lock on the file of the same name with `.lock` shows that its owner lives, even if another
/// process gets its id later.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Creates the folder in `base`, and removes those whose owners are gone.
    ///
    /// # Errors
    /// `base` isn't writable.
    pub fn claim(base: &Path) -> Result<Self, Error> {
        let error = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Directory { what: "temporary directory", path, source }
        };
        fs::create_dir_all(base).map_err(error(base))?;
        for _ in 0..TRIES {
            let own = own(base).map_err(error(base))?;
            match sweep(&own).and_then(|()| Scratch::make(&own)) {
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
                made => return made.map_err(error(&own)),
            }
        }
        Err(error(base)(io::ErrorKind::NotFound.into()))
    }

    /// Creates the folder in the user's own one.
    fn make(own: &Path) -> io::Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let folder = own.join(format!("{PREFIX}{}-{number}", std::process::id()));
            let lock_path = folder.with_extension("lock");
            // In another process namespace, another process may have the same id.
            let lock = match File::options().write(true).create_new(true).open(&lock_path) {
                Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            };
            lock.lock()?;
            private(&folder)?;
            return Ok(Scratch { folder: folder.canonicalize()?, lock_path, _lock: lock });
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that can't be removed now is removed by the next run.
        let _ = remove(&self.folder).and_then(|()| fs::remove_file(&self.lock_path));
        // This fails as long as there are others.
        let _ = self.lock_path.parent().map(fs::remove_dir);
    }
}

/// The user's own folder in `base`.
/// If another user has taken its name, another name is used.
fn own(base: &Path) -> io::Result<PathBuf> {
    for number in 0..NAMES {
        let more = if number == 0 { String::new() } else { format!(".{number}") };
        let folder = base.join(format!("{PREFIX}{}{more}", user()));
        match private(&folder) {
            Err(there) if there.kind() == io::ErrorKind::AlreadyExists && is_own(&folder) => {}
            Err(there) if there.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        return Ok(folder);
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    Ok(builder.tempdir_in(base)?.keep())
}

/// The user's number.
fn user() -> u32 {
    #[cfg(unix)]
    return nix::unistd::geteuid().as_raw();
    #[cfg(not(unix))]
    return 0;
}

/// Whether this is a folder of the user that no other user may enter.
fn is_own(folder: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(folder) else { return false };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        found.is_dir() && found.uid() == user() && found.mode() & 0o077 == 0
    }
    #[cfg(not(unix))]
    found.is_dir()
}

/// Creates a folder that only its owner may enter.
/// A folder that already exists is not ours.
fn private(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().mode(0o700).create(folder)
    }
    #[cfg(not(unix))]
    fs::create_dir(folder)
}

/// Removes the folders in the user's own one whose process is gone.
fn sweep(own: &Path) -> io::Result<()> {
    for entry in fs::read_dir(own)? {
        let path = entry?.path();
        let ours =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
        if !ours || path.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        let mut options = File::options();
        // It may not be a regular file.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(
            &mut options,
            (nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_NOFOLLOW).bits(),
        );
        let Ok(lock) = options.write(true).open(&path) else { continue };
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

/// Removes a folder with all its contents, including folders whose permissions forbid it or that
/// are too deep.
///
/// # Errors
/// An entry can't be removed.
pub fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => {
            open_up(folder)?;
            fs::remove_dir_all(folder)
        }
        removed => removed,
    }
}

/// Makes the folders in a folder accessible, and moves the deepest ones up into it: the length of
/// paths and the number of open files are limited.
fn open_up(folder: &Path) -> io::Result<()> {
    const DEEP: usize = 32;
    let (mut left, mut moved) = (vec![(folder.to_owned(), 0)], 0_usize);
    while let Some((inner, depth)) = left.pop() {
        #[cfg(unix)]
        fs::set_permissions(&inner, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        for entry in fs::read_dir(&inner)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                continue;
            }
            if depth < DEEP {
                left.push((entry.path(), depth + 1));
                continue;
            }
            let mut places = std::iter::repeat_with(|| {
                moved += 1;
                folder.join(format!(".deep-{moved}"))
            });
            let Some(place) = places.find(|place| fs::symlink_metadata(place).is_err()) else { break };
            #[cfg(unix)]
            fs::set_permissions(entry.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
            fs::rename(entry.path(), &place)?;
            left.push((place, 1));
        }
    }
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
        // Deeper than any path may be long, and than files may be open.
        let deep = "import os\nfor _ in range(3000): os.mkdir('a' * 8); os.chdir('a' * 8)";
        let mut python = std::process::Command::new("python3");
        assert!(python.args(["-c", deep]).current_dir(two.path()).status().unwrap().success());
        drop((one, two));
        assert_eq!(names(base.path()), Vec::<String>::new());
    }

    #[test]
    fn removes_what_a_dead_process_left_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let own = own(base.path()).unwrap();
        for name in ["alara-1-0", "alara-2-0", "something"] {
            fs::create_dir_all(own.join(name).join("t/work")).unwrap();
            fs::write(own.join(format!("{name}.lock")), "").unwrap();
        }
        let alive = File::options().write(true).open(own.join("alara-2-0.lock")).unwrap();
        alive.lock().unwrap();
        drop(Scratch::claim(base.path()).unwrap());
        let left = ["alara-2-0", "alara-2-0.lock", "something", "something.lock"].map(str::to_owned);
        assert_eq!(names(&own), left);
    }

    /// In a folder that everyone may write to, another user was first.
    #[test]
    #[cfg(unix)]
    fn what_others_have_put_there_is_not_taken() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let (base, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = |more: &str| base.path().join(format!("{PREFIX}{}{more}", user()));
        symlink(theirs.path(), name("")).unwrap();
        fs::create_dir(name(".1")).unwrap();
        fs::set_permissions(name(".1"), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(name(".2"), "").unwrap();
        nix::unistd::mkfifo(&name(".3"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let scratch = Scratch::claim(base.path()).unwrap();
        assert_eq!(scratch.path().parent(), Some(&*name(".4").canonicalize().unwrap()));
        // All names are taken.
        for number in 5..NAMES {
            fs::write(name(&format!(".{number}")), "").unwrap();
        }
        drop(scratch);
        fs::write(name(".4"), "").unwrap();
        let scratch = Scratch::claim(base.path()).unwrap();
        assert!(is_own(scratch.path().parent().unwrap()));
        drop(scratch);
        assert_eq!(names(theirs.path()), Vec::<String>::new());
        assert_eq!(names(base.path()).len(), NAMES);
        // A pipe with the name of a lock: opening it for writing would wait for a reader.
        fs::remove_file(name("")).unwrap();
        let own = own(base.path()).unwrap();
        nix::unistd::mkfifo(&own.join("alara-1-0.lock"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        drop(Scratch::claim(base.path()).unwrap());
    }
}
