//! Reads files of unknown origin without blocking on them or exhausting memory.
//!
//! A path such as `task.jinx` may be a pipe without a writer, an endless device, or a sparse file
//! of several gigabytes.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Size limit of texts written by people, in bytes.
pub const TEXT: u64 = 16 << 20;
/// Size limit of files to which programs append records.
pub const RECORDS: u64 = 1 << 30;

/// Opens a regular file for reading.
///
/// # Errors
/// If the file can't be opened, or is a pipe, a device or a folder.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    // Opening a pipe normally blocks until it has a writer.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, nix::fcntl::OFlag::O_NONBLOCK.bits());
    let file = options.open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe or a device, no regular file"));
    }
    Ok(file)
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// As [`open`], or if the file is larger.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    if file.metadata()?.len() > most {
        return Err(too_long(most));
    }
    up_to(file, most)
}

/// Reads a regular file of at most `most` bytes as text.
///
/// # Errors
/// As [`read`], or if the file isn't UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text(read(path, most)?)
}

/// Reads a text named on the command line, which may be a pipe.
///
/// # Errors
/// If it can't be read, has more than [`TEXT`] bytes, or isn't UTF-8.
pub fn read_given(path: &Path) -> io::Result<String> {
    text(up_to(File::open(path)?, TEXT)?)
}

fn up_to(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_long(most)) } else { Ok(bytes) }
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn too_long(most: u64) -> io::Error {
    let message = format!("it has more than {} MiB, the most that is read of such a file", most >> 20);
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_their_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(
            (read_text(&path, 4).unwrap(), read_given(&path).unwrap()),
            ("text".into(), "text".into())
        );
        assert_eq!(read(&path, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        File::options().write(true).open(&path).unwrap().set_len(5 << 30).unwrap();
        assert!(read(&path, RECORDS).unwrap_err().to_string().contains("more than 1024 MiB"));
        assert_eq!(read_given(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read(folder.path(), 9).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read(&folder.path().join("b"), 9).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[cfg(unix)]
    #[test]
    fn nobody_waits_for_a_pipe_or_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [&pipe, Path::new("/dev/zero"), Path::new("/dev/null")] {
            assert_eq!(read(path, TEXT).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
    }
}
