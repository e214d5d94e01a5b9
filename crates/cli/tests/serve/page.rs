//! The web page from the server itself, in headless Chromium.
//!
//! `python3 tests/page/run.py` tests it separately, with recorded answers.

use std::process::Command;

use serde_json::{Value, json};

use super::Served;
use crate::absent;
use crate::dirs::TestDir;

/// Runs these tests of `tests/page/test_served.py` against a server; returns false if there is no
/// browser.
fn passes(served: &Served, names: &[&str]) -> bool {
    let mut command = Command::new("python3");
    command.arg(crate::root().join("tests/page/run.py")).args(names);
    let output = command.args(["--served", served.url.strip_suffix("v1").unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    if said.starts_with("skipped") {
        absent::skipped("a browser", "chromium", "Debian has it as a package, ALARA_CHROMIUM names another");
        return false;
    }
    true
}

#[test]
fn the_page_shows_what_the_server_tells() {
    let shell = |when: &str, text: &str, command: &str| json!({"when": when, "text": text, "calls": [{"name": "shell", "arguments": {"command": command}}]});
    let says = |when: &str, text: &str| json!({"when": when, "text": text});
    let script: Value = json!([
        shell("count", "I look.", "sleep 0.5; echo one; exit 3"),
        says("count", "It **says** one."),
        shell("long", "", "seq 9000"),
        says("long", "Nine thousand."),
        shell("wait", "", "sleep 60"),
        says("first", "One."),
        says("third", "Three."),
        says("second", "Two."),
    ]);
    let served = TestDir::npc_team(&script).serve(&[]);
    let names = ["calls_of_an_npc_come_live", "stop_ends_the_work", "edit_and_retry_and_errors"];
    if !passes(&served, &names) {
        return;
    }
    let script: Vec<Value> =
        (0..3).flat_map(|_| [shell("note", "", "echo seven"), says("note", "Done.")]).collect();
    let dir = TestDir::npc_team(&script.into());
    dir.write("team/house.ctx", "name: house\nforenpc: corca\npermissions:\n  shell: ask\n");
    passes(&dir.serve(&[]), &["questions_are_answered"]);
    let model = crate::root().join("models/alara-tiny.gguf");
    let arguments = ["-m", model.to_str().unwrap(), "--token", "hunter2"];
    let served = TestDir::npc_team(&json!([])).serve(&arguments);
    passes(&served, &["token_and_costs"]);
}
