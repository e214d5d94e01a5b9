//! The stock jinxes, skills and teams: each works as described, and reports errors.

mod files;
#[cfg(target_os = "linux")]
mod jobs;
mod web;
mod work;

use std::path::Path;

use alara_engine::ToolCall;
use alara_harness::jinx::check;
use alara_harness::model::Reply;
use alara_harness::{Caller, Scripted, Session, Single, Team, ToolResult, tool};
use serde_json::{Value, json};

use crate::dirs::TeamDir;

impl TeamDir {
    fn stock() -> Self {
        TeamDir::with(Team::stock("alara").unwrap())
    }

    /// Makes calls one after the other as an NPC (`lead`, or `research/scout`), as its model would.
    /// A jinx that isn't in its list is called as by a step.
    fn calls(&self, npc: &str, script: Vec<Reply>, calls: &[(&str, Value)]) -> (Vec<ToolResult>, Scripted) {
        let script = Scripted::new(script);
        let source = Single(&script);
        let session = Session::new(&source, &self.sandbox);
        let (team, npc) = match npc.split_once('/') {
            Some((team, npc)) => (self.team.teams.iter().find(|sub| sub.name == team).unwrap(), npc),
            None => (&self.team, npc),
        };
        let npc = team.npc(Some(npc)).unwrap();
        let caller = Caller { npc: Some(npc), ..Caller::person(&session, team) };
        let call = |(index, (name, arguments)): (usize, &(&str, Value))| {
            let arguments = arguments.as_object().unwrap().clone();
            let id = format!("call_{index}");
            if npc.jinxes.iter().any(|listed| listed == name) {
                let call = ToolCall { id, name: (*name).to_owned(), arguments };
                tool::execute(&caller, &tool::Offered::of(&npc.jinxes), &call).unwrap()
            } else {
                tool::call(&caller, team.jinx(name).unwrap(), &arguments, &id).unwrap()
            }
        };
        let results = calls.iter().enumerate().map(call).collect();
        drop(session);
        (results, script)
    }

    /// Returns the result of one call that needs no model.
    fn call(&self, npc: &str, jinx: &str, arguments: Value) -> ToolResult {
        self.calls(npc, Vec::new(), &[(jinx, arguments)]).0.remove(0)
    }

    /// Returns a call's result or error.
    fn check(&self, npc: &str, jinx: &str, arguments: Value, expected: Value) {
        let result = self.call(npc, jinx, arguments.clone());
        let found = if result.ok { result.output.clone() } else { json!({"failed": result.complaint()}) };
        assert_eq!(found, expected, "{jinx} {arguments}: {result:?}");
    }
}

/// The built-in teams.
const STOCK: [&str; 4] = ["alara", "bank", "review", "shop"];

fn failed(complaint: &str) -> Value {
    json!({"failed": complaint})
}

#[test]
fn every_team_is_whole() {
    for name in STOCK {
        let team = Team::stock(name).unwrap();
        assert_eq!(team.diagnostics, [], "{name}");
        for team in std::iter::once(&team).chain(&team.teams) {
            for npc in &team.npcs {
                let skills = npc.skills.catalog.iter().chain(&npc.skills.inline);
                for jinx in npc.jinxes.iter().chain(skills.clone()) {
                    assert!(team.jinx(jinx).is_some(), "{}/{} lists {jinx}", team.name, npc.name);
                }
                for skill in skills {
                    assert!(team.jinx(skill).unwrap().skill.is_some(), "{skill} is no skill");
                }
                let reads_skills = npc.jinxes.iter().any(|jinx| jinx == "skill");
                assert_eq!(reads_skills, !npc.skills.catalog.is_empty(), "{}/{}", team.name, npc.name);
                assert!(npc.directive.trim().lines().count() <= 8, "{}", npc.name);
            }
        }
    }
    let team = Team::stock("alara").unwrap();
    assert_eq!((team.forenpc.as_str(), team.context.as_str()), ("worker", ""));
    let skills = team.jinxes.iter().filter(|jinx| jinx.skill.is_some()).count();
    assert!(skills >= 6, "{skills} skills");
}

