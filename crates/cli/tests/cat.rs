//! Features that existing teams' files need, with one test each: a team with such files is in
//! `fixtures/npc_team`.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Mutex;

use alara_engine::{Message, ToolCall};
use alara_harness::jinx::Offer;
use alara_harness::model::Reply;
use alara_harness::permission::{Answer, Permissions};
use alara_harness::trace::{self, Record};
use alara_harness::{
    Agent, Caller, Npc, Outcome, Scripted, Session, Single, Team, ToolResult, Verdict, prompt, tool,
};
use serde_json::{Map, Value, json};

use crate::dirs::TeamDir;

/// The team, and a work directory.
struct NpcTeam(TeamDir);

impl Deref for NpcTeam {
    type Target = TeamDir;

    fn deref(&self) -> &TeamDir {
        &self.0
    }
}

impl DerefMut for NpcTeam {
    fn deref_mut(&mut self) -> &mut TeamDir {
        &mut self.0
    }
}

impl NpcTeam {
    fn new() -> Self {
        let directory = crate::root().join("tests/fixtures/npc_team");
        NpcTeam::of(Team::load(&directory).unwrap())
    }

    fn of(team: Team) -> Self {
        NpcTeam(TeamDir::with(team))
    }

    fn npc(&self, name: &str) -> &Npc {
        self.team.npc(Some(name)).unwrap()
    }

    /// Makes a call as an NPC's model would.
    fn call(&self, npc: &str, jinx: &str, arguments: Value) -> ToolResult {
        self.asked(npc, jinx, arguments, vec![]).0
    }

    /// Makes a call whose steps use the model; also returns the model's requests.
    fn asked(&self, npc: &str, jinx: &str, arguments: Value, replies: Vec<Reply>) -> (ToolResult, Scripted) {
        let model = Scripted::new(replies);
        let source = Single(&model);
        let session = Session::new(&source, &self.sandbox);
        let npc = self.npc(npc);
        let caller = Caller { npc: Some(npc), ..Caller::person(&session, &self.team) };
        let call = ToolCall { id: "call_1".into(), name: jinx.into(), arguments: map(arguments) };
        let result = tool::execute(&caller, &tool::Offered::of(&npc.jinxes), &call).unwrap();
        drop(session);
        (result, model)
    }

    /// Runs an NPC; also returns the model's requests, and the records.
    fn run(&self, npc: &str, replies: Vec<Reply>) -> (Outcome, Scripted, Vec<Record>) {
        let model = Scripted::new(replies);
        let source = Single(&model);
        let session = Session::new(&source, &self.sandbox);
        let outcome = Agent::new(&session, &self.team, self.npc(npc), None).unwrap().run("Begin.").unwrap();
        let records = session.trace.entries().into_iter().map(|entry| (*entry.record).clone()).collect();
        drop(session);
        (outcome, model, records)
    }

    fn diagnostics(&self) -> Vec<String> {
        let root = self.team.directory.as_deref().unwrap_or(Path::new(""));
        let line = |diagnostic: &alara_harness::Diagnostic| {
            diagnostic.to_string().replace(&format!("{}/", root.display()), "")
        };
        self.team.diagnostics.iter().map(line).collect()
    }
}

