//! Cleans a server's descriptions of its tools: names that prompts can contain, texts of bounded
//! length, valid schemas.

use std::collections::BTreeMap;

use alara_engine::loosened;
use serde_json::Value;

use super::headers::{self, Mirror};
use super::schema;
use alara_team::mcp::{NAME_BYTES, printable};
use alara_team::types::Effect;

/// Most tools of one server.
pub(crate) const MOST_TOOLS: usize = 128;
/// Longest description.
const DESCRIPTION_BYTES: usize = 1024;

/// A tool that a server offers, within limits.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedTool {
    /// The server's name for it.
    pub name: String,
    pub description: String,
    /// The schema of an object; its `properties` contain all arguments that it declares.
    pub parameters: Value,
    /// The effect that the server claims: it is shown, but permits nothing.
    pub effect: Effect,
    /// The schema of the structured content in its results.
    pub output: Option<Value>,
    /// The arguments that are repeated in headers.
    pub mirrors: Vec<Mirror>,
}

/// The usable tools of a server's list, by name.
/// Problems with the others go to `remarks`.
/// `with_headers` tells whether calls of them repeat arguments in headers.
pub fn read(tools: &[Value], with_headers: bool, remarks: &mut Vec<String>) -> Vec<ListedTool> {
    if tools.len() > MOST_TOOLS {
        remarks.push(format!("it offers more than {MOST_TOOLS} tools: only the first ones are taken"));
    }
    let mut found: BTreeMap<String, ListedTool> = BTreeMap::new();
    for tool in tools.iter().take(MOST_TOOLS) {
        let name = tool["name"].as_str().unwrap_or_default();
        if name.is_empty() || name.len() > 4 * NAME_BYTES {
            remarks.push(format!("a tool has no name that can be used: `{}`", printable(name)));
            continue;
        }
        let shown = printable(name);
        let parameters = match schema::parameters(&tool["inputSchema"]) {
            Ok(parameters) => parameters,
            Err(reason) => {
                remarks.push(format!("its tool `{shown}` is left out: {reason}"));
                continue;
            }
        };
        // A constraint that can be checked, but not guaranteed, is no reason: a call that violates
        // it fails with a message.
        if let Err(refusal) = loosened(&parameters) {
            let reason = refusal.to_string();
            remarks.push(format!(
                "its tool `{shown}` is left out, since arguments for it can't be guaranteed to be valid: {}",
                printable(&reason)
            ));
            continue;
        }
        let mirrors = if with_headers { headers::read(&parameters) } else { Ok(Vec::new()) };
        let mirrors = match mirrors {
            Ok(mirrors) => mirrors,
            Err(reason) => {
                remarks.push(format!("its tool `{shown}` is left out: {}", printable(&reason)));
                continue;
            }
        };
        let annotations = &tool["annotations"];
        let text =
            [&tool["description"], &tool["title"], &annotations["title"]].into_iter().find_map(Value::as_str);
        let description = bounded(text.unwrap_or_default().trim(), DESCRIPTION_BYTES);
        if found.contains_key(name) {
            remarks.push(format!("it offers two tools `{shown}`: the first one counts"));
            continue;
        }
        let effect = if annotations["readOnlyHint"] == true { Effect::Read } else { Effect::Write };
        let output = tool.get("outputSchema").filter(|output| output.to_string().len() <= schema::BYTES);
        let (name, output) = (name.to_owned(), output.cloned());
        found.insert(name.clone(), ListedTool { name, description, parameters, effect, output, mirrors });
    }
    found.into_values().collect()
}

/// A text of at most this many bytes, without control characters except line ends.
fn bounded(text: &str, most: usize) -> String {
    let clean: String = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    if clean.len() <= most {
        return clean;
    }
    format!("{}…", &clean[..clean.floor_char_boundary(most - '…'.len_utf8())])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_one(tool: Value) -> (Option<ListedTool>, Vec<String>) {
        let mut remarks = Vec::new();
        (read(&[tool], true, &mut remarks).pop(), remarks)
    }

    #[test]
    fn schemas_are_closed_and_must_hold() {
        let check = |schema: Value, expected: Value| {
            let (offer, remarks) = read_one(json!({"name": "t", "inputSchema": schema}));
            assert_eq!((offer.unwrap().parameters, remarks), (expected, Vec::<String>::new()));
        };
        let empty = json!({"type": "object", "properties": {}, "additionalProperties": false});
        check(Value::Null, empty.clone());
        check(json!({"$schema": "x", "title": "y", "type": "object", "properties": {}}), empty);
        // As such servers write them: references, optional values.
        let schema = json!({
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null}},
            "required": ["a"],
            "$defs": {"A": {"type": "object", "properties": {"n": {"type": "string", "format": "uri"}}}},
            "additionalProperties": false,
        });
        check(schema.clone(), schema);
        let refuse = |schema: Value, words: &str| {
            let (offer, remarks) = read_one(json!({"name": "t", "inputSchema": schema}));
            assert!(offer.is_none() && remarks[0].contains(words), "{remarks:?}");
        };
        refuse(json!({"type": "array"}), "not that of an object");
        refuse(json!("x"), "not that of an object");
        refuse(
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(x"}}}),
            "can't be guaranteed",
        );
        // A constraint that is checked when a call arrives need not be guaranteed.
        let looking = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}});
        let (offer, remarks) = read_one(json!({"name": "t", "inputSchema": looking}));
        assert!(offer.is_some() && remarks.is_empty(), "{remarks:?}");
        refuse(
            json!({"type": "object", "properties": {"a": {"enum": ["x".repeat(schema::BYTES)]}}}),
            "at most 16384",
        );
    }

    #[test]
    fn what_servers_say_beside() {
        let check = |tool: Value, effect: Effect, description: &str| {
            let offer = read_one(tool).0.unwrap();
            assert_eq!((offer.effect, offer.description.as_str()), (effect, description));
        };
        check(json!({"name": "t", "annotations": {"readOnlyHint": true, "title": "A"}}), Effect::Read, "A");
        check(json!({"name": "t", "title": "B", "annotations": {"readOnlyHint": "yes"}}), Effect::Write, "B");
        check(json!({"name": "t", "description": "C", "title": "B"}), Effect::Write, "C");
        let header = json!({"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}});
        let (offer, remarks) = read_one(json!({"name": "t", "inputSchema": header}));
        assert!(offer.is_none() && remarks[0].contains("`x-mcp-header` of `a`"), "{remarks:?}");
    }

    #[test]
    fn texts_are_bounded() {
        let (offer, _) =
            read_one(json!({"name": "t", "description": format!(" a\u{1b}[2J\nb{}", "é".repeat(2000))}));
        let description = offer.unwrap().description;
        assert!(description.starts_with("a[2J\nbé") && description.ends_with("é…"), "{description}");
        assert!((DESCRIPTION_BYTES - 4..=DESCRIPTION_BYTES).contains(&description.len()));
        for odd in [json!({}), json!({"name": 3}), json!({"name": "x".repeat(1000)})] {
            assert!(matches!(read_one(odd), (None, remarks) if remarks.len() == 1));
        }
    }
}
