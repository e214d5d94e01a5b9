//! The input and output of the sandbox.

use std::path::PathBuf;
use std::time::Duration;

/// How strongly programs are isolated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Every layer that [`enforced`](fn@super::enforced) reports.
    /// The process must have called [`enter`](super::enter) first.
    #[default]
    Auto,
    /// Plain execution: only the time and output limits, the clean environment and the process
    /// group apply.
    Off,
}

/// What programs of a sandbox may access and use.
/// Limits on the sum over a program's processes are enforced from outside, and apply to every user,
/// including the superuser.
/// A program that exceeds one is killed with all its processes, and [`Output::killed`] gives the
/// reason.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Whether a script that asks for the network gets it.
    /// Default true; a script's own default is no network.
    pub network: bool,
    /// Most bytes of private and shared writable memory of all processes together, and of private
    /// memory of each.
    /// An allocation beyond that fails.
    /// Default 2 GiB.
    pub memory_bytes: u64,
    /// Most processes and threads at once.
    /// Default 256.
    pub processes: u64,
    /// Most CPU time of all processes together.
    /// Default one hour.
    pub cpu: Duration,
    /// Most bytes that all processes together write to disks.
    /// Default 8 GiB.
    pub written_bytes: u64,
    /// Largest file that a program may write, in bytes.
    /// Default 1 GiB.
    pub file_bytes: u64,
    /// Most bytes on stdout and stderr together, including those that are dropped.
    /// Default 1 GiB.
    pub output_bytes: u64,
    /// Files and directories below the home directory, `/tmp`, `/var/tmp` or `/run` that stay
    /// readable.
    /// Otherwise these directories are hidden, except for the work directory with its surrounding
    /// repository, wherever git keeps that, and the files that programs on `PATH` need.
    pub readable: Vec<PathBuf>,
    /// Files and directories that can't be changed even if they are in the work directory.
    /// A missing path is protected once it exists; a path that contains the work or the home
    /// directory is ignored.
    /// This needs a mount namespace.
    pub protected: Vec<PathBuf>,
    /// Patterns of paths, relative to the work directory, which no program that
    /// [`Sandbox::run_guarded`](super::Sandbox::run_guarded) runs can write to, whether they exist
    /// or not.
    /// `**` matches any folders; case doesn't matter.
    /// This needs the layers of a [`Guarding::Layer`](super::Guarding::Layer): without them the
    /// sandbox can't be created.
    pub refused: Vec<String>,
    /// Whether the contents of the work directory belong to somebody, and are guarded: see
    /// [`Sandbox::run_guarded`](super::Sandbox::run_guarded).
    /// An empty work directory needs no guard.
    /// Default false.
    pub guard: bool,
    /// Whether a person reviews each change of a guarded work directory before it is made, even if
    /// nothing is lost.
    /// Default false.
    pub review: bool,
    /// Whether nothing in the work directory can be changed, to preview what would be done.
    /// This needs a mount namespace or Landlock, see
    /// [`Sandbox::is_read_only`](super::Sandbox::is_read_only).
    /// Default false.
    pub read_only: bool,
    /// A host directory that programs see as `/tmp`; it persists from run to run.
    /// `None` gives them an empty, read-only `/tmp`.
    /// It is an error if the machine can't enforce it.
    pub private_tmp: Option<PathBuf>,
    /// A host directory for `HOME`.
    /// `None` uses the private `/tmp` if there is one, otherwise a temporary directory that is
    /// removed with the sandbox.
    pub home: Option<PathBuf>,
    /// How strongly programs are isolated.
    /// Default [`Isolation::Auto`].
    pub isolation: Isolation,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            network: true,
            memory_bytes: 2 << 30,
            processes: 256,
            cpu: Duration::from_secs(3600),
            written_bytes: 8 << 30,
            file_bytes: 1 << 30,
            output_bytes: 1 << 30,
            readable: Vec::new(),
            protected: Vec::new(),
            refused: Vec::new(),
            guard: false,
            review: false,
            read_only: false,
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
    /// Environment variables in addition to `PATH`, `LANG`, `HOME` and `TMPDIR`, which the sandbox
    /// sets.
    /// The program inherits no other variables.
    pub env: &'a [(String, String)],
    /// Bytes for standard input; `None` for empty input.
    pub stdin: Option<&'a [u8]>,
    /// Wall-clock limit; after it, the program and everything that it started is killed.
    pub timeout: Duration,
    /// Whether the program needs the network; it gets it only if the policy allows it too.
    pub network: bool,
    /// Whether its environment contains the user's keys.
    /// With keys, or with the network, a program doesn't run code that other programs wrote: it has
    /// a separate `HOME`, unless the policy names one, and only those parts of `PATH` that no
    /// program can write to.
    pub keys: bool,
    /// Most bytes to keep of each of stdout and stderr: the first and the last half of this.
    /// The rest is read, counted and dropped.
    pub output_limit: usize,
}

impl<'a> Script<'a> {
    /// A program with arguments only: no variables, input, network or keys; it keeps 64 KiB of each
    /// stream.
    pub fn new(program: &'a [&'a str], timeout: Duration) -> Self {
        let output_limit = 64 << 10;
        Script { program, env: &[], stdin: None, timeout, network: false, keys: false, output_limit }
    }
}

/// The result of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The exit status, or 128 + the signal's number if a signal ended it; `None` if the sandbox
    /// killed it.
    pub exit: Option<i32>,
    /// Its stdout, up to the limit.
    pub stdout: Vec<u8>,
    /// Its stderr, up to the limit.
    pub stderr: Vec<u8>,
    /// Bytes dropped from the middle of `stdout`.
    pub stdout_dropped: u64,
    /// Bytes dropped from the middle of `stderr`.
    pub stderr_dropped: u64,
    /// The command lines of processes that it started and that were still running when it ended, if
    /// the machine reports them.
    /// They were killed then.
    pub left: Vec<String>,
    /// Whether it reached the wall-clock limit.
    pub timed_out: bool,
    /// Whether the sandbox's cancel flag ended it.
    pub cancelled: bool,
    /// The policy limit that it exceeded, in words: "killed: more than 256 processes".
    pub killed: Option<String>,
}

/// A number of bytes in the largest unit that divides it: "2 GiB", "1500 KiB".
pub fn bytes(count: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (count.trailing_zeros() / 10).min(4) as usize;
    if count == 0 { "0 bytes".to_owned() } else { format!("{} {}", count >> (10 * unit), units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_words() {
        let check = |count, expected: &str| assert_eq!(bytes(count), expected);
        check(0, "0 bytes");
        check(1001, "1001 bytes");
        check(1500 << 10, "1500 KiB");
        check(2 << 30, "2 GiB");
        check(3 << 50, "3072 TiB");
    }
}
