use serde_json::json;

use super::*;
use crate::model::{Reply, Scripted, Single};
use crate::replay::{self, Replay};
use crate::run::{Agent, Mocks, Session};
use crate::testing::Fixture;
use crate::trace::{self, Entry};
use crate::types::Verdict;

const GATE: &str = r#"
observe:
  get_order: {path: "orders.{{ args.id }}", parse: json, types: {status: string}}
writes:
  cancel_order: {stale: "orders.{{ args.id }}"}
rules:
  cancel_order:
    need: "orders[args.id].status == 'pending'"
    reason: "the order is {{ orders[args.id].status }}; that requires a manager's approval"
    fetch: "get_order(id={{ args.id }})"
"#;
const GET: &str = "description: Read an order.\ninputs: [id]\neffect: read\n\
    steps: [{engine: bash, code: 'echo \"{\\\"status\\\": \\\"$([ \"$id\" = 1 ] && echo shipped || echo pending)\\\"}\"'}]\n";
const CANCEL: &str =
    "description: Cancel an order.\ninputs: [id]\nsteps: [{engine: bash, code: 'echo cancelled'}]\n";

/// A team with a gate for its clerk.
fn shop() -> (Team, tempfile::TempDir) {
    shop_with("")
}

/// As [`shop`], with `more` in the clerk's file.
fn shop_with(more: &str) -> (Team, tempfile::TempDir) {
    let clerk = format!(
        "name: clerk\nprimary_directive: Help.\njinxes: [get_order, cancel_order]\ngate: shop\n{more}"
    );
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("jinxes")).unwrap();
    for (path, text) in [
        ("team.ctx", "name: shop\nforenpc: clerk\n"),
        ("clerk.npc", &clerk),
        ("shop.gate", GATE),
        ("jinxes/get_order.jinx", GET),
        ("jinxes/cancel_order.jinx", CANCEL),
    ] {
        std::fs::write(dir.path().join(path), text).unwrap();
    }
    let team = Team::load(dir.path()).unwrap();
    assert_eq!(team.diagnostics, []);
    (team, dir)
}

fn call(tool: &str, id: &str) -> Reply {
    Reply::call(tool, json!({"id": id}))
}

/// The results that the model read, and the trace.
fn played(fixture: &Fixture, replies: Vec<Reply>) -> (Vec<String>, Vec<Entry>) {
    let model = Scripted::new(replies);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    agent.run("cancel it").unwrap();
    let request = trace::request(agent.records());
    let read = request.messages.into_iter().filter(|message| message.role == alara_engine::Role::Tool);
    (read.map(|message| message.content).collect(), session.trace.entries())
}

/// The example of the manual: the order has shipped, so it is read, not cancelled, and handed over.
#[test]
fn the_stock_shop_cancels_nothing_that_was_shipped() {
    let fixture = Fixture::with(Team::stock("shop").unwrap());
    let orders = r#"{"7": {"status": "shipped", "total": 59.9}}"#;
    std::fs::write(fixture.work().join("orders.json"), orders).unwrap();
    let (read, entries) = played(
        &fixture,
        vec![
            call("get_order", "8"),
            call("get_order", "7"),
            Reply::call("cancel_order", json!({"id": "7", "refund": 59.9})),
            Reply::call("escalate", json!({"id": "7", "summary": "wants to cancel"})),
            Reply::text("It was shipped; a manager looks at it."),
        ],
    );
    let text = read.iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(
        text,
        [
            r#"{"ok":false,"exit":1,"error":"there is no order 8: ask for the right number"}"#,
            "{\"ok\":true,\"output\":\"{\\\"status\\\":\\\"shipped\\\",\\\"total\\\":59.9}\"}\n\n\
             <ledger>\norders.7: {\"status\":\"shipped\",\"total\":59.9}\n</ledger>",
            r#"{"ok":false,"blocked":true,"rule":"cancel_order","reason":"the order is shipped; that requires a manager's approval","facts":{"orders.7.status":"shipped"},"unknown":[]}"#,
            r#"{"ok":true,"output":"handed over"}"#,
        ]
    );
    let told: Vec<serde_json::Value> = entries
        .iter()
        .filter(|entry| matches!(*entry.record, Record::Permission { .. } | Record::Ledger { .. }))
        .map(|entry| serde_json::to_value(&*entry.record).unwrap())
        .collect();
    let gate = "teams/shop/shop.gate";
    let verdict = |jinx: &str, verdict: &str, by: &str| json!({"record": "permission", "jinx": jinx, "verdict": verdict, "by": by});
    let value = json!({"status": "shipped", "total": 59.9});
    assert_eq!(
        told,
        [
            json!({"record": "ledger", "gate": gate, "changes": [{"change": "known", "path": ["orders", "7"], "value": value}]}),
            verdict("cancel_order", "deny", &format!("the rule `cancel_order` of {gate}")),
            verdict("escalate", "allow", gate),
        ]
    );
    assert_eq!(std::fs::read_to_string(fixture.work().join("orders.json")).unwrap(), orders);
    let escalations = std::fs::read_to_string(fixture.work().join("escalations.jsonl")).unwrap();
    assert_eq!(escalations, "{\"id\": \"7\", \"summary\": \"wants to cancel\"}\n");
}

