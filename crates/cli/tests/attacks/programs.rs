//! What programs try against the sandbox: the table of `alara doctor --attack`.

use std::process::Command;

use alara_harness::sandbox::attack::{Came, attacks};
use alara_harness::sandbox::{Enforced, Isolation};
use serde_json::Value;

use crate::dirs::text;
use crate::sandbox::needs;

/// What an attack comes to where nothing is isolated, if it does not get through.
/// The first are held by what holds without isolation, the others depend on user and machine.
const HELD_ANYWHERE: [&str; 7] =
    ["output", "write-where-keys-are", "read-home", "namespaces", "mount", "trace", "kernel-programs"];

fn complete(found: &Enforced) -> bool {
    found.warning().is_none()
}

/// Runs them all as a program of this user's does; each must be held.
fn all_held(mut command: Command) {
    let output = command.args(["doctor", "--attack", "--json"]).output().unwrap();
    let tried: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(tried.len(), attacks().len());
    for one in tried {
        // Some need what is not on every machine.
        let numbers = one["how"].as_str().is_some_and(|how| how.contains("other numbers"));
        let no_files = one["name"] == "read-home";
        assert!(one["came"] == "held" || (one["came"] == "untried" && (numbers || no_files)), "{one}");
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn what_hostile_programs_try_is_held() {
    if needs("what_hostile_programs_try_is_held", complete).is_some() {
        all_held(crate::alara());
    }
}

/// Some limits hold for the superuser alone, or for everybody else.
#[test]
fn what_they_try_is_held_for_another_user_too() {
    let test = "what_they_try_is_held_for_another_user_too";
    if needs(test, complete).is_none() {
        return;
    }
    let Some(command) = as_nobody() else {
        eprintln!("SKIPPED: {test}: only the superuser can become another user, by setpriv");
        return;
    };
    all_held(command);
}

/// The binary as the user nobody, in an environment of its own; `None` if that can't be.
fn as_nobody() -> Option<Command> {
    let setpriv = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "env", "-i", "PATH=/usr/bin:/bin"]);
        command.args(["HOME=/nonexistent", "TMPDIR=/var/tmp"]);
        command
    };
    // Wherever it was built: below a home directory others may not reach it.
    let works = |program: &str, argument: &str| {
        setpriv().args([program, argument]).output().is_ok_and(|output| output.status.success())
    };
    let binary = env!("CARGO_BIN_EXE_alara");
    if !works(binary, "--version") || !works("python3", "--version") {
        return None;
    }
    let mut command = setpriv();
    command.arg(binary);
    Some(command)
}

/// An attack that fails by itself would show nothing.
#[test]
fn without_a_sandbox_they_get_through() {
    for attack in attacks().iter().filter(|attack| !attack.is_guarded()) {
        let came = attack.run(Isolation::Off).unwrap();
        let anywhere = HELD_ANYWHERE.contains(&attack.name.as_str());
        let numbers = matches!(&came, Came::Untried(why) if why.contains("other numbers"));
        assert!(came == Came::Fell || anywhere || numbers, "{}: {came:?}", attack.name);
    }
}
