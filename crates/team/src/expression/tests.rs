//! The values of expressions, compared with the language of jinxes where all values are known.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::jinx::template::{self, Scope};
use crate::ledger::{Change, Ledger};

#[test]
fn three_values() {
    let known = [&Ledger::fold(&[
        Change::Known { path: vec!["t".into()], value: json!(true) },
        Change::Known { path: vec!["f".into()], value: json!(false) },
        Change::Known { path: vec!["n".into()], value: json!(3) },
        Change::Known { path: vec!["s".into()], value: json!("x") },
    ])];
    let nothing = Map::new();
    let names = Names::of(&nothing).with_ledgers(&known);
    let check = |text: &str, expected: Result<Truth, &str>| {
        let expression = Expression::parse(text).unwrap();
        let found = names.truth(&expression, &mut Seen::default());
        assert_eq!(found, expected.map_err(str::to_owned), "{text}");
    };
    use Truth::{False, True, Unknown};
    for (other, and) in [("t", True), ("f", False), ("u", Unknown)] {
        check(&format!("t and {other}"), Ok(and));
        check(&format!("{other} and t"), Ok(and));
        check(&format!("f and {other}"), Ok(False));
        check(&format!("{other} and f"), Ok(False));
        check(&format!("t or {other}"), Ok(True));
        check(&format!("{other} or t"), Ok(True));
    }
    check("f or u", Ok(Unknown));
    check("u or f", Ok(Unknown));
    check("not u", Ok(Unknown));
    check("u is defined", Ok(False));
    check("u is not defined", Ok(True));
    check("n is defined", Ok(True));
    check("u == 3", Ok(Unknown));
    check("u in [1, 2]", Ok(Unknown));
    check("n in [u, 3]", Ok(Unknown));
    check("t[u] is defined", Ok(Unknown));
    check("n + u > 3", Ok(Unknown));
    check("n == 3 and s in ['x', 'y']", Ok(True));
    check("n == 's'", Err("`3 == \"s\"`: a number and a text can't be compared"));
    check("n in ['s']", Err("`3 in [\"s\"]`: a number and a list can't be compared"));
    check("s < 3", Err("`\"x\" < 3`: a text and a number can't be compared"));
    check("s", Err("`\"x\"` is no condition: compare it, or ask whether it `is defined`"));
    check("s + 1 == 2", Err("`\"x\"` is no number, it is a text"));
    check("n == none", Ok(False));
}

/// Names of the property tests; each may be unknown.
const FACTS: [(&str, &[&str]); 4] = [
    ("n", &["0", "1", "2", "-3", "2.5"]),
    ("m", &["0", "1", "7"]),
    ("s", &["\"\"", "\"a\"", "\"ab\""]),
    ("b", &["true", "false"]),
];

fn condition() -> impl Strategy<Value = String> {
    let plain = prop::sample::select(vec![
        "n < 2",
        "n <= m",
        "n == 1",
        "m != n",
        "s == 'a'",
        "b",
        "s in ['a', 'b']",
        "s not in ['ab']",
        "'a' in s",
        "n * 2 + m > 3",
        "n - m * 2 >= -1",
        "(n + 1) * m == 2",
        "s is startingwith('a')",
        "s is not endingwith('b')",
        "s | length < 2",
        "b == true",
        "n in [m, 2]",
        "s < 'aa'",
    ]);
    plain.prop_map(str::to_owned).prop_recursive(5, 24, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(left, right)| format!("{left} and {right}")),
            (inner.clone(), inner.clone()).prop_map(|(left, right)| format!("{left} or {right}")),
            inner.clone().prop_map(|inner| format!("not {inner}")),
            inner.prop_map(|inner| format!("({inner})")),
        ]
    })
}

fn facts() -> impl Strategy<Value = Map<String, Value>> {
    FACTS.map(|(_, values)| prop::sample::select(values.to_vec())).prop_map(|values: [&str; 4]| {
        let named = FACTS.iter().zip(values);
        named.map(|((name, _), value)| ((*name).to_owned(), serde_json::from_str(value).unwrap())).collect()
    })
}

proptest! {
    /// The language of jinxes, which knows only two truth values, is the independent model.
    #[test]
    fn what_is_true_or_false_stays_so_whatever_the_unknown_is(
        text in condition(),
        first in facts(),
        others in prop::collection::vec(facts(), 4),
        unknown in prop::collection::vec(any::<bool>(), 4),
    ) {
        let hidden: Vec<&str> =
            FACTS.iter().zip(&unknown).filter(|(_, unknown)| **unknown).map(|((name, _), _)| *name).collect();
        let mut ledger = Ledger::default();
        for (name, value) in first.iter().filter(|(name, _)| !hidden.contains(&name.as_str())) {
            ledger.apply(&Change::Known { path: vec![name.clone()], value: value.clone() });
        }
        let expression = Expression::parse(&text).unwrap();
        let nothing = Map::new();
        let truth = Names::of(&nothing).with_ledgers(&[&ledger]).truth(&expression, &mut Seen::default()).unwrap();
        if hidden.is_empty() {
            prop_assert_ne!(truth, Truth::Unknown, "{}", &text);
        }
        for other in std::iter::once(&first).chain(&others) {
            let mut world = first.clone();
            for name in &hidden {
                world.insert((*name).to_owned(), other[*name].clone());
            }
            let holds = template::holds(&text, &Scope::new(&world)).unwrap();
            let expected = if holds { Truth::True } else { Truth::False };
            prop_assert!(truth == Truth::Unknown || truth == expected, "{text}: {truth:?} in {world:?}");
        }
    }
}

#[test]
fn paths_are_found_inside_of_paths() {
    let expression = Expression::parse("orders[args.id].status == 'x' and b.0 is not defined").unwrap();
    let mut found = Vec::new();
    expression.paths(&mut |keys| found.push(written(keys)));
    assert_eq!(found, ["orders[args.id].status", "args.id", "b.0"]);
    let counted = Expression::parse("ok('get_*') > 1 and not failed(\"b\")").unwrap();
    assert_eq!(counted.counts(), [(Counter::Ok, "get_*"), (Counter::Failed, "b")]);
}

#[test]
fn names_fit_patterns() {
    for (pattern, name, expected) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("a*", "a", true),
        ("a*", "abc", true),
        ("*", "", true),
        ("*b", "ab", true),
        ("*b", "ba", false),
        ("a*c*e", "abcde", true),
        ("a*c*c", "abc", false),
        ("get_*_by_*", "get_user_by_id", true),
        ("get_*_by_*", "get_by_id", false),
    ] {
        assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
    }
}
