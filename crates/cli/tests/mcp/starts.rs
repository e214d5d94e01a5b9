//! Starts of servers: consent, and messages about failures.

use std::path::Path;

use alara_harness::model::Reply;
use alara_harness::permission::{Answer, Permissions};
use alara_harness::trace::Record;
use alara_harness::{Outcome, Team};
use serde_json::json;

use super::{McpTeam, alara, call, done, npc, script};

#[test]
fn mcp_client_asks_before_it_starts() {
    let files = |rules: &str| {
        let ctx = format!("name: t\npermissions: {rules}\nmcp_servers: [{{name: e, path: echo.sh}}]\n");
        McpTeam::with(&[("team.ctx", &ctx), ("w.npc", &npc("w", "[]", "[e]"))])
    };
    let check = |rules: &str, answer: Option<Answer>, expected: Option<&str>| {
        let ran = files(rules).asked(Permissions::default(), answer, vec![done()]);
        let expected: Vec<String> = expected
            .map(|text| {
                format!("the MCP server `e` (team.ctx:3) is not there: its start is not permitted by {text}")
            })
            .into_iter()
            .collect();
        assert_eq!(
            (ran.warnings.clone(), ran.tools().len()),
            (expected.clone(), if expected.is_empty() { 2 } else { 0 }),
            "{rules} {answer:?}"
        );
    };
    let nobody = "anybody: nobody is there to be asked; allow it once at a terminal (`always`), or say --yes";
    check("{}", None, Some(nobody));
    check("{}", Some(Answer::No), Some("an answer"));
    check("{}", Some(Answer::Session), None);
    // A team can't allow this to itself, but can forbid it.
    check("{mcp: allow}", None, Some(nobody));
    check("{default: allow}", None, Some(nobody));
    check("{mcp: deny}", Some(Answer::Yes), Some("team.ctx:2"));
    check("{default: deny}", Some(Answer::Yes), Some("team.ctx:2"));
    // A lasting answer applies to exactly this.
    let setup = files("{}");
    let file = setup.work.path().join("answers.json");
    let permissions = || Permissions::open(&file).unwrap();
    assert_eq!(setup.asked(permissions(), Some(Answer::Always), vec![done()]).asked.len(), 1);
    let again = setup.asked(permissions(), None, vec![done()]);
    assert_eq!((again.tools().len(), again.warnings), (2, vec![]));
    // It applies to the current contents, not to later ones.
    let script = setup.directory.path().join("echo.sh");
    let before = std::fs::read_to_string(&script).unwrap();
    std::fs::write(&script, format!("{before}# and more\n")).unwrap();
    assert_eq!(setup.asked(permissions(), None, vec![done()]).tools(), Vec::<String>::new());
    std::fs::write(&script, before).unwrap();
    assert_eq!(setup.asked(permissions(), None, vec![done()]).tools().len(), 2);
    let other = "name: t\nmcp_servers: [{name: e, path: echo.sh, args: [x]}]\n";
    std::fs::write(setup.directory.path().join("team.ctx"), other).unwrap();
    let changed = McpTeam { team: Team::load(setup.directory.path()).unwrap(), ..setup };
    assert_eq!(changed.asked(permissions(), None, vec![done()]).tools(), Vec::<String>::new());
}

#[test]
fn mcp_client_servers_that_do_not_start() {
    let check = |odd: &str, expected: &str| {
        let ran = McpTeam::odd(odd).run(vec![done()]);
        assert_eq!(
            (ran.outcome, ran.model.requests()[0].tools.len()),
            (Outcome::Answer { text: "Done.".into() }, 1)
        );
        assert_eq!(ran.warnings, [format!("the MCP server `echo` (w.npc:4) is not there: {expected}")]);
    };
    check("dead", "it has ended: no database");
    check(
        "old",
        "it speaks version `1999-01-01` of the protocol, which is none of 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28",
    );
    check("word", "its list of tools is none");
    check(
        "flood",
        "it says too much that is no message of the protocol; it printed what is no message of the protocol: Welcome!",
    );
    let ran = McpTeam::naming("[{name: gone, command: no-such-program-at-all}]").run(vec![done()]);
    assert!(ran.warnings[0].contains("no-such-program-at-all"), "{:?}", ran.warnings);
    let ran = McpTeam::naming("[{name: gone, url: 'http://127.0.0.1:1/mcp'}]").run(vec![done()]);
    assert!(
        ran.warnings[0].contains("`gone` (w.npc:4) is not there: the connection failed"),
        "{:?}",
        ran.warnings
    );
}

