//! The loop under phases: the grammar that the decoder gets, and the calls that the executor
//! accepts.

use alara_engine::{Message, Request, ToolChoice};
use serde_json::json;

use super::*;
use crate::model::{Reply, Scripted, Single};
use crate::phases::{Budget, Condition, Expect, Fact, Gate, Next, Phase, Phases};
use crate::testing::Fixture;

fn condition(text: &str) -> Condition {
    Condition::parse(text).unwrap()
}

/// A phase in which a file must be read before another may be written; a model that fails at it
/// must give up.
fn phases() -> Phases {
    let next = |phase: &str, when: &str| Next { phase: phase.into(), when: condition(when) };
    let phase = |name: &str, tools: &[&str], expect, next: Vec<Next>| Phase {
        name: name.into(),
        tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
        expect,
        next,
        ..Phase::default()
    };
    let gate = Some(Gate { when: condition("read"), phase: "look".into() });
    let write = phase("write", &["write_*"], Expect::Call, vec![next("tell", "queue.empty")]);
    Phases {
        start: "look".into(),
        facts: vec![Fact { name: "read".into(), when: condition("ok('read_file')") }],
        queue: Some(Queue {
            from: "plan_it".into(),
            before: vec![("first".into(), "second".into())],
            done: condition("ok('write_file')"),
        }),
        retries: vec![Budget { tool: "read_file".into(), failures: 2, phase: "tell".into() }],
        phases: vec![
            phase("look", &["read_file"], Expect::Either, vec![next("plan_it", "read")]),
            phase("plan_it", &[], Expect::Call, vec![next("write", "not queue.empty")]),
            Phase { gate, ..write },
            phase("tell", &[], Expect::Text, Vec::new()),
        ],
    }
}

fn fixture() -> Fixture {
    let mut fixture = Fixture::new();
    let worker = fixture.team.npcs.iter_mut().find(|npc| npc.name == "worker").unwrap();
    worker.phases = Some(phases());
    std::fs::write(fixture.work().join("in"), "x").unwrap();
    fixture
}

fn read(path: &str) -> Reply {
    Reply::call("read_file", json!({"path": path}))
}

fn write(path: &str) -> Reply {
    Reply::call("write_file", json!({"path": path, "content": "y"}))
}

fn plan(tasks: &[&str]) -> Reply {
    Reply::call("plan_tasks", json!({"tasks": tasks}))
}

fn run(replies: impl IntoIterator<Item = Reply>) -> (Fixture, Outcome, Vec<Request>) {
    let fixture = fixture();
    let model = Scripted::new(replies);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    let outcome = agent.run("do it").unwrap();
    drop(agent);
    drop(session);
    let requests = model.requests();
    (fixture, outcome, requests)
}

#[test]
fn each_turn_may_be_what_its_phase_says() {
    let replies = [
        read("in"),
        plan(&["write the second", "write the first"]),
        write("1"),
        write("2"),
        Reply::text("Done."),
    ];
    let (fixture, outcome, requests) = run(replies);
    assert_eq!(outcome, Outcome::Answer { text: "Done.".into() });
    assert!(fixture.work().join("1").exists() && fixture.work().join("2").exists());
    let among = |name: &str, required| ToolChoice::Among { names: vec![name.to_owned()], required };
    let choices: Vec<ToolChoice> = requests.iter().map(|request| request.tool_choice.clone()).collect();
    let write = || among("write_file", true);
    assert_eq!(
        choices,
        [among("read_file", false), among("plan_tasks", true), write(), write(), ToolChoice::None]
    );
    let last =
        |index: usize| requests[index].messages.last().map(|message| message.content.as_str()).unwrap();
    assert!(last(0).starts_with("do it\n\n<phase>\nname: look\n"), "{}", last(0));
    assert!(
        last(2).contains("{\"tasks\":[\\\"write the first\\\"") || last(2).contains("write the first"),
        "{}",
        last(2)
    );
    assert!(last(2).ends_with("left: write the first; write the second\n</phase>"), "{}", last(2));
    assert!(last(3).ends_with("done: write the first\nleft: write the second\n</phase>"), "{}", last(3));
}

/// No request rewrites what an earlier prompt began with.
#[test]
fn what_changes_is_only_appended() {
    let replies = [read("no"), write("no"), read("in"), plan(&["a"]), write("1"), Reply::text("Done.")];
    let (_, _, requests) = run(replies);
    assert_eq!(requests.len(), 6);
    for (earlier, later) in requests.iter().zip(&requests[1..]) {
        assert_eq!((&earlier.system, &earlier.tools), (&later.system, &later.tools));
        assert_eq!(earlier.messages, later.messages[..earlier.messages.len()]);
    }
    let told = |message: &Message| message.content.contains("<phase>");
    let counts: Vec<usize> = requests
        .iter()
        .map(|request| request.messages.iter().filter(|message| told(message)).count())
        .collect();
    assert_eq!(counts, [1, 1, 1, 2, 3, 4], "a block only where something changed");
}

