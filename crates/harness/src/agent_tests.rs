use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use alara_engine::Role;
use serde_json::json;

use super::*;
use crate::model::{Reply, Scripted};
use crate::sandbox::{Isolation, Policy};

struct Ground {
    team: Team,
    work: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        Ground { team: Team::stock("alara").unwrap(), work: tempfile::tempdir().unwrap() }
    }

    fn sandbox(&self) -> Sandbox {
        let policy = Policy { isolation: Isolation::Off, ..Policy::default() };
        Sandbox::new(self.work.path(), policy).unwrap()
    }

    fn agent<'a>(&'a self, model: &'a Scripted, sandbox: &'a Sandbox, trace: Trace) -> Agent<'a> {
        let npc = self.team.npc(None).unwrap();
        Agent::new(&self.team, npc, model, sandbox, Sampling::default(), trace).unwrap()
    }
}

fn shell(command: &str) -> Reply {
    Reply::call("shell", json!({"command": command}))
}

/// Runs a script to its outcome; also what the model got to read from the tools.
fn play(replies: impl IntoIterator<Item = Reply>) -> (Outcome, Vec<String>) {
    let ground = Ground::new();
    let (model, sandbox) = (Scripted::new(replies), ground.sandbox());
    let mut agent = ground.agent(&model, &sandbox, Trace::in_memory());
    let outcome = agent.run("do it").unwrap();
    let request = trace::request(agent.trace().records());
    let read = request.messages.into_iter().filter(|message| message.role == Role::Tool);
    (outcome, read.map(|message| message.content).collect())
}

