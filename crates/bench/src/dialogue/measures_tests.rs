use std::collections::BTreeMap;
use std::time::Duration;

use alara_engine::{Finish, Message, ToolCall, Usage};
use alara_harness::types::ToolResult;
use serde_json::json;

use super::super::calls::tests::{blocked, call, entry, map};
use super::super::{Keys, User};
use super::*;

const PHASE: &str = "the phase `verify`";

fn action(name: &str, arguments: Value, required: bool, by: Side) -> Action {
    Action { name: name.into(), arguments: map(arguments), required, by }
}

fn dialogue(actions: Vec<Action>) -> Dialogue {
    let keys = Keys { actions, documents: vec!["fees".into(), "cards".into()], ..Keys::default() };
    let dialogue = Dialogue::new(User::Script(Vec::new()), keys);
    Dialogue { verification: Some("verify".into()), ..dialogue }
}

fn gold() -> Gold {
    let databases = Databases { database: json!({"a": 1}), user: Value::Null };
    Gold { databases, calls: Vec::new() }
}

fn after(database: Value) -> Databases {
    Databases { database, user: Value::Null }
}

/// `get` and `search` only read.
fn writes(name: &str) -> bool {
    !["get", "search", "unlock_tool"].contains(&name)
}

fn turn(scope: &str, tokens: [usize; 3]) -> Entry {
    let [prompt_tokens, cached_tokens, completion_tokens] = tokens;
    let usage = Usage {
        prompt_tokens,
        cached_tokens,
        completion_tokens,
        time_to_first_token: Duration::from_millis(250),
        decode_time: Duration::from_millis(500),
        ..Usage::default()
    };
    let message = Message::assistant("x", Vec::new());
    entry(scope, Record::Assistant { message, finish: Finish::Stop, usage })
}

fn ok() -> ToolResult {
    ToolResult::succeeded("x")
}

fn no() -> ToolResult {
    ToolResult::failed("no")
}

#[test]
fn a_dialogue_as_gold_has_it() {
    let (agent, user) = (Side::Agent, Side::User);
    let dialogue = dialogue(vec![
        action("get", json!({"id": 1}), false, agent),
        action("verify", json!({"id": 1}), true, agent),
        action("call_tool", json!({"tool": "put_1", "arguments": {"n": 2}}), true, agent),
        action("phone", json!({}), true, user),
    ]);
    let entries = [
        vec![turn("", [100, 0, 10])],
        call("", "get", json!({"id": 1}), ok(), ""),
        vec![turn("", [150, 100, 20])],
        call("", "verify", json!({"id": 1.0}), ok(), ""),
        vec![turn("", [200, 150, 30])],
        call("", "call_tool", json!({"tool": "put_1", "arguments": "{\"n\": 2}"}), ok(), ""),
        call("/", "phone", json!({}), ok(), ""),
        // The cost of the user's model isn't the agent's.
        vec![turn("@user", [1000, 0, 1000])],
    ]
    .concat();
    let measures = of(&entries, &dialogue, &gold(), &after(json!({"a": 1.0})), &writes);
    let expected = Measures {
        reward: true,
        database: true,
        user_database: true,
        actions: 3,
        actions_made: 3,
        writes: 2,
        gold_writes: 2,
        writes_matched: 2,
        // The verification itself isn't counted.
        writes_run: 1,
        writes_early: Some(0),
        turns: 3,
        tokens_in: 450,
        tokens_cached: 250,
        tokens_out: 60,
        seconds: 2.25,
        documents: 2,
        ..Measures::default()
    };
    assert_eq!(measures, expected);
    let text = serde_json::to_string(&measures).unwrap();
    assert_eq!(serde_json::from_str::<Measures>(&text).unwrap(), measures);
    // Each of the three conditions of the reward separately.
    let reward =
        |entries: &[Entry], after: &Databases| of(entries, &dialogue, &gold(), after, &writes).reward;
    let right = after(json!({"a": 1}));
    assert!(reward(&entries, &right));
    assert!(!reward(&entries, &after(json!({"a": 2}))));
    assert!(!reward(&entries, &Databases { user: json!({}), ..right.clone() }));
    let without: Vec<Entry> = entries.iter().filter(|entry| entry.scope != "/").cloned().collect();
    assert!(!reward(&without, &right));
}

