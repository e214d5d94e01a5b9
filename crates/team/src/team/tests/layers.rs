//! The layers below and around a team: sub-teams, rules, built-in jinxes, the user's own, changes.

use super::*;
use crate::types::Verdict;

/// Compatibility: "Sub-teams".
#[test]
fn sub_teams() {
    let dir = TeamDir::new(&[
        (
            "team.ctx",
            "forenpc: boss\ncontext: Secret of the parent.\nmodel: big\nplace: here\nlimits: {turns: 7}\n\
             providers: [{name: p, api_url: 'http://127.0.0.1:1/v1', model: pm}]\n\
             store: {plan: {write: [boss]}}\n\
             permissions: {python: allow, shell: ask, 'shell:git push': deny}\n",
        ),
        ("boss.npc", "directive: Lead.\njinxes: [shell]\n"),
        ("jinxes/ours.jinx", STEPS),
        ("jinxes/both.jinx", &format!("description: above\n{STEPS}")),
        (
            "code/team.ctx",
            "forenpc: corca\ncontext: We write code. And more.\n\
             permissions:\n  shell: allow\n  shell:git push origin: allow\n  shell:ls: deny\n",
        ),
        ("code/corca.npc", "directive: Code.\njinxes: [ours, both, shell]\nprovider: p\n"),
        ("code/helper.npc", "directive: Help {{ ctx.dir }}.\nlimits: {depth: 1}\n"),
        ("code/jinxes/both.jinx", &format!("description: below\n{STEPS}")),
        ("code/deep/team.ctx", "description: Deep.\n"),
        ("code/deep/d.npc", "directive: d\n"),
        ("broken/team.ctx", "description: none\n"),
        ("notes/readme.txt", "no team\n"),
    ]);
    #[cfg(unix)]
    std::os::unix::fs::symlink(dir.0.path(), dir.path("code/up")).unwrap();
    let team = Team::load(dir.0.path()).unwrap();
    let names = |teams: &[Team]| teams.iter().map(|team| team.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&team.teams), ["code"]);
    assert_eq!(team.npcs.len(), 1);
    let code = &team.teams[0];
    assert_eq!((code.description.as_str(), code.forenpc.as_str()), ("We write code.", "corca"));
    assert_eq!(names(&code.teams), ["deep"]);
    assert_eq!(
        team.member("code").map(|(team, npc)| (team.name.as_str(), npc.name.as_str())),
        Some(("code", "corca"))
    );
    assert!(team.member("corca").is_none());

    // Inherited: model, providers, limits, jinxes below the own ones.
    assert_eq!(code.model.model.as_deref(), Some("big"));
    let corca = npc(code, "corca");
    assert_eq!((corca.model.model.as_deref(), corca.limits.turns), (Some("pm"), 7));
    assert_eq!(corca.jinxes, ["ours", "both", "shell"]);
    let description = |team: &Team| team.jinx("both").unwrap().description.clone();
    assert_eq!((description(&team), description(code)), ("above".to_owned(), "below".to_owned()));
    assert_eq!((npc(code, "helper").limits.turns, npc(code, "helper").limits.depth), (7, 1));

    // Not inherited: context, values, store, and rules that permit something.
    assert!(!serde_json::to_string(code).unwrap().contains("Secret"));
    assert_eq!(npc(code, "helper").directive, "Help .");
    assert!(code.store.is_empty() && code.values.is_empty());
    let rules = |team: &Team| -> Vec<(String, Verdict)> {
        team.rules.iter().map(|rule| (rule.pattern.clone(), rule.verdict)).collect()
    };
    let rule = |pattern: &str, verdict| (pattern.to_owned(), verdict);
    assert_eq!(
        rules(&team),
        [
            rule("py", Verdict::Allow),
            rule("python", Verdict::Allow),
            rule("shell", Verdict::Ask),
            rule("shell:git push", Verdict::Deny),
        ]
    );
    assert_eq!(
        rules(code),
        [rule("shell", Verdict::Ask), rule("shell:git push", Verdict::Deny), rule("shell:ls", Verdict::Deny)]
    );
    let diagnostics: Vec<String> = team.diagnostics.iter().map(|odd| dir.shown(&odd.to_string())).collect();
    let expected = [
        "code/up: error: this link leads back to a team that it is in",
        "code/team.ctx:4:3: warning: the rule for `shell` has no effect: team.ctx:8 forbids more, for the whole team",
        "code/team.ctx:5:3: warning: the rule for `shell:git push origin` has no effect: team.ctx:8 forbids more, for the whole team",
    ];
    for line in expected {
        assert!(diagnostics.iter().any(|other| other == line), "{line}: {diagnostics:#?}");
    }
    assert!(
        diagnostics.iter().any(|line| line.contains("nobody leads the team in broken")),
        "{diagnostics:#?}"
    );
}

