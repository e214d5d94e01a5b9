//! Programs that run another program, each with all options in its own help, and interpreters with
//! random options: whatever runs in bash, a rule that denies it must notice.

use std::time::Duration;

use alara_harness::permission::{Permissions, wrappers};
use alara_harness::sandbox::{Policy, Sandbox, Script};
use alara_harness::team::Rule;
use alara_harness::{Team, Verdict};
use serde::Deserialize;
use serde_json::json;

use super::{all, needs};

const WRAPPERS: &str = concat!(include_str!("trying.py"), include_str!("wrappers.py"));
const INTERPRETERS: &str = concat!(include_str!("trying.py"), include_str!("interpreters.py"));

#[derive(Deserialize)]
struct Tried {
    missing: Vec<String>,
    cut: Vec<String>,
    tried: usize,
    ran: Vec<String>,
}

/// Returns the lines in which a stub ran that a rule denies, and how many of them it denies for
/// certain.
/// Lines that were neither denied nor asked about fail the test.
fn seen(test: &str, driver: &str, names: &[&str]) -> Option<(Tried, usize)> {
    needs(test, all)?;
    let root = tempfile::tempdir_in("/var/tmp").or_else(|_| tempfile::tempdir()).unwrap();
    let work = root.path().canonicalize().unwrap();
    let (stub, ran) = (work.join("stub"), work.join("ran"));
    std::fs::create_dir(&ran).unwrap();
    std::fs::write(&stub, format!("#!/bin/sh\n: > '{}'/\"$1\"\n", ran.display())).unwrap();
    std::fs::set_permissions(&stub, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // ALARA_TRIALS multiplies the number of trials of interpreters with random options.
    let times: f64 = std::env::var("ALARA_TRIALS").ok().and_then(|times| times.parse().ok()).unwrap_or(1.0);
    let task = json!({"stub": stub, "ran": ran, "names": names, "seconds": 8.0 * times}).to_string();
    let program = ["python3", "-c", driver];
    let script = Script {
        stdin: Some(task.as_bytes()),
        output_limit: 8 << 20,
        ..Script::new(&program, Duration::from_secs_f64(400.0 * times))
    };
    let output = Sandbox::new(&work, Policy::default()).unwrap().run(&script).unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let tried: Tried =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {told}"));
    if !tried.missing.is_empty() {
        eprintln!("SKIPPED: {test}: of these, which are not installed: {}", tried.missing.join(", "));
    }
    if !tried.cut.is_empty() {
        eprintln!("SKIPPED: {test}: of these, some options, since they are slow: {}", tried.cut.join(", "));
    }
    let stock = Team::stock("alara").unwrap();
    let rule =
        Rule { pattern: "shell:stub".into(), verdict: Verdict::Deny, by: "a rule".into(), inherited: false };
    let team = Team { rules: vec![rule], ..Team::default() };
    let shell = stock.jinx("shell").unwrap();
    let verdict = |line: &String| {
        let arguments = json!({"command": line}).as_object().unwrap().clone();
        Permissions::default().verdict(&team, shell, &arguments, &work).map(|ruling| ruling.verdict)
    };
    let missed: Vec<&String> = tried
        .ran
        .iter()
        .filter(|line| !matches!(verdict(line), Some(Verdict::Deny | Verdict::Ask)))
        .collect();
    assert!(missed.is_empty(), "{} of {}:\n{missed:#?}", missed.len(), tried.ran.len());
    let denied = tried.ran.iter().filter(|line| verdict(line) == Some(Verdict::Deny)).count();
    Some((tried, denied))
}

#[test]
fn what_a_wrapper_runs_by_any_option_is_seen() {
    let test = "what_a_wrapper_runs_by_any_option_is_seen";
    let names: Vec<&str> = wrappers().into_iter().filter(|name| !name.contains(' ')).collect();
    let Some((tried, denied)) = seen(test, WRAPPERS, &names) else { return };
    // For most of them it is certain.
    assert!(tried.tried > 5 && denied * 10 > tried.ran.len() * 8, "{denied} of {}", tried.ran.len());
}

#[test]
fn what_an_interpreter_is_given_by_any_option_is_asked_about() {
    let test = "what_an_interpreter_is_given_by_any_option_is_asked_about";
    let Some((tried, _)) = seen(test, INTERPRETERS, &[]) else { return };
    assert!(tried.tried > 2 && tried.ran.len() > 20, "{} of {}", tried.ran.len(), tried.tried);
}
