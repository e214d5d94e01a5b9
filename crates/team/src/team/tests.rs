use super::*;
use crate::jinx::Action;
use crate::prompt;
use crate::types::Effect;

mod gates;
mod hooks;
mod knowledge;
mod layers;
mod strays;
mod told;

const NPC: &str = "name: w\nprimary_directive: Work.\njinxes: [shell]\n";
const STEPS: &str = "steps: [{engine: bash, code: 'true'}]\n";

/// A directory with files.
struct TeamDir(tempfile::TempDir);

impl TeamDir {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = TeamDir(tempfile::tempdir().unwrap());
        files.iter().for_each(|(path, text)| dir.write(path, text));
        dir
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Replaces the directory's absolute paths in a text.
    fn shown(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.path().display()), "")
    }
}

/// The team of some files, and their diagnostics.
fn load(files: &[(&str, &str)]) -> (Team, Vec<String>) {
    let dir = TeamDir::new(files);
    let team = Team::load(dir.0.path()).unwrap();
    let diagnostics = team.diagnostics.iter().map(|odd| dir.shown(&odd.to_string())).collect();
    (team, diagnostics)
}

fn clean(files: &[(&str, &str)]) -> Team {
    let (team, diagnostics) = load(files);
    assert_eq!(diagnostics, Vec::<String>::new());
    team
}

fn says(files: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(load(files).1, expected, "{files:?}");
}

fn npc<'a>(team: &'a Team, name: &str) -> &'a Npc {
    team.npc(Some(name)).unwrap()
}

