use serde_json::{Map, json};

use super::*;
use crate::grammar::fits;

fn tools() -> Vec<Tool> {
    let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}}});
    ["shell", "read_file"]
        .map(|name| Tool {
            name: name.into(),
            description: String::new(),
            parameters: parameters.clone(),
            strict: false,
        })
        .into()
}

fn call(id: &str) -> ToolCall {
    let arguments = Map::from_iter([("command".to_owned(), json!("ls -l > \"a b\""))]);
    ToolCall { id: id.into(), name: "shell".into(), arguments }
}

const HERMES: &str = "<tool_call>\n{\"name\": \"shell\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>";

/// A short form of the result: `text | name{arguments} …`, `tool?`, or nothing.
fn outcome(text: &str) -> String {
    match written(text, &tools(), &fits) {
        None => String::new(),
        Some(Written::Attempt { tool }) => format!("{tool}?"),
        Some(Written::Calls { text, calls }) => {
            let calls = calls.iter().map(|call| {
                format!("{}{}", call.name, serde_json::to_string(&call.arguments).unwrap_or_default())
            });
            format!("{text} | {}", calls.collect::<Vec<_>>().join(" "))
        }
    }
}

#[test]
fn calls_of_every_format_are_found_behind_a_text() {
    let marked = |format: &&&'static Format| **format != Format::generic() && !format.in_fences();
    for format in Format::all().iter().filter(marked) {
        let text = format.render_calls(&[call("call00001")]).unwrap();
        for (before, after) in [("", ""), ("I look:\n\n", "\n"), ("<think>\nls?\n</think>\n\n", "")] {
            let Some(Written::Calls { text, calls }) =
                written(&format!("{before}{text}{after}"), &tools(), &fits)
            else {
                panic!("{} behind {before:?}", format.name);
            };
            assert_eq!(text, before.trim_end());
            let expected = call("call00001");
            assert_eq!((&calls[0].name, &calls[0].arguments), (&expected.name, &expected.arguments));
            assert_eq!(calls.len(), 1);
        }
    }
}

#[test]
fn calls_as_models_leave_them_in_their_text() {
    let check = |text: &str, expected: &str| assert_eq!(outcome(text), expected, "{text}");
    let found = " | shell{\"command\":\"ls\"}";
    check(HERMES, found);
    check(&HERMES.replace('\n', ""), found);
    check(HERMES.trim_end_matches("\n</tool_call>"), found);
    check(&HERMES.replace("arguments", "parameters"), found);
    check(&format!("{HERMES}\n{HERMES}\n"), &format!("{found} shell{{\"command\":\"ls\"}}"));
    check(&format!("`ls` lists files.\n{HERMES}"), &format!("`ls` lists files.{found}"));
    check(r#"{"name": "shell", "parameters": {"command": "ls"}}"#, " | shell{\"command\":\"ls\"}");
    check(
        r#"{"type": "function", "name": "shell", "arguments": {"command": "ls"}}"#,
        " | shell{\"command\":\"ls\"}",
    );
    check(
        "<|python_tag|>{\"name\": \"shell\", \"parameters\": {\"command\": \"ls\"}}",
        " | shell{\"command\":\"ls\"}",
    );
    check(
        "<|channel|>analysis<|message|>List it.<|end|><|start|>assistant<|channel|>commentary to=functions.shell \
            <|constrain|>json<|message|>{\"command\": \"ls\"}<|call|>",
        " | shell{\"command\":\"ls\"}",
    );
    check("<tool_call>shell</tool_call>", " | shell{}");
}

#[test]
fn what_can_not_be_made_as_it_stands_is_an_attempt() {
    let check = |text: &str, expected: &str| assert_eq!(outcome(text), expected, "{text}");
    // Text follows the call, or separates two.
    check(&format!("{HERMES}\nThis lists the files."), "shell?");
    check(&format!("{HERMES}\nand then\n{HERMES}"), "shell?");
    // Broken arguments, a call cut off, a tool that isn't offered.
    check(&HERMES[..50], "shell?");
    check(&HERMES.replace("shell", "rm"), "");
    check(r#"{"name": "shell", "parameters": {"command": "ls"#, "shell?");
    check(r#"{"name": "shell", "parameters": {"command": "grep "a" b"}}"#, "shell?");
    // A server has removed the marks.
    check("commentary to=functions.shell json{\"command\": \"ls\"}", "shell?");
    check("analysis<function=shell>\n<parameter=command>", "shell?");
    // With this much text it is an answer.
    check(&format!("{}{HERMES}", "word ".repeat(500)), "shell?");
}

#[test]
fn text_about_calls_is_no_call() {
    let check = |text: &str| assert_eq!(outcome(text), "", "{text}");
    check("The shell lists files.");
    check(&format!("An example of Hermes:\n```\n{HERMES}\n```"));
    check(&format!("Hermes writes:\n~~~xml\n{HERMES}\n~~~\nThat is it."));
    check(&format!("An example, not closed:\n```xml\n{HERMES}"));
    check(&format!("Hermes writes `{}`", HERMES.replace('\n', "")));
    check(&format!("Hermes writes ``{}``.", HERMES.replace('\n', "")));
    check(&format!("> {}", HERMES.replace('\n', "")));
    check(&format!("It writes \"{}\".", HERMES.replace('\n', "")));
    check("A call stands between <tool_call> and </tool_call>; you have a shell there.");
    check(r#"{"name": "shell", "description": "runs a command"}"#);
    check(r#"{"name": "bash", "arguments": {"command": "ls"}}"#);
    check("");
    assert_eq!(written(HERMES, &[], &fits), None);
}

/// An answer of a small model, and the calls in it.
#[derive(serde::Deserialize)]
struct Row {
    name: String,
    text: String,
    expect: Expected,
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Expected {
    Calls {
        calls: Vec<Call>,
        #[serde(default)]
        text: String,
    },
    Broken {
        broken: String,
    },
    Text(String),
}

#[derive(serde::Deserialize)]
struct Call {
    name: String,
    arguments: Map<String, serde_json::Value>,
}

#[derive(serde::Deserialize)]
struct Named {
    name: String,
    parameters: serde_json::Value,
}

#[derive(serde::Deserialize)]
struct Rows {
    tools: Vec<Named>,
    texts: Vec<Row>,
}

#[test]
fn calls_in_every_dress() {
    let rows: Rows =
        serde_saphyr::from_str(include_str!("../../../../../tests/fixtures/chat/written-calls.yaml"))
            .unwrap();
    let tool = |tool: &Named| Tool {
        name: tool.name.clone(),
        description: String::new(),
        parameters: tool.parameters.clone(),
        strict: false,
    };
    let tools: Vec<Tool> = rows.tools.iter().map(tool).collect();
    let mut wrong = Vec::new();
    for Row { name, text, expect } in rows.texts {
        let found = written(&text, &tools, &fits);
        let right = match (&expect, &found) {
            (Expected::Calls { calls, text: before }, Some(Written::Calls { text, calls: found })) => {
                let reasoning = reasoning(text);
                calls.len() == found.len()
                    && text[reasoning..] == *before
                    && calls
                        .iter()
                        .zip(found)
                        .all(|(call, found)| call.name == found.name && call.arguments == found.arguments)
            }
            (Expected::Broken { broken }, Some(Written::Attempt { tool })) => broken == tool,
            (Expected::Text(kind), None) => kind == "text",
            _ => false,
        };
        if !right {
            wrong.push(format!("{name}: {found:?}\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{} of the texts are read wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}
