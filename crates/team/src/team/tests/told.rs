//! Files are read as written, and each mistake is reported once: correct parts are not reported.

use super::*;

#[test]
fn names_are_as_they_are_written() {
    for name in ["007", "1e3", "0x10", "1_000", "no", "On", "12", "1-2", "2026-01-31"] {
        let files = [
            ("team.ctx", format!("forenpc: {name}\nstore: {{plan: {{write: {name}}}}}\n")),
            ("x.npc", format!("name: {name}\nprimary_directive: d\nmodel: {name}\njinxes: [{name}]\n")),
            ("jinxes/y.jinx", format!("jinx_name: {name}\ndescription: {name}\n{STEPS}")),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let team = clean(&files);
        let npc = team.npc(None).unwrap();
        let jinx = team.jinx(name).unwrap();
        assert_eq!(
            (npc.name.as_str(), npc.jinxes.as_slice(), npc.model.model.as_deref(), jinx.description.as_str()),
            (name, [name.to_owned()].as_slice(), Some(name), name)
        );
    }
    // A value that can't be a name is reported as written.
    let (_, told) = load(&[("a.npc", NPC), ("b.npc", "name: 1.10\nprimary_directive: d\n")]);
    assert_eq!(told[0], "b.npc:1:1: error: the name `1.10` is not made of letters, digits, `_` and `-`");
    let (_, told) = load(&[("a.npc", NPC), ("b.npc", "name: [b]\nprimary_directive: d\n")]);
    assert_eq!(told[0], "b.npc:1:7: error: `name` must be a text, not a list");
}

#[test]
fn values_for_programs_are_as_they_are_written() {
    let ctx = "forenpc: w\nmcp_servers:\n- {name: s, command: server, args: [1.10, no, 007], env: {VERSION: 1.10, DEBUG: off}, timeout: 1_0}\n";
    let team = clean(&[("team.ctx", ctx), ("w.npc", &format!("{NPC}mcp_servers: [s]\n"))]);
    let server = &team.servers[0];
    let crate::mcp::Way::Program(words) = &server.way else { panic!("{server:?}") };
    assert_eq!(words, &["server", "1.10", "no", "007"]);
    let shown = format!("{:?}", server.given);
    assert!(shown.contains("\"1.10\"") && shown.contains("\"off\""), "{shown}");
    assert_eq!(server.timeout.as_secs(), 10);
}

#[test]
fn a_bad_name_leaves_the_other_keys_known() {
    let (_, told) = load(&[
        ("a.npc", NPC),
        (
            "b.npc",
            "name: a b\nprimary_directive: d\nmodel: m\njinxes: [shell, shlel]\nlimits: {turns: 0}\nlanguge: x\n",
        ),
        ("jinxes/skills/s/SKILL.md", "---\nname: a b\ndescription: d\nlicense: MIT\nlicence: MIT\n---\nx\n"),
    ]);
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    assert_eq!(
        told,
        [
            "jinxes/skills/s/SKILL.md:2:1: error: the name `a b` is not made of letters, digits, `_` and `-`",
            "jinxes/skills/s/SKILL.md:5:1: warning: unknown key `licence`, did you mean `license`?",
            "b.npc:1:1: error: the name `a b` is not made of letters, digits, `_` and `-`",
            "b.npc:5:17: error: `turns` must be a whole number above 0",
            "b.npc:4:17: warning: there is no jinx `shlel`, did you mean `shell`?; it is left out",
            "b.npc:6:1: warning: unknown key `languge`, did you mean `language`?",
        ]
    );
}

#[test]
fn who_names_what_is_broken_is_right() {
    let dir = TeamDir::new(&[
        ("team.ctx", "forenpc: b\nstore: {plan: {write: [b]}}\npermissions: {own: ask}\n"),
        ("a.npc", "name: a\nprimary_directive: d\njinxes: [own, lib/own]\n"),
        ("b.npc", "name: b\nprimary_directive: [\n"),
        ("jinxes/own.jinx", "steps:\n- {engine: bash, cod: ls}\n"),
        (
            "jinxes/calls.jinx",
            "steps:\n- {engine: own, with: {x: 1}}\n- {engine: llm, prompt: hi, tools: [own]}\n",
        ),
    ]);
    let team = Team::load(dir.0.path()).unwrap();
    let told: Vec<String> = team.check().iter().map(|problem| dir.shown(&problem.to_string())).collect();
    assert_eq!(
        told,
        [
            "a.npc:3:10: warning: the jinx `own` can't be used, see jinxes/own.jinx; it is left out",
            "a.npc:3:15: warning: the jinx `own` can't be used, see jinxes/own.jinx; it is left out",
            "b.npc:2:20: error: unclosed bracket '['",
            "jinxes/own.jinx:2:3: error: this step has no `code`",
            "jinxes/own.jinx:2:18: warning: unknown key `cod`, did you mean `code`?",
            "team.ctx:1:10: warning: `b` can't be used, see b.npc; `a` leads the team",
        ]
    );
    // The contents of an unreadable `.ctx` are unknown.
    says(
        &[("team.ctx", "forenpc: b\n---\nforenpc: c\n"), ("a.npc", NPC), ("b.npc", "primary_directive: d\n")],
        &[
            "team.ctx:3:1: error: a second YAML document begins here, but a file is one: leave out the line `---` before it, or put it into a file of its own",
            "team.ctx: error: it can't be used, and may have rules, hooks or gates: nobody of the team runs",
        ],
    );
}

#[test]
fn an_mcp_server_without_a_command_is_told_once() {
    says(
        &[
            ("team.ctx", "forenpc: w\nmcp_servers:\n- {name: s, comand: server, args: [x], env: {A: b}}\n"),
            ("w.npc", NPC),
        ],
        &[
            "team.ctx:3:13: warning: unknown key `comand`, did you mean `command`?",
            "team.ctx:3:3: error: there is no MCP server `s`; a program is named as `command: …`, a file as `path: …`",
        ],
    );
}
