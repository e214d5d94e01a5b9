use std::path::Path;

use serde_json::json;

use super::*;
use crate::jinx::Offer;

fn load(path: &str, text: &str) -> (Option<Jinx>, Vec<String>) {
    let mut diagnostics = Vec::new();
    let source = Source { path: path.into(), text: text.to_owned() };
    let jinx = read(&source, &mut diagnostics);
    (jinx, diagnostics.iter().map(ToString::to_string).collect())
}

/// A jinx from a file without diagnostics.
fn good(text: &str) -> Jinx {
    let (jinx, diagnostics) = load("j.jinx", text);
    assert_eq!(diagnostics, [] as [&str; 0], "{text}");
    jinx.unwrap()
}

fn steps(text: &str) -> Value {
    serde_json::to_value(good(&format!("jinx_name: j\nsteps:\n{text}")).steps).unwrap()
}

#[test]
fn a_file_with_every_key() {
    let jinx = good(
        "#!/usr/bin/env npc\njinx_name: j-1\ndescription: |\n  Does it.\ninputs: [a]\neffect: read\nnetwork: yes\n\
         env: [KEY]\ntimeout: 2m\nok: out != ''\nfinal: true\npermissions: {default: ask}\nsteps:\n- {engine: bash, code: ls}\n",
    );
    let Value::Object(mut map) = serde_json::to_value(&jinx).unwrap() else { panic!("no mapping") };
    map.shift_remove("steps");
    map.shift_remove("inputs");
    assert_eq!(
        Value::Object(map),
        json!({
            "name": "j-1", "description": "Does it.", "effect": "read", "network": true, "env": ["KEY"],
            "timeout": 120.0, "ok": "out != ''", "final": true, "permission": "ask",
        })
    );
    assert_eq!(
        (jinx.path.as_path(), jinx.steps[0].location),
        (Path::new("j.jinx"), Location { line: 14, column: 3 })
    );
    assert_eq!(good("steps: [{return: 1}]").name, "j");
    assert_eq!(good("name: x\npermission: deny\nsteps: [{return: 1}]").permission, Some(Verdict::Deny));
}

#[test]
fn many_inputs_take_no_more_time_each() {
    let begun = std::time::Instant::now();
    let inputs: String = (0..20_000).map(|index| format!("  - i{index}: 1\n")).collect();
    let steps = "steps:\n  - {name: s, engine: bash, code: ls}\n";
    let jinx = good(&format!("jinx_name: j\ndescription: d\ninputs:\n{inputs}{steps}"));
    assert_eq!(jinx.inputs.len(), 20_000);
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}

#[test]
fn effects_that_are_not_said() {
    let check =
        |steps: &str, expected| assert_eq!(good(&format!("steps: [{steps}]")).effect, expected, "{steps}");
    check("{engine: bash, code: ls}", Effect::Write);
    check("{engine: other}", Effect::Write);
    check("{set: {store.x: 1}}", Effect::Write);
    check("{engine: llm, prompt: hi, tools: '*'}", Effect::Write);
    check("{when: x, then: [{engine: bash, code: ls}]}", Effect::Write);
    check(
        "{engine: llm, prompt: hi}, {set: {x: 1}}, {for: i, in: '[1]', do: [{emit: {type: log}}]}",
        Effect::None,
    );
}

