//! Folders for tasks: each task has its own, below one folder of the process.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use alara_harness::scratch::{self, Scratch};

use crate::Error;

/// The folder of this process.
/// The next process removes the folders of killed ones.
#[derive(Debug)]
pub struct TaskDirs(Scratch);

impl TaskDirs {
    /// Creates the folder in `base`, and removes those of ended processes.
    ///
    /// # Errors
    /// `base` isn't writable.
    pub fn claim(base: &Path) -> Result<Self, Error> {
        Ok(TaskDirs(Scratch::claim(base).map_err(alara_harness::Error::from).map_err(Error::Harness)?))
    }

    /// Creates empty folders for one run of the task `id`.
    ///
    /// # Errors
    /// They can't be created, for example because the disk is full.
    pub fn make(&self, id: &str) -> Result<TaskDir, Error> {
        let root = self.0.path().join(id);
        let tmp = root.join("tmp");
        let dir = TaskDir { work: tmp.join("work"), home: tmp.join(".home"), tmp, root };
        dir.make().map_err(|source| Error::TaskDir { action: "make", path: dir.tmp.clone(), source })?;
        Ok(dir)
    }

    /// Returns the folder that contains them.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Checks that `folder`'s disk has room for another 64 KiB: on a full disk, programs fail in odd
/// ways.
///
/// # Errors
/// The error of the disk.
pub fn probe_disk(folder: &Path) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".probe-").tempfile_in(folder)?;
    file.write_all(&[1; 64 * 1024]).and_then(|()| file.as_file().sync_all())
}

/// The folders of one task.
/// They are removed when this is dropped.
/// Work and home are inside the folder that becomes `/tmp`, so that programs see the same paths in
/// every run: `/tmp/work` and `/tmp/.home`.
#[derive(Debug)]
pub struct TaskDir {
    root: PathBuf,
    /// The directory in which the agent works and the task's scripts start.
    pub work: PathBuf,
    /// `HOME`.
    pub home: PathBuf,
    /// The folder that programs see as `/tmp`.
    pub tmp: PathBuf,
}

impl TaskDir {
    /// Empties the folders without following any links that an agent has made.
    ///
    /// # Errors
    /// Something can't be removed.
    pub fn clear(&self) -> io::Result<()> {
        scratch::remove(&self.tmp)?;
        self.make()
    }

    /// Creates the folders that don't exist.
    fn make(&self) -> io::Result<()> {
        fs::create_dir_all(&self.root)?;
        for folder in [&self.tmp, &self.work, &self.home] {
            fs::create_dir(folder)?;
        }
        Ok(())
    }

    /// Makes work and home accessible to scripts again, whatever permissions an agent has set.
    ///
    /// # Errors
    /// They aren't folders any more, but missing, or links.
    pub fn open(&self) -> io::Result<()> {
        for (folder, name) in [(&self.tmp, "/tmp"), (&self.work, "the work directory"), (&self.home, "HOME")]
        {
            if !fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir()) {
                let message = format!("{name} is no directory any more");
                return Err(io::Error::new(io::ErrorKind::NotADirectory, message));
            }
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                let mut allowed = folder.metadata()?.permissions();
                allowed.set_mode(allowed.mode() | 0o700);
                fs::set_permissions(folder, allowed)?;
            }
        }
        Ok(())
    }

    /// Runs [`probe_disk`] for the task's disk.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn probe_disk(&self) -> io::Result<()> {
        probe_disk(&self.root)
    }
}

impl Drop for TaskDir {
    fn drop(&mut self) {
        // [`TaskDirs`] tries again at the end.
        let _ = scratch::remove(&self.root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_go_with_their_task() {
        let base = tempfile::tempdir().unwrap();
        let dirs = TaskDirs::claim(base.path()).unwrap();
        let dir = dirs.make("a-1").unwrap();
        dir.probe_disk().unwrap();
        fs::write(dir.work.join("x"), "x").unwrap();
        fs::create_dir_all(dir.work.join("deep/er")).unwrap();
        fs::write(dir.tmp.join("y"), "y").unwrap();
        dir.clear().unwrap();
        assert_eq!(fs::read_dir(&dir.tmp).unwrap().count(), 2);
        assert_eq!(fs::read_dir(&dir.work).unwrap().count(), 0);
        let work = dir.work.clone();
        drop(dir);
        assert!(!work.exists());
    }

    #[test]
    #[cfg(unix)]
    fn links_of_an_agent_are_not_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let base = tempfile::tempdir().unwrap();
        let canary = base.path().join("canary");
        fs::create_dir_all(canary.join("deep")).unwrap();
        fs::write(canary.join("deep/x"), "x").unwrap();
        let dirs = TaskDirs::claim(&base.path().join("tasks")).unwrap();
        let dir = dirs.make("a-1").unwrap();
        for folder in [&dir.work, &dir.home, &dir.tmp] {
            dir.open().unwrap();
            fs::create_dir_all(dir.work.join("closed/deep")).unwrap();
            fs::set_permissions(dir.work.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
            fs::rename(folder, base.path().join("moved")).unwrap();
            symlink(&canary, folder).unwrap();
            dir.open().unwrap_err();
            dir.clear().unwrap();
            assert_eq!(fs::read_dir(&dir.tmp).unwrap().count(), 2);
            assert_eq!(fs::read_dir(&dir.work).unwrap().count(), 0);
            assert_eq!(fs::read_dir(canary.join("deep")).unwrap().count(), 1);
            assert_eq!(fs::read_dir(&canary).unwrap().count(), 1);
            scratch::remove(&base.path().join("moved")).unwrap();
        }
        fs::set_permissions(&dir.work, fs::Permissions::from_mode(0o000)).unwrap();
        dir.open().unwrap();
        assert_eq!(dir.work.metadata().unwrap().permissions().mode() & 0o700, 0o700);
        symlink(&canary, dir.tmp.join("link")).unwrap();
        fs::remove_dir(&dir.work).unwrap();
        symlink(&canary, &dir.work).unwrap();
        drop(dir);
        assert!(canary.join("deep/x").exists());
    }
}
