//! Runs programs in a work directory, isolated as well as the machine allows.
//!
//! This module owns processes: how they start, what they may access, how long they live and how
//! much they may print.
//! It must not know jinxes, models or conversations.
//!
//! On Linux, a *launcher* sets up the isolation: the binary starts itself again with a hidden first
//! argument.
//! It enters new namespaces, and restricts itself with Landlock, seccomp and resource limits.
//! Then it starts the program and watches it from outside.
//! This needs no code between fork and exec, so no `unsafe`; the price is that [`enter`] must be
//! the first call in `main`.
//! Elsewhere, and with [`Isolation::Off`], the program runs in a plain process group.

pub mod attack;
mod capture;
mod change;
mod contract;
pub mod cut;
#[cfg(target_os = "linux")]
mod disk;
mod environment;
mod error;
pub mod git;
mod guard;
mod isolation;
mod job;
#[cfg(target_os = "linux")]
mod layer;
mod presence;
mod proposal;
pub mod scratch;
mod service;
#[cfg(target_os = "linux")]
mod supervise;
#[cfg(target_os = "linux")]
mod syscalls;
pub mod undo;
#[cfg(target_os = "linux")]
mod usage;
#[cfg(target_os = "linux")]
mod view;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use capture::Capture;
pub use change::{Change, Kind, losses, phrases};
pub use contract::{Isolation, Output, Policy, Script};
pub use environment::{below, homes, normalized, resolved};
pub use error::Error;
pub use guard::{Guarded, Guarding, Risk};
pub use isolation::enforced::{Enforced, enforced, launcher};
#[cfg(target_os = "linux")]
use isolation::{launcher, loopback};
pub use job::{Ended, Job};
pub use presence::{Obeying, obeying};
pub use proposal::{Proposal, ProposedFile, overwritten};
pub use service::{Pipes, Service};

use crate::scratch::Scratch;
use crate::undo::Journal;

/// Most bytes of one argument or one environment variable that Linux passes to a program
/// (`MAX_ARG_STRLEN`), with some space for the variable's name.
pub const ARGUMENT_BYTES: usize = 128 * 1024 - 256;

/// How often a running program is checked: whether it was cancelled, or prints too much.
const LOOK: Duration = Duration::from_millis(20);
/// How long the launcher may take to end everything before it is killed itself.
const END: Duration = Duration::from_secs(3);

/// A work directory and a policy.
#[derive(Debug)]
pub struct Sandbox {
    work: PathBuf,
    home: PathBuf,
    tmp: PathBuf,
    /// `HOME` and `TMPDIR` of programs with more rights than others, if these are separate.
    apart: Option<PathBuf>,
    policy: Policy,
    cancel: Arc<AtomicBool>,
    guard: Option<guard::Guard>,
    journal: Option<Journal>,
    /// How many changes of programs were made so far.
    changes: AtomicUsize,
    #[cfg(target_os = "linux")]
    view: view::View,
    /// The network that programs share once one of them is a job.
    #[cfg(target_os = "linux")]
    loopback: std::sync::OnceLock<loopback::Loopback>,
    /// Keeps the temporary home for as long as the sandbox lives.
    _scratch: Option<Scratch>,
}

