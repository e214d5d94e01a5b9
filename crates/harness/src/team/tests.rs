use super::*;
use crate::agent;

const NPC: &str = "name: w\nprimary_directive: Work.\njinxes: [shell]\n";

fn load(files: &[(&str, &str)]) -> Result<Team, Error> {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    Team::load(directory.path())
}

/// Paths are shown from the team's directory.
fn message(files: &[(&str, &str)]) -> String {
    let message = load(files).unwrap_err().to_string();
    // A temporary directory has a name of its own each time.
    let parts: Vec<&str> = message.split("/.tmp").collect();
    let rest = parts[1..].iter().map(|part| part.split_once('/').map_or(*part, |(_, rest)| rest));
    let base = std::env::temp_dir().display().to_string();
    std::iter::once(parts[0]).chain(rest).collect::<String>().replace(&base, "")
}

#[test]
fn the_stock_team_as_a_model_sees_it() {
    let team = Team::stock("alara").unwrap();
    let npc = team.npc(None).unwrap();
    assert_eq!(team.diagnostics, []);
    let mut seen = String::new();
    for segment in agent::system(&team, npc) {
        seen += &format!("[{}]\n{}\n", segment.name, segment.text);
    }
    for tool in agent::tools(&team, npc) {
        seen += &format!("{}\n", serde_json::to_string(&tool).unwrap());
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn reads_keys_as_in_the_wild() {
    let team = load(&[
        ("team.ctx", "#!/usr/bin/env npc\ndescription: d\ncontext: |\n  All know this.\nmodel: m\nforenpc: w\n"),
        ("w.npc", "#!/usr/bin/env npc\nname: w\nprimary_directive: |\n  Work.\njinxs: [own, shell]\nlimits: {turns: 3}\n"),
        ("x.npc", "directive: Other.\njinxes: '*'\nmodel: n\n"),
        ("jinxes/lib/own.jinx", "jinx_name: own\ndescription: Ours\ninputs: [a, b: 1]\nsteps: [{engine: bash, code: 'true'}]\n"),
        ("jinxes/shell.jinx", "description: Another shell\ntimeout: 2\nnetwork: true\neffect: none\nsteps: [{name: s, engine: python, code: ''}]\n"),
    ])
    .unwrap();
    assert_eq!((team.forenpc.as_str(), team.context.as_str()), ("w", "All know this."));
    assert_eq!(team.diagnostics, []);
    let worker = team.npc(None).unwrap();
    assert_eq!(
        (worker.model.model.as_deref(), worker.limits.turns, worker.limits.tool_output_bytes),
        (Some("m"), 3, 16384)
    );
    assert_eq!(worker.jinxes, ["own", "shell"]);
    let other = team.npc(Some("x")).unwrap();
    assert_eq!((other.model.model.as_deref(), other.directive.as_str()), (Some("n"), "Other."));
    assert_eq!(other.jinxes, ["edit_file", "own", "python", "read_file", "shell", "write_file"]);
    let shell = team.jinx("shell").unwrap();
    assert_eq!(
        (shell.description.as_str(), shell.network, shell.timeout.as_secs()),
        ("Another shell", true, 2)
    );
    assert_eq!(
        serde_json::to_string(&team.jinx("own").unwrap().tool(&Default::default())).unwrap(),
        r#"{"name":"own","description":"Ours","parameters":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer","default":1}},"required":["a"],"additionalProperties":false}}"#
    );
}

#[test]
fn odd_keys_are_reported_with_their_line() {
    let team = load(&[
        ("team.ctx", "forenpc: w\ncontxt: x\nproviders: []\n"),
        ("w.npc", "name: w\nprimary_directive: x\nlimits:\n  turn: 3\n"),
        ("jinxes/j.jinx", "jinx_name: j\neffects: read\nsteps:\n  - engine: bash\n    cod: x\n    code: x\n"),
    ])
    .unwrap();
    let shown: Vec<String> = team
        .diagnostics
        .iter()
        .map(|odd| format!("{}:{}: {}", odd.path.file_name().unwrap().display(), odd.line, odd.message))
        .collect();
    assert_eq!(
        shown,
        [
            "team.ctx:2: unknown key `contxt`, did you mean `context`?",
            "team.ctx:3: the key `providers` has no effect yet",
            "j.jinx:2: unknown key `effects`, did you mean `effect`?",
            "j.jinx:5: unknown key `cod`, did you mean `code`?",
            "w.npc:4: unknown key `turn`, did you mean `turns`?",
        ]
    );
}

#[test]
fn mistakes_are_errors_that_help() {
    let check = |files: &[(&str, &str)], expected: &str| assert_eq!(message(files), expected);
    check(
        &[("team.ctx", "name: x\nforenpc: worker\n"), ("w.npc", NPC)],
        "team.ctx:2: there is no NPC `worker` (known: w)",
    );
    check(
        &[("w.npc", "primary_directive: x\njinxes: [shel]\n")],
        "w.npc:2: there is no jinx `shel`, did you mean `shell`? (known: edit_file, python, read_file, shell, write_file)",
    );
    check(&[("a.npc", NPC), ("b.npc", NPC)], "b.npc:1: the NPC `w` is described in a.npc too");
    check(
        &[("a.npc", "primary_directive: x"), ("b.npc", "primary_directive: x")],
        "a.npc:1: no `forenpc` says which NPC leads the team; there are: a, b",
    );
    check(&[("w.npc", NPC), ("jinxes/a.jinx", "steps: []")], "jinxes/a.jinx:1: the jinx `a` has no steps");
    let step = "steps: [{engine: bash, code: x}]\n";
    check(
        &[("w.npc", NPC), ("jinxes/a.jinx", &format!("jinx_name: 'a b'\n{step}"))],
        "jinxes/a.jinx:1: the name `a b` is not made of letters, digits, `_` and `-`",
    );
    check(
        &[("w.npc", NPC), ("jinxes/a.jinx", &format!("inputs:\n  - a: {{type: strng}}\n{step}"))],
        "jinxes/a.jinx:1: input `a`: unknown variant `strng`, expected one of `str`, `string`, `text`, `int`, `integer`, `float`, `number`, `bool`, `boolean`, `array`, `list`, `dict`, `map`, `object`",
    );
    assert!(
        load(&[]).unwrap_err().to_string().ends_with(
            "a team is a directory with a .ctx file and .npc files, and jinxes/ if it has its own"
        )
    );
    let unknown = |name: &str| Team::find(name).unwrap_err().to_string();
    assert_eq!(unknown("alar"), "there is no built-in team `alar`, did you mean `alara`? (known: alara)");
    assert!(unknown("./none").starts_with("there is no team in ./none: "));
    let npc = Team::stock("alara").unwrap().npc(Some("wroker")).unwrap_err().to_string();
    assert_eq!(npc, "there is no NPC `wroker`, did you mean `worker`? (known: worker)");
}

#[test]
fn malformed_yaml_shows_the_place() {
    let syntax = message(&[("w.npc", "name: w\nprimary_directive: [unclosed\njinxes: x\n")]);
    insta::assert_snapshot!("syntax", syntax);
    let engine = message(&[("w.npc", NPC), ("jinxes/a.jinx", "steps:\n  - engine: ruby\n    code: x\n")]);
    insta::assert_snapshot!("engine", engine);
}
