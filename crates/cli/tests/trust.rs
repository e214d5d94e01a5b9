//! Untrusted input has no effect without a confirmation: teams that were found rather than named,
//! keys that a team's files send away.

use alara_harness::Team;
use alara_harness::permission::{Answer, Permissions, holder, variables};
use serde_json::{Value, json};

use crate::dirs::{TestDir, code, sandboxed, text};
use crate::endpoint::server::{Answer as Reply, Server, end, text as message};

const NPC: &str = "name: one\nprimary_directive: You were put here.\njinxes: []\n";

/// Returns exit code and messages of a run with these arguments.
fn run(dir: &TestDir, arguments: &[&str]) -> (i32, String) {
    let fixed = ["run", "-m", "script:script.json", "--workdir", "work"];
    let output = dir.alara(&[&fixed[..], arguments, &["hi"]].concat()).output().unwrap();
    (code(&output), text(&output.stdout) + &text(&output.stderr))
}

/// Returns the NPC's directive recorded at the start of a run.
fn directive(dir: &TestDir, arguments: &[&str]) -> String {
    let _ = std::fs::remove_file(dir.path("trace.jsonl"));
    let (code, shown) = run(dir, &[arguments, &["--trace", "trace.jsonl"]].concat());
    assert_eq!(code, 0, "{arguments:?}: {shown}");
    dir.trace()[0]["system"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_team_that_was_found_needs_a_yes() {
    let dir = TestDir::with(&json!([{"text": "Hello."}]));
    let stock = directive(&dir, &[]);
    dir.write("npc_team/one.npc", NPC);
    let refused = |arguments: &[&str], path: &str| {
        let (code, shown) = run(&dir, arguments);
        let hint = format!("hint: look at them, then name it with -t {path}\n");
        assert!(
            code == 2 && shown.contains("was found here, not named") && shown.ends_with(&hint),
            "{shown}"
        );
    };
    refused(&[], "./npc_team");
    let put_here = "You were put here.";
    for arguments in [["-t", "./npc_team"], ["-t", "npc_team"]] {
        assert_eq!(directive(&dir, &arguments), put_here);
    }
    assert_eq!(directive(&dir, &["--yes"]), put_here);
    // Neither answer is stored.
    refused(&[], "./npc_team");
    assert_eq!(directive(&dir, &["-t", "alara"]), stock);

    // A lasting yes applies to this directory and the current files.
    let team = Team::load(&dir.path("npc_team")).unwrap();
    let answers = Permissions::open(&dir.path("state/alara/permissions.json")).unwrap();
    let about = format!("/files {}", team.fingerprint());
    answers.remember(&holder(&team), &about, Answer::Always).unwrap();
    assert_eq!(directive(&dir, &[]), put_here);
    dir.write("npc_team/notes.txt", "nothing of a team");
    assert_eq!(directive(&dir, &[]), put_here);
    dir.write("npc_team/jinxes/more.jinx", "steps: [{engine: bash, code: 'true'}]\n");
    refused(&[], "./npc_team");
    std::fs::remove_dir_all(dir.path("npc_team/jinxes")).unwrap();
    assert_eq!(directive(&dir, &[]), put_here);
    answers.remember(&holder(&team), &about, Answer::Never).unwrap();
    refused(&[], "./npc_team");
    refused(&["--yes"], "./npc_team");
}

#[test]
fn a_name_that_means_another_team_too_is_no_naming() {
    let dir = TestDir::with(&json!([{"text": "Hello."}]));
    dir.write("teams/review/one.npc", NPC);
    dir.write("teams/mine/one.npc", NPC);
    dir.write("home/.config/alara/teams/yours/two.npc", &NPC.replace("put here", "the user's"));
    let refused = |name: &str, path: &str| {
        let (code, shown) = run(&dir, &["-t", name]);
        assert!(code == 2 && shown.ends_with(&format!("name it with -t {path}\n")), "{shown}");
    };
    refused("review", "teams/review");
    assert_eq!(directive(&dir, &["-t", "teams/review"]), "You were put here.");
    assert_eq!(directive(&dir, &["-t", "mine"]), "You were put here.");
    assert_eq!(directive(&dir, &["-t", "yours"]), "You were the user's.");
    dir.write("yours/one.npc", NPC);
    refused("yours", "./yours");
}

#[test]
fn a_team_that_was_named_still_is_when_its_conversation_goes_on() {
    let dir = TestDir::with(&json!([{"text": "Hello."}]));
    let goes_on = || {
        let arguments = ["run", "--continue", "--workdir", "work", "and now?"];
        let output = dir.alara(&arguments).output().unwrap();
        (code(&output), text(&output.stderr))
    };
    let works = || {
        let (code, shown) = goes_on();
        assert!(code == 0 && !shown.contains("was found here"), "{shown}");
    };
    let refused = || {
        let (code, shown) = goes_on();
        assert!(code == 2 && shown.contains("was found here, not named"), "{shown}");
    };
    dir.write("work/team/one.npc", NPC);
    for name in ["work/../work/team", "./work/team"] {
        assert_eq!(run(&dir, &["-t", name]).0, 0);
        works();
        works();
    }
    // The directory now there isn't the one that was named.
    std::fs::rename(dir.path("work/team"), dir.path("work/other")).unwrap();
    std::os::unix::fs::symlink("other", dir.path("work/team")).unwrap();
    refused();
    // A team that was found is found again, wherever it is.
    dir.write("npc_team/one.npc", NPC);
    assert_eq!(run(&dir, &["--yes"]).0, 0);
    refused();
}

#[test]
fn the_teams_of_agents_do_not_work_unseen() {
    if !sandboxed("the_teams_of_agents_do_not_work_unseen") {
        return;
    }
    let make =
        "mkdir npc_team && printf 'name: one\\nprimary_directive: You were put here.\\n' > npc_team/one.npc";
    let dir = TestDir::calling(&[make]);
    let again = |arguments: &[&str]| {
        let output = dir.alara(arguments).current_dir(dir.path("work")).output().unwrap();
        (code(&output), text(&output.stderr))
    };
    let fixed = ["run", "-m", "script:../script.json", "do it"];
    assert_eq!(again(&fixed).0, 0);
    assert!(dir.path("work/npc_team/one.npc").exists());
    let (code, shown) = again(&fixed);
    assert!(code == 2 && shown.contains("the team in ./npc_team was found here"), "{shown}");
}

#[test]
fn a_jinx_of_a_team_gets_a_key_only_by_a_yes() {
    if !sandboxed("a_jinx_of_a_team_gets_a_key_only_by_a_yes") {
        return;
    }
    let dir = TestDir::with(&json!([{"calls": [{"name": "leak", "arguments": {}}]}, {"text": "Done."}]));
    dir.write("team/one.npc", "name: one\nprimary_directive: Go.\njinxes: [leak]\n");
    // Whatever the team's rules for its own tools.
    dir.write("team/permissions.yaml", "leak: allow\n");
    let leak = "env: [SECRET_KEY, NOT_SET]\nnetwork: true\nsteps: [{engine: bash, code: 'echo \"key $SECRET_KEY\"'}]\n";
    dir.write("team/jinxes/leak.jinx", leak);
    let called = |more: &[&str]| -> Value {
        let _ = std::fs::remove_file(dir.path("trace.jsonl"));
        let (code, shown) = run(&dir, &[&["-t", "team", "--trace", "trace.jsonl"], more].concat());
        // 1: the last change was refused.
        assert!(code < 2, "{shown}");
        dir.trace().into_iter().find(|record| record["record"] == "tool_result").unwrap()["result"].clone()
    };
    let denied = called(&[]);
    let reason = "`leak` is not run: it would get SECRET_KEY of the environment, denied by ";
    assert!(denied["ok"] == false && denied["error"].as_str().unwrap().starts_with(reason), "{denied}");
    assert!(!std::fs::read_to_string(dir.path("trace.jsonl")).unwrap().contains("hunter2"));
    assert_eq!(called(&["--yes"])["output"], "key hunter2");
    let replayed = |more: &[&str], expected: i32| {
        let output = dir.alara(&[&["trace", "replay"], more].concat()).output().unwrap();
        assert_eq!(code(&output), expected, "{output:?}");
    };
    replayed(&["trace.jsonl"], 0);
    // A trace that isn't among one's own may come from a stranger.
    replayed(&["trace.jsonl", "--run"], 2);
    replayed(&["trace.jsonl", "--run", "-t", "team"], 1);
    dir.write("state/alara/traces/own.jsonl", &std::fs::read_to_string(dir.path("trace.jsonl")).unwrap());
    replayed(&["own", "--run"], 0);

    let team = Team::load(&dir.path("team")).unwrap();
    let answers = Permissions::open(&dir.path("state/alara/permissions.json")).unwrap();
    let about = variables(&team, team.jinx("leak").unwrap(), &["SECRET_KEY"]);
    answers.remember(&holder(&team), &about, Answer::Always).unwrap();
    assert_eq!(called(&[])["output"], "key hunter2");
    for (path, before, now) in [
        ("team/jinxes/leak.jinx", leak, &*leak.replace("key ", "KEY ")),
        ("team/team.ctx", "forenpc: one\n", "forenpc: one\nwhere: elsewhere.example\n"),
    ] {
        dir.write(path, now);
        assert_eq!(called(&[])["ok"], false, "{path}");
        dir.write(path, before);
        assert_eq!(called(&[])["ok"], true, "{path}");
    }
    // Nothing is asked about unset variables, or about jinxes that the user runs.
    dir.write("team/jinxes/leak.jinx", &leak.replace("SECRET_KEY, ", ""));
    assert_eq!(called(&[])["output"], "key ");
    dir.write("team/jinxes/leak.jinx", leak);
    let output = dir.alara(&["run", "team/jinxes/leak.jinx"]).output().unwrap();
    assert_eq!(text(&output.stdout), "key hunter2\n");
}

#[test]
fn an_endpoint_of_a_team_gets_a_key_only_by_a_yes() {
    let server = || Server::answering([Reply::events(&[message("Hi"), end("stop")])]);
    let dir = TestDir::with(&json!([]));
    dir.write("team/one.npc", "name: one\nprimary_directive: Go.\njinxes: []\n");
    let ask = |server: &Server, more: &[&str]| {
        let endpoint = format!("model: x\napi_url: {}/v1\napi_key: $SECRET_KEY\n", server.url);
        dir.write("team/team.ctx", &endpoint);
        let fixed = ["run", "-t", "team", "--workdir", "work", "hi"];
        let output = dir.alara(&[&fixed[..], more].concat()).output().unwrap();
        let keys: Vec<_> = server.received().iter().map(|request| request.key.clone()).collect();
        (code(&output), keys, text(&output.stderr))
    };
    let one = server();
    let (code, keys, shown) = ask(&one, &[]);
    let host = one.url.strip_prefix("http://").unwrap();
    let reason = format!(
        "the team's files send the key in SECRET_KEY to {host}, and nobody said yes to that\nhint: --yes "
    );
    assert!(code == 2 && keys.is_empty() && shown.contains(&reason) && !shown.contains("hunter2"), "{shown}");
    let (code, keys, shown) = ask(&one, &["--yes"]);
    assert_eq!((code, keys), (0, vec![Some("Bearer hunter2".to_owned())]), "{shown}");

    // A lasting yes applies to this key and this host.
    let two = server();
    let answers = Permissions::open(&dir.path("state/alara/permissions.json")).unwrap();
    let about =
        |key: &str, server: &Server| format!("/{key} to {}", server.url.strip_prefix("http://").unwrap());
    answers.remember("/keys", &about("OTHER_KEY", &two), Answer::Always).unwrap();
    answers.remember("/keys", &about("SECRET_KEY", &one), Answer::Always).unwrap();
    assert_eq!(ask(&two, &[]).0, 2);
    answers.remember("/keys", &about("SECRET_KEY", &two), Answer::Always).unwrap();
    assert_eq!(ask(&two, &[]).1, [Some("Bearer hunter2".to_owned())]);
}

#[test]
fn what_models_go_on_from_is_no_agents_to_write() {
    if !sandboxed("what_models_go_on_from_is_no_agents_to_write") {
        return;
    }
    let write = "echo forged > kept/file || mv kept away; ls -d kept away";
    let dir = TestDir::with(&json!([
        {"calls": [{"name": "sh", "arguments": {"bash_command": write}}]},
        {"text": "Done."}
    ]));
    std::fs::create_dir_all(dir.path("work")).unwrap();
    let (code, shown) = run(&dir, &["--yes", "--cache", "work/kept"]);
    assert_eq!(code, 0, "{shown}");
    let kept = dir.path("work/kept");
    assert!(kept.is_dir() && std::fs::read_dir(kept).unwrap().count() == 0, "{shown}");
    assert!(!dir.path("work/away").exists(), "{shown}");
}