/// Returns the compiled form of a team's files, with long texts shortened, and with the jinxes of
/// sub-teams by name, because they are the team's own.
fn compiled(team: &Team) -> Value {
    fn shorten(value: &mut Value) {
        match value {
            Value::String(text) if text.len() > 120 => {
                let first: String = text.lines().next().unwrap_or_default().chars().take(60).collect();
                *text = format!("{first} … ({} bytes)", text.len());
            }
            Value::Array(items) => items.iter_mut().for_each(shorten),
            Value::Object(map) => map.values_mut().for_each(shorten),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(team).unwrap();
    for team in value["teams"].as_array_mut().unwrap() {
        let jinxes = team["jinxes"].as_array_mut().unwrap();
        jinxes.iter_mut().for_each(|jinx| *jinx = jinx["name"].take());
    }
    shorten(&mut value);
    value
}

#[test]
fn nothing_is_odd_about_the_stock_jinxes() {
    let text_of = |path: &Path| std::fs::read_to_string(crate::root().join(path)).ok();
    for name in STOCK {
        assert_eq!(check(&Team::stock(name).unwrap().jinxes, &|_| false, &|_| &[], &text_of), [], "{name}");
    }
}

#[test]
fn the_compiled_stock_team_is_stable() {
    let team = Team::stock("alara").unwrap();
    let text = |team: &Team| serde_json::to_string_pretty(team).unwrap();
    assert_eq!(text(&team), text(&Team::stock("alara").unwrap()));
    insta::assert_snapshot!(serde_json::to_string_pretty(&compiled(&team)).unwrap());
}

#[test]
fn py_gives_its_output_or_what_it_prints() {
    let dir = TeamDir::stock();
    let run = |code: &str, expected: Value| dir.check("analyst", "py", json!({"code": code}), expected);
    run("output = 6 * 7", json!(42));
    run("total = 0\nfor n in range(4):\n    total += n\nprint(total)", json!("6"));
    run("print('{{ code }}{% x')", json!("{{ code }}{% x"));
    run("print('found 0 errors')", json!("found 0 errors"));
    let result = dir.call("analyst", "py", json!({"code": "1 / 0"}));
    assert!(!result.ok && result.complaint().contains("ZeroDivisionError"), "{result:?}");
}

#[test]
fn stock_jinxes_run_from_the_command_line() {
    let work = tempfile::tempdir().unwrap();
    std::fs::write(work.path().join("t.csv"), "a,b\n1,2\n").unwrap();
    let run = |file: &str, arguments: &[&str]| {
        let path = crate::root().join("jinxes").join(file);
        let mut command = crate::alara();
        command.arg("run").arg(path).args(arguments).current_dir(work.path());
        command.env("XDG_STATE_HOME", work.path().join("state")).output().unwrap()
    };
    let check = |file: &str, arguments: &[&str], expected: (i32, &str, &str)| {
        let output = run(file, arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        let (code, out, error) = (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr));
        assert!(
            code == expected.0 && out == expected.1 && error.ends_with(expected.2),
            "{file} {arguments:?}: {output:?}"
        );
    };
    check(
        "files/load_file.jinx",
        &["path=t.csv"],
        (0, r#"{"columns":["a","b"],"total_rows":1,"rows":[["1","2"]]}"#, ""),
    );
    check("files/load_file.jinx", &["path=none"], (1, "", "there is no file none"));
    check(
        "files/load_file.jinx",
        &["path=t.csv", "limit=x"],
        (2, "", "argument `limit` must be of type integer"),
    );
    check("files/file_search.jinx", &["name=csv"], (0, "t.csv", ""));
    check("core/py.jinx", &["code=print(1 + 1)"], (0, "2", ""));
    check("team/chat.jinx", &["message=Hello"], (0, "Hello", ""));
    check("team/stop.jinx", &[], (0, "done", ""));
    let output = run("web/web_search.jinx", &["query=capital of Australia", "max_results=1"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("Canberra"), "{output:?}");
}
