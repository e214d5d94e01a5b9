//! Servers' resources, as tools that read.

use alara_harness::model::Reply;
use serde_json::{Value, json};

use super::{McpTeam, done};

fn read(arguments: Value) -> Reply {
    Reply::call("new_read_resource", arguments)
}

#[test]
fn mcp_client_reads_resources() {
    let ran = McpTeam::modern("new").run(vec![
        read(json!({"uri": "file:///one"})),
        read(json!({"uri": "note://today"})),
        read(json!({"uri": "file:///none"})),
        read(json!({})),
        done(),
    ]);
    let tools = &ran.model.requests()[0].tools;
    let tool = tools.iter().find(|tool| tool.name == "new_read_resource").unwrap();
    assert_eq!(
        tool.description,
        "Reads a resource of this MCP server by its URI. Without a URI it lists all resources. Resources:\n- note://{day}: notes\n- file:///one: The first."
    );
    let output = |text: &str| format!(r#"{{"ok":true,"output":{}}}"#, json!(text));
    assert_eq!(
        ran.results(),
        [
            output("All of it."),
            output("note://1:\none\nnote://2:\n[resource note://2, image/png, about 3 bytes, not shown]"),
            r#"{"ok":false,"exit":null,"error":"it refuses: Resource not found (-32602)"}"#.to_owned(),
            output("- note://{day}: notes\n- file:///one: The first.\n- file:///two: two"),
        ]
    );
}

#[test]
fn mcp_client_resources_that_can_not_be_listed() {
    let ran =
        McpTeam::modern("closed").run(vec![read(json!({})), read(json!({"uri": "file:///one"})), done()]);
    // Only the list is missing.
    assert_eq!(ran.warnings, Vec::<String>::new());
    assert_eq!(
        ran.results(),
        [
            r#"{"ok":false,"exit":null,"error":"it refuses: no disk (-32603)"}"#,
            r#"{"ok":true,"output":"All of it."}"#
        ]
    );
}

#[test]
fn mcp_client_resources_are_taken_by_name_too() {
    let tools = |tools: &str| {
        let setup = McpTeam::naming(&format!("[{{name: new, path: modern.sh, tools: {tools}}}]"));
        setup.run(vec![done()]).tools()
    };
    assert_eq!(tools("[a]"), ["shell", "a"]);
    assert_eq!(tools("[read_resource]"), ["shell", "new_read_resource"]);
}