fn map(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

#[test]
fn template_before_yaml_npc() {
    let setup = NpcTeam::new();
    assert_eq!(setup.npc("weaver").jinxes, ["delegate", "shell", "py", "knots", "stop"]);
    assert_eq!(setup.npc("weaver").directive, "You are weaver, who leads. The loom is wide.");
    assert_eq!(setup.npc("plank").jinxes, ["py", "shell", "stop", "two_lines"]);
}

#[test]
fn jinxes_list_forms() {
    let setup = NpcTeam::new();
    assert_eq!(setup.npc("spool").jinxes, ["py", "relay"]);
    let diagnostics = setup.diagnostics().join("\n");
    assert!(diagnostics.contains("spool.npc") && diagnostics.contains("no_such_tool"), "{diagnostics}");
}

#[test]
fn one_bad_file_does_not_take_the_team_down() {
    let setup = NpcTeam::new();
    let names: Vec<&str> = setup.team.npcs.iter().map(|npc| npc.name.as_str()).collect();
    assert_eq!(names, ["plank", "spinner", "spool", "weaver"]);
    let diagnostics = setup.diagnostics();
    assert!(diagnostics.iter().any(|line| line.starts_with("broken.npc:2:")), "{diagnostics:#?}");
}

#[test]
fn ctx() {
    let setup = NpcTeam::new();
    assert_eq!(setup.team.forenpc, "weaver");
    assert!(setup.team.context.starts_with("This house weaves cloth."));
    assert_eq!(setup.team.values["loom"], "wide");
    let barn = &setup.npc("plank").model;
    assert_eq!(barn.api_url.as_deref(), Some("http://127.0.0.1:9/v1"));
    assert_eq!((barn.model.as_deref(), barn.api_key_env.as_deref()), (Some("hay-7b"), Some("BARN_KEY")));
}

#[test]
fn jinx_loader() {
    let setup = NpcTeam::new();
    for name in ["shell", "py", "stop", "two_lines", "delegate", "relay", "knots", "weak", "sewing"] {
        assert!(setup.team.jinx(name).is_some(), "{name}");
    }
    let diagnostics = setup.diagnostics().join("\n");
    assert!(diagnostics.contains("output_contains"), "the key that occurs twice: {diagnostics}");
}

#[test]
fn typed_schema() {
    let setup = NpcTeam::new();
    let delegate = setup.team.jinx("delegate").unwrap();
    let offer = prompt::offer(&setup.team, Some(setup.npc("weaver")));
    let schema = delegate.tool(&offer).parameters;
    assert_eq!(schema["required"], json!(["npc_name", "task"]));
    assert_eq!(schema["properties"]["npc_name"]["enum"], json!(["plank", "spinner", "spool", "loft"]));
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn render_at_run_time() {
    let setup = NpcTeam::new();
    // Two plain lines stay two lines; neither a missing optional input nor "error" in an output is
    // an error.
    let result = setup.call("plank", "two_lines", json!({}));
    assert_eq!((result.ok, result.output), (true, json!("cloth found 0 errors!")));
    // Values are never templates, nor part of a program.
    let odd = "'; rm -rf / #\" {{ 7 * 7 }} {% raw %} $(id) `id` \\ \n é";
    assert_eq!(
        setup.call("plank", "two_lines", json!({"word": odd})).output,
        json!(format!("{odd} found 0 errors!"))
    );
}

#[test]
fn engines() {
    let setup = NpcTeam::new();
    std::fs::write(setup.work.path().join("cloth.txt"), "wool").unwrap();
    let shell = setup.call("weaver", "shell", json!({"bash_command": "echo 'hi'"}));
    assert_eq!(shell.output, json!("hi"), "{shell:?}");
    assert_eq!(setup.call("weaver", "py", json!({"code": "output = 6 * 7"})).output, json!(42));
    assert_eq!(setup.call("weaver", "py", json!({"code": "print('seen')"})).output, json!("seen"));
    // The contents of the work directory don't affect how steps run.
    for module in ["json", "os", "tempfile", "traceback", "builtins"] {
        std::fs::write(setup.work.path().join(format!("{module}.py")), "raise SystemExit('planted')")
            .unwrap();
    }
    std::fs::write(setup.work.path().join("own.py"), "word = 'mine'").unwrap();
    let own = setup.call("weaver", "py", json!({"code": "import json, own\noutput = own.word"}));
    assert_eq!(own.output, json!("mine"), "{own:?}");
    let (result, model) = setup.asked("spool", "relay", json!({"path": "x"}), vec![Reply::text("Sheep.")]);
    assert_eq!(result.output, json!("Sheep."), "{result:?}");
    assert_eq!(model.requests()[0].messages, [Message::user("What is this about? wool")]);
}

#[test]
fn structured_errors() {
    let setup = NpcTeam::new();
    let result = setup.call("weaver", "py", json!({"code": "print('half')\nraise ValueError('why')"}));
    assert_eq!((result.ok, result.exit, &result.output), (false, Some(1), &json!("half")));
    assert!(result.stderr.starts_with("ValueError: why"), "{result:?}");
    assert_eq!(result.error, "exit status 1");
}

#[test]
fn skills() {
    let setup = NpcTeam::new();
    let knots = |section: &str| setup.call("weaver", "knots", json!({"section": section})).output;
    assert_eq!(knots("bowline"), json!("Up through the hole, round the tree, down again."));
    assert_eq!(knots("mer"), json!("Two ropes become one."));
    assert_eq!(knots("list"), json!("- bowline\n- reef\n- merging"));
    let all = knots("all");
    assert!(
        ["Up through", "Right over", "Two ropes"].iter().all(|part| all.as_str().unwrap().contains(part))
    );
    let missing = setup.call("weaver", "knots", json!({"section": "splice"}));
    assert!(
        !missing.ok
            && missing.error.contains("there is no section `splice`; sections: bowline, reef, merging")
    );
    let sewing = setup.team.jinx("sewing").unwrap().skill.as_ref().unwrap();
    let titles: Vec<&str> = sewing.sections.iter().map(|(title, _)| title.as_str()).collect();
    assert_eq!((sewing.introduction.as_str(), titles), ("Sew slowly.", vec!["Threads", "Stitches"]));
    assert_eq!(setup.team.jinx("weak").unwrap().skill.as_ref().unwrap().sections.len(), 2);
}

#[test]
fn skills_are_static_segments() {
    let mut setup = NpcTeam::new();
    let weaver = setup.team.npcs.iter_mut().find(|npc| npc.name == "weaver").unwrap();
    weaver.skills.inline = vec!["sewing".into(), "knots".into()];
    weaver.skills.catalog = vec!["weak".into()];
    let names: Vec<String> =
        prompt::system(&setup.team, setup.npc("weaver")).into_iter().map(|s| s.name).collect();
    assert_eq!(names, ["context", "skill:knots", "skill:sewing", "skills", "directive", "members"]);
    let say = |text: &str| Reply::call("shell", json!({"bash_command": format!("echo {text}")}));
    let (_, model, _) = setup.run("weaver", vec![say("1"), say("2"), Reply::text("ok")]);
    let requests = model.requests();
    assert!(
        requests
            .iter()
            .all(|request| request.system == requests[0].system && request.tools == requests[0].tools)
    );
}

#[test]
fn hard_permission_set() {
    let setup = NpcTeam::new();
    for forged in ["edit_file", "sh", "shell"] {
        let call = Reply::call(forged, json!({"bash_command": "touch forged"}));
        let (_, model, records) = setup.run("spool", vec![call, Reply::text("Oh.")]);
        assert!(model.requests()[0].tools.iter().all(|tool| tool.name != forged));
        let read = &model.requests()[1].messages[2].content;
        assert_eq!(
            read,
            &format!(
                r#"{{"ok":false,"exit":null,"error":"`{forged}` is not permitted; the tools are: py, relay"}}"#
            )
        );
        let audited = |record: &Record| matches!(record, Record::Permission { jinx, verdict: Verdict::Deny, .. } if jinx == forged);
        assert!(records.iter().any(audited));
    }
    assert!(!setup.work.path().join("forged").exists());
}

#[test]
fn permissions() {
    let directory = crate::root().join("tests/fixtures/npc_team");
    let before = fingerprint(&directory);
    let mut setup = NpcTeam::new();
    let shell = setup.team.jinxes.iter_mut().find(|jinx| jinx.name == "shell").unwrap();
    shell.permission = Some(Verdict::Ask);
    let file = setup.work.path().join("answers.json");
    let run = |answer: Option<Answer>, command: &str| {
        let model = Scripted::default();
        let source = Single(&model);
        let asked = Mutex::new(0);
        let session = Session::new(&source, &setup.sandbox).permitted(Permissions::open(&file).unwrap());
        let session = match answer {
            Some(answer) => session.asking({
                let asked = &asked;
                move |_| {
                    *asked.lock().unwrap() += 1;
                    answer
                }
            }),
            None => session,
        };
        let weaver = setup.npc("weaver");
        let caller = Caller { npc: Some(weaver), ..Caller::person(&session, &setup.team) };
        let arguments = map(json!({"bash_command": command}));
        let call = ToolCall { id: "c".into(), name: "shell".into(), arguments };
        let result = tool::execute(&caller, &tool::Offered::of(&weaver.jinxes), &call).unwrap();
        drop(session);
        (result.ok, result.error, asked.into_inner().unwrap())
    };
    let nobody =
        "`shell` is not permitted by `shell` itself, which says to ask, and nobody is there to be asked";
    assert_eq!(run(None, "echo 1"), (false, nobody.to_owned(), 0));
    assert_eq!(run(Some(Answer::No), "echo 1"), (false, "`shell` is not permitted by an answer".into(), 1));
    assert!(run(Some(Answer::Always), "echo 1").0);
    assert_eq!(run(Some(Answer::No), "echo 1"), (true, String::new(), 0));
    assert_eq!(run(Some(Answer::Never), "echo 2").2, 1);
    assert_eq!(
        run(Some(Answer::Yes), "echo 2"),
        (false, "`shell` is not permitted by an earlier answer".into(), 0)
    );
    assert_eq!(fingerprint(&directory), before, "an answer never changes a team's files");
}

/// Returns the texts of all files below a directory.
fn fingerprint(directory: &Path) -> Vec<(std::path::PathBuf, String)> {
    let mut texts = Vec::new();
    let mut paths: Vec<_> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            texts.extend(fingerprint(&path));
        } else {
            texts.push((path.clone(), std::fs::read_to_string(&path).unwrap()));
        }
    }
    texts
}

