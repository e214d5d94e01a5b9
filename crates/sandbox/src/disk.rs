//! Measures how much disk space a program takes.
//!
//! The bytes that each process writes are counted, but the count misses some: processes that came
//! and went between two looks, and space that the kernel reserves without writing.
//! So the free space of the disks is watched too.
//! Other programs write to them meanwhile: only when a disk has lost as much as the program may
//! take, the sizes of its files are added up.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::statvfs::statvfs;

use super::usage::nameless_files;

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// The resolution of filesystem timestamps.
const COARSE: Duration = Duration::from_millis(20);

/// The directories that a program can write to, and their disks.
#[derive(Debug, Default)]
pub struct Disk {
    places: Vec<Place>,
    begun: Option<SystemTime>,
}

#[derive(Debug)]
struct Place {
    path: PathBuf,
    device: u64,
    /// Bytes used on its disk when they were last added up.
    taken: u64,
    /// The part of these bytes that belongs to the program.
    own: u64,
}

impl Disk {
    /// The state of these directories' disks, before a program runs.
    pub fn of(directories: &[&Path]) -> Disk {
        let mut places: Vec<Place> = Vec::new();
        for path in directories {
            let Ok(found) = fs::metadata(path) else { continue };
            let taken = taken(path).unwrap_or(0);
            places.push(Place { path: (*path).to_owned(), device: found.dev(), taken, own: 0 });
        }
        // A directory inside another is counted with the other.
        let outer: Vec<(PathBuf, u64)> =
            places.iter().map(|place| (place.path.clone(), place.device)).collect();
        let within = |place: &Place| {
            outer.iter().any(|(path, device)| {
                *device == place.device && *path != place.path && place.path.starts_with(path)
            })
        };
        places.retain(|place| !within(place));
        places.dedup_by(|one, other| one.path == other.path);
        Disk { places, begun: SystemTime::now().checked_sub(COARSE) }
    }

    /// Checks the disks repeatedly, and calls `over` once the program has taken more bytes than
    /// `most`.
    /// `members` are the ids of its processes.
    pub fn watch(mut self, most: u64, members: impl Fn() -> Vec<u32>, over: impl FnOnce()) {
        loop {
            std::thread::sleep(PAUSE);
            if self.takes(most, &members) {
                return over();
            }
        }
    }

    /// Whether the program has taken more bytes than `most`.
    fn takes(&mut self, most: u64, members: &impl Fn() -> Vec<u32>) -> bool {
        let grown = |place: &Place| {
            taken(&place.path).is_some_and(|now| now > place.taken + (most - most.min(place.own)))
        };
        if !self.places.iter().any(grown) {
            return false;
        }
        let Some(begun) = self.begun else { return false };
        for place in &mut self.places {
            place.taken = taken(&place.path).unwrap_or(place.taken);
            place.own = written(&place.path, place.device, begun);
        }
        // A deleted file isn't found below any directory.
        nameless_files(&members()) + self.places.iter().map(|place| place.own).sum::<u64>() > most
    }
}

/// Bytes used on the disk of a directory.
fn taken(path: &Path) -> Option<u64> {
    let disk = statvfs(path).ok()?;
    // The types of these fields differ between systems.
    #[allow(clippy::unnecessary_cast)]
    Some((disk.blocks() as u64).saturating_sub(disk.blocks_free() as u64) * disk.fragment_size() as u64)
}

/// Bytes of the files below a directory that were changed since then, on its disk.
fn written(directory: &Path, device: u64, since: SystemTime) -> u64 {
    let since = since.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let (mut left, mut sum) = (vec![directory.to_owned()], 0);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            // Don't follow links.
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() && found.dev() == device {
                left.push(entry.path());
            } else if found.is_file() && found.ctime() >= since {
                sum += found.blocks() * 512;
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_since_counts() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("a/b/old"), vec![1; 1 << 20]).unwrap();
        let device = root.path().metadata().unwrap().dev();
        std::thread::sleep(Duration::from_millis(1100));
        let now = SystemTime::now();
        fs::write(root.path().join("a/b/new"), vec![1; 1 << 16]).unwrap();
        std::os::unix::fs::symlink(root.path(), root.path().join("a/loop")).unwrap();
        let file = fs::File::open(root.path().join("a/b/new")).unwrap();
        file.sync_all().unwrap();
        assert_eq!(written(root.path(), device, now), 1 << 16);
        let mut disk = Disk::of(&[root.path(), &root.path().join("a")]);
        assert_eq!(disk.places.len(), 1);
        assert!(!disk.takes(1 << 40, &Vec::new));
    }
}
