use super::*;
use crate::source::Source;

/// The diagnostics of a team's jinxes, each with the path `NAME.jinx`; `store` are its keys.
fn diagnostics(files: &[(&str, &str)], store: &[&str]) -> Vec<String> {
    let mut diagnostics = Vec::new();
    let read = |(name, text): &(&str, &str)| {
        let source = Source { path: format!("{name}.jinx").into(), text: (*text).to_owned() };
        crate::jinx::read(&source, &mut diagnostics)
    };
    let jinxes: Vec<Jinx> = files.iter().filter_map(read).collect();
    let text_of = |path: &Path| {
        let name = path.file_stem()?.to_str()?;
        files.iter().find(|(other, _)| *other == name).map(|(_, text)| (*text).to_owned())
    };
    diagnostics.extend(check(&jinxes, &|name| name == "broken", &|_| store, &text_of));
    diagnostics.iter().map(ToString::to_string).collect()
}

/// Checks one jinx `j` together with a few others.
fn expect(text: &str, expected: &[&str]) {
    let found = diagnostics(
        &[
            ("j", text),
            (
                "look",
                "effect: read\ninputs: [path, {lines: 10}, {deep: false}]\nsteps: [{engine: bash, code: ls}]",
            ),
            ("change", "inputs: [{mode: {enum: [a, b]}}]\nsteps: [{engine: bash, code: rm x}]"),
        ],
        &["plan"],
    );
    assert_eq!(found, expected, "{text}");
}

#[test]
fn names() {
    expect(
        "inputs: [q]\nsteps:\n- {name: a, engine: text, text: '{{ q }} {{ ctx.x }} {{ npc.name }} {{ team.members }}'}\n- {return: '{{ a }} {{ output }} {{ range(3) }}'}",
        &[],
    );
    expect(
        "inputs: [query]\nsteps:\n- name: a\n  engine: bash\n  code: |\n    x=1\n    echo {{ qery }} $x\n- {return: '{{ b }}'}",
        &[
            "j.jinx:7:13: error: `qery` is not defined, did you mean `query`?",
            "j.jinx:8:16: error: `b` is not defined",
        ],
    );
    expect(
        "steps:\n- {return: '{{ output }}{{ error }}{{ loop }}{{ skill }}'}",
        &[
            "j.jinx:2:16: error: `output` is not defined before the first step has a result",
            "j.jinx:2:28: error: `error` is only defined in `catch`",
            "j.jinx:2:39: error: `loop` is only defined in the steps of a `for`",
            "j.jinx:2:49: error: `skill` is only defined in a jinx with `sections`",
        ],
    );
    expect("steps: [{return: '{{ x | default(1) }} {{ y is defined }}'}]", &[]);
    expect(
        "sections: {a: b}\nok: out and section and nothing",
        &["j.jinx:2:25: error: `nothing` is not defined"],
    );
    expect("steps: [{set: {a: 1, b: '{{ a }}'}}, {set: {c.d: '{{ b }}'}}, {return: '{{ c.d }}'}]", &[]);
}

#[test]
fn what_a_loop_goes_through() {
    let check = |inputs: &str, items: &str, expected: Option<&str>| {
        let text = format!(
            "inputs: [{inputs}]\nsteps:\n- {{for: x, in: {items}, do: [{{set: {{y: '{{{{ x }}}}'}}}}]}}"
        );
        let expected =
            expected.map(|what| format!("j.jinx:3:3: error: `for` goes through a list, and {what}"));
        let expected: Vec<&str> = expected.as_deref().into_iter().collect();
        expect(&text, &expected);
    };
    check("{n: 3}", "3", Some("`3` is a whole number; `range(3)` counts so far"));
    check("{n: 3}", "n", Some("`n` is a whole number; `range(n)` counts so far"));
    check("{deep: false}", "deep", Some("`deep` is true or false"));
    let text = "`q` is a text; `q.splitlines()` are its lines, and an input of `type: list` takes a list";
    check("q", "q", Some(text));
    check("q", "range(3)", None);
    check("q", "'[1, 2]'", None);
    check("q", "q.splitlines()", None);
    check("{rows: {type: list}}", "rows", None);
    expect("inputs: [q]\nsteps: [{set: {q: [1]}}, {for: x, in: q, do: [{set: {y: '{{ x }}'}}]}]", &[]);
}

