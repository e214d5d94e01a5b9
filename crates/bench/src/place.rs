//! Where tasks run: folders of their own for each, below one of the process.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use alara_harness::scratch::{self, Scratch};

use crate::Error;

/// The folder of this process. What a killed process has left is removed by the next one.
#[derive(Debug)]
pub struct Ground(Scratch);

impl Ground {
    /// Makes the folder in `base`, and removes those of processes that are gone.
    ///
    /// # Errors
    /// `base` can't be written to.
    pub fn claim(base: &Path) -> Result<Self, Error> {
        Ok(Ground(Scratch::claim(base).map_err(Error::Harness)?))
    }

    /// Fresh folders for one run of the task `id`.
    ///
    /// # Errors
    /// They can't be made, for example because the disk is full.
    pub fn place(&self, id: &str) -> Result<Place, Error> {
        let root = self.0.path().join(id);
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
    /// Empties the folders.
    ///
    /// # Errors
    /// Something can't be removed.
    pub fn clear(&self) -> io::Result<()> {
        let keep = [&self.work, &self.home];
        for folder in [&self.tmp, &self.work, &self.home] {
            for entry in fs::read_dir(folder)? {
                let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
                match kind.is_dir() {
                    _ if keep.contains(&&path) => {}
                    true => scratch::remove(&path)?,
                    false => fs::remove_file(&path)?,
                }
            }
        }
        Ok(())
    }

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
        let _ = scratch::remove(&self.root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_goes_with_its_task() {
        let base = tempfile::tempdir().unwrap();
        let ground = Ground::claim(base.path()).unwrap();
        let place = ground.place("a-1").unwrap();
        place.probe_disk().unwrap();
        fs::write(place.work.join("x"), "x").unwrap();
        fs::create_dir_all(place.work.join("deep/er")).unwrap();
        fs::write(place.tmp.join("y"), "y").unwrap();
        place.clear().unwrap();
        assert_eq!(fs::read_dir(&place.tmp).unwrap().count(), 2);
        assert_eq!(fs::read_dir(&place.work).unwrap().count(), 0);
        let work = place.work.clone();
        drop(place);
        assert!(!work.exists());
    }
}
