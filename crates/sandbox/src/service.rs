//! A program that runs in parallel with others, and communicates over its pipes.

use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{end, kill_group};

/// How long a program may take to exit after its pipes are closed.
const LEAVE: Duration = Duration::from_millis(500);

/// A program that runs until this is dropped; then it is killed with all that it started.
/// Close its input before that.
#[derive(Debug)]
pub struct Service {
    id: u32,
    launched: bool,
    process: Mutex<Process>,
}

#[derive(Debug)]
struct Process {
    ended: Receiver<std::io::Result<ExitStatus>>,
    /// Whether it was waited for: another process may have its id by now.
    over: bool,
    status: Option<ExitStatus>,
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
    /// Starts `command`; `launched` tells whether that is the launcher.
    pub(super) fn start(mut command: Command, launched: bool) -> std::io::Result<(Self, Pipes)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (begin, begun) = channel();
        let (over, ended) = channel();
        // The launcher dies with the thread that started it, so the thread stays.
        std::thread::Builder::new().name("service".into()).spawn(move || match command.spawn() {
            Ok(mut child) => {
                let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                // If the caller is gone, the pipes are closed.
                let _ = begin.send(Ok((child.id(), pipes)));
                let _ = over.send(child.wait());
            }
            Err(error) => drop(begin.send(Err(error))),
        })?;
        let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        match begun.recv().map_err(|_| gone())?? {
            (id, (Some(stdin), Some(stdout), Some(stderr))) => {
                let process = Mutex::new(Process { ended, over: false, status: None });
                Ok((Service { id, launched, process }, Pipes { stdin, stdout, stderr }))
            }
            _ => Err(gone()),
        }
    }

    /// Whether it is over, or ends within this time.
    pub(super) fn is_over(&self, within: Duration) -> bool {
        self.process().is_over(within)
    }

    /// How it ended, if known.
    pub(super) fn status(&self) -> Option<ExitStatus> {
        self.process().status
    }

    /// Kills it at once, with all that it started.
    pub(super) fn kill(&self) {
        let mut process = self.process();
        if process.is_over(Duration::ZERO) {
            return;
        }
        end(self.id, self.launched, &process.ended);
        process.over = true;
    }

    /// Sends it a signal while it runs: to its launcher, or to its whole group if it has none.
    #[cfg(unix)]
    pub(super) fn signal(&self, signal: nix::sys::signal::Signal) {
        let mut process = self.process();
        if !process.is_over(Duration::ZERO) {
            super::signal(self.id, signal, !self.launched);
        }
    }

    /// Whether the launcher started it.
    pub(super) fn is_launched(&self) -> bool {
        self.launched
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Process {
    fn is_over(&mut self, within: Duration) -> bool {
        if !self.over {
            match self.ended.recv_timeout(within) {
                Ok(status) => (self.over, self.status) = (true, status.ok()),
                Err(RecvTimeoutError::Disconnected) => self.over = true,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        self.over
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !process.is_over(LEAVE) {
            end(self.id, self.launched, &process.ended);
        }
        // The processes that it left running in its group.
        kill_group(self.id);
    }
}
