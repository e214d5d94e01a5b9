//! `alara bench tasks` over dialogues, from outside.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bench::{RunDir, words};

fn benches(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Returns the verdicts and reasons of a run over this suite, by task.
fn ends(suite: &str, arguments: &[&str]) -> Vec<(String, String, String)> {
    let dir = RunDir::new(&[]);
    let suite = benches(suite);
    let mut all = vec![suite.to_str().unwrap(), "--out", "run.jsonl", "--parallel", "2"];
    all.extend(arguments);
    let output = dir.run(&all);
    assert!(output.status.success(), "{}", words(&output.stderr));
    let records = dir.records("run.jsonl");
    let ends = records.iter().filter(|record| record["record"] == "task");
    let text = |end: &Value, key: &str| end[key].as_str().unwrap().to_owned();
    ends.map(|end| (text(end, "task"), text(end, "verdict"), text(end, "reason"))).collect()
}

#[test]
fn gold_passes_and_junk_fails_in_every_suite_of_dialogues() {
    for suite in ["tests/fixtures/dialogues", "benches/bank", "benches/shop", "benches/telecom"] {
        let (gold, junk) = (ends(suite, &["--gold"]), ends(suite, &["--junk"]));
        assert_eq!(gold.len(), junk.len());
        for (task, verdict, reason) in gold {
            assert_eq!(verdict, "solved", "{suite}: {task}: {reason}");
        }
        for (task, verdict, reason) in junk {
            assert_eq!(verdict, "failed", "{suite}: {task}: {reason}");
        }
    }
}

#[test]
fn the_teams_of_suites_are_in_order() {
    for suite in ["bank", "shop", "telecom"] {
        let team = benches("benches").join(suite).join("team");
        let output = crate::alara().args(["check", "--tests", "--strict"]).arg(&team).output().unwrap();
        assert!(output.status.success(), "{}{}", words(&output.stdout), words(&output.stderr));
    }
}

#[test]
fn a_script_speaks_with_a_user_in_the_sandbox() {
    let call = |name: &str, arguments: Value| json!({"calls": [{"name": name, "arguments": arguments}]});
    let replies = json!([
        {"text": "Please tell me your PIN."},
        call("check_pin", json!({"id": "c1", "pin": "4711"})),
        call("kb_search", json!({"query": "What is asked before a street is changed?"})),
        call("set_street", json!({"id": "c1", "street": "Elm Street 5"})),
        {"text": "It is changed."},
        {"text": "Goodbye!"},
    ]);
    let dir = RunDir::new(&[("script.json", &replies.to_string())]);
    let suite = benches("tests/fixtures/dialogues");
    let output = dir.run(&[suite.to_str().unwrap(), "-m", "script:script.json", "--out", "run.jsonl"]);
    assert!(output.status.success(), "{}", words(&output.stderr));
    let records = dir.records("run.jsonl");
    let attempt = records.iter().find(|record| record["record"] == "attempt").unwrap();
    assert_eq!((&attempt["verdict"], &attempt["reason"]), (&json!("solved"), &json!("")));
    let trace = dir.records(attempt["trace"].as_str().unwrap());
    let found = trace
        .iter()
        .find(|record| record["record"] == "tool_result" && record["call"]["name"] == "kb_search");
    assert_eq!(found.unwrap()["result"]["output"][0]["document"], "moves");
    // Another team may run these tasks, but lacks things that they need.
    let output = dir.run(&[suite.to_str().unwrap(), "--gold", "--team", "alara", "--out", "other.jsonl"]);
    assert!(output.status.success(), "{}", words(&output.stderr));
    let end = dir.records("other.jsonl").pop().unwrap();
    assert_eq!(end["verdict"], "error");
    assert!(end["reason"].as_str().unwrap().contains("there is no jinx `get_customer`"), "{end}");
}

#[test]
fn mistakes_in_dialogues_have_a_place() {
    let task = "id: a-1\ncategory: a\ndifficulty: easy\nuser:\n- say: Hi\n";
    let check = |files: &[(&str, &str)], expected: &[&str]| {
        let dir = RunDir::new(files);
        let output = crate::alara().args(["check", "suite"]).current_dir(dir.path("")).output().unwrap();
        let told = words(&output.stdout) + &words(&output.stderr);
        assert!(expected.iter().all(|words| told.contains(words)), "{told}");
    };
    let with = |more: &str| format!("{task}{more}");
    check(&[("suite/a.yaml", &with("verify: x\n"))], &["suite/a.yaml", "a dialogue and has no `verify`"]);
    check(
        &[("suite/a.yaml", &with("- {say: x, when: \"said(\"}\n"))],
        &["suite/a.yaml:6", "`said` takes words"],
    );
    check(
        &[("suite/a.yaml", &with("- {say: x, when: \"ok('get')\"}\n"))],
        &["suite/a.yaml:4:1", "a user does not see calls"],
    );
    check(&[("suite/a.yaml", &with("actions:\n- {name: dig}\n"))], &["suite/a.yaml:6", "no jinx `dig`"]);
    check(&[("suite/a.yaml", &with("documents: [x]\n"))], &["suite/a.yaml:6", "no document `x`"]);
    check(&[("suite/a.yaml", &with("horizon: 0\n"))], &["suite/a.yaml:6", "above 0"]);
    check(
        &[("suite/a.yaml", task), ("suite/suite.yaml", "database: x.json\n")],
        &["suite/suite.yaml:1", "a JSON file"],
    );
    check(&[("suite/a.yaml", task), ("suite/suite.yaml", "teams: x\n")], &["suite/suite.yaml:1", "`team`"]);
    let broken = [("suite/a.yaml", task), ("suite/suite.yaml", "database: d.json\n"), ("suite/d.json", "{")];
    check(&broken, &["suite/d.json:1", "no JSON"]);
    let plain = "id: a-1\ncategory: a\ndifficulty: easy\ninstruction: x\nverify: 'true'\ndatabase: {}\n";
    check(&[("suite/a.yaml", plain)], &["`database` belongs to a dialogue"]);
}
