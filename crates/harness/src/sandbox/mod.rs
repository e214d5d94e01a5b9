//! Runs one program at a time in a work directory, walled off as well as the machine allows.
//!
//! This module owns processes: how they start, what they may touch, how long they live and how much they may say.
//! It must not know jinxes, models or conversations.
//!
//! On Linux the walls are put up by a *launcher*: the binary starts itself again with a hidden first argument,
//! enters new namespaces, restricts itself with Landlock and resource limits, and only then starts the program.
//! That needs no code between fork and exec, so no `unsafe`; the price is that [`enter`] must be the first thing
//! in `main`. Elsewhere, and with [`Isolation::Off`], the program runs plainly in a process group of its own.

mod capture;
mod enforced;
#[cfg(target_os = "linux")]
mod launcher;
#[cfg(target_os = "linux")]
mod walls;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use capture::Capture;
pub use enforced::{Enforced, enforced};

use crate::error::Error;
use crate::scratch::Scratch;

/// Most bytes of one argument or one environment variable that Linux passes to a program (`MAX_ARG_STRLEN`), with
/// some room for the variable's name.
pub const ARGUMENT_BYTES: usize = 128 * 1024 - 256;

/// How strongly programs are walled off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Every layer that [`enforced`] names. The process must have called [`enter`] first.
    #[default]
    Auto,
    /// Plain execution: only the time and output limits, the clean environment and the process group hold.
    Off,
}

/// What programs of a sandbox may touch and use.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Whether a script that asks for the network gets it. Default true; a script's own default is no network.
    pub network: bool,
    /// Most bytes of private writable memory for each process. Default 2 GiB.
    pub memory_bytes: u64,
    /// Most processes and threads at a time. Default 256. Not enforced for the superuser.
    pub processes: u64,
    /// Largest file that a program may write, in bytes. Default 1 GiB.
    pub file_bytes: u64,
    /// A host directory that programs see as `/tmp`; it persists from run to run. `None`: the machine's own `/tmp`,
    /// readable but not writable. It is an error where the machine can't enforce it.
    pub private_tmp: Option<PathBuf>,
    /// A host directory for `HOME`. `None`: the private `/tmp` if there is one, otherwise a temporary directory that
    /// is removed with the sandbox.
    pub home: Option<PathBuf>,
    /// How strongly programs are walled off. Default [`Isolation::Auto`].
    pub isolation: Isolation,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            network: true,
            memory_bytes: 2 << 30,
            processes: 256,
            file_bytes: 1 << 30,
            private_tmp: None,
            home: None,
            isolation: Isolation::Auto,
        }
    }
}

/// A program to run.
#[derive(Clone, Debug)]
pub struct Script<'a> {
    /// The program and its arguments; a name without a slash is looked up in `PATH`.
    pub program: &'a [&'a str],
    /// Environment variables beside `PATH`, `LANG`, `HOME` and `TMPDIR`, which the sandbox sets.
    pub env: &'a [(String, String)],
    /// Bytes for standard input; `None` = empty.
    pub stdin: Option<&'a [u8]>,
    /// Wall-clock limit; then everything that the program started is killed.
    pub timeout: Duration,
    /// Whether the program needs the network; it gets it only if the policy allows it too.
    pub network: bool,
    /// Most bytes to keep of each of stdout and stderr: the first and the last half of this. The rest is read,
    /// counted and dropped.
    pub output_limit: usize,
}

/// What a program did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The exit status, 128 + the signal's number if a signal ended it, `None` if the sandbox killed it.
    pub exit: Option<i32>,
    /// What it wrote on stdout, up to the limit.
    pub stdout: Vec<u8>,
    /// What it wrote on stderr, up to the limit.
    pub stderr: Vec<u8>,
    /// Bytes dropped from the middle of `stdout`.
    pub stdout_dropped: u64,
    /// Bytes dropped from the middle of `stderr`.
    pub stderr_dropped: u64,
    /// Whether the wall-clock limit ended it.
    pub timed_out: bool,
    /// Whether the sandbox's cancel flag ended it.
    pub cancelled: bool,
}

