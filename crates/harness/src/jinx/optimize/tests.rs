use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use super::*;
use crate::jinx::{Offer, read};
use crate::model::{Scripted, Single};
use crate::run::session::{Caller, Session};
use crate::run::steps::run;
use crate::source::Source;
use crate::testing::Fixture;
use crate::trace::Record;

/// Jinxes to call: `look` reads, `count` computes, `ask` asks a model, `say` emits.
const OTHERS: [(&str, &str); 5] = [
    ("look", "effect: read\ninputs: [x]\nsteps: [{engine: text, text: 'saw {{ x }}'}]"),
    ("count", "effect: none\ninputs: [x]\nsteps: [{return: ['{{ x }}', 1]}]"),
    ("ask", "inputs: [x]\nsteps: [{engine: llm, prompt: '{{ x }}'}]"),
    ("say", "inputs: [x]\nsteps: [{emit: {type: log, content: '{{ x }}'}}]"),
    ("change", "effect: write\ninputs: [x]\nsteps: [{engine: text, text: 'did {{ x }}'}]"),
];

/// The jinx `j` of this text, and the others.
fn jinxes(text: &str) -> Vec<Jinx> {
    let files = std::iter::once(("j", text)).chain(OTHERS);
    let mut said = Vec::new();
    let read = |(name, text): (&str, &str)| {
        let source = Source { path: format!("{name}.jinx").into(), text: text.to_owned() };
        read(&source, &mut said)
    };
    let jinxes = files.filter_map(read).collect();
    assert_eq!(said, [], "{text}");
    jinxes
}

/// The steps of `text` after improvement are those of `expected`, and this is said.
fn check(text: &str, expected: &str, said: &[&str]) {
    let steps = |text: &str| format!("effect: read\ninputs: [q]\nsteps: {text}");
    let mut optimised = jinxes(&steps(text));
    let made: Vec<String> = optimize(&mut optimised).iter().map(ToString::to_string).collect();
    let expected = jinxes(&steps(expected));
    let json = |jinx: &Jinx| serde_json::to_value(&jinx.steps).unwrap();
    assert_eq!(json(&optimised[0]), json(&expected[0]), "{text}");
    assert_eq!(made, said, "{text}");
}

#[test]
fn what_never_runs_is_left_out() {
    check(
        "[{when: false, then: [{return: 1}], else: [{set: {a: 1}}]}, {when: 1 > 2, then: [{return: 2}]}, {return: '{{ a }}'}, {return: 3}, {return: 4}]",
        "[{set: {a: 1}}, {return: '{{ a }}'}]",
        &[
            "j.jinx:3:9: `false` is always false: `else` takes its place",
            "j.jinx:3:68: `1 > 2` is always false: nothing of it is left",
            "j.jinx:3:125: these 2 steps are left out: the step before ends the jinx",
        ],
    );
    let kept = "[{when: q, then: [{return: 1}], else: [{set: {a: 1}}]}, {return: '{{ a }}'}]";
    check(kept, kept, &[]);
    check(
        "[{when: q, then: [{return: 1}], else: [{return: 2}]}, {return: 3}]",
        "[{when: q, then: [{return: 1}], else: [{return: 2}]}]",
        &["j.jinx:3:62: this is left out: the step before ends the jinx"],
    );
    // The loop's result would be another one.
    let list = "[{for: i, in: q, do: [{when: false, then: [{engine: text, text: x}]}]}]";
    check(list, list, &[]);
    // The failure would be passed on, or be caught.
    let caught =
        "[{try: [{engine: look, x: 1}], catch: [{when: false, then: []}], finally: [{set: {a: 1}}]}]";
    check(caught, caught, &[]);
    let passed = "[{try: [{engine: look, x: 1}], finally: [{when: false, then: []}]}]";
    check(passed, passed, &[]);
}

