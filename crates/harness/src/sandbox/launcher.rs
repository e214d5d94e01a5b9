//! The launcher: the own binary, started again, that puts up the walls and starts the program.
//!
//! ```text
//! alara ─ outer: new session, namespaces, mounts ─ inner: process 1 of its namespace, /proc, limits, Landlock ─ program
//! ```
//! Each asks the kernel to kill it when its parent dies, and the end of process 1 ends its whole namespace, so nothing
//! survives the death of `alara`, however it comes. Where there is no process namespace, `outer` becomes the program.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio, exit};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{getppid, setsid};
use serde::{Deserialize, Serialize};

use super::{Enforced, Output, walls};

/// The hidden first argument.
const ARGUMENT: &str = "__sandbox";
/// What a message of the launcher itself begins with on stderr, together with the exit status.
const MARK: &str = "\0alara sandbox: ";
const FAILED: i32 = 125;
const NOT_FOUND: i32 = 127;

/// What the launcher has to do, all paths absolute.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The process that must stay alive.
    pub parent: u32,
    pub layers: Enforced,
    pub network: bool,
    pub memory_bytes: u64,
    pub processes: u64,
    pub file_bytes: u64,
    pub private_tmp: Option<PathBuf>,
    /// Host paths that must stay visible and writable.
    pub work: PathBuf,
    pub home: PathBuf,
    pub tmp: PathBuf,
    /// The same as the program sees them.
    pub work_inside: PathBuf,
    pub home_inside: PathBuf,
    /// Files and directories with credentials.
    pub hidden: Vec<PathBuf>,
}

#[derive(Serialize, Deserialize)]
enum Stage {
    Outer(Plan),
    Inner(Plan),
    ProbeOuter,
    ProbeInner(Enforced),
}

/// The command that runs `program` behind the walls of `plan`.
pub fn command(plan: Plan, program: &[&str]) -> Command {
    let mut command = again(&Stage::Outer(plan));
    command.args(program);
    command
}

/// The message of a launcher that could not put up a wall, if that is what happened.
pub fn failure(output: &Output) -> Option<String> {
    let message = output.stderr.strip_prefix(MARK.as_bytes())?;
    (output.exit == Some(FAILED) && output.stdout.is_empty())
        .then(|| String::from_utf8_lossy(message).trim_end().to_owned())
}

/// Tries every layer in a process of its own.
pub fn probe() -> Enforced {
    let output = again(&Stage::ProbeOuter).env_clear().stdin(Stdio::null()).output();
    output.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok()).unwrap_or_default()
}

/// See [`super::enter`].
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
        Some(Stage::ProbeOuter) => probe_outer(),
        Some(Stage::ProbeInner(found)) => probe_inner(found),
        None => fail("bad arguments", "this is not meant to be called by hand"),
    }
}

/// The own binary with `stage` to do. Not by its path, which may have been replaced or be hidden by now.
fn again(stage: &Stage) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(ARGUMENT).arg(serde_json::to_string(stage).unwrap_or_default());
    command
}

fn outer(mut plan: Plan, program: &[OsString]) -> ! {
    // Fails only for the leader of a process group, which is then as good.
    let _ = setsid();
    die_with(plan.parent);
    walls::unshare(&plan).unwrap_or_else(|error| fail("namespaces", error));
    // The change of credentials made the kernel forget the request.
    die_with(plan.parent);
    if plan.layers.mounts {
        walls::mount(&plan).unwrap_or_else(|(what, error)| fail(&what, error));
    }
    if !plan.layers.processes {
        inner(&plan, program);
    }
    plan.parent = std::process::id();
    let child = again(&Stage::Inner(plan)).args(program).spawn();
    let status = child.and_then(|mut child| child.wait()).unwrap_or_else(|error| fail("process 1", error));
    exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

#[expect(clippy::zombie_processes, reason = "process 1 waits for every child, its own and the orphans")]
fn inner(plan: &Plan, program: &[OsString]) -> ! {
    if plan.layers.processes {
        die_with_outer(plan.parent);
    }
    if plan.layers.proc {
        walls::mount_proc().unwrap_or_else(|error| fail("/proc", error));
    }
    std::env::set_current_dir(&plan.work_inside).unwrap_or_else(|error| fail("the work directory", error));
    if plan.layers.user {
        // Out of the way of the machine's limits on namespaces: Landlock forbids to mount anyway.
        let _ = walls::drop_capabilities();
    }
    walls::limit(plan).unwrap_or_else(|error| fail("resource limits", error));
    prctl::set_no_new_privs().unwrap_or_else(|error| fail("no_new_privs", error));
    if plan.layers.landlock > 0 {
        walls::landlock(plan).unwrap_or_else(|error| fail("Landlock", error));
    }
    let Some((name, arguments)) = program.split_first() else { fail("bad arguments", "no program") };
    let mut command = Command::new(name);
    command.args(arguments);
    if !plan.layers.processes {
        not_found(name, &command.exec());
    }
    // Process 1 has nothing that the program should read.
    let _ = prctl::set_dumpable(false);
    let child = command.spawn().unwrap_or_else(|error| not_found(name, &error));
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid.as_raw() as u32 == child.id() => exit(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() as u32 == child.id() => {
                exit(128 + signal as i32)
            }
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => fail("waiting", error),
        }
    }
}

/// Asks to be killed when the parent dies, and ends at once if it is dead already.
fn die_with(parent: u32) {
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    if getppid().as_raw() as u32 != parent {
        exit(FAILED);
    }
}

/// The same for process 1, to which its parent's number is hidden except in the outer `/proc`.
fn die_with_outer(parent: u32) {
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let mut stat = String::new();
    let read = std::fs::File::open("/proc/self/stat").and_then(|mut file| file.read_to_string(&mut stat));
    // "pid (name) state ppid …"
    let found =
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)).and_then(|id| id.parse().ok());
    if read.is_ok() && found.is_some_and(|found: u32| found != parent) {
        exit(FAILED);
    }
}

fn probe_outer() -> ! {
    let mut found = walls::probe_namespaces();
    let inner = again(&Stage::ProbeInner(found)).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let inner = inner.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok());
    // A machine may let us unshare process ids and then not start anything in there.
    found.processes &= inner.is_some();
    report(&inner.unwrap_or(found))
}

fn probe_inner(mut found: Enforced) -> ! {
    found.proc = found.mounts && found.processes && walls::mount_proc().is_ok();
    found.limits = walls::limit_core().is_ok();
    found.landlock = walls::landlock_version();
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
