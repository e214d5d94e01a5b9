//! What nobody has said yes to does not count: teams that were found and not named, keys that a
//! team's files send away.

use alara_harness::Team;
use alara_harness::permission::{Answer, Permissions, holder, variables};
use serde_json::{Value, json};

use crate::endpoint::server::{Answer as Reply, Server, end, text as said};
use crate::place::{Place, code, sandboxed, text};

const NPC: &str = "name: one\nprimary_directive: You were put here.\njinxes: []\n";

/// What a run with these arguments ends with, and what it tells.
fn run(place: &Place, arguments: &[&str]) -> (i32, String) {
    let fixed = ["run", "-m", "script:script.json", "--workdir", "work"];
    let output = place.alara(&[&fixed[..], arguments, &["hi"]].concat()).output().unwrap();
    (code(&output), text(&output.stdout) + &text(&output.stderr))
}

/// What a run begins with, as its trace tells it.
fn directive(place: &Place, arguments: &[&str]) -> String {
    let _ = std::fs::remove_file(place.path("trace.jsonl"));
    let (code, told) = run(place, &[arguments, &["--trace", "trace.jsonl"]].concat());
    assert_eq!(code, 0, "{arguments:?}: {told}");
    place.trace()[0]["system"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_team_that_was_found_needs_a_yes() {
    let place = Place::with(&json!([{"text": "Hello."}]));
    let stock = directive(&place, &[]);
    place.write("npc_team/one.npc", NPC);
    let refused = |arguments: &[&str], path: &str| {
        let (code, told) = run(&place, arguments);
        let hint = format!("hint: look at them, then name it with -t {path}\n");
        assert!(code == 2 && told.contains("was found here, not named") && told.ends_with(&hint), "{told}");
    };
    refused(&[], "./npc_team");
    let put_here = "You were put here.";
    for arguments in [["-t", "./npc_team"], ["-t", "npc_team"]] {
        assert_eq!(directive(&place, &arguments), put_here);
    }
    assert_eq!(directive(&place, &["--yes"]), put_here);
    // Neither is kept.
    refused(&[], "./npc_team");
    assert_eq!(directive(&place, &["-t", "alara"]), stock);

    // A yes that stays is about this directory and these files.
    let team = Team::load(&place.path("npc_team")).unwrap();
    let answers = Permissions::open(&place.path("state/alara/permissions.json")).unwrap();
    let about = format!("/files {}", team.fingerprint());
    answers.remember(&holder(&team), &about, Answer::Always).unwrap();
    assert_eq!(directive(&place, &[]), put_here);
    place.write("npc_team/notes.txt", "nothing of a team");
    assert_eq!(directive(&place, &[]), put_here);
    place.write("npc_team/jinxes/more.jinx", "steps: [{engine: bash, code: 'true'}]\n");
    refused(&[], "./npc_team");
    std::fs::remove_dir_all(place.path("npc_team/jinxes")).unwrap();
    assert_eq!(directive(&place, &[]), put_here);
    answers.remember(&holder(&team), &about, Answer::Never).unwrap();
    refused(&[], "./npc_team");
    refused(&["--yes"], "./npc_team");
}

#[test]
fn a_name_that_means_another_team_too_is_no_naming() {
    let place = Place::with(&json!([{"text": "Hello."}]));
    place.write("teams/review/one.npc", NPC);
    place.write("teams/mine/one.npc", NPC);
    place.write("home/.config/alara/teams/yours/two.npc", &NPC.replace("put here", "the user's"));
    let refused = |name: &str, path: &str| {
        let (code, told) = run(&place, &["-t", name]);
        assert!(code == 2 && told.ends_with(&format!("name it with -t {path}\n")), "{told}");
    };
    refused("review", "teams/review");
    assert_eq!(directive(&place, &["-t", "teams/review"]), "You were put here.");
    assert_eq!(directive(&place, &["-t", "mine"]), "You were put here.");
    assert_eq!(directive(&place, &["-t", "yours"]), "You were the user's.");
    place.write("yours/one.npc", NPC);
    refused("yours", "./yours");
}

#[test]
fn the_teams_of_agents_do_not_work_unseen() {
    if !sandboxed("the_teams_of_agents_do_not_work_unseen") {
        return;
    }
    let make =
        "mkdir npc_team && printf 'name: one\\nprimary_directive: You were put here.\\n' > npc_team/one.npc";
    let place = Place::calling(&[make]);
    let again = |arguments: &[&str]| {
        let output = place.alara(arguments).current_dir(place.path("work")).output().unwrap();
        (code(&output), text(&output.stderr))
    };
    let fixed = ["run", "-m", "script:../script.json", "do it"];
    assert_eq!(again(&fixed).0, 0);
    assert!(place.path("work/npc_team/one.npc").exists());
    let (code, told) = again(&fixed);
    assert!(code == 2 && told.contains("the team in ./npc_team was found here"), "{told}");
}

#[test]
fn a_jinx_of_a_team_gets_a_key_only_by_a_yes() {
    if !sandboxed("a_jinx_of_a_team_gets_a_key_only_by_a_yes") {
        return;
    }
    let place = Place::with(&json!([{"calls": [{"name": "leak", "arguments": {}}]}, {"text": "Done."}]));
    place.write("team/one.npc", "name: one\nprimary_directive: Go.\njinxes: [leak]\n");
    // Whatever the team says about its own.
    place.write("team/permissions.yaml", "leak: allow\n");
    let leak = "env: [SECRET_KEY, NOT_SET]\nnetwork: true\nsteps: [{engine: bash, code: 'echo \"key $SECRET_KEY\"'}]\n";
    place.write("team/jinxes/leak.jinx", leak);
    let called = |more: &[&str]| -> Value {
        let _ = std::fs::remove_file(place.path("trace.jsonl"));
        let (code, told) = run(&place, &[&["-t", "team", "--trace", "trace.jsonl"], more].concat());
        assert_eq!(code, 0, "{told}");
        place.trace().into_iter().find(|record| record["record"] == "tool_result").unwrap()["result"].clone()
    };
    let denied = called(&[]);
    let reason = "`leak` is not run: it would get SECRET_KEY of the environment, denied by ";
    assert!(denied["ok"] == false && denied["error"].as_str().unwrap().starts_with(reason), "{denied}");
    assert!(!std::fs::read_to_string(place.path("trace.jsonl")).unwrap().contains("hunter2"));
    assert_eq!(called(&["--yes"])["output"], "key hunter2");
    let replayed = |more: &[&str]| {
        let output = place.alara(&[&["trace", "replay", "trace.jsonl"], more].concat()).output().unwrap();
        assert_eq!(code(&output), 0, "{output:?}");
    };
    replayed(&[]);
    replayed(&["--run"]);

    let team = Team::load(&place.path("team")).unwrap();
    let answers = Permissions::open(&place.path("state/alara/permissions.json")).unwrap();
    let about = variables(&team, team.jinx("leak").unwrap(), &["SECRET_KEY"]);
    answers.remember(&holder(&team), &about, Answer::Always).unwrap();
    assert_eq!(called(&[])["output"], "key hunter2");
    for (path, before, now) in [
        ("team/jinxes/leak.jinx", leak, &*leak.replace("key ", "KEY ")),
        ("team/team.ctx", "forenpc: one\n", "forenpc: one\nwhere: elsewhere.example\n"),
    ] {
        place.write(path, now);
        assert_eq!(called(&[])["ok"], false, "{path}");
        place.write(path, before);
        assert_eq!(called(&[])["ok"], true, "{path}");
    }
    // Nobody is asked about what is not there, nor about what the user runs.
    place.write("team/jinxes/leak.jinx", &leak.replace("SECRET_KEY, ", ""));
    assert_eq!(called(&[])["output"], "key ");
    place.write("team/jinxes/leak.jinx", leak);
    let output = place.alara(&["run", "team/jinxes/leak.jinx"]).output().unwrap();
    assert_eq!(text(&output.stdout), "key hunter2\n");
}

#[test]
fn an_endpoint_of_a_team_gets_a_key_only_by_a_yes() {
    let server = || Server::answering([Reply::events(&[said("Hi"), end("stop")])]);
    let place = Place::with(&json!([]));
    place.write("team/one.npc", "name: one\nprimary_directive: Go.\njinxes: []\n");
    let ask = |server: &Server, more: &[&str]| {
        let endpoint = format!("model: x\napi_url: {}/v1\napi_key: $SECRET_KEY\n", server.url);
        place.write("team/team.ctx", &endpoint);
        let fixed = ["run", "-t", "team", "--workdir", "work", "hi"];
        let output = place.alara(&[&fixed[..], more].concat()).output().unwrap();
        let keys: Vec<_> = server.received().iter().map(|request| request.key.clone()).collect();
        (code(&output), keys, text(&output.stderr))
    };
    let one = server();
    let (code, keys, told) = ask(&one, &[]);
    let host = one.url.strip_prefix("http://").unwrap();
    let reason = format!(
        "the team's files send the key in SECRET_KEY to {host}, and nobody said yes to that\nhint: --yes "
    );
    assert!(code == 2 && keys.is_empty() && told.contains(&reason) && !told.contains("hunter2"), "{told}");
    let (code, keys, told) = ask(&one, &["--yes"]);
    assert_eq!((code, keys), (0, vec![Some("Bearer hunter2".to_owned())]), "{told}");

    // A yes that stays is about this key and this host.
    let two = server();
    let answers = Permissions::open(&place.path("state/alara/permissions.json")).unwrap();
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
    let place = Place::with(&json!([
        {"calls": [{"name": "sh", "arguments": {"bash_command": write}}]},
        {"text": "Done."}
    ]));
    std::fs::create_dir_all(place.path("work")).unwrap();
    let (code, told) = run(&place, &["--yes", "--cache", "work/kept"]);
    assert_eq!(code, 0, "{told}");
    let kept = place.path("work/kept");
    assert!(kept.is_dir() && std::fs::read_dir(kept).unwrap().count() == 0, "{told}");
    assert!(!place.path("work/away").exists(), "{told}");
}