#[test]
fn calls_are_held_against_what_was_read() {
    let (team, _dir) = shop();
    let fixture = Fixture::with(team);
    let (read, entries) = played(
        &fixture,
        vec![
            call("cancel_order", "1"),
            call("get_order", "1"),
            call("cancel_order", "1"),
            call("get_order", "2"),
            call("cancel_order", "2"),
            call("cancel_order", "2"),
            Reply::text("done"),
        ],
    );
    let unread = |id: &str, state: &str| {
        format!(
            r#"{{"ok":false,"blocked":true,"rule":"cancel_order","reason":"`orders.{id}.status` {state}: call get_order(id={id}) first","facts":{{}},"unknown":["orders.{id}.status"],"fetch":"get_order(id={id})"}}"#
        )
    };
    let text = read.iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(
        text,
        [
            unread("1", "is not known yet").as_str(),
            concat!(
                r#"{"ok":true,"output":"{\"status\": \"shipped\"}"}"#,
                "\n\n<ledger>\norders.1: {\"status\":\"shipped\"}\n</ledger>"
            ),
            r#"{"ok":false,"blocked":true,"rule":"cancel_order","reason":"the order is shipped; that requires a manager's approval","facts":{"orders.1.status":"shipped"},"unknown":[]}"#,
            concat!(
                r#"{"ok":true,"output":"{\"status\": \"pending\"}"}"#,
                "\n\n<ledger>\norders.2: {\"status\":\"pending\"}\n</ledger>"
            ),
            concat!(
                r#"{"ok":true,"output":"cancelled"}"#,
                "\n\n<ledger>\norders.2: may have changed since it was read\n</ledger>"
            ),
            unread("2", "is not known, it may have changed since it was read").as_str(),
        ]
    );
    let verdicts: Vec<Verdict> = entries
        .iter()
        .filter_map(|entry| match &*entry.record {
            Record::Permission { verdict, .. } => Some(*verdict),
            _ => None,
        })
        .collect();
    assert_eq!(verdicts, [Verdict::Deny, Verdict::Deny, Verdict::Allow, Verdict::Deny]);
    // The records and the session agree.
    let ledgers = trace::ledgers(entries.iter().map(|entry| &*entry.record));
    let ledger = ledgers.values().next().unwrap().value();
    let expected = json!({
        "orders": {"1": {"status": "shipped"}, "2": {"status": "pending"}}, "stale": ["orders.2"],
    });
    assert_eq!((ledgers.len(), ledger), (1, expected));
}

#[test]
fn a_replay_holds_calls_against_gates_again() {
    let (team, _dir) = shop();
    let fixture = Fixture::with(team.clone());
    let calls = [
        call("get_order", "1"),
        call("cancel_order", "1"),
        call("get_order", "2"),
        call("cancel_order", "2"),
    ];
    let (_, entries) = played(&fixture, calls.into_iter().chain([Reply::text("done")]).collect());
    for _ in 0..3 {
        let fixture = Fixture::with(team.clone());
        let model = Replay::new(&entries);
        let source = Single(&model);
        let mut session = Session::new(&source, &fixture.sandbox);
        session.mocks = Mocks::new(&entries);
        replay::run(&session, &fixture.team, &entries).unwrap();
        let compared = entries.iter().filter(|entry| replay::is_compared(entry)).count();
        assert_eq!(replay::difference(&entries, &session.trace.entries()), (compared, None));
    }
}