/// A work directory and a policy.
#[derive(Debug)]
pub struct Sandbox {
    work: PathBuf,
    home: PathBuf,
    tmp: PathBuf,
    policy: Policy,
    cancel: Arc<AtomicBool>,
    /// Keeps the temporary home for as long as the sandbox lives.
    _scratch: Option<Scratch>,
}

impl Sandbox {
    /// A sandbox whose programs start in `work`.
    ///
    /// # Errors
    /// A directory that is missing, or a private `/tmp` that this machine can't enforce.
    pub fn new(work: &Path, policy: Policy) -> Result<Self, Error> {
        let directory = |path: &Path, what| {
            let found = path.canonicalize().and_then(|path| match path.is_dir() {
                true => Ok(path),
                false => Err(std::io::ErrorKind::NotADirectory.into()),
            });
            found.map_err(|source| Error::Directory { what, path: path.to_owned(), source })
        };
        let mut policy = policy;
        let work = directory(work, "work directory")?;
        if policy.isolation == Isolation::Auto && !enforced::is_launcher() {
            return Err(Error::NoLauncher);
        }
        if let Some(tmp) = &mut policy.private_tmp {
            *tmp = directory(tmp, "private /tmp")?;
            if policy.isolation == Isolation::Off || !enforced().mounts {
                return Err(Error::PrivateTmp { enforced: enforced().to_string() });
            }
        }
        let mut scratch = None;
        let (home, tmp) = match (&policy.home, &policy.private_tmp) {
            (Some(home), Some(_)) => (directory(home, "home directory")?, PathBuf::from("/tmp")),
            (Some(home), None) => {
                let home = directory(home, "home directory")?;
                (home.clone(), home)
            }
            (None, Some(_)) => (PathBuf::from("/tmp"), PathBuf::from("/tmp")),
            (None, None) => {
                let made = Scratch::claim(&std::env::temp_dir())?;
                let path = made.path().to_owned();
                scratch = Some(made);
                (path.clone(), path)
            }
        };
        Ok(Sandbox { work, home, tmp, policy, cancel: Arc::default(), _scratch: scratch })
    }

    /// Lets `cancel` end the running program and every later one.
    #[must_use]
    pub fn with_cancel(mut self, cancel: Arc<AtomicBool>) -> Self {
        self.cancel = cancel;
        self
    }

    /// The flag that ends the running program.
    pub fn cancel_flag(&self) -> &Arc<AtomicBool> {
        &self.cancel
    }

    /// The work directory on the host, canonical.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// The work directory as programs see it: below `/tmp` if it lies in the private `/tmp`.
    pub fn work_inside(&self) -> PathBuf {
        self.inside(&self.work)
    }

    /// What holds for the programs of this sandbox.
    pub fn enforced(&self) -> Enforced {
        match self.policy.isolation {
            Isolation::Auto => *enforced(),
            Isolation::Off => Enforced::default(),
        }
    }

