//! A Unix socket accessible only to its owner.

use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Listens at `path`, replacing a socket without a listener.
/// Moves the socket's file there only after its permissions are set, so that no one else can open
/// it before.
///
/// # Errors
/// Something else is at `path`, or another process is listening.
pub fn bind(path: &Path) -> Result<UnixListener> {
    if let Ok(there) = path.symlink_metadata() {
        if !there.file_type().is_socket() {
            return Err(Error::new(ErrorKind::AlreadyExists, "there is a file that is no socket"));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(Error::new(ErrorKind::AddrInUse, "another server listens there"));
        }
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let _ = std::fs::remove_file(&beside);
    let listener = UnixListener::bind(&beside)?;
    let placed = std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| std::fs::rename(&beside, path));
    if let Err(error) = placed {
        let _ = std::fs::remove_file(&beside);
        return Err(error);
    }
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_their_owners() {
        let folder = std::env::temp_dir().join(crate::inner::id("alara-socket-"));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("s");
        let listener = bind(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(bind(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
        // The listener is gone.
        drop(bind(&path).unwrap());
        std::fs::write(folder.join("file"), "x").unwrap();
        assert_eq!(bind(&folder.join("file")).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(folder.read_dir().unwrap().count(), 2);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