#[test]
fn the_stock_team_as_a_model_sees_it() {
    let team = Team::stock("alara").unwrap();
    let npc = team.npc(Some("worker")).unwrap();
    assert_eq!(team.diagnostics, []);
    let mut seen = String::new();
    for segment in prompt::system(&team, npc) {
        seen += &format!("[{}]\n{}\n", segment.name, segment.text);
    }
    for tool in prompt::tools(&team, npc) {
        seen += &format!("{}\n", serde_json::to_string(&tool).unwrap());
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn reads_keys_as_in_the_wild() {
    let team = clean(&[
        (
            "team.ctx",
            "#!/usr/bin/env npc\ndescription: d\ncontext: |\n  All know this.\nmodel: m\nforenpc: w\n\
             databases: [~/history.db]\npreferences: [Be brief.]\nuse_global_jinxes: true\nmcp_servers: []\n\
             city: Canberra\nlimits: {tool_output_bytes: 100}\ndate: 2026-01-31\n",
        ),
        (
            "w.npc",
            "#!/usr/bin/env npc\nname: w\nascii_art: |\n  ██\ncolors: {top: '1,2,3'}\n\
             primary_directive: |\n  Work.\njinxs: [own, shell]\nlimits: {turns: 3}\n",
        ),
        ("x.npc", "    #!/usr/bin/env npc\ndirective: Other.\njinxes: own\nmodel: nn\n"),
        ("jinxes/lib/own.jinx", &format!("jinx_name: own\ndescription: Ours\ninputs: [a, b: 1]\n{STEPS}")),
        (
            "jinxes/shell.jinx",
            "description: Another shell\ntimeout: 2\nnetwork: true\neffect: none\nsteps: [{name: s, engine: python, code: ''}]\n",
        ),
    ]);
    assert_eq!((team.forenpc.as_str(), team.context.as_str()), ("w", "All know this."));
    assert_eq!(team.date.as_deref(), Some("2026-01-31"));
    assert_eq!(
        serde_json::to_string(&team.values).unwrap(),
        r#"{"databases":["~/history.db"],"preferences":["Be brief."],"city":"Canberra"}"#
    );
    let worker = team.npc(None).unwrap();
    assert_eq!(
        (worker.model.model.as_deref(), worker.limits.turns, worker.limits.tool_output_bytes),
        (Some("m"), 3, 100)
    );
    assert_eq!(worker.jinxes, ["own", "shell"]);
    let other = npc(&team, "x");
    assert_eq!((other.model.model.as_deref(), other.directive.as_str()), (Some("nn"), "Other."));
    assert_eq!(other.jinxes, ["own"]);
    let shell = team.jinx("shell").unwrap();
    assert_eq!(
        (shell.description.as_str(), shell.network, shell.timeout.as_secs(), shell.effect),
        ("Another shell", true, 2, Effect::None)
    );
    let own = team.jinx("own").unwrap();
    assert_eq!(own.reference, "lib/own");
    assert_eq!(
        serde_json::to_string(&own.tool(&Default::default())).unwrap(),
        r#"{"name":"own","description":"Ours","parameters":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer","default":1}},"required":["a"],"additionalProperties":false}}"#
    );
}

#[test]
fn odd_keys_are_reported_with_their_place() {
    says(
        &[
            ("team.ctx", "forenpc: w\ncontxt: x\nmcp_servers: [a]\nage: 3\ndate: soon\nmodel: [m]\n"),
            (
                "w.npc",
                "name: w\nprimary_directive: x\nlimits:\n  turn: 3\n  turns: 0\nname: w\ntools: []\nmemory: {last: 3}\n",
            ),
            ("v.npc", "- a list\n"),
        ],
        &[
            "team.ctx:6:8: error: `model` must be a text, not a list",
            "team.ctx:3:15: error: there is no MCP server `a`; a program is named as `command: …`, a file as `path: …`",
            "team.ctx:5:1: error: a date is written as 2026-01-31, not `soon`",
            "team.ctx:2:1: warning: `contxt` is a value of the team's own; did you mean the key `context`?",
            "v.npc:1:1: error: this must be a mapping, not a list",
            "w.npc:6:1: warning: the key `name` occurs twice; the last one counts",
            "w.npc:8:1: warning: the key `memory` has no effect yet",
            "w.npc:5:10: error: `turns` must be a whole number above 0",
            "w.npc:4:3: warning: unknown key `turn`, did you mean `turns`?",
        ],
    );
}

/// An older name is read, but not proposed.
#[test]
fn of_the_names_of_a_key_the_first_is_proposed() {
    says(
        &[("w.npc", "name: w\nprimary_directive: x\njinx: [shell]\njinxss: []\ndirectiv: x\n")],
        &[
            "w.npc:3:1: warning: unknown key `jinx`, did you mean `jinxes`?",
            "w.npc:4:1: warning: unknown key `jinxss`, did you mean `jinxes`?",
            "w.npc:5:1: warning: unknown key `directiv`, did you mean `directive`?",
        ],
    );
}

/// Compatibility: "Template-before-YAML .npc".
#[test]
fn template_before_yaml_npc() {
    let (team, diagnostics) = load(&[
        ("team.ctx", "forenpc: boss\nmodel: {{ nothing.at.all }}\nplace: Paris\n"),
        (
            "boss.npc",
            "#!/usr/bin/env npc\nname: boss\nprimary_directive: |\n  You work in {{ ctx.place }} {{ unknown }}with {{ NPC('hand') }}.\n\
             jinxes:\n  - {{ Jinx('delegate') }}\n  - {{ ref('shell') }}\n  - {{ chat }}\n  - {{ Jinx('x', path='lib/stop') }}\n",
        ),
        (
            "hand.npc",
            "name: hand\nprimary_directive: d\njinxes:\n{% for j in jinxes_list('lib/browser_*') %}\n  - {{ j }}\n{% endfor %}\n\
             {% for j in jinxes_list('lib/*') %}\n  - {{ j }}\n{% endfor %}\n  - {{ Jinx('shell') }}\n  - chta\n",
        ),
        ("far.npc", "name: far\nprimary_directive: d\njinxes: [\"{{ Jinx('chat', repo='a/b') }}\"]\n"),
        ("bad.npc", "name: bad\nprimary_directive: {{ }}\n"),
        (
            "worse.npc",
            "name: worse\nprimary_directive: d\njinxes:\n{% for j in jinxes_list('*') %}\n  - {{ j }}\n",
        ),
        ("jinxes/lib/chat.jinx", STEPS),
        ("jinxes/lib/stop.jinx", STEPS),
        ("jinxes/delegate.jinx", STEPS),
    ]);
    assert_eq!(npc(&team, "boss").directive, "You work in Paris with hand.");
    assert_eq!(npc(&team, "boss").jinxes, ["delegate", "shell", "chat", "stop"]);
    assert_eq!(npc(&team, "hand").jinxes, ["chat", "stop", "shell"]);
    assert_eq!(npc(&team, "far").jinxes, ["chat"]);
    assert_eq!(
        diagnostics,
        [
            "bad.npc:2:1: error: the template is wrong: syntax error: unexpected end of variable block",
            "hand.npc:11:5: warning: there is no jinx `chta`, did you mean `chat`?; it is left out",
            "worse.npc:5:1: error: the template is wrong: syntax error: unexpected end of input, expected end of block",
            "team.ctx:2:11: warning: `nothing` is not defined, so nothing stands in its place",
            "boss.npc:4:34: warning: `unknown` is not defined, so nothing stands in its place",
            "far.npc: warning: nothing is fetched when a team is loaded: `chat` is taken from this team, if it has it",
        ]
    );
}

/// Compatibility: "jinxes list forms".
#[test]
fn jinxes_list_forms() {
    let jinxes = ["lib/core/sh", "lib/core/load", "lib/browser/open", "modes/convene"]
        .map(|path| format!("jinxs/{path}.jinx"));
    let mut files: Vec<(&str, &str)> = jinxes.iter().map(|path| (path.as_str(), STEPS)).collect();
    files.extend([
        ("team.ctx", "forenpc: a\njinxes: [convene]\n"),
        ("a.npc", "directive: d\njinxs:\n  - lib/core/sh\n  - lib/browser/*\n  - convene\n"),
        ("b.npc", "directive: d\njinxes: lib/*\n"),
        ("c.npc", "directive: d\njinxes: ['*']\n"),
        ("d.npc", "directive: d\n"),
        ("f.npc", "directive: d\njinxes:\n  - {{ typo }}\n  - sh\n"),
        ("e.npc", "directive: d\njinxes: [sh, sh, {a: b}, nothing, old/load]\n"),
    ]);
    let (team, diagnostics) = load(&files);
    let list = |name| npc(&team, name).jinxes.join(" ");
    assert_eq!(list("a"), "sh open convene");
    assert_eq!(list("b"), "load open sh convene");
    let all: Vec<&str> = team.jinxes.iter().map(|jinx| jinx.name.as_str()).collect();
    assert_eq!(list("c"), all.join(" "));
    assert!(all.contains(&"shell") && all.contains(&"sh"));
    assert_eq!(list("d"), "convene");
    assert_eq!(list("e"), "sh load convene");
    assert_eq!(
        diagnostics,
        [
            "e.npc:2:18: error: a jinx is listed by its name, not by a mapping",
            "e.npc:2:14: warning: the jinx `sh` is listed twice",
            "e.npc:2:26: warning: there is no jinx `nothing`; it is left out",
            "e.npc:2:35: warning: there is no jinx `old/load`; `lib/core/load` is taken",
            "f.npc:3:5: warning: an empty entry: perhaps a name that the template does not know",
            "f.npc:3:8: warning: `typo` is not defined, so nothing stands in its place",
        ]
    );
}

/// Compatibility: ".ctx".
#[test]
fn ctx_fields() {
    let ctx = "\
forenpc: {{ 'w' }}
model: m1
provider: mine
file_patterns: [{pattern: '*.md'}]
jinxes:
  - {{ Jinx('shell') }}
providers:
  - {name: mine, provider_type: openai-like, model: big, api_url: 'http://127.0.0.1:9/v1', api_key: '${MY_KEY}'}
  - {name: plain, model: small}
  - {name: mine}
store:
  plan: {read: [w, x], write: w}
  notes:
  log: {write: [nobody]}
";
    let (team, diagnostics) = load(&[
        ("team.ctx", ctx),
        ("w.npc", "directive: d\n"),
        ("x.npc", "directive: d\nprovider: mine\nmodel: other\n"),
        ("y.npc", "directive: d\nprovider: plain\napi_key: $OTHER\n"),
        ("z.npc", "directive: d\napi_key: sk-very-secret\napi_url: http://$HOST/v1\n"),
    ]);
    let spec = |name: &str| serde_json::to_string(&npc(&team, name).model).unwrap();
    assert_eq!(
        spec("w"),
        r#"{"model":"m1","provider":"openai-like","api_url":"http://127.0.0.1:9/v1","api_key_env":"MY_KEY"}"#
    );
    assert_eq!(
        spec("x"),
        r#"{"model":"other","provider":"openai-like","api_url":"http://127.0.0.1:9/v1","api_key_env":"MY_KEY"}"#
    );
    assert_eq!(spec("y"), r#"{"model":"small","provider":"plain","api_key_env":"OTHER"}"#);
    assert_eq!(npc(&team, "w").jinxes, ["shell"]);
    assert_eq!(team.store["plan"].read, Some(vec!["w".to_owned(), "x".to_owned()]));
    assert_eq!(team.store["plan"].write, Some(vec!["w".to_owned()]));
    assert_eq!(team.store["notes"], Access::default());
    assert_eq!(
        diagnostics,
        [
            "team.ctx:10:5: error: there are two providers `mine`; the first one counts",
            "z.npc:3:1: warning: variables in an address are not replaced: write the address itself",
            "z.npc:2:1: error: a key in a file is not used: name the environment variable that holds it, as in `api_key: $NAME`",
            "team.ctx:14:17: error: there is no NPC `nobody`",
        ]
    );
    assert!(!format!("{team:?}{diagnostics:?}").contains("very-secret"));
}

#[test]
fn keys_of_a_store_are_known_to_the_teams_own_jinxes() {
    let keep = "description: d\nsteps: [{set: {store.plan: 1, store.plam: 2}}]\n";
    let dir = TeamDir::new(&[
        ("t/team.ctx", "forenpc: w\nstore: {plan: {}}\n"),
        ("t/w.npc", "directive: d\njinxes: [keep, remember, recall]\n"),
        ("t/jinxes/keep.jinx", keep),
        ("t/sub/team.ctx", "description: d\nstore: {other: {}}\n"),
        ("t/sub/v.npc", "directive: d\njinxes: [keep, remember]\n"),
    ]);
    let found = Team::load(&dir.path("t")).unwrap().check();
    let found: Vec<String> = found.iter().map(|found| dir.shown(&found.to_string())).collect();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].contains("keep.jinx")
            && found[0].ends_with("the team's store has no key `plam`, did you mean `plan`?"),
        "{found:?}"
    );
}

#[test]
fn one_of_several_ctx_counts() {
    let check = |names: &[&str], expected: &str| {
        let texts: Vec<String> = names.iter().map(|name| format!("description: {name}\n")).collect();
        let mut files: Vec<(&str, &str)> =
            names.iter().zip(&texts).map(|(name, text)| (*name, text.as_str())).collect();
        files.push(("w.npc", NPC));
        let (team, diagnostics) = load(&files);
        assert_eq!(
            (team.description.as_str(), diagnostics.len()),
            (expected, names.len() - 1),
            "{diagnostics:?}"
        );
    };
    check(&["a.ctx", "npcsh.ctx", "team.ctx"], "team.ctx");
    check(&["a.ctx", "npcsh.ctx"], "npcsh.ctx");
    check(&["b.ctx", "a.ctx"], "a.ctx");
}

/// Compatibility: "Jinx loader", the parts about several files: one bad file doesn't break the
/// team.
#[test]
fn bad_files_are_left_out() {
    let (team, diagnostics) = load(&[
        ("team.ctx", "forenpc: w\ndescription: d\n"),
        ("w.npc", "name: w\nprimary_directive: Work.\njinxes: [a, shell, good, b]\n"),
        ("v.npc", "name: v\nprimary_directive: [unclosed\njinxes: x\n"),
        ("x.npc", NPC),
        ("t.npc", "name: a b\n"),
        ("jinxes/good.jinx", STEPS),
        ("jinxes/more/good.jinx", STEPS),
        ("jinxes/shell.jinx", "jinx_name: shell\nsteps: [\n"),
        ("jinxes/other.jinx", "jinx_name: 'python'\nsteps: []\n"),
    ]);
    assert_eq!(team.forenpc, "w");
    assert_eq!(team.npcs.iter().map(|npc| npc.name.as_str()).collect::<Vec<_>>(), ["w"]);
    assert_eq!(npc(&team, "w").jinxes, ["good"]);
    // A replacement for an unreadable file might be permitted more.
    assert!(team.jinx("shell").is_none() && team.jinx("python").is_none());
    let has = |start: &str| {
        assert!(diagnostics.iter().any(|line| line.starts_with(start)), "{start}: {diagnostics:#?}");
    };
    has("jinxes/more/good.jinx: error: the jinx `good` is described in ");
    has("jinxes/shell.jinx:");
    has("jinxes/other.jinx:");
    has("v.npc:3:7: error: ");
    has("x.npc:1:1: error: the NPC `w` is described in ");
    has("t.npc:1:1: error: the name `a b` is not made of letters, digits, `_` and `-`");
}

#[test]
fn who_leads() {
    let other = "name: v\nprimary_directive: d\n";
    let check = |files: &[(&str, &str)], leads: &str, expected: &[&str]| {
        let (team, diagnostics) = load(files);
        assert_eq!(
            (team.forenpc.as_str(), diagnostics),
            (leads, expected.iter().map(ToString::to_string).collect())
        );
    };
    check(&[("w.npc", NPC)], "w", &[]);
    check(&[("team.ctx", "forenpc: w\n"), ("v.npc", other), ("w.npc", NPC)], "w", &[]);
    check(
        &[("team.ctx", "name: x\nforenpc: ww\n"), ("v.npc", other), ("w.npc", NPC)],
        "v",
        &["team.ctx:2:10: error: there is no NPC `ww`, did you mean `w`?; `v` leads the team"],
    );
    check(
        &[("team.ctx", "name: x\n"), ("v.npc", other), ("w.npc", NPC)],
        "v",
        &["team.ctx: warning: no `forenpc` says which NPC leads the team: `v` does"],
    );
}

#[test]
fn no_team_at_all() {
    let dir = TeamDir::new(&[("jinxes/a.jinx", STEPS), ("bad/w.npc", "name: [\n")]);
    let error = |path: &Path| dir.shown(&Team::load(path).unwrap_err().to_string());
    assert!(
        error(dir.0.path()).ends_with(
            ": a team is a directory with a .ctx file and .npc files, and jinxes/ if it has its own"
        )
    );
    assert!(error(&dir.path("none")).starts_with("there is no team in none: "));
    let bad = error(&dir.path("bad"));
    assert!(
        bad.starts_with(
            "nobody leads the team in bad: none of its NPCs can be used\n  bad/w.npc:1:7: error: "
        ),
        "{bad}"
    );
    let unknown = |name: &str| Team::find(name).unwrap_err().to_string();
    assert!(unknown("alar").starts_with("there is no team `alar`, did you mean `alara`? (known: alara"));
    assert!(unknown("./none").starts_with("there is no team in ./none: "));
    let npc = Team::stock("alara").unwrap().npc(Some("wroker")).unwrap_err().to_string();
    assert!(npc.starts_with("there is no NPC `wroker`, did you mean `worker`? (known: "));
}

/// Compatibility: "Skills".
#[test]
fn skills_of_a_team() {
    let skill = "---\nname: git-work\ndescription: How we use git.\n---\n# Git\n\n## commits\nSmall.\n\n## merging\nSquash.\n";
    let (team, diagnostics) = load(&[
        ("team.ctx", "forenpc: a\nSKILLS_DIRECTORY: more\n"),
        ("a.npc", "directive: d\nskills: {inline: [git-work], catalog: ['*']}\njinxes: [skill]\n"),
        ("b.npc", "directive: d\nskills: [git-work, shell, debuging]\n"),
        ("c.npc", "directive: d\njinxes: [skills/debugging]\n"),
        ("jinxes/skills/git-work/SKILL.md", skill),
        ("jinxes/skills/git-work/scripts/log.sh", "git log\n"),
        ("jinxes/skills/debugging/SKILL.md", "---\ndescription: Find causes.\n---\n## reproduce\nx\n"),
        ("jinxes/skill.jinx", STEPS),
        ("more/tests/SKILL.md", "---\nname: tests\ndescription: d\n---\nAll of it.\n"),
    ]);
    let found = team.jinx("git-work").unwrap();
    assert_eq!(found.description, "How we use git. [Sections: commits, merging]");
    assert_eq!((found.reference.as_str(), found.effect), ("skills/git-work", Effect::None));
    assert_eq!(found.skill.as_ref().unwrap().files, ["scripts/log.sh"]);
    assert!(
        matches!(&found.steps[0].action, Action::Text { text } if text == "{{ skill | section(section) }}")
    );
    let own = |names: &[String]| -> Vec<String> {
        let path = |name: &String| team.jinx(name).unwrap().path.clone();
        names.iter().filter(|name| !path(name).starts_with("jinxes")).cloned().collect()
    };
    assert_eq!(npc(&team, "a").skills.inline, ["git-work"]);
    assert_eq!(own(&npc(&team, "a").skills.catalog), ["debugging", "tests"]);
    assert_eq!(npc(&team, "b").skills.catalog, ["git-work"]);
    assert_eq!(npc(&team, "c").jinxes, ["debugging"]);
    assert_eq!(
        diagnostics,
        [
            "jinxes/skills/debugging/SKILL.md: warning: a skill has a name; that of its folder is taken: `debugging`",
            "b.npc:2:20: warning: `shell` is no skill; it is left out",
            "b.npc:2:27: warning: there is no jinx `debuging`, did you mean `debugging`?; it is left out",
            "b.npc:2:1: warning: it can't look up the skills of its catalog without the jinx `skill` on its list",
        ]
    );
}

/// The parts of a prompt that NPCs share come first, in one order, however their files list them:
/// so they share keys and values too.
#[test]
fn static_segments_are_in_canonical_order() {
    let skill = |name: &str| format!("---\nname: {name}\ndescription: d\n---\nHow to {name}.\n");
    let (a, b, c) = (skill("a"), skill("b"), skill("c"));
    let (team, _) = load(&[
        ("team.ctx", "forenpc: one\ncontext: Ours.\n"),
        ("one.npc", "directive: first\nskills: {inline: [b, a]}\n"),
        ("two.npc", "directive: second\nskills: {inline: [c, a]}\n"),
        ("three.npc", "directive: third\nskills: {inline: [a, b]}\n"),
        ("jinxes/skills/a/SKILL.md", &a),
        ("jinxes/skills/b/SKILL.md", &b),
        ("jinxes/skills/c/SKILL.md", &c),
    ]);
    let names = |name: &str| -> Vec<String> {
        prompt::system(&team, npc(&team, name)).into_iter().map(|segment| segment.name).collect()
    };
    assert_eq!(names("one"), ["context", "skill:a", "skill:b", "directive"]);
    assert_eq!(names("two"), ["context", "skill:a", "skill:c", "directive"]);
    assert_eq!(names("three"), names("one"));
}

/// A list may also contain tools that aren't jinxes and run elsewhere.
#[test]
fn lists_name_tools_that_are_run_elsewhere() {
    let npc_files = [
        ("team.ctx", "forenpc: one\n"),
        ("one.npc", "directive: d\njinxes: [lib/core/shell, 'get_*', Bash]\n"),
        ("none.npc", "directive: d\njinxes: []\n"),
        ("all.npc", "directive: d\njinxes: '*'\n"),
        ("served.npc", "directive: d\nmcp_servers: [{name: s, command: s, tools: [query]}]\n"),
        ("agents.md", "## guest\nBe kind.\n"),
    ];
    let check = |team: &Team, name: &str, expected: &[&str]| {
        let tools = ["shell", "get_time", "Bash", "query", "other"];
        let listed: Vec<&str> = tools.into_iter().filter(|tool| npc(team, name).lists(tool)).collect();
        assert_eq!(listed, expected, "{name}");
    };
    let (team, _) = load(&npc_files);
    let all = ["shell", "get_time", "Bash", "query", "other"];
    check(&team, "one", &["shell", "get_time", "Bash"]);
    check(&team, "none", &[]);
    check(&team, "all", &all);
    check(&team, "served", &["query"]);
    check(&team, "guest", &all);
    // A list for all NPCs is one for each.
    let mut files = npc_files;
    files[0].1 = "forenpc: one\njinxes: [other]\n";
    let (team, _) = load(&files);
    check(&team, "none", &["other"]);
    check(&team, "served", &["query", "other"]);
    check(&team, "guest", &["other"]);
}

/// Compatibility: "agents.md / agents/".
#[test]
fn agents_in_markdown() {
    let dir = TeamDir::new(&[
        ("AGENTS.md", "# About\n\n## Build steps\nRun make.\n"),
        ("npc_team/team.ctx", "forenpc: w\nagents: [AGENTS.md, ../x, none.md]\nmodel: m\n"),
        ("npc_team/w.npc", NPC),
        (
            "npc_team/agents.md",
            "Ours.\n\n## w\nAnother.\n\n## reviewer\nYou review.\n```\n## no heading\n```\n",
        ),
        (
            "npc_team/agents/scout.md",
            "---\nname: scout\ndescription: finds\ntools: shell, Grep\nmodel: nn\n---\nYou look.\n",
        ),
        ("npc_team/agents/plain.md", "You are plain.\n"),
    ]);
    let team = Team::load(&dir.path("npc_team")).unwrap();
    let agent = |name: &str| {
        let npc = npc(&team, name);
        (npc.directive.as_str(), npc.jinxes.join(" "), npc.model.model.as_deref().unwrap())
    };
    assert_eq!(agent("w"), ("Work.", "shell".into(), "m"));
    assert_eq!(agent("reviewer"), ("You review.\n```\n## no heading\n```", "".into(), "m"));
    assert_eq!(agent("scout"), ("You look.", "shell".into(), "nn"));
    assert_eq!(agent("plain"), ("You are plain.", "".into(), "m"));
    assert_eq!(agent("Build-steps"), ("Run make.", "".into(), "m"));
    let diagnostics: Vec<String> = team.diagnostics.iter().map(|odd| dir.shown(&odd.to_string())).collect();
    assert_eq!(
        diagnostics,
        [
            "npc_team/team.ctx:2:21: error: there is no Markdown file \"../x\" in the team's folder or the one that it is in",
            "npc_team/team.ctx:2:27: error: there is no Markdown file \"none.md\" in the team's folder or the one that it is in",
            "npc_team/agents.md:3:1: error: the NPC `w` is described in npc_team/w.npc too; that one counts",
            "npc_team/agents/scout.md:4:8: warning: there is no jinx `Grep`; it is left out",
        ]
    );
    // It wasn't asked for: it is no agent.
    dir.write("npc_team/team.ctx", "forenpc: w\n");
    assert!(Team::load(&dir.path("npc_team")).unwrap().npc(Some("Build-steps")).is_err());
}