#[test]
fn a_ledger_is_hidden_where_the_npc_says_so() {
    let (team, _dir) = shop_with("show_ledger: false\n");
    let fixture = Fixture::with(team);
    let (read, _) = played(&fixture, vec![call("get_order", "1"), Reply::text("done")]);
    assert_eq!(read, [r#"{"ok":true,"output":"{\"status\": \"shipped\"}"}"#]);
}

const PHASES: &str = r#"
phases:
  start: look
  facts: {open: "orders.2.status == 'pending'"}
  look: {tools: [get_order], next: [[cancel, open]]}
  cancel: {tools: [cancel_order], expect: call, gate: [look, open], next: [[look, "ok('cancel_order')"]]}
"#;

#[test]
fn phases_follow_what_the_gates_know() {
    let (team, _dir) = shop_with(PHASES);
    let fixture = Fixture::with(team.clone());
    let calls = [
        call("cancel_order", "2"),
        call("get_order", "1"),
        call("get_order", "2"),
        call("cancel_order", "2"),
        call("cancel_order", "2"),
        Reply::text("done"),
    ];
    let (read, entries) = played(&fixture, calls.into());
    let phases = |entries: &[Entry]| -> Vec<String> {
        let standing = entries.iter().filter_map(|entry| match &*entry.record {
            Record::Phase(standing) => Some(format!("{} {:?}", standing.phase, standing.facts)),
            _ => None,
        });
        standing.collect()
    };
    assert_eq!(phases(&entries), ["look []", "cancel [\"open\"]", "look []"], "{read:#?}");
    for (at, refused) in [(0, true), (1, false), (2, false), (3, false), (4, true)] {
        assert_eq!(read[at].contains("is not permitted in the phase `look`"), refused, "{at}: {}", read[at]);
    }
}

/// A conversation that ended in the middle of a call resumes with its earlier knowledge, except for
/// what that call may have changed.
#[test]
fn a_session_that_was_killed_knows_what_it_knew() {
    let (team, dir) = shop_with("");
    let fixture = Fixture::with(team);
    let calls = [call("get_order", "1"), call("get_order", "2"), call("cancel_order", "2"), Reply::text("x")];
    let (_, entries) = played(&fixture, calls.into());
    let path = dir.path().join("trace.jsonl");
    let written = trace::Trace::create(&path).unwrap();
    let cancel = entries.iter().position(|entry| match &*entry.record {
        Record::ToolCall { call } => call.name == "cancel_order",
        _ => false,
    });
    for entry in &entries[..=cancel.unwrap()] {
        written.push(&entry.scope, (*entry.record).clone()).unwrap();
    }
    drop(written);
    let mut resumed = crate::resume::resume(&path, fixture.work(), None).unwrap();
    let (scope, conversation) = resumed.take("clerk");
    let model = Scripted::new([call("cancel_order", "2"), call("cancel_order", "1"), Reply::text("x")]);
    let source = Single(&model);
    let mut session = Session::new(&source, &fixture.sandbox);
    session.trace = resumed.trace;
    let npc = fixture.team.npc(None).unwrap();
    let mut agent = Agent::resume(&session, &fixture.team, npc, &scope, conversation.records).unwrap();
    agent.run("go on").unwrap();
    let blocked: Vec<String> = agent
        .records()
        .filter_map(|record| match record {
            Record::ToolResult { result, .. } => result.blocked.as_ref().map(|why| why.reason.clone()),
            _ => None,
        })
        .collect();
    let stale =
        "`orders.2.status` is not known, it may have changed since it was read: call get_order(id=2) first";
    assert_eq!(blocked, [stale, "the order is shipped; that requires a manager's approval"]);
}
