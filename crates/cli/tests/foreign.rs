//! Teams written for another runtime: which of their jinxes run here, and whether `check` predicts
//! the result.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use alara_harness::jinx::{Kind, Missing};
use alara_harness::model::Reply;
use alara_harness::team::{Search, load_jinx};
use alara_harness::{Caller, Jinx, Scripted, Session, Severity, Single, Team, ToolResult, tool};
use serde_json::{Map, Value, json};

use crate::dirs::TeamDir;

/// The fate of a jinx.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    Runs,
    BuiltIn(String),
    LeftOut(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Verdict::Runs => write!(f, "runs"),
            Verdict::BuiltIn(why) => write!(f, "built-in used: needs {why}"),
            Verdict::LeftOut(why) => write!(f, "left out: needs {why}"),
        }
    }
}

/// Returns a team's jinxes that are separate files, by name, with the prediction of `check` for
/// each.
fn table(team: &Team) -> BTreeMap<String, (PathBuf, Verdict)> {
    let jinxes = team.directory.as_ref().unwrap().join("jinxes");
    let mut table = BTreeMap::new();
    for path in files(&jinxes) {
        let (jinx, _) = load_jinx(&path).unwrap();
        let about = team.check().into_iter().filter(|problem| problem.path == path);
        let told = about.filter(|problem| problem.severity == Severity::Warning).map(|odd| odd.message);
        let told = told.filter_map(|message| {
            message.split_once("can't run here, it needs ").map(|(_, why)| why.to_owned())
        });
        let verdict = match told.collect::<Vec<_>>().as_slice() {
            [] => Verdict::Runs,
            [why] => match why.split_once("; ").unwrap() {
                (why, "the built-in jinx of this name is used instead") => Verdict::BuiltIn(why.to_owned()),
                (why, "it is offered to no model") => Verdict::LeftOut(why.to_owned()),
                other => panic!("{other:?}"),
            },
            several => panic!("{several:?}"),
        };
        table.insert(jinx.name, (path, verdict));
    }
    table
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false if path.extension().is_some_and(|ending| ending == "jinx") => found.push(path),
            false => {}
        }
    }
    found.sort();
    found
}

/// Runs a jinx's own file as a user would, whatever the prediction.
fn tried(setup: &TeamDir, path: &Path, given: &Value) -> ToolResult {
    let (jinx, _) = load_jinx(path).unwrap();
    let model = Scripted::new([Reply::text("a model's answer")]);
    let source = Single(&model);
    let session = Session::new(&source, &setup.sandbox);
    let caller = Caller::person(&session, &setup.team);
    tool::call(&caller, &jinx, &plain_inputs(&jinx, given), &jinx.name).unwrap()
}

/// Returns the given inputs, and plain values for the required ones.
fn plain_inputs(jinx: &Jinx, given: &Value) -> Map<String, Value> {
    let mut inputs = given.as_object().cloned().unwrap_or_default();
    for input in jinx.inputs.iter().filter(|input| input.default.is_none()) {
        let plain = match input.kind {
            Kind::Integer | Kind::Number => json!(1),
            Kind::Boolean => json!(true),
            Kind::Array => json!([]),
            Kind::Object => json!({}),
            _ => json!("x"),
        };
        inputs.entry(&input.name).or_insert(plain);
    }
    inputs
}

/// Compares a prediction with the result.
fn hold(name: &str, verdict: &Verdict, result: &ToolResult) {
    let told = format!("{}\n{}\n{}", result.output_text(), result.error, result.stderr);
    match verdict {
        Verdict::Runs => assert!(result.ok && result.error.is_empty(), "{name} should run: {result:?}"),
        Verdict::BuiltIn(why) | Verdict::LeftOut(why) => {
            // The first missing name is one of those predicted.
            let named = why.split('`').skip(1).step_by(2).map(|name| name.rsplit('.').next().unwrap());
            let named: Vec<&str> = named.collect();
            assert!(named.iter().any(|named| told.contains(named)), "{name} needs {why}, but: {result:?}");
            // Some jinxes catch the error, and answer that something is missing.
            let says_so = ["not available", "No module named", "not defined"];
            assert!(!result.ok || says_so.iter().any(|words| told.contains(words)), "{name}: {result:?}");
        }
    }
}

