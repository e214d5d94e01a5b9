//! The launcher: alara's own binary, started again to set up the isolation and start the program.
//!
//! ```text
//! alara ─ outer: new session, namespaces, mounts, then the watch
//!           └─ inner: process 1 of its namespace, /proc, limits, Landlock, seccomp ─ program
//! ```
//! Each asks the kernel to kill it when its parent dies, and the end of process 1 ends its whole
//! namespace.
//! So nothing survives the death of `alara`, whatever its cause.
//! Without a process namespace, `inner` becomes the program, and `outer` adopts and kills the
//! processes that it leaves behind.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill, killpg, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getppid, setsid};
use serde::{Deserialize, Serialize};

use super::{Enforced, enforced, mounts, walls};
use crate::disk::Disk;
use crate::supervise::{self, Limit, Limits, Scope};
use crate::syscalls::Sockets;
use crate::undo;
use crate::view::View;
use crate::{Output, syscalls};

/// The hidden first argument.
const ARGUMENT: &str = "__sandbox";
/// The prefix of the launcher's own messages on stderr, which come with its exit status.
const MARK: &str = "\0alara sandbox: ";
/// The prefix on stderr before the command lines of processes that outlived the program, one per
/// line, ended by a NUL.
const LEFT: &str = "\0alara left: ";
/// The path of the running program, which stays valid if its file is replaced.
pub const OWN: &str = "/proc/self/exe";
const FAILED: i32 = 125;
const NOT_FOUND: i32 = 127;
/// Asks the launcher of a job to let the job exit.
pub const LEAVE: Signal = Signal::SIGHUP;
/// Asks the launcher of a job to look at the work directory again: it is below the job's layer, and
/// was changed.
/// By default a process ignores this signal, so it is harmless before the launcher listens.
pub const REFRESH: Signal = Signal::SIGURG;
/// The prefix of the program's variables until it starts: under their own names, some would affect
/// the launcher, as `LD_PRELOAD` does.
const PASSED: &str = "ALARA_PASSED_";

/// The launcher's task; all paths are absolute.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The process whose death ends the launcher.
    pub parent: u32,
    pub layers: Enforced,
    pub network: bool,
    /// The user and network namespaces to enter instead of new ones, as files of `/proc`.
    pub loopback: Option<[PathBuf; 2]>,
    /// Whether it is a job, which runs in parallel with others.
    pub background: bool,
    pub limits: Limits,
    pub file_bytes: u64,
    pub private_tmp: Option<PathBuf>,
    /// Host paths that must stay visible and writable.
    pub work: PathBuf,
    pub home: PathBuf,
    pub tmp: PathBuf,
    /// The work directory as the program sees it.
    pub work_inside: PathBuf,
    pub home_inside: PathBuf,
    pub view: View,
    /// Paths that are read-only everywhere, as the program sees them.
    pub protected: Vec<PathBuf>,
    /// The layers that receive writes to the work directory, and to its git folder.
    /// Empty if there is no layer.
    pub over: Vec<Layer>,
    /// The file that is [held](undo::hold) until the program and all its children are gone.
    pub beat: Option<PathBuf>,
}

impl Plan {
    /// Whether there is a network, even an isolated one.
    pub fn has_sockets(&self) -> bool {
        self.sockets() != Sockets::None
    }

    fn sockets(&self) -> Sockets {
        match (self.network, &self.loopback) {
            (true, _) => Sockets::All,
            (false, Some(_)) => Sockets::Own,
            (false, None) => Sockets::None,
        }
    }
}

/// The parameters of an overlayfs mount.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Layer {
    /// The directory that it covers.
    pub covered: PathBuf,
    pub upper: PathBuf,
    pub work: PathBuf,
}

#[derive(Serialize, Deserialize)]
enum Stage {
    Outer(Plan),
    Inner(Plan),
    Loopback,
    ProbeOuter,
    ProbeInner(Enforced),
}

/// The command that runs `program` isolated by `plan`, with only `env` in its environment.
pub fn command<'a>(plan: Plan, program: &[&str], env: impl Iterator<Item = (&'a str, &'a OsStr)>) -> Command {
    let mut command = again(enforced::launcher(), &Stage::Outer(plan));
    command.args(program).env_clear().envs(env.map(|(name, value)| (format!("{PASSED}{name}"), value)));
    command
}