/// Compatibility: "permissions / `permissions.yaml`".
#[test]
fn permissions_and_permissions_yaml() {
    let rules = |files: &[(&str, &str)]| -> (Vec<String>, Vec<String>) {
        let mut files = files.to_vec();
        files.push(("w.npc", NPC));
        let (team, diagnostics) = load(&files);
        let show = |rule: &Rule| format!("{} {:?} {}", rule.pattern, rule.verdict, rule.by);
        (team.rules.iter().map(show).collect(), diagnostics)
    };
    assert_eq!(
        rules(&[
            ("team.ctx", "permissions:\n  shell: ask\n  shell:git push: allow\n"),
            ("permissions.yaml", "sh: deny\nshell: {default: ask, ls: allow}\n"),
        ]),
        (
            vec![
                "shell Ask team.ctx:2".to_owned(),
                "shell:git push Allow team.ctx:3".to_owned(),
                "shell Deny permissions.yaml:1".to_owned(),
                "sh Deny permissions.yaml:1".to_owned(),
                "shell Ask permissions.yaml:2".to_owned(),
                "shell:ls Allow permissions.yaml:2".to_owned(),
            ],
            Vec::new()
        )
    );
    // Unreadable rules permit nothing.
    let (found, diagnostics) = rules(&[("permissions.yaml", "shell: dney\nshel: ask\n")]);
    assert_eq!(found, ["shell Deny permissions.yaml:1", "shel Ask permissions.yaml:2"]);
    assert_eq!(
        diagnostics,
        [
            "permissions.yaml:1:8: error: a verdict is allow, ask or deny, not \"dney\"; this counts as deny",
            "permissions.yaml:2:1: error: there is no jinx `shel`, did you mean `shell`? Nobody of the team runs; if a client brings this tool, list it under `jinxes` of an NPC",
        ]
    );
    for file in ["permissions.yaml", "team.ctx"] {
        let (found, diagnostics) = rules(&[(file, "shell: [\n")]);
        let [_, refused] = &diagnostics[..] else { panic!("{diagnostics:?}") };
        assert!(refused.starts_with(file) && refused.ends_with("nobody of the team runs"), "{refused}");
        let asks = format!("shell Ask {file}, which can't be read");
        assert!(found.contains(&asks) && found.len() >= 5, "{found:?}");
    }
    // Rules where nothing reads them let nobody run either.
    for text in ["permissions:\n  shell: deny\n", "- shell: deny\n", "shell\n"] {
        let (team, diagnostics) = load(&[("permissions.yaml", text), ("w.npc", NPC)]);
        let broken = npc(&team, "w").gate.broken.as_ref().map(ToString::to_string);
        assert!(broken.is_some_and(|why| why.contains("nobody of the team runs")), "{diagnostics:?}");
    }
    let (team, _) = load(&[("permissions.yaml", "# none yet\n"), ("w.npc", NPC)]);
    assert_eq!(npc(&team, "w").gate.broken, None);
    let (found, _) = rules(&[("permissions.yaml", "shell: allow\ndefault: ask\n")]);
    assert_eq!(found.last().unwrap(), "shell Allow permissions.yaml:1");
    assert!(found.contains(&"read_file Ask permissions.yaml:2".to_owned()));
}