/// The tools offered to NPCs are those that run.
fn hold_lists(team: &Team, table: &BTreeMap<String, (PathBuf, Verdict)>) {
    for npc in &team.npcs {
        let lists = |name: &str| npc.jinxes.iter().any(|listed| listed == name);
        let left = table.iter().filter(|(_, (_, verdict))| matches!(verdict, Verdict::LeftOut(_)));
        left.for_each(|(name, _)| assert!(!lists(name), "{} is offered {name}", npc.name));
    }
    for (name, (path, verdict)) in table {
        let jinx = team.jinx(name).unwrap();
        let missing: &[Missing] = &jinx.missing;
        match verdict {
            Verdict::BuiltIn(_) => assert!(jinx.path != *path && missing.is_empty(), "{name}"),
            Verdict::Runs => assert!(jinx.path == *path && missing.is_empty(), "{name}"),
            Verdict::LeftOut(_) => assert!(jinx.path == *path && !missing.is_empty(), "{name}"),
        }
    }
}

#[test]
fn a_foreign_team_is_told_as_it_runs() {
    let directory = crate::root().join("tests/fixtures/foreign_team");
    let setup = TeamDir::with(Team::load(&directory).unwrap());
    let table = table(&setup.team);
    let told: Vec<String> = table.iter().map(|(name, (_, verdict))| format!("{name}: {verdict}")).collect();
    let nowhere = "the Python module `woodshop_that_is_nowhere`";
    assert_eq!(
        told,
        [
            format!("carve: left out: needs {nowhere}"),
            "chat: built-in used: needs the name `ask_the_oracle`".to_owned(),
            format!("edit_file: built-in used: needs {nowhere}"),
            "glue: runs".to_owned(),
            "measure: runs".to_owned(),
            "plane: left out: needs `me.favourite_plane`".to_owned(),
            "sand: left out: needs the Python module `grit_of_the_bench`".to_owned(),
            "shelf: left out: needs the jinx `carve`".to_owned(),
            format!("varnish: left out: needs {nowhere}"),
        ]
    );
    hold_lists(&setup.team, &table);
    let turner = setup.team.npc(Some("turner")).unwrap();
    assert_eq!(turner.jinxes, ["chat", "shell", "measure", "glue"]);
    for (name, (path, verdict)) in &table {
        let result = tried(&setup, path, &json!({}));
        if name == "shelf" {
            // The error of the jinx that it calls is passed on.
            assert!(!result.ok && result.complaint().contains("woodshop_that_is_nowhere"), "{result:?}");
        } else {
            hold(name, verdict, &result);
        }
    }
}

#[test]
fn a_module_of_the_work_directory_is_there() {
    let directory = crate::root().join("tests/fixtures/foreign_team/");
    let work = tempfile::tempdir().unwrap();
    std::fs::write(work.path().join("grit_of_the_bench.py"), "GRIT = 120\n").unwrap();
    let search = Search { workdir: work.path().to_owned(), ..Search::default() };
    let team = search.team(Some(directory.to_str().unwrap())).unwrap();
    assert_eq!(team.jinx("sand").unwrap().missing, []);
    let joiner = team.npc(Some("joiner")).unwrap();
    assert!(joiner.jinxes.iter().any(|name| name == "sand"), "{:?}", joiner.jinxes);
}

