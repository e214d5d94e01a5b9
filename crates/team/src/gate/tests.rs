use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::ledger::Change;
use crate::source::Source;
use crate::types::{Diagnostic, Effect, ToolResult};

const SHOP: &str = r#"
observe:
  get_order:
    path: "orders.{{ args.id }}"
    value: result
    parse: json
    types: {status: string, total: number}
  find_user: {path: auth, value: "result.user", types: {id: string}}
writes:
  cancel_order: {stale: "orders.{{ args.id }}"}
  rate_order: {path: "orders.{{ args.id }}.rating", value: "args.stars"}
  say: {stale: []}
wraps:
  call_tool: {tool: name, arguments: arguments}
rules:
  cancel_order:
    need: "orders[args.id].status == 'pending'"
    reason: "the order is {{ orders[args.id].status }}; that requires a manager's approval"
    fetch: "get_order(id={{ args.id }})"
  own:
    tools: cancel_order | rate_*
    need: "orders[args.id].user == auth.id"
    unknown: allow
    reason: "order {{ args.id }} is another user's"
cases:
  - name: what was shipped is not cancelled
    ledger: {orders: {7: {status: shipped}}}
    call: {cancel_order: {id: "7"}}
    verdict: deny
    rule: cancel_order
  - name: what nobody has read is read first
    call: {cancel_order: {id: 7}}
    verdict: deny
    unknown: [orders.7.status]
  - name: what may have changed is read again
    ledger: {orders: {7: {status: pending}}}
    stale: orders.7
    call: {cancel_order: {id: 7}}
    verdict: deny
    unknown: [orders.7.status]
  - name: what waits is cancelled
    ledger: {orders: {7: {status: pending, user: u1}}, auth: {id: u1}}
    call: {call_tool: {name: cancel_order, arguments: '{"id": 7}'}}
    verdict: allow
  - name: another user's is not
    ledger: {orders: {7: {status: pending, user: u1}}, auth: {id: u2}}
    call: {cancel_order: {id: 7}}
    verdict: deny
    rule: own
"#;

fn reading(text: &str) -> (Option<Gate>, Vec<Diagnostic>) {
    let mut diagnostics = Vec::new();
    let gate = read(&Source::new("shop.gate".into(), text.to_owned()), &mut diagnostics);
    (gate, diagnostics)
}

fn gate(text: &str) -> Gate {
    let (gate, diagnostics) = reading(text);
    gate.unwrap_or_else(|| panic!("{diagnostics:?}"))
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other}"),
    }
}

/// The ledger after calls; each with its effect and its output, null for a failure.
fn ledger(gate: &Gate, calls: &[(&str, Effect, Value, Value)]) -> (Ledger, Vec<String>) {
    let (mut ledger, mut wrong) = (Ledger::default(), Vec::new());
    for (tool, effect, arguments, output) in calls {
        let result = match output {
            Value::Null => ToolResult::failed("it failed"),
            output => ToolResult::succeeded(output.clone()),
        };
        let arguments = map(arguments.clone());
        let done = Done { tool, effect: *effect, arguments: &arguments, result: &result };
        for change in gate.changes(&done) {
            if let Change::Wrong { message } = &change {
                wrong.push(message.clone());
            }
            ledger.apply(&change);
        }
    }
    (ledger, wrong)
}

#[test]
fn the_cases_of_a_file_are_tried() {
    for tried in gate(SHOP).try_cases() {
        assert_eq!(tried.wrong, None, "{}", tried.name);
    }
    let check = |case: &str, expected: &str| {
        let text = SHOP.split_once("cases:").unwrap().0;
        let tried = gate(&format!("{text}cases:\n  - {case}\n")).try_cases();
        assert_eq!(tried[0].wrong.as_deref(), Some(expected), "{case}");
    };
    check(
        "{ledger: {orders: {7: {status: shipped}}}, call: {cancel_order: {id: 7}}, verdict: allow}",
        "the call is denied by `cancel_order`: the order is shipped; that requires a manager's approval",
    );
    check(
        "{ledger: {orders: {7: {status: pending}}}, call: {cancel_order: {id: 7}}, verdict: deny}",
        "the call is allowed",
    );
    check(
        "{call: {cancel_order: {id: 7}}, verdict: deny, rule: own}",
        "the call is denied by `cancel_order`, not by `own`: `orders.7.status` is not known yet: call get_order(id=7) first",
    );
    check(
        "{ledger: {ordres: {7: 1}}, call: {cancel_order: {id: 7}}, verdict: deny}",
        "no observation tells `ordres.7`, which the case says is known",
    );
    check(
        "{ledger: {orders: {7: {total: much}}}, call: {cancel_order: {id: 7}}, verdict: deny}",
        "at `orders.7`: `total` is to be of the type number, not \"much\"",
    );
}

