//! Phases and gates survive kills.
//! A conversation that was killed and resumed has the same verdicts, phases and ledger as an
//! uninterrupted one.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use alara_harness::phases::Standing;
use alara_harness::trace::{self, Record};
use serde_json::{Value, json};

use crate::dirs::{TestDir, code, sandboxed, text};
use crate::endpoint::server::{self, Answer, Piece, Server, end, event};

const FILES: [(&str, &str); 7] = [
    ("team.ctx", "name: desk\nforenpc: clerk\n"),
    (
        "clerk.npc",
        r#"
name: clerk
primary_directive: Help.
limits: {turns: 50, repeated_calls: 50}
jinxes: [identify, get_order, cancel_order, escalate]
gate: desk
phases:
  start: triage
  facts: {identified: "ok('identify')"}
  retries: {get_order: [2, handover]}
  queue: {from: plan, before: [[first, second]], done: "ok('cancel_order')"}
  triage: {tools: [identify, get_order], next: [[plan, identified]]}
  plan: {expect: call, next: [[work, not queue.empty]]}
  work: {tools: [get_order, cancel_order], gate: identified, expect: call, next: [[handover, queue.empty]]}
  handover: {tools: [escalate]}
"#,
    ),
    (
        "desk.gate",
        r#"
observe:
  get_order: {path: "orders.{{ args.id }}", parse: json, types: {status: string}}
writes:
  cancel_order: {stale: "orders.{{ args.id }}"}
rules:
  waiting: {tools: cancel_order, need: "orders[args.id].status == 'pending'"}
"#,
    ),
    (
        "jinxes/identify.jinx",
        "description: Who asks.\neffect: read\nsteps: [{engine: bash, code: 'sleep 0.4; echo ann'}]\n",
    ),
    (
        "jinxes/get_order.jinx",
        "description: Reads an order.\ninputs: [id, {status: ''}]\neffect: read\nsteps:\n- engine: bash\n  code: |\n    \
         sleep 0.4\n    [ -n \"$status\" ] && printf '{\"status\": \"%s\"}' \"$status\"\n",
    ),
    (
        "jinxes/cancel_order.jinx",
        "description: Cancels an order.\ninputs: [id]\nsteps:\n- engine: bash\n  code: |\n    \
         echo half > \"$id\"; sleep 0.4; echo whole >> \"$id\"\n",
    ),
    (
        "jinxes/escalate.jinx",
        "description: Hands over.\neffect: none\nsteps: [{engine: bash, code: 'sleep 0.4; echo handed over'}]\n",
    ),
];

/// The model's calls, one per turn.
fn calls() -> Vec<(&'static str, Value)> {
    vec![
        ("identify", json!({})),
        // Not allowed in this phase.
        ("cancel_order", json!({"id": "1"})),
        ("plan_tasks", json!({"tasks": ["the second", "the first"]})),
        // Nothing has read it.
        ("cancel_order", json!({"id": "1"})),
        // It fails; after another failure, the conversation is handed over.
        ("get_order", json!({"id": "1"})),
        ("get_order", json!({"id": "1", "status": "pending"})),
        ("cancel_order", json!({"id": "1"})),
        // It may have changed.
        ("cancel_order", json!({"id": "1"})),
        ("get_order", json!({"id": "2", "status": "pending"})),
        ("cancel_order", json!({"id": "2"})),
        ("cancel_order", json!({"id": "2"})),
        ("escalate", json!({})),
    ]
}

/// The calls during and after which it is killed.
const DURING: [usize; 6] = [0, 5, 6, 8, 9, 11];
const AFTER: [usize; 4] = [2, 3, 4, 7];

/// Whether a result reports that its call was interrupted.
fn is_cut_off(result: &str) -> bool {
    result.contains("interrupted: alara was ended") || result.contains("not run: ")
}

/// The model: makes the first call without a result of its own.
fn next(body: &Value) -> Answer {
    let messages = body["messages"].as_array().unwrap();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    let (cut, done): (Vec<_>, Vec<_>) =
        results.partition(|message| is_cut_off(message["content"].as_str().unwrap()));
    let pause = Piece::Pause(Duration::from_millis(150));
    let Some((name, arguments)) = calls().into_iter().nth(done.len()) else {
        return Answer::stream([pause, event(&server::text("Done.")), event(&end("stop"))]);
    };
    let id = format!("c{}", done.len() + cut.len());
    let call = server::call(&id, name, &arguments.to_string());
    Answer::stream([pause, event(&call), event(&end("tool_calls"))])
}

/// The outcome of a call that wasn't interrupted.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    tool: String,
    text: String,
    /// Each verdict on its permission, and its source.
    verdicts: Vec<(String, String)>,
    /// The state of the conversation after it.
    standing: Standing,
}

