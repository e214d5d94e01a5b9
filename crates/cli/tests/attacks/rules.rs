//! Attempts to evade rules about calls.

use serde_json::{Value, json};

use crate::dirs::{TestDir, code, sandboxed, text};

const SECRET: &str = "the word is xyzzy\n";

/// Returns the results, turn by turn, of calls by an NPC that may neither read nor write below
/// `secrets`.
fn called(turns: &[&[(&str, Value)]]) -> (TestDir, Vec<String>) {
    let call = |(name, arguments): &(&str, Value)| json!({"name": name, "arguments": arguments});
    let turn = |calls: &&[_]| json!({"calls": calls.iter().map(call).collect::<Vec<_>>()});
    let mut script: Vec<Value> = turns.iter().map(turn).collect();
    script.push(json!({"text": "Done."}));
    let dir = TestDir::with(&script.into());
    let rules = "permissions: {'read_file:secrets/': deny, 'write_file:secrets/': deny}";
    dir.write("team/team.ctx", &format!("name: t\nforenpc: one\n{rules}\n"));
    let npc = "name: one\nprimary_directive: Work.\njinxes: [shell, read_file, write_file, jobs]\n";
    dir.write("team/one.npc", npc);
    dir.write("work/secrets/a", SECRET);
    let output = dir.task().args(["-t", "./team"]).output().unwrap();
    assert!(code(&output) < 2, "{}{}", text(&output.stdout), text(&output.stderr));
    let results = dir.trace().into_iter().filter(|record| record["record"] == "tool_result");
    let results = results.map(|record| record["result"].to_string()).collect();
    (dir, results)
}

fn background(command: &str) -> (&'static str, Value) {
    ("shell", json!({"command": command, "background": true}))
}

#[test]
fn a_job_makes_no_way_around_a_rule_about_a_path() {
    if !sandboxed("a_job_makes_no_way_around_a_rule_about_a_path") {
        return;
    }
    let later = |code: &str| background(&format!("sleep 1; {code}; sleep 60"));
    let wait = || ("shell", json!({"command": "sleep 2"}));
    let read = || ("read_file", json!({"path": "yy/a"}));
    for code in ["ln -s secrets yy", "mkdir x; ln -s ../secrets x/y; ln -s x/y yy"] {
        let (_, results) = called(&[&[later(code)], &[wait()], &[read()]]);
        assert!(results[2].contains("is not permitted by"), "{code}: {results:?}");
        assert!(!results[2].contains("xyzzy"), "{code}: {results:?}");
    }
    let write = ("write_file", json!({"path": "yy/a", "content": "spoiled"}));
    let (dir, results) = called(&[&[later("ln -s secrets yy")], &[wait()], &[write]]);
    assert!(results[2].contains("is not permitted by"), "{results:?}");
    assert_eq!(std::fs::read_to_string(dir.path("work/secrets/a")).unwrap(), SECRET);
}

/// Between the check and the program that opens the file, nothing can change the work directory.
#[test]
fn a_job_that_swaps_a_folder_for_a_link_wins_no_race() {
    if !sandboxed("a_job_that_swaps_a_folder_for_a_link_wins_no_race") {
        return;
    }
    let swap = "while :; do ln -sfn public yy; sleep 0.0$((RANDOM % 9)); ln -sfn secrets yy; \
                sleep 0.0$((RANDOM % 9)); done";
    let made = ("shell", json!({"command": "mkdir public; echo all > public/a"}));
    // Each is a different call.
    let path = |at| format!("yy/{}a", "./".repeat(at));
    let reads: Vec<_> = (0..24).map(|at| ("read_file", json!({"path": path(at)}))).collect();
    let (dir, results) = called(&[&[made], &[background(swap)], &reads]);
    let reads = &results[2..];
    assert!(reads.iter().all(|result| !result.contains("xyzzy")), "{reads:?}");
    // Both sides of the race occur.
    let count = |text: &str| reads.iter().filter(|result| result.contains(text)).count();
    assert!(count("all") > 0 && count("not permitted") > 0, "{reads:?}");
    // Calls refused only at that point are also recorded as refusals.
    let late = "the path in the call has changed since it was checked";
    let is_recorded = |record: &&Value| {
        let by = record["by"].as_str().unwrap_or_default();
        record["record"] == "permission" && record["verdict"] == "deny" && by.ends_with(late)
    };
    assert_eq!(dir.trace().iter().filter(is_recorded).count(), count(late), "{reads:?}");
}

/// Another name of an existing file is still that file.
#[test]
fn a_rule_about_a_folder_holds_for_other_names_of_its_files() {
    let call = json!({"calls": [{"name": "read_file", "arguments": {"path": "name"}}]});
    let dir = TestDir::with(&json!([call, {"text": "Done."}]));
    dir.write("team/team.ctx", "name: t\nforenpc: one\npermissions: {'read_file:secrets/': deny}\n");
    dir.write("team/one.npc", "name: one\nprimary_directive: Work.\njinxes: [read_file]\n");
    dir.write("work/secrets/deep/a", SECRET);
    std::fs::hard_link(dir.path("work/secrets/deep/a"), dir.path("work/name")).unwrap();
    let output = dir.task().args(["-t", "./team"]).output().unwrap();
    assert!(code(&output) < 2, "{}", text(&output.stderr));
    let told = dir.trace().iter().map(Value::to_string).collect::<String>();
    assert!(told.contains("is not permitted by") && !told.contains("xyzzy"), "{told}");
}