#[test]
fn an_order_that_was_shipped_is_not_cancelled() {
    let gate = gate(SHOP);
    let text = json!(r#"{"id": "7", "status": "shipped", "total": 12.5}"#);
    let (ledger, wrong) = ledger(&gate, &[("get_order", Effect::Read, json!({"id": "7"}), text)]);
    assert_eq!(wrong, Vec::<String>::new());
    let blocked = gate.verdict(&ledger, "cancel_order", &map(json!({"id": "7"}))).unwrap();
    assert_eq!(
        ToolResult::blocked(blocked).text(9),
        r#"{"ok":false,"blocked":true,"rule":"cancel_order","reason":"the order is shipped; that requires a manager's approval","facts":{"orders.7.status":"shipped"},"unknown":[]}"#
    );
    let blocked = gate.verdict(&ledger, "cancel_order", &map(json!({"id": "8"}))).unwrap();
    assert_eq!(
        ToolResult::blocked(blocked).text(9),
        r#"{"ok":false,"blocked":true,"rule":"cancel_order","reason":"`orders.8.status` is not known yet: call get_order(id=8) first","facts":{},"unknown":["orders.8.status"],"fetch":"get_order(id=8)"}"#
    );
    assert_eq!(gate.verdict(&ledger, "get_order", &map(json!({"id": "8"}))), None);
}

#[test]
fn only_reads_that_succeed_tell_something() {
    let gate = gate(SHOP);
    let order = || json!({"status": "pending", "total": 1});
    let id = || json!({"id": 7});
    let check = |calls: &[(&str, Effect, Value, Value)], allowed: bool, told: &[&str]| {
        let (ledger, wrong) = ledger(&gate, calls);
        let blocked = gate.verdict(&ledger, "cancel_order", &map(id()));
        assert_eq!(
            (blocked.is_none(), wrong.as_slice()),
            (allowed, told.map_owned().as_slice()),
            "{calls:?}"
        );
    };
    let read = |output| ("get_order", Effect::Read, id(), output);
    check(&[read(order())], true, &[]);
    check(&[read(json!(order().to_string()))], true, &[]);
    check(&[read(Value::Null)], false, &[]);
    // A tool that may write doesn't count as a read, whatever its name.
    check(&[("get_order", Effect::Write, id(), order())], false, &[]);
    check(
        &[read(json!({"status": 3, "total": 1}))],
        false,
        &["of `get_order`: `status` is to be of the type string, not 3"],
    );
    check(
        &[read(json!("no JSON"))],
        false,
        &["of `get_order`: the result is no JSON: expected ident at line 1 column 2"],
    );
    // The earlier fact is not the one that was just read.
    check(
        &[read(order()), read(json!("x"))],
        false,
        &["of `get_order`: the result is no JSON: expected value at line 1 column 1"],
    );
    check(&[read(order()), read(Value::Null)], true, &[]);
    check(&[read(order()), ("cancel_order", Effect::Write, id(), json!("done"))], false, &[]);
    check(&[read(order()), ("cancel_order", Effect::Write, id(), Value::Null)], false, &[]);
    check(&[read(order()), ("cancel_order", Effect::Write, json!({"id": 8}), json!("done"))], true, &[]);
    check(&[read(order()), ("say", Effect::Write, json!({}), json!("hi"))], true, &[]);
    check(
        &[read(order()), ("rate_order", Effect::Write, json!({"id": 7, "stars": 5}), json!("ok"))],
        true,
        &[],
    );
    // Its effects are not declared.
    check(&[read(order()), ("shell", Effect::Write, json!({}), json!(""))], false, &[]);
    check(&[read(order()), ("list", Effect::Read, json!({}), json!(""))], true, &[]);
    let wrapped = json!({"name": "cancel_order", "arguments": {"id": 7}});
    check(&[read(order()), ("call_tool", Effect::Write, wrapped, json!("done"))], false, &[]);
}

trait Owned {
    fn map_owned(&self) -> Vec<String>;
}

impl Owned for [&str] {
    fn map_owned(&self) -> Vec<String> {
        self.iter().map(|text| (*text).to_owned()).collect()
    }
}

#[test]
fn a_blocked_call_changes_nothing() {
    let gate = gate(SHOP);
    let result = ToolResult::blocked(Blocked::default());
    let arguments = map(json!({"id": 7}));
    let done = Done { tool: "shell", effect: Effect::Write, arguments: &arguments, result: &result };
    assert_eq!(gate.changes(&done), []);
}

#[test]
fn wrapped_calls_are_seen() {
    let gate = gate(SHOP);
    let check = |arguments: Value, expected: &str| {
        let blocked = gate.verdict(&Ledger::default(), "call_tool", &map(arguments.clone()));
        assert_eq!(blocked.map(|blocked| blocked.reason).unwrap_or_default(), expected, "{arguments}");
    };
    let unread = "`orders.7.status` is not known yet: call get_order(id=7) first";
    check(json!({"name": "cancel_order", "arguments": {"id": 7}}), unread);
    check(json!({"name": "cancel_order", "arguments": "{\"id\": 7}"}), unread);
    let inner = json!({"name": "cancel_order", "arguments": {"id": 7}});
    check(json!({"name": "call_tool", "arguments": inner}), unread);
    check(json!({"name": "say", "arguments": {}}), "");
    check(json!({"name": "say"}), "");
    check(
        json!({"name": "cancel_order", "arguments": "{"}),
        "the argument `arguments` of `call_tool` is to be a JSON object: the arguments of `cancel_order`",
    );
    check(json!({"name": 3}), "`call_tool` is to name the tool that it calls in its argument `name`");
    let deep =
        (0..9).fold(json!({"name": "say"}), |inner, _| json!({"name": "call_tool", "arguments": inner}));
    check(deep, "`call_tool` calls deeper than 4 calls within each other");
}

#[test]
fn mistakes_in_a_file_are_told_with_place_and_remedy() {
    let check = |text: &str, expected: &[&str]| {
        let (gate, diagnostics) = reading(text);
        let told: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
        assert_eq!((gate, told), (None, expected.map_owned()), "{text}");
    };
    let (none, broken) = reading("rules: [");
    assert!(none.is_none() && broken.len() == 1, "{broken:?}");
    let observe = "observe: {get: {path: 'a.{{ args.id }}', types: {n: number, s: string}}}\n";
    let rule = |rule: &str| format!("{observe}rules:\n  cut: {{{rule}}}\n");
    check(&rule("need: ''"), &["shop.gate:3:15: error: `need` is empty: leave it out, or say what is meant"]);
    check(
        &rule("need: 'true', unknown: ' '"),
        &["shop.gate:3:32: error: `unknown` is empty: leave it out, or say what is meant"],
    );
    check(&rule("need: 'true', tools: '|'"), &["shop.gate:3:3: error: the rule `cut` names no tool"]);
    check(&format!("{observe}rules: {{cut: []}}"), &["shop.gate:2:9: error: `cut` of `rules` says nothing"]);
    check(
        "observe: {}",
        &["shop.gate: error: a gate without `rules` guards nothing: name what must be true before a call"],
    );
    check(
        &rule("need: \"a[args.id].n > 3\", reson: no"),
        &["shop.gate:3:35: error: unknown key `reson`, did you mean `reason`?"],
    );
    check(
        &format!("{}rule: {{}}\n", rule("need: \"true\"")),
        &["shop.gate:4:1: error: unknown key `rule`, did you mean `rules`?"],
    );
    check(
        &rule("reason: no"),
        &["shop.gate:3:3: error: `cut` needs the key `need`: what must be true before the call"],
    );
    check(
        &rule("need: \"b[args.id].n > 3\""),
        &["shop.gate:3:9: error: `need`: nobody observes `b` (known: a, args)"],
    );
    check(
        &rule("need: \"a[args.id].n == 'x'\""),
        &["shop.gate:3:9: error: `need`: `a[args.id].n == 'x'` compares a number with a text"],
    );
    check(
        &rule("need: \"a.n\", unknown: maybe"),
        &["shop.gate:3:31: error: `unknown`: it is `require` or `allow`, not `maybe`"],
    );
    check(
        &rule("need: \"a[args.id].s\""),
        &[
            "shop.gate:3:9: error: `need`: `a[args.id].s` is a text, and no condition: compare it, or ask whether it `is defined`",
        ],
    );
    check(
        &rule("need: \"'1' in a\""),
        &["shop.gate:3:9: error: `need`: `a` as a whole is never known: nobody has read all of it"],
    );
    check(
        &rule("need: \"a[args.id].n = 3\""),
        &["shop.gate:3:15: error: `need`: `=` compares nothing: it is `==`"],
    );
    check(
        "observe: {get: {path: a, parse: xml}}\nrules: {cut: {need: \"a == 1\"}}\n",
        &["shop.gate:1:26: error: a text can't be read as `xml` (known: json, records, regex)"],
    );
    check(
        "observe: {get: {path: a, types: nmber}}\nrules: {cut: {need: \"a == 1\"}}\n",
        &[
            "shop.gate:1:33: error: there is no type \"nmber\", did you mean `number`? (known: string, integer, number, boolean, array, object)",
        ],
    );
    check(
        "rules: {cut: {need: \"true\"}, cut: {need: \"false\"}}\n",
        &["shop.gate:1:30: error: the key `cut` occurs twice; the last one counts"],
    );
    check(
        "observe: {get: {path: 'a.{{ b.id }}'}}\nrules: {cut: {need: \"a[1] == 1\"}}\n",
        &[
            "shop.gate:1:23: error: `path`: `b.id` is not known here: a result is read by itself, of `args` and `result`",
        ],
    );
}

#[test]
fn tools_that_there_are_not_are_told() {
    let jinx = |name: &str, effect, inputs: &[(&str, Kind)]| crate::jinx::Jinx {
        name: name.to_owned(),
        effect,
        inputs: inputs
            .iter()
            .map(|(name, kind)| crate::jinx::Input {
                name: (*name).to_owned(),
                kind: *kind,
                description: String::new(),
                default: None,
                choices: crate::jinx::Choices::Any,
            })
            .collect(),
        ..crate::jinx::Jinx::default()
    };
    let jinxes = [
        jinx("get", Effect::Read, &[("id", Kind::String)]),
        jinx("cut", Effect::Write, &[("id", Kind::String), ("sum", Kind::Number)]),
        jinx("put", Effect::Write, &[]),
    ];
    let check = |text: &str, expected: &[&str]| {
        let source = Source::new("shop.gate".into(), text.to_owned());
        let mut diagnostics = Vec::new();
        gate(text).check(
            &source,
            &Tools { jinxes: &jinxes, others: &BTreeSet::new(), all: true },
            &mut diagnostics,
        );
        let told: Vec<String> = diagnostics.iter().map(|diagnostic| diagnostic.message.clone()).collect();
        assert_eq!(told, expected.map_owned(), "{text}");
    };
    let good = "observe: {get: {path: 'a.{{ args.id }}', types: {n: number}}}\n";
    check(&format!("{good}rules: {{cut: {{need: \"a[args.id].n >= args.sum\"}}}}"), &[]);
    check(
        &format!("{good}rules: {{cutt: {{need: \"a[args.id].n >= args.sum\"}}}}"),
        &["there is no tool `cutt`, did you mean `cut`?"],
    );
    check(
        &format!("{good}rules: {{cut: {{need: \"a[args.id].n >= args.id\"}}}}"),
        &["`need`: `a[args.id].n >= args.id` compares a number with a text"],
    );
    check(
        &format!("{good}rules: {{cut: {{need: \"a[args.id].n >= args.sun\"}}}}"),
        &["`cut` has no argument `sun`, did you mean `sum`?"],
    );
    check(
        "observe: {get: {path: 'a.{{ args.ids }}'}}\nrules: {cut: {need: \"a[args.id] == 1\"}}",
        &["`get` has no argument `ids`, did you mean `id`?"],
    );
    check(
        &format!(
            "{good}writes: {{cut: {{stale: 'a.{{{{ args.key }}}}'}}}}\nrules: {{cut: {{need: \"a.x.n == 1\"}}}}"
        ),
        &["`cut` has no argument `key`"],
    );
    check(
        &format!("{good}rules: {{cut: {{need: \"a[args.id].n > 1\", fetch: 'gte(id={{{{ args.id }}}})'}}}}"),
        &["`fetch`: there is no tool `gte`, did you mean `get`?"],
    );
    check(
        &format!("{good}rules: {{both: {{tools: [cut, gte], need: \"a[args.id].n > 1\"}}}}"),
        &["there is no tool `gte`, did you mean `get`?"],
    );
    check(
        "observe: {put: {path: a}}\nrules: {cut: {need: \"a == 1\"}}",
        &[
            "`put` may write, so that nothing of it is observed: say `effect: read` here or in its file if it only reads",
        ],
    );
    check("observe: {put: {path: a, effect: read}}\nrules: {cut: {need: \"a == 1\"}}", &[]);
}

/// An order in the test's model.
#[derive(Clone, Copy, Default)]
struct Order {
    pending: bool,
    fresh: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// No sequence of calls achieves a cancellation that the rule forbids.
    /// The model only knows whether an order was read since it was last touched.
    #[test]
    fn no_sequence_gets_a_forbidden_call_through(
        calls in prop::collection::vec((0usize..7, 0usize..3, any::<bool>()), 1..24),
    ) {
        let gate = shop();
        let mut ledger = Ledger::default();
        let mut model: BTreeMap<usize, Order> = BTreeMap::new();
        for (what, id, pending) in calls {
            let arguments = map(json!({"id": id}));
            let wrapped = map(json!({"name": "cancel_order", "arguments": json!({"id": id}).to_string()}));
            let status = if pending { "pending" } else { "shipped" };
            let order = json!({"status": status, "total": 1}).to_string();
            let permitted = model.get(&id).is_some_and(|order| order.pending && order.fresh);
            let (tool, effect, arguments, result) = match what {
                0 | 1 => {
                    model.insert(id, Order { pending, fresh: true });
                    ("get_order", Effect::Read, arguments, ToolResult::succeeded(order))
                }
                2 => ("get_order", Effect::Read, arguments, ToolResult::failed("not there")),
                3 => {
                    model.values_mut().for_each(|order| order.fresh = false);
                    ("shell", Effect::Write, Map::new(), ToolResult::succeeded(""))
                }
                4 => ("say", Effect::Write, Map::new(), ToolResult::succeeded("")),
                _ => {
                    let (tool, arguments) =
                        if what == 5 { ("cancel_order", arguments) } else { ("call_tool", wrapped) };
                    let blocked = gate.verdict(&ledger, tool, &arguments);
                    prop_assert_eq!(blocked.is_none(), permitted);
                    let result = match blocked {
                        Some(blocked) => ToolResult::blocked(blocked),
                        None => {
                            model.entry(id).or_default().fresh = false;
                            ToolResult::succeeded("cancelled")
                        }
                    };
                    (tool, Effect::Write, arguments, result)
                }
            };
            let done = Done { tool, effect, arguments: &arguments, result: &result };
            gate.changes(&done).iter().for_each(|change| ledger.apply(change));
        }
    }
}

fn shop() -> &'static Gate {
    static SHOP_GATE: std::sync::LazyLock<Gate> = std::sync::LazyLock::new(|| gate(SHOP));
    &SHOP_GATE
}