#[test]
fn sets_become_one() {
    check(
        "[{set: {a: 1}}, {set: {b: '{{ a }}', c.d: 2}}, {set: {a: 3}}, {return: '{{ b }}'}]",
        "[{set: {a: 1, b: '{{ a }}', c.d: 2}}, {set: {a: 3}}, {return: '{{ b }}'}]",
        &["j.jinx:3:24: one step with the `set` before it"],
    );
}

#[test]
fn calls_that_were_made_are_not_made_again() {
    check(
        "[{name: a, engine: look, x: '{{ q }}'}, {engine: text, text: x}, {name: b, engine: look, x: '{{ q }}'}]",
        "[{name: a, engine: look, x: '{{ q }}'}, {engine: text, text: x}, {name: b, engine: text, text: '{{ a }}'}]",
        &["j.jinx:3:73: the same call as `a`, so its result is used again"],
    );
    check(
        "[{name: a, engine: count, x: 1}, {name: b, engine: ask, x: 2}, {name: c, engine: count, x: 1}]",
        "[{name: a, engine: count, x: 1}, {name: b, engine: ask, x: 2}, {name: c, engine: text, text: '{{ a }}'}]",
        &["j.jinx:3:71: the same call as `a`, so its result is used again"],
    );
    let same = |text: &str| check(text, text, &[]);
    // Meanwhile the world, a name or the store may have changed; models are asked as often as the
    // file says.
    same("[{name: a, engine: look, x: 1}, {engine: ask, x: 2}, {name: c, engine: look, x: 1}]");
    same("[{name: a, engine: look, x: '{{ q }}'}, {set: {q: 1}}, {name: c, engine: look, x: '{{ q }}'}]");
    same("[{name: a, engine: count, x: 1}, {engine: change, x: 1}, {name: c, engine: count, x: 1}]");
    same("[{name: a, engine: count, x: 1}, {set: {store.y: 1}}, {name: c, engine: count, x: 1}]");
    same("[{name: a, engine: ask, x: 1}, {name: c, engine: ask, x: 1}]");
    same("[{name: a, engine: say, x: 1}, {set: {y: 1}}, {name: c, engine: say, x: 1}]");
    same("[{name: a, engine: change, x: 1}, {name: c, engine: change, x: 1}]");
}

#[test]
fn what_only_reads_runs_side_by_side() {
    let groups = |text: &str, expected: &[&[&str]]| {
        let mut optimised = jinxes(&format!("effect: read\ninputs: [q]\nsteps: {text}"));
        optimize(&mut optimised);
        let names = |step: &Step| match &step.action {
            Action::Together { steps } => {
                Some(steps.iter().map(|step| step.name.clone()).collect::<Vec<_>>())
            }
            _ => None,
        };
        let found: Vec<_> = optimised[0].steps.iter().filter_map(names).collect();
        assert_eq!(found, expected, "{text}");
    };
    groups(
        "[{name: a, engine: bash, code: 'ls {{ q }}'}, {name: b, engine: python, code: print(1)}, {name: c, engine: look, x: '{{ a }}'}, {name: d, engine: count, x: 2}]",
        &[&["a", "b"], &["c", "d"]],
    );
    groups("[{name: a, engine: bash, code: ls}, {name: b, engine: bash, code: echo $a}]", &[]);
    groups("[{name: a, engine: bash, code: ls}, {name: b, engine: bash, code: ./run}]", &[]);
    groups("[{name: a, engine: bash, code: ls}, {name: b, engine: python, code: print(context)}]", &[]);
    groups("[{name: a, engine: bash, code: ls}, {name: b, engine: python, code: 'print(output)'}]", &[]);
    groups("[{name: a, engine: look, x: 1}, {name: b, engine: look, x: '{{ output }}'}]", &[]);
    groups("[{name: a, engine: look, x: 1}, {name: a, engine: look, x: 2}]", &[]);
    groups(
        "[{name: a, engine: look, x: 1}, {name: b, engine: change, x: 2}, {name: c, engine: look, x: 3}]",
        &[],
    );
    groups("[{name: a, engine: ask, x: 1}, {name: b, engine: ask, x: 2}]", &[]);
    let mut writes = jinxes("steps: [{engine: bash, code: ls}, {engine: bash, code: ls}]");
    assert_eq!(optimize(&mut writes), []);
    let mut said = jinxes("steps: [{engine: look, x: 1}, {engine: look, x: 2}]");
    let said: Vec<String> = optimize(&mut said).iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        ["j.jinx:1:9: `step_1`, `step_2` run side by side: they only read, and none needs another's result"]
    );
}

