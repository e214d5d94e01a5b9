//! Hooks of a team: jinxes before and after calls, and at the start and end of a session.

use alara_harness::Team;
use alara_harness::permission::{Answer, Permissions, holder};
use serde_json::{Value, json};

use crate::dirs::{TestDir, code, sandboxed, text};

/// A team with these hooks and jinxes, whose NPC may use the shell.
/// Its model makes these calls.
fn hooked(hooks: &str, jinxes: &[(&str, &str)], commands: &[&str]) -> TestDir {
    let dir = TestDir::calling(commands);
    dir.write("team/team.ctx", &format!("hooks: {hooks}\n"));
    dir.write("team/one.npc", "name: one\nprimary_directive: Go.\njinxes: [shell]\n");
    for (name, jinx) in jinxes {
        dir.write(&format!("team/jinxes/{name}.jinx"), jinx);
    }
    dir
}

/// Returns a run's exit code, its messages, and the results of its calls.
fn run(dir: &TestDir) -> (i32, String, Vec<Value>) {
    let _ = std::fs::remove_file(dir.path("trace.jsonl"));
    let arguments = [
        "run",
        "-t",
        "team",
        "-m",
        "script:script.json",
        "--workdir",
        "work",
        "--trace",
        "trace.jsonl",
        "go",
    ];
    let output = dir.alara(&arguments).output().unwrap();
    let results = dir.trace().into_iter().filter(|record| record["record"] == "tool_result");
    let results = results.map(|record| record["result"].clone()).collect();
    (code(&output), text(&output.stderr), results)
}

fn replayed(dir: &TestDir, more: &[&str]) {
    let output =
        dir.alara(&[&["trace", "replay", "-t", "team", "trace.jsonl"], more].concat()).output().unwrap();
    assert!(code(&output) == 0 && text(&output.stdout).contains("the same: "), "{output:?}");
}

const NO_PUSH: &str = "inputs: [tool, {arguments: {type: object}}]\neffect: read\n\
    steps: [{engine: bash, code: 'case \"$arguments\" in *push*) echo \"$tool: no pushes from here\"; exit 1;; esac'}]\n";

#[test]
fn a_hook_before_a_tool_that_fails_refuses_the_call() {
    if !sandboxed("a_hook_before_a_tool_that_fails_refuses_the_call") {
        return;
    }
    let hooks = "{before_tool: {jinx: no_push, tools: [shell]}}";
    let dir = hooked(hooks, &[("no_push", NO_PUSH)], &["git push > f", "echo hi > g"]);
    let (code, shown, results) = run(&dir);
    assert_eq!(code, 0, "{shown}");
    assert_eq!(results[0]["error"], "`shell` is refused by the hook `no_push`: shell: no pushes from here");
    assert_eq!((&results[1]["ok"], &results[1]["note"]), (&json!(true), &Value::Null));
    assert_eq!((dir.path("work/f").exists(), dir.path("work/g").exists()), (false, true));
    let hooks: Vec<Value> = dir.trace().into_iter().filter(|record| record["record"] == "jinx").collect();
    let places: Vec<&str> = hooks.iter().filter_map(|record| record["place"].as_str()).collect();
    assert_eq!(places, ["before_tool.no_push"; 2]);
    assert_eq!(hooks[0]["arguments"]["arguments"]["command"], "git push > f");
    replayed(&dir, &[]);
    replayed(&dir, &["--run"]);
}

#[test]
fn hooks_after_a_tool_add_to_the_note_and_change_no_outcome() {
    if !sandboxed("hooks_after_a_tool_add_to_the_note_and_change_no_outcome") {
        return;
    }
    let seen = "inputs: [result, outcome]\neffect: read\nsteps: [{engine: bash, code: 'echo \"$outcome: $result\"'}]\n";
    let lint = "effect: read\nsteps: [{engine: bash, code: 'echo a.py:1 >&2; exit 3'}]\n";
    let jinxes = [("seen", seen), ("lint", lint), ("silent", "steps: [{engine: bash, code: 'true'}]\n")];
    let dir = hooked("{after_tool: [seen, silent, lint]}", &jinxes, &["echo one", "echo two >&2; exit 7"]);
    let (code, shown, results) = run(&dir);
    assert_eq!(code, 0, "{shown}");
    assert_eq!((&results[0]["ok"], &results[0]["output"]), (&json!(true), &json!("one")));
    assert_eq!(results[0]["note"], "seen: ok: one; the hook `lint` failed: a.py:1");
    assert_eq!((&results[1]["ok"], &results[1]["exit"]), (&json!(false), &json!(7)));
    assert_eq!(results[1]["note"], "seen: failed: two; the hook `lint` failed: a.py:1");
    replayed(&dir, &[]);
}

#[test]
fn hooks_run_when_a_session_begins_and_ends() {
    if !sandboxed("hooks_run_when_a_session_begins_and_ends") {
        return;
    }
    let log = "inputs: [event, npc, {outcome: ''}]\nsteps: [{engine: bash, code: 'echo \"$event $npc $outcome\" >> log'}]\n";
    let broken = "steps: [{engine: bash, code: 'echo not today; exit 1'}]\n";
    let hooks = "{start: [log, broken], end: [log, broken]}";
    let dir = hooked(hooks, &[("log", log), ("broken", broken)], &["echo work >> log"]);
    let (code, shown, _) = run(&dir);
    assert_eq!(code, 0, "{shown}");
    let logged = || std::fs::read_to_string(dir.path("work/log")).unwrap();
    assert_eq!(logged(), "start one \nwork\nend one answer\n");
    for when in ["start", "end"] {
        let told = format!("warning: the hook `broken` at the {when} of the session failed: not today");
        assert!(shown.contains(&told), "{shown}");
    }
    replayed(&dir, &[]);
    replayed(&dir, &["--run"]);
    // In a chat, too.
    std::fs::remove_file(dir.path("work/log")).unwrap();
    let arguments = ["chat", "-t", "team", "-m", "script:script.json", "--workdir", "work"];
    assert_eq!(dir.with_input(&arguments, "go\n").status.code(), Some(0));
    assert_eq!(logged(), "start one \nwork\nend one ended\n");
    assert_eq!(dir.with_input(&["trace", "replay"], "").status.code(), Some(0));
}