    /// Runs a program to its end, or to a limit. A program that fails is no error.
    ///
    /// # Errors
    /// The program can't be started, or a wall can't be put up.
    pub fn run(&self, script: &Script) -> Result<Output, Error> {
        let mut child = self.spawn(script)?;
        let stdin = child.stdin.take().zip(script.stdin.map(<[u8]>::to_vec));
        if let Some((mut pipe, bytes)) = stdin {
            // A program that does not read its input is no error, so neither is the broken pipe.
            std::thread::spawn(move || drop(pipe.write_all(&bytes)));
        }
        let stdout = Capture::start(child.stdout.take(), script.output_limit);
        let stderr = Capture::start(child.stderr.take(), script.output_limit);
        let mut output = Output::default();
        let deadline = Instant::now() + script.timeout;
        let mut pause = Duration::from_micros(200);
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|source| Error::Wait { source })? {
                break Some(status);
            }
            output.timed_out = Instant::now() >= deadline;
            output.cancelled = self.cancel.load(Ordering::Relaxed);
            if output.timed_out || output.cancelled {
                kill(&mut child);
                break None;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        };
        // Whatever the program left running in its group goes too; in namespaces it is gone already.
        kill_group(child.id());
        output.exit = status.map(exit_code);
        (output.stdout, output.stdout_dropped) = stdout.finish();
        (output.stderr, output.stderr_dropped) = stderr.finish();
        #[cfg(target_os = "linux")]
        if let Some(message) = launcher::failure(&output) {
            return Err(Error::Launcher { message });
        }
        Ok(output)
    }

    fn spawn(&self, script: &Script) -> Result<Child, Error> {
        let name = script.program.first().copied().unwrap_or_default();
        let mut command = match self.policy.isolation {
            #[cfg(target_os = "linux")]
            Isolation::Auto => launcher::command(self.plan(script), script.program),
            _ => {
                let mut command = Command::new(name);
                command.args(&script.program[script.program.len().min(1)..]).current_dir(&self.work);
                #[cfg(unix)]
                std::os::unix::process::CommandExt::process_group(&mut command, 0);
                command
            }
        };
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        let lang = std::env::var_os("LANG").unwrap_or_else(|| "C.UTF-8".into());
        let kept: [(&str, OsString); 4] = [
            ("PATH", path),
            ("LANG", lang),
            ("HOME", self.inside(&self.home).into()),
            ("TMPDIR", self.tmp.clone().into()),
        ];
        let stdin = if script.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        command
            .env_clear()
            .envs(script.env.iter().map(|(key, value)| (key, value)))
            .envs(kept)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().map_err(|source| Error::Spawn { program: name.to_owned(), source })
    }

    #[cfg(target_os = "linux")]
    fn plan(&self, script: &Script) -> launcher::Plan {
        launcher::Plan {
            parent: std::process::id(),
            layers: *enforced(),
            network: script.network && self.policy.network,
            memory_bytes: self.policy.memory_bytes,
            processes: self.policy.processes,
            file_bytes: self.policy.file_bytes,
            private_tmp: self.policy.private_tmp.clone(),
            work: self.work.clone(),
            home: self.home.clone(),
            tmp: self.tmp.clone(),
            work_inside: self.work_inside(),
            home_inside: self.inside(&self.home),
            hidden: std::env::home_dir()
                .map(|home| walls::credentials(&home, &[&self.work, &self.home]))
                .unwrap_or_default(),
        }
    }

    fn inside(&self, path: &Path) -> PathBuf {
        match self.policy.private_tmp.as_ref().and_then(|tmp| path.strip_prefix(tmp).ok()) {
            Some(rest) if rest.as_os_str().is_empty() => PathBuf::from("/tmp"),
            Some(rest) => Path::new("/tmp").join(rest),
            None => path.to_owned(),
        }
    }
}

/// Turns this process into the sandbox's launcher if it was started as that, and then never returns. Must be the
/// first call in `main` of a program that uses [`Isolation::Auto`].
pub fn enter() {
    #[cfg(target_os = "linux")]
    launcher::enter();
    enforced::set_launcher();
}

fn kill(child: &mut Child) {
    kill_group(child.id());
    // An error means that it has ended already.
    drop(child.kill());
    drop(child.wait());
}

#[cfg(unix)]
fn kill_group(leader: u32) {
    use nix::sys::signal::{Signal, killpg};
    if let Ok(leader) = i32::try_from(leader) {
        // An error means that the group is gone.
        let _ = killpg(nix::unistd::Pid::from_raw(leader), Signal::SIGKILL);
    }
}

#[cfg(not(unix))]
fn kill_group(_leader: u32) {}

#[cfg(unix)]
fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

#[cfg(not(unix))]
fn exit_code(status: std::process::ExitStatus) -> i32 {
    status.code().unwrap_or(-1)
}

#[cfg(test)]
mod tests;
