//! Detects what this machine can enforce, once, by trying.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// The layers of the sandbox that work on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    /// A user namespace: the base of the other namespaces, and it makes the process limit count
    /// only the sandbox.
    pub user: bool,
    /// A mount namespace: it hides the home directory, credentials and sockets, makes the rest
    /// read-only, and has a private `/dev/shm`.
    pub mounts: bool,
    /// A network namespace without any interface.
    pub network: bool,
    /// A process namespace: nothing outlives the program, and it can't signal processes outside.
    pub processes: bool,
    /// A `/proc` that shows only the sandbox's processes.
    pub proc: bool,
    /// The Landlock version: writing only in the work directory (1), no TCP (4), no signals to the
    /// outside (6).
    /// 0 if there is none.
    pub landlock: u8,
    /// A filter that refuses system calls that steps don't need, and sockets without the network.
    #[serde(default)]
    pub seccomp: bool,
    /// Kernel limits on each process: memory, file size, CPU time, core dumps.
    pub limits: bool,
    /// Limits on all processes together, watched from outside: their number, memory, CPU time and
    /// bytes written.
    #[serde(default)]
    pub supervised: bool,
}

impl Enforced {
    /// One sentence about what programs can do on this machine although they shouldn't; `None` if
    /// there is nothing to warn about.
    pub fn warning(&self) -> Option<String> {
        let mut gaps = Vec::new();
        if self.landlock == 0 {
            gaps.push("write outside the work directory");
        }
        if !self.network && !self.seccomp {
            gaps.push(if self.landlock >= 4 { "use the network other than TCP" } else { "use the network" });
        }
        if !self.mounts {
            gaps.push(
                "read the home directory, change the permissions of files outside, write protected files in the \
                 work directory and talk to local services",
            );
        }
        if !self.processes {
            gaps.push("see other processes");
        }
        if !self.seccomp {
            gaps.push("make dangerous system calls");
        }
        if !self.limits && !self.supervised {
            gaps.push("use any amount of memory");
        } else if !self.supervised {
            gaps.push("use any amount of memory by many processes");
        }
        (!gaps.is_empty())
            .then(|| format!("the sandbox is incomplete on this machine: programs can {}", gaps.join(", ")))
    }
}

impl fmt::Display for Enforced {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut words = Vec::new();
        for (on, word) in [
            (self.user, "user"),
            (self.mounts, "mount"),
            (self.network, "network"),
            (self.processes, "process"),
        ] {
            if on {
                words.push(word);
            }
        }
        let mut parts = Vec::new();
        if !words.is_empty() {
            parts.push(format!("{} namespaces", words.join(", ")));
        }
        if self.proc {
            parts.push("own /proc".to_owned());
        }
        if self.landlock > 0 {
            parts.push(format!("Landlock {}", self.landlock));
        }
        for (on, words) in [
            (self.seccomp, "system call filter"),
            (self.limits, "resource limits"),
            (self.supervised, "supervised limits"),
        ] {
            if on {
                parts.push(words.to_owned());
            }
        }
        f.write_str(if parts.is_empty() { "nothing" } else { "" })?;
        f.write_str(&parts.join("; "))
    }
}

/// The program to start as the launcher.
static LAUNCHER: OnceLock<PathBuf> = OnceLock::new();

/// Only the first launcher counts: the detection runs once.
pub fn set_launcher(program: PathBuf) {
    let _ = LAUNCHER.set(program);
}

/// The program that isolates others: this one, once it has called [`enter`](crate::enter).
pub fn launcher() -> Option<&'static Path> {
    LAUNCHER.get().map(PathBuf::as_path)
}

/// What this machine can enforce; nothing if the process has not called [`enter`](crate::enter).
/// The first call takes some milliseconds, since it tries each layer in a separate process.
pub fn enforced() -> &'static Enforced {
    static FOUND: OnceLock<Enforced> = OnceLock::new();
    static NOTHING: Enforced = Enforced {
        user: false,
        mounts: false,
        network: false,
        processes: false,
        proc: false,
        landlock: 0,
        seccomp: false,
        limits: false,
        supervised: false,
    };
    if launcher().is_none() {
        return &NOTHING;
    }
    #[cfg(target_os = "linux")]
    return FOUND.get_or_init(super::launcher::probe);
    #[cfg(not(target_os = "linux"))]
    return FOUND.get_or_init(Enforced::default);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_holds_and_what_does_not() {
        let all = Enforced {
            user: true,
            mounts: true,
            network: true,
            processes: true,
            proc: true,
            landlock: 7,
            seccomp: true,
            limits: true,
            supervised: true,
        };
        let check = |enforced: Enforced, holds: &str, warning: Option<&str>| {
            assert_eq!(enforced.to_string(), holds);
            assert_eq!(enforced.warning().as_deref(), warning);
        };
        check(
            all,
            "user, mount, network, process namespaces; own /proc; Landlock 7; system call filter; resource limits; \
             supervised limits",
            None,
        );
        check(
            Enforced { landlock: 0, supervised: false, ..all },
            "user, mount, network, process namespaces; own /proc; system call filter; resource limits",
            Some(
                "the sandbox is incomplete on this machine: programs can write outside the work directory, use any \
                 amount of memory by many processes",
            ),
        );
        check(
            Enforced { mounts: false, ..all },
            "user, network, process namespaces; own /proc; Landlock 7; system call filter; resource limits; \
             supervised limits",
            Some(
                "the sandbox is incomplete on this machine: programs can read the home directory, change the \
                 permissions of files outside, write protected files in the work directory and talk to local services",
            ),
        );
        assert_eq!(Enforced::default().to_string(), "nothing");
    }
}
