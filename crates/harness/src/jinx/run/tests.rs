use alara_engine::Message;

use super::*;
use crate::ground::Ground;
use crate::jinx::Offer;
use crate::model::{Reply, Scripted, Single};
use crate::session::Session;
use crate::team::load_jinx;

fn run_with(text: &str, arguments: &Value, model: &Scripted) -> ToolResult {
    let ground = Ground::new();
    let path = ground.work().join("tried.jinx");
    std::fs::write(&path, text).unwrap();
    let (jinx, diagnostics) = load_jinx(&path).unwrap();
    assert_eq!(diagnostics, []);
    let source = Single(model);
    let session = Session::new(&source, &ground.sandbox);
    let arguments = jinx.arguments(arguments.as_object().unwrap(), &Offer::default()).unwrap();
    run(&jinx, arguments, &Caller::person(&session, &ground.team)).unwrap()
}

fn check(text: &str, arguments: &Value, expected: &str) {
    assert_eq!(run_with(text, arguments, &Scripted::default()).text(1000), expected, "{text}");
}

#[test]
fn values_reach_bash_as_data() {
    let jinx = "inputs: [text, {count: 2}, {flags: []}]\nsteps: [{engine: bash, code: 'echo \"$text|$count|$flags\"'}]";
    check(
        jinx,
        &json!({"text": "'; rm -rf / #`id`$(id){{ x }}"}),
        r#"{"ok":true,"output":"'; rm -rf / #`id`$(id){{ x }}|2|[]"}"#,
    );
    check(
        jinx,
        &json!({"text": "a", "count": 7, "flags": ["x", 1]}),
        r#"{"ok":true,"output":"a|7|[\"x\",1]"}"#,
    );
    check(
        jinx,
        &json!({"text": "x".repeat(200_000)}),
        r#"{"ok":false,"exit":null,"error":"`text` is too long: 200000 bytes, at most 130816 fit"}"#,
    );
    check(
        jinx,
        &json!({"text": "a\u{0}b"}),
        r#"{"ok":false,"exit":null,"error":"`text` contains a NUL character"}"#,
    );
}