#[test]
fn a_hook_makes_no_other_hook_run() {
    if !sandboxed("a_hook_makes_no_other_hook_run") {
        return;
    }
    let calls = "steps: [{engine: shell, with: {command: echo inside}}]\n";
    let dir = hooked("{before_tool: calls, after_tool: calls}", &[("calls", calls)], &["echo one"]);
    let (code, shown, results) = run(&dir);
    assert_eq!((code, &results[0]["output"]), (0, &json!("one")), "{shown}");
    let hooks = dir.trace().into_iter().filter(|record| {
        record["record"] == "jinx" && record["place"].as_str().is_some_and(|place| place.contains("_tool."))
    });
    assert_eq!(hooks.count(), 2);
}

#[test]
fn rules_and_the_guard_of_files_hold_for_hooks() {
    if !sandboxed("rules_and_the_guard_of_files_hold_for_hooks") {
        return;
    }
    let removes = "steps: [{engine: bash, code: 'rm mine'}]\n";
    let dir = hooked("{after_tool: removes}", &[("removes", removes)], &["echo one"]);
    dir.write("work/mine", "mine");
    let (_, _, results) = run(&dir);
    let note = results[0]["note"].as_str().unwrap();
    assert!(
        note.contains("the hook `removes` failed: undone, no file was changed: it removes mine"),
        "{note}"
    );
    assert!(dir.path("work/mine").exists());
    dir.write("team/permissions.yaml", "removes: deny\n");
    let (_, _, results) = run(&dir);
    assert!(results[0]["note"].as_str().unwrap().contains("`removes` is not permitted by"), "{}", results[0]);
}

#[test]
fn a_hook_that_can_not_be_run_refuses_what_it_is_about() {
    let dir = hooked("{before_tool: {jinx: gard, tools: [shell]}}", &[], &["echo hi > f"]);
    let (code, shown, results) = run(&dir);
    // The last change was refused.
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("error: the hook can't be run: there is no jinx `gard`"), "{shown}");
    assert_eq!(results[0]["error"], "`shell` is refused by the hook `gard`: the team has no jinx `gard`");
    assert!(!dir.path("work/f").exists());
    let output = dir.alara(&["check", "team"]).output().unwrap();
    assert!(text(&output.stdout).contains("there is no jinx `gard`"), "{output:?}");
}

#[test]
fn hooks_look_at_the_calls_of_sub_teams() {
    if !sandboxed("hooks_look_at_the_calls_of_sub_teams") {
        return;
    }
    let dir = hooked("{before_tool: {jinx: no_push, tools: [shell]}}", &[("no_push", NO_PUSH)], &[]);
    dir.write("team/one.npc", "name: one\nprimary_directive: Go.\njinxes: [delegate]\n");
    dir.write("team/sub/team.ctx", "description: Does it.\nforenpc: two\n");
    dir.write("team/sub/two.npc", "name: two\nprimary_directive: Do it.\njinxes: [shell]\n");
    let team = Team::load(&dir.path("team")).unwrap();
    let inputs: Vec<&str> =
        team.jinx("delegate").unwrap().inputs.iter().map(|input| input.name.as_str()).collect();
    let given = json!({inputs[0]: "sub", inputs[1]: "push it"});
    let script = json!([
        {"calls": [{"name": "delegate", "arguments": given}]},
        {"calls": [{"name": "shell", "arguments": {"command": "git push > f"}}]},
        {"text": "It was refused."},
        {"text": r#"{"complete": true, "feedback": ""}"#},
        {"text": "Done."},
    ]);
    dir.write("script.json", &script.to_string());
    let (code, shown, results) = run(&dir);
    // The success of `delegate` doesn't make up for the refusal within it.
    assert_eq!(code, 1, "{shown}");
    let refused = |result: &Value| result["error"].as_str().is_some_and(|error| error.contains("no pushes"));
    assert!(results.iter().any(refused), "{results:?}");
    assert!(!dir.path("work/f").exists());
}

#[test]
fn the_hooks_of_a_found_team_need_the_same_yes() {
    let dir = TestDir::with(&json!([{"text": "Hello."}]));
    dir.write("npc_team/one.npc", "name: one\nprimary_directive: Go.\njinxes: []\n");
    dir.write("npc_team/team.ctx", "forenpc: one\n");
    let fixed = ["run", "-m", "script:script.json", "--workdir", "work", "hi"];
    let works = || code(&dir.alara(&fixed).output().unwrap()) == 0;
    let team = Team::load(&dir.path("npc_team")).unwrap();
    let answers = Permissions::open(&dir.path("state/alara/permissions.json")).unwrap();
    assert!(!works());
    answers.remember(&holder(&team), &format!("/files {}", team.fingerprint()), Answer::Always).unwrap();
    assert!(works());
    dir.write("npc_team/team.ctx", "forenpc: one\nhooks: {start: recall}\n");
    assert!(!works());
}
