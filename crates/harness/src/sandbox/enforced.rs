//! What this machine can enforce, found out once by trying.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

/// The layers of the sandbox that work on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    /// A user namespace: the ground for the other namespaces, and the process limit counts only the sandbox.
    pub user: bool,
    /// A mount namespace: private `/tmp` and `/dev/shm`, hidden credentials.
    pub mounts: bool,
    /// A network namespace without any interface.
    pub network: bool,
    /// A process namespace: nothing outlives the program, and nothing outside can be signalled.
    pub processes: bool,
    /// A `/proc` that shows only the sandbox's processes.
    pub proc: bool,
    /// The Landlock version: writing only in the work directory (1), no TCP (4), no signals out (6). 0 = none.
    pub landlock: u8,
    /// Limits on memory, file size and core dumps.
    pub limits: bool,
}

impl Enforced {
    /// One sentence that says what programs can do on this machine although they should not; `None` if nothing.
    pub fn warning(&self) -> Option<String> {
        let mut gaps = Vec::new();
        if self.landlock == 0 {
            gaps.push("write outside the work directory");
        }
        if !self.network {
            gaps.push(if self.landlock >= 4 { "use the network other than TCP" } else { "use the network" });
        }
        if !self.mounts {
            gaps.push("read credentials in the home directory");
        }
        if !self.processes {
            gaps.push("see other processes and leave processes behind");
        }
        if !self.limits {
            gaps.push("use any amount of memory");
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
        if self.limits {
            parts.push("resource limits".to_owned());
        }
        f.write_str(if parts.is_empty() { "nothing" } else { "" })?;
        f.write_str(&parts.join("; "))
    }
}

static LAUNCHER: AtomicBool = AtomicBool::new(false);

pub fn set_launcher() {
    LAUNCHER.store(true, Ordering::Relaxed);
}

pub fn is_launcher() -> bool {
    LAUNCHER.load(Ordering::Relaxed)
}

/// What this machine can enforce; nothing if the process has not called [`enter`](super::enter). The first call takes
/// some milliseconds, since it tries each layer in a process of its own.
pub fn enforced() -> &'static Enforced {
    static FOUND: OnceLock<Enforced> = OnceLock::new();
    static NOTHING: Enforced = Enforced {
        user: false,
        mounts: false,
        network: false,
        processes: false,
        proc: false,
        landlock: 0,
        limits: false,
    };
    if !is_launcher() {
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
            limits: true,
        };
        let check = |enforced: Enforced, holds: &str, warning: Option<&str>| {
            assert_eq!(enforced.to_string(), holds);
            assert_eq!(enforced.warning().as_deref(), warning);
        };
        check(all, "user, mount, network, process namespaces; own /proc; Landlock 7; resource limits", None);
        check(
            Enforced { landlock: 0, ..all },
            "user, mount, network, process namespaces; own /proc; resource limits",
            Some("the sandbox is incomplete on this machine: programs can write outside the work directory"),
        );
        assert_eq!(Enforced::default().to_string(), "nothing");
    }
}
