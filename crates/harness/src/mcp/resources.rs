//! A tool that reads the resources of a server.

use std::fmt::Write;

use serde_json::{Value, json};

use alara_team::mcp::printable;

/// The name of the tool, as if it were the server's; a model sees it as `SERVER_read_resource`.
pub const READ: &str = "read_resource";
/// How many resources the tool's description lists.
pub const SHOWN: usize = 8;
/// Most characters of a description.
const ABOUT: usize = 80;

/// The tool, in the form of a server's list.
/// Its description lists the first resources and templates.
pub fn tool(found: &[Value], templates: &[Value]) -> Value {
    let about = "Reads a resource of this MCP server by its URI. Without a URI it lists all resources.";
    let known = listed(found, templates, SHOWN);
    let description =
        if known.is_empty() { about.to_owned() } else { format!("{about} Resources:\n{known}") };
    json!({
        "name": READ,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {
                "uri": {"type": "string", "description": "As listed, with values in place of each {name}"},
            },
            "additionalProperties": false,
        },
        "annotations": {"readOnlyHint": true},
    })
}

/// A line for each resource and each template, at most this many together: its address and its
/// description.
pub fn listed(found: &[Value], templates: &[Value], most: usize) -> String {
    let found = found.iter().map(|one| (one, "uri"));
    // A few templates describe more than many resources.
    let all: Vec<(&Value, &str)> = templates.iter().map(|one| (one, "uriTemplate")).chain(found).collect();
    let mut text = String::new();
    for (one, key) in all.iter().take(most) {
        let Some(uri) = one[*key].as_str() else { continue };
        let about = ["description", "title", "name"].iter().find_map(|key| one[*key].as_str());
        let about: String = printable(about.unwrap_or_default()).chars().take(ABOUT).collect();
        let about = if about.is_empty() { about } else { format!(": {about}") };
        // Writing to a text does not fail.
        let _ = writeln!(text, "- {}{about}", printable(uri));
    }
    if all.len() > most {
        text += "- and more\n";
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_resources() {
        let file = |n: usize| json!({"uri": format!("file:///{n}"), "name": "one\nline", "title": "A file"});
        let template =
            json!({"uriTemplate": "file:///{path}", "name": "any file", "description": "x".repeat(200)});
        let text = listed(&[file(1)], &[template.clone(), json!({"name": "none"})], 9);
        assert_eq!(text, format!("- file:///{{path}}: {}\n- file:///1: A file", "x".repeat(80)));
        let many: Vec<Value> = (0..20).map(file).collect();
        let tool = tool(&many, &[template]);
        let description = tool["description"].as_str().unwrap();
        assert_eq!(description.lines().count(), 1 + SHOWN + 1);
        assert!(description.ends_with("- file:///6: A file\n- and more"), "{description}");
        assert_eq!(listed(&[], &[], 9), "");
    }
}
