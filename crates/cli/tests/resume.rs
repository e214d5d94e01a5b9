//! Conversations continue after an end, an interrupt or a kill: nothing is repeated, nothing is
//! lost.

use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::time::Duration;

use alara_harness::trace::{self, Record};
use serde_json::{Value, json};

use crate::dirs::{TestDir, code, sandboxed, text};
use crate::endpoint::server::{Answer, Server, end, event};

/// The steps of the work, by turn.
const TURNS: [&[usize]; 5] = [&[1], &[2, 3], &[4], &[5, 6, 7], &[8]];
/// How often the work is killed.
const KILLS: usize = 50;

/// Returns a step's command: the step is done only if both lines are there.
fn command(step: usize) -> String {
    format!("echo {step} >> log; mkdir -p d; echo {step} > d/{step}; sleep 0.05; echo end {step} >> log")
}

/// The model: makes all calls that haven't succeeded yet, turn by turn, until all are done.
fn next(body: &Value) -> Answer {
    let messages = body["messages"].as_array().unwrap();
    let of = |role: &'static str| messages.iter().filter(move |message| message["role"] == role);
    let calls: Vec<&Value> =
        of("assistant").flat_map(|message| message["tool_calls"].as_array()).flatten().collect();
    let is_success = |message: &&Value| message["content"].as_str().unwrap().starts_with(r#"{"ok":true"#);
    let successes: BTreeSet<&str> =
        of("tool").filter(is_success).map(|message| message["tool_call_id"].as_str().unwrap()).collect();
    let is_done = |step: &usize| {
        let arguments = json!({"command": command(*step)}).to_string();
        calls.iter().any(|call| {
            call["function"]["arguments"] == *arguments && successes.contains(call["id"].as_str().unwrap())
        })
    };
    let Some(turn) = TURNS.iter().find(|turn| !turn.iter().all(is_done)) else {
        return Answer::events(&[crate::endpoint::server::text("Done."), end("stop")]);
    };
    let todo = turn.iter().filter(|step| !is_done(step));
    let new: Vec<Value> = todo
        .enumerate()
        .map(|(index, step)| {
            let id = format!("c{}", calls.len() + index);
            let arguments = json!({"command": command(*step)}).to_string();
            json!({"index": index, "id": id, "type": "function", "function": {"name": "shell", "arguments": arguments}})
        })
        .collect();
    let chunk = json!({"choices": [{"index": 0, "delta": {"tool_calls": new}, "finish_reason": null}]});
    let pause = crate::endpoint::server::Piece::Pause(Duration::from_millis(10));
    Answer::stream([pause, event(&chunk), event(&end("tool_calls"))])
}

/// Pseudo-random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Returns the log for these finished steps.
fn log(steps: &[usize]) -> String {
    steps.iter().map(|step| format!("{step}\nend {step}\n")).collect()
}

/// Returns the steps that succeeded according to a trace, in order, and whether all are done.
fn done(path: &std::path::Path) -> (Vec<usize>, bool) {
    let (mut steps, mut answered) = (Vec::new(), false);
    for entry in trace::read(path).unwrap() {
        match &*entry.record {
            Record::ToolResult { call, result, .. } if result.ok => {
                let command = call.arguments["command"].as_str().unwrap();
                steps.push(command.split(' ').nth(1).unwrap().parse().unwrap());
            }
            Record::End { outcome } => answered = matches!(outcome, alara_harness::Outcome::Answer { .. }),
            _ => answered = false,
        }
    }
    (steps, answered)
}

/// Returns the only trace in the state directory.
fn trace_of(dir: &TestDir) -> Option<std::path::PathBuf> {
    let mut files = dir.path("state/alara/traces").read_dir().ok()?.flatten().map(|entry| entry.path());
    files.find(|path| path.extension().is_some_and(|ending| ending == "jsonl"))
}

/// Kills the program after a delay; returns false if it had already ended.
fn kill_after(mut command: Command, wait: Duration) -> bool {
    let mut child = command.spawn().unwrap();
    std::thread::sleep(wait);
    let running = child.try_wait().unwrap().is_none();
    let _ = child.kill();
    child.wait().unwrap();
    running
}

fn killed_and_resumed(more: &[&str]) {
    let server = Server::thinking(next);
    let model = format!("{}/v1#m", server.url);
    let mut random = Random(7);
    let mut kills = 0;
    while kills < KILLS / 2 {
        let dir = TestDir::calling(&[]);
        dir.write("work/keep", "mine\n");
        let mut first = true;
        loop {
            let wait = Duration::from_millis(20 + random.below(600));
            let mut command = match (first, trace_of(&dir)) {
                (false, Some(path)) => {
                    let id = path.file_stem().unwrap().to_str().unwrap().to_owned();
                    dir.alara(&["run", "--resume", &id])
                }
                _ => dir.alara(&["run", "-m", &model, "--workdir", "work", "do it"]),
            };
            command.args(more);
            first = false;
            kills += usize::from(kill_after(command, wait));
            let Some(path) = trace_of(&dir) else {
                first = true;
                continue;
            };
            if std::fs::read(&path).unwrap().is_empty() {
                std::fs::remove_file(&path).unwrap();
                first = true;
                continue;
            }
            if done(&path).1 {
                break;
            }
            // Sometimes the state is inspected before the run continues.
            if random.below(2) == 0 {
                let work = dir.path("work").canonicalize().unwrap();
                let undo = dir.path("state/alara/undo");
                let journal = alara_harness::undo::Journal::new(undo.join(format!("test-{kills}")));
                let resumed = alara_harness::resume::resume(&path, &work, Some((&undo, &journal))).unwrap();
                drop(resumed);
                let written = std::fs::read_to_string(work.join("log")).unwrap_or_default();
                assert_eq!(written, log(&done(&path).0), "after {kills} kills");
            }
        }
        let (steps, _) = done(&trace_of(&dir).unwrap());
        assert_eq!(steps, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(std::fs::read_to_string(dir.path("work/log")).unwrap(), log(&steps));
        assert_eq!(std::fs::read_to_string(dir.path("work/keep")).unwrap(), "mine\n");
        assert_eq!(dir.path("work/d").read_dir().unwrap().count(), 8);
        let names: BTreeSet<String> = dir
            .path("work")
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names, ["d", "keep", "log"].map(str::to_owned).into());
    }
}

#[test]
fn killed_at_random_moments_nothing_is_done_twice_or_lost() {
    if sandboxed("killed_at_random_moments_nothing_is_done_twice_or_lost") {
        killed_and_resumed(&[]);
    }
}

#[test]
fn killed_at_random_moments_it_is_so_without_a_guard_too() {
    if sandboxed("killed_at_random_moments_it_is_so_without_a_guard_too") {
        killed_and_resumed(&["--yes"]);
    }
}

fn said(output: &Output) -> (i32, String, String) {
    (code(output), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_run_goes_on_with_what_it_was() {
    let dir = TestDir::with(
        &json!([{"calls": [{"name": "shell", "arguments": {"command": "echo a > a"}}]}, {"text": "First."}]),
    );
    let run = |arguments: &[&str]| said(&dir.alara(&[&["run"], arguments].concat()).output().unwrap());
    let begun = run(&["-m", "script:script.json", "--workdir", "work", "--temperature", "0.5", "make a"]);
    assert_eq!((begun.0, begun.1.as_str()), (0, "First.\n"));
    let path = trace_of(&dir).unwrap();
    // Nothing is left to do.
    let (status, _, complaint) = run(&["--continue", "--workdir", "work"]);
    assert!(status == 2 && complaint.contains("the last task was answered"), "{complaint}");
    dir.write("work/b", "by me\n");
    dir.write("script.json", &json!([{"text": "Second."}]).to_string());
    let (status, answer, complaint) = run(&["--continue", "--workdir", "work", "and", "now?"]);
    assert_eq!((status, answer.as_str()), (0, "Second.\n"), "{complaint}");
    assert!(complaint.contains("changed since then: b"), "{complaint}");
    let id = path.file_stem().unwrap().to_str().unwrap();
    let who = format!("goes on with {id}: worker of alara, with script\n");
    assert!(complaint.contains(&who), "{complaint}");
    // The same model, temperature and directory; one trace.
    let entries = trace::read(&path).unwrap();
    let starts = entries.iter().filter(|entry| matches!(&*entry.record, Record::Start(_)));
    assert_eq!(starts.count(), 1);
    let messages = trace::request(entries.iter().map(|entry| &*entry.record)).messages;
    let last = &messages[messages.len() - 2].content;
    assert!(last.ends_with("there were changes to b.\n\nand now?"), "{last}");
    assert_eq!(dir.path("state/alara/traces").read_dir().unwrap().count(), 1);
    let (_, list, hint) = said(&dir.alara(&["trace", "list"]).output().unwrap());
    assert!(list.contains("make a") && hint.contains("--resume ID"), "{list}{hint}");
    let (_, rows, _) = said(&dir.alara(&["trace", "list", "--json"]).output().unwrap());
    let row: Value = serde_json::from_str(&rows).unwrap();
    assert_eq!((&row["resumable"], &row["outcome"]), (&json!(true), &json!("answer")));
}

#[test]
fn a_chat_goes_on_with_each_npc() {
    let dir = TestDir::with(&json!([{"text": "One."}, {"text": "Two."}]));
    for name in ["one", "two"] {
        let npc = format!("name: {name}\nprimary_directive: Help.\njinxes: []\n");
        dir.write(&format!("team/{name}.npc"), &npc);
    }
    dir.write("team/team.ctx", "forenpc: one\n");
    let model = ["-m", "script:script.json", "--workdir", "work"];
    let begun = said(&dir.with_input(&[&["chat", "-t", "team"], &model[..]].concat(), "hi\n@two hello\n"));
    assert_eq!((begun.0, begun.1.as_str()), (0, "One.\nTwo.\n"), "{}", begun.2);
    dir.write("script.json", &json!([{"text": "Three."}, {"text": "Four."}]).to_string());
    let path = trace_of(&dir).unwrap();
    let id = path.file_stem().unwrap().to_str().unwrap();
    let (status, shown, complaint) =
        said(&dir.with_input(&["chat", "--resume", id], "again\n@one again\n/history\n"));
    assert_eq!(status, 0, "{complaint}");
    // The NPC of the latest message continues.
    assert!(shown.starts_with("Three.\nFour.\n"), "{shown}{complaint}");
    assert!(complaint.contains(&format!("goes on with {id}")), "{complaint}");
    let scopes: Vec<String> = trace::read(&path)
        .unwrap()
        .into_iter()
        .filter(|entry| matches!(&*entry.record, Record::User { .. }))
        .map(|entry| entry.scope)
        .collect();
    assert_eq!(scopes, ["", "@two", "@two", ""]);
}

#[test]
fn what_can_not_go_on_is_said_so() {
    let dir = TestDir::calling(&["sleep 5"]);
    let run = |arguments: &[&str]| said(&dir.alara(arguments).output().unwrap());
    let refused = |arguments: &[&str], why: &str| {
        let (status, _, complaint) = run(arguments);
        assert!(status == 2 && complaint.contains(why), "{arguments:?}: {complaint}");
    };
    refused(&["chat", "--continue"], "no conversation was held in ");
    refused(&["run", "--resume", "nothing"], "there is no trace and no file nothing\nhint: alara trace list");
    refused(&["run", "--resume", "a", "--continue"], "cannot be used with");
    refused(&["run", "--continue", "--trace", "t", "x"], "cannot be used with");
    // It would revert interrupted changes.
    refused(&["run", "--continue", "--dry-run", "x"], "cannot be used with");
    refused(&["run", "a.jinx", "--continue"], "a jinx has no conversation");
    dir.write("not.jsonl", "no\n");
    refused(&["run", "--resume", "not.jsonl"], "not.jsonl:1: not a trace record");
    let mut first =
        dir.alara(&["run", "-m", "script:script.json", "--workdir", "work", "do it"]).spawn().unwrap();
    let begun = std::time::Instant::now();
    while trace_of(&dir).is_none_or(|path| trace::read(&path).unwrap().len() < 3) {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
    refused(&["run", "--continue", "--workdir", "work"], "is being written by another alara");
    let (_, rows, _) = run(&["trace", "list"]);
    assert!(rows.contains("running"), "{rows}");
    let (_, rows, _) = run(&["trace", "list", "--json"]);
    assert!(rows.contains(r#""resumable":false"#), "{rows}");
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn a_trace_from_elsewhere_says_neither_where_nor_with_which_model() {
    let dir = TestDir::with(&json!([{"text": "First."}]));
    dir.write("team/team.ctx", "forenpc: one\n");
    dir.write("team/one.npc", "name: one\nprimary_directive: Help.\njinxes: []\n");
    let run = |arguments: &[&str]| said(&dir.alara(&[&["run"], arguments].concat()).output().unwrap());
    let model = ["-m", "script:script.json"];
    let begun =
        run(&[&["-t", "team", "--workdir", "work", "--trace", "t.jsonl"], &model[..], &["hi"]].concat());
    assert_eq!((begun.0, begun.1.as_str()), (0, "First.\n"), "{}", begun.2);
    dir.write("script.json", &json!([{"text": "Second."}]).to_string());
    // Its team needs a confirmation, like one that was found.
    let (status, _, complaint) = run(&[&["--resume", "t.jsonl"], &model[..], &["again"]].concat());
    assert!(status == 2 && complaint.contains("nobody said yes"), "{complaint}");
    let (status, answer, complaint) =
        run(&[&["--resume", "t.jsonl", "--yes"], &model[..], &["again"]].concat());
    assert_eq!((status, answer.as_str()), (0, "Second.\n"), "{complaint}");
    let work: Vec<_> = trace::read(&dir.path("t.jsonl"))
        .unwrap()
        .into_iter()
        .filter_map(|entry| match &*entry.record {
            Record::Start(start) => Some(start.work.clone()),
            _ => None,
        })
        .collect();
    let root = dir.root.path().canonicalize().unwrap();
    assert_eq!(work, [root.join("work"), root]);
}