#[test]
fn what_cannot_run_here_is_replaced_or_left_out() {
    let foreign = "permissions: {default: ask}\nsteps:\n  - engine: python\n    code: |\n      import os\n      from nowhere_a.llm import x\n      output = state\n";
    let calls = "steps: [{engine: other}]\n";
    let caught = "steps: [{try: [{engine: other}], catch: [{return: none}]}]\n";
    let beside = "steps: [{engine: python, code: 'import own_module'}]\n";
    let files = [
        ("t/w.npc", "directive: d\njinxes: [lib/core/shell, other, caller, catcher, beside]\n"),
        ("t/jinxes/lib/core/shell.jinx", foreign),
        ("t/jinxes/other.jinx", foreign),
        ("t/jinxes/caller.jinx", calls),
        ("t/jinxes/catcher.jinx", caught),
        ("t/jinxes/beside.jinx", beside),
    ];
    let dir = TeamDir::new(&files);
    let read = || {
        let team = Team::load(&dir.path("t")).unwrap();
        let diagnostics: Vec<String> =
            team.diagnostics.iter().map(|odd| dir.shown(&odd.to_string())).collect();
        (team, diagnostics)
    };
    let (team, diagnostics) = read();
    let shell = team.jinx("shell").unwrap();
    assert_eq!(Library::stock().get("shell").unwrap().steps, shell.steps);
    assert_eq!((shell.permission, shell.reference.as_str()), (Some(Verdict::Ask), "lib/core/shell"));
    assert_eq!(npc(&team, "w").jinxes, ["shell", "catcher"]);
    // It stays known: a person may call it.
    assert!(matches!(&team.jinx("other").unwrap().steps[0].action, Action::Python { .. }));
    let needs = "needs the Python module `nowhere_a`, the name `state`";
    assert_eq!(
        diagnostics,
        [
            format!("t/jinxes/lib/core/shell.jinx:6:7: warning: `shell` can't run here, it {needs}; the built-in jinx of this name is used instead"),
            "t/jinxes/beside.jinx:1:33: warning: `beside` can't run here, it needs the Python module `own_module`; it is offered to no model".to_owned(),
            "t/jinxes/caller.jinx:1:9: warning: `caller` can't run here, it needs the jinx `other`; it is offered to no model".to_owned(),
            format!("t/jinxes/other.jinx:6:7: warning: `other` can't run here, it {needs}; it is offered to no model"),
        ]
    );
    // A module next to the team, in the current directory, is available.
    dir.write("own_module.py", "");
    let (team, diagnostics) = read();
    assert_eq!(npc(&team, "w").jinxes, ["shell", "catcher", "beside"]);
    assert_eq!(diagnostics.len(), 3);
}

#[test]
fn a_byte_order_mark_is_no_text() {
    let marked = |text: &str| format!("\u{feff}{text}");
    let files = [
        ("team.ctx", marked("---\nname: marked\nforenpc: w\n")),
        ("w.npc", marked("#!/usr/bin/env npc\nname: w\nprimary_directive: d\njinxes: [one, knots]\n")),
        ("agents.md", marked("## scout\nLook.\n")),
        ("agents/smith.md", marked("---\ndescription: Use when: iron is hot\n---\nForge.\n")),
        ("permissions.yaml", marked("one: ask\n")),
        ("jinxes/one.jinx", marked("jinx_name: one\nsteps: [{engine: bash, code: 'true'}]\n")),
        (
            "jinxes/knots/skill.md",
            marked("---\nname: knots\ndescription: Use when: a rope is loose\n---\nTie.\n"),
        ),
    ];
    let (team, diagnostics) = load(&files.each_ref().map(|(path, text)| (*path, text.as_str())));
    let read = "is no YAML; it is read as a text: put it in quotes";
    assert_eq!(
        diagnostics,
        [
            format!("jinxes/knots/skill.md:3:1: warning: `description` {read}"),
            format!("agents/smith.md:2:1: warning: `description` {read}"),
        ]
    );
    assert_eq!((team.name.as_str(), team.rules.len()), ("marked", 1));
    let names: Vec<&str> = team.npcs.iter().map(|npc| npc.name.as_str()).collect();
    assert_eq!((names, npc(&team, "smith").directive.as_str()), (vec!["scout", "smith", "w"], "Forge."));
    assert_eq!(npc(&team, "w").jinxes, ["one", "knots"]);
    assert_eq!(team.jinx("knots").unwrap().description, "Use when: a rope is loose");
}

