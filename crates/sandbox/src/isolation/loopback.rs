//! An isolated network that the programs of a sandbox share.
//! Only these programs can reach a server that one of them starts.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Stdio;

use nix::libc;
use socket2::{Domain, Socket, Type};

use super::launcher;
use crate::Error;

/// The namespaces, which exist as long as a process has them open: none needs to stay in them.
#[derive(Debug)]
pub struct Loopback {
    user: File,
    network: File,
}

impl Loopback {
    /// Creates the namespaces, in a separate process.
    ///
    /// # Errors
    /// The machine has no such namespaces, or none for this user.
    pub fn new() -> Result<Self, Error> {
        let spawn = |source| Error::Spawn { program: "the sandbox's launcher".to_owned(), source };
        let mut command = launcher::loopback();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(spawn)?;
        let mut ready = [0];
        let ready = child.stdout.as_mut().is_some_and(|stdout| stdout.read_exact(&mut ready).is_ok());
        let namespace = |name: &str| File::open(format!("/proc/{}/ns/{name}", child.id()));
        let opened = namespace("user").and_then(|user| Ok(Loopback { user, network: namespace("net")? }));
        // The end of its input ends the process.
        let output = child.wait_with_output().map_err(spawn)?;
        if !ready {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Launcher { message: message.trim_matches(['\0', '\n']).to_owned() });
        }
        opened.map_err(|error| Error::Launcher { message: format!("the session's own network: {error}") })
    }

    /// The paths at which child processes find them: user, then network.
    pub fn paths(&self) -> [PathBuf; 2] {
        let own = std::process::id();
        [&self.user, &self.network].map(|file| format!("/proc/{own}/fd/{}", file.as_raw_fd()).into())
    }
}

/// The index of the loopback interface in a new network namespace.
const INTERFACE: i32 = 1;

/// Brings up the loopback interface of the current network namespace, by a request to the kernel:
/// see rtnetlink(7).
///
/// # Errors
/// Those of the kernel.
pub fn start() -> io::Result<()> {
    let up = libc::IFF_UP.to_ne_bytes();
    // `struct ifinfomsg`: family, padding and type, then the interface, its flags, and which of
    // them to change.
    let body = [&[0; 4][..], &INTERFACE.to_ne_bytes(), &up, &up].concat();
    // `struct nlmsghdr`: length, type, flags, sequence number, port.
    let kind = libc::RTM_NEWLINK.to_ne_bytes();
    let flags = ((libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16).to_ne_bytes();
    let length = (16 + body.len() as u32).to_ne_bytes();
    let message = [&length[..], &kind, &flags, &[0; 8], &body].concat();
    let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::from(libc::SOCK_RAW), None)?;
    socket.send(&message)?;
    let mut answer = [0; 1024];
    let length = (&socket).read(&mut answer)?;
    // `struct nlmsgerr` follows the header; it begins with the negative error number, or 0.
    let number = answer[..length].get(16..20).and_then(|bytes| bytes.try_into().ok());
    match number.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(number) => Err(io::Error::from_raw_os_error(-number)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
