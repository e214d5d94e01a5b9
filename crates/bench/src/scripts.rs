//! Runs the scripts of a task, setup and verification, in the sandbox, within a time limit,
//! whatever the agent did.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use alara_harness::error::chain;
use alara_harness::sandbox::{Isolation, Policy, Sandbox, Script};

use crate::Task;
use crate::task_dir::TaskDir;

/// Time limit of the setup.
const SETUP: Duration = Duration::from_secs(60);
/// Time limit of a verification, which doesn't count towards the task's.
const VERIFY: Duration = Duration::from_secs(30);
/// Maximum size of a script's kept output in bytes.
const OUTPUT_BYTES: usize = 16 * 1024;
/// Git's identity and default branch; skips syncing, since the repositories are temporary.
/// `HOME` is the task's own, so no user's settings apply.
const GIT_CONFIG: &str = "[user]\n\tname = alara\n\temail = alara@example.invalid\n[init]\n\tdefaultBranch = main\n[core]\n\tfsync = none\n";

/// A failure that isn't the agent's fault, described for people.
pub struct Infrastructure(pub String);

impl<E: std::error::Error> From<E> for Infrastructure {
    fn from(error: E) -> Self {
        Infrastructure(chain(&error))
    }
}

/// How a script of the task ended, and its output.
pub enum ScriptOutcome {
    Passed,
    Failed(String),
}

/// Creates the sandbox of a task and runs the setup, on a machine with these programs.
pub fn prepare(
    task: &Task,
    isolation: Isolation,
    programs: &BTreeMap<String, String>,
    cancel: &Arc<AtomicBool>,
    dir: &TaskDir,
) -> Result<Sandbox, Infrastructure> {
    if let Some(name) = task.programs().into_iter().find(|name| !programs.contains_key(*name)) {
        return Err(Infrastructure(format!("{name} is not installed")));
    }
    let policy = Policy {
        network: false,
        home: Some(dir.home.clone()),
        private_tmp: Some(dir.tmp.clone()),
        isolation,
        ..Policy::default()
    };
    let sandbox = match Sandbox::new(&dir.work, policy.clone()) {
        // A task that doesn't mention `/tmp` needs no private one.
        Err(alara_harness::sandbox::Error::PrivateTmp { .. }) if !task.uses_tmp() => {
            Sandbox::new(&dir.work, Policy { private_tmp: None, ..policy })?
        }
        other => other?,
    };
    let sandbox = sandbox.with_cancel(cancel.clone());
    set_up(task, &sandbox, dir)?;
    Ok(sandbox)
}

/// Fills empty folders with the task's initial state.
pub fn set_up(task: &Task, sandbox: &Sandbox, dir: &TaskDir) -> Result<(), Infrastructure> {
    dir.open()?;
    std::fs::write(dir.home.join(".gitconfig"), GIT_CONFIG)?;
    match script(sandbox, &task.setup, SETUP)? {
        ScriptOutcome::Passed => Ok(()),
        ScriptOutcome::Failed(output) => Err(Infrastructure(format!("the setup failed: {output}"))),
    }
}

/// Runs the verification.
/// If its folders are missing, the agent is at fault.
pub fn verify(task: &Task, sandbox: &Sandbox, dir: &TaskDir) -> Result<ScriptOutcome, Infrastructure> {
    if let Err(error) = dir.open() {
        return Ok(ScriptOutcome::Failed(error.to_string()));
    }
    script(sandbox, &task.verify, VERIFY)
}

/// Runs bash.
/// Returns its stdout, or else its stderr.
fn script(sandbox: &Sandbox, code: &str, timeout: Duration) -> Result<ScriptOutcome, Infrastructure> {
    if code.trim().is_empty() {
        return Ok(ScriptOutcome::Passed);
    }
    let output =
        sandbox.run(&Script { output_limit: OUTPUT_BYTES, ..Script::new(&["bash", "-c", code], timeout) })?;
    if output.timed_out {
        let seconds = timeout.as_secs();
        return Err(Infrastructure(format!("a script of the task did not end within {seconds} seconds")));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(match output.exit {
        Some(0) => ScriptOutcome::Passed,
        _ if text(&output.stdout).is_empty() => ScriptOutcome::Failed(text(&output.stderr)),
        _ => ScriptOutcome::Failed(text(&output.stdout)),
    })
}