#[test]
fn a_forged_call_does_not_get_through() {
    let replies = [write("forged"), plan(&["x"]), read("in"), read("in"), write("forged")];
    let replies = replies.into_iter().chain(std::iter::repeat_n(Reply::text("Well."), 3));
    let (fixture, _, requests) = run(replies);
    assert!(!fixture.work().join("forged").exists());
    let messages = &requests[5].messages;
    let refusals =
        messages.iter().filter(|message| message.content.contains("is not permitted in the phase")).count();
    assert_eq!(refusals, 4, "{messages:#?}");
    assert!(
        messages[2]
            .content
            .contains("`write_file` is not permitted in the phase `look`; what may be called now: read_file"),
        "{}",
        messages[2].content
    );
}

/// No grammar constrains a scripted model or an endpoint.
#[test]
fn a_text_where_a_phase_expects_a_call_is_no_answer() {
    let texts = |count| std::iter::repeat_with(|| Reply::text("I have written it.")).take(count);
    let (_, outcome, requests) = run([read("in")].into_iter().chain(texts(3)));
    let error = "the phase `plan_it` expects a call of one of: plan_tasks; the model wrote a text";
    assert_eq!((outcome, requests.len()), (Outcome::Failed { error: error.into() }, 4));
    let last = requests[3].messages.last().unwrap();
    assert!(
        last.content.starts_with("The phase `plan_it` expects a call of one of: plan_tasks."),
        "{last:?}"
    );
    // A model that then calls continues, and is asked again in the next phase too.
    let planned = [read("in")].into_iter().chain(texts(2)).chain([plan(&["a"])]);
    let (fixture, outcome, _) = run(planned.chain(texts(2)).chain([write("1"), Reply::text("Done.")]));
    assert_eq!(outcome, Outcome::Answer { text: "Done.".into() });
    assert!(fixture.work().join("1").exists());
}

#[test]
fn a_used_up_budget_ends_in_its_phase() {
    let (_, outcome, requests) = run([read("no"), read("nowhere"), Reply::text("I can't.")]);
    assert_eq!(outcome, Outcome::Answer { text: "I can't.".into() });
    assert_eq!(requests[2].tool_choice, ToolChoice::None);
}

/// A conversation that was cut off continues from where it stopped, however often its records are
/// folded.
#[test]
fn phases_are_folded_from_the_records_alone() {
    let fixture = fixture();
    let model = Scripted::new([
        read("in"),
        plan(&["a", "b"]),
        // This many end the run.
        Reply::text("Wait."),
        Reply::text("Wait."),
        Reply::text("Wait."),
        write("1"),
        write("2"),
        Reply::text("Done."),
    ]);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let npc = fixture.team.npc(None).unwrap();
    let mut agent = Agent::new(&session, &fixture.team, npc, None).unwrap();
    agent.run("do it").unwrap();
    let stands = |records: &[Arc<Record>]| {
        let machine = trace::phases(records.iter().map(|record| &**record));
        machine.map(|machine| machine.state().clone())
    };
    let records = agent.into_records();
    let state = stands(&records).unwrap();
    assert_eq!((state.phase.as_str(), state.pending.len()), ("write", 2));
    let written = serde_json::to_string(&records.iter().map(|record| &**record).collect::<Vec<_>>()).unwrap();
    let again: Vec<Record> = serde_json::from_str(&written).unwrap();
    let again: Vec<Arc<Record>> = again.into_iter().map(Arc::new).collect();
    for _ in 0..100 {
        assert_eq!(stands(&again), Some(state.clone()));
    }
    let mut agent = Agent::resume(&session, &fixture.team, npc, "", again).unwrap();
    assert_eq!(agent.run("go on").unwrap(), Outcome::Answer { text: "Done.".into() });
    assert!(fixture.work().join("2").exists());
    // A call that was undone counts as never made.
    let mut records = agent.into_records();
    records.push(Arc::new(Record::Retract));
    assert_eq!(stands(&records), Some(state));
}

#[test]
fn other_phases_know_what_has_happened() {
    let mut fixture = fixture();
    let model = Scripted::new([
        read("in"),
        plan(&["a"]),
        Reply::text("Wait."),
        Reply::text("Wait."),
        Reply::text("Done."),
    ]);
    let source = Single(&model);
    let records = {
        let session = Session::new(&source, &fixture.sandbox);
        let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
        agent.run("do it").unwrap();
        agent.into_records()
    };
    let worker = fixture.team.npcs.iter_mut().find(|npc| npc.name == "worker").unwrap();
    let mut other = phases();
    other.phases[2].next = vec![Next { phase: "tell".into(), when: condition("read") }];
    worker.phases = Some(other);
    let session = Session::new(&source, &fixture.sandbox);
    let agent = Agent::resume(&session, &fixture.team, fixture.team.npc(None).unwrap(), "", records).unwrap();
    let machine = trace::phases(agent.records()).unwrap();
    assert_eq!(machine.state().phase, "tell");
    assert!(machine.state().facts["read"]);
}
