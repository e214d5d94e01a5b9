//! The file that a download writes to: resumes at its end, hashes it as it grows, and removes it if
//! it would be in the way.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::Remote;
use crate::error::HubError;

/// The file being written, and the hash of its contents so far.
pub struct Target<'a> {
    path: &'a Path,
    file: File,
    hash: Sha256,
    /// Current size in bytes.
    pub at: u64,
    /// The largest size that it has reached.
    pub best: u64,
}

impl<'a> Target<'a> {
    /// Opens the file and hashes any existing contents.
    pub fn open(path: &'a Path, progress: &mut dyn FnMut(u64) -> bool) -> Result<Target<'a>, HubError> {
        let failed = |source| HubError::Write { path: path.display().to_string(), source };
        let file = OpenOptions::new().create(true).read(true).append(true).open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut target = Target { path, file, hash: Sha256::new(), at: 0, best: length };
        let mut buffer = vec![0; 1 << 17];
        while target.at < length {
            let most = buffer.len().min(usize::try_from(length - target.at).unwrap_or(usize::MAX));
            match target.file.read(&mut buffer[..most]).map_err(failed)? {
                0 => break,
                read => {
                    target.hash.update(&buffer[..read]);
                    target.at += read as u64;
                    progress(target.at);
                }
            }
        }
        Ok(target)
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        self.file.write_all(bytes).map_err(|error| self.failed(error))?;
        self.hash.update(bytes);
        self.at += bytes.len() as u64;
        self.best = self.best.max(self.at);
        Ok(())
    }

    /// Empties the file, whose contents can't be continued.
    pub fn restart(&mut self) -> Result<(), HubError> {
        if self.at > 0 {
            self.file.set_len(0).map_err(|error| self.failed(error))?;
        }
        (self.hash, self.at) = (Sha256::new(), 0);
        Ok(())
    }

    /// Doesn't leave a full disk behind: other programs need space too.
    fn failed(&self, error: std::io::Error) -> HubError {
        let path = self.path.display().to_string();
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                self.remove();
                HubError::Full { path, reason: error.to_string() }
            }
            _ => HubError::Write { path, source: error },
        }
    }

    /// Compares the file with the checksum, if that is known; removes the file if they differ.
    pub fn finish(self, file: &str, remote: &Remote) -> Result<(), HubError> {
        let found = format!("{:x}", self.hash.clone().finalize());
        match &remote.sha256 {
            Some(expected) if *expected != found => {
                self.remove();
                Err(HubError::Checksum { file: file.to_owned(), found, expected: expected.clone() })
            }
            _ => self.file.sync_all().map_err(|error| self.failed(error)),
        }
    }

    fn remove(&self) {
        // If that fails too, nothing more can be done.
        let _ = std::fs::remove_file(self.path);
    }
}