#[test]
fn writes_before_the_verification_less_those_of_gold() {
    let agent = Side::Agent;
    let actions = vec![
        action("freeze", json!({"card": 1}), true, agent),
        action("verify", json!({}), true, agent),
        action("put", json!({"n": 1}), true, agent),
    ];
    let dialogue = dialogue(actions);
    let entries = [
        // Gold does this early too, but only once.
        call("", "freeze", json!({"card": 1}), ok(), ""),
        call("", "freeze", json!({"card": 1}), ok(), ""),
        // Refused calls didn't happen.
        call("", "put", json!({"n": 1}), blocked(), ""),
        call("", "put", json!({"n": 9}), no(), PHASE),
        // The tool ran, and a failed call may have changed something.
        call("", "put", json!({"n": 1}), no(), ""),
        call("", "get", json!({}), ok(), ""),
        call("", "verify", json!({"x": 1}), no(), ""),
        call("", "verify", json!({}), ok(), ""),
        call("", "put", json!({"n": 1}), ok(), ""),
        call("", "put", json!({"n": 2}), ok(), ""),
    ]
    .concat();
    let found = of(&entries, &dialogue, &gold(), &after(Value::Null), &writes);
    assert_eq!((found.writes_run, found.writes_early, found.writes_early_gold), (5, Some(2), 1));
    assert_eq!((found.writes, found.gold_writes, found.writes_matched), (9, 3, 3));
    assert_eq!((found.blocks_right, found.blocks_wrong), (1, 1));
    assert_eq!((found.actions, found.actions_made, found.reward), (3, 3, false));
    let nobody = Dialogue { verification: None, ..dialogue };
    let found = of(&entries, &nobody, &gold(), &after(Value::Null), &writes);
    assert_eq!((found.writes_early, found.writes_early_gold), (None, 0));
}

#[test]
fn four_failures_in_a_row_are_too_many() {
    let count = |calls: &[(&str, bool)]| {
        let entries: Vec<Entry> = calls
            .iter()
            .flat_map(|(name, fine)| call("", name, json!({}), if *fine { ok() } else { no() }, ""))
            .collect();
        of(&entries, &dialogue(Vec::new()), &gold(), &after(Value::Null), &writes).over_retries
    };
    let four = [("put", false); 4];
    assert_eq!(count(&four), 1);
    assert_eq!(count(&four[1..]), 0);
    assert_eq!(count(&[four, four].concat()), 1, "one row");
    assert_eq!(count(&[&four[..], &[("put", true)], &four].concat()), 2);
    assert_eq!(count(&[&four[..2], &[("get", false)], &four[..2]].concat()), 0);
    assert_eq!(count(&[("put", true); 9]), 0);
}

#[test]
fn documents_are_found_at_a_rank() {
    let hit = |document: &str| json!({"id": format!("{document}#x"), "document": document, "text": "t"});
    let ranks = |results: &[(&str, Value)]| {
        let entries: Vec<Entry> = results
            .iter()
            .flat_map(|(scope, output)| {
                call(scope, "search", json!({}), ToolResult::succeeded(output.clone()), "")
            })
            .collect();
        let found = of(&entries, &dialogue(Vec::new()), &gold(), &after(Value::Null), &writes);
        assert_eq!(found.documents, 2);
        [1, 2, 3].map(|k| found.found_within(k)).into_iter().chain(found.ranks).collect::<Vec<u64>>()
    };
    let list = |names: &[&str]| Value::Array(names.iter().map(|name| hit(name)).collect());
    assert_eq!(ranks(&[]), [0, 0, 0]);
    assert_eq!(ranks(&[("", list(&["other", "fees", "cards"]))]), [0, 1, 2, 2, 3]);
    // The best of several searches; each passage of a document takes a rank.
    assert_eq!(
        ranks(&[("", list(&["x", "x", "fees"])), ("", list(&["fees", "fees", "cards"]))]),
        [1, 1, 2, 1, 3]
    );
    // A jinx may return the result as text or inside another value.
    let text = list(&["fees"]).to_string();
    assert_eq!(
        ranks(&[("", text.into()), ("call_1/work", json!({"found": list(&["cards"])}))]),
        [2, 2, 2, 1, 1]
    );
    // Documents found by the user's NPC don't count as the agent's.
    assert_eq!(ranks(&[("@user", list(&["fees"])), ("", json!("nothing found"))]), [0, 0, 0]);
}