#[test]
fn check_names_what_is_missing_and_where() {
    let file = |name: &str| format!("tests/fixtures/foreign_team/jinxes/tools/{name}.jinx");
    let check = |name: &str, expected: &str| {
        let output = crate::alara().args(["check", &file(name)]).current_dir(crate::root()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!((text.lines().next().unwrap(), output.status.code()), (expected, Some(0)), "{text}");
    };
    let told = |name: &str, place: &str, what: &str| {
        format!("{}:{place}: warning: `{name}` can't run here, it needs {what}", file(name))
    };
    let nowhere = "the Python module `woodshop_that_is_nowhere`";
    check("carve", &(told("carve", "11:9", nowhere) + "; it is offered to no model"));
    let oracle = told("chat", "11:5", "the name `ask_the_oracle`");
    check("chat", &(oracle + "; the built-in jinx of this name is used instead"));
    check("measure", "no problems");
}

#[test]
fn a_person_may_call_what_cannot_run_and_reads_why() {
    let file = "tests/fixtures/foreign_team/jinxes/tools/carve.jinx";
    let work = tempfile::tempdir().unwrap();
    let output = crate::alara()
        .args(["run", file, "--workdir", work.path().to_str().unwrap()])
        .current_dir(crate::root())
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let expected = "this jinx needs the Python package woodshop_that_is_nowhere, which is not installed";
    assert!(told.contains(expected), "{told}");
}

/// npcsh's own team isn't part of this repository: a variable points to a copy of its `npc_team`.
#[test]
fn npcsh_s_team() {
    let Some(directory) = std::env::var_os("ALARA_NPCSH_TEAM").map(PathBuf::from) else {
        let how = "ALARA_NPCSH_TEAM names a copy of the npc_team of github.com/NPC-Worldwide/npcsh";
        return crate::absent::skipped("npcsh's team", "npc_team", how);
    };
    let directory = directory.canonicalize().unwrap();
    let setup = TeamDir::with(Team::load(&directory).unwrap());
    let table = table(&setup.team);
    hold_lists(&setup.team, &table);
    // Input for some of them: a repository with two commits, and a team's files.
    let shell = load_jinx(&crate::root().join("jinxes/core/shell.jinx")).unwrap().0;
    let commit = "git -c user.name=a -c user.email=a@b commit -qm";
    let command = format!(
        "git init -q . && echo one > notes.txt && git add . && {commit} one && echo two > notes.txt && {commit} two -a \
         && echo 'name: bench' > team.ctx"
    );
    let model = Scripted::default();
    let source = Single(&model);
    let session = Session::new(&source, &setup.sandbox);
    let arguments = json!({"command": command}).as_object().cloned().unwrap();
    let made = tool::call(&Caller::person(&session, &setup.team), &shell, &arguments, "setup").unwrap();
    assert!(made.ok, "{made:?}");
    drop(session);
    let inputs = |name: &str| match name {
        "shell" => json!({"bash_command": "echo hi"}),
        "py" => json!({"code": "output = 6 * 7"}),
        "wait" => json!({"duration": 0}),
        "file_search" => json!({"pattern": "*.txt"}),
        "team_context" => json!({"pattern": "*", "max_files": "5"}),
        "chat" | "cmd" | "web_search" | "db_search" => json!({"query": "what is this"}),
        "plan" | "loop_plan" => json!({"goal": "write a letter"}),
        "convene" => json!({"topic": "wood", "npcs": "corca", "rounds": 1}),
        "edit_file" => json!({"file_path": "notes.txt", "edit_instructions": "shout"}),
        "load_file" => json!({"file_path": "notes.txt"}),
        "benchmark" => json!({"model": "m", "provider": "p"}),
        "skill" => {
            let none = json!("[]");
            json!({"sections": "{\"a\": \"b\"}", "section": "a", "scripts_json": none, "references_json": none, "assets_json": none})
        }
        _ => json!({}),
    };
    let mut rows = Vec::new();
    for (name, (path, verdict)) in &table {
        let result = tried(&setup, path, &inputs(name));
        rows.push(format!("| `{name}` | {verdict} | {} |", result.complaint().replace('\n', " ")));
        hold(name, verdict, &result);
    }
    let count = |of: fn(&Verdict) -> bool| table.values().filter(|(_, verdict)| of(verdict)).count();
    let runs = count(|verdict| *verdict == Verdict::Runs);
    let built_in = count(|verdict| matches!(verdict, Verdict::BuiltIn(_)));
    let left_out = count(|verdict| matches!(verdict, Verdict::LeftOut(_)));
    println!("{}\n{runs} run, {built_in} built-in used, {left_out} left out", rows.join("\n"));
    assert_eq!(table.len(), 34);
}

#[test]
fn without_python_every_python_step_lacks_it() {
    let nothing = tempfile::tempdir().unwrap();
    let output = crate::alara()
        .args(["check", "tests/fixtures/foreign_team/"])
        .current_dir(crate::root())
        .env("PATH", nothing.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for name in ["carve", "chat", "edit_file", "measure", "plane", "sand", "varnish"] {
        let expected = format!("warning: `{name}` can't run here, it needs `python3`; ");
        assert!(text.contains(&expected), "{name}: {text}");
    }
    assert!(text.contains("`shelf` can't run here, it needs the jinx `carve`"), "{text}");
    assert!(!text.contains("`glue`"), "{text}");
}
