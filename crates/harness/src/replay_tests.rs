use serde_json::json;

use super::*;
use crate::model::{Reply as Turn, Scripted, Single};
use crate::run::Mocks;
use crate::team::Rule;
use crate::testing::Fixture;

fn shell(command: &str) -> Turn {
    Turn::call("shell", json!({"command": command}))
}

/// The trace of a conversation of two messages and a jinx of the person.
fn recorded(fixture: &Fixture, turns: impl IntoIterator<Item = Turn>) -> Vec<Entry> {
    let model = Scripted::new(turns);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    agent.run("do it").unwrap();
    let call = alara_engine::ToolCall {
        id: "run_1".into(),
        name: "shell".into(),
        arguments: json!({"command": "echo mine"}).as_object().cloned().unwrap(),
    };
    tool::person(&session, &fixture.team, &[], &call).unwrap();
    // The script may be over.
    let _ = agent.run("and more");
    session.trace.entries()
}

/// Replays in a new directory; with `dry`, nothing runs.
fn again(entries: &[Entry], team: Team, dry: bool) -> (Vec<Entry>, Fixture) {
    let fixture = Fixture::with(team);
    let model = Replay::new(entries);
    let source = Single(&model);
    let mut session = Session::new(&source, &fixture.sandbox);
    match answers(entries) {
        _ if agreed(entries) => session = session.agreeing(),
        Some(answers) => session = session.asking(answers),
        None => {}
    }
    if dry {
        session.mocks = Mocks::new(entries);
    }
    run(&session, &fixture.team, entries).unwrap();
    let entries = session.trace.entries();
    drop(session);
    (entries, fixture)
}

fn compared(entries: &[Entry]) -> usize {
    entries.iter().filter(|entry| is_compared(entry)).count()
}

#[test]
fn a_replay_of_the_same_is_the_same() {
    let fixture = Fixture::new();
    let entries = recorded(&fixture, [shell("echo one > f; cat f"), Turn::text("done"), Turn::text("more")]);
    assert!(fixture.work().join("f").exists());
    for dry in [true, false] {
        let (replayed, there) = again(&entries, fixture.team.clone(), dry);
        assert_eq!(difference(&entries, &replayed), (compared(&entries), None), "dry: {dry}");
        assert_eq!(there.work().join("f").exists(), !dry);
    }
}

/// Notes with results, hints, and calls taken from texts occur again in the replay.
#[test]
fn a_replay_of_calls_that_went_wrong_is_the_same() {
    let fixture = Fixture::new();
    let written = "<tool_call>{\"name\": \"shell\", \"arguments\": {\"command\": \"echo two\"}}</tool_call>";
    let mut broken = shell("");
    broken.calls[0].arguments = crate::model::arguments::read("{,}");
    let turns = [
        shell("echo one"),
        shell("echo one"),
        broken,
        Turn::text(format!("{written} I think.")),
        Turn::text(written),
        Turn::text("done"),
        Turn::text("more"),
    ];
    let entries = recorded(&fixture, turns);
    assert!(entries.iter().any(|entry| matches!(*entry.record, Record::Hint { .. })), "{entries:#?}");
    for dry in [true, false] {
        let (replayed, _) = again(&entries, fixture.team.clone(), dry);
        assert_eq!(difference(&entries, &replayed), (compared(&entries), None), "dry: {dry}");
    }
}

#[test]
fn a_model_that_failed_fails_again() {
    let fixture = Fixture::new();
    let entries = recorded(&fixture, [Turn::text("done")]);
    let end = Record::End {
        outcome: Outcome::Failed {
            error: "the model can't answer: the script has no reply for turn 2".into(),
        },
    };
    assert_eq!(*entries.last().unwrap().record, end);
    let (replayed, _) = again(&entries, fixture.team, true);
    assert_eq!(difference(&entries, &replayed).1, None);
}

#[test]
fn what_differs_is_told() {
    let fixture = Fixture::new();
    let entries = recorded(&fixture, [shell("ls"), Turn::text("done"), Turn::text("more")]);
    let check = |team: Team, dry, expected: (usize, &str, Value, Value)| {
        let (replayed, _) = again(&entries, team, dry);
        let found = difference(&entries, &replayed).1.unwrap();
        let value = |side: &Option<Value>| {
            let pointer = format!("/{}", found.at);
            side.as_ref().and_then(|value| value.pointer(&pointer)).cloned().unwrap_or_default()
        };
        assert_eq!((found.same, found.at.as_str(), value(&found.recorded), value(&found.replayed)), expected);
    };
    let mut other = fixture.team.clone();
    let worker = other.npcs.iter_mut().find(|npc| npc.name == fixture.team.forenpc).unwrap();
    let before = json!(worker.directive.trim());
    worker.directive = "Be brief.".into();
    check(other, true, (0, "system/0/text", before, json!("Be brief.")));
    let mut denied = fixture.team.clone();
    denied.jinxes.iter_mut().for_each(|jinx| jinx.permission = Some(Verdict::Deny));
    check(denied, true, (4, "record", json!("tool_result"), json!("permission")));
    // The folder was empty when it was recorded, and contains a file now.
    let (_, there) = again(&entries, fixture.team.clone(), false);
    std::fs::write(there.work().join("new"), "").unwrap();
    let model = Replay::new(&entries);
    let source = Single(&model);
    let session = Session::new(&source, &there.sandbox);
    run(&session, &there.team, &entries).unwrap();
    let found = difference(&entries, &session.trace.entries()).1.unwrap();
    assert_eq!((found.same, found.at.as_str()), (4, "result/output"));
}