/// Pseudo-random numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// The same measures computed differently: from the lines of the trace, by counting texts.
fn from_lines(lines: &[Value], gold: &[(String, bool)], right: bool) -> BTreeMap<&'static str, u64> {
    let tally = |texts: &[&String]| {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        texts.iter().for_each(|text| *counts.entry((*text).clone()).or_default() += 1);
        counts
    };
    // Counts the matching texts of two lists.
    let common = |one: &[&String], other: &[&String]| -> u64 {
        let other = tally(other);
        tally(one).iter().map(|(text, count)| *count.min(other.get(text).unwrap_or(&0))).sum()
    };
    let name = |text: &str| text.split(' ').next().unwrap().to_owned();
    let changes = |text: &str| matches!(&*name(text), "put" | "pay" | "verify");
    // Each result, with whether the call was denied or blocked before.
    let (mut denied, mut by_phase) = (false, false);
    let mut results: Vec<(String, bool, bool, bool)> = Vec::new();
    for line in lines {
        match line["record"].as_str().unwrap() {
            "tool_call" => (denied, by_phase) = (false, false),
            "permission" => {
                denied = true;
                by_phase = line["by"].as_str().unwrap().starts_with("the phase");
            }
            "tool_result" => {
                let text =
                    format!("{} {}", line["call"]["name"].as_str().unwrap(), line["call"]["arguments"]);
                let blocked = by_phase || !line["result"]["blocked"].is_null();
                results.push((text, line["result"]["ok"] == true, !blocked && !denied, blocked));
            }
            _ => {}
        }
    }
    let gold_texts: Vec<&String> = gold.iter().map(|(text, _)| text).collect();
    let required: Vec<&String> =
        gold.iter().filter(|(_, required)| *required).map(|(text, _)| text).collect();
    let succeeded: Vec<&String> = results.iter().filter(|one| one.1).map(|one| &one.0).collect();
    let made = common(&required, &succeeded);
    let issued: Vec<&String> = results.iter().map(|one| &one.0).filter(|text| changes(text)).collect();
    let gold_writes: Vec<&String> = gold_texts.iter().copied().filter(|text| changes(text)).collect();
    let others = |text: &&String| changes(text) && name(text) != "verify";
    let verified = results.iter().position(|one| one.1 && name(&one.0) == "verify").unwrap_or(results.len());
    let early: Vec<&String> =
        results[..verified].iter().filter(|one| one.2).map(|one| &one.0).filter(others).collect();
    let gold_verified = gold_texts.iter().position(|text| name(text) == "verify").unwrap_or(gold_texts.len());
    let gold_early: Vec<&String> = gold_texts[..gold_verified].iter().copied().filter(others).collect();
    let sanctioned = common(&early, &gold_early);
    let blocked: Vec<&String> =
        results.iter().filter(|one| one.3).map(|one| &one.0).filter(|t| changes(t)).collect();
    let wrong = blocked.iter().filter(|text| gold_writes.contains(text)).count() as u64;
    // Successive failures, written as letters.
    let mut rows = String::new();
    for (at, one) in results.iter().enumerate() {
        let same = at > 0 && name(&results[at - 1].0) == name(&one.0);
        rows.push_str(if one.1 {
            "."
        } else if same {
            "x"
        } else {
            ".x"
        });
    }
    let over = rows.split('.').filter(|row| row.len() >= 4).count() as u64;
    BTreeMap::from([
        ("reward", u64::from(right && made == required.len() as u64)),
        ("actions", required.len() as u64),
        ("actions_made", made),
        ("writes", issued.len() as u64),
        ("gold_writes", gold_writes.len() as u64),
        ("writes_matched", common(&issued, &gold_writes)),
        ("writes_run", results.iter().filter(|one| one.2 && others(&&one.0)).count() as u64),
        ("writes_early", early.len() as u64 - sanctioned),
        ("writes_early_gold", sanctioned),
        ("over_retries", over),
        ("blocks_right", blocked.len() as u64 - wrong),
        ("blocks_wrong", wrong),
        ("turns", lines.iter().filter(|line| line["record"] == "assistant").count() as u64),
        ("tokens_in", lines.iter().filter_map(|line| line["usage"]["prompt_tokens"].as_u64()).sum()),
        ("tokens_out", lines.iter().filter_map(|line| line["usage"]["completion_tokens"].as_u64()).sum()),
    ])
}