/// The command that makes the namespaces of a [`Loopback`](super::loopback::Loopback).
/// It writes a line when they exist, and keeps them until its input ends.
pub fn loopback() -> Command {
    let mut command = again(enforced::launcher(), &Stage::Loopback);
    command.env_clear();
    command
}

/// The variables that were given to [`command`].
fn passed() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.as_bytes().strip_prefix(PASSED.as_bytes())?;
        Some((OsStr::from_bytes(name).to_owned(), value))
    })
}

/// The message of a launcher that couldn't set up the isolation, if that happened.
pub fn failure(output: &Output) -> Option<String> {
    complaint(output.exit, &output.stderr).filter(|_| output.stdout.is_empty())
}

/// As [`failure`], from the exit status and stderr.
pub fn complaint(exit: Option<i32>, stderr: &[u8]) -> Option<String> {
    let message = stderr.strip_prefix(MARK.as_bytes())?;
    (exit == Some(FAILED)).then(|| String::from_utf8_lossy(message).trim_end().to_owned())
}

/// Removes the launcher's list of processes that outlived the program from stderr, and returns it.
/// A program that forges it only misreports itself.
pub fn left(stderr: &mut Vec<u8>) -> Vec<String> {
    let mark = LEFT.as_bytes();
    let Some(at) = stderr.windows(mark.len()).rposition(|window| window == mark) else { return Vec::new() };
    let begin = at + mark.len();
    let Some(length) = stderr[begin..].iter().position(|byte| *byte == 0) else { return Vec::new() };
    let lines = String::from_utf8_lossy(&stderr[begin..begin + length]).lines().map(str::to_owned).collect();
    stderr.drain(at..=begin + length);
    lines
}

/// Reports to the parent which processes are about to be killed because their program is over.
fn tell_left() {
    let left = supervise::left();
    if !left.is_empty() {
        // The parent may no longer be reading.
        let _ = write!(std::io::stderr(), "{LEFT}{}\0", left.join("\n"));
    }
}

/// Tries every layer in a separate process.
pub fn probe() -> Enforced {
    let output = again(enforced::launcher(), &Stage::ProbeOuter).env_clear().stdin(Stdio::null()).output();
    output.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok()).unwrap_or_default()
}

/// See [`crate::enter`].
pub fn enter() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != ARGUMENT) {
        return;
    }
    let stage = arguments.next().and_then(|stage| serde_json::from_str(stage.to_str()?).ok());
    let program: Vec<OsString> = arguments.collect();
    match stage {
        Some(Stage::Outer(plan)) => outer(plan, &program),
        Some(Stage::Inner(plan)) => inner(&plan, &program),
        Some(Stage::Loopback) => hold_loopback(),
        Some(Stage::ProbeOuter) => probe_outer(),
        Some(Stage::ProbeInner(found)) => probe_inner(found),
        None => fail("bad arguments", "this is not meant to be called by hand"),
    }
}

/// The command for a launcher that performs `stage`.
/// Without a path, it is the running binary, since its file may have been replaced or hidden.
fn again(launcher: Option<&Path>, stage: &Stage) -> Command {
    let mut command = Command::new(launcher.unwrap_or(Path::new(OWN)));
    command.arg(ARGUMENT).arg(serde_json::to_string(stage).unwrap_or_default());
    command
}