/// A value that uses some of the names `a`, `b`, `c`.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(1)),
        Just(json!("x")),
        "[abc]".prop_map(|name| json!(format!("{{{{ {name} }}}}"))),
        "[abc]".prop_map(|name| json!([format!("-{{{{ {name} | default('none') }}}}-\n")])),
        Just(json!("{{ output }}")),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Value>> {
    let name = || prop_oneof![Just("a"), Just("b"), Just("c")];
    let called = prop_oneof![Just("look"), Just("count"), Just("say"), Just("change")];
    let leaf = prop_oneof![
        (name(), value()).prop_map(|(name, value)| json!({"name": name, "engine": "text", "text": value})),
        (name(), value()).prop_map(|(name, value)| json!({"set": {name: value}})),
        (name(), called, 0..3)
            .prop_map(|(name, jinx, x)| json!({"name": name, "engine": jinx, "with": {"x": x}})),
        (name(), value()).prop_map(|(name, x)| json!({"name": name, "engine": "look", "with": {"x": x}})),
        value().prop_map(|value| json!({"emit": {"type": "log", "content": value}})),
        value().prop_map(|value| json!({"return": value})),
    ];
    let step = leaf.prop_recursive(3, 24, 4, |inner| {
        let block = prop::collection::vec(inner, 0..4);
        let condition = prop_oneof![Just("true"), Just("1 > 2"), Just("a is defined"), Just("b == 1")];
        prop_oneof![
            (condition, block.clone(), block.clone())
                .prop_map(|(when, then, other)| json!({"when": when, "then": then, "else": other})),
            (prop::option::of(Just("c")), block.clone()).prop_map(|(name, block)| match name {
                Some(name) => json!({"name": name, "for": "b", "in": "[1, 2]", "do": block}),
                None => json!({"for": "b", "in": "[1, 2]", "do": block}),
            }),
            (block.clone(), block.clone(), block).prop_map(
                |(tried, catch, finally)| json!({"try": tried, "catch": catch, "finally": finally})
            ),
        ]
    });
    prop::collection::vec(step, 1..7)
}

#[test]
fn improved_jinxes_do_the_same() {
    let fixture = Fixture::new();
    let course = |jinxes: &[Jinx]| {
        let mut team = fixture.team.clone();
        team.jinxes = jinxes.to_vec();
        let model = Scripted::default();
        let source = Single(&model);
        let session = Session::new(&source, &fixture.sandbox);
        let arguments = jinxes[0].arguments(&Default::default(), &Offer::default()).unwrap();
        let result = run(&team.jinxes[0], arguments, &Caller::person(&session, &team)).unwrap();
        let emitted: Vec<Value> = session
            .trace
            .entries()
            .iter()
            .filter_map(|entry| match &*entry.record {
                Record::Emit { response } => Some(response.clone()),
                _ => None,
            })
            .collect();
        (result.ok, result.output, emitted)
    };
    let improvements = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&steps(), |steps| {
        let before = jinxes(&json!({"effect": "read", "inputs": [{"a": 1}], "steps": steps}).to_string());
        let mut after = before.clone();
        improvements.set(improvements.get() + optimize(&mut after).len());
        prop_assert_eq!(course(&before), course(&after));
        Ok(())
    });
    outcome.unwrap();
    assert!(improvements.get() > 40, "only {} improvements were tried", improvements.get());
}