#[test]
fn every_form_of_a_step() {
    let check = |yaml: &str, expected: Value| assert_eq!(steps(yaml), expected, "{yaml}");
    check("- {name: a, engine: bash, code: ls}", json!([{"name": "a", "do": "bash", "code": "ls"}]));
    check("- {engine: python, code: ''}", json!([{"name": "step_1", "do": "python", "code": ""}]));
    check("- {engine: text, code: x}", json!([{"name": "step_1", "do": "text", "text": "x"}]));
    check("- {engine: text, text: {a: 1}}", json!([{"name": "step_1", "do": "text", "text": {"a": 1}}]));
    check(
        "- {engine: natural, code: hi, mode: agent}",
        json!([{"name": "step_1", "do": "llm", "prompt": "hi", "tools": "all"}]),
    );
    check(
        "- {engine: llm, prompt: hi, npc: corca, tools: [shell], schema: {type: object}, system: no}",
        json!([{"name": "step_1", "do": "llm", "prompt": "hi", "npc": "corca", "system": false,
            "tools": {"some": ["shell"]}, "schema": {"type": "object"}}]),
    );
    check(
        "- {engine: lib/core/shell, with: {a: 1}, bash_command: ls, code: x, npc: z}",
        json!([{"name": "step_1", "do": "call", "jinx": "lib/core/shell",
            "with": {"a": 1, "bash_command": "ls", "code": "x", "npc": "z"}}]),
    );
    check(
        "- when: '{{ a > 1 }}'\n  then: {return: 1}\n  else: [{return: }]",
        json!([{"do": "when", "when": "a > 1", "then": [{"do": "return", "return": 1}],
            "else": [{"do": "return", "return": null}]}]),
    );
    check(
        "- {engine: bash, code: ls, timeout: '{{ seconds * 2 }}'}",
        json!([{"name": "step_1", "do": "bash", "code": "ls", "timeout": "{{ seconds * 2 }}"}]),
    );
    check(
        "- {engine: bash, code: ls, background: '{{ later }}'}\n- {engine: bash, code: ls, background: yes}",
        json!([{"name": "step_1", "do": "bash", "code": "ls", "background": "later"},
            {"name": "step_2", "do": "bash", "code": "ls", "background": "true"}]),
    );
    check(
        "- {jobs: list}\n- {name: said, jobs: '{{ what }}', job: '{{ n }}'}",
        json!([{"do": "jobs", "jobs": "list"}, {"name": "said", "do": "jobs", "jobs": "{{ what }}", "job": "{{ n }}"}]),
    );
    check("- {when: false, else: []}", json!([{"do": "when", "when": "false", "then": []}]));
    check(
        "- {name: all, for: i, in: [1, x, null, {a: b}], parallel: true, until: i > 1, do: [{engine: text, text: '{{ i }}'}]}",
        json!([{"name": "all", "do": "for", "for": "i", "in": "[1, \"x\", none, {\"a\": \"b\"}]", "parallel": true,
            "until": "i > 1", "steps": [{"name": "step_1", "do": "text", "text": "{{ i }}"}]}]),
    );
    check(
        "- {try: [{return: 1}], catch: [{return: 2}], finally: [{emit: {type: log, content: x}}]}",
        json!([{"do": "try", "try": [{"do": "return", "return": 1}], "catch": [{"do": "return", "return": 2}],
            "finally": [{"do": "emit", "emit": {"type": "log", "content": "x"}}]}]),
    );
    check(
        "- {set: {a: 1, a.b: '{{ c }}', store.x: [2]}}\n- {engine: x, retry: 2, cache: 30m, timeout: 500ms}\n- {engine: x, retry: {max: 3, backoff: 0.2}, cache: 60}",
        json!([
            {"do": "set", "set": {"a": 1, "a.b": "{{ c }}", "store.x": [2]}},
            {"name": "step_2", "do": "call", "jinx": "x", "retry": {"max": 2, "backoff": 0.0}, "cache": 1800.0, "timeout": 0.5},
            {"name": "step_3", "do": "call", "jinx": "x", "retry": {"max": 3, "backoff": 0.2}, "cache": 60.0},
        ]),
    );
}

#[test]
fn every_form_of_an_input() {
    let check = |yaml: &str, expected: Value| {
        let inputs = good(&format!("steps: [{{return: 1}}]\ninputs:\n{yaml}")).inputs;
        let each = |input: &super::super::Input| {
            (input.name.clone(), json!([input.schema(&Offer::default()), input.default]))
        };
        assert_eq!(Value::Object(inputs.iter().map(each).collect()), expected, "{yaml}");
    };
    check("- path", json!({"path": [{"type": "string"}, null]}));
    check("- rounds: 3", json!({"rounds": [{"type": "integer", "default": 3}, 3]}));
    check("- ratio: 0.5", json!({"ratio": [{"type": "number", "default": 0.5}, 0.5]}));
    check("- deep: true", json!({"deep": [{"type": "boolean", "default": true}, true]}));
    check("- text: ''", json!({"text": [{"type": "string", "default": ""}, ""]}));
    check("- items: [1]", json!({"items": [{"type": "array", "default": [1]}, [1]]}));
    check(
        "- task: {description: What to do}",
        json!({"task": [{"type": "string", "description": "What to do"}, null]}),
    );
    check(
        "- n: {type: int, default: 2, enum: [1, 2], description: How many}",
        json!({"n": [{"type": "integer", "description": "How many", "default": 2, "enum": [1, 2]}, 2]}),
    );
    check(
        "- name: query\n  description: What to find",
        json!({"query": [{"type": "string", "description": "What to find"}, null]}),
    );
    // A value that is declared as text stays as written.
    check(
        "- {code: {type: string, default: 007}}\n- answer: {type: str, enum: [yes, no, 1.10], default: no}",
        json!({"code": [{"type": "string", "default": "007"}, "007"],
            "answer": [{"type": "string", "default": "no", "enum": ["yes", "no", "1.10"]}, "no"]}),
    );
    check(
        "- {answer: {enum: [yes, no, maybe]}}\n- off",
        json!({"answer": [{"type": "string", "enum": ["yes", "no", "maybe"]}, null], "off": [{"type": "string"}, null]}),
    );
    check("- zip: 01234", json!({"zip": [{"type": "string", "default": "01234"}, "01234"]}));
    check("- name: x", json!({"name": [{"type": "string", "default": "x"}, "x"]}));
    check(
        "  {a: {type: string, required: true}, b: 1}",
        json!({"a": [{"type": "string"}, null], "b": [{"type": "integer", "default": 1}, 1]}),
    );
    check("  null", json!({}));
    let optional =
        |text: &str| good(&format!("steps: [{{return: 1}}]\ninputs: [{text}]")).inputs[0].default.clone();
    assert_eq!(optional("mode: null"), Some(Value::Null));
    assert_eq!(optional("mode: {required: false}"), Some(Value::Null));
    assert_eq!(optional("mode: {default: null, required: true}"), None);
}