#[test]
fn names_in_branches() {
    let two = "{when: q, then: [{set: {x: 1}}], else: [{set: {OTHER: 1}}]}, {return: '{{ x }}'}";
    let check = |other: &str, expected: &[&str]| {
        expect(&format!("inputs: [q]\nsteps: [{}]", two.replace("OTHER", other)), expected);
    };
    check("x", &[]);
    check("y", &["j.jinx:2:79: warning: `x` may be undefined here: not every way to this step sets it"]);
    expect(
        "inputs: [q]\nsteps: [{when: q, then: [{set: {x: 1}}], else: [{return: 1}]}, {return: '{{ x }}'}]",
        &[],
    );
    expect("steps: [{when: x is not defined, then: [{set: {x: 1}}]}, {return: '{{ x }}'}]", &[]);
    expect(
        "steps: [{try: [{engine: change, mode: a, name: a}, {set: {b: 1}}], catch: [{set: {b: '{{ error.message }}'}}]}, {return: '{{ b }}{{ a }}'}]",
        &["j.jinx:1:133: warning: `a` may be undefined here: not every way to this step sets it"],
    );
    expect(
        "steps: [{try: [{engine: change, mode: a, name: a}], finally: [{set: {c: 1}}]}, {return: '{{ a }}{{ c }}'}]",
        &[],
    );
    expect(
        "steps:\n- {set: {n: 0}}\n- {name: all, for: i, in: [1], until: r > 1, do: [{engine: text, name: r, text: '{{ i }}{{ loop.index }}'}, {set: {n: 1}}]}\n- {return: '{{ all }}{{ n }}{{ r }}{{ i }}'}",
        &[
            "j.jinx:4:32: error: `r` is not defined here: it ended with its loop; `set` it before the loop to keep it",
            "j.jinx:4:39: error: `i` is not defined here: it ended with its loop; `set` it before the loop to keep it",
        ],
    );
}

#[test]
fn steps_that_never_run() {
    expect(
        "inputs: [q]\nsteps:\n- {when: false, then: [{return: 1}]}\n- {when: 1 < 2, then: [{set: {x: 1}}], else: [{return: 2}]}\n\
         - {when: q, then: [{return: '{{ x }}'}, {set: {y: 1}}], else: [{return: 2}]}\n- {return: 3}\n- {return: 4}",
        &[
            "j.jinx:3:24: warning: this never runs: `false` is always false",
            "j.jinx:4:47: warning: this never runs: `1 < 2` is always true",
            "j.jinx:5:41: warning: this never runs: the step before it ends the jinx",
            "j.jinx:6:3: warning: this never runs: the step before it ends the jinx",
        ],
    );
}

#[test]
fn names_that_hide_names() {
    expect(
        "inputs: [q]\nsteps:\n- {name: a, engine: look, path: x}\n- {name: a, engine: look, path: x}\n- {name: q, engine: look, path: x}\n- {name: output, engine: look, path: x}\n- {for: q, in: [], do: []}",
        &[
            "j.jinx:4:3: warning: another step before this one is called `a`, too",
            "j.jinx:5:3: warning: the name `q` hides the input of this name",
            "j.jinx:6:3: warning: the name `output` hides what `output` means elsewhere",
            "j.jinx:7:3: warning: the name `q` hides the input of this name",
        ],
    );
}

#[test]
fn texts_that_make_no_sense() {
    expect(
        "inputs: [q]\nsteps:\n- {when: q >, then: []}\n- engine: text\n  text: |\n    fine\n    {{ q | nofilter }}{{ q\n- engine: bash\n  code: |\n    echo '{{ q }}'\n    echo \"a {{ q }}\"\n- engine: python\n  code: |\n    x = '{{ q }}'\n- {engine: python, code: '{{ q }}'}",
        &[
            "j.jinx:3:10: error: unexpected end of input, expected expression in `q >`",
            "j.jinx:7:5: error: unexpected end of input, expected end of variable block in `{{ q | nofilter }}{{ q`",
            "j.jinx:10:10: error: `'{{ q }}'` in line 1 of the code stands in quotes: write `{{ q }}`",
            "j.jinx:14:9: error: `'{{ q }}'` in line 1 of the code stands in quotes: write `{{ q }}`",
        ],
    );
}

#[test]
fn calls() {
    expect(
        "inputs: [q]\nsteps: [{engine: look, path: '{{ q }}', lines: '{{ q }}', deep: true}, {engine: look, path: x, lines: null}]",
        &[],
    );
    expect(
        "inputs: [q]\nsteps:\n- {engine: lok}\n- {engine: look, with: {lines: ten, deep: 'a{{ q }}', pat: x}}\n- {engine: change, mode: c}\n- {engine: change, mode: [a]}\n- {engine: llm, prompt: x, tools: [look, chnge]}",
        &[
            "j.jinx:3:12: error: there is no jinx `lok`, did you mean `look`?",
            "j.jinx:4:3: error: call of `look`: argument `path` is missing",
            "j.jinx:4:25: error: call of `look`: argument `lines` must be of type integer",
            "j.jinx:4:37: error: call of `look`: argument `deep` must be of type boolean",
            "j.jinx:4:55: error: `look` has no argument `pat`, did you mean `path`? (it takes path, lines, deep)",
            "j.jinx:5:20: error: call of `change`: argument `mode` must be one of [\"a\",\"b\"]",
            "j.jinx:6:20: error: call of `change`: argument `mode` must be of type string",
            "j.jinx:7:42: error: there is no jinx `chnge`, did you mean `change`?",
        ],
    );
}

