//! Long runs from outside: kills at random times, the original suite, sweeps and their shards.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use alara_bench::Suite;
use alara_bench::task::{Solution, Task};
use serde_json::{Value, json};

use crate::bench::{RunDir, words, yaml};

/// Removes times from a record.
fn timeless(mut record: Value) -> Value {
    fn strip(value: &mut Value) {
        if let Some(map) = value.as_object_mut() {
            for name in ["seconds", "decode_seconds", "ttft", "tokens_per_second", "started"] {
                map.remove(name);
            }
            map.values_mut().for_each(strip);
        } else if let Some(list) = value.as_array_mut() {
            list.iter_mut().for_each(strip);
        }
    }
    strip(&mut record);
    record
}

fn records(dir: &RunDir, name: &str) -> Vec<Value> {
    dir.records(name).into_iter().map(timeless).collect()
}

/// Pseudo-random numbers that differ between test runs, and are printed if a test fails.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        println!("seed {}", now.as_nanos() as u64);
        Random(now.as_nanos() as u64 | 1)
    }

    fn below(&mut self, end: Duration) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        end.mul_f64((self.0 >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// Creates a suite whose tasks are solved in the first attempt, in the second, or never.
fn suite(dir: &RunDir, tasks: usize) {
    std::fs::create_dir(dir.path("suite")).unwrap();
    for number in 0..tasks {
        let verify = format!("[ $(wc -l < n) -ge {} ]", number % 3 + 1);
        let text = yaml(&format!("a-{number:02}"), &verify, "echo x >> n");
        std::fs::write(dir.path(&format!("suite/{number}.yaml")), text).unwrap();
    }
}

/// Returns the numbers of attempts and finished tasks in a run file, counting complete lines only.
fn progress(dir: &RunDir, name: &str) -> (usize, usize) {
    let text = std::fs::read_to_string(dir.path(name)).unwrap_or_default();
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let kinds: Vec<Value> =
        lines.map(|line| serde_json::from_str::<Value>(line).unwrap()["record"].clone()).collect();
    let count = |kind: &str| kinds.iter().filter(|found| *found == kind).count();
    (count("attempt"), count("task"))
}

/// A run that was interrupted and resumed has the same records as an uninterrupted one, except for
/// times and folder names.
fn assert_same(dir: &RunDir, parallel: &str, whole: &str, broken: &str) {
    let [mut expected, mut found] = [whole, broken].map(|name| records(dir, name));
    for record in expected.iter_mut().chain(&mut found).filter(|record| record["record"] == "attempt") {
        // Its folder is named after the run.
        let trace = record["trace"].take();
        assert!(trace.as_str().unwrap().ends_with(".jsonl"), "{record}");
    }
    // Parallel tasks may finish in any order; the records of each are in order.
    if parallel != "1" {
        let key = |record: &Value| record["task"].as_str().unwrap_or_default().to_owned();
        expected.sort_by_key(key);
        found.sort_by_key(key);
    }
    assert_eq!(found, expected);
}

#[test]
#[cfg(target_os = "linux")]
fn twenty_kills_lose_and_repeat_nothing() {
    const TASKS: usize = 30;
    let dir = RunDir::new(&[]);
    suite(&dir, TASKS);
    for parallel in ["1", "3"] {
        let arguments = ["suite", "--gold", "--attempts", "2", "--parallel", parallel];
        let whole = format!("whole{parallel}.jsonl");
        let begun = Instant::now();
        let output = dir.run(&[&arguments[..], &["--out", &whole]].concat());
        assert_eq!(output.status.code(), Some(1), "some gold fails on purpose: {output:?}");
        let moment = begun.elapsed() / TASKS as u32;
        let killed = format!("killed{parallel}.jsonl");
        let start = || {
            let how = if dir.path(&killed).exists() { "--resume" } else { "--out" };
            dir.alara(&[&arguments[..], &[how, &killed]].concat()).spawn().unwrap()
        };
        let (mut random, mut amid) = (Random::new(), 0);
        for number in 0..20 {
            let before = progress(&dir, &killed).1;
            let mut child = start();
            let runs = |child: &mut std::process::Child| child.try_wait().unwrap().is_none();
            // Every other kill comes early; the others at some time after this process has finished
            // a task.
            if number % 2 == 1 {
                let begun = Instant::now();
                while runs(&mut child) && progress(&dir, &killed).1 <= before {
                    assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain for a record");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            std::thread::sleep(random.below(moment));
            let ran = runs(&mut child);
            child.kill().unwrap();
            child.wait().unwrap();
            let (attempts, ended) = progress(&dir, &killed);
            amid += usize::from(ran && attempts > 0 && ended > before && ended < TASKS);
        }
        println!(
            "parallel {parallel}: {amid} of 20 kills between a process's first record and the end of the run"
        );
        assert!(amid >= 5, "only {amid} kills came between a record and the end");
        let output = start().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "some gold fails on purpose: {output:?}");
        assert_same(&dir, parallel, &whole, &killed);
        assert!(dir.task_dirs().is_empty(), "{:?}", dir.task_dirs());
    }
}

/// Runs `script` in bash with a temporary file system of limited size in `disk`.
/// `None` if this machine doesn't permit mounting one.
#[cfg(target_os = "linux")]
fn on_small_disk(dir: &RunDir, disk: &str, bytes: u64, script: &str) -> Option<std::process::Output> {
    std::fs::create_dir_all(dir.path(disk)).unwrap();
    let mount = format!("mount -t tmpfs -o size={bytes} tmpfs {disk}");
    // As root without a user namespace, else as root in a new one.
    for namespaces in [&["--mount"][..], &["--user", "--map-root-user", "--mount"]] {
        let run = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(namespaces).args(["bash", "-c", script]).current_dir(dir.path("")).output()
        };
        if run(&mount).is_ok_and(|output| output.status.success()) {
            let alara = env!("CARGO_BIN_EXE_alara");
            let alara = format!("alara() {{ ALARA_CACHE=off {alara} bench tasks \"$@\"; }}");
            return Some(run(&format!("{mount} || exit 9\n{alara}\n{script}")).unwrap());
        }
    }
    println!("SKIPPED: no file system can be mounted here");
    None
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_stops_a_run_which_then_goes_on() {
    const TASKS: usize = 16;
    let dir = RunDir::new(&[]);
    suite(&dir, TASKS);
    for parallel in ["1", "3"] {
        let whole = format!("whole{parallel}/run.jsonl");
        let arguments = format!("suite --gold --attempts 2 --parallel {parallel}");
        let output = dir.run(&[&arguments.split(' ').collect::<Vec<_>>()[..], &["--out", &whole]].concat());
        assert_eq!(output.status.code(), Some(1), "some gold fails on purpose: {output:?}");
        // Each file occupies whole pages.
        // Half of the required space is available.
        let size = |path: PathBuf| path.metadata().unwrap().len().div_ceil(4096) * 4096;
        let traces = std::fs::read_dir(dir.path(&format!("whole{parallel}/run.traces"))).unwrap();
        let needed = size(dir.path(&whole)) + traces.map(|entry| size(entry.unwrap().path())).sum::<u64>();
        for (name, tmp, bytes) in [
            // The disk of the run file and its traces, with room for some of the tasks.
            ("file", "tasks", needed / 2),
            // The disk on which tasks run, with room for only a few empty folders from the start.
            ("tasks", "disk", 40_960),
        ] {
            let folder = if name == "file" { "disk" } else { "." };
            let script = format!(
                "export TMPDIR=$PWD/{tmp}\nalara {arguments} --out {folder}/{name}.jsonl; code=$?\n\
                 cp {folder}/{name}.jsonl first; mount -o remount,size=64m disk\n\
                 alara {arguments} --resume {folder}/{name}.jsonl >&2; [ $? = 1 ] || exit 8\n\
                 cp {folder}/{name}.jsonl {name}{parallel}; rm -rf {name}.*; exit $code"
            );
            let Some(output) = on_small_disk(&dir, "disk", bytes, &script) else { return };
            let message = words(&output.stderr);
            println!("{name}, {parallel} at a time: {message}");
            assert_eq!(output.status.code(), Some(2), "{name}: {message}");
            assert!(
                message.contains("o space left on device") && message.contains("go on with:"),
                "{name}: {message}"
            );
            let first = progress(&dir, "first");
            assert!(first.1 < TASKS && (name == "tasks" || first.1 > 0), "{name}: {first:?} {message}");
            // No task is blamed for it.
            assert!(
                records(&dir, "first")
                    .iter()
                    .all(|record| record["record"] != "task" || record["verdict"] != "error"),
                "{name}"
            );
            assert_same(&dir, parallel, &whole, &format!("{name}{parallel}"));
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn an_agent_that_fills_the_disk_stops_nobody_else() {
    let dir = RunDir::new(&[]);
    std::fs::create_dir(dir.path("suite")).unwrap();
    for (id, gold) in
        [("a", "touch done"), ("b", "head -c 99999999 /dev/zero > x; exit 1"), ("c", "touch done")]
    {
        std::fs::write(dir.path(&format!("suite/{id}.yaml")), yaml(id, "[ -f done ]", gold)).unwrap();
    }
    let script = "TMPDIR=$PWD/disk alara suite --gold --parallel 1 --out run.jsonl";
    let Some(output) = on_small_disk(&dir, "disk", 8 << 20, script) else { return };
    assert!(output.status.success(), "{output:?}");
    let records = dir.records("run.jsonl");
    let ends = records.iter().filter(|record| record["record"] == "task");
    let ends: Vec<_> = ends.map(|end| end["verdict"].as_str().unwrap()).collect();
    assert_eq!(ends, ["solved", "error", "solved"], "{records:#?}");
}

#[test]
#[cfg(target_os = "linux")]
fn what_agents_make_of_their_folders_stays_theirs() {
    let dir = RunDir::new(&[("canary/deep/x", "x")]);
    std::fs::create_dir(dir.path("suite")).unwrap();
    let canary = dir.path("canary").display().to_string();
    let link = |name: &str| format!("cd /tmp; mv {name} old; ln -s {canary} {name}");
    let golds =
        [link("work"), link(".home"), "chmod 0 /tmp/work /tmp/.home".into(), "rm -r /tmp/work".into()];
    for (number, gold) in golds.iter().enumerate() {
        let text = yaml(&format!("a-{number}"), "[ -e /tmp/solved ]", gold);
        std::fs::write(dir.path(&format!("suite/{number}.yaml")), text).unwrap();
    }
    for retry in ["fresh", "paper"] {
        let file = format!("{retry}.jsonl");
        let output = dir.run(&["suite", "--gold", "--attempts", "2", "--retry", retry, "--out", &file]);
        assert_eq!(output.status.code(), Some(1), "some gold fails on purpose: {output:?}");
        let records = dir.records(&file);
        let ends = records.iter().filter(|record| record["record"] == "task");
        let ends: Vec<_> = ends.map(|end| (&end["verdict"], &end["attempts"])).collect();
        assert_eq!(ends, vec![(&json!("failed"), &json!(2)); 4], "{records:#?}");
        assert_eq!(std::fs::read_dir(dir.path("canary")).unwrap().count(), 1);
        assert!(dir.path("canary/deep/x").exists());
        assert!(dir.task_dirs().is_empty(), "{:?}", dir.task_dirs());
    }
}

/// Returns large reference data, if present.
fn shared(path: &str) -> Option<PathBuf> {
    crate::absent::shared(path)
}

/// Returns a command that fills the files that a task of the original suite names with plausible
/// contents.
fn junk(task: &Task) -> String {
    let mut text = String::from(
        r#"make() {
  case ${1##*/} in *.*) ;; *) return ;; esac
  [ ! -e "$1" ] && mkdir -p "${1%/*}" 2>/dev/null || return
  case $1 in
    *.py) for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo 'print("1 2 3 7 5")'; done ;;
    *.sh) echo 'for i in 1 2 3; do echo 1 2 3 5; done' ;;
    *.json) echo '[]' ;;
    *) for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo 'junk 1 2 3 4 5'; done ;;
  esac > "$1"
}
"#,
    );
    for words in [&task.verify, &task.instruction] {
        for (at, _) in words.match_indices("/tmp/") {
            let is_part = |c: char| c.is_alphanumeric() || "_./-".contains(c);
            let path = words[at..].split(|c| !is_part(c)).next().unwrap_or_default();
            text += &format!("make {}\n", path.trim_end_matches(['.', ',', '/']));
        }
    }
    text
}

#[test]
#[cfg(target_os = "linux")]
fn junk_passes_the_original_checks_that_it_is_known_to_pass() {
    let Some(folder) = shared("fixtures/tasks") else { return };
    let suite = Suite::load(&folder.join("npcsh-tasks-115.csv")).unwrap();
    let dir = RunDir::new(&[]);
    std::fs::create_dir(dir.path("junk")).unwrap();
    for task in &suite.tasks {
        let played = Task { gold: Some(Solution::Bash(junk(task))), ..task.clone() };
        let text = serde_json::to_string(&played).unwrap();
        std::fs::write(dir.path(&format!("junk/{}.yaml", task.id)), text).unwrap();
    }
    let before = std::fs::read_dir("/tmp").unwrap().count();
    let output = dir.run(&["junk", "--gold", "--attempts", "1", "--parallel", "8", "--out", "run.jsonl"]);
    assert_eq!(output.status.code(), Some(1), "some gold fails on purpose: {output:?}");
    let records = dir.records("run.jsonl");
    let ends: Vec<_> = records.iter().filter(|record| record["record"] == "task").collect();
    assert_eq!(ends.len(), 115);
    let with = |verdict: &str| -> Vec<&str> {
        let found = ends.iter().filter(|end| end["verdict"] == verdict);
        let mut names: Vec<_> = found.map(|end| end["task"].as_str().unwrap()).collect();
        names.sort_unstable();
        names
    };
    let known = std::fs::read_to_string(folder.join("junk-passes.txt")).unwrap();
    let mut known: Vec<&str> = known.split_whitespace().collect();
    known.sort_unstable();
    assert_eq!(with("solved"), known);
    assert_eq!(with("error"), Vec::<&str>::new(), "{}", words(&output.stderr));
    let after = std::fs::read_dir("/tmp").unwrap().count();
    println!("/tmp has {before} entries before and {after} after");
}

#[test]
#[cfg(target_os = "linux")]
fn a_sweep_writes_a_file_for_each_run_and_goes_on() {
    let sweep = "suite: suite\nconditions:\n  - {name: once, attempts: 1}\n  - {name: fresh, attempts: 2, retry: fresh}\ntrials: 2\n";
    let dir = RunDir::new(&[("two.bench", sweep)]);
    suite(&dir, 3);
    let verdicts = |name: &str| -> Vec<String> {
        let records = dir.records(name);
        let ends = records.iter().filter(|record| record["record"] == "task");
        ends.map(|end| end["verdict"].as_str().unwrap().to_owned()).collect()
    };
    let output = dir.run(&["two.bench", "--gold", "--parallel", "1", "--out", "all"]);
    assert_eq!(output.status.code(), Some(1), "some gold fails on purpose: {output:?}");
    assert_eq!(verdicts("all/model.once.1.jsonl"), ["solved", "failed", "failed"]);
    // A second attempt that starts over does the same as the first.
    assert_eq!(verdicts("all/model.fresh.2.jsonl"), ["solved", "failed", "failed"]);
    let header = &dir.records("all/model.fresh.2.jsonl")[0];
    assert_eq!((&header["trial"], &header["sampling"]["seed"]), (&json!(2), &json!(1)));
    assert_eq!(header["policy"], json!({"retry": "fresh", "attempts": 2}));

    // Shards: each has its own files, and together they cover all of the work.
    for shard in ["1/2", "2/2"] {
        let output = dir.run(&["two.bench", "--gold", "--resume", "parts", "--shard", shard]);
        assert_eq!(output.status.code(), Some(1), "some gold fails on purpose: {output:?}");
    }
    let count = |folder: &str| {
        let names = std::fs::read_dir(dir.path(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap()).filter(|name| name.ends_with(".jsonl"));
        names.map(|name| verdicts(&format!("{folder}/{name}")).len()).collect::<Vec<_>>()
    };
    assert_eq!((count("all"), count("parts")), (vec![3; 4], vec![3; 4]));

    // Finished work isn't repeated, interrupted work continues, missing work is started.
    let file = dir.path("all/model.once.2.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() - 20]).unwrap();
    std::fs::remove_file(dir.path("all/model.once.1.jsonl")).unwrap();
    let output = dir.run(&["two.bench", "--gold", "--resume", "all"]);
    assert_eq!(output.status.code(), Some(1), "some gold fails on purpose: {output:?}");
    assert_eq!(words(&output.stderr).matches("1 attempt,").count(), 4, "{output:?}");
    assert_eq!(count("all"), vec![3; 4]);
    let output = dir.run(&["two.bench", "--gold", "--out", "all"]);
    assert!(words(&output.stderr).contains("--resume goes on with what is there"), "{output:?}");

    let report = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_alara"));
        let output = command.arg("report").args(arguments).current_dir(dir.path("")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    };
    let read =
        |folder: &str| -> Value { serde_json::from_slice(&report(&[folder, "--json"]).stdout).unwrap() };
    let (whole, parts) = (read("all"), read("parts"));
    let section = |report: &Value, id: &str| {
        let sections = report["sections"].as_array().unwrap();
        sections.iter().find(|section| section["id"] == id).unwrap_or_else(|| panic!("no {id}"))["tables"]
            .clone()
    };
    for id in ["score", "category", "trials", "ab"] {
        assert_eq!(section(&whole, id), section(&parts, id), "{id}");
    }
    assert_eq!(section(&whole, "ab")[0]["rows"][0][3]["value"], json!(3.0));
    report(&["all", "--html", "page", "--sqlite", "all.sqlite"]);
    let page = std::fs::read_to_string(dir.path("page/index.html")).unwrap();
    assert!(page.contains("Conditions compared") && !page.contains("http://") && !page.contains("https://"));
    let trace = std::fs::read_to_string(dir.path("page/traces/0/a-00.html")).unwrap();
    assert!(trace.contains("echo x &gt;&gt; n") && trace.contains("id=\"attempt-1\""), "{trace}");
    assert!(dir.path("all.sqlite").exists() && dir.path("all/runs.sqlite").exists());
}

#[test]
fn a_plan_tells_memory_and_time_and_runs_nothing() {
    let dir = RunDir::new(&[("a.bench", "trials: 2\n")]);
    let output = dir.run(&["a.bench", "--plan", "-c", "git"]);
    assert!(output.status.success(), "{output:?}");
    let text = words(&output.stdout);
    assert!(text.starts_with("model") && text.contains("alara-tiny.gguf     20"), "{text}");
    assert!(!dir.path("runs").exists());
}

#[test]
fn a_plan_names_all_models_that_are_missing() {
    let dir = RunDir::new(&[("a.bench", "models: [absent.gguf, \"http://127.0.0.1:9/v1#x\", gone.gguf]\n")]);
    for plan in [true, false] {
        let output = dir.run(if plan { &["a.bench", "--plan"] } else { &["a.bench"] });
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let (table, message) = (words(&output.stdout), words(&output.stderr));
        let table = if plan { &table } else { &message };
        let line = |name: &str| {
            table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{table}"))
        };
        assert!(
            line("absent.gguf").ends_with("is missing") && line("gone.gguf").ends_with("is missing"),
            "{table}"
        );
        assert!(!line("http://127.0.0.1:9/v1#x").contains("missing"), "{table}");
        for expected in ["no model file absent.gguf", "no model file gone.gguf", "2 of 3 models can't be had"]
        {
            assert!(message.contains(expected), "{message}");
        }
        assert!(!dir.path("runs").exists());
    }
}

#[test]
fn wrong_sweeps_are_refused() {
    let dir =
        RunDir::new(&[("a.bench", "conditions: [{name: a, retry: never}]\n"), ("b.bench", "trials: 1\n")]);
    let check = |arguments: &[&str], expected: &str| {
        let output = dir.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(words(&output.stderr).contains(expected), "{arguments:?} says {}", words(&output.stderr));
        assert!(!dir.path("runs").exists(), "{arguments:?} left a run file");
    };
    check(&["a.bench"], "never");
    check(&["b.bench", "--gold", "--shard", "3/2"], "as 1/4 to 4/4");
    check(&["b.bench", "--gold", "--policy", "gitt=fresh"], "no category `gitt`");
    check(&["b.bench", "--gold", "--policy", "git=fresh", "git=:2"], "two rules for git");
    check(&["b.bench", "--gold", "--retry", "never"], "it is feedback, fresh, paper");
    check(&["b.bench", "-m", "absent.gguf"], "absent.gguf");
}