#[test]
fn skills_in_three_forms() {
    let check = |text: &str, sections: &[(&str, &str)], step: &str| {
        let jinx = good(text);
        let skill = jinx.skill.unwrap();
        let found: Vec<_> =
            skill.sections.iter().map(|(title, text)| (title.as_str(), text.as_str())).collect();
        assert_eq!(found, sections);
        let Action::Text { text } = &jinx.steps[0].action else { panic!("no text") };
        assert_eq!((text.as_str(), jinx.steps.len(), jinx.effect), (Some(step), 1, Effect::None));
        assert_eq!((jinx.inputs[0].name.as_str(), &jinx.inputs[0].default), ("section", &Some("all".into())));
    };
    let shown = "{{ skill | section(section) }}";
    let two = [("a", "one"), ("b", "two")];
    check("skill_name: s\nengine: skill\nsections: {a: one, b: two}", &two, shown);
    check(
        "inputs: [section: all]\nsteps:\n- {engine: skill, skill_name: s, sections: {a: one, b: two}, section: '{{section}}', scripts_json: '[]'}",
        &two,
        shown,
    );
    check("steps: [{engine: skill, sections: '{\"a\": \"one\", \"b\": \"two\"}'}]", &two, shown);
    check(
        "steps: [{engine: skill, section: b, sections: eyJhIjogIm9uZSIsICJiIjogInR3byJ9}]",
        &two,
        "{{ skill | section(\"b\") }}",
    );
    let call = good("steps: [{engine: skill, with: {name: git}}]");
    assert!(matches!(&call.steps[0].action, Action::Call { jinx, .. } if jinx == "skill"));
}

#[test]
fn steps_that_templates_write() {
    let text = "jinx_name: j\ninputs: [q]\nsteps:\n{% for i in [1, 2] %}\n- {name: s{{ i }}, engine: text, text: '{{ q }}'}\n{% endfor %}\n";
    let (jinx, diagnostics) = load("j.jinx", text);
    let jinx = jinx.unwrap();
    let names: Vec<&str> = jinx.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["s1", "s2"]);
    assert_eq!(jinx.steps[1].action, Action::Text { text: "{{ q }}".into() });
    assert_eq!(
        diagnostics,
        ["j.jinx: warning: the file is YAML only after rendering; places are those of the rendered text"]
    );
    // Control flow inside code remains for the run.
    let python = good("steps:\n- engine: python\n  code: |\n    {% if x %}a = 1{% endif %}\n");
    assert_eq!(python.steps[0].action, Action::Python { code: "{% if x %}a = 1{% endif %}\n".to_owned() });
}

