//! `alara run` from outside, with a scripted model: what users see.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::dirs::{TestDir, code, sandboxed, text};

#[test]
fn a_task_shows_what_it_does() {
    let dir = TestDir::with(&json!([
        {"text": "I look.", "calls": [{"name": "shell", "arguments": {"command": "echo one > f; cat f; ls nope"}}]},
        {"text": "All done."},
    ]));
    let output = dir.task().output().unwrap();
    assert_eq!((code(&output), text(&output.stdout).as_str()), (0, "All done.\n"));
    let shown = text(&output.stderr);
    for expected in [
        "I look.\n> shell  command: echo one > f; cat f; ls nope  failed with exit status 2, ",
        " s: ls: cannot access 'nope': No such file or directory (+1 line)\n",
        "2 turns, 1 tool call; 0 prompt tokens (0 cached), 5 generated; trace trace.jsonl",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
    assert!(dir.path("work/f").exists());
    let kinds: Vec<Value> = dir.trace().iter().map(|record| record["record"].clone()).collect();
    let expected = ["start", "user", "assistant", "tool_call", "changed", "tool_result", "assistant", "end"];
    assert_eq!(kinds, expected);
}

#[test]
fn json_tells_the_outcome() {
    let dir = TestDir::calling(&["true"]);
    let output = dir.task().arg("--json").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["outcome"], &report["text"], &report["turns"], &report["calls"], &report["trace"]),
        (&json!("answer"), &json!("Done."), &json!(2), &json!(1), &json!("trace.jsonl"))
    );
}

#[test]
fn a_trace_is_kept_in_the_state_directory() {
    let dir = TestDir::calling(&[]);
    let output = dir.alara(&["run", "-m", "script:script.json", "--workdir", "work", "x"]).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    assert_eq!(dir.path("state/alara/traces").read_dir().unwrap().count(), 1);
}

#[test]
fn wrong_usage_is_answered_with_help() {
    let dir = TestDir::calling(&[]);
    dir.write("bad/w.npc", "name: w\nprimary_directive: [x\n");
    dir.write("empty/readme", "");
    let check = |arguments: &[&str], expected: &str| {
        let output = dir.alara(arguments).output().unwrap();
        assert_eq!(code(&output), 2, "{arguments:?} gave {output:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?} said {}", text(&output.stderr));
    };
    check(
        &["run", "-n", "wroker", "x"],
        "there is no NPC `wroker`, did you mean `worker`? (known: analyst, chat, coder, lead, reviewer, worker, writer)",
    );
    check(&["run", "-t", "alarm", "x"], "there is no team `alarm`, did you mean `alara`?");
    check(
        &["run", "-t", "./none", "x"],
        "there is no team in ./none: a team is a directory with a .ctx file",
    );
    check(&["run", "-t", "empty", "x"], "there is no team in empty: a team is a directory");
    check(&["run", "-t", "bad", "x"], "bad/w.npc:2:20: error: unclosed bracket");
    check(
        &["run", "--workdir", "none", "x"],
        "the work directory none can't be used: No such file or directory",
    );
    check(&["run", " "], "there is no task\nhint: alara run ");
    check(&["run"], "there is no task\nhint: alara run ");
    check(&["run", "--temperature=-1", "x"], "a temperature is a number from 0 up");
    check(&["run", "-m", "script:none.json", "x"], "can't read the script none.json");
}

#[test]
fn a_jinx_runs_by_itself() {
    let dir = TestDir::with(&json!([{"text": "An answer"}]));
    dir.write(
        "add.jinx",
        "inputs: [{a: {type: int}}, b: 1]\nsteps: [{engine: bash, code: 'echo $((a + b))'}]\n",
    );
    dir.write("ask.jinx", "inputs: [q]\nsteps: [{engine: llm, prompt: '{{ q }}'}]\n");
    let check = |arguments: &[&str], expected: (i32, &str, &str)| {
        let output = dir.alara(&[&["run"], arguments].concat()).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(
            (code(&output), text(&output.stdout).as_str(), error.trim_end()),
            expected,
            "{arguments:?}"
        );
    };
    if !sandboxed("a_jinx_runs_by_itself") {
        return;
    }
    check(&["add.jinx", "a=2"], (0, "3\n", ""));
    check(&["add.jinx", "a=2", "b=5"], (0, "7\n", ""));
    check(&["--json", "add.jinx", "a=2"], (0, "{\"ok\":true,\"output\":\"3\",\"exit\":0}\n", ""));
    check(&["add.jinx", "a=x"], (2, "", "error: argument `a` must be of type integer"));
    check(&["add.jinx"], (2, "", "error: argument `a` is missing"));
    check(&["add.jinx", "a=1", "c=2"], (2, "", "error: `add` has no argument `c`; it takes: a, b"));
    check(&["ask.jinx", "-m", "script:script.json", "q=what"], (0, "An answer\n", ""));
}