#[test]
fn stop_ends_the_run() {
    let setup = NpcTeam::new();
    let stop = Reply::call("stop", json!({"reason": "enough"}));
    let (outcome, ..) = setup.run("weaver", vec![stop, Reply::text("never said")]);
    assert_eq!(outcome, Outcome::Answer { text: "Stopping: enough".into() });
}

#[test]
fn delegate() {
    let setup = NpcTeam::new();
    let diagnostics = setup.diagnostics().join("\n");
    assert!(diagnostics.contains("delegate") && diagnostics.contains("npcpy"), "{diagnostics}");
    let replies = vec![
        Reply::call("delegate", json!({"npc_name": "spool", "task": "Wind."})),
        Reply::call("py", json!({"code": "output = 'half wound'"})),
        Reply::text("I wound half."),
        Reply::text(r#"{"complete": false, "feedback": "All of it."}"#),
        Reply::text("I wound all."),
        Reply::text(r#"{"complete": true, "feedback": ""}"#),
        Reply::text("It is wound."),
    ];
    let (outcome, model, records) = setup.run("weaver", replies);
    assert_eq!(outcome, Outcome::Answer { text: "It is wound.".into() });
    let requests = model.requests();
    let tools = |index: usize| -> Vec<String> {
        requests[index].tools.iter().map(|tool| tool.name.clone()).collect()
    };
    assert_eq!((tools(1), tools(3).len()), (vec!["py".to_owned(), "relay".to_owned()], 0));
    assert!(requests[4].messages[0].content.contains("All of it."));
    let result = records.iter().find_map(|record| match record {
        Record::ToolResult { call, result, .. } if call.name == "delegate" => Some(result.output.clone()),
        _ => None,
    });
    let result = result.unwrap();
    assert_eq!((&result["complete"], &result["iterations"]), (&json!(true), &json!(2)));
    assert_eq!(result["output"], json!("I wound all."));
}

#[test]
fn sub_teams() {
    let setup = NpcTeam::new();
    let loft = &setup.team.teams[0];
    assert_eq!((loft.name.as_str(), loft.description.as_str()), ("loft", "Dyes cloth in any colour."));
    let seen = format!(
        "{:?}{}",
        prompt::system(&setup.team, setup.npc("weaver")),
        serde_json::to_string(&prompt::tools(&setup.team, setup.npc("weaver"))).unwrap()
    );
    assert!(seen.contains("loft") && !seen.contains("dyer") && !seen.contains("recipe"), "{seen}");
    let replies = vec![
        Reply::call("delegate", json!({"npc_name": "loft", "task": "Dye it red."})),
        Reply::text("It is red."),
        Reply::text(r#"{"complete": true, "feedback": ""}"#),
        Reply::text("Red."),
    ];
    let (outcome, model, _) = setup.run("weaver", replies);
    assert_eq!(outcome, Outcome::Answer { text: "Red.".into() });
    let system: Vec<String> = model.requests()[1].system.iter().map(|segment| segment.text.clone()).collect();
    assert_eq!(system, ["Only the loft knows the recipe.", "You are dyer."]);
}

#[test]
fn agents_md() {
    let setup = NpcTeam::new();
    let spinner = setup.npc("spinner");
    assert_eq!((spinner.directive.as_str(), spinner.jinxes.len()), ("You spin wool. You use no tools.", 0));
}

#[test]
fn prompt_layout() {
    // Nothing in the static part changes.
    let setup = NpcTeam::new();
    let first = prompt::system(&setup.team, setup.npc("weaver"));
    assert_eq!(first, prompt::system(&NpcTeam::new().team, NpcTeam::new().npc("weaver")));
}

#[test]
fn a_run_is_the_same_each_time_and_with_any_number_of_threads() {
    let mut setup = NpcTeam::new();
    let file = setup.work.path().join("survey.jinx");
    let survey = "jinx_name: survey\ndescription: Asks about each.\neffect: read\ninputs: [{things: [wool, silk, flax]}]\n\
                  steps:\n- name: message\n  for: thing\n  in: things\n  parallel: true\n  do:\n  \
                  - {engine: bash, code: 'sleep 0.0$((RANDOM % 9)); echo {{ thing }}'}\n  \
                  - {name: judged, engine: llm, npc: spool, prompt: 'Judge {{ thing }}.'}\n\
                  - {return: '{{ message }}'}\n";
    std::fs::write(&file, survey).unwrap();
    let (jinx, diagnostics) = alara_harness::team::load_jinx(&file).unwrap();
    assert_eq!(diagnostics, []);
    setup.team.jinxes.push(jinx);
    setup.team.npcs.iter_mut().for_each(|npc| npc.jinxes.push("survey".into()));
    let run = |threads: usize| {
        let model = Scripted::new([
            Reply::call("survey", json!({})),
            Reply::text("Soft.").when("silk"),
            Reply::text("Warm.").when("wool"),
            Reply::text("Cool.").when("flax"),
            Reply::call("delegate", json!({"npc_name": "spool", "task": "Wind."})),
            Reply::text("I wound it."),
            Reply::text(r#"{"complete": true, "feedback": ""}"#),
            Reply::text("Done."),
        ]);
        let source = Single(&model);
        let mut session = Session::new(&source, &setup.sandbox);
        session.threads = threads;
        Agent::new(&session, &setup.team, setup.npc("weaver"), None).unwrap().run("Begin.").unwrap();
        let entries = session.trace.entries();
        entries.iter().map(|entry| trace::normalised(entry).to_string()).collect::<Vec<_>>()
    };
    let first = run(1);
    assert!(first.iter().any(|line| line.contains(r#"["Warm.","Soft.","Cool."]"#)), "{first:#?}");
    for threads in [1, 8, 8] {
        assert_eq!(run(threads), first);
    }
}

#[test]
fn arguments_are_checked() {
    let setup = NpcTeam::new();
    let jinx = setup.team.jinx("two_lines").unwrap();
    let check = |arguments: Value, expected: &str| {
        assert_eq!(jinx.arguments(&map(arguments), &Offer::default()).unwrap_err(), expected);
    };
    check(json!({"word": 3}), "argument `word` must be of type string");
    check(json!({"wrod": "x"}), "`two_lines` has no argument `wrod`; it takes: word, note");
}