#[test]
fn values_reach_python_as_data() {
    let python =
        |code: &str| format!("inputs: [text]\nsteps:\n  - engine: python\n    code: {}", json!(code));
    let check = |code: &str, expected: &str| check(&python(code), &json!({"text": "'\"\n\\"}), expected);
    check("output = context['text']", r#"{"ok":true,"output":"'\"\n\\"}"#);
    check("print('a'); import os; os.system('echo b')", r#"{"ok":true,"output":"b\na"}"#);
    check("print('lost'); output = {'n': 1}", r#"{"ok":true,"output":"{\"n\": 1}"}"#);
    check("found = 'found 0 errors'\nprint(found)", r#"{"ok":true,"output":"found 0 errors"}"#);
    check("raise SystemExit('no such thing')", r#"{"ok":false,"exit":1,"error":"no such thing"}"#);
    check("raise SystemExit(4)", r#"{"ok":false,"exit":4,"error":"exit status 4"}"#);
    check("x = 1\ncontext['nope']", r#"{"ok":false,"exit":1,"error":"KeyError: 'nope' (line 2)"}"#);
    check(
        "open('nope')",
        r#"{"ok":false,"exit":1,"error":"FileNotFoundError: [Errno 2] No such file or directory: 'nope'"}"#,
    );
    check("import sys; print(repr(sys.stdin.read()))", r#"{"ok":true,"output":"''"}"#);
}

#[test]
fn steps_see_earlier_results_and_end_at_a_failure() {
    let three = r#"
inputs: [name]
steps:
  - {name: first, engine: bash, code: 'echo "bash $name"'}
  - {name: second, engine: python, code: "output = context['first'] + ' python'"}
  - {name: third, engine: llm, prompt: "Say {{ second }}"}
"#;
    let model = Scripted::new([Reply::text(" said \n")]);
    assert_eq!(run_with(three, &json!({"name": "x"}), &model).text(1000), r#"{"ok":true,"output":"said"}"#);
    let requests = model.requests();
    assert_eq!(requests[0].messages, [Message::user("Say bash x python")]);
    assert!(requests[0].tools.is_empty());

    let held = "steps: [{engine: llm, prompt: 'How far?', schema: {type: object, required: [km], properties: {km: {type: integer}}}}]";
    let model = Scripted::new([Reply::text("{\"km\": 5}")]);
    assert_eq!(run_with(held, &json!({}), &model).text(1000), r#"{"ok":true,"output":"{\"km\":5}"}"#);
    assert_eq!(
        model.requests()[0].schema,
        Some(json!({"type": "object", "required": ["km"], "properties": {"km": {"type": "integer"}}}))
    );

    let broken = "steps: [{engine: bash, code: 'echo part; echo why >&2; exit 9'}, {engine: bash, code: 'touch late'}]";
    check(broken, &json!({}), r#"{"ok":false,"exit":9,"output":"part","error":"why"}"#);
    let undefined = "steps: [{engine: llm, prompt: '{{ nothing }}'}]";
    let result = run_with(undefined, &json!({}), &Scripted::default());
    assert!(result.error.starts_with("the prompt can't be rendered: undefined value"), "{result:?}");
}

#[test]
fn a_timeout_says_so() {
    let slow = "timeout: 0.2\nsteps: [{engine: bash, code: 'echo begun; sleep 30'}]";
    check(slow, &json!({}), r#"{"ok":false,"exit":null,"output":"begun","error":"timed out after 0.2 s"}"#);
}

#[test]
fn stock_tools_work() {
    let ground = Ground::new();
    let npc = ground.team.npc(None).unwrap();
    let model = Scripted::default();
    let source = Single(&model);
    let session = Session::new(&source, &ground.sandbox);
    let caller = Caller { npc: Some(npc), ..Caller::person(&session, &ground.team) };
    let check = |name: &str, arguments: Value, expected: &str| {
        let arguments = arguments.as_object().unwrap().clone();
        let call = alara_engine::ToolCall { id: String::new(), name: name.to_owned(), arguments };
        let result = crate::tool::execute(&caller, &npc.jinxes, &call).unwrap();
        assert_eq!(result.text(200), expected, "{name}");
    };
    check(
        "write_file",
        json!({"path": "a/b.txt", "content": "one\ntwo"}),
        r#"{"ok":true,"output":"wrote a/b.txt"}"#,
    );
    check("read_file", json!({"path": "a/b.txt"}), r#"{"ok":true,"output":"one\ntwo"}"#);
    check(
        "edit_file",
        json!({"path": "a/b.txt", "find": "two", "replace": "three"}),
        r#"{"ok":true,"output":"changed a/b.txt"}"#,
    );
    check(
        "edit_file",
        json!({"path": "a/b.txt", "find": "e", "replace": ""}),
        r#"{"ok":false,"exit":1,"error":"the text occurs 3 times in a/b.txt, it must occur once"}"#,
    );
    check("shell", json!({"command": "cat a/b.txt | wc -l"}), r#"{"ok":true,"output":"2"}"#);
    check("python", json!({"code": "print(6 * 7)"}), r#"{"ok":true,"output":"42"}"#);
    check(
        "read_file",
        json!({"path": "none"}),
        r#"{"ok":false,"exit":1,"error":"cat: none: No such file or directory"}"#,
    );
    let half = "y".repeat(100);
    check(
        "shell",
        json!({"command": "printf %01000d 0 | tr 0 y"}),
        &format!(r#"{{"ok":true,"output":"{half}\n…\n{half}","truncated_bytes":800}}"#),
    );
    check("shell", json!({}), r#"{"ok":false,"exit":null,"error":"argument `command` is missing"}"#);
    check(
        "shell",
        json!({"command": 1}),
        r#"{"ok":false,"exit":null,"error":"argument `command` must be of type string"}"#,
    );
    check(
        "shell",
        json!({"cmd": "ls"}),
        r#"{"ok":false,"exit":null,"error":"`shell` has no argument `cmd`; it takes: command"}"#,
    );
    check(
        "delegate",
        json!({}),
        r#"{"ok":false,"exit":null,"error":"`delegate` is not permitted; the tools are: shell, python, read_file, write_file, edit_file"}"#,
    );
}
