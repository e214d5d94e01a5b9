use std::sync::Arc;

use alara_engine::Message;

use super::*;
use crate::model::{ModelSource, ModelSpec};

#[test]
fn steps_see_earlier_results_and_models_answer() {
    let three = r#"
jinx_name: tried
inputs: [name]
steps:
  - {name: first, engine: bash, code: 'echo "bash $name"'}
  - {name: second, engine: python, code: "output = context['first'] + ' python'"}
  - {name: third, engine: llm, prompt: "Say {{ second }}\n"}
"#;
    let model = Scripted::new([Reply::text(" said \n")]);
    let result = play(team(&[three]), &json!({"name": "x"}), &model, 1).result;
    assert_eq!(result.text(1000), r#"{"ok":true,"output":"said"}"#);
    let requests = model.requests();
    assert_eq!(requests[0].messages, [Message::user("Say bash x python")]);
    assert!(requests[0].tools.is_empty());

    let held = "jinx_name: tried\nsteps: [{name: far, engine: llm, prompt: 'How far?', schema: {type: object, required: [km], properties: {km: {type: integer}}}}, {return: '{{ far.km + 1 }}'}]";
    let model = Scripted::new([Reply::text("{\"km\": 5}")]);
    assert_eq!(play(team(&[held]), &json!({}), &model, 1).result.output, json!(6));
    assert_eq!(
        model.requests()[0].schema,
        Some(json!({"type": "object", "required": ["km"], "properties": {"km": {"type": "integer"}}}))
    );
    let model = Scripted::new([Reply::text("nothing")]);
    let caught = "jinx_name: tried\nsteps: [{try: [{engine: llm, prompt: a, schema: {type: object}}], catch: [{engine: llm, prompt: b}]}]";
    let result = play(team(&[caught]), &json!({}), &model, 1).result;
    assert!(result.error.contains("the script has no reply for turn 2"), "{}", result.error);
}

const INNER: &str = "jinx_name: inner\ninputs: [word, {times: 1}]\nsteps: [{name: said, engine: bash, code: 'for i in $(seq $times); do printf \"<%s>\" {{ word }}; done'}]";
const MIDDLE: &str = "jinx_name: middle\ninputs: [word]\nsteps: [{name: one, engine: inner, with: {word: '{{ word }}', times: '{{ 1 + 1 }}'}}, {engine: text, text: '[{{ one }} {{ said is defined }}]'}]";

#[test]
fn jinxes_call_jinxes_and_results_have_the_callers_names() {
    let outer = "jinx_name: tried\ninputs: [word]\nsteps: [{name: mine, engine: middle, with: {word: '{{ word }}'}}, {return: '{{ mine }} {{ one is defined }}'}]";
    let played = play(team(&[INNER, MIDDLE, outer]), &json!({"word": "a"}), &Scripted::default(), 1);
    assert_eq!(played.result.output, json!("[<a><a> False] False"));
    let places: Vec<Value> = played.trace.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let jinxes = places.iter().filter(|entry| entry["record"] == "jinx");
    let places: Vec<_> =
        jinxes.map(|entry: &Value| json!([entry["in"], entry["jinx"], entry["place"]])).collect();
    assert_eq!(places, [json!(["mine", "inner", "one"]), json!([null, "middle", "mine"])]);
}

#[test]
fn calls_are_checked() {
    let check = |step: &str, expected: &str| {
        let text = format!("jinx_name: tried\nsteps: [{step}]");
        assert_eq!(
            play(team(&[INNER, &text]), &json!({}), &Scripted::default(), 1).result.text(500),
            expected,
            "{step}"
        );
    };
    check(
        "{engine: nowhere}",
        r#"{"ok":false,"exit":null,"error":"step `step_1`: there is no jinx `nowhere`"}"#,
    );
    check("{engine: inner}", r#"{"ok":false,"exit":null,"error":"argument `word` is missing"}"#);
    check(
        "{engine: inner, with: {word: 1}}",
        r#"{"ok":false,"exit":null,"error":"argument `word` must be of type string"}"#,
    );
    check("{engine: inner, with: {word: a, times: '{{ none }}'}}", r#"{"ok":true,"output":"<a>"}"#);
    check("{engine: inner, word: b}", r#"{"ok":true,"output":"<b>"}"#);
}

#[test]
fn calls_end_somewhere() {
    let text = "jinx_name: tried\ninputs: [{n: 0}]\nsteps: [{engine: tried, with: {n: '{{ n + 1 }}'}}]";
    let result = play(team(&[text]), &json!({}), &Scripted::default(), 1).result;
    assert_eq!(result.error, "`tried` is not run: 32 calls inside of each other are the limit");
}

#[test]
fn values_pass_through_everything_unchanged() {
    let evil = [
        "'; rm -rf / #",
        "\"; touch pwned; \"",
        "$(touch pwned)",
        "`touch pwned`",
        "{{ 7*7 }}",
        "{% for x in y %}",
        "{# no #}",
        "a\nb\n\n c",
        "\\n\\",
        "''' + __import__('os').system('touch pwned') + '''",
        "%s%n",
        "$__v1 __v[1]",
        "é😀\u{7}",
        "--version",
        "-n",
    ];
    let text = r#"
jinx_name: tried
inputs: [v]
steps:
  - {name: shown, engine: bash, code: "printf %s {{ v }}"}
  - {name: env, engine: bash, code: 'printf %s "$v"'}
  - {name: python, engine: python, code: "output = {{ v }}"}
  - {name: context, engine: python, code: "output = context['v']"}
  - {name: text, engine: text, text: "<{{ v }}>"}
  - {name: asked, engine: llm, prompt: "<{{ v }}>"}
  - {name: called, engine: same, with: {v: "{{ v }}"}}
  - {set: {deep.value: "{{ v }}"}}
  - {return: ["{{ shown }}", "{{ env }}", "{{ python }}", "{{ context }}", "{{ text[1:-1] }}", "{{ called }}", "{{ deep.value }}"]}
"#;
    let same = "jinx_name: same\ninputs: [v]\nsteps: [{engine: text, text: '<{{ v }}>'}, {return: '{{ output[1:-1] }}'}]";
    for value in evil {
        let model = Scripted::new([Reply::text("ok")]);
        let played = play(team(&[same, text]), &json!({"v": value}), &model, 1);
        assert_eq!(played.result.output, json!(vec![value; 7]), "{value}: {}", played.result.error);
        assert_eq!(model.requests()[0].messages, [Message::user(format!("<{value}>"))]);
        assert!(played.files.is_empty(), "{value}");
    }
}

#[test]
fn inputs_without_a_value_are_null() {
    check(
        "inputs: [{mode: null}]\nsteps: [{engine: bash, code: 'echo \"<$mode>\" {{ mode }}'}]",
        r#"{"ok":true,"output":"<> "}"#,
    );
    check(
        "inputs: [{mode: null}]\nsteps: [{engine: python, code: 'output = str({{ mode }}) + str(context[\"mode\"])'}]",
        r#"{"ok":true,"output":"NoneNone"}"#,
    );
    check(
        "inputs: [{mode: null}]\nsteps: [{engine: text, text: \"{{ mode or 'none' }}\"}]",
        r#"{"ok":true,"output":"none"}"#,
    );
}

#[test]
fn what_every_step_knows() {
    let text = "jinx_name: tried\nsteps: [{return: '{{ npc.name }} {{ team.name }} {{ ctx.city }} {{ team.members is defined }}'}]";
    let mut team = team(&[text]);
    team.values.insert("city".into(), json!("Bergen"));
    let result = play(team, &json!({}), &Scripted::default(), 1).result;
    assert_eq!(result.output, json!("worker alara Bergen True"));
    let skill =
        "jinx_name: tried\nskill_name: tried\ndescription: d\nsections: {Commits: Small., Merging: Often.}";
    let mut skill = read(skill);
    skill.name = "tried".into();
    let mut team = super::team(&[]);
    team.jinxes.push(skill);
    let result = play(team, &json!({"section": "mer"}), &Scripted::default(), 1).result;
    assert_eq!(result.text(100), r#"{"ok":true,"output":"Often."}"#);
}

#[test]
fn results_are_kept_for_a_while() {
    let look = "jinx_name: look\ninputs: [{q: a}]\neffect: read\nsteps: [{engine: bash, code: 'echo x >> log; echo {{ q }}'}]";
    let check = |effect: &str, steps: &str, expected: usize| {
        let text = format!("jinx_name: tried\neffect: {effect}\nsteps: {steps}");
        let played = play(team(&[look, &text]), &json!({}), &Scripted::default(), 1);
        assert!(played.result.ok, "{}", played.result.error);
        assert_eq!(played.files["log"].as_str().unwrap().len() / 2, expected, "{steps}");
    };
    let bash = "{engine: bash, cache: 60s, code: 'echo x >> log; echo {{ i % 2 }}'}";
    let call = "{engine: look, cache: 60s, with: {q: '{{ (i % 2) | string }}'}}";
    check("read", &format!("[{{for: i, in: 'range(1, 5)', do: [{call}]}}]"), 2);
    check("read", &format!("[{{for: i, in: '[1, 1, 1]', do: [{}]}}]", bash.replace("{{ i % 2 }}", "one")), 3);
    check("read", "[{engine: look, cache: 60s}, {engine: look, cache: 60s}, {engine: look}]", 2);
    check(
        "read",
        "[{engine: look, cache: 0.05}, {engine: bash, code: 'sleep 0.1'}, {engine: look, cache: 0.05}]",
        2,
    );
    check(
        "write",
        "[{engine: bash, cache: 60s, code: 'echo x >> log'}, {engine: bash, cache: 60s, code: 'echo x >> log'}]",
        2,
    );
}

/// A model that replies with its name, can be replaced by another one, and counts its requests.
struct Exchanged {
    name: Mutex<&'static str>,
    asked: Mutex<usize>,
}

struct Named<'a>(&'static str, &'a Mutex<usize>);

impl ChatModel for Named<'_> {
    fn name(&self) -> &str {
        self.0
    }

    fn chat(&self, _: Request) -> Result<Events<'_>, ModelError> {
        *self.1.lock().unwrap() += 1;
        let done = Event::Done { finish: Finish::Stop, usage: Usage::default() };
        Ok(Box::new([Ok(Event::Text { text: self.0.to_owned() }), Ok(done)].into_iter()))
    }
}

impl ModelSource for Exchanged {
    fn model(&self, _: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        Ok(Arc::new(Named(*self.name.lock().unwrap(), &self.asked)))
    }
}

#[test]
fn another_model_is_asked_again() {
    for body in ["{engine: llm, cache: 60s, prompt: x}", "{engine: ask, cache: 60s}"] {
        let ask = "jinx_name: ask\neffect: read\nsteps: [{engine: llm, prompt: x}]";
        let fixture =
            Fixture::with(team(&[ask, &format!("jinx_name: tried\neffect: read\nsteps: [{body}]")]));
        let source = Exchanged { name: Mutex::new("one"), asked: Mutex::new(0) };
        let session = Session::new(&source, &fixture.sandbox);
        for name in ["one", "one", "two", "one"] {
            *source.name.lock().unwrap() = name;
            let caller = Caller::person(&session, &fixture.team);
            let result = run(fixture.team.jinx("tried").unwrap(), Map::new(), &caller).unwrap();
            assert_eq!(result.output, json!(name), "{body}");
        }
        assert_eq!(*source.asked.lock().unwrap(), 2, "{body}");
    }
}

#[test]
fn a_call_is_dispatched_within_a_millisecond() {
    let fixture =
        Fixture::with(team(&["jinx_name: tried\ninputs: [v]\nsteps: [{engine: text, text: '<{{ v }}>'}]"]));
    let model = Scripted::default();
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let caller = Caller {
        npc: fixture.team.npcs.iter().find(|npc| npc.name == "worker"),
        ..Caller::person(&session, &fixture.team)
    };
    let arguments = json!({"v": "x"}).as_object().unwrap().clone();
    let call = alara_engine::ToolCall { id: "call_1".into(), name: "tried".into(), arguments };
    let tools = ["tried".to_owned()];
    // The best of many: other programs may use the processor meanwhile.
    let best = (0..200).map(|_| {
        let begun = std::time::Instant::now();
        assert!(
            crate::run::tool::execute(&caller, &crate::run::tool::Offered::of(&tools), &call).unwrap().ok
        );
        begun.elapsed()
    });
    let best = best.min().unwrap();
    assert!(best.as_micros() < 1000, "{best:?}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(40))]
    /// A called jinx never sees its caller's names, however deep the calls are.
    #[test]
    fn scopes_never_leak_into_calls(names in proptest::collection::vec("[a-d]{1,2}", 1..5), depth in 0usize..4) {

        proptest::prop_assume!(names.iter().all(|name| name != "do"));
        let seen = names.iter().map(|name| format!("'{{{{ {name} is defined }}}}'")).collect::<Vec<_>>().join(", ");
        let probe = format!("jinx_name: probe\ninputs: [{{own: 1}}]\nsteps: [{{return: [{seen}, '{{{{ own }}}}']}}]");
        let mut steps = "[{engine: probe}]".to_owned();
        for level in 0..depth {
            steps = match level % 3 {
                0 => format!("[{{for: {}, in: '[1]', do: {steps}}}]", names[level % names.len()]),
                1 => format!("[{{when: 'true', then: {steps}}}]"),
                _ => format!("[{{try: {steps}}}]"),
            };
        }
        let sets = names.iter().map(|name| format!("{name}: 1")).collect::<std::collections::BTreeSet<_>>();
        let sets = sets.into_iter().collect::<Vec<_>>().join(", ");
        let text = format!("jinx_name: tried\nsteps: [{{set: {{{sets}}}}}, {{name: found, for: x, in: '[0]', do: {steps}}}]");
        let result = play(team(&[&probe, &text]), &json!({}), &Scripted::default(), 1).result;
        let mut flat = &result.output;
        while let Some([Value::Array(_)]) = flat.as_array().map(Vec::as_slice) {
            flat = &flat[0];
        }
        let mut expected = vec![json!(false); names.len()];
        expected.push(json!(1));
        proptest::prop_assert_eq!(flat, &Value::Array(expected), "{}", result.error);
    }
}