#[test]
fn calls_are_run_and_their_results_shown() {
    let ground = Ground::new();
    let model = Scripted::new([shell("echo one > f; cat f"), Reply::text("It is done.")]);
    let sandbox = ground.sandbox();
    let mut agent = ground.agent(&model, &sandbox, Trace::in_memory());
    assert_eq!(agent.run("do it").unwrap(), Outcome::Answer { text: "It is done.".into() });
    assert!(ground.work.path().join("f").exists());

    let requests = model.requests();
    let names: Vec<&str> = requests[0].tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["shell", "python", "read_file", "write_file", "edit_file"]);
    assert_eq!(requests[0].system.len(), 1);
    assert_eq!(requests[0].messages, [Message::user("do it")]);
    let call = &requests[1].messages[1].tool_calls[0];
    assert_eq!(requests[1].messages[2], Message::tool_result(call, r#"{"ok":true,"output":"one"}"#));
    assert_eq!(requests[1].system, requests[0].system);
}

#[test]
fn a_conversation_continues() {
    let ground = Ground::new();
    let model = Scripted::new([Reply::text("first"), Reply::text("second")]);
    let sandbox = ground.sandbox();
    let mut agent = ground.agent(&model, &sandbox, Trace::in_memory());
    agent.run("do it").unwrap();
    assert_eq!(agent.run("again").unwrap(), Outcome::Answer { text: "second".into() });
    let said: Vec<_> = model.requests()[1].messages.iter().map(|message| message.content.clone()).collect();
    assert_eq!(said, ["do it", "first", "again"]);
}

#[test]
fn a_call_outside_the_list_is_refused() {
    let mut ground = Ground::new();
    let listed = ground.team.npcs.iter_mut().find(|npc| npc.name == "worker").unwrap();
    listed.jinxes = vec!["read_file".into()];
    let model = Scripted::new([shell("touch forged"), Reply::text("oh")]);
    let sandbox = ground.sandbox();
    let mut agent = ground.agent(&model, &sandbox, Trace::in_memory());
    agent.run("do it").unwrap();
    assert!(!ground.work.path().join("forged").exists());
    let refused = agent.trace().records().iter().any(|record| {
        matches!(record, Record::ToolResult { text, .. }
            if text == r#"{"ok":false,"exit":null,"error":"`shell` is not permitted; the tools are: read_file"}"#)
    });
    assert!(refused, "{:#?}", agent.trace().records());
}

#[test]
fn limits_end_a_run() {
    let many = |count| (0..count).map(|index| shell(&format!("echo {index}")));
    let (outcome, read) = play(many(20));
    assert_eq!((outcome, read.len()), (Outcome::TurnLimit { turns: 12 }, 12));

    let (outcome, read) = play([shell("echo a"), shell("echo a"), shell("echo a")]);
    assert_eq!(outcome, Outcome::Repetition { call: "shell".into() });
    assert_eq!(
        read,
        [
            r#"{"ok":true,"output":"a"}"#,
            r#"{"ok":true,"output":"a"}"#,
            r#"{"ok":false,"exit":null,"error":"not run: the same call was made several times in a row"}"#
        ]
    );
    let (outcome, _) =
        play([shell("echo a"), shell("echo a"), shell("echo b"), shell("echo a"), Reply::text("end")]);
    assert_eq!(outcome, Outcome::Answer { text: "end".into() });

    let (outcome, _) = play([Reply { finish: Some(Finish::Length), ..Reply::text("cut o") }]);
    assert_eq!(outcome, Outcome::Length);
}

#[test]
fn a_deadline_cuts_a_tool_off() {
    let ground = Ground::new();
    let (model, sandbox) = (Scripted::new([shell("sleep 30")]), ground.sandbox());
    let begun = Instant::now();
    let mut agent =
        ground.agent(&model, &sandbox, Trace::in_memory()).until(begun + Duration::from_millis(300));
    assert_eq!(agent.run("do it").unwrap(), Outcome::Deadline);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn cancelling_ends_a_run() {
    let ground = Ground::new();
    let cancel = Arc::new(AtomicBool::new(false));
    let sandbox = ground.sandbox().with_cancel(cancel.clone());
    let model = Scripted::new([shell("sleep 30")]);
    let mut agent = ground.agent(&model, &sandbox, Trace::in_memory()).observed(move |notice| {
        if let Notice::Call(_) = notice {
            cancel.store(true, Ordering::Relaxed);
        }
    });
    assert_eq!(agent.run("do it").unwrap(), Outcome::Cancelled);
    assert!(matches!(agent.trace().records().last(), Some(Record::End { outcome: Outcome::Cancelled })));
}

#[test]
fn a_model_that_fails_is_recorded() {
    let ground = Ground::new();
    let (model, sandbox) = (Scripted::default(), ground.sandbox());
    let mut agent = ground.agent(&model, &sandbox, Trace::in_memory());
    assert_eq!(agent.run("do it").unwrap_err().to_string(), "the model can't answer");
    let error = "the model can't answer: the script has no reply for turn 1".to_owned();
    assert_eq!(agent.trace().records().last(), Some(&Record::End { outcome: Outcome::Failed { error } }));
}

#[test]
fn a_trace_file_folds_to_the_same_conversation() {
    let ground = Ground::new();
    let model = Scripted::new([shell("echo é; exit 2"), Reply::text("ok"), Reply::text("two")]);
    let sandbox = ground.sandbox();
    let path = ground.work.path().join("deep/trace.jsonl");
    let mut agent = ground.agent(&model, &sandbox, Trace::create(&path).unwrap());
    agent.run("do it").unwrap();
    agent.run("more").unwrap();
    let read = trace::read(&path).unwrap();
    assert_eq!(read, agent.trace().records());
    let last = model.requests().pop().unwrap();
    let before = read.iter().rposition(|record| matches!(record, Record::Assistant { .. })).unwrap();
    assert_eq!(trace::request(&read[..before]), last);

    let mut text = std::fs::read_to_string(&path).unwrap();
    text += r#"{"time":"2026-01-01T00:00:00Z","record":"us"#;
    std::fs::write(&path, text).unwrap();
    assert_eq!(trace::read(&path).unwrap(), read);
    assert!(Trace::create(&path).unwrap_err().to_string().starts_with("can't use the trace file"));
    assert!(trace::read(Path::new("/no/such")).is_err());
}
