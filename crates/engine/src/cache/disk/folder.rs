//! The folder of cache files: listing and removal.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::file::Stored;

/// The extension of cache files.
const ENDING: &str = ".kv";

/// The extension of files being written.
const UNFINISHED: &str = ".part";

/// The name of the file for tokens with this hash.
pub(super) fn name(hash: &[u8; 32]) -> String {
    hash.iter().take(20).map(|byte| format!("{byte:02x}")).chain([ENDING.to_owned()]).collect()
}

/// The name of a file while it is being written.
pub(super) fn unfinished(name: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{name}.{}-{number}{UNFINISHED}", std::process::id())
}

/// Creates the folder with access for the user only, unless it exists.
/// Checks that no other user can put files into it, since their contents are trusted.
///
/// # Errors
/// If it can't be created, or others could write to it.
pub fn claim(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let about = folder.symlink_metadata()?;
        let unfit = match () {
            () if !about.is_dir() => "it is a link, not a folder",
            () if about.uid() != nix::unistd::geteuid().as_raw() => "it belongs to another user",
            () if about.mode() & 0o022 != 0 => "others may write to it (chmod go-w lets it be used)",
            () => return Ok(()),
        };
        Err(io::Error::other(unfit))
    }
    #[cfg(not(unix))]
    Ok(())
}

/// Bytes of all cache files in `folder`.
///
/// # Errors
/// If the folder can't be read.
pub fn total_bytes(folder: &Path) -> io::Result<u64> {
    Ok(files(folder, ENDING)?.iter().map(|(_, bytes, _)| bytes).sum())
}

/// A cache file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The file's path.
    pub path: PathBuf,
    /// The model's name; `None` if the file can't be read, so that it is ignored.
    pub model: Option<String>,
    /// The range of tokens cached in it: number of tokens before them, and up to their end.
    pub tokens: (usize, usize),
    /// Size of the file.
    pub bytes: u64,
    /// Time of last use.
    pub used: SystemTime,
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Number of files removed.
    pub files: usize,
    /// Their total size.
    pub bytes: u64,
    /// Number of files that could not be removed.
    pub left: usize,
}

/// All cache files in `folder`, most recently used first.
/// Empty if there is no folder.
///
/// # Errors
/// If the folder can't be read.
pub fn list(folder: &Path) -> io::Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = files(folder, ENDING)?
        .into_iter()
        .map(|(path, bytes, used)| {
            let stored = Stored::open(&path).ok();
            let header = stored.map(|stored| stored.header);
            let tokens = header.as_ref().map_or((0, 0), |header| (header.start, header.tokens));
            Entry { path, model: header.map(|header| header.model), tokens, bytes, used }
        })
        .collect();
    entries.sort_by(|a, b| b.used.cmp(&a.used).then(a.path.cmp(&b.path)));
    Ok(entries)
}

/// Removes all files from `folder`, including unfinished ones.
/// A process that has one open can continue reading it.
///
/// # Errors
/// If the folder can't be read.
pub fn clear(folder: &Path) -> io::Result<Cleared> {
    let mut cleared = Cleared::default();
    for (path, bytes, _) in files(folder, ENDING)?.into_iter().chain(files(folder, UNFINISHED)?) {
        match fs::remove_file(&path) {
            Ok(()) => {
                cleared.files += 1;
                cleared.bytes += bytes;
            }
            // Another process removed it first.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => cleared.left += 1,
        }
    }
    Ok(cleared)
}

/// Evicts the least recently used files until `bytes` more fit within `limit`; also removes
/// unfinished files of writers that no longer run.
pub(super) fn evict_until_fits(folder: &Path, bytes: u64, limit: u64) -> io::Result<()> {
    for (path, ..) in files(folder, UNFINISHED)? {
        // A writer holds its file's lock.
        if File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(&path);
        }
    }
    let mut found = files(folder, ENDING)?;
    found.sort_by_key(|(_, _, used)| std::cmp::Reverse(*used));
    let mut total: u64 = found.iter().map(|(_, bytes, _)| bytes).sum();
    while total.saturating_add(bytes) > limit {
        let Some((path, bytes, _)) = found.pop() else { break };
        if fs::remove_file(path).is_ok() {
            total -= bytes;
        }
    }
    Ok(())
}

/// The cache files in `folder` with this extension: path, size, time of last use.
fn files(folder: &Path, ending: &str) -> io::Result<Vec<(PathBuf, u64, SystemTime)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let own = |name: &str| {
        let hash = name.bytes().take_while(u8::is_ascii_hexdigit).count();
        hash == 40 && name[hash..].starts_with(ENDING) && name.ends_with(ending)
    };
    let found = entries.flatten().filter_map(|entry| {
        let about = entry.metadata().ok()?;
        let named = entry.file_name().to_str().is_some_and(own);
        let used = about.modified().unwrap_or(UNIX_EPOCH);
        (named && about.is_file()).then(|| (entry.path(), about.len(), used))
    });
    Ok(found.collect())
}
