//! A program that goes on beside the others, and is spoken with over its pipes.

use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{end, kill_group};

/// How long a program may take to end by itself once nobody speaks with it any more.
const LEAVE: Duration = Duration::from_millis(500);

/// A program that runs until this is dropped; then it is ended with all that it started.
/// Its input should be closed before that.
#[derive(Debug)]
pub struct Service {
    id: u32,
    launched: bool,
    ended: Mutex<Receiver<std::io::Result<ExitStatus>>>,
}

/// The pipes of a [`Service`].
#[derive(Debug)]
pub struct Pipes {
    /// Its standard input.
    pub stdin: ChildStdin,
    /// Its standard output.
    pub stdout: ChildStdout,
    /// Its standard error.
    pub stderr: ChildStderr,
}

impl Service {
    /// Starts `command`; `launched` if that is the launcher.
    pub(super) fn start(mut command: Command, launched: bool) -> std::io::Result<(Self, Pipes)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (begin, begun) = channel();
        let (over, ended) = channel();
        // The launcher dies with the thread that started it, so that one stays.
        std::thread::Builder::new().name("service".into()).spawn(move || match command.spawn() {
            Ok(mut child) => {
                let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                // Whoever asked may be gone; then the pipes are closed.
                let _ = begin.send(Ok((child.id(), pipes)));
                let _ = over.send(child.wait());
            }
            Err(error) => drop(begin.send(Err(error))),
        })?;
        let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        match begun.recv().map_err(|_| gone())?? {
            (id, (Some(stdin), Some(stdout), Some(stderr))) => {
                Ok((Service { id, launched, ended: Mutex::new(ended) }, Pipes { stdin, stdout, stderr }))
            }
            _ => Err(gone()),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(LEAVE).is_err() {
            end(self.id, self.launched, ended);
        }
        // What it left running in its group.
        kill_group(self.id);
    }
}