fn outer(mut plan: Plan, program: &[OsString]) -> ! {
    // Detaches from the terminal.
    // Fails only for the leader of a process group, for which it isn't needed.
    let _ = setsid();
    die_with(plan.parent);
    let beat = plan.beat.take().and_then(|beat| undo::hold(&beat));
    walls::unshare(&plan).unwrap_or_else(|error| fail("namespaces", error));
    // The change of credentials may have made the kernel drop the request.
    die_with(plan.parent);
    if plan.layers.mounts {
        mounts::mount(&plan).unwrap_or_else(|(what, error)| fail(&what, error));
    }
    let namespace = plan.layers.processes;
    if !namespace {
        // Orphaned processes become children of this process.
        let _ = prctl::set_child_subreaper(true);
    }
    // The threads start before the process namespace is entered, since they couldn't be started in
    // it.
    let program_runs: Arc<OnceLock<Pid>> = Arc::default();
    let broken = Arc::new(Mutex::new(None));
    let end = {
        let runs = program_runs.clone();
        move || match runs.get() {
            // The end of process 1 ends the others.
            // An error means that it has already ended.
            Some(inner) if namespace => drop(kill(*inner, Signal::SIGKILL)),
            Some(inner) => supervise::kill_descendants(*inner),
            None => exit(FAILED),
        }
    };
    let request: SigSet = [Signal::SIGTERM, LEAVE, REFRESH].into_iter().collect();
    let _ = request.thread_block();
    let (requests, runs, ended) = (request, program_runs.clone(), end.clone());
    let covered: Vec<PathBuf> = plan.over.iter().map(|layer| layer.covered.clone()).collect();
    std::thread::spawn(move || {
        while let Ok(asked) = requests.wait() {
            match (asked, runs.get()) {
                (REFRESH, _) => covered.iter().for_each(|path| mounts::refresh(path)),
                // Process 1 passes it on.
                (LEAVE, Some(inner)) if namespace => drop(kill(*inner, Signal::SIGTERM)),
                (LEAVE, Some(inner)) => drop(killpg(*inner, Signal::SIGTERM)),
                _ => return ended(),
            }
        }
    });
    if plan.layers.supervised {
        let (limits, scope) = (plan.limits.clone(), Scope::new(plan.layers.proc));
        let own = [&plan.work_inside, &plan.home_inside, &plan.tmp];
        let covered = plan.over.iter().map(|layer| &layer.covered).filter(|path| **path != plan.work_inside);
        let written: Vec<&Path> = own.into_iter().chain(covered).map(PathBuf::as_path).collect();
        let disk = Disk::of(&written);
        let (most, told, over) = (limits.written_bytes, broken.clone(), end.clone());
        std::thread::spawn(move || {
            disk.watch(
                most,
                || scope.members(),
                || {
                    *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(Limit::Written);
                    over();
                },
            );
        });
        let (group, broken) = (program_runs.clone(), broken.clone());
        std::thread::spawn(move || supervise::watch(scope, &limits, &group, &broken, end));
    }
    if namespace {
        walls::unshare_processes().unwrap_or_else(|error| fail("process namespace", error));
    }
    plan.parent = std::process::id();
    // The program would inherit the blocked signal.
    // Until it runs, the signal may end this process.
    let _ = request.thread_unblock();
    let child = again(None, &Stage::Inner(plan)).args(program).spawn();
    let _ = request.thread_block();
    // From now on, the parent's death ends the descendants first, and this process after them.
    let _ = prctl::set_pdeathsig(Signal::SIGTERM);
    let inner =
        child.map(|child| Pid::from_raw(child.id() as i32)).unwrap_or_else(|error| fail("process 1", error));
    let _ = program_runs.set(inner);
    let status = status_of(inner);
    if !namespace {
        tell_left();
        supervise::kill_descendants(inner);
    }
    beat.iter().for_each(undo::touch);
    let broken = *broken.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(limit) = broken {
        let _ = raise(limit.signal());
    }
    exit(status)
}

