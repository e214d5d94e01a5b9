//! The bytes of a file: mapped, inside the program, or in memory. The one file outside `kernels` with `unsafe`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

/// Shared, read-only bytes. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    Mapped(Arc<Mapped>),
    Static(&'static [u8]),
    Owned(Arc<Vec<u8>>),
}

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Mapped {
    map: Mmap,
    /// What changes whenever the file does.
    stamp: [i64; 4],
}

impl Bytes {
    /// Maps a whole file for reading.
    pub(crate) fn map(path: &Path) -> io::Result<Bytes> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a device or pipe, not a file"));
        }
        // An empty file can't be mapped everywhere.
        if metadata.len() == 0 {
            return Ok(Bytes::Static(&[]));
        }
        // SAFETY: The map is private and read-only, and `Mmap` owns it for as long as any slice of it lives. What Rust
        // can't rule out is another process that writes to the file or cuts it short meanwhile: then bytes change under
        // a shared reference, or touching a lost page ends this process with SIGBUS. Every engine that maps models
        // accepts that; model files and those of the prefix cache are replaced by renaming, not written in place. All values read from the map are
        // plain integers and floats, for which every bit pattern is valid, and text is copied as it is validated.
        let map = unsafe { Mmap::map(&file)? };
        // Weights are read from end to end for each token: in large pages less time goes into looking addresses up. Linux
        // reads what isn't in memory yet in such pages, if the file system can.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Bytes::Mapped(Arc::new(Mapped { map, stamp: stamp(&metadata) })))
    }

    /// What changes whenever the file does, as far as the system tells; zeros if it is none.
    pub(super) fn stamp(&self) -> [i64; 4] {
        match self {
            Bytes::Mapped(mapped) => mapped.stamp,
            Bytes::Static(_) | Bytes::Owned(_) => [0; 4],
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(mapped) => &mapped.map,
            Bytes::Static(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

/// When its contents, and what is known of it, were changed: whoever puts another file in its place, be it with the old time,
/// changes the second.
#[cfg(unix)]
fn stamp(metadata: &std::fs::Metadata) -> [i64; 4] {
    use std::os::unix::fs::MetadataExt;
    [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()]
}

#[cfg(not(unix))]
fn stamp(metadata: &std::fs::Metadata) -> [i64; 4] {
    let since = metadata.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let since = since.unwrap_or_default();
    [since.as_secs() as i64, i64::from(since.subsec_nanos()), 0, 0]
}
