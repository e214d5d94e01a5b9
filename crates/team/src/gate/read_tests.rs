use super::*;

/// Gates by authors who haven't read the manual, and the errors that they get.
#[test]
fn mistakes_of_newcomers_are_told_with_place_and_remedy() {
    let good = "\
observe:
  get: {path: \"a.{{ args.id }}\", types: {n: number, s: string}}
writes:
  cut: {stale: \"a.{{ args.id }}\"}
rules:
  cut:
    need: \"a[args.id].n > 3\"
    reason: too few
";
    let reading = |text: &str| {
        let mut diagnostics = Vec::new();
        let gate = read(&Source::new("shop.gate".into(), text.to_owned()), &mut diagnostics);
        (gate.is_some(), diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(reading(good), (true, Vec::new()));
    let check = |from: &str, to: &str, expected: &[&str]| {
        assert!(good.contains(from), "{from}");
        let expected = expected.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(reading(&good.replace(from, to)), (false, expected), "{to}");
    };
    check(
        "    reason",
        "   reason",
        &[
            "shop.gate:8:4: error: while parsing a block mapping, did not find expected key: keys of one mapping begin in the same column",
        ],
    );
    check(
        "    reason",
        "\treason",
        &[
            "shop.gate:8:2: error: tabs disallowed within this context (block indentation): indent with spaces",
        ],
    );
    check(
        "{path: \"a.{{ args.id }}\", ",
        "{path: a.{{ args.id }}, ",
        &[
            "shop.gate:2:17: error: while parsing a flow mapping, did not find expected ',' or '}': put a text with `{{ … }}` in quotes",
        ],
    );
    check(
        "need: \"a[args.id].n > 3\"",
        "when: \"a[args.id].n > 3\"",
        &[
            "shop.gate:6:3: error: `cut` needs the key `need`: what must be true before the call",
            "shop.gate:7:5: error: unknown key `when`, did you mean `need`?",
        ],
    );
    check(
        "\"a[args.id].n > 3\"",
        "{a.n: 3}",
        &["shop.gate:7:11: error: `need` is one text in quotes, not a mapping"],
    );
    check(
        "\"a[args.id].n > 3\"",
        "\"{{ a[args.id].n > 3 }}\"",
        &["shop.gate:7:11: error: `need`: an expression has no braces around it: \"a[args.id].n > 3\""],
    );
    check(
        "n > 3",
        "n > 3 && args.sum != 2",
        &["shop.gate:7:11: error: `need`: `&` is no sign of a rule; for `&&` write `and`"],
    );
    check(
        "a[args.id].n > 3",
        "a[id].n > 3",
        &[
            "shop.gate:7:5: error: `need`: nobody observes `id` (known: a, args); an argument is written args.id",
        ],
    );
    check(
        "a[args.id].n > 3",
        "result.n > 3",
        &["shop.gate:7:5: error: `need`: there is no `result` yet: a rule is asked before the call"],
    );
    check(
        "path: \"a.{{ args.id }}\"",
        "path: \"a[args.id]\"",
        &[
            "shop.gate:2:15: error: `path`: `a[args.id]`: a path has points, and braces around values: orders.{{ args.id }}",
        ],
    );
    check(
        "stale: \"a.",
        "stale: \"zebra.",
        &["shop.gate:4:3: error: `stale`: nobody observes `zebra.…` (known: a)"],
    );
    check(
        "  cut:\n    need: \"a[args.id].n > 3\"\n    reason: too few\n",
        "  - cut: {need: \"a[args.id].n > 3\"}\n",
        &[
            "shop.gate:6:3: error: `rules` must be a mapping of names, not a list, such as {cancel_order: {need: …}}",
        ],
    );
}