impl Sandbox {
    /// A sandbox whose programs start in `work`.
    ///
    /// # Errors
    /// A directory is missing, or this machine can't enforce a private `/tmp`.
    pub fn new(work: &Path, policy: Policy) -> Result<Self, Error> {
        let directory = |path: &Path, what| {
            let found = path.canonicalize().and_then(|path| match path.is_dir() {
                // Traces and launchers get the path as JSON.
                true if path.to_str().is_none() => {
                    Err(std::io::Error::other("its path is no UTF-8 text; rename it, or take another"))
                }
                true => path.read_dir().map(|_| path),
                false => Err(std::io::ErrorKind::NotADirectory.into()),
            });
            found.map_err(|source| Error::Directory { what, path: path.to_owned(), source })
        };
        let mut policy = policy;
        let work = directory(work, "work directory")?;
        if policy.isolation == Isolation::Auto && launcher().is_none() {
            return Err(Error::NoLauncher);
        }
        if let Some(tmp) = &mut policy.private_tmp {
            *tmp = directory(tmp, "private /tmp")?;
            if policy.isolation == Isolation::Off || !enforced().mounts {
                return Err(Error::PrivateTmp { enforced: enforced().to_string() });
            }
        }
        let (mut scratch, mut apart) = (None, None);
        let (home, tmp) = match (&policy.home, &policy.private_tmp) {
            (Some(home), Some(_)) => (directory(home, "home directory")?, PathBuf::from("/tmp")),
            (Some(home), None) => {
                let home = directory(home, "home directory")?;
                (home.clone(), home)
            }
            (None, Some(_)) => (PathBuf::from("/tmp"), PathBuf::from("/tmp")),
            (None, None) => {
                let made = Scratch::claim(&std::env::temp_dir())?;
                let folder = |name: &str| {
                    let path = made.path().join(name);
                    let error =
                        |source| Error::Directory { what: "home directory", path: path.clone(), source };
                    std::fs::create_dir(&path).map_err(error)?;
                    Ok(path)
                };
                let (path, other) = (folder("home")?, folder("apart")?);
                apart = Some(other);
                scratch = Some(made);
                (path.clone(), path)
            }
        };
        // The file may be created later.
        let real = |path: &PathBuf| {
            let beside = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
            path.canonicalize().ok().or_else(beside)
        };
        let protected = policy.protected.iter().filter_map(real);
        policy.protected =
            protected.filter(|path| !work.starts_with(path) && !home.starts_with(path)).collect();
        let git = presence::Asked::about(&work);
        let mut sandbox = Sandbox {
            #[cfg(target_os = "linux")]
            view: view::view(&[&work, &home], &policy.readable),
            #[cfg(target_os = "linux")]
            loopback: std::sync::OnceLock::new(),
            work,
            home,
            tmp,
            apart,
            policy,
            cancel: Arc::default(),
            guard: None,
            journal: None,
            changes: AtomicUsize::default(),
            _scratch: scratch,
        };
        let checkout = sandbox.launched().then(|| git.checkout()).flatten();
        sandbox.guard = guard::Guard::of(&sandbox, git, checkout.as_ref())?;
        #[cfg(target_os = "linux")]
        if let Some(checkout) = checkout {
            // Without a layer, a step of an earlier session may have written to places that git
            // reads.
            let trusting = sandbox.guard.as_ref().is_some_and(guard::Guard::has_layers);
            let readable = &mut sandbox.policy.readable;
            readable.extend(checkout.elsewhere(trusting));
            sandbox.view = view::view(&[&sandbox.work, &sandbox.home], readable);
        }
        Ok(sandbox)
    }

    /// Sets a flag `cancel` that ends the running program and every later one.
    #[must_use]
    pub fn with_cancel(mut self, cancel: Arc<AtomicBool>) -> Self {
        self.cancel = cancel;
        self
    }

    /// The journal of changes, if there is one.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Records the changes of [guarded](Self::run_guarded) programs in `journal`, so that they can
    /// be undone.
    #[must_use]
    pub fn with_journal(mut self, journal: Journal) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Why changes can't be recorded; returned once.
    pub fn journal_problem(&self) -> Option<String> {
        self.journal.as_ref()?.problem()
    }

    /// The flag that ends the running program.
    pub fn cancel_flag(&self) -> &Arc<AtomicBool> {
        &self.cancel
    }

    /// The work directory on the host, canonical.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// The work directory as programs see it: below `/tmp` if it is in the private `/tmp`.
    pub fn work_inside(&self) -> PathBuf {
        self.inside(&self.work)
    }

    /// The layers that apply to the programs of this sandbox.
    pub fn enforced(&self) -> Enforced {
        match self.policy.isolation {
            Isolation::Auto => *enforced(),
            Isolation::Off => Enforced::default(),
        }
    }

