//! The scripts of a task, setup and verification: run behind the sandbox, with an end, whatever the
//! agent did.

use std::time::Duration;

use alara_harness::error::chain;
use alara_harness::sandbox::{Policy, Sandbox, Script};

use crate::Task;
use crate::place::Place;
use crate::runner::Options;

/// Longest time of the setup.
const SETUP: Duration = Duration::from_secs(60);
/// Longest time of a verification, which does not count as the task's.
const VERIFY: Duration = Duration::from_secs(30);
/// Most bytes that are kept of what a script prints.
const OUTPUT_BYTES: usize = 16 * 1024;
/// Git's identity and default branch; what it writes need not outlive the machine.
/// `HOME` is the task's own, so nobody's own settings come in.
const GIT_CONFIG: &str = "[user]\n\tname = alara\n\temail = alara@example.invalid\n[init]\n\tdefaultBranch = main\n[core]\n\tfsync = none\n";

/// Something that is not the agent's fault, as a person should read it.
pub struct Infrastructure(pub String);

impl<E: std::error::Error> From<E> for Infrastructure {
    fn from(error: E) -> Self {
        Infrastructure(chain(&error))
    }
}

/// How a script of the task ended, and what it said.
pub enum Check {
    Passed,
    Failed(String),
}

/// The sandbox of a task, with the setup done.
pub fn prepare(task: &Task, options: &Options, place: &Place) -> Result<Sandbox, Infrastructure> {
    if let Some(name) = task.programs().into_iter().find(|name| !options.programs.contains_key(*name)) {
        return Err(Infrastructure(format!("{name} is not installed")));
    }
    let policy = Policy {
        network: false,
        home: Some(place.home.clone()),
        private_tmp: Some(place.tmp.clone()),
        isolation: options.isolation,
        ..Policy::default()
    };
    let sandbox = match Sandbox::new(&place.work, policy.clone()) {
        // A task that does not name `/tmp` gets by without a private one.
        Err(alara_harness::Error::PrivateTmp { .. }) if !task.uses_tmp() => {
            Sandbox::new(&place.work, Policy { private_tmp: None, ..policy })?
        }
        other => other?,
    };
    let sandbox = sandbox.with_cancel(options.cancel.clone());
    set_up(task, &sandbox, place)?;
    Ok(sandbox)
}

/// Makes of an empty place what the task begins with.
pub fn set_up(task: &Task, sandbox: &Sandbox, place: &Place) -> Result<(), Infrastructure> {
    place.open()?;
    std::fs::write(place.home.join(".gitconfig"), GIT_CONFIG)?;
    match script(sandbox, &task.setup, SETUP)? {
        Check::Passed => Ok(()),
        Check::Failed(said) => Err(Infrastructure(format!("the setup failed: {said}"))),
    }
}

/// Runs the verification.
/// That there is no place for it any more is the agent's fault.
pub fn verify(task: &Task, sandbox: &Sandbox, place: &Place) -> Result<Check, Infrastructure> {
    if let Err(error) = place.open() {
        return Ok(Check::Failed(error.to_string()));
    }
    script(sandbox, &task.verify, VERIFY)
}

/// Runs bash.
/// What it said is what it printed on stdout, or else on stderr.
fn script(sandbox: &Sandbox, text: &str, timeout: Duration) -> Result<Check, Infrastructure> {
    if text.trim().is_empty() {
        return Ok(Check::Passed);
    }
    let output = sandbox.run(&Script {
        program: &["bash", "-c", text],
        env: &[],
        stdin: None,
        timeout,
        network: false,
        output_limit: OUTPUT_BYTES,
    })?;
    if output.timed_out {
        let seconds = timeout.as_secs();
        return Err(Infrastructure(format!("a script of the task did not end within {seconds} seconds")));
    }
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(match output.exit {
        Some(0) => Check::Passed,
        _ if words(&output.stdout).is_empty() => Check::Failed(words(&output.stderr)),
        _ => Check::Failed(words(&output.stdout)),
    })
}
