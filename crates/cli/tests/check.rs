//! `alara check` on teams and single files.

use std::path::Path;

use serde_json::{Value, json};

const NPC: &str = "name: w\nprimary_directive: Work.\njinxes: [own]\n";
const OWN: &str = "jinx_name: own\ndescription: Looks.\neffect: read\ninputs: [q]\nsteps:\n- {name: a, engine: bash, code: 'ls {{ q }}'}\n- {name: b, engine: bash, code: 'wc {{ q }}'}\n- {return: '{{ a }}{{ b }}'}\n";

fn team(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    directory
}

/// Returns exit code and stdout, with paths relative to the directory.
fn check(directory: &Path, arguments: &[&str]) -> (i32, String) {
    let output = crate::alara().arg("check").args(arguments).current_dir(directory).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), text.replace(&format!("{}/", directory.display()), "").replace("./", ""))
}

#[test]
fn the_built_in_team_is_in_order() {
    assert_eq!(check(crate::root(), &["alara", "--strict"]), (0, "no problems\n".to_owned()));
}

#[test]
fn every_problem_with_its_place() {
    let team = team(&[
        ("team.ctx", "name: t\ncontxt: x\nforenpc: w\n"),
        ("w.npc", NPC),
        ("jinxes/own.jinx", OWN),
        (
            "jinxes/bad.jinx",
            "steps:\n- {engine: own, with: {p: 1}}\n- {engine: bash, code: \"echo '{{ x }}'\"}\n",
        ),
        ("jinxes/broken.jinx", "steps:\n- {engine: bash\n"),
    ]);
    let (code, text) = check(team.path(), &["."]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(code, 1, "{text}");
    for expected in [
        "jinxes/bad.jinx:2:3: error: call of `own`: argument `q` is missing",
        "jinxes/bad.jinx:2:24: error: `own` has no argument `p` (it takes q)",
        "jinxes/bad.jinx:3:30: error: `'{{ x }}'` in line 1 of the code stands in quotes: write `{{ x }}`",
        "jinxes/bad.jinx:3:34: error: `x` is not defined",
        "team.ctx:2:1: warning: `contxt` is a value of the team's own; did you mean the key `context`?",
    ] {
        assert!(lines.contains(&expected), "{expected}\n{text}");
    }
    assert!(text.contains("jinxes/broken.jinx:"), "{text}");
    let (code, json) = check(team.path(), &[".", "--json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, report["warnings"].clone()), (1, json!(1)));
    let problems = report["problems"].as_array().unwrap();
    let first = problems.iter().find(|problem| problem["line"] == 2 && problem["column"] == 3).unwrap();
    assert_eq!(
        (first["severity"].as_str(), report["errors"].as_u64()),
        (Some("error"), Some(problems.len() as u64 - 1))
    );
    // One file of the team.
    let (code, text) = check(team.path(), &["jinxes/own.jinx"]);
    assert_eq!((code, text.as_str()), (0, "no problems\n"));
    assert_eq!(check(team.path(), &["none.jinx"]).0, 2);
    // Other files of a team belong to it, and a folder that isn't a team is recognized as such.
    let (code, text) = check(team.path(), &["team.ctx"]);
    assert_eq!((code, text.lines().count()), (0, 2), "{text}");
    let (code, text) = check(team.path(), &["jinxes"]);
    assert!(code == 2 && text.contains("there is no team in jinxes: a team is a directory"), "{text}");
}

#[test]
fn a_team_without_a_usable_npc_has_problems_too() {
    let team = team(&[
        ("t/w.npc", "name: w\nprimary_directive: [x\n"),
        ("t/v.npc", "name: v w\nlimits: {turns: x}\n"),
        ("t/jinxes/own.jinx", "steps: [{engine: bash\n"),
        ("empty/readme", ""),
    ]);
    for path in ["t", "t/"] {
        let (code, text) = check(team.path(), &[path]);
        assert_eq!(code, 1, "{text}");
        for expected in ["t/w.npc:2:20: error: ", "t/v.npc:1:1: error: ", "t/v.npc:2:", "t/jinxes/own.jinx:"]
        {
            assert!(text.lines().any(|line| line.starts_with(expected)), "{expected}\n{text}");
        }
    }
    let (code, text) = check(team.path(), &["t/w.npc"]);
    assert!(code == 1 && text.ends_with("\n1 error, 0 warnings\n"), "{text}");
    let (code, json) = check(team.path(), &["t", "--json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, report["errors"].as_u64() > Some(3)), (1, true), "{json}");
    assert_eq!(check(team.path(), &["empty"]).0, 2);
}

#[test]
fn one_error_in_a_file_hides_no_other() {
    let team = team(&[
        (
            "w.npc",
            "name: w\nprimary_directive: Work.\njinxes: [own]\nlimits: {turns: x}\nphases:\n  start: a\n  a:\n    tolls: [own]\n    tools: [onw]\n    next: [[c, true]]\n",
        ),
        ("jinxes/own.jinx", OWN),
        (
            "jinxes/bad.jinx",
            "description: Looks.\neffect: red\ninputs: [{q: {type: strin}}]\nsteps:\n- {engine: own, with: {p: 1}}\n- {engine: bash, code: 'ls {{ x }} {{ q }}'}\n",
        ),
    ]);
    let (code, text) = check(team.path(), &["."]);
    assert_eq!(code, 1, "{text}");
    for expected in [
        "w.npc:4:",
        "w.npc:8:5: error: a phase has no key `tolls`, did you mean `tools`?",
        "w.npc:9:13: error: no tool of the NPC is called `onw`, did you mean `own`?",
        "w.npc:10:12: error: there is no phase `c`",
        "jinxes/bad.jinx:2:9: error: ",
        "jinxes/bad.jinx:3:21: error: ",
        "jinxes/bad.jinx:5:3: error: call of `own`: argument `q` is missing",
        "jinxes/bad.jinx:6:31: error: `x` is not defined",
    ] {
        assert!(text.lines().any(|line| line.starts_with(expected)), "{expected}\n{text}");
    }
    assert!(text.ends_with("9 errors, 0 warnings\n"), "{text}");
}

#[test]
fn warnings_count_if_one_is_strict() {
    let team = team(&[("w.npc", NPC), ("jinxes/own.jinx", &OWN.replace("effect:", "efect: x\neffect:"))]);
    let warning =
        "jinxes/own.jinx:3:1: warning: unknown key `efect`, did you mean `effect`?\n0 errors, 1 warning\n";
    assert_eq!(check(team.path(), &["jinxes/own.jinx"]), (0, warning.to_owned()));
    assert_eq!(check(team.path(), &["jinxes/own.jinx", "--strict"]), (1, warning.to_owned()));
}

#[test]
fn teams_and_jinxes_are_compiled() {
    let team = team(&[("w.npc", NPC), ("jinxes/own.jinx", OWN)]);
    // An option of earlier versions without any effect.
    assert_eq!(check(team.path(), &["jinxes/own.jinx", "--explain"]), (0, "no problems\n".to_owned()));
    let alone = crate::alara()
        .args(["check", "--compiled", "jinxes/own.jinx"])
        .current_dir(team.path())
        .output()
        .unwrap();
    let compiled: Value = serde_json::from_slice(&alone.stdout).unwrap();
    assert_eq!((&compiled["name"], &compiled["steps"][0]["do"]), (&json!("own"), &json!("bash")));
    let whole = || {
        let output =
            crate::alara().args(["check", "--compiled", "."]).current_dir(team.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let first = whole();
    assert_eq!(first, whole());
    let compiled: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(compiled["npcs"][0]["jinxes"], json!(["own"]));
}

#[test]
fn the_tests_of_jinxes_are_run() {
    let tried = "jinx_name: add\ndescription: Add two numbers\ninputs: [{a: 1}, {b: 2}]\neffect: none\nsteps: [{engine: text, text: '{{ a + b }}'}]\n\
                 tests:\n- {id: adds, inputs: {a: 5}, expected: {success: true, output_equals: '7'}}\n\
                 - {id: wrong, expected: {output_contains: '4', max_duration_ms: 60000}}\n";
    let team =
        team(&[("w.npc", "name: w\nprimary_directive: Work.\njinxes: [add]\n"), ("jinxes/add.jinx", tried)]);
    let (code, message) = check(team.path(), &[".", "--tests"]);
    assert_eq!(code, 1, "{message}");
    let (before, after) = message.split_once(" after ").unwrap();
    assert_eq!(before, "no problems\njinxes/add.jinx: test wrong: expected an output with \"4\", got \"3\"");
    assert!(after.ends_with(" ms\n1 test passed, 1 failed\n"), "{message}");
}

#[test]
fn a_jinx_is_checked_with_the_team_around_it_and_the_users_jinxes() {
    let calls = |name: &str| format!("jinx_name: one\nsteps:\n- {{engine: {name}}}\n");
    let step = |name: &str| format!("jinx_name: {name}\nsteps:\n- {{engine: bash, code: 'ls'}}\n");
    let dir = team(&[
        ("config/alara/jinxes/mine.jinx", &step("mine")),
        ("jinxes/t/team.ctx", "forenpc: w\n"),
        ("jinxes/t/w.npc", "name: w\nprimary_directive: Work.\n"),
        ("jinxes/t/jinxes/own.jinx", &step("own")),
        ("jinxes/t/jinxes/one.jinx", &calls("own")),
        ("jinxes/t/jinxes/two.jinx", &calls("mine").replace("one", "two")),
        ("alone.jinx", &calls("mine")),
        ("team.ctx", "forenpc: w\n"),
        ("w.npc", "name: w\nprimary_directive: Work.\n"),
    ]);
    for file in ["jinxes/t/jinxes/one.jinx", "jinxes/t/jinxes/two.jinx", "alone.jinx"] {
        for command in ["check", "run"] {
            let output = crate::alara()
                .args([command, file])
                .current_dir(dir.path())
                .env("XDG_CONFIG_HOME", dir.path().join("config"))
                .output()
                .unwrap();
            let message = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            // If nothing can run, at least the jinx is known.
            assert!(!message.contains("error:"), "{command} {file}: {message}");
            assert!(command == "run" || output.status.success(), "{command} {file}: {message}");
        }
    }
}

#[test]
fn tests_of_a_strangers_jinx_get_no_keys() {
    let jinx = "env: [HOME_OF_KEYS]\nsteps: [{engine: bash, code: 'echo \"<$HOME_OF_KEYS>\"'}]\n\
                tests: [{id: none, inputs: {}, expected: {success: true, output_equals: '<>'}}]\n";
    let team = team(&[("w.npc", NPC), ("jinxes/own.jinx", jinx)]);
    let output = crate::alara()
        .args(["check", "jinxes/own.jinx", "--tests"])
        .current_dir(team.path())
        .env("HOME_OF_KEYS", "hunter2")
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.ends_with("1 test passed, 0 failed\n") || printed.contains("tests passed, 0 failed\n"),
        "{printed}"
    );
}

/// Problems in files that can be read: they are reported, and nothing in the team runs.
#[test]
#[cfg(target_os = "linux")]
fn what_would_go_wrong_when_it_runs() {
    let team = team(&[
        ("team.ctx", "name: t\nforenpc: w\ncurrency: EUR\n"),
        (
            "jinxes/asks.jinx",
            "description: Asks.\nsteps: [{when: 1 > 0, then: [{engine: llm, npc: ww, prompt: x}]}]\n",
        ),
        ("w.npc", "name: w\nmodel: qwen9\nprimary_directive: Pay in {{ curency }}.\njinxes: [bad, plain]\n"),
        (
            "jinxes/bad.jinx",
            "description: Does it.\nsteps:\n- engine: bash\n  code: |\n    touch ran\n    if true; then ls )\n- engine: python\n  code: |\n    import os\n    import csv csv\n- {for: x, in: 3, do: [{set: {y: '{{ x }}'}}]}\n",
        ),
        ("jinxes/plain.jinx", "steps: [{engine: bash, code: ls}]\n"),
        ("jinxes/inner.jinx", "steps: [{engine: bash, code: ls}]\n"),
    ]);
    let (code, text) = check(team.path(), &["."]);
    assert_eq!(code, 1, "{text}");
    for expected in [
        "w.npc:2:8: warning: there is no model file qwen9, did you mean qwen",
        "w.npc:3:30: warning: `curency` is not defined, so nothing stands in its place, did you mean `ctx.currency`?",
        "jinxes/bad.jinx:6:5: error: bash can't read line 2 of the code, `if true; then ls )`: syntax error near",
        "jinxes/bad.jinx:10:5: error: Python can't read line 2 of the code, `import csv csv`: ",
        "jinxes/bad.jinx:11:3: error: `for` goes through a list, and `3` is a whole number; `range(3)` counts so far",
        "jinxes/plain.jinx: warning: `plain` has no `description`: a model chooses its tools by theirs",
        "jinxes/asks.jinx:2:30: warning: the team has no NPC `ww`, did you mean `w`?",
        "3 errors, 4 warnings",
    ] {
        assert!(text.lines().any(|line| line.starts_with(expected)), "{expected}\n{text}");
    }
    assert!(!team.path().join("ran").exists());
    // Scripts of tasks don't run either.
    let task = "id: a-1\ncategory: a\ndifficulty: easy\ninstruction: Do it.\nsetup: touch ran\nverify: |\n  touch ran\n  [ -e x ] && ( true\n";
    let folder = self::team(&[("suite/a.yaml", task)]);
    let (code, text) = check(folder.path(), &["suite"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.starts_with("suite/a.yaml:6:1: error: bash can't read line "), "{text}");
    assert!(text.contains(" of `verify`, ") && !folder.path().join("ran").exists(), "{text}");
}

#[test]
fn suites_and_sweeps_are_checked_too() {
    const TASK: &str = "id: a-1\ncategory: a\ndifficulty: easy\ninstruction: Do it.\nverify: 'true'\n";
    let folder = team(&[
        ("suite/a.yaml", TASK),
        ("wrong/a.yaml", &format!("{TASK}points: 3\n")),
        ("wrong/b.yaml", &TASK.replace("Do it.", "''").replace("a-1", "b-1")),
        ("good.bench", "suite: suite\ncategories: [a]\n"),
        (
            "bad.bench",
            "suite: suite\nmodels: [absent.gguf]\nconditions:\n- {name: x, npc: nobody, categories: {git: {attempts: 1}}}\n",
        ),
    ]);
    let fine = (0, "no problems\n".to_owned());
    for path in ["suite", "suite/a.yaml", "good.bench"] {
        assert_eq!(check(folder.path(), &[path, "--strict"]), fine, "{path}");
    }
    let (code, text) = check(folder.path(), &["wrong"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.starts_with("wrong/a.yaml:6:1: error: unknown key `points` (known: id, category"), "{text}");
    assert!(text.contains("\nwrong/b.yaml:4:1: error: the field `instruction` is empty\n2 errors"), "{text}");
    // Also if the key is one that tells a folder of tasks from others.
    let misspelled = TASK.replace("instruction", "instruktion");
    let other = team(&[("tasks/a.yaml", &misspelled), ("compose/compose.yaml", "services: {}\nid: x\n")]);
    let (code, text) = check(other.path(), &["tasks"]);
    assert!(code == 1 && text.starts_with("tasks/a.yaml:4:1: error: unknown key `instruktion`"), "{text}");
    let (code, text) = check(other.path(), &["compose"]);
    assert!(code == 2 && text.contains("there is no team in compose"), "{text}");
    let (code, text) = check(folder.path(), &["bad.bench"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((code, lines.len()), (1, 4), "{text}");
    assert!(
        lines[0].starts_with("bad.bench:4:39: error: the suite has no category `git` (known: a"),
        "{text}"
    );
    assert!(lines[1].starts_with("bad.bench:4:18: error: ") && lines[1].contains("nobody"), "{text}");
    assert!(
        lines[2]
            .starts_with("bad.bench:2:10: warning: there is no model file absent.gguf (`alara models list`"),
        "{text}"
    );
    let (_, json) = check(folder.path(), &["bad.bench", "--json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["errors"], &report["problems"][2]["severity"]), (&json!(2), &json!("warning")));
    // A file that no team uses has no compiled form.
    assert_eq!(check(folder.path(), &["wrong", "--compiled"]).0, 2);
    assert_eq!(check(folder.path(), &["good.bench", "--tests"]).0, 2);
    assert_eq!(check(folder.path(), &["absent.bench"]).0, 2);
}

#[test]
#[cfg(target_os = "linux")]
fn checks_that_pass_where_nothing_was_done() {
    let task = |id: &str, verify: &str| {
        format!(
            "id: {id}\ncategory: a\ndifficulty: easy\ninstruction: Do it.\nsetup: echo 1 > in\nverify: {verify}\n"
        )
    };
    let head = "id,category,difficulty,setup_cmd,instruction,verify_cmd,description\n";
    let rows = "c-1,a,easy,mkdir /tmp/d,Go.,test -e /tmp/d/out,\n\
                c-2,a,easy,,Go.,ls /tmp/no_*.png 2>/dev/null | head -1 | xargs test -f,\n";
    let folder = team(&[
        ("suite/a.yaml", &task("a-1", "'[ -e out ]'")),
        ("suite/b.yaml", &task("b-1", "'[ -e in ]'")),
        ("old.csv", &format!("{head}{rows}")),
    ]);
    // Nothing runs unless requested.
    assert_eq!(check(folder.path(), &["suite"]), (0, "no problems\n".to_owned()));
    for (path, tests, line) in [
        ("suite", "2 checks", "suite/b.yaml:6:1: warning: the check of `b-1` passes though nothing was done"),
        ("suite/b.yaml", "1 check", "suite/b.yaml:6:1: warning: the check of `b-1` passes"),
        ("old.csv", "2 checks", "old.csv:3:1: warning: the check of `c-2` passes though nothing was done"),
    ] {
        let (code, text) = check(folder.path(), &[path, "--tests"]);
        assert_eq!(code, 0, "{text}");
        assert!(text.starts_with(line) && text.contains("\n0 errors, 1 warning\n"), "{text}");
        assert!(text.contains(&format!("{tests} tried where nothing was done")), "{text}");
        assert_eq!(check(folder.path(), &[path, "--tests", "--strict"]).0, 1);
    }
    let (code, text) = check(folder.path(), &["suite/a.yaml", "--tests", "--strict"]);
    assert_eq!((code, text.starts_with("no problems\n")), (0, true), "{text}");
}

#[test]
#[cfg(target_os = "linux")]
fn gold_solutions_that_fail_are_errors() {
    let task = |id: &str, gold: &str| {
        format!(
            "id: {id}\ncategory: a\ndifficulty: easy\ninstruction: Do it.\nverify: '[ -e out ]'\ngold: {gold}\n"
        )
    };
    let folder =
        team(&[("suite/a.yaml", &task("a-1", "touch out")), ("suite/b.yaml", &task("b-1", "touch x"))]);
    let (code, text) = check(folder.path(), &["suite", "--tests"]);
    let line = "suite/b.yaml:5:1: error: the gold solution of `b-1` fails its check: ";
    assert!(code == 1 && text.starts_with(line) && text.contains("\n1 error"), "{text}");
    assert_eq!(check(folder.path(), &["suite/a.yaml", "--tests"]).0, 0);
}

/// A sweep names NPCs of its suite's team.
#[test]
fn the_sweeps_that_ship_have_no_errors() {
    let sweeps = crate::root().join("benches/sweeps");
    let files = std::fs::read_dir(&sweeps).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "bench")).collect();
    assert!(!files.is_empty(), "no sweeps in {}", sweeps.display());
    for file in files {
        let (code, text) = check(crate::root(), &[file.to_str().unwrap()]);
        assert!(code == 0 && !text.contains("error: "), "{}: {text}", file.display());
    }
}
