//! `alara bench tasks` from outside: feedback, a kill in the middle, private `/tmp`, and messages
//! about wrong usage.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A directory with task files, run files and the folders in which tasks run.
/// It isn't below `/tmp`, which tasks can't see.
pub struct RunDir {
    root: tempfile::TempDir,
}

impl RunDir {
    pub fn new(files: &[(&str, &str)]) -> Self {
        // Tasks have a private `/tmp`; files that they share with a test must be elsewhere.
        let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let base = if base.starts_with("/tmp") { Path::new("/var/tmp") } else { base };
        let root = tempfile::tempdir_in(base).unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::fs::create_dir_all(root.path().join("tasks")).unwrap();
        RunDir { root }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn alara(&self, arguments: &[&str]) -> Command {
        let mut command = crate::alara();
        command
            .args(["bench", "tasks"])
            .args(arguments)
            .current_dir(self.root.path())
            .env("TMPDIR", self.path("tasks"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.alara(arguments).output().unwrap()
    }

    pub fn records(&self, name: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the folders that tasks have left behind.
    pub fn task_dirs(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.path("tasks")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

pub fn yaml(id: &str, verify: &str, gold: &str) -> String {
    let task = json!({
        "id": id, "category": "test", "difficulty": "easy", "instruction": "Do it.", "verify": verify, "gold": gold,
    });
    task.to_string()
}

pub fn shell(command: &str) -> Value {
    json!({"calls": [{"name": "shell", "arguments": {"command": command}}]})
}

pub fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until `done` returns true.
pub fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_agent_solves_a_task_after_feedback() {
    let replies = json!([shell("touch parcels"), {"text": "Done."}, shell("rm parcels && mkdir parcels && touch parcels/depot.txt"), {"text": "Done."}]);
    let dir = RunDir::new(&[("script.json", &replies.to_string())]);
    let arguments =
        ["-m", "script:script.json", "--task", "shell-01", "--attempts", "5", "--out", "run.jsonl"];
    let output = dir.run(&[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let table: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&table["total"]["solved"], &table["total"]["solved_first"]), (&json!(1), &json!(0)));
    assert_eq!(table["categories"]["shell"]["tool_calls"], json!(2));

    let records = dir.records("run.jsonl");
    let kinds: Vec<_> = records.iter().map(|record| record["record"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["header", "attempt", "attempt", "task"]);
    assert_eq!(records[0]["suite"]["name"], "alara");
    assert_eq!(records[0]["model"]["hash"].as_str().unwrap().len(), 64);
    assert_eq!((&records[1]["verdict"], &records[2]["verdict"]), (&json!("failed"), &json!("solved")));
    let trace = dir.records(records[2]["trace"].as_str().unwrap());
    let message: Vec<_> =
        trace.iter().filter(|record| record["record"] == "user").map(|record| &record["text"]).collect();
    assert_eq!(message[1], "The check failed: There is no folder parcels.\nTry again.");
    assert!(dir.task_dirs().is_empty(), "{:?}", dir.task_dirs());
}

#[test]
fn the_requests_of_a_run_are_replayed() {
    let replies = json!([shell("touch parcels"), {"text": "Done."}, shell("rm parcels"), {"text": "Done."}]);
    let dir = RunDir::new(&[("script.json", &replies.to_string()), ("empty.jsonl", "")]);
    let output =
        dir.run(&["-m", "script:script.json", "--task", "shell-01", "--attempts", "2", "--out", "run.jsonl"]);
    assert!(output.status.success(), "{output:?}");
    let trace = dir.records("run.jsonl")[1]["trace"].as_str().unwrap().to_owned();
    let prefix = |file: &str| {
        let mut command = crate::alara();
        command.args([
            "bench",
            "prefix",
            "--replay",
            file,
            "--sizes",
            "100,999999",
            "--parallel",
            "1",
            "-n",
            "2",
            "--beside",
            "0",
            "--json",
        ]);
        command.current_dir(dir.path("")).output().unwrap()
    };
    // Given as a run, or as one trace.
    for file in ["run.jsonl", &trace] {
        let output = prefix(file);
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&report["trace"]["requests"], &report["trace"]["too_long"]),
            (&json!(4), &json!(0)),
            "{report}"
        );
        assert!(report["trace"]["share"].as_f64().unwrap() >= 0.98, "{report}");
        assert_eq!((&report["too_long"], &report["beside"]), (&json!([999_999]), &Value::Null));
        assert!(report["first_token"][0]["snapshot_share"].is_number(), "{report}");
        assert!(report["parallel"][0]["tasks_per_minute"].is_number(), "{report}");
    }
    let output = prefix("empty.jsonl");
    assert_eq!(output.status.code(), Some(2));
    assert!(words(&output.stderr).contains("no model was asked anything in empty.jsonl"), "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_run_leaves_no_process_and_goes_on() {
    let dir = RunDir::new(&[]);
    // The second task hangs unless its niceness exceeds this test's, because it can't see any file
    // to wait for.
    // It sleeps for a unique time, since another run of this test may be active.
    let time = format!("98765.{}", std::process::id());
    let niceness = words(&Command::new("nice").output().unwrap().stdout);
    let hang = format!("touch begun; [ $(nice) -gt {} ] || sleep {time}; touch done", niceness.trim());
    for (id, gold) in [("a-1", "touch done"), ("a-2", hang.as_str()), ("a-3", "touch done")] {
        let file = dir.path("suite").join(format!("{id}.yaml"));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, yaml(id, "[ -f done ]", gold)).unwrap();
    }
    let sleeping = || {
        std::fs::read_dir("/proc").unwrap().any(|entry| {
            let line = std::fs::read(entry.unwrap().path().join("cmdline")).unwrap_or_default();
            line == format!("sleep\0{time}\0").as_bytes()
        })
    };
    let mut child = dir.alara(&["suite", "--gold", "--parallel", "1", "--out", "run.jsonl"]).spawn().unwrap();
    wait("the second task", sleeping);
    child.kill().unwrap();
    child.wait().unwrap();
    wait("the end of its processes", || !sleeping());
    assert!(!dir.task_dirs().is_empty(), "the kill left nothing to clean up");
    // As if the kill had interrupted the writing of a record.
    let mut text = std::fs::read_to_string(dir.path("run.jsonl")).unwrap();
    text += "{\"record\":\"attempt\",\"task\":\"a-2\",\"at";
    std::fs::write(dir.path("run.jsonl"), text).unwrap();

    let output = dir.run(&["suite", "--gold", "--seed", "1", "--resume", "run.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(words(&output.stderr).contains("`sampling.seed` is 0 in the file and 1 now"), "{output:?}");

    let again = dir.alara(&["suite", "--gold", "--resume", "run.jsonl"]);
    let environment = again.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let mut nicer = Command::new("nice");
    nicer.arg(again.get_program()).args(again.get_args()).envs(environment).current_dir(dir.path(""));
    let output = nicer.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!words(&output.stderr).contains("a-1"), "the first task ran again: {output:?}");
    let records = dir.records("run.jsonl");
    let tasks: Vec<_> = records.iter().skip(1).map(|record| record["task"].as_str().unwrap()).collect();
    assert_eq!(tasks, ["a-1", "a-1", "a-2", "a-2", "a-3", "a-3"]);
    assert!(dir.task_dirs().is_empty(), "{:?}", dir.task_dirs());
}

#[test]
#[cfg(target_os = "linux")]
fn an_interrupted_run_says_how_to_go_on() {
    let dir = RunDir::new(&[("a.yaml", &yaml("a", "true", "sleep 87654.3"))]);
    let child = dir.alara(&["a.yaml", "--gold", "--out", "run.jsonl"]).spawn().unwrap();
    let begun = || {
        // Below a folder of the user and one of the process.
        let below = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
        let processes = below(dir.path("tasks")).flat_map(|user| below(user.path()));
        processes.map(|process| process.path()).any(|process| process.join("a/tmp/work").exists())
    };
    wait("the task", begun);
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(words(&output.stderr).contains("bench tasks a.yaml --gold --resume run.jsonl"), "{output:?}");
    assert_eq!(dir.records("run.jsonl").len(), 1);
    assert!(dir.task_dirs().is_empty(), "{:?}", dir.task_dirs());
}

#[test]
#[cfg(target_os = "linux")]
fn tasks_in_tmp_leave_the_real_one_alone() {
    let folder = format!("/tmp/alara-e2e-{}", std::process::id());
    let suite = format!(
        "id,category,difficulty,setup_cmd,instruction,verify_cmd,description\n\
         a-1,a,easy,mkdir {folder} && echo 3 > {folder}/in,Double it.,test $(cat {folder}/out) = 6,\n\
         a-2,a,easy,,Is it clean?,test ! -e {folder},\n"
    );
    let replies = json!([shell(&format!("echo $(($(cat {folder}/in) * 2)) > {folder}/out; ls -a /tmp")), {"text": "Done."}, {"text": "Yes."}]);
    let dir = RunDir::new(&[("old.csv", &suite), ("script.json", &replies.to_string())]);
    let output = dir.run(&["old.csv", "-m", "script:script.json", "--out", "run.jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let verdicts: Vec<_> = dir
        .records("run.jsonl")
        .iter()
        .filter(|record| record["record"] == "task")
        .map(|record| record["verdict"].clone())
        .collect();
    assert_eq!(verdicts, ["solved", "solved"]);
    assert!(!Path::new(&folder).exists());
}

#[test]
#[cfg(target_os = "linux")]
fn a_missing_program_is_no_failure_of_the_agent() {
    let dir = RunDir::new(&[
        ("s/a.yaml", &yaml("a", "git log", "true")),
        ("s/b.yaml", &yaml("b", "[ -f x ]", ": > x")),
    ]);
    let bash = Command::new("bash").args(["-c", "command -v bash"]).output().unwrap();
    std::fs::create_dir(dir.path("bin")).unwrap();
    std::os::unix::fs::symlink(words(&bash.stdout).trim(), dir.path("bin/bash")).unwrap();
    let mut command = dir.alara(&["s", "--gold", "--parallel", "1", "--out", "run.jsonl"]);
    let output = command.env("PATH", dir.path("bin")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let records = dir.records("run.jsonl");
    let ends: Vec<_> = records.iter().filter(|record| record["record"] == "task").collect();
    assert_eq!((&ends[0]["verdict"], &ends[0]["reason"]), (&json!("error"), &json!("git is not installed")));
    assert_eq!(ends[1]["verdict"], "solved");
}

#[test]
#[cfg(target_os = "linux")]
fn tasks_are_tried_once_and_side_by_side_unless_told_otherwise() {
    let task = |id| yaml(id, "[ -f x ]", ": > x");
    let dir = RunDir::new(&[("s/a.yaml", &task("a")), ("s/b.yaml", &task("b")), ("s/c.yaml", &task("c"))]);
    let output = dir.run(&["s", "--gold", "--out", "run.jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let cores = std::thread::available_parallelism().unwrap().get().min(16);
    let header = &dir.records("run.jsonl")[0];
    assert_eq!((&header["parallel"], &header["policy"]["attempts"]), (&json!(cores), &json!(1)));
    let said = words(&output.stderr);
    let before = format!("3 tasks with gold, at most 1 attempt each, {cores} at a time; about ");
    for expected in [&*before, "3 tasks in ", "the time of each task, added up: ", "--attempts 5"] {
        assert!(said.contains(expected), "{said}");
    }
    // A resumed run continues with its original options.
    assert!(dir.run(&["s", "--gold", "--parallel", "7", "--out", "seven.jsonl"]).status.success());
    let text = std::fs::read_to_string(dir.path("seven.jsonl")).unwrap();
    let begun: String = text.split_inclusive('\n').take(3).collect();
    std::fs::write(dir.path("seven.jsonl"), begun).unwrap();
    let output = dir.run(&["s", "--gold", "--resume", "seven.jsonl", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let table: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(table["total"]["solved"], 3);
    let (wall, added) = (&table["wall_seconds"], &table["total"]["seconds"]);
    assert!(wall.as_f64().unwrap() > 0.0 && added.as_f64().unwrap() > 0.0, "{table}");
    // A sweep uses the study's rule.
    let output = dir.run(&["s", "--gold", "--trials", "1", "--out", "sweep"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let file = std::fs::read_dir(dir.path("sweep")).unwrap().map(|entry| entry.unwrap().path());
    let file = file.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl")).last().unwrap();
    assert_eq!(dir.records(file.to_str().unwrap())[0]["policy"]["attempts"], 5);
}

#[test]
fn wrong_usage_is_answered_with_help() {
    let dir = RunDir::new(&[
        ("a.yaml", "id: a\nverify: [\n"),
        ("notes.txt", ""),
        ("no.yaml", &yaml("a", "true", " ")),
        (
            "old.csv",
            "id,category,difficulty,setup_cmd,instruction,verify_cmd,description\na,a,easy,,Go.,ls,\n",
        ),
    ]);
    let check = |arguments: &[&str], expected: &str| {
        let output = dir.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(words(&output.stderr).contains(expected), "{arguments:?} says {}", words(&output.stderr));
        assert!(!dir.path("runs").exists(), "{arguments:?} left a run file");
    };
    check(&["absent"], "can't read the suite absent");
    check(&["--task", "data-99"], " and 95 more)");
    check(&["--attempts", "0"], "a number from 1 up is wanted");
    check(&["notes.txt"], "is no suite");
    check(&["a.yaml"], "a.yaml");
    check(&["no.yaml"], "the field `gold` is empty");
    check(&["old.csv", "--gold"], "a .csv file has no column for it");
    check(&["-c", "gitt"], "no category `gitt`, did you mean `git`? (known: data, debug");
    check(&["--task", "git-9"], "no task `git-9`");
    check(&["--attempts", "0"], "--attempts");
    check(&["--temperature=-1"], "a temperature is");
    check(&["-n", "nobody"], "nobody");
    check(&["-m", "absent.gguf"], "absent.gguf");
    check(&["--resume", "absent.jsonl", "--gold"], "absent.jsonl");
    check(&["--resume", "notes.txt", "--gold"], "does not begin with the header");
}

/// Plays all gold solutions through the harness, with this parallelism.
#[cfg(target_os = "linux")]
fn gold(parallel: &str) {
    let dir = RunDir::new(&[]);
    let output =
        dir.run(&["--gold", "--attempts", "1", "--parallel", parallel, "--out", "run.jsonl", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let records = dir.records("run.jsonl");
    let ends: Vec<_> = records.iter().filter(|record| record["record"] == "task").collect();
    assert_eq!(ends.len(), 115);
    for end in ends {
        assert_eq!(end["verdict"], "solved", "{end}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_gold_solutions_pass_one_at_a_time() {
    gold("1");
}

#[test]
#[cfg(target_os = "linux")]
fn the_gold_solutions_pass_eight_at_a_time() {
    gold("8");
}

#[test]
fn lists_the_suite() {
    let dir = RunDir::new(&[]);
    let text = words(&dir.run(&["--list"]).stdout);
    assert!(text.starts_with("suite alara, 115 tasks, hash "), "{text}");
    assert_eq!(text.lines().count(), 116);
    let listed: Value = serde_json::from_slice(&dir.run(&["--list", "--json", "-c", "git"]).stdout).unwrap();
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 10);
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_goes_on_with_the_options_that_it_began_with() {
    let task = |id| yaml(id, "[ -f done ]", "touch done");
    let dir = RunDir::new(&[("suite/a.yaml", &task("a-1")), ("suite/b.yaml", &task("a-2"))]);
    let begun = dir.run(&["suite", "--gold", "--seed", "5", "--parallel", "1", "--out", "run.jsonl"]);
    assert_eq!(begun.status.code(), Some(0), "{begun:?}");
    let whole = std::fs::read_to_string(dir.path("run.jsonl")).unwrap();
    let first: Vec<&str> = whole.lines().take(3).collect();
    std::fs::write(dir.path("run.jsonl"), first.join("\n") + "\n").unwrap();
    let output = dir.run(&["--resume", "run.jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let records = dir.records("run.jsonl");
    assert_eq!(records[0]["sampling"]["seed"], 5);
    let tasks: Vec<_> = records.iter().skip(1).map(|record| record["task"].as_str().unwrap()).collect();
    assert_eq!(tasks, ["a-1", "a-1", "a-2", "a-2"]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_wrong_gold_solution_fails_the_run() {
    let dir = RunDir::new(&[
        ("suite/a.yaml", &yaml("a-1", "[ -f done ]", "touch done")),
        ("suite/b.yaml", &yaml("a-2", "[ -f done ]", "touch other")),
    ]);
    let output = dir.run(&["suite", "--gold", "--out", "run.jsonl"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(words(&output.stderr).contains("the gold solution fails its check in a-2"), "{output:?}");
}