fn inner(plan: &Plan, program: &[OsString]) -> ! {
    // A group that can be killed at once, and a session whose CPU share is counted separately from
    // the watch's.
    let _ = setsid();
    if plan.layers.processes {
        die_with_outer(plan.parent);
    } else {
        die_with(plan.parent);
    }
    let own_terminals = plan.layers.mounts && mounts::mount_terminals();
    if plan.layers.proc {
        mounts::mount_proc().unwrap_or_else(|error| fail("/proc", error));
        walls::bound_numbers(plan);
    }
    std::env::set_current_dir(&plan.work_inside).unwrap_or_else(|error| fail("the work directory", error));
    if plan.layers.user {
        // Not counted against the machine's limits on namespaces: Landlock forbids mounts anyway.
        let _ = walls::drop_capabilities();
        let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    }
    walls::limit(plan).unwrap_or_else(|error| fail("resource limits", error));
    prctl::set_no_new_privs().unwrap_or_else(|error| fail("no_new_privs", error));
    if plan.layers.landlock > 0 {
        walls::landlock(plan, own_terminals).unwrap_or_else(|error| fail("Landlock", error));
    }
    if plan.layers.seccomp {
        syscalls::refuse(plan.sockets(), !plan.over.is_empty())
            .unwrap_or_else(|error| fail("the system call filter", error));
    }
    let Some((name, arguments)) = program.split_first() else { fail("bad arguments", "no program") };
    let mut command = Command::new(name);
    command.args(arguments).env_clear().envs(passed());
    if !plan.layers.processes {
        not_found(name, &command.exec());
    }
    // Process 1 holds nothing that the program should read.
    let _ = prctl::set_dumpable(false);
    let child = command.spawn().unwrap_or_else(|error| not_found(name, &error));
    if plan.background {
        pass_on_the_end();
    }
    let status = status_of(Pid::from_raw(child.id() as i32));
    // A `/proc` of another namespace has different ids.
    if plan.layers.proc {
        tell_left();
    }
    exit(status)
}

/// Passes a request to exit on to everything in the namespace.
/// Only process 1 can signal all of them, and it gets only those signals that it waits for.
fn pass_on_the_end() {
    let request = SigSet::from(Signal::SIGTERM);
    let _ = request.thread_block();
    std::thread::spawn(move || {
        while request.wait().is_ok() {
            let _ = kill(Pid::from_raw(-1), Signal::SIGTERM);
        }
    });
}

#[expect(clippy::print_stdout, reason = "the parent waits for it")]
fn hold_loopback() -> ! {
    walls::make_loopback().unwrap_or_else(|(what, error)| fail(what, error));
    println!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    exit(0)
}

/// Waits for every child until this one has ended; returns its exit status, or 128 + the signal's
/// number.
fn status_of(child: Pid) -> i32 {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => return code,
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => return 128 + signal as i32,
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => fail("waiting", error),
        }
    }
}

/// Asks to be killed when the parent dies, and exits at once if it is dead already.
fn die_with(parent: u32) {
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    if getppid().as_raw() as u32 != parent {
        exit(FAILED);
    }
}

/// As [`die_with`], for process 1, which can see its parent's id only in the outer `/proc`.
fn die_with_outer(parent: u32) {
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let mut stat = String::new();
    let read = std::fs::File::open("/proc/self/stat").and_then(|mut file| file.read_to_string(&mut stat));
    // The format: "pid (name) state ppid …".
    let found =
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)).and_then(|id| id.parse().ok());
    if read.is_ok() && found.is_some_and(|found: u32| found != parent) {
        exit(FAILED);
    }
}

fn probe_outer() -> ! {
    let mut found = walls::probe_namespaces();
    let inner = again(None, &Stage::ProbeInner(found)).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let inner = inner.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok());
    // A machine may permit a new process namespace, but no process in it.
    found.processes &= inner.is_some();
    report(&inner.unwrap_or(found))
}

fn probe_inner(mut found: Enforced) -> ! {
    found.proc = found.mounts && found.processes && mounts::mount_proc().is_ok();
    found.limits = walls::limit_core().is_ok();
    found.supervised = supervise::works();
    found.landlock = walls::landlock_version();
    found.seccomp = syscalls::refuse(Sockets::None, false).is_ok();
    report(&found)
}

#[expect(clippy::print_stdout, reason = "the probe answers its parent on stdout")]
fn report(found: &Enforced) -> ! {
    print!("{}", serde_json::to_string(found).unwrap_or_default());
    exit(0)
}

#[expect(clippy::print_stderr, reason = "the launcher has no other way to tell its parent")]
fn fail(what: &str, error: impl std::fmt::Display) -> ! {
    eprint!("{MARK}{what}: {error}");
    exit(FAILED)
}

#[expect(clippy::print_stderr, reason = "said in the program's place, as a shell does")]
fn not_found(name: &std::ffi::OsStr, error: &std::io::Error) -> ! {
    eprintln!("cannot run {}: {error}", name.display());
    exit(NOT_FOUND)
}
