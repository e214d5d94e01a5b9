//! The bytes of a model file: mapped, inside the program, or in memory. The one file outside `kernels` with `unsafe`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

/// Shared, read-only bytes. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) enum Bytes {
    Mapped(Arc<Mmap>),
    Static(&'static [u8]),
    Owned(Arc<Vec<u8>>),
}

impl Bytes {
    /// Maps a whole file for reading.
    pub(super) fn map(path: &Path) -> io::Result<Bytes> {
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
        // accepts that; model files are replaced by renaming, not written in place. All values read from the map are
        // plain integers and floats, for which every bit pattern is valid, and text is copied as it is validated.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Bytes::Mapped(Arc::new(map)))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Static(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
        }
    }
}