#[test]
fn where_teams_are_looked_for() {
    let dir = TeamDir::new(&[
        ("work/npc_team/w.npc", NPC),
        ("work/teams/mine/team.ctx", "description: in teams\nforenpc: w\n"),
        ("work/teams/mine/w.npc", NPC),
        ("work/alara/src/main.rs", "no team"),
        ("config/alara/teams/yours/w.npc", "directive: d\njinxes: [greet, shell]\n"),
        ("config/alara/jinxes/greet.jinx", STEPS),
        ("config/alara/jinxes/shell.jinx", &format!("description: the user's\n{STEPS}")),
        ("home/.npcsh/npc_team/w.npc", NPC),
    ]);
    let search = Search {
        work: dir.path("work"),
        config_home: Some(dir.path("config")),
        home: Some(dir.path("home")),
        ..Search::default()
    };
    let check = |name: Option<&str>, directory: Option<&str>| {
        let team = search.team(name).unwrap();
        assert_eq!(team.directory, directory.map(|path| dir.path(path)), "{name:?}");
        assert_eq!(team.jinx("shell").unwrap().description, "the user's", "{name:?}");
    };
    check(None, Some("work/npc_team"));
    check(Some("mine"), Some("work/teams/mine"));
    check(Some("teams/mine"), Some("work/teams/mine"));
    check(Some("yours"), Some("config/alara/teams/yours"));
    check(Some("npcsh"), Some("home/.npcsh/npc_team"));
    check(Some("alara"), None);
    let error = search.team(Some("mien")).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "there is no team `mien`, did you mean `mine`? (known: alara, bank, mine, review, shop, "
        ),
        "{error}"
    );
    let nowhere = Search { work: dir.path("home"), ..Search::default() };
    assert_eq!(nowhere.team(None).unwrap().name, "alara");
    let found = |name: Option<&str>| search.team(name).unwrap().found;
    dir.write("work/teams/review/w.npc", NPC);
    dir.write("work/yours/w.npc", NPC);
    assert!(found(None) && found(Some("review")) && found(Some("yours")));
    assert!(
        ![Some("mine"), Some("teams/review"), Some("./npc_team"), Some("npcsh"), Some("alara")]
            .into_iter()
            .any(found)
    );
    // A team may exclude the user's own jinxes.
    dir.write("work/npc_team/team.ctx", "use_global_jinxes: false\n");
    assert!(search.team(None).unwrap().jinx("greet").is_none());
}

#[test]
fn a_fingerprint_is_of_what_files_say() {
    let dir = TeamDir::new(&[
        ("CLAUDE.md", "## a\nx\n"),
        ("t/team.ctx", "forenpc: w\nagents: [CLAUDE.md]\n"),
        ("t/w.npc", NPC),
        ("t/sub/v.npc", "directive: d\n"),
        ("user/own.jinx", STEPS),
    ]);
    let load =
        || Team::load_with(&dir.path("t"), Some(&dir.path("user")), dir.0.path()).unwrap().fingerprint();
    let first = load();
    let check = |path: &str, text: &str, differs: bool| {
        let before = std::fs::read(dir.path(path)).ok();
        dir.write(path, text);
        assert_eq!(load() != first, differs, "{path}");
        match before {
            Some(before) => std::fs::write(dir.path(path), before).unwrap(),
            None => std::fs::remove_file(dir.path(path)).unwrap(),
        }
        assert_eq!(load(), first, "{path}");
    };
    check("t/w.npc", "name: w\ndirective: other\n", true);
    check("t/sub/v.npc", "directive: e\n", true);
    check("t/jinxes/new.jinx", STEPS, true);
    check("t/permissions.yaml", "shell: allow\n", true);
    check("CLAUDE.md", "## a\ny\n", true);
    check("t/notes.txt", "nothing of a team", false);
    check("user/more.jinx", STEPS, false);
}

