//! `alara chat` and `alara trace` from outside: lines through a pipe, with a scripted model.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::dirs::{TestDir, sandboxed, text};

/// Sets up a team of two NPCs.
fn talking(script: &Value) -> TestDir {
    let dir = TestDir::with(script);
    dir.write("team/team.ctx", "forenpc: worker\n");
    dir.write("team/worker.npc", "name: worker\nprimary_directive: You work.\njinxes: [shell, guarded]\n");
    dir.write("team/critic.npc", "name: critic\nprimary_directive: You judge.\njinxes: []\n");
    dir.write(
        "team/jinxes/guarded.jinx",
        "jinx_name: guarded\npermission: ask\ninputs: [a, {b: 1}]\nsteps: [{engine: bash, code: 'echo \"$a-$b\"'}]\n",
    );
    dir
}

/// Returns the output of a chat for these lines: answers, and the rest.
fn chat(dir: &TestDir, lines: &[&str]) -> (String, String) {
    let arguments = ["chat", "-t", "team", "-m", "script:script.json", "--workdir", "work"];
    let output =
        dir.with_input(&arguments, &lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    (text(&output.stdout), text(&output.stderr))
}

/// Returns the user's messages in the latest trace, with their conversations.
fn message(dir: &TestDir) -> Vec<(String, String)> {
    let shown = dir.with_input(&["trace", "show", "--json"], "");
    let records = text(&shown.stdout);
    let records = records.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let users = records.filter(|record| record["record"] == "user");
    users.map(|record| (text(&record["in"]), text(&record["text"]))).collect()
}

fn contains(shown: &str, expected: &[&str]) {
    for expected in expected {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
}

#[test]
fn answers_are_printed_and_calls_told_in_a_line() {
    if !sandboxed("answers_are_printed_and_calls_told_in_a_line") {
        return;
    }
    let dir = talking(&json!([
        {"text": "I **look**.", "calls": [{"name": "shell", "arguments": {"command": "echo one; ls nope"}}]},
        {"text": "Done.\u{1b}[31m"},
        {"text": "Two lines\nit was."},
    ]));
    let (answers, shown) = chat(&dir, &["do it", "", "a \\", "b"]);
    assert_eq!(answers, "I **look**.\nDone.\u{fffd}[31m\nTwo lines\nit was.\n");
    contains(
        &shown,
        &["> shell  command: echo one; ls nope  failed with exit status 2, ", "s: ls: cannot access 'nope'"],
    );
    contains(&shown, &["[0 prompt tokens (0% cached), "]);
    assert_eq!(message(&dir)[1].1, "a \nb");
}

#[test]
fn a_person_runs_jinxes_and_the_npc_hears_of_it() {
    if !sandboxed("a_person_runs_jinxes_and_the_npc_hears_of_it") {
        return;
    }
    let guarded = json!({"calls": [{"name": "guarded", "arguments": {"a": "x"}}]});
    let dir = talking(&json!([{"text": "I see."}, guarded, {"text": "Tried."}]));
    let lines = [
        "/shell echo \"a  b\" | tr a c",
        "/guarded b=2 y",
        "/guarded b=z a",
        "/nothing",
        "what did I do?",
        "try it",
    ];
    let (answers, shown) = chat(&dir, &lines);
    assert_eq!(answers, "c  b\ny-2\nI see.\nTried.\n");
    contains(&shown, &["> guarded  a: x  failed, ", "nobody is there to be asked"]);
    contains(
        &shown,
        &["error: argument `b` must be of type integer", "there is no command and no jinx /nothing"],
    );
    let heard = &message(&dir)[0].1;
    contains(heard, &["I ran /shell echo \"a  b\" | tr a c: {\"ok\":true,\"output\":\"c  b\"}\n\n"]);
    contains(heard, &["\n\nwhat did I do?"]);
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let output = dir.with_input(arguments, "");
        let shown = text(&output.stdout);
        assert!(output.status.code() == Some(code) && shown.contains(expected), "{arguments:?}: {output:?}");
    };
    check(&["trace", "replay"], 0, "the same: ");

    let arguments = ["chat", "-t", "team", "-m", "script:script.json", "--workdir", "work", "--yes"];
    let output = dir.with_input(&arguments, "hi\ntry it\n");
    contains(&text(&output.stderr), &["> guarded  a: x  ok, "]);
    check(&["trace", "replay"], 0, "the same: ");
    check(&["trace", "replay", "--run"], 0, "the same: ");
    check(&["trace", "show"], 0, "guarded is allowed by an answer\n");
}

#[test]
fn each_npc_has_its_own_conversation() {
    let dir = talking(&json!([
        {"text": "one"}, {"text": "two"}, {"text": "three"}, {"text": "four"},
    ]));
    let (answers, shown) =
        chat(&dir, &["first", "@critic second", "third", "@critic", "fourth", "@nobody x", "/npcs"]);
    assert!(answers.starts_with("one\ntwo\nthree\nfour\n* @critic"), "{answers}");
    contains(&shown, &["this is critic", "there is no NPC `nobody` in the team (known: critic, worker)"]);
    let message = message(&dir);
    let expected = [("", "first"), ("@critic", "second"), ("", "third"), ("@critic", "fourth")];
    let message: Vec<(&str, &str)> =
        message.iter().map(|(scope, text)| (scope.as_str(), text.as_str())).collect();
    assert_eq!(message, expected);
    let replayed = dir.with_input(&["trace", "replay"], "");
    assert_eq!(
        (text(&replayed.stdout).as_str(), replayed.status.code()),
        ("the same: 14 records\n", Some(0)),
        "{replayed:?}"
    );
}

#[test]
fn commands() {
    let dir = talking(&json!([{"text": "# One\n**1**"}, {"text": "again"}, {"text": "new"}]));
    dir.write("other.json", &json!([{"text": "other"}]).to_string());
    let (answers, shown) = chat(
        &dir,
        &[
            "/help",
            "/jinxes",
            "say one",
            "/retry",
            "/history 2",
            "/stats",
            "/save saved.md",
            "/clear",
            "hello",
            "/model script:none.json",
            "/model script:other.json",
            "say other",
            "/team",
            "/team ./nowhere",
            "/history x",
            "/quit",
            "never said",
        ],
    );
    contains(&answers, &["/retry", "/shell command", "/guarded a [b]", "# One\n**1**\nagain\n"]);
    contains(&answers, &["## you\nsay one\n\n## worker\nagain\n\n2 turns, 0 tool calls; 0 prompt tokens"]);
    contains(&answers, &["new\nother\n"]);
    assert!(!answers.contains("never"));
    contains(
        &shown,
        &[
            "written to saved.md",
            "a new conversation; its trace is ",
            "can't read the script none.json",
            "No such file or directory (os error 2)\nscript\n",
            "team (team)",
            "there is no team in ./nowhere",
            "`x` is no number",
        ],
    );
    let saved = std::fs::read_to_string(dir.path("saved.md")).unwrap();
    assert_eq!(saved, "## you\nsay one\n\n## worker\nagain\n\n");
    let listed = text(&dir.with_input(&["trace", "list"], "").stdout);
    let tasks: Vec<&str> = listed.lines().filter_map(|line| line.rsplit("  ").next()).collect();
    assert_eq!(tasks, ["hello", "say one"]);
}

#[test]
fn answers_are_set_and_told_otherwise() {
    let dir = talking(&json!([{"text": "one"}, {"text": "two"}, {"text": "three"}]));
    let lines = [
        "/set",
        "/set temprature 1",
        "/set temperature 0.7",
        "/set max_tokens 77",
        "/set thinking off",
        "/system",
        "/system You sing.",
        "/system",
        "say one",
        "/set reset",
        "/system reset",
        "say two",
        "@critc",
        "/hlep",
    ];
    let (answers, shown) = chat(&dir, &lines);
    contains(
        &answers,
        &["temperature", "default", "max_tokens", "4096", "the NPC", "You work.\nYou sing.\none\n"],
    );
    contains(&shown, &["there is no `temprature` to be set\nhint: /set temperature", "temperature 0.7\n"]);
    contains(&shown, &["max_tokens 77\n", "thinking off\n", "all is as it was at the start\n"]);
    contains(&shown, &["no NPC `critc` in the team (known: critic, worker)\nhint: @critic"]);
    contains(&shown, &["no command and no jinx /hlep\nhint: /help\n"]);
    let records = text(&dir.with_input(&["trace", "show", "--json"], "").stdout);
    let starts = records.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let starts: Vec<Value> = starts.filter(|record| record["record"] == "start").collect();
    let told = |start: &Value| {
        (
            start["system"][0]["text"].clone(),
            start["limits"]["turn_tokens"].clone(),
            start["thinking"].clone(),
        )
    };
    assert_eq!(told(&starts[0]), (json!("You sing."), json!(77), json!(false)));
    assert_eq!(told(&starts[1]), (json!("You work."), json!(4096), Value::Null));
    let temperature = starts[0]["sampling"]["temperature"].as_f64().unwrap();
    assert!((temperature - 0.7).abs() < 1e-6 && starts[1]["sampling"]["temperature"] == 0.0);
}

#[test]
fn what_an_npc_was_told_holds_when_its_conversation_goes_on() {
    let dir = talking(&json!([{"text": "one"}, {"text": "two"}]));
    chat(&dir, &["/system You sing.", "say one"]);
    let goes_on = |command: &[&str], input: &str| {
        let arguments = [command, &["--continue", "--workdir", "work"]].concat();
        let output = dir.with_input(&arguments, input);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let records = text(&dir.with_input(&["trace", "show", "--json"], "").stdout);
        let mut records = records.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let start = records.rfind(|record| record["record"] == "start").unwrap();
        let directive = start["system"][0]["text"].as_str().unwrap().to_owned();
        (text(&output.stdout), text(&output.stderr), directive)
    };
    let (answers, shown, directive) = goes_on(&["chat"], "/system\nsay two\n");
    assert_eq!((answers.as_str(), directive.as_str()), ("You sing.\none\n", "You sing."));
    contains(&shown, &["worker keeps the system prompt of /system; /system reset takes it back\n"]);
    assert_eq!(goes_on(&["run", "say three"], "").2, "You sing.");
    assert_eq!(goes_on(&["chat"], "/system reset\nsay four\n").2, "You work.");
    let (_, shown, directive) = goes_on(&["chat"], "say five\n");
    assert!(directive == "You work." && !shown.contains("/system"), "{shown}");
}

#[test]
fn calls_are_folded_and_the_last_is_shown_in_full() {
    if !sandboxed("calls_are_folded_and_the_last_is_shown_in_full") {
        return;
    }
    let call = |command: &str| json!({"calls": [{"name": "shell", "arguments": {"command": command}}]});
    let dir = talking(&json!([call("seq 3"), call("echo a\necho b"), {"text": "Done."}]));
    let (answers, shown) = chat(&dir, &["do it", "/last", "/last 2", "/last 3", "/last x"]);
    contains(&shown, &["> shell  command: seq 3  ok, ", " s: 1 (+2 lines)\n"]);
    contains(&answers, &["Done.\n> shell  ok, ", " s\n  command: echo a\n    echo b\n  | a\n  | b\n"]);
    contains(&answers, &["  command: seq 3\n  | 1\n  | 2\n  | 3\n"]);
    contains(&shown, &["worker has not made so many calls", "`x` is no number\nhint: /last 2"]);
}

#[test]
fn tools_of_mcp_servers_are_commands() {
    if !sandboxed("tools_of_mcp_servers_are_commands") {
        return;
    }
    let dir = talking(&json!([{"text": "I see."}]));
    let server = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.sh");
    std::fs::copy(server, dir.path("team/echo.sh")).unwrap();
    dir.write("team/team.ctx", "forenpc: worker\nmcp_servers: [{name: echo, path: echo.sh}]\n");
    let npc = "name: worker\nprimary_directive: You work.\njinxes: [shell]\nmcp_servers: [echo]\n";
    dir.write("team/worker.npc", npc);
    let arguments = ["chat", "-t", "team", "-m", "script:script.json", "--workdir", "work", "--yes"];
    let output = dir.with_input(&arguments, "/a text=hi\n/jinxes\nwhat did I do?\n/b b\n");
    let (answers, shown) = (text(&output.stdout), text(&output.stderr));
    contains(&answers, &["hi", "/a text [times]", "Says it again.", "I see.\n"]);
    assert!(!shown.contains("error"), "{shown}");
    contains(&message(&dir)[0].1, &["I ran /a text=hi: {\"ok\":true", "what did I do?"]);
    let replayed = dir.with_input(&["trace", "replay", "-t", "team"], "");
    contains(&text(&replayed.stdout), &["the same: "]);
}

#[test]
fn a_plain_chat_has_no_tools() {
    let dir = TestDir::with(&json!([{"text": "Hello."}]));
    let arguments = ["chat", "-t", "alara", "-n", "chat", "-m", "script:script.json", "--workdir", "work"];
    let output = dir.with_input(&arguments, "hi\n");
    assert_eq!(text(&output.stdout), "Hello.\n", "{output:?}");
    let records = text(&dir.with_input(&["trace", "show", "--json"], "").stdout);
    let start: Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
    assert_eq!((&start["npc"], &start["tools"]), (&json!("chat"), &json!([])));
}

#[test]
fn a_changed_team_is_read_again() {
    let dir = talking(&json!([{"text": "one"}, {"text": "two"}, {"text": "three"}]));
    let arguments = ["chat", "-t", "team", "-m", "script:script.json", "--workdir", "work"];
    let mut child = dir.alara(&arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut say = |text: &str, expected: &str| {
        input.write_all(format!("{text}\n").as_bytes()).unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        assert_eq!(line.trim_end(), expected);
    };
    say("first", "one");
    dir.write("team/worker.npc", "name: worker\nprimary_directive: You work hard.\njinxes: [shell]\n");
    say("second", "two");
    dir.write("team/worker.npc", "name: [worker\n");
    say("third", "three");
    drop(input);
    let shown = text(&child.wait_with_output().unwrap().stderr);
    contains(&shown, &["the team's files have changed and are read again"]);
    let records = text(&dir.with_input(&["trace", "show", "--json"], "").stdout);
    let starts: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let starts: Vec<&Value> = starts.iter().filter(|record| record["record"] == "start").collect();
    assert_eq!(starts[0]["system"][0]["text"], "You work.");
    assert_eq!(starts[1]["system"][0]["text"], "You work hard.");
    assert_eq!(starts[1]["tools"].as_array().unwrap().len(), 1);
}

#[test]
fn traces_are_listed_shown_and_replayed() {
    if !sandboxed("traces_are_listed_shown_and_replayed") {
        return;
    }
    let dir = talking(&json!([
        {"text": "I look.", "calls": [{"name": "shell", "arguments": {"command": "ls; touch new"}}]},
        {"text": "Nothing there."},
    ]));
    let arguments =
        ["run", "-t", "team", "-m", "script:script.json", "--workdir", "work", "--trace", "t.jsonl", "look"];
    assert_eq!(dir.with_input(&arguments, "").status.code(), Some(0));
    let check = |arguments: &[&str], code, expected: &str| {
        let output = dir.with_input(arguments, "");
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.code() == Some(code) && shown.contains(expected), "{arguments:?}: {output:?}");
    };
    check(&["trace", "list"], 0, "there are no traces yet");
    check(&["trace", "show"], 2, "there are no traces yet");
    std::fs::create_dir_all(dir.path("state/alara/traces")).unwrap();
    std::fs::copy(dir.path("t.jsonl"), dir.path("state/alara/traces/77-1.jsonl")).unwrap();
    check(&["trace", "list"], 0, "worker        answer      2 turns, 1 call      look\n");
    check(&["trace", "list", "--search", "nothing there"], 0, "77-1");
    check(&["trace", "list", "--search", "elsewhere"], 0, "no trace says that");
    check(&["trace", "list", "--json"], 0, "\"id\":\"77-1\"");
    check(&["trace", "list", "-n", "0"], 0, "there are more: `-n 100` lists the latest 100, `--search TEXT`");
    for (file, step, printed) in [
        ("good", "{engine: bash, code: 'true'}", "answer      0 turns, 0 calls     good\n"),
        ("bad", "{engine: bash, code: 'false'}", "failed      0 turns, 0 calls     bad\n"),
        ("asks", "{engine: llm, prompt: what}", "answer      1 turn, 0 calls      asks\n"),
    ] {
        dir.write(&format!("{file}.jinx"), &format!("steps: [{step}]\n"));
        dir.write("say.json", r#"[{"text": "that"}]"#);
        let trace = format!("state/alara/traces/{file}.jsonl");
        dir.with_input(&["run", &format!("{file}.jinx"), "-m", "script:say.json", "--trace", &trace], "");
        check(&["trace", "list", "-n", "1"], 0, printed);
        std::fs::remove_file(dir.path(&trace)).unwrap();
    }
    check(
        &["trace", "show", "77"],
        0,
        "user: look\nsays: I look.\n> shell  command: ls; touch new\n      1 file changed\n  ok, ",
    );
    check(&["trace", "show", "t.jsonl"], 0, "= worker of team with script; tools: shell, guarded\n");
    check(&["trace", "show", "88"], 2, "there is no trace and no file 88\nhint: alara trace list");
    std::fs::copy(dir.path("t.jsonl"), dir.path("state/alara/traces/77-2.jsonl")).unwrap();
    check(
        &["trace", "show", "77"],
        2,
        "more than one trace has 77 in its id, the latest:\n  77-2  look\n  77-1  look\n",
    );
    std::fs::remove_file(dir.path("state/alara/traces/77-2.jsonl")).unwrap();
    check(&["trace", "replay"], 0, "the same: 7 records\n");
    check(&["trace", "replay", "--run"], 0, "the same: 7 records\n");
    check(
        &["trace", "replay", "--run", "--workdir", "work"],
        1,
        "differs after 4 records, in result/output\n",
    );
    check(&["trace", "replay", "--run", "--workdir", "work", "--json"], 1, "\"replayed\":{");
    dir.write("team/worker.npc", "name: worker\nprimary_directive: You rest.\njinxes: [shell]\n");
    let expected = "differs after 0 records, in system/0/text\n  recorded  start: You work.\n  replayed  start: You rest.\n";
    check(&["trace", "replay"], 1, expected);
    check(&["trace", "replay", "-t", "alara"], 1, "differs after 0 records, in team\n");
}
