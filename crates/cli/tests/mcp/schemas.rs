//! Forms of tools' schemas: all are offered, called under a grammar, and checked.

use alara_engine::{
    Engine, Event, Finish, Format, Message, Options, Request, Tool, ToolChoice, open, violation,
};
use alara_harness::model::Reply;
use serde_json::{Map, Value, json};

use super::{McpTeam, done};

const TOOLS: [&str; 8] = ["bare", "both", "either", "named", "pattern", "some", "then", "wanted"];

/// Returns the server's tools in the model's format.
fn tools() -> Vec<Tool> {
    let ran = McpTeam::odd("roots").run(vec![done()]);
    assert_eq!((&ran.tools()[1..], ran.warnings.len()), (&TOOLS.map(str::to_owned)[..], 0));
    ran.model.requests()[0].tools[1..].to_vec()
}

/// Returns the arguments that a model writes if it must call this tool.
fn called(engine: &Engine, tools: &[Tool], name: &str) -> Map<String, Value> {
    let request = Request {
        messages: vec![Message::user("Do it.")],
        tools: tools.to_vec(),
        tool_choice: ToolChoice::Named(name.to_owned()),
        string_limit: Some(12),
        max_tokens: Some(400),
        ..Request::default()
    };
    let events = engine.generate(&request).unwrap().collect::<Result<Vec<Event>, _>>().unwrap();
    let call = events.iter().find_map(|event| match event {
        Event::ToolCall(call) if call.name == name => Some(call.arguments.clone()),
        _ => None,
    });
    let finish = events.iter().rev().find_map(|event| match event {
        Event::Done { finish, .. } => Some(*finish),
        _ => None,
    });
    assert_eq!(finish, Some(Finish::ToolCalls), "{name}: {events:?}");
    call.unwrap()
}

#[test]
fn mcp_client_schemas_of_any_root_are_called_under_a_grammar() {
    let tools = tools();
    let file = open(&crate::root().join("models/alara-tiny.gguf")).unwrap();
    for format in ["hermes", "qwen-xml", "json"] {
        let tool_format = Format::from_name(format);
        let options = Options { context: Some(4096), tool_format, ..Options::default() };
        let engine = Engine::load(&file, &options).unwrap();
        for tool in &tools {
            let arguments = called(&engine, &tools, &tool.name);
            // A format that writes arguments one by one can't express dependencies between them: a
            // call that doesn't conform is refused with the reason.
            let loose = format == "qwen-xml"
                && ["either", "some", "both", "then", "pattern"].contains(&tool.name.as_str());
            let wrong = violation(&tool.parameters, &arguments);
            assert!(wrong.is_none() || loose, "{format} {} {arguments:?}: {wrong:?}", tool.name);
        }
    }
}

#[test]
fn mcp_client_arguments_are_held_against_any_root() {
    let check = |tool: &str, arguments: Value, ok: bool| {
        let ran = McpTeam::odd("roots").run(vec![Reply::call(tool, arguments.clone()), done()]);
        let result = &ran.results()[0];
        assert_eq!(result.contains(r#""ok":true"#), ok, "{tool} {arguments}: {result}");
        assert!(ok || result.contains("argument"), "{result}");
    };
    for tool in ["either", "some"] {
        check(tool, json!({"text": "hi"}), true);
        check(tool, json!({"n": 3}), true);
        check(tool, json!({}), false);
        check(tool, json!({"n": 10}), false);
    }
    check("both", json!({"text": "hi", "n": 3}), true);
    check("both", json!({"n": 3}), false);
    check("named", json!({"text": "hi"}), true);
    check("named", json!({"n": 3}), false);
    check("wanted", json!({"text": "hi", "n": [1]}), true);
    check("wanted", json!({"text": "hi"}), false);
    check("then", json!({"text": "a", "n": 3}), true);
    check("then", json!({"text": "b"}), true);
    check("then", json!({"text": "a"}), false);
    check("pattern", json!({"x_a": 3}), true);
    check("pattern", json!({"x_a": "y"}), false);
    check("bare", json!({"any": {"thing": 1}}), true);
}
