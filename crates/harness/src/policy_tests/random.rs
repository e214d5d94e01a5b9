//! A model that tries random calls never gets a forbidden one through.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::rules::{Call, Rules};
use super::{Seen, seen, team};
use crate::ledger::Found;
use crate::model::{Reply, Scripted, Single};
use crate::run::{Agent, Session};
use crate::testing::Fixture;
use crate::trace::{self, Entry, Record};

/// How many conversations to hold.
const SEQUENCES: u64 = 10_000;
/// How many calls and answers each has.
const STEPS: usize = 6;
/// How often a phase and a state of the ledger must occur before every tool must have been tried in
/// them.
const OFTEN: usize = 100;
/// All that a model may try; the last is no tool at all.
pub(super) const TRIED: [&str; 8] = [
    "identify",
    "get_order",
    "cancel_order",
    "run_tool",
    "escalate",
    "get_secret",
    "plan_tasks",
    "delete_all",
];

/// Pseudorandom numbers, the same in each run.
pub(super) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A step of a conversation: a turn with calls, or without one.
type Turn = Vec<Call>;

fn call(random: &mut Random, rules: &Rules) -> Call {
    // Half of them are permitted by the phase, otherwise nothing would ever happen.
    let permitted: Vec<&str> = TRIED.into_iter().filter(|tool| rules.permits(tool)).collect();
    let from: &[&str] =
        if random.below(2) == 0 && !permitted.is_empty() { permitted.as_slice() } else { &TRIED };
    let mut tasks = vec!["the first", "the second", "another"];
    while random.below(3) > 0 && !tasks.is_empty() {
        tasks.remove(random.below(tasks.len()));
    }
    if random.below(2) == 0 {
        tasks.reverse();
    }
    Call {
        tool: random.pick(from).to_owned(),
        id: 1 + i64::from(random.below(4) == 0),
        inner: random.pick(&["", "cancel_order", "cancel_order", "get_order", "escalate"]).to_owned(),
        tasks,
        fails: random.below(5) == 0,
        name: random.pick(&["ann", "ann", "ann", "bob"]),
        status: random.pick(&["pending", "pending", "shipped"]),
        total: random.pick(&[Some(10), Some(10), Some(10), Some(500), None]),
    }
}

fn reply(turn: &Turn, number: &mut usize) -> Reply {
    let mut reply = Reply::text(if turn.is_empty() { "Well." } else { "" });
    for Call { tool, id, inner, tasks, fails, name, status, total } in turn {
        let arguments = match tool.as_str() {
            "identify" => json!({"name": name, "fails": fails}),
            "get_order" => json!({
                "id": id, "status": status, "total": total.unwrap_or(1), "owner": name, "odd": total.is_none(), "fails": fails,
            }),
            "cancel_order" => json!({"id": id, "fails": fails}),
            "run_tool" if inner.is_empty() => {
                json!({"tool": "cancel_order", "arguments": "{", "fails": fails})
            }
            "run_tool" => {
                json!({"tool": inner, "arguments": json!({"id": id}).to_string(), "fails": fails})
            }
            "plan_tasks" => json!({"tasks": tasks}),
            _ => json!({"fails": fails}),
        };
        let mut calls = Reply::call(tool, arguments).calls;
        *number += 1;
        calls[0].id = format!("call_{number}");
        reply.calls.append(&mut calls);
    }
    reply
}

/// A conversation, the expected verdicts, and the final state.
pub(super) struct Sequence {
    turns: Vec<Turn>,
    expected: Vec<Seen>,
    rules: Rules,
    /// Phase, state of the order, and tool of each call.
    tried: Vec<(&'static str, String, String)>,
}

impl Sequence {
    pub fn new(seed: u64, steps: usize) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut rules = Rules::new();
        let (mut turns, mut expected, mut tried) = (Vec::<Turn>::new(), Vec::new(), Vec::new());
        rules.user();
        while expected.len() < steps {
            // Mostly where a text is due.
            let answers = random.below(if rules.phase == "tell" { 2 } else { 12 }) == 0;
            if answers {
                turns.push(Turn::new());
                let mut seen = rules.answer();
                rules.user();
                rules.phase.clone_into(&mut seen.phase);
                expected.push(seen);
                continue;
            }
            let mut turn = Turn::new();
            for _ in 0..1 + random.below(2) {
                let call = call(&mut random, &rules);
                tried.push((rules.phase, rules.state(call.id), call.tool.clone()));
                expected.push(rules.call(&call));
                turn.push(call);
            }
            turns.push(turn);
        }
        turns.push(Turn::new());
        expected.push(rules.answer());
        Sequence { turns, expected, rules, tried }
    }