#[test]
fn another_computation_over_the_lines_of_traces_finds_the_same() {
    let mut dice = Dice(7);
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for _ in 0..2000 {
        let names = ["get", "put", "pay", "verify"];
        let any = |dice: &mut Dice| (names[dice.below(4) as usize], json!({"n": dice.below(2)}));
        let actions: Vec<Action> = (0..dice.below(5))
            .map(|_| {
                let (name, arguments) = any(&mut dice);
                action(name, arguments, dice.below(3) > 0, Side::Agent)
            })
            .collect();
        let mut entries = Vec::new();
        for _ in 0..dice.below(12) {
            let (name, arguments) = any(&mut dice);
            let times = 1 + dice.below(3) * dice.below(3);
            let (result, by) = match dice.below(6) {
                0 | 1 => (ok(), ""),
                2 | 3 => (no(), ""),
                4 => (blocked(), ""),
                _ => (no(), if dice.below(2) > 0 { PHASE } else { "the NPC's list" }),
            };
            entries.push(turn("", [dice.below(99) as usize, 0, dice.below(9) as usize]));
            for _ in 0..times {
                entries.extend(call("", name, arguments.clone(), result.clone(), by));
            }
        }
        let right = dice.below(2) > 0;
        let database = if right { json!({"a": 1}) } else { json!({}) };
        let dialogue = dialogue(actions);
        let found = of(&entries, &dialogue, &gold(), &after(database), &writes);
        let found = serde_json::to_value(found).unwrap();
        let lines: Vec<Value> = entries.iter().map(|entry| serde_json::to_value(entry).unwrap()).collect();
        let gold: Vec<(String, bool)> = dialogue
            .actions
            .iter()
            .map(|action| (format!("{} {}", action.name, json!(action.arguments)), action.required))
            .collect();
        for (name, expected) in from_lines(&lines, &gold, right) {
            let number = |value: &Value| value.as_u64().or(value.as_bool().map(u64::from));
            assert_eq!(number(&found[name]), Some(expected), "{name}: {lines:#?} {gold:?}");
            *seen.entry(name).or_default() += expected;
        }
    }
    // Make sure that the compared values actually occurred.
    assert!(seen.values().all(|sum| *sum > 20), "{seen:?}");
}

#[test]
fn calls_that_nobody_began_are_issued_but_did_not_run() {
    let result = Record::ToolResult {
        call: ToolCall { id: "1".into(), name: "put".into(), arguments: map(json!({})) },
        result: no(),
        text: String::new(),
        seconds: 1.5,
    };
    let found = of(&[entry("", result)], &dialogue(Vec::new()), &gold(), &after(Value::Null), &writes);
    assert_eq!((found.writes, found.writes_run, found.writes_early, found.seconds), (1, 0, Some(0), 1.5));
}