#[test]
fn schemas() {
    let check = |schema: &str, expected: &[&str]| {
        expect(&format!("steps: [{{engine: llm, prompt: x, schema: {schema}}}]"), expected);
    };
    check("{type: object, properties: {a: {type: [string, 'null']}, b: true}}", &[]);
    check(
        "text",
        &["j.jinx:1:34: error: `schema` is a JSON schema: a mapping such as `{type: object, properties: …}`"],
    );
    check(
        "{type: objct}",
        &["j.jinx:1:34: error: `schema` has an unknown type \"objct\", did you mean `object`?"],
    );
    check("{properties: {a: {items: {type: 1}}}}", &["j.jinx:1:34: error: `schema` has an unknown type 1"]);
    check(
        "{properties: [a]}",
        &["j.jinx:1:34: error: the `properties` of a `schema` are a mapping of schemas by name"],
    );
}

#[test]
fn side_by_side() {
    let check = |body: &str, expected: &[&str]| {
        expect(
            &format!(
                "inputs: [{{q: {{type: list}}}}]\nsteps:\n- {{set: {{n: 0}}}}\n- {{for: i, in: q, parallel: true, do: [{body}]}}"
            ),
            expected,
        );
    };
    check("{engine: look, path: '{{ i }}'}, {set: {own: 1}}, {set: {own: 2}}", &[]);
    check(
        "{set: {n: 1}}",
        &[
            "j.jinx:4:47: error: a parallel `for` can't set `n`, which is defined outside of it: use the loop's result, or leave out `parallel`",
        ],
    );
    check(
        "{when: i, then: [{engine: bash, code: ls}]}, {engine: change}, {set: {store.plan: 1}}",
        &[
            "j.jinx:4:57: error: steps of a parallel `for` may not write, and this one may: declare `effect: read` on the jinx `j` if it only reads",
            "j.jinx:4:85: error: steps of a parallel `for` may not write, and this one may: declare `effect: read` on `change` if it only reads",
            "j.jinx:4:85: error: call of `change`: argument `mode` is missing",
            "j.jinx:4:103: error: steps of a parallel `for` may not write, and this one writes to the store: leave out `parallel`",
        ],
    );
    expect(
        "effect: none\ninputs: [{q: {type: list}}]\nsteps:\n- {for: i, in: q, parallel: true, do: [{set: {store.plan: 1}}]}",
        &[
            "j.jinx:4:40: error: steps of a parallel `for` may not write, and this one writes to the store: leave out `parallel`",
        ],
    );
    expect(
        "steps:\n- {engine: bash, code: ls, cache: 60s}\n- {engine: look, path: x, cache: 60s}",
        &[
            "j.jinx:2:3: warning: `cache` has no effect on a step that may write: declare `effect: read` on the jinx `j` if it only reads",
        ],
    );
}

#[test]
fn keys_of_the_store() {
    expect(
        "steps: [{set: {store.plan: 1, store.paln: 1}}, {return: '{{ store.pln }}{{ store.plan.x }}'}]",
        &[
            "j.jinx:1:37: warning: the team's store has no key `paln`, did you mean `plan`?",
            "j.jinx:1:67: warning: the team's store has no key `pln`, did you mean `plan`?",
        ],
    );
    assert_eq!(diagnostics(&[("j", "steps: [{set: {store.x: '{{ store.y }}'}}]")], &[]), [] as [&str; 0]);
}

#[test]
fn cycles() {
    let call = |name: &str| format!("steps: [{{when: npc, then: [{{engine: {name}}}]}}]");
    let found =
        diagnostics(&[("a", &call("b")), ("b", &call("c")), ("c", &call("b")), ("d", &call("d"))], &[]);
    assert_eq!(
        found,
        [
            "b.jinx:1:28: error: a jinx can't call itself: b → c → b",
            "d.jinx:1:28: error: a jinx can't call itself: d → d",
        ]
    );
    // Through a model, whose run has its own limits, it may.
    let asks = "steps: [{engine: llm, npc: x, prompt: p, tools: [a]}]";
    assert_eq!(diagnostics(&[("a", asks)], &[]), [] as [&str; 0]);
}