    /// How its programs are isolated.
    pub fn isolation(&self) -> Isolation {
        self.policy.isolation
    }

    /// Whether programs can't change anything in the work directory.
    pub fn is_read_only(&self) -> bool {
        let enforced = self.enforced();
        self.policy.read_only && self.launched() && (enforced.mounts || enforced.landlock > 0)
    }

    /// Runs a program until it ends or reaches a limit.
    /// A program that fails is not an error.
    /// Several threads may call this at once; each program is isolated on its own, and shares the
    /// work directory with the others.
    ///
    /// # Errors
    /// The program can't be started or isolated.
    pub fn run(&self, script: &Script) -> Result<Output, Error> {
        let _turn = self.guard.as_ref().map(guard::Guard::shared);
        self.run_over(script, Over::Nothing, false)
    }

    /// As [`run`](Self::run), but the cancel flag doesn't end it: for cleanup work, with a short
    /// limit.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn finish(&self, script: &Script) -> Result<Output, Error> {
        let _turn = self.guard.as_ref().map(guard::Guard::shared);
        self.run_over(script, Over::Nothing, true)
    }

    fn run_over(&self, script: &Script, over: Over, finishing: bool) -> Result<Output, Error> {
        let never = AtomicBool::new(false);
        self.run_until(self.spawn_over(script, over)?, script, if finishing { &never } else { &self.cancel })
    }

    /// Waits for the `child` that runs `script`.
    /// This thread must have started it: the launcher dies with the thread that started it.
    fn run_until(&self, mut child: Child, script: &Script, cancel: &AtomicBool) -> Result<Output, Error> {
        let stdin = child.stdin.take().zip(script.stdin.map(<[u8]>::to_vec));
        if let Some((mut pipe, bytes)) = stdin {
            // A program that doesn't read its input is not an error, so neither is the broken pipe.
            std::thread::spawn(move || drop(pipe.write_all(&bytes)));
        }
        let stdout = Capture::start(child.stdout.take(), script.output_limit);
        let stderr = Capture::start(child.stderr.take(), script.output_limit);
        let id = child.id();
        let ended = wait(child);
        let mut output = Output::default();
        let begun = Instant::now();
        let status = loop {
            match ended.recv_timeout(LOOK.min(script.timeout.saturating_sub(begun.elapsed()))) {
                Ok(status) => break Some(status.map_err(|source| Error::Wait { source })?),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            output.timed_out = begun.elapsed() >= script.timeout;
            output.cancelled = cancel.load(Ordering::Relaxed);
            if stdout.seen() + stderr.seen() > self.policy.output_bytes {
                let most = contract::bytes(self.policy.output_bytes);
                output.killed = Some(format!("killed: more than {most} of output"));
            }
            if output.timed_out || output.cancelled || output.killed.is_some() {
                end(id, self.launched(), &ended);
                break None;
            }
        };
        #[cfg(target_os = "linux")]
        if status.is_some() && !self.launched() {
            output.left = supervise::left_of_group(id);
        }
        // Kill what the program left running in its group too; in namespaces it is already gone.
        kill_group(id);
        #[cfg(target_os = "linux")]
        if let Some(limit) = status.and_then(|status| self.broken(status)) {
            output.killed = Some(self.limits().broken(limit));
        }
        output.exit = status.filter(|_| output.killed.is_none()).map(exit_code);
        (output.stdout, output.stdout_dropped) = stdout.finish();
        (output.stderr, output.stderr_dropped) = stderr.finish();
        #[cfg(target_os = "linux")]
        if self.launched() {
            output.left = launcher::left(&mut output.stderr);
        }
        #[cfg(target_os = "linux")]
        if let Some(message) = launcher::failure(&output) {
            return Err(Error::Launcher { message });
        }
        Ok(output)
    }

    /// Starts a program that runs in parallel with others; the caller that talks to it enforces the
    /// script's time and output limits.
    ///
    /// # Errors
    /// The program can't be started.
    pub fn serve(&self, script: &Script) -> Result<(Service, Pipes), Error> {
        let program = script.program.first().copied().unwrap_or_default().to_owned();
        let over = if self.policy.guard { Over::Fixed } else { Over::Nothing };
        Service::start(self.command(script, over, false), self.launched())
            .map_err(|source| Error::Spawn { program, source })
    }

    /// Whether the launcher starts programs.
    fn launched(&self) -> bool {
        cfg!(target_os = "linux") && self.policy.isolation == Isolation::Auto
    }

    #[cfg(target_os = "linux")]
    fn broken(&self, status: ExitStatus) -> Option<supervise::Limit> {
        // The launcher itself; the program's end is its exit status.
        self.launched().then(|| supervise::Limit::of(status))?
    }

    #[cfg(target_os = "linux")]
    fn limits(&self) -> supervise::Limits {
        let Policy { processes, memory_bytes, cpu, written_bytes, .. } = self.policy;
        supervise::Limits { processes, memory_bytes, cpu, written_bytes }
    }

    fn spawn_over(&self, script: &Script, over: Over) -> Result<Child, Error> {
        let name = script.program.first().copied().unwrap_or_default();
        let stdin = if script.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut command = self.command(script, over, false);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|source| Error::Spawn { program: name.to_owned(), source })
    }

    /// The command that runs a script, in the background or not.
    fn command(&self, script: &Script, over: Over, background: bool) -> Command {
        let layered = matches!(over, Over::Layer(..));
        let (home, tmp) = self.places(script);
        let mut path = environment::path();
        if self.has_rights(script) {
            let writable = [self.work.as_path(), &self.home, &self.tmp];
            path = environment::fixed(&path, &writable, &self.policy.protected);
        }
        let kept: [(&str, OsString); 4] = [
            ("PATH", path),
            ("LANG", environment::language()),
            ("HOME", self.inside(home).into()),
            ("TMPDIR", tmp.into()),
        ];
        // The later of two variables with the same name wins.
        let given = script.env.iter().map(|(key, value)| (key.as_str(), OsStr::new(value)));
        let quiet = guard::QUIET.into_iter().filter(|_| layered);
        let quiet = quiet.map(|(key, value)| (key, OsStr::new(value)));
        let env = quiet.chain(given).chain(kept.iter().map(|(key, value)| (*key, value.as_os_str())));
        match self.policy.isolation {
            #[cfg(target_os = "linux")]
            Isolation::Auto => launcher::command(self.plan(script, over, background), script.program, env),
            _ => {
                debug_assert!(!layered, "there are no layers without the launcher");
                let mut command = Command::new(script.program.first().copied().unwrap_or_default());
                let arguments = &script.program[script.program.len().min(1)..];
                command.args(arguments).current_dir(&self.work).env_clear().envs(env);
                #[cfg(unix)]
                std::os::unix::process::CommandExt::process_group(&mut command, 0);
                command
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn plan(&self, script: &Script, over: Over, background: bool) -> launcher::Plan {
        let fixed = if over == Over::Fixed { presence::existing(&self.work) } else { Vec::new() };
        let read_only = self.policy.read_only.then_some(&self.work);
        let (home, tmp) = self.places(script);
        // Others could write there too, if the temporary directory is in the work directory.
        let apart = self.apart.iter().filter(|apart| *apart != home);
        let protected = self.policy.protected.iter().chain(&fixed).chain(read_only).chain(apart);
        launcher::Plan {
            parent: std::process::id(),
            layers: *enforced(),
            network: self.has_network(script),
            loopback: self
                .loopback
                .get()
                .filter(|_| !self.has_network(script))
                .map(loopback::Loopback::paths),
            background,
            limits: self.limits(),
            file_bytes: self.policy.file_bytes,
            private_tmp: self.policy.private_tmp.clone(),
            work: self.work.clone(),
            home: home.to_owned(),
            tmp: tmp.to_owned(),
            work_inside: self.work_inside(),
            home_inside: self.inside(home),
            view: self.view.clone(),
            protected: protected.map(|path| self.inside(path)).collect(),
            over: over.layers(&self.work),
            beat: self.journal.as_ref().map(Journal::beat),
        }
    }

    fn has_network(&self, script: &Script) -> bool {
        script.network && self.policy.network
    }

    /// Whether a program has more rights than those that can write the files around it.
    fn has_rights(&self, script: &Script) -> bool {
        script.keys || self.has_network(script)
    }

    /// `HOME` on the host, and `TMPDIR`.
    fn places(&self, script: &Script) -> (&Path, &Path) {
        match &self.apart {
            Some(apart) if self.has_rights(script) => (apart, apart),
            _ => (&self.home, &self.tmp),
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

/// How a program sees the work directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over<'a> {
    /// Directly.
    Nothing,
    /// Directly, but existing files that the user's tools obey are read-only.
    Fixed,
    /// With writes to the work directory going to this folder, and writes to its git folder to the
    /// second one, if given.
    Layer(&'a Path, Option<&'a Path>),
}

#[cfg(target_os = "linux")]
impl Over<'_> {
    fn layers(self, work: &Path) -> Vec<launcher::Layer> {
        let Over::Layer(folder, store) = self else { return Vec::new() };
        let layer = |covered: &Path, folder: &Path| launcher::Layer {
            covered: covered.to_owned(),
            upper: folder.join("upper"),
            work: folder.join("work"),
        };
        let store = store.map(|store| layer(store, &folder.join(guard::STORE)));
        std::iter::once(layer(work, folder)).chain(store).collect()
    }
}

/// Turns this process into the sandbox's launcher, if it was started as one; then it never returns.
/// Must be the first call in `main` of a program that uses [`Isolation::Auto`].
pub fn enter() {
    #[cfg(target_os = "linux")]
    {
        launcher::enter();
        isolation::enforced::set_launcher(launcher::OWN.into());
    }
    #[cfg(not(target_os = "linux"))]
    isolation::enforced::set_launcher(PathBuf::new());
}

/// Makes another program the launcher, one whose `main` begins with [`enter`].
/// For a program whose own `main` can't be changed, such as a test or the host of a library.
/// Has no effect after a call of either function.
pub fn launch_with(program: &Path) {
    isolation::enforced::set_launcher(program.to_owned());
}

/// Waits on a separate thread; a channel permits a timeout.
fn wait(mut child: Child) -> Receiver<std::io::Result<ExitStatus>> {
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        // The receiver is gone if the process couldn't be killed in time.
        let _ = sender.send(child.wait());
    });
    ended
}

/// Kills a program with all that it started.
fn end(id: u32, launched: bool, ended: &Receiver<std::io::Result<ExitStatus>>) {
    // Only the launcher ends its descendants too.
    if launched {
        ask_to_end(id);
        if ended.recv_timeout(END).is_ok() {
            return;
        }
    }
    kill_group(id);
    // An error means that even the kernel can't end it now: it waits for a device.
    let _ = ended.recv_timeout(END);
}

#[cfg(unix)]
fn signal(process: u32, signal: nix::sys::signal::Signal, group: bool) {
    let Ok(number) = i32::try_from(process) else { return };
    let process = nix::unistd::Pid::from_raw(if group { -number } else { number });
    // An error means that it is gone.
    let _ = nix::sys::signal::kill(process, signal);
}

#[cfg(unix)]
fn ask_to_end(launcher: u32) {
    signal(launcher, nix::sys::signal::Signal::SIGTERM, false);
}

#[cfg(unix)]
fn kill_group(leader: u32) {
    signal(leader, nix::sys::signal::Signal::SIGKILL, true);
}

#[cfg(not(unix))]
fn ask_to_end(_launcher: u32) {}

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