#[test]
fn changes_are_seen() {
    let dir = TeamDir::new(&[
        ("CLAUDE.md", "## a\nx\n"),
        ("t/team.ctx", "forenpc: w\nagents: [CLAUDE.md]\n"),
        ("t/w.npc", NPC),
        ("t/sub/v.npc", "directive: d\n"),
    ]);
    let load = || Team::load(&dir.path("t")).unwrap();
    let check = |change: &dyn Fn()| {
        let team = load();
        assert!(!team.changed());
        change();
        assert!(team.changed());
    };
    check(&|| dir.write("t/w.npc", "name: w\ndirective: Longer than before, by far.\n"));
    check(&|| dir.write("t/jinxes/new.jinx", STEPS));
    check(&|| dir.write("t/sub/v.npc", "directive: another\n"));
    check(&|| dir.write("CLAUDE.md", "## a\nlonger\n"));
    check(&|| std::fs::remove_file(dir.path("t/jinxes/new.jinx")).unwrap());
    let team = load();
    dir.write("t/notes.txt", "nothing of a team");
    assert!(!team.changed() && !Team::stock("alara").unwrap().changed());
}

/// A team with the same name as the one above has a separate store.
#[test]
fn stores_of_teams_with_one_name() {
    let team = clean(&[
        ("team.ctx", "name: a\ndescription: d\nforenpc: w\nstore: {plan: {read: [w], write: [w]}}\n"),
        ("w.npc", NPC),
        ("sub/team.ctx", "name: a\ndescription: d\n"),
        ("sub/v.npc", "directive: d\n"),
        ("sub/sub/team.ctx", "name: a/a\ndescription: d\n"),
        ("sub/sub/v.npc", "directive: d\n"),
    ]);
    let below = &team.teams[0];
    assert_eq!([team.key(), below.key(), below.teams[0].key()], ["a", "a/a", "a/a/a~1a"]);
    let store = crate::store::Store::default();
    store.write(&team, "w", "plan", "secret".into()).unwrap();
    store.write(below, "v", "plan", "other".into()).unwrap();
    assert_eq!(store.read(&team, "w")["plan"], "secret");
    assert_eq!(store.read(below, "v")["plan"], "other");
}

/// A rule of a sub-team in other words lifts no restriction either.
#[test]
fn rules_in_other_words() {
    let check = |above: &str, below: &str| {
        let (team, diagnostics) = load(&[
            ("permissions.yaml", &format!("{above}: deny\n")),
            ("w.npc", NPC),
            ("sub/team.ctx", "description: d\n"),
            ("sub/v.npc", NPC),
            ("sub/permissions.yaml", below),
        ]);
        let allows = |rule: &&Rule| rule.verdict == Verdict::Allow;
        assert_eq!(team.teams[0].rules.iter().find(allows), None, "{below}");
        assert!(diagnostics.iter().any(|line| line.contains("has no effect")), "{below}: {diagnostics:?}");
    };
    check("shell:git push", "shell:git  push: allow\n");
    check("shell:git push", "'shell: git push': allow\n");
    check("shell:git push", "' shell :git push ': allow\n");
    check("shell:git push", "shell: {' git\tpush origin': allow}\n");
    check("'shell:git  push'", "shell:git push: allow\n");
    check("shell:git push", "sh:git push: allow\n");
}

/// A provider's key is not sent to an address that an NPC sets.
#[test]
fn a_providers_key_stays_with_its_address() {
    let team = clean(&[
        ("team.ctx", "forenpc: w\nproviders: [{name: p, api_url: 'https://p', api_key: $KEY}]\n"),
        ("w.npc", "directive: d\nprovider: p\n"),
        ("x.npc", "directive: d\nprovider: p\napi_url: https://else\n"),
    ]);
    assert_eq!(npc(&team, "w").model.api_key_env.as_deref(), Some("KEY"));
    assert_eq!(npc(&team, "x").model.api_key_env, None);
}

