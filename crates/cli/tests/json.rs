//! `--json`: every command with this option prints JSON on stdout, and nothing else.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use crate::dirs::TestDir;

/// Collects the commands whose help has `--json`, by walking the help from the top.
fn commands(path: &[String], found: &mut BTreeSet<String>) {
    let output = crate::alara().args(path).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    // The description is next to it, or below.
    if help.lines().any(|line| line.split_whitespace().next() == Some("--json")) {
        found.insert(path.join(" "));
    }
    let listed = help.lines().skip_while(|line| line.trim() != "Commands:").skip(1);
    let names = listed.take_while(|line| !line.trim().is_empty());
    // Names are indented by two columns, descriptions by more.
    let names = names.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    for name in names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        commands(&[path, &[name.to_owned()]].concat(), found);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn every_command_with_json_prints_json() {
    let dir = TestDir::with(&json!([{"text": "Done."}]));
    let tiny = format!("{}/tests/fixtures/arch/qwen3-exact/model.gguf", crate::root().display());
    let gate = format!("{}/teams/shop/shop.gate", crate::root().display());
    dir.write(
        "suite/a.yaml",
        "id: a-1\ncategory: a\ndifficulty: easy\ninstruction: Do it.\nverify: test -e x\n",
    );
    dir.write("docs/a.md", "# A\n\nHouses and gardens.\n");
    dir.write("queries.jsonl", "{\"query\": \"houses\", \"documents\": [\"a\"]}\n");
    let script = ["-m", "script:script.json", "--workdir", "work"];
    let cases: &[(&str, &[&str])] = &[
        ("run", &[&script[..], &["--trace", "t.jsonl", "say something"]].concat()),
        // A run whose trace is in the list.
        ("run", &[&script[..], &["say something"]].concat()),
        ("check", &["alara"]),
        ("check", &["suite"]),
        ("bench tasks", &["suite", "--list"]),
        ("bench tasks", &["suite", "--plan", "-m", &tiny]),
        ("bench tasks", &["suite", "-m", "script:script.json", "--attempts", "1", "--out", "r.jsonl"]),
        (
            "bench tasks",
            &["suite", "-m", "script:script.json", "--attempts", "1", "--trials", "1", "--out", "r"],
        ),
        ("bench tasks", &["suite", "-m", "script:script.json", "--shard", "1/1", "--out", "s"]),
        ("bench tasks", &["suite", "-m", "script:script.json", "--shard", "2/2", "--out", "n"]),
        ("bench speed", &["-m", &tiny, "-p", "4", "-n", "2", "-r", "1"]),
        (
            "bench prefix",
            &["-m", &tiny, "--sizes", "32", "--parallel", "1", "-n", "2", "--beside", "0", "--words", "4"],
        ),
        ("bench drafts", &["-r", "1", "-n", "2"]),
        ("report", &["r.jsonl"]),
        ("report", &["r.jsonl", "--html", "page"]),
        ("config show", &[]),
        ("models list", &[]),
        ("models list", &["--local"]),
        ("models show", &[]),
        ("models verify", &[&tiny]),
        ("trace list", &[]),
        ("trace show", &["t.jsonl"]),
        ("trace show", &["t.jsonl", "--prompt"]),
        ("trace replay", &["t.jsonl"]),
        ("search", &["docs", "houses"]),
        ("search", &["docs", "--queries", "queries.jsonl"]),
        ("cache list", &["--cache", "cache"]),
        ("cache clear", &["--cache", "cache"]),
        ("warm", &["-m", &tiny, "--tool-format", "generic", "--cache", "cache"]),
        ("doctor", &[]),
        ("gate test", &[&gate]),
        ("debug kernels", &[]),
    ];
    for (command, arguments) in cases {
        let words: Vec<&str> =
            command.split(' ').chain(arguments.iter().copied()).chain(["--json"]).collect();
        let output = dir.alara(&words).output().unwrap();
        let (shown, error) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        // One JSON text, or one per line.
        let is_json = serde_json::from_str::<Value>(&shown).is_ok()
            || (!shown.is_empty() && shown.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
        assert!(is_json, "{words:?}: {shown}{error}");
    }
    let mut known = BTreeSet::new();
    commands(&[], &mut known);
    known.remove("serve");
    // It runs for minutes.
    known.remove("tune");
    let tried: BTreeSet<String> = cases.iter().map(|(command, _)| (*command).to_owned()).collect();
    assert_eq!(known, tried, "a command with --json is not tried here");
    // It prints its address, and keeps running.
    let mut server =
        dir.alara(&["serve", "-m", "script:script.json", "--port", "0", "--json"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(serde_json::from_str::<Value>(&line).unwrap()["url"].is_string(), "{line}");
}

#[test]
fn errors_are_json_too() {
    let dir = TestDir::with(&json!([]));
    dir.write("bad.jinx", "jinx_name: bad\nstep: []\n");
    for (arguments, error, hint, place) in [
        (&["run", "--json", "-t", "nowhere", "x"][..], "there is no team `nowhere`", false, None),
        (&["run", "--json", "-m", "no-such", "x"], "there is no model file no-such", true, None),
        (&["models", "show", "--json", "no-such"], "there is no model file no-such", true, None),
        (&["bench", "tasks", "no-such", "--json"], "can't read the suite no-such", false, None),
        (&["trace", "show", "--json", "999"], "999", true, None),
        (&["run", "--json", "bad.jinx"], "", false, Some("bad.jinx:1:1")),
        (&["run", "--json", "--no-such-option"], "unexpected argument '--no-such-option'", false, None),
    ] {
        let output = dir.alara(arguments).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        let object: Value = serde_json::from_str(&shown).unwrap_or_else(|_| panic!("{arguments:?}: {shown}"));
        let message = object["error"].as_str().unwrap();
        assert!(message.contains(error), "{arguments:?}: {message}");
        assert_eq!(object["hint"].is_string(), hint, "{arguments:?}: {object}");
        assert_eq!(object["place"].as_str(), place, "{arguments:?}: {object}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("error: "), "{arguments:?}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn what_has_no_json_prints_errors_as_text_alone() {
    let dir = TestDir::with(&json!([]));
    for (arguments, option) in [(&["undo", "--json"], "--json"), (&["undo", "--tensors"], "--tensors")] {
        let output = dir.alara(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            error.starts_with(&format!("error: unexpected argument '{option}' found\n\nUsage: ")),
            "{error}"
        );
        assert!(!error.contains("as a value") && output.stdout.is_empty(), "{output:?}");
        assert_eq!(output.status.code(), Some(2));
    }
    // What no command knows may be part of a task.
    let output = dir.alara(&["run", "--7"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("as a value, use '-- --7'"), "{output:?}");
}

#[test]
fn events_come_one_object_a_line() {
    let dir = TestDir::calling(&["echo one"]);
    let arguments = ["run", "-m", "script:script.json", "--workdir", "work", "--json-stream", "do it"];
    let output = dir.alara(&arguments).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (model, others): (Vec<&Value>, Vec<&Value>) =
        events.iter().partition(|event| event["notice"] == "model");
    let names: Vec<&str> = others.iter().map(|event| event["notice"].as_str().unwrap()).collect();
    assert_eq!(names, ["turn", "call", "result", "turn", "outcome"], "{shown}");
    assert_eq!(others[1]["call"]["arguments"], json!({"command": "echo one"}));
    assert_eq!((&others[2]["ok"], &others[2]["output"]), (&json!(true), &json!("one")));
    assert!(model.iter().any(|event| event["event"] == json!({"type": "text", "text": "Done."})), "{shown}");
    let last = others[4];
    assert_eq!(
        (&last["outcome"], &last["text"], &last["calls"]),
        (&json!("answer"), &json!("Done."), &json!(1))
    );
    let output = dir.alara(&[&arguments[..], &["-t", "nowhere"]].concat()).output().unwrap();
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(error["error"].as_str().unwrap().contains("nowhere"), "{error}");
}
