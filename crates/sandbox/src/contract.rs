//! What a caller asks of the sandbox and what it gets back.

use std::path::PathBuf;
use std::time::Duration;

/// How strongly programs are walled off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Every layer that [`enforced`](fn@super::enforced) names.
    /// The process must have called [`enter`](super::enter) first.
    #[default]
    Auto,
    /// Plain execution: only the time and output limits, the clean environment and the process
    /// group hold.
    Off,
}

/// What programs of a sandbox may touch and use.
/// Limits on the sum over a program's processes are watched from outside and hold for every user,
/// the superuser included.
/// A program beyond one is killed as a whole, and [`Output::killed`] says why.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Whether a script that asks for the network gets it.
    /// Default true; a script's own default is no network.
    pub network: bool,
    /// Most bytes of private and shared writable memory of all processes together, and of private
    /// memory of each.
    /// A process that asks for more gets none.
    /// Default 2 GiB.
    pub memory_bytes: u64,
    /// Most processes and threads at a time.
    /// Default 256.
    pub processes: u64,
    /// Most processor time of all processes together.
    /// Default one hour.
    pub cpu: Duration,
    /// Most bytes that all processes together write to disks.
    /// Default 8 GiB.
    pub written_bytes: u64,
    /// Largest file that a program may write, in bytes.
    /// Default 1 GiB.
    pub file_bytes: u64,
    /// Most bytes on stdout and stderr together, whatever of them is kept.
    /// Default 1 GiB.
    pub output_bytes: u64,
    /// Files and directories below the home directory, `/tmp`, `/var/tmp` or `/run` that stay
    /// readable.
    /// These paths are hidden but for that, the work directory with the repository around it,
    /// wherever git keeps that, and what the programs on `PATH` need.
    pub readable: Vec<PathBuf>,
    /// Files and directories that can't be changed even if they lie in the work directory.
    /// What does not exist is protected once it does; what contains the work or the home directory
    /// is left out.
    /// It needs a mount namespace.
    pub protected: Vec<PathBuf>,
    /// Patterns of paths of the work directory, relative to it, which no program that
    /// [`Sandbox::run_guarded`](super::Sandbox::run_guarded) runs can write to, whether something
    /// is there or not.
    /// `**` stands for any folders, capitals make no difference.
    /// It needs the layers of a [`Guarding::Layer`](super::Guarding::Layer): without them there is
    /// no sandbox.
    pub refused: Vec<String>,
    /// Whether what lies in the work directory is somebody's, and is guarded: see
    /// [`Sandbox::run_guarded`](super::Sandbox::run_guarded).
    /// An empty one needs no guard.
    /// Default false.
    pub guard: bool,
    /// Whether a person looks at each change of a guarded work directory before it is done, also
    /// where nothing is lost.
    /// Default false.
    pub review: bool,
    /// Whether nothing of the work directory can be changed, for a look at what would be done.
    /// It needs a mount namespace or Landlock, see
    /// [`Sandbox::is_read_only`](super::Sandbox::is_read_only).
    /// Default false.
    pub read_only: bool,
    /// A host directory that programs see as `/tmp`; it persists from run to run.
    /// `None`: an empty one, in which nothing can be written.
    /// It is an error where the machine can't enforce it.
    pub private_tmp: Option<PathBuf>,
    /// A host directory for `HOME`.
    /// `None`: the private `/tmp` if there is one, otherwise a temporary directory that is removed
    /// with the sandbox.
    pub home: Option<PathBuf>,
    /// How strongly programs are walled off.
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
    /// Environment variables beside `PATH`, `LANG`, `HOME` and `TMPDIR`, which the sandbox sets.
    /// Nothing else of the environment is passed on.
    pub env: &'a [(String, String)],
    /// Bytes for standard input; `None` = empty.
    pub stdin: Option<&'a [u8]>,
    /// Wall-clock limit; then everything that the program started is killed.
    pub timeout: Duration,
    /// Whether the program needs the network; it gets it only if the policy allows it too.
    pub network: bool,
    /// Whether its environment has keys of the user.
    /// With these, or with the network, a program does not run what others wrote: it has a `HOME`
    /// apart from theirs, unless the policy names one, and of `PATH` what none can write to.
    pub keys: bool,
    /// Most bytes to keep of each of stdout and stderr: the first and the last half of this.
    /// The rest is read, counted and dropped.
    pub output_limit: usize,
}

impl<'a> Script<'a> {
    /// A program with no more than its arguments: no variables, input, network or keys; 64 KiB of
    /// each stream are kept.
    pub fn new(program: &'a [&'a str], timeout: Duration) -> Self {
        let output_limit = 64 << 10;
        Script { program, env: &[], stdin: None, timeout, network: false, keys: false, output_limit }
    }
}

/// What a program did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The exit status, 128 + the signal's number if a signal ended it, `None` if the sandbox
    /// killed it.
    pub exit: Option<i32>,
    /// What it wrote on stdout, up to the limit.
    pub stdout: Vec<u8>,
    /// What it wrote on stderr, up to the limit.
    pub stderr: Vec<u8>,
    /// Bytes dropped from the middle of `stdout`.
    pub stdout_dropped: u64,
    /// Bytes dropped from the middle of `stderr`.
    pub stderr_dropped: u64,
    /// Processes that it started and that still ran when it had ended, by command line, as far as
    /// the machine tells.
    /// They were ended then.
    pub left: Vec<String>,
    /// Whether the wall-clock limit ended it.
    pub timed_out: bool,
    /// Whether the sandbox's cancel flag ended it.
    pub cancelled: bool,
    /// Which of the policy's limits ended it, in words: "killed: more than 256 processes".
    pub killed: Option<String>,
}

/// A number of bytes in the largest unit in which it is whole: "2 GiB", "1500 KiB".
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