/// A team written by strangers can't read files outside itself.
#[cfg(unix)]
#[test]
fn nothing_is_read_outside_of_a_team() {
    use std::os::unix::fs::symlink;
    let dir = TeamDir::new(&[
        (".env", "## key\nSECRET\n"),
        ("notes.txt", "## key\nSECRET\n"),
        ("CLAUDE.md", "## build\nRun make.\n"),
        ("far/skills/s.jinx", STEPS),
        ("far/agents/spy.md", "SECRET"),
        ("far/team/w.npc", "directive: SECRET\n"),
        ("skills/s.jinx", STEPS),
        ("t/w.npc", NPC),
        ("t/.env", "## key\nSECRET\n"),
        ("t/agents/good.md", "Good."),
        ("t/agents/large.md", &"x".repeat((1 << 20) + 1)),
    ]);
    let link = |to: &str, at: &str| symlink(dir.path(to), dir.path(at)).unwrap();
    link("far/agents/spy.md", "t/agents/lead.md");
    link("t/.env", "t/agents/other.md");
    link("notes.txt", "LINK.md");
    link("far/team", "t/outside");
    symlink("/proc/self/environ", dir.path("t/agents/proc.md")).unwrap();
    symlink("/dev/zero", dir.path("t/agents/zero.md")).unwrap();
    symlink("good.md", dir.path("t/agents/alias.md")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(dir.path("t/agents/pipe.md")).status().unwrap();
    assert!(pipe.success());
    let read = |ctx: &str| {
        dir.write("t/team.ctx", &format!("forenpc: w\n{ctx}\n"));
        let team = Team::load(&dir.path("t")).unwrap();
        assert!(!serde_json::to_string(&team).unwrap().contains("SECRET"), "{ctx}");
        let diagnostics: Vec<String> =
            team.diagnostics.iter().map(|odd| dir.shown(&odd.to_string())).collect();
        (team, diagnostics.join("\n"))
    };
    let (team, diagnostics) = read("agents: [.env, LINK.md, CLAUDE.md, ../.env, /etc/passwd]");
    let names: Vec<&str> = team.npcs.iter().map(|npc| npc.name.as_str()).collect();
    assert_eq!(names, ["alias", "build", "good", "w"]);
    for expected in [
        "lead.md: error: it can't be read: this link leads out of",
        "proc.md: error: it can't be read: this link leads out of",
        "zero.md: error: it can't be read: this link leads out of",
        "other.md: error: it can't be read: this link leads to a file of another kind",
        "LINK.md: error: it can't be read: this link leads to a file of another kind",
        "large.md: error: it can't be read: it has more than 1 MiB",
        "pipe.md: error: it can't be read: it is no regular file",
        "t/outside: error: this link leads out of",
        "there is no Markdown file \".env\"",
        "there is no Markdown file \"../.env\"",
        "there is no Markdown file \"/etc/passwd\"",
    ] {
        assert!(diagnostics.contains(expected), "{expected}: {diagnostics}");
    }
    assert!(read("SKILLS_DIRECTORY: ../skills").0.jinx("s").is_some());
    let far = dir.path("skills").display().to_string();
    link("far/skills", "t/more");
    assert!(read("SKILLS_DIRECTORY: more").0.jinx("s").is_some(), "it is beside the team");
    for path in ["..", "../..", "/", &far] {
        let (team, diagnostics) = read(&format!("SKILLS_DIRECTORY: '{path}'"));
        assert!(
            team.jinx("s").is_none() && diagnostics.contains("is not used: copy it"),
            "{path}: {diagnostics}"
        );
    }
    // Unreadable rules permit nothing.
    dir.write("rules.yaml", "shell: allow\n");
    link("rules.yaml", "t/permissions.yaml");
    let (team, _) = read("");
    assert!(team.rules.iter().any(|rule| rule.pattern == "shell" && rule.verdict == Verdict::Ask));
    // A folder of the team's own doesn't count elsewhere.
    link("far/skills", "t/jinxes");
    assert!(read("").0.jinx("s").is_none());
}
