//! `scripts/tau2`: its conversion of results and traces, and, if tau2-bench is installed, that its
//! own evaluator accepts the work of an agent of alara with its tools.

use std::process::Command;

use serde_json::{Value, json};

use crate::dirs::{TestDir, text};

fn script() -> Command {
    let mut command = Command::new("python3");
    command.arg("-B").arg(crate::root().join("scripts/tau2"));
    command
}

#[test]
fn results_are_folded_and_traces_become_trajectories() {
    let output = script().arg("--self-test").output().unwrap();
    let told = text(&output.stderr);
    assert!(output.status.success() && told.contains("Ran 6 tests"), "{told}");
}

#[test]
fn where_tau2_bench_is_not_the_script_says_how_to_get_it() {
    let nowhere = tempfile::tempdir().unwrap();
    let output = script().arg("--tau2").arg(nowhere.path()).output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("git clone --branch v1.0.1") && told.contains("TAU2_DIR"), "{told}");
}

/// A policy of tau2's domain `mock` as a gate, and an order of steps as phases.
const CLERK: &str = "name: clerk
primary_directive: {{ ctx.policy | tojson }}
jinxes: []
mcp_servers: [tau2]
gate: tasks
phases:
  start: look
  facts: {known: \"ok('get_users')\"}
  look: {goal: Find out who asks, tools: [get_users, create_task], next: [[work, known]]}
  work: {goal: Do what was asked, tools: [create_task, update_task_status, transfer_*]}
";
const GATE: &str = "observe:
  get_users: {path: users, value: result, parse: json}
writes:
  create_task: {stale: users}
rules:
  create_task:
    need: \"args.user_id in (users | map(attribute='user_id'))\"
    reason: only existing users can create tasks
    fetch: get_users()
";

#[test]
fn tau2_judges_what_an_agent_did_under_phases_and_a_gate() {
    let Some(tau2) = std::env::var_os("TAU2_DIR") else {
        return crate::absent::skipped("tau2-bench", "TAU2_DIR", "docs/tau2.md says how to get it");
    };
    let create = |user: &str| json!({"calls": [{"name": "create_task", "arguments": {"user_id": user, "title": "Important Meeting"}}]});
    let gold = [
        // The phase, the unknown state and the rule block these: they never reach tau2.
        json!({"calls": [{"name": "update_task_status", "arguments": {"task_id": "task_1", "status": "completed"}}]}),
        create("user_1"),
        json!({"calls": [{"name": "get_users", "arguments": {}}]}),
        create("user_9"),
        create("user_1"),
        json!({"text": "It is created."}),
    ];
    let dir = TestDir::with(&Value::from(gold.to_vec()));
    dir.write("team/team.ctx", "policy: put here by scripts/tau2\n");
    dir.write("team/clerk.npc", CLERK);
    dir.write("team/tasks.gate", GATE);
    dir.write(
        "user.json",
        &json!({"create_task_1": ["Create the task 'Important Meeting', please."]}).to_string(),
    );
    let model = format!("script:{}", dir.path("script.json").display());
    let mut command = script();
    command.args(["--bridge", "--json", "--task-ids", "create_task_1", "--url", "http://127.0.0.1:9"]);
    command.args(["-m", &model, "--alara", env!("CARGO_BIN_EXE_alara"), "--agent", "clerk", "--team"]);
    command.arg(dir.path("team")).arg("--out").arg(dir.path("out")).arg("--").arg("--script");
    let output = command.arg(dir.path("user.json")).env("TAU2_DIR", tau2).output().unwrap();
    let (answer, told) = (text(&output.stdout), text(&output.stderr));
    let numbers: Value = serde_json::from_str(answer.lines().last().unwrap_or_default()).unwrap_or_default();
    assert_eq!((&numbers["reward"], &numbers["pass"]), (&json!(1.0), &json!({"1": 1.0})), "{answer}{told}");
    assert_eq!(numbers["judged_again"], json!({"reward": 1.0, "same": true}), "{answer}");
    let results: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path("out/results.json")).unwrap()).unwrap();
    let messages = results["simulations"][0]["messages"].as_array().unwrap();
    let made = messages.iter().filter_map(|message| message["tool_calls"][0]["name"].as_str());
    assert_eq!(made.collect::<Vec<_>>(), ["get_users", "create_task"]);
}
