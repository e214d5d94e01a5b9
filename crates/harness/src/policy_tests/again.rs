//! Verdicts, phases and ledgers are a function of the trace: the same in every replay, and with any
//! number of threads.

use std::path::Path;

use serde_json::json;

use super::random::Sequence;
use super::{CLERK, Seen, seen, team, write_team};
use crate::ledger::{Change, Ledger};
use crate::model::{Reply, Scripted, Single};
use crate::phases::Standing;
use crate::replay::{self, Replay};
use crate::resume::resume;
use crate::run::{Agent, Mocks, Session};
use crate::team::Team;
use crate::testing::Fixture;
use crate::trace::{self, Entry, Record, Trace, normalised};
use crate::types::ToolResult;

/// How often a trace is replayed.
const REPLAYS: usize = 100;
/// How many calls its conversation has.
const STEPS: usize = 24;

/// Without its tools, as `alara trace replay` does it, and with them.
#[test]
fn a_hundred_replays_come_to_the_same_verdicts_and_phases() {
    let (team, _directory) = team();
    let fixture = Fixture::with(team);
    let sequence = Sequence::new(5, STEPS);
    let entries = sequence.held(&fixture);
    sequence.check(&entries);
    let refused = |rule: &str| {
        let is_so = |seen: &Seen| seen.refused.as_ref().is_some_and(|refused| refused.starts_with(rule));
        seen(&entries).iter().any(is_so)
    };
    assert!(refused("phase") && refused("rule"), "it tells something");
    let outside = Mocks::new(&entries).outside(&entries);
    for round in 0..REPLAYS {
        let model = Replay::new(&entries);
        let source = Single(&model);
        let mut session = Session::new(&source, &fixture.sandbox);
        let mut expected = &entries;
        if round % 2 == 0 {
            session.mocks = Mocks::new(&entries);
            expected = &outside;
        }
        replay::run(&session, &fixture.team, &entries).unwrap();
        let replayed = session.trace.entries();
        let compared = expected.iter().filter(|entry| replay::is_compared(entry)).count();
        assert_eq!(replay::difference(expected, &replayed), (compared, None), "{round}");
    }
}

/// Orders that are looked up in parallel, then a call that depends on all of them.
#[test]
fn what_is_read_side_by_side_is_known_in_the_order_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    write_team(directory.path());
    let clerk = CLERK
        .replace("run_tool, escalate]", "run_tool, escalate, survey]")
        .replace("[identify, get_*]", "[identify, survey]");
    std::fs::write(directory.path().join("clerk.npc"), clerk).unwrap();
    let survey = "jinx_name: survey\ndescription: Reads orders.\ninputs: [{orders: {type: array}}]\neffect: read\nsteps:\n\
        - for: order\n  in: orders\n  parallel: true\n  do: [{engine: get_order, with: {id: \"{{ order.id }}\", status: \"{{ order.status }}\"}}]\n";
    std::fs::write(directory.path().join("jinxes/survey.jinx"), survey).unwrap();
    let team = Team::load(directory.path()).unwrap();
    assert_eq!(team.diagnostics, []);
    let fixture = Fixture::with(team);
    let held = |threads: usize| -> Vec<Entry> {
        let order = |id: u64, status: &str| json!({"id": id, "status": status});
        let mut orders: Vec<_> =
            (0..12).map(|at| order(at % 3, if at < 9 { "pending" } else { "shipped" })).collect();
        orders.push(order(1, "pending"));
        let model = Scripted::new([
            Reply::call("survey", json!({"orders": orders})),
            Reply::call("identify", json!({})),
            Reply::call("plan_tasks", json!({"tasks": ["a", "b"]})),
            Reply::call("cancel_order", json!({"id": 0})),
            Reply::call("identify", json!({})),
            Reply::call("cancel_order", json!({"id": 1})),
            Reply::text("Done."),
        ]);
        let source = Single(&model);
        let mut session = Session::new(&source, &fixture.sandbox);
        session.threads = threads;
        let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
        agent.run("go").unwrap();
        session.trace.entries()
    };
    let told = |entries: &[Entry]| entries.iter().map(normalised).collect::<Vec<_>>();
    let one = held(1);
    let verdicts: Vec<bool> = one
        .iter()
        .filter_map(|entry| match &*entry.record {
            Record::ToolResult { call, result, .. } if call.name == "cancel_order" => Some(result.ok),
            _ => None,
        })
        .collect();
    assert_eq!(verdicts, [false, true], "the last reads count");
    for _ in 0..10 {
        assert_eq!(told(&held(8)), told(&one));
    }
}

