//! Agents' jobs: `shell` with `background`, and `jobs`.

use serde_json::{Value, json};

use crate::dirs::{TeamDir, TestDir, code, sandboxed, text};

fn background(command: &str) -> Value {
    json!({"command": command, "background": true})
}

#[test]
fn a_job_is_started_listed_read_and_ended() {
    let dir = TeamDir::stock();
    let wait = "for i in $(seq 100); do test -f up && break; sleep 0.05; done";
    let (results, _) = dir.calls(
        "coder",
        Vec::new(),
        &[
            ("jobs", json!({"action": "list"})),
            ("jobs", json!({"action": "end"})),
            (
                "shell",
                background(
                    "echo begun; while ! test -f go; do sleep 0.02; done; echo gone; touch up; exit 4",
                ),
            ),
            ("shell", background("sleep 77")),
            ("jobs", json!({"action": "list"})),
            ("shell", json!({"command": format!("touch go; {wait}; sleep 0.2")})),
            ("jobs", json!({"action": "read", "job": 1})),
            ("jobs", json!({"action": "end"})),
            ("jobs", json!({"action": "read", "job": 3})),
            ("jobs", json!({"action": "list"})),
        ],
    );
    let told: Vec<String> = results.iter().map(|result| result.text(1000)).collect();
    let check = |at: usize, expected: &str| assert!(told[at].contains(expected), "{at}: {told:#?}");
    check(0, r#"{"ok":true,"output":"no jobs were started"}"#);
    check(1, "no jobs were started");
    check(2, r#"{"ok":true,"output":"begun","note":"it goes on in the background as job 1"}"#);
    check(3, r#""note":"it goes on in the background as job 2""#);
    check(4, "1  has run for ");
    check(4, r"\n2  has run for ");
    check(4, " s: shell sleep 77\"");
    check(6, r#"{"ok":true,"output":"gone","note":"job 1 has ended (exit status 4)"}"#);
    check(7, "job 2 has ended (ended when asked to)");
    check(8, "there is no job 3; there are: 1, 2");
    check(9, "1  has ended (exit status 4): shell echo begun");
}

#[test]
fn of_a_flood_the_newest_lines_are_read_and_it_is_told() {
    let dir = TeamDir::stock();
    let flood = "while ! test -f go; do sleep 0.02; done; seq 400000; touch up; sleep 60";
    let wait = "touch go; for i in $(seq 200); do test -f up && break; sleep 0.05; done; sleep 0.3";
    let calls = [
        ("shell", background(flood)),
        ("shell", json!({"command": wait})),
        ("jobs", json!({"action": "read"})),
        ("jobs", json!({"action": "end"})),
    ];
    let (results, _) = dir.calls("coder", Vec::new(), &calls);
    let (output, dropped) = (results[2].output_text(), results[2].dropped_bytes);
    let (mark, rest) = output.split_once('\n').unwrap();
    assert_eq!(mark, format!("[… {dropped} bytes left out …]"));
    let first: u64 = rest.lines().next().unwrap().parse().unwrap();
    let expected: Vec<String> = (first..=400_000).map(|number| number.to_string()).collect();
    assert_eq!(rest, expected.join("\n"));
}

#[test]
fn what_does_not_start_in_the_background_is_told_at_once() {
    let dir = TeamDir::stock();
    let result = dir.call("coder", "shell", background("echo first; no-such-program"));
    assert_eq!((result.ok, result.exit, result.error.as_str()), (false, Some(127), "exit status 127"));
    let output = result.output.as_str().unwrap();
    assert!(output.contains("first") && output.contains("no-such-program: command not found"), "{output}");
    let result = dir.call("coder", "shell", background("echo all; exit 0"));
    assert_eq!((result.ok, result.note.as_str()), (true, "job 1 has ended (exit status 0)"));
}

#[test]
fn only_so_many_jobs_run_at_a_time() {
    let dir = TeamDir::stock();
    let mut calls = vec![("shell", background("sleep 60")); 9];
    calls.push(("jobs", json!({"action": "end", "job": 3})));
    calls.push(("shell", background("sleep 60")));
    let (results, _) = dir.calls("coder", Vec::new(), &calls);
    let ok: Vec<bool> = results.iter().map(|result| result.ok).collect();
    assert_eq!(ok, [vec![true; 8], vec![false, true, true]].concat(), "{results:#?}");
    assert_eq!(results[8].error, "not started: 8 jobs run already, which is the limit; end one first");
}

/// A script that starts and inspects jobs.
fn session(calls: &[(&str, Value)]) -> TestDir {
    let call = |(name, arguments): &(&str, Value)| json!({"calls": [{"name": name, "arguments": arguments}]});
    let mut script: Vec<Value> = calls.iter().map(call).collect();
    script.push(json!({"text": "Done."}));
    TestDir::with(&script.into())
}

/// Prints the server's response, as soon as the server is up.
const FETCH: &str = "for i in $(seq 100); do python3 -c \"import sys, urllib.request as u; \
    sys.stdout.write(u.urlopen('http://127.0.0.1:8000/page').read().decode())\" 2> /dev/null \
    && exit; sleep 0.05; done; exit 1";
const SERVE: &str = "exec python3 -u -m http.server --bind 127.0.0.1 8000";

#[test]
fn a_run_says_which_jobs_it_ended_and_its_trace_is_replayed_without_them() {
    if !sandboxed("a_run_says_which_jobs_it_ended") {
        return;
    }
    let dir = session(&[
        ("shell", background(SERVE)),
        ("shell", json!({"command": FETCH})),
        ("shell", background("echo made > new; sleep 60")),
    ]);
    dir.write("work/page", "served");
    let output = dir.task().args(["--json", "-v"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let [serve, make] = [format!("shell {SERVE}"), "shell echo made > new; sleep 60".to_owned()];
    assert_eq!(report["ended_jobs"], json!([serve, make]));
    let shown = text(&output.stderr);
    for expected in [
        format!("  job 1 runs in the background: {serve}\n"),
        format!("  job 1 is over, ended when asked to: {serve}\n"),
        "  | served\n".to_owned(),
    ] {
        assert!(shown.contains(&expected), "{expected:?} is not in\n{shown}");
    }
    // Its files have been copied to the directory, and can be reverted.
    assert_eq!(std::fs::read_to_string(dir.path("work/new")).unwrap(), "made\n");
    let told: Vec<Value> = dir.trace().into_iter().filter(|record| record["record"] == "job").collect();
    let ends: Vec<(&Value, &Value)> = told.iter().map(|record| (&record["job"], &record["ended"])).collect();
    let end = json!("ended when asked to");
    assert_eq!(
        ends,
        [(&json!(1), &Value::Null), (&json!(2), &Value::Null), (&json!(1), &end), (&json!(2), &end)]
    );
    let undone = dir.alara(&["undo"]).current_dir(dir.path("work")).output().unwrap();
    assert_eq!(code(&undone), 0, "{}", text(&undone.stderr));
    assert!(!dir.path("work/new").exists() && dir.path("work/page").exists());
    // A replay starts nothing.
    let replayed = dir.alara(&["trace", "replay", "trace.jsonl", "--workdir", "work"]).output().unwrap();
    assert_eq!(code(&replayed), 0, "{}{}", text(&replayed.stdout), text(&replayed.stderr));
    assert!(!dir.path("work/new").exists());
}

#[test]
fn a_job_that_writes_a_hook_is_stopped_and_nothing_of_it_stays() {
    if !sandboxed("a_job_that_writes_a_hook_is_stopped") {
        return;
    }
    let evil = "mkdir -p .git/hooks; echo x > .git/hooks/post-commit; echo y > fine; echo done; sleep 60";
    let dir = session(&[
        ("shell", background(evil)),
        ("jobs", json!({"action": "read"})),
        ("jobs", json!({"action": "list"})),
    ]);
    dir.write("work/page", "mine");
    let output = dir.task().args(["-n", "coder"]).output().unwrap();
    // What the job changed was refused, and a list of the jobs changes nothing.
    assert_eq!(code(&output), 1, "{}", text(&output.stderr));
    assert!(!dir.path("work/.git").exists() && !dir.path("work/fine").exists());
    let results = dir.trace().into_iter().filter(|record| record["record"] == "tool_result");
    let read: Vec<String> = results.map(|record| record["text"].as_str().unwrap().to_owned()).collect();
    let why = "ended, and no file was changed: it creates .git/hooks/post-commit, which git obeys";
    assert!(read[0].contains("done") && read[1].contains(why), "{read:?}");
    let listed = &read[2];
    assert!(listed.contains("1  has ended (ended when asked to): shell mkdir -p .git/hooks"), "{listed}");
}

/// Whether a process with this in its command line is running.
fn runs(mark: &str) -> bool {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok()).any(|line| {
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.starts_with(mark)
    })
}

#[test]
fn jobs_are_ended_with_the_session_however_it_ends() {
    if !sandboxed("jobs_are_ended_with_the_session_however_it_ends") {
        return;
    }
    for (signal, seconds) in [("-KILL", 31_571), ("-INT", 31_573), ("-TERM", 31_577)] {
        let mark = format!("sleep {seconds}");
        let command = format!("(setsid {mark} &); exec {mark}");
        let beside = format!("sleep 60{seconds}");
        let dir = session(&[("shell", background(&command)), ("shell", json!({"command": beside}))]);
        let mut alara = dir.task().spawn().unwrap();
        let begun = std::time::Instant::now();
        let wait = |what: &str, holds: &dyn Fn() -> bool| {
            while !holds() {
                assert!(begun.elapsed().as_secs() < 30, "{what} did not come about");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        };
        wait("the job", &|| runs(&beside) && runs(&mark));
        let killed = std::process::Command::new("kill").args([signal, &alara.id().to_string()]).status();
        assert!(killed.unwrap().success());
        alara.wait().unwrap();
        wait("the end of the job", &|| !runs(&mark));
    }
}
