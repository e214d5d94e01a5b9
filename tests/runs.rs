//! Long runs from outside: kills at any moment, the original suite, sweeps and their shards.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use alara_bench::Suite;
use alara_bench::task::{Solution, Task};
use serde_json::{Value, json};

use crate::bench::{Ground, words, yaml};

/// A record without times.
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

fn records(ground: &Ground, name: &str) -> Vec<Value> {
    ground.records(name).into_iter().map(timeless).collect()
}

/// Numbers that differ from run to run of the tests, and are told where a test fails.
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

/// A suite whose tasks are solved at the first attempt, at the second or never.
fn suite(ground: &Ground, tasks: usize) {
    std::fs::create_dir(ground.path("suite")).unwrap();
    for number in 0..tasks {
        let verify = format!("[ $(wc -l < n) -ge {} ]", number % 3 + 1);
        let text = yaml(&format!("a-{number:02}"), &verify, "echo x >> n");
        std::fs::write(ground.path(&format!("suite/{number}.yaml")), text).unwrap();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn twenty_kills_lose_and_repeat_nothing() {
    let ground = Ground::new(&[]);
    suite(&ground, 24);
    for parallel in ["1", "3"] {
        let arguments = ["suite", "--gold", "--attempts", "2", "--parallel", parallel];
        let whole = format!("whole{parallel}.jsonl");
        let begun = Instant::now();
        let output = ground.run(&[&arguments[..], &["--out", &whole]].concat());
        assert!(output.status.success(), "{output:?}");
        let whole_run = begun.elapsed();
        let killed = format!("killed{parallel}.jsonl");
        let mut random = Random::new();
        let mut goes_on = |kill: bool| {
            let how = if ground.path(&killed).exists() { "--resume" } else { "--out" };
            let mut child = ground.alara(&[&arguments[..], &[how, &killed]].concat()).spawn().unwrap();
            if kill {
                std::thread::sleep(random.below(whole_run / 8));
                child.kill().unwrap();
            }
            let output = child.wait_with_output().unwrap();
            assert!(kill || output.status.success(), "{output:?}");
        };
        (0..20).for_each(|_| goes_on(true));
        goes_on(false);
        let [mut expected, mut found] = [&whole, &killed].map(|name| records(&ground, name));
        for record in expected.iter_mut().chain(&mut found).filter(|record| record["record"] == "attempt") {
            // Its folder has the name of the run.
            let trace = record["trace"].take();
            assert!(trace.as_str().unwrap().ends_with(".jsonl"), "{record}");
        }
        // Of tasks that ran at the same time, any may end first; the records of each are in order.
        if parallel != "1" {
            let key = |record: &Value| record["task"].as_str().unwrap_or_default().to_owned();
            expected.sort_by_key(key);
            found.sort_by_key(key);
        }
        assert_eq!(found, expected);
        assert!(ground.places().is_empty(), "{:?}", ground.places());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_agents_make_of_their_folders_stays_theirs() {
    let ground = Ground::new(&[("canary/deep/x", "x")]);
    std::fs::create_dir(ground.path("suite")).unwrap();
    let canary = ground.path("canary").display().to_string();
    let link = |name: &str| format!("cd /tmp; mv {name} old; ln -s {canary} {name}");
    let golds =
        [link("work"), link(".home"), "chmod 0 /tmp/work /tmp/.home".into(), "rm -r /tmp/work".into()];
    for (number, gold) in golds.iter().enumerate() {
        let text = yaml(&format!("a-{number}"), "[ -e /tmp/solved ]", gold);
        std::fs::write(ground.path(&format!("suite/{number}.yaml")), text).unwrap();
    }
    for retry in ["fresh", "paper"] {
        let file = format!("{retry}.jsonl");
        let output = ground.run(&["suite", "--gold", "--attempts", "2", "--retry", retry, "--out", &file]);
        assert!(output.status.success(), "{output:?}");
        let records = ground.records(&file);
        let ends = records.iter().filter(|record| record["record"] == "task");
        let ends: Vec<_> = ends.map(|end| (&end["verdict"], &end["attempts"])).collect();
        assert_eq!(ends, vec![(&json!("failed"), &json!(2)); 4], "{records:#?}");
        assert_eq!(std::fs::read_dir(ground.path("canary")).unwrap().count(), 1);
        assert!(ground.path("canary/deep/x").exists());
        assert!(ground.places().is_empty(), "{:?}", ground.places());
    }
}

/// Large reference data, if it is there.
fn shared(path: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("ALARA_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), Into::into);
    let path = shared.join(path);
    if !path.exists() {
        println!("SKIPPED: {} is not there", path.display());
        return None;
    }
    Some(path)
}

/// What fills the files that a task of the original suite names with something of their kind.
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
    let ground = Ground::new(&[]);
    std::fs::create_dir(ground.path("junk")).unwrap();
    for task in &suite.tasks {
        let played = Task { gold: Some(Solution::Bash(junk(task))), ..task.clone() };
        let text = serde_json::to_string(&played).unwrap();
        std::fs::write(ground.path(&format!("junk/{}.yaml", task.id)), text).unwrap();
    }
    let before = std::fs::read_dir("/tmp").unwrap().count();
    let output = ground.run(&["junk", "--gold", "--attempts", "1", "--parallel", "8", "--out", "run.jsonl"]);
    assert!(output.status.success(), "{output:?}");
    let records = ground.records("run.jsonl");
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
    let ground = Ground::new(&[("two.bench", sweep)]);
    suite(&ground, 3);
    let verdicts = |name: &str| -> Vec<String> {
        let records = ground.records(name);
        let ends = records.iter().filter(|record| record["record"] == "task");
        ends.map(|end| end["verdict"].as_str().unwrap().to_owned()).collect()
    };
    let output = ground.run(&["two.bench", "--gold", "--out", "all"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(verdicts("all/model.once.1.jsonl"), ["solved", "failed", "failed"]);
    // A second attempt that begins anew does the same as the first.
    assert_eq!(verdicts("all/model.fresh.2.jsonl"), ["solved", "failed", "failed"]);
    let header = &ground.records("all/model.fresh.2.jsonl")[0];
    assert_eq!((&header["trial"], &header["sampling"]["seed"]), (&json!(2), &json!(1)));
    assert_eq!(header["policy"], json!({"retry": "fresh", "attempts": 2}));

    // Shards: each its own files, and together all of the work.
    for shard in ["1/2", "2/2"] {
        let output = ground.run(&["two.bench", "--gold", "--resume", "parts", "--shard", shard]);
        assert!(output.status.success(), "{output:?}");
    }
    let count = |folder: &str| {
        let names = std::fs::read_dir(ground.path(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap()).filter(|name| name.ends_with(".jsonl"));
        names.map(|name| verdicts(&format!("{folder}/{name}")).len()).collect::<Vec<_>>()
    };
    assert_eq!((count("all"), count("parts")), (vec![3; 4], vec![3; 4]));

    // What is finished is not repeated, what is cut off goes on, what is missing is begun.
    let file = ground.path("all/model.once.2.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() - 20]).unwrap();
    std::fs::remove_file(ground.path("all/model.once.1.jsonl")).unwrap();
    let output = ground.run(&["two.bench", "--gold", "--resume", "all"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(words(&output.stderr).matches("1 attempt,").count(), 4, "{output:?}");
    assert_eq!(count("all"), vec![3; 4]);
    let output = ground.run(&["two.bench", "--gold", "--out", "all"]);
    assert!(words(&output.stderr).contains("--resume goes on with this one"), "{output:?}");

    let report = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_alara"));
        let output = command.arg("report").args(arguments).current_dir(ground.path("")).output().unwrap();
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
    let page = std::fs::read_to_string(ground.path("page/index.html")).unwrap();
    assert!(page.contains("Conditions compared") && !page.contains("http://") && !page.contains("https://"));
    let trace = std::fs::read_to_string(ground.path("page/traces/0/a-00.html")).unwrap();
    assert!(trace.contains("echo x &gt;&gt; n") && trace.contains("id=\"attempt-1\""), "{trace}");
    assert!(ground.path("all.sqlite").exists() && ground.path("all/runs.sqlite").exists());
}

#[test]
fn a_plan_tells_memory_and_time_and_runs_nothing() {
    let ground = Ground::new(&[("a.bench", "trials: 2\n")]);
    let output = ground.run(&["a.bench", "--plan", "-c", "git"]);
    assert!(output.status.success(), "{output:?}");
    let text = words(&output.stdout);
    assert!(text.starts_with("model") && text.contains("alara-tiny.gguf     20"), "{text}");
    assert!(!ground.path("runs").exists());
}

#[test]
fn wrong_sweeps_are_refused() {
    let ground =
        Ground::new(&[("a.bench", "conditions: [{name: a, retry: never}]\n"), ("b.bench", "trials: 1\n")]);
    let check = |arguments: &[&str], expected: &str| {
        let output = ground.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(words(&output.stderr).contains(expected), "{arguments:?} says {}", words(&output.stderr));
        assert!(!ground.path("runs").exists(), "{arguments:?} left a run file");
    };
    check(&["a.bench"], "never");
    check(&["b.bench", "--gold", "--shard", "3/2"], "as 1/4 to 4/4");
    check(&["b.bench", "--gold", "--policy", "gitt=fresh"], "no category `gitt`");
    check(&["b.bench", "--gold", "--policy", "git=fresh", "git=:2"], "two rules for git");
    check(&["b.bench", "--gold", "--retry", "never"], "it is feedback, fresh, paper");
    check(&["b.bench", "-m", "absent.gguf"], "absent.gguf");
}