/// Calls, with the answers that the team's tools should give.
fn work() -> Vec<Reply> {
    let order = |id: u64| json!({"id": id});
    vec![
        Reply::call("identify", json!({})),
        Reply::call("plan_tasks", json!({"tasks": ["the second", "the first", "another"]})),
        // It was not read.
        Reply::call("run_tool", json!({"tool": "cancel_order", "arguments": "{\"id\": 1}"})),
        // It fails: once more, and the conversation is handed over.
        Reply::call("get_order", json!({"id": 1, "fails": true})),
        Reply::call("get_order", order(1)),
        Reply::call("identify", json!({})),
        Reply::call("cancel_order", order(1)),
        Reply::call("get_order", order(2)),
        Reply::call("cancel_order", order(2)),
        Reply::call("cancel_order", order(2)),
        Reply::call("identify", json!({})),
    ]
}

/// The results of the calls that were not cut off: the text that the model read, and the state of
/// the conversation afterwards.
fn results(entries: &[Entry]) -> Vec<(String, String, Option<Standing>)> {
    let mut results: Vec<(String, String, Option<Standing>)> = Vec::new();
    let mut standing = None;
    for entry in entries {
        match &*entry.record {
            Record::ToolResult { call, result, text, .. } if !is_cut_off(result) => {
                results.push((call.name.clone(), text.clone(), standing.clone()));
            }
            Record::Phase(now) => {
                standing = Some(now.clone());
                if let Some((.., last)) = results.last_mut() {
                    last.clone_from(&standing);
                }
            }
            _ => {}
        }
    }
    results
}

fn is_cut_off(result: &ToolResult) -> bool {
    result.error.starts_with("interrupted") || result.error.starts_with("not run: ")
}

/// Resumes a trace whose last records were lost, until all is done.
fn resumed(fixture: &Fixture, path: &Path) -> (Vec<Entry>, Vec<Ledger>) {
    let mut resumed = resume(path, fixture.work(), None).unwrap();
    let (scope, conversation) = resumed.take("clerk");
    let done = results(&trace::read(path).unwrap()).len();
    let model = Scripted::new(work().into_iter().skip(done).chain([Reply::text("Done.")]));
    let source = Single(&model);
    let mut session = Session::new(&source, &fixture.sandbox);
    session.trace = resumed.trace;
    let npc = fixture.team.npc(None).unwrap();
    let mut agent = Agent::resume(&session, &fixture.team, npc, &scope, conversation.records).unwrap();
    agent.run("go on").unwrap();
    let entries = session.trace.entries();
    let ledgers = trace::ledgers(entries.iter().map(|entry| &*entry.record));
    (entries, ledgers.into_values().collect())
}

/// Kills the run after each record in turn: a call that was cut off was never made.
#[test]
fn killed_anywhere_it_comes_to_the_same_verdicts_phases_and_ledgers() {
    let (team, directory) = team();
    let fixture = Fixture::with(team);
    let path = directory.path().join("trace.jsonl");
    let begun = |trace: Trace| {
        let model = Scripted::new(work().into_iter().chain([Reply::text("Done.")]));
        let source = Single(&model);
        let mut session = Session::new(&source, &fixture.sandbox);
        session.trace = trace;
        let npc = fixture.team.npc(None).unwrap();
        Agent::new(&session, &fixture.team, npc, None).unwrap().run("go").unwrap();
        session.trace.entries()
    };
    let entries = begun(Trace::create(&path).unwrap());
    let text = std::fs::read_to_string(&path).unwrap();
    let expected = results(&entries);
    let ledgers = trace::ledgers(entries.iter().map(|entry| &*entry.record));
    let ledgers: Vec<Ledger> = ledgers.into_values().collect();
    assert_eq!(expected.len(), work().len());
    let blocked = expected.iter().filter(|(_, text, _)| text.contains("\"blocked\":true")).count();
    assert_eq!(blocked, 2, "{expected:?}");
    let (mut cut_off, mut unlearnt) = (0, 0);
    for (at, entry) in entries.iter().enumerate().skip(1) {
        let lines: Vec<&str> = text.lines().take(at + 1).collect();
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let (again, known) = resumed(&fixture, &path);
        cut_off += again
            .iter()
            .filter(|entry| matches!(&*entry.record, Record::ToolResult { result, .. } if result.interrupted.is_some()))
            .count();
        // Its facts are discarded, so it has to be read again.
        if matches!(&*entry.record, Record::Ledger { .. }) {
            unlearnt += 1;
            let stale = again.iter().skip(at + 1).find_map(|entry| match &*entry.record {
                Record::Ledger { changes, .. } => {
                    Some(changes.iter().all(|change| matches!(change, Change::Stale { .. })))
                }
                _ => None,
            });
            assert_eq!(stale, Some(true), "killed behind record {at}");
            continue;
        }
        assert_eq!(results(&again), expected, "killed behind record {at}: {:?}", entry.record);
        assert_eq!(known, ledgers, "killed behind record {at}");
    }
    assert!(cut_off >= work().len() && unlearnt >= 4, "{cut_off} {unlearnt}");
}
