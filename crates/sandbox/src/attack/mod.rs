//! Attacks that a hostile program tries against the sandbox, to test where it must hold.
//!
//! The attacks are data; each reports whether it got through.
//! So an attack is the same in a test, on a user's machine, and without a sandbox, where it must
//! get through.

use std::net::TcpListener;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Guarded, Isolation, Output, Policy, Sandbox, Script, homes};
use crate::Error;
use crate::scratch::Scratch;
use crate::undo::By;

/// How long an attack may try.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a process that outlives the attack has to show itself.
const LATE: Duration = Duration::from_millis(400);
/// The exit status of an attack that was refused.
const REFUSED: i32 = 42;
/// The exit status of an attack that has nothing to try.
const UNTRIED: i32 = 43;
const PRELUDE: &str = include_str!("prelude.py");
/// The text of a file that must not change.
const KEPT: &str = "kept";

/// An attack by a hostile program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attack {
    /// One or two words, with hyphens.
    pub name: String,
    /// What the attack tries: "writes a file outside of the work directory".
    pub what: String,
    /// The layers that stop it.
    pub by: String,
    program: String,
    #[serde(default)]
    later: Option<String>,
    #[serde(default)]
    guarded: bool,
    #[serde(default)]
    spoils: Option<String>,
}

/// The result of an attack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "came", content = "how")]
pub enum Came {
    /// It was refused or killed; by what, in words.
    Held(String),
    /// It got through.
    Fell,
    /// It couldn't be tried; the reason.
    Untried(String),
}

/// All attacks.
pub fn attacks() -> &'static [Attack] {
    static ATTACKS: LazyLock<Vec<Attack>> =
        // The table is in the binary, and a test reads it.
        LazyLock::new(|| serde_saphyr::from_str(include_str!("attacks.yaml")).unwrap_or_default());
    &ATTACKS
}

/// Limits that an attack reaches within a second, on any machine.
fn policy() -> Policy {
    Policy {
        memory_bytes: 128 << 20,
        processes: 64,
        cpu: Duration::from_secs(1),
        written_bytes: 96 << 20,
        file_bytes: 32 << 20,
        output_bytes: 8 << 20,
        ..Policy::default()
    }
}

impl Attack {
    /// Whether its changes are inspected before they count, as those of an agent's step are.
    pub fn is_guarded(&self) -> bool {
        self.guarded
    }

    /// Runs the attack with this isolation, in new folders.
    ///
    /// # Errors
    /// The folders can't be created.
    pub fn run(&self, isolation: Isolation) -> Result<Came, Error> {
        let failed =
            |source| Error::Directory { what: "folder of an attack", path: std::env::temp_dir(), source };
        let root = Scratch::claim(&std::env::temp_dir())?;
        let work = root.path().join("work");
        let make = || {
            std::fs::create_dir_all(work.join("team"))?;
            for name in ["outside.txt", "work/kept.txt", "work/team/lead.npc"] {
                std::fs::write(root.path().join(name), KEPT)?;
            }
            Ok(())
        };
        make().map_err(failed)?;
        let _services = services(root.path());
        let port = TcpListener::bind("127.0.0.1:0").ok();
        let number =
            port.as_ref().and_then(|port| port.local_addr().ok()).map_or(9, |address| address.port());
        let home = homes().first().map_or_else(String::new, |home| home.display().to_string());
        let facts = json!({"root": root.path(), "home": home, "alara": std::process::id(), "port": number});
        let policy = Policy {
            protected: vec![work.join("team")],
            // Readable, so that an attack is refused for its access and not because a path is
            // missing.
            readable: vec![root.path().to_owned()],
            guard: self.guarded,
            refused: if self.guarded { vec!["**/*.npc".to_owned()] } else { Vec::new() },
            isolation,
            ..policy()
        };
        let sandbox = match Sandbox::new(&work, policy) {
            Err(error @ Error::Unprotected { .. }) => return Ok(Came::Untried(error.to_string())),
            made => made?,
        };
        let facts = facts.to_string();
        let was_there = self.spoils.as_ref().is_some_and(|path| root.path().join(path).exists());
        let mut output = self.attempt(&sandbox, &self.program, false, &facts)?;
        if let (Some(later), Some(0)) = (&self.later, output.exit) {
            output = self.attempt(&sandbox, later, true, &facts)?;
        }
        Ok(self.judge(&output, root.path(), was_there))
    }

    fn attempt(&self, sandbox: &Sandbox, program: &str, keys: bool, facts: &str) -> Result<Output, Error> {
        let text = format!("{PRELUDE}\n{program}");
        let program = ["python3", "-c", &text, facts];
        let (timeout, output_limit) = (PATIENCE, 4096);
        let script =
            Script { program: &program, env: &[], stdin: None, timeout, network: false, keys, output_limit };
        if !self.guarded {
            return sandbox.run(&script);
        }
        Ok(match sandbox.run_guarded(&script, false, false, By::default(), &mut |_| Ok(false))? {
            Guarded::Ran(output) | Guarded::Undone(output) => output,
            Guarded::Refused => Output { exit: Some(REFUSED), ..Output::default() },
        })
    }

    fn judge(&self, output: &Output, root: &Path, was_there: bool) -> Came {
        let said =
            String::from_utf8_lossy(&output.stderr).trim_end().lines().last().unwrap_or_default().to_owned();
        if let Some(killed) = &output.killed {
            return Came::Held(killed.clone());
        }
        match output.exit {
            Some(REFUSED) => return Came::Held(said),
            Some(0) => {}
            Some(UNTRIED) => return Came::Untried(said),
            _ if output.timed_out => {
                return Came::Untried(format!("it took more than {} s", PATIENCE.as_secs()));
            }
            exit => return Came::Untried(format!("exit status {exit:?}: {said}")),
        }
        let Some(spoils) = &self.spoils else { return Came::Fell };
        if !self.guarded {
            std::thread::sleep(LATE);
        }
        match std::fs::read_to_string(root.join(spoils)) {
            Ok(text) if text != KEPT => Came::Fell,
            Err(_) if was_there => Came::Fell,
            _ => Came::Held("nothing of it is there".to_owned()),
        }
    }
}

/// Services of this machine that a program might connect to: a socket with a path and one without.
#[cfg(target_os = "linux")]
fn services(root: &Path) -> Vec<std::os::unix::net::UnixListener> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let name = format!("alara-attack-{}", std::process::id());
    let abstract_one =
        SocketAddr::from_abstract_name(name).and_then(|address| UnixListener::bind_addr(&address));
    [UnixListener::bind(root.join("socket")), abstract_one].into_iter().flatten().collect()
}

#[cfg(not(target_os = "linux"))]
fn services(_root: &Path) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        let read: Vec<Attack> = serde_saphyr::from_str(include_str!("attacks.yaml")).unwrap();
        let mut names: Vec<&str> = read.iter().map(|attack| attack.name.as_str()).collect();
        assert!(names.len() > 30 && attacks().len() == names.len());
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), read.len());
    }
}