#[test]
fn network_is_there_for_a_jinx_that_declares_it() {
    if !sandboxed("network_is_there_for_a_jinx_that_declares_it") {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("port={}", listener.local_addr().unwrap().port());
    let dir = TestDir::calling(&[]);
    let jinx =
        "inputs: [port]\nsteps: [{engine: bash, code: 'exec 3<>/dev/tcp/127.0.0.1/$port && echo open'}]\n";
    dir.write("closed.jinx", jinx);
    dir.write("open.jinx", &format!("network: true\n{jinx}"));
    let output = dir.alara(&["run", "open.jinx", &port]).output().unwrap();
    assert_eq!(text(&output.stdout), "open\n", "{output:?}");
    assert_eq!(code(&dir.alara(&["run", "closed.jinx", &port]).output().unwrap()), 1);
}

#[test]
fn nothing_survives_a_kill() {
    if !sandboxed("nothing_survives_a_kill") {
        return;
    }
    let dir = TestDir::calling(&["(setsid sleep 8642 &) ; sleep 8642"]);
    let temporary = tempfile::tempdir().unwrap();
    let mut child = dir.task().env("TMPDIR", temporary.path()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the tool runs", || running("8642") >= 2);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("nothing is left", || running("8642") == 0);
    // The trace is complete up to the call.
    assert_eq!(dir.trace().last().unwrap()["record"], "tool_call");
    // The next process removes what this one couldn't.
    let next = TestDir::calling(&["true"]).task().env("TMPDIR", temporary.path()).output().unwrap();
    assert_eq!(code(&next), 0, "{next:?}");
    assert_eq!(temporary.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_kill_loses_nothing_that_ran_side_by_side() {
    if !sandboxed("a_kill_loses_nothing_that_ran_side_by_side") {
        return;
    }
    let dir = TestDir::calling(&[]);
    dir.write(
        "many.jinx",
        "effect: read\nsteps: [{for: i, in: 'range(3)', parallel: true, do: [{emit: {type: n, content: '{{ i }}'}}, \
         {engine: bash, code: 'sleep 8571'}]}]\n",
    );
    let many = ["run", "many.jinx", "--workdir", "work", "--threads", "3", "--trace", "trace.jsonl"];
    let mut child = dir.alara(&many).spawn().unwrap();
    wait_until("the tools run", || running("8571") == 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let shown = dir.alara(&["trace", "show", "trace.jsonl"]).output().unwrap();
    let shown = text(&shown.stdout);
    let printed: Vec<&str> = shown.lines().map(str::trim).filter(|line| line.starts_with("* ")).collect();
    let response = |n: usize| format!(r#"* {{"type":"n","content":{n}}}"#);
    assert_eq!(printed, [response(0), response(1), response(2)], "{shown}");
}

#[test]
fn an_interrupt_ends_the_run_cleanly() {
    if !sandboxed("an_interrupt_ends_the_run_cleanly") {
        return;
    }
    let dir = TestDir::calling(&["sleep 9753"]);
    let child = dir.task().spawn().unwrap();
    wait_until("the tool runs", || running("9753") == 1);
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 130, "{output:?}");
    assert_eq!(running("9753"), 0);
    let trace = dir.trace();
    assert_eq!(trace.last().unwrap()["outcome"], json!({"outcome": "cancelled"}));
    assert!(text(&output.stderr).contains("interrupted\n1 turn, 1 tool call"), "{output:?}");
}

/// Counts the processes that sleep for this number of seconds.
fn running(seconds: &str) -> usize {
    let sleeps = |path: &Path| {
        std::fs::read(path.join("cmdline")).is_ok_and(|line| line == format!("sleep\0{seconds}\0").as_bytes())
    };
    Path::new("/proc")
        .read_dir()
        .map_or(0, |entries| entries.flatten().filter(|entry| sleeps(&entry.path())).count())
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_schema_holds_the_answer_or_is_refused() {
    let dir = TestDir::with(&json!([{"text": "5"}]));
    dir.write("alone/team.ctx", "forenpc: one\n");
    dir.write("alone/one.npc", "name: one\nprimary_directive: Answer.\njinxes: []\n");
    let schema = json!({
        "type": "object",
        "properties": {"verdict": {"enum": ["yes", "no"]}, "count": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["verdict", "count"],
    });
    dir.write("good.json", &schema.to_string());
    dir.write("sets.json", r#"{"properties": {"a": {"type": "array", "uniqueItems": true}}}"#);
    dir.write("text.json", "yes or no");
    dir.write("number.json", "3");
    dir.write("x.jinx", "jinx_name: x\nsteps:\n  - name: a\n    engine: bash\n    code: echo\n");
    let run = |team: &str, more: &[&str]| {
        let _ = std::fs::remove_file(dir.path("t.jsonl"));
        let first = ["run", "-t", team, "--workdir", "work", "--trace", "t.jsonl"];
        dir.alara(&[&first[..], more].concat()).output().unwrap()
    };

    // The model that ships, alone and with tools.
    for team in ["alone", "alara"] {
        let output = run(team, &["--schema", "good.json", "--json", "Is 3 a number?"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        if let (Some(answer), true) = (report["text"].as_str(), report["outcome"] == "answer") {
            let answer: Value = serde_json::from_str(answer).unwrap();
            assert!(["yes", "no"].contains(&answer["verdict"].as_str().unwrap()), "{answer}");
            assert!((0..=9).contains(&answer["count"].as_i64().unwrap()), "{answer}");
        } else {
            assert_ne!(team, "alone", "{report}");
        }
    }
    let trace = std::fs::read_to_string(dir.path("t.jsonl")).unwrap();
    let start: Value = serde_json::from_str(trace.lines().next().unwrap()).unwrap();
    assert_eq!(start["schema"], schema);

    let refused = |more: &[&str], words: &[&str]| {
        let output = run("alone", more);
        let error = text(&output.stderr);
        assert_eq!(code(&output), 2, "{more:?}: {error}");
        assert!(words.iter().all(|words| error.contains(words)), "{more:?}: {error}");
    };
    refused(&["--schema", "none.json", "x"], &["can't read the schema none.json"]);
    refused(
        &["--schema", "text.json", "x"],
        &["text.json is no JSON: expected value at line 1 column 1", "\nhint: "],
    );
    refused(&["--schema", "number.json", "x"], &["number.json is no JSON schema", "\nhint: "]);
    refused(&["--schema", "good.json", "x.jinx"], &["--schema is for the answer to a task"]);
    refused(
        &["--schema", "sets.json", "x"],
        &["the output schema can't be guaranteed: uniqueItems at /properties/a/uniqueItems: ", "\nhint: "],
    );
    let words = "can't write calls in the mistral format: [TOOL_CALLS] is no token of its vocabulary\nhint: ";
    refused(&["--tool-format", "mistral", "x"], &[words]);
    refused(
        &["--tool-format", "morse", "x"],
        &["invalid value 'morse' for '--tool-format <NAME>'", "hermes"],
    );
}

#[test]
fn delegated_work_has_a_heading_where_it_shows_something() {
    if !sandboxed("delegated_work_has_a_heading_where_it_shows_something") {
        return;
    }
    let (no, yes) = (r#"{"complete": false, "feedback": "More."}"#, r#"{"complete": true, "feedback": ""}"#);
    for (verdict, code_of_call, told) in [
        (yes, 0, "delegate  npc_name: counter  task: Count.  max_iterations: 1  ok, "),
        (no, 0, " s: not complete after 1 try: More. (+1 line)\n"),
    ] {
        let given = json!({"npc_name": "counter", "task": "Count.", "max_iterations": 1});
        let dir = TestDir::with(&json!([
            {"calls": [{"name": "delegate", "arguments": given}]},
            {"calls": [{"name": "shell", "arguments": {"command": "true"}}]},
            {"text": "Counted."},
            {"text": verdict},
            {"text": "Done."},
        ]));
        dir.write("team/team.ctx", "name: t\nforenpc: boss\n");
        dir.write("team/boss.npc", "name: boss\nprimary_directive: Lead.\njinxes: [delegate]\n");
        dir.write("team/counter.npc", "name: counter\nprimary_directive: Count.\njinxes: [shell]\n");
        let output = dir.task().args(["-t", "team"]).output().unwrap();
        let shown = text(&output.stderr);
        assert_eq!(code(&output), code_of_call, "{shown}");
        assert!(shown.contains(told) && !shown.contains("exit status"), "{shown}");
        // The review prints nothing, so nothing is headed by its NPC.
        assert!(shown.contains("counter:\n  > shell  command: true  ok, "), "{shown}");
        assert!(!shown.contains("boss:"), "{shown}");
    }
}