/// Returns the contents of a trace, its ledgers, and the number of interrupted calls in it.
fn told(path: &Path) -> (Vec<Seen>, Vec<Value>, usize) {
    let entries = trace::read(path).unwrap();
    let (mut all, mut verdicts, mut cut_off, mut standing) =
        (Vec::<Seen>::new(), Vec::new(), 0, Standing::default());
    for entry in &entries {
        match &*entry.record {
            Record::Permission { verdict, by, .. } => {
                // The two files are in different folders.
                let gate = by.rsplit_once('/').filter(|(_, file)| *file == "desk.gate");
                verdicts
                    .push((format!("{verdict:?}"), gate.map_or(by.as_str(), |(_, file)| file).to_owned()));
            }
            Record::ToolResult { text, .. } if is_cut_off(text) => {
                cut_off += 1;
                verdicts.clear();
            }
            Record::ToolResult { call, text, .. } => {
                let (tool, text, verdicts) = (call.name.clone(), text.clone(), std::mem::take(&mut verdicts));
                all.push(Seen { tool, text, verdicts, standing: standing.clone() });
            }
            Record::Phase(now) => {
                standing = now.clone();
                if let Some(last) = all.last_mut() {
                    last.standing = now.clone();
                }
            }
            _ => {}
        }
    }
    let ledgers = trace::ledgers(entries.iter().map(|entry| &*entry.record));
    (all, ledgers.values().map(alara_harness::ledger::Ledger::value).collect(), cut_off)
}

fn desk() -> TestDir {
    let dir = TestDir::with(&json!([]));
    for (name, text) in FILES {
        dir.write(&format!("team/{name}"), text);
    }
    dir
}

fn trace_of(dir: &TestDir) -> Option<std::path::PathBuf> {
    let mut files = dir.path("state/alara/traces").read_dir().ok()?.flatten().map(|entry| entry.path());
    files.find(|path| path.extension().is_some_and(|ending| ending == "jsonl"))
}

/// Returns how many calls have their own results, and whether one is running.
fn progress(dir: &TestDir) -> (usize, bool) {
    let Some(entries) = trace_of(dir).and_then(|path| trace::read(&path).ok()) else { return (0, false) };
    entries.iter().fold((0, false), |(done, running), entry| match &*entry.record {
        Record::ToolCall { .. } => (done, true),
        Record::ToolResult { text, .. } => (done + usize::from(!is_cut_off(text)), false),
        _ => (done, running),
    })
}

#[test]
fn killed_and_resumed_it_comes_to_the_same_verdicts_and_phases() {
    if !sandboxed("killed_and_resumed_it_comes_to_the_same_verdicts_and_phases") {
        return;
    }
    let server = Server::thinking(next);
    let model = format!("{}/v1#m", server.url);
    let begin = ["run", "-m", &model, "-t", "team", "--workdir", "work", "do it"];
    let whole = desk();
    let output = whole.alara(&begin).output().unwrap();
    // The last change was refused.
    assert_eq!((code(&output), text(&output.stdout).as_str()), (1, "Done.\n"), "{}", text(&output.stderr));
    let (expected, ledgers, _) = told(&trace_of(&whole).unwrap());
    let phases: Vec<&str> = expected.iter().map(|seen| seen.standing.phase.as_str()).collect();
    assert_eq!(phases.join(" "), "plan plan work work work work work work work handover handover handover");
    assert_eq!(
        ledgers,
        [
            json!({"orders": {"1": {"status": "pending"}, "2": {"status": "pending"}}, "stale": ["orders.1", "orders.2"]})
        ]
    );

    let mut kills: Vec<(usize, bool)> =
        DURING.map(|call| (call, true)).into_iter().chain(AFTER.map(|call| (call, false))).collect();
    kills.sort_unstable();
    let killed = desk();
    for (number, (call, during)) in kills.into_iter().enumerate() {
        let mut command = go_on(&killed, &begin, number);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        let wanted = if during { (call, true) } else { (call + 1, false) };
        while progress(&killed) < wanted {
            let ended = child.try_wait().unwrap().is_some();
            assert!(
                !ended && begun.elapsed() < Duration::from_secs(60),
                "before {wanted:?}: {:?}",
                progress(&killed)
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let output = go_on(&killed, &begin, 1).output().unwrap();
    assert!(code(&output) < 2 && text(&output.stdout) == "Done.\n", "{}", text(&output.stderr));
    let (found, known, cut_off) = told(&trace_of(&killed).unwrap());
    assert_eq!(found, expected);
    assert_eq!(known, ledgers);
    assert!(cut_off > DURING.len() / 2, "{cut_off}");
}

/// Returns the command that begins or continues the conversation: alternately by its name, and as
/// the latest one.
fn go_on(dir: &TestDir, begin: &[&str], number: usize) -> std::process::Command {
    match trace_of(dir).filter(|_| number > 0) {
        None => dir.alara(begin),
        Some(path) if number.is_multiple_of(2) => {
            dir.alara(&["run", "--resume", path.file_stem().unwrap().to_str().unwrap()])
        }
        Some(_) => dir.alara(&["run", "--continue", "--workdir", "work"]),
    }
}