    /// Holds the conversation; returns its trace.
    pub fn held(&self, fixture: &Fixture) -> Vec<Entry> {
        let mut number = 0;
        let model = Scripted::new(self.turns.iter().map(|turn| reply(turn, &mut number)));
        let source = Single(&model);
        let session = Session::new(&source, &fixture.sandbox);
        let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
        for _ in self.turns.iter().filter(|turn| turn.is_empty()) {
            agent.run("go on").unwrap();
        }
        session.trace.entries()
    }

    /// Compares a trace of it with the expected verdicts.
    pub fn check(&self, entries: &[Entry]) {
        assert_eq!(seen(entries), self.expected);
        let records = entries.iter().map(|entry| &*entry.record);
        let mut left = records.clone().filter_map(|record| match record {
            Record::Phase(standing) => Some(standing.pending.clone()),
            _ => None,
        });
        assert_eq!(left.next_back().unwrap(), self.rules.left);
        let ledgers = trace::ledgers(records);
        for id in [1, 2] {
            let path = ["orders".to_owned(), id.to_string(), "status".to_owned()];
            let known = match ledgers.values().next().map_or(Found::Unknown, |ledger| ledger.find(&path)) {
                Found::Known(status) => status.as_str().unwrap(),
                Found::Unknown => "unknown",
                Found::Stale => "stale",
            };
            assert_eq!(known, self.rules.state(id), "order {id}");
        }
    }
}

/// Every call is tried in every phase and in every state of the ledger.
/// The calls that the agent loop permits, the rules by which it refuses, and the phases afterwards
/// match the reference rules, which are written by hand.
#[test]
fn no_call_gets_through_that_the_rules_forbid() {
    let (team, _directory) = team();
    let half = &|from: u64| {
        let fixture = Fixture::with(team.clone());
        let mut tried = BTreeMap::<(&str, String), BTreeMap<String, usize>>::new();
        let mut calls = [0usize; 2];
        for seed in (from..SEQUENCES).step_by(2) {
            let sequence = Sequence::new(seed, STEPS);
            let entries = sequence.held(&fixture);
            sequence.check(&entries);
            for (phase, state, tool) in sequence.tried {
                *tried.entry((phase, state)).or_default().entry(tool).or_default() += 1;
            }
            for seen in sequence.expected.iter().filter(|seen| !seen.tool.is_empty()) {
                calls[usize::from(seen.ran)] += 1;
            }
        }
        (tried, calls)
    };
    let halves = std::thread::scope(|scope| {
        [0, 1].map(|from| scope.spawn(move || half(from))).map(|half| half.join().unwrap())
    });
    let (mut tried, mut calls) = (BTreeMap::<(&str, String), BTreeMap<String, usize>>::new(), [0, 0]);
    for (half, [refused, ran]) in halves {
        for (at, tools) in half {
            let tried = tried.entry(at).or_default();
            tools.into_iter().for_each(|(tool, times)| *tried.entry(tool).or_default() += times);
        }
        calls = [calls[0] + refused, calls[1] + ran];
    }
    println!("{calls:?} calls did not run and ran, in {} phases and states", tried.len());
    let all: BTreeSet<&str> = TRIED.into();
    let often = tried.iter().filter(|(_, tools)| tools.values().sum::<usize>() >= OFTEN);
    for (at, tools) in often.clone() {
        assert_eq!(tools.keys().map(String::as_str).collect::<BTreeSet<&str>>(), all, "{at:?}");
    }
    assert!(often.count() * 2 > tried.len(), "{tried:?}");
    let phases: BTreeSet<&str> = tried.keys().map(|(phase, _)| *phase).collect();
    let states: BTreeSet<&str> = tried.keys().map(|(_, state)| state.as_str()).collect();
    assert_eq!(phases, ["handover", "plan", "tell", "triage", "work"].into());
    assert_eq!(states, ["cancelled", "pending", "shipped", "stale", "unknown"].into());
    assert!(calls[1] > 10_000, "{calls:?}");
}