#[test]
fn mcp_client_greets_servers_that_know_only_the_handshake() {
    let check = |odd: &str| {
        let ran = McpTeam::odd(odd).run(vec![call("a"), done()]);
        assert_eq!(
            (ran.results(), ran.warnings),
            (vec![format!(r#"{{"ok":true,"output":"{odd}: hi"}}"#)], vec![])
        );
    };
    // Servers that don't answer, and servers that exit.
    check("silent");
    check("frail");
}

#[test]
fn mcp_client_members_share_a_server() {
    let ctx = "name: t\nforenpc: w\nmcp_servers: [{name: e, path: echo.sh}]\n";
    let below = "name: below\ndescription: Others.\nforenpc: x\n";
    let named = "name: named\ndescription: Others.\nforenpc: y\nmcp_servers: [e]\n";
    let setup = McpTeam::with(&[
        ("team.ctx", ctx),
        ("w.npc", &npc("w", "[delegate]", "[{tools: [a]}]")),
        ("v.npc", &npc("v", "[]", "[{tools: [b]}]")),
        ("below/team.ctx", below),
        ("below/x.npc", &npc("x", "[]", "[]")),
        ("named/team.ctx", named),
        ("named/y.npc", &npc("y", "[]", "[{tools: [b]}]")),
    ]);
    assert_eq!(setup.diagnostics(), Vec::<String>::new());
    let give = |name: &str| Reply::call("delegate", json!({"npc_name": name, "task": "Do it."}));
    let complete = || Reply::text(r#"{"complete": true, "feedback": ""}"#);
    let ran = setup.run(vec![
        give("v"),
        call("b"),
        Reply::text("It is done."),
        complete(),
        give("below"),
        call("b"),
        Reply::text("I can't."),
        complete(),
        give("named"),
        call("b"),
        Reply::text("It is done."),
        complete(),
        done(),
    ]);
    assert_eq!(ran.asked.len(), 1, "{:?}", ran.asked);
    let tools: Vec<Vec<String>> = ran
        .entries
        .iter()
        .filter_map(|entry| match &*entry.record {
            Record::Start(start) => {
                Some(start.mcp.iter().flat_map(|served| served.tools.keys().cloned()).collect())
            }
            _ => None,
        })
        .collect();
    let of = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(
        tools.contains(&of(&["a"])) && tools.contains(&of(&["b"])) && tools.contains(&of(&[])),
        "{tools:?}"
    );
    let spoken = serde_json::to_string(&ran.entries).unwrap();
    assert_eq!(spoken.matches(r#""output":"echo: hi""#).count(), 2, "{spoken}");
    assert!(spoken.contains("`b` is not permitted"));
}

#[test]
fn mcp_client_from_the_command_line() {
    let setup = McpTeam::naming("[{name: e, path: echo.sh, args: [env], env: {OWN: mine}}]");
    std::fs::create_dir(setup.directory.path().join("work")).unwrap();
    script(&setup, &json!([{"calls": [{"name": "a", "arguments": {"text": "x"}}]}, {"text": "Done."}]));
    let run = |more: &[&str]| {
        let mut arguments =
            vec!["run", "-t", ".", "-m", "script:script.json", "--workdir", "work", "--trace", "t.jsonl"];
        arguments.extend(more);
        arguments.push("Begin.");
        let output = alara(&setup, &arguments);
        let trace = std::fs::read_to_string(setup.directory.path().join("t.jsonl")).unwrap();
        std::fs::remove_file(setup.directory.path().join("t.jsonl")).unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap(), trace)
    };
    // In the sandbox, in the work directory, with its own environment.
    let (code, reply, trace) = run(&["--yes"]);
    assert_eq!(code, Some(0), "{reply}");
    assert!(trace.contains(r#""output":"own mine, secret none, in work""#), "{reply}{trace}");
    assert!(!trace.contains("hunter2") && !reply.contains("hunter2"), "{reply}{trace}");
    // There is no terminal to ask at: the run continues without the server.
    let (code, reply, trace) = run(&[]);
    assert_eq!(code, Some(0), "{reply}");
    assert!(reply.contains("is not there: its start is not permitted by anybody"), "{reply}");
    assert!(trace.contains("`a` is not permitted; the tools are: shell"), "{trace}");

    let output = alara(&setup, &["check", ".", "--connect"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(lines[1].starts_with("w of ") && lines[1].ends_with(" gets from MCP servers:"), "{shown}");
    assert_eq!(lines[2], format!("  {:<32} Says it again.", "a text [times]"));
    assert_eq!(lines[3], format!("  {:<32} Another.", "b text [times]"));
}

/// A relative command is a program next to the team's files, or else in the work directory, both
/// for `check --connect` and for `run`.
#[test]
#[cfg(unix)]
fn a_relative_command_is_found_from_the_team() {
    use std::os::unix::fs::PermissionsExt;

    let place = tempfile::tempdir().unwrap();
    let program = |path: &str| {
        let path = place.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.sh"), &path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("team/.venv/bin/server");
    program("here/bin/server");
    let team = |name: &str, command: &str| {
        let folder = place.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let npc =
            format!("name: w\nprimary_directive: Work.\nmcp_servers: [{{name: e, command: {command}}}]\n");
        std::fs::write(folder.join("w.npc"), npc).unwrap();
    };
    team("team", ".venv/bin/server");
    team("other", "bin/server");
    let check = |folder: &str, team: &str, found: bool| {
        let output = crate::alara()
            .args(["check", team, "--connect"])
            .current_dir(place.path().join(folder))
            .output()
            .unwrap();
        let shown = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(shown.contains("  a text [times]"), found, "{folder} {team}: {shown}");
    };
    check("here", "../team", true);
    check("team", ".", true);
    check("here", "../other", true);
    check("team", "../other", false);
}
