//! Files that only look like a rule, a jinx or a skill.

use super::*;
use crate::types::Verdict;

const RULES: &str = "write_file: deny\n";

/// Files and keys that resemble protective ones.
const NEAR: [(&str, &str); 51] = [
    ("permissions.yml", RULES),
    ("permission.yaml", RULES),
    ("Permissions.yaml", RULES),
    ("PERMISSIONS.YAML", RULES),
    ("premissions.yaml", RULES),
    ("permisions.yaml", RULES),
    ("permissions.json", "{}"),
    ("permissions.toml", ""),
    ("permissions.yaml.txt", RULES),
    ("permissions", RULES),
    (".permissions.yaml", RULES),
    (".permissions", RULES),
    ("permissions.yaml.yaml", RULES),
    ("permissions.yaml ", RULES),
    ("perms.yaml", RULES),
    ("permissions/rules.yaml", RULES),
    ("gate.yaml", "rules: {}"),
    ("gates.yml", "rules: {}"),
    ("shop.gates", "rules: {}"),
    ("shop.Gate", "rules: {}"),
    (".shop.gate", "rules: {}"),
    ("hooks.yaml", "before_tool: [x]"),
    ("hook.yml", "before_tool: [x]"),
    ("limits.yaml", "calls: 3"),
    ("limit.yml", "calls: 3"),
    ("phases.yaml", "[]"),
    ("phase.yml", "[]"),
    ("team.ctx", "permission: {write_file: deny}\n"),
    ("team.ctx", "Permissions: {write_file: deny}\n"),
    ("team.ctx", "premissions: {write_file: deny}\n"),
    ("team.ctx", "permission_rules: {write_file: deny}\n"),
    ("team.ctx", "limit: {calls: 3}\n"),
    ("team.ctx", "hook: {before_tool: x}\n"),
    ("team.ctx", "Gate: shop\n"),
    ("permissions.yaml", "write_fil: deny\n"),
    ("permissions.yaml", "Write_file: ask\n"),
    ("permissions.yaml", "write-file: deny\n"),
    ("permissions.yaml", "jinxes/write_file: deny\n"),
    ("permissions.yaml", "shel:rm: deny\n"),
    ("permissions.yaml", "Bash:rm: deny\n"),
    ("permissions.yaml", "Write: deny\n"),
    ("permissions.yaml", "rm: ask\n"),
    ("team.ctx", "hooks: {before_tool: {jinx: shell, tools: [write_fil]}}\n"),
    ("team.ctx", "hooks: {before_tool: {jinx: shell, tools: [read_file, Write_File]}}\n"),
    ("permissions.yaml", "shelll: {ls: allow, rm: deny}\n"),
    ("team.ctx", "permissions: {raed_file: deny}\n"),
    ("team.ctx", "permissions: {'edit_fiel:x': ask}\n"),
    ("w.npc", "permissions: {write_file: deny}\n"),
    ("w.npc", "permission: deny\n"),
    ("w.npc", "phase: []\n"),
    ("w.npc", "hooks: {before_tool: x}\n"),
];

#[test]
fn nobody_runs_where_something_only_resembles_a_rule() {
    for (path, text) in NEAR {
        let npc_says = if path == "w.npc" { format!("{NPC}{text}") } else { NPC.to_owned() };
        let (team, diagnostics) = match path {
            "w.npc" => load(&[("w.npc", &npc_says)]),
            path => load(&[("w.npc", &npc_says), (path, text)]),
        };
        assert!(diagnostics.iter().any(|told| told.contains(": error: ")), "{path} {text}: {diagnostics:?}");
        npc(&team, "w").may_run().expect_err(path);
    }
    // Unrelated words, and files of other kinds.
    for (path, text) in [
        ("team.ctx", "phrases: [hello]\ndates: [1]\ngame: chess\ncommissions: 3\n"),
        ("permissions.yaml", "shell: ask\n"),
        ("permissions.yaml", "bash:rm: deny\npython: ask\nnothing_such: allow\n"),
        ("lists.yaml", "[]"),
        ("permissions.md", "How we use them."),
    ] {
        let (team, diagnostics) = load(&[("w.npc", NPC), (path, text)]);
        assert!(!diagnostics.iter().any(|told| told.contains(": error: ")), "{path}: {diagnostics:?}");
        npc(&team, "w").may_run().unwrap();
    }
}

#[test]
fn jinxes_and_skills_that_nothing_reads_are_errors() {
    let skill = "---\nname: s\ndescription: d\n---\ntext\n";
    for (path, text) in [
        ("a.jinx", STEPS),
        ("SKILL.md", skill),
        ("jinx/a.jinx", STEPS),
        ("Jinxes/a.jinx", STEPS),
        ("skills/s/SKILL.md", skill),
        ("skill/s/SKILL.md", skill),
    ] {
        let (_, diagnostics) = load(&[("w.npc", NPC), (path, text)]);
        let expected = format!("{path}: error: nothing reads it here");
        assert!(diagnostics.iter().any(|told| told.starts_with(&expected)), "{path}: {diagnostics:?}");
    }
    let named = "SKILLS_DIRECTORY: skills\n";
    clean(&[("w.npc", NPC), ("team.ctx", named), ("skills/s/SKILL.md", skill)]);
    let (_, diagnostics) = load(&[("w.npc", NPC), ("jinxes/a.jinx", &format!("permision: deny\n{STEPS}"))]);
    let expected = "jinxes/a.jinx:1:1: error: unknown key `permision`, did you mean `permission`?";
    assert_eq!(diagnostics, [expected]);
}

#[test]
fn the_stricter_of_two_files_rules_holds() {
    for (ctx, file, holds) in [("deny", "allow", "team.ctx:1"), ("allow", "deny", "permissions.yaml:1")] {
        let ctx = format!("permissions: {{shell: {ctx}}}\n");
        let file = format!("shell: {file}\n");
        let (team, diagnostics) = load(&[("w.npc", NPC), ("team.ctx", &ctx), ("permissions.yaml", &file)]);
        let rule = team.rules.iter().rfind(|rule| rule.pattern == "shell").unwrap();
        assert_eq!((rule.verdict, rule.by.as_str()), (crate::types::Verdict::Deny, holds));
        let expected = format!(
            "permissions.yaml: warning: team.ctx:1 and permissions.yaml:1 have different rules for `shell`: the stricter one holds, that of {holds}"
        );
        assert_eq!(diagnostics, [expected]);
    }
}

#[test]
fn a_rule_that_fits_nothing_is_an_error_and_holds_for_all_calls() {
    let rules = |text: &str| {
        let (team, diagnostics) = load(&[("w.npc", NPC), ("permissions.yaml", text)]);
        let is_told =
            |told: &String| told.contains(": error: the rule `shell:") && told.contains("fits nothing");
        assert!(diagnostics.iter().any(is_told), "{text}: {diagnostics:?}");
        team.rules.into_iter().map(|rule| (rule.pattern, rule.verdict)).collect::<Vec<_>>()
    };
    for text in ["'shell:': deny\n", "'shell:*': deny\n", "shell: {'cat*': deny}\n"] {
        assert_eq!(rules(text), [("shell".to_owned(), Verdict::Deny)], "{text}");
    }
    assert_eq!(rules("'shell:*': allow\n"), []);
}