#[test]
fn a_cancelled_run_is_compared_up_to_there() {
    let entry = |record| Entry { scope: String::new(), record: Arc::new(record) };
    let user = || entry(Record::User { text: "x".into() });
    let end = |outcome| entry(Record::End { outcome });
    let cancelled = [user(), end(Outcome::Cancelled), user()];
    let failed = Outcome::Failed { error: "no more".into() };
    assert_eq!(difference(&cancelled, &[user(), end(failed.clone())]), (1, None));
    let over = || [user(), end(failed.clone())];
    let (_, found) = difference(&over(), &[over().as_slice(), &[user()]].concat());
    assert_eq!(found.map(|found| (found.same, found.recorded)), Some((2, None)));
    assert_eq!(difference(&[user(), user()], &[user()]).1.unwrap().replayed, None);
}

#[test]
fn a_killed_run_is_compared_up_to_there_and_its_last_call_does_not_run() {
    let fixture = Fixture::new();
    let entries = recorded(&fixture, [shell("touch f"), Turn::text("done"), Turn::text("more")]);
    let call = |entry: &Entry| matches!(&*entry.record, Record::ToolCall { .. });
    for (index, _) in entries.iter().enumerate().filter(|(_, entry)| call(entry)) {
        let killed = &entries[..=index];
        let (replayed, there) = again(killed, fixture.team.clone(), true);
        assert_eq!(difference(killed, &replayed), (compared(killed), None));
        assert!(!there.work().join("f").exists());
        let result = replayed.iter().rev().find_map(|entry| match &*entry.record {
            Record::ToolResult { result, .. } => Some(result.error.clone()),
            _ => None,
        });
        assert_eq!(result.as_deref(), Some("not run: the trace has no result of this call"));
    }
}

#[test]
fn a_schema_is_kept() {
    let fixture = Fixture::new();
    let model = Scripted::new([Turn::text("{}")]);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let npc = fixture.team.npc(None).unwrap();
    Agent::new(&session, &fixture.team, npc, Some(json!({"type": "object"}))).unwrap().run("do it").unwrap();
    let entries = session.trace.entries();
    let (replayed, _) = again(&entries, fixture.team.clone(), true);
    assert_eq!(difference(&entries, &replayed), (compared(&entries), None));
}

#[test]
fn a_person_answers_as_before() {
    let mut fixture = Fixture::new();
    let shell_jinx = fixture.team.jinxes.iter_mut().find(|jinx| jinx.name == "shell").unwrap();
    shell_jinx.permission = Some(Verdict::Ask);
    let check = |given: &[Answer], calls: usize| {
        let left = Mutex::new(given.iter().copied());
        let turns = (0..calls).map(|_| shell("echo x")).chain([Turn::text("done")]);
        let model = Scripted::new(turns);
        let source = Single(&model);
        let mut session = Session::new(&source, &fixture.sandbox);
        if !given.is_empty() {
            session = session.asking(|_| left.lock().unwrap().next().unwrap());
        }
        let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
        agent.run("do it").unwrap();
        let entries = session.trace.entries();
        let (replayed, _) = again(&entries, fixture.team.clone(), false);
        assert_eq!(difference(&entries, &replayed).1, None, "{given:?}");
    };
    check(&[], 1);
    check(&[Answer::Yes, Answer::No], 2);
    check(&[Answer::Session], 2);
    check(&[Answer::Never], 2);
    check(&[Answer::No, Answer::Session], 2);
}

#[test]
fn what_was_agreed_to_beforehand_and_what_was_not_is_the_same_again() {
    let mut fixture = Fixture::new();
    let rule = |pattern: &str, verdict| Rule {
        pattern: pattern.into(),
        verdict,
        by: "team.ctx:3".into(),
        inherited: false,
    };
    fixture.team.rules = vec![rule("shell", Verdict::Ask), rule("shell:rm", Verdict::Deny)];
    let calls = ["echo x > f", "$(printf rm) f", "echo y > g"];
    let model = Scripted::new(calls.map(shell).into_iter().chain([Turn::text("done")]));
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox).agreeing();
    Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap().run("do it").unwrap();
    let entries = session.trace.entries();
    let verdicts = entries.iter().filter_map(|entry| match &*entry.record {
        Record::Permission { verdict, .. } => Some(*verdict),
        _ => None,
    });
    assert_eq!(verdicts.collect::<Vec<_>>(), [Verdict::Allow, Verdict::Deny, Verdict::Allow]);
    for name in ["f", "g"] {
        assert!(fixture.work().join(name).exists(), "{name}");
    }
    let (replayed, _) = again(&entries, fixture.team.clone(), false);
    assert_eq!(difference(&entries, &replayed), (compared(&entries), None));
}