#[test]
fn mistakes_are_told_with_their_place_and_all_at_once() {
    let check = |text: &str, expected: &[&str]| {
        let (jinx, diagnostics) = load("j.jinx", text);
        assert_eq!(diagnostics, expected, "{text}");
        assert_eq!(jinx.is_some(), !diagnostics.iter().any(|line| line.contains(": error: ")), "{text}");
    };
    check("- a", &["j.jinx:1:1: error: a jinx is a mapping, not a list"]);
    check(
        "effects: read\nnpc: x\nsteps: [{return: 1}]",
        &[
            "j.jinx:1:1: warning: unknown key `effects`, did you mean `effect`?",
            "j.jinx:2:1: warning: the key `npc` has no effect",
        ],
    );
    check(
        "jinx_name: a b\nsteps: []",
        &[
            "j.jinx:1:12: error: the name `a b` is not made of letters, digits, `_` and `-`",
            "j.jinx:2:8: error: the jinx `a b` has no steps",
        ],
    );
    check(
        "inputs:\n- a-b\n- x: {typ: int}\n- x\n- y: {type: strng}\n- z: {type: int, default: q}\n- 3\neffect: reads\n\
         timeout: 0\nnetwork: maybe\nsteps: [{return: 1}]",
        &[
            "j.jinx:2:3: error: the input `a-b`: a name is made of letters, digits and `_`",
            "j.jinx:3:7: warning: unknown key `typ`, did you mean `type`?",
            "j.jinx:4:3: error: the input `x` occurs twice",
            "j.jinx:5:13: error: `type` is one of `string`, `integer`, `number`, `boolean`, `array`, `object`, `str`, `text`, `int`, `float`, `bool`, `list`, `dict`, `map`, not `strng`, did you mean `string`?",
            "j.jinx:6:27: error: argument `z` must be of type integer, but its default is \"q\"",
            "j.jinx:7:3: error: an input is a name or a mapping, not a number",
            "j.jinx:8:9: error: `effect` is one of `none`, `read`, `write`, not `reads`, did you mean `read`?",
            "j.jinx:9:10: error: `timeout` is a time above 0: a number of seconds, or `500ms`, `30s`, `5m`, `2h`, `1d`",
            "j.jinx:10:10: error: `network` is true or false, not a text",
        ],
    );
    check(
        "steps:\n- x\n- {nam: a, cod: x}\n- {when: a, return: b}\n- {engine: bash, cod: x}\n- {engine: bash, code: x, until: y, schema: {}, with: {}, npc: z}\n\
         - {engine: llm}\n- {engine: llm, code: a, prompt: b}\n- {when: x}\n- {for: a b, do: []}\n- {set: {a..b: 1, ctx.x: 1, store: 2}}\n\
         - {engine: x, with: [1]}\n- {engine: x, with: {a: 1}, a: 2, retry: no, cache: soon}\n- {try: 3}\n- {emit: }\n- {name: a b, return: 1}",
        &[
            "j.jinx:2:3: error: a step is a mapping, not a text",
            "j.jinx:3:3: error: a step has one of the keys `engine`, `when`, `for`, `try`, `set`, `emit`, `jobs`, `return`; this has none",
            "j.jinx:4:3: error: a step does one thing, but this has both `when` and `return`",
            "j.jinx:5:3: error: this step has no `code`",
            "j.jinx:5:18: warning: unknown key `cod`, did you mean `code`?",
            "j.jinx:6:27: error: the key `until` belongs to `for`, not to `engine: bash`",
            "j.jinx:6:37: error: the key `schema` belongs to `llm`, not to `engine: bash`",
            "j.jinx:6:49: error: `with` gives a jinx its arguments, but this is `engine: bash`",
            "j.jinx:6:59: warning: `npc` has no effect on `engine: bash`: no model answers there",
            "j.jinx:7:3: error: this step has no `prompt`",
            "j.jinx:8:23: error: this step has both `prompt` and `code`, which mean the same",
            "j.jinx:9:3: error: `when` needs `then` with steps, or `else`",
            "j.jinx:10:3: error: `for` needs `in`: an expression that gives a list",
            "j.jinx:10:9: error: `for` names the item: `a b` is not made of letters, digits and `_`",
            "j.jinx:11:10: error: `a..b` can't be set: a name, or names with dots between them, can",
            "j.jinx:11:19: error: `ctx.x` can't be set: `ctx` is given",
            "j.jinx:11:29: error: the store as a whole can't be set; a key of it can: `store.plan`",
            "j.jinx:12:21: error: `with` is a mapping of arguments, not a list",
            "j.jinx:13:29: error: the argument `a` is given twice: here and in `with`",
            "j.jinx:13:42: error: `retry` is a number of further attempts, or `{max: 3, backoff: 0.2}`",
            "j.jinx:13:53: error: `cache` is a time above 0: a number of seconds, or `500ms`, `30s`, `5m`, `2h`, `1d`",
            "j.jinx:14:9: error: steps are a list, not a number",
            "j.jinx:15:8: error: `emit` is a mapping `{type, id, content}`, not nothing",
            "j.jinx:16:10: warning: `a b` is not made of letters, digits and `_`, so no step can use its result",
        ],
    );
}
