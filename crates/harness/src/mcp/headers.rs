//! The HTTP headers in which a modern request repeats parts of its content, so that intermediaries
//! can read them.
//!
//! Source: "Request Metadata" of Streamable HTTP, 2026-07-28.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

/// The header with the protocol's version, after it has been agreed on.
pub const VERSION: &str = "MCP-Protocol-Version";
/// The schema keyword that requests an argument as a header.
const KEY: &str = "x-mcp-header";
/// The prefix and suffix of an encoded value.
const ENCODED: (&str, &str) = ("=?base64?", "?=");
/// The greatest whole number that every implementation represents exactly.
const GREATEST: i64 = (1 << 53) - 1;

/// An argument that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The part of the header's name after `Mcp-Param-`.
    name: String,
    /// Its path among the arguments.
    path: Vec<String>,
}

/// The headers about the message itself: its method, and its tool or resource.
pub fn standard(message: &Value) -> Vec<(String, String)> {
    let params = &message["params"];
    let method = message["method"].as_str().unwrap_or_default();
    let about = match method {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        _ => None,
    };
    let mut headers = vec![("Mcp-Method".to_owned(), method.to_owned())];
    headers.extend(about.map(|name| ("Mcp-Name".to_owned(), encoded(name))));
    headers
}

/// The headers that a tool's schema requests, with the arguments of a call.
pub(crate) fn mirrored(mirrors: &[Mirror], arguments: &Map<String, Value>) -> Vec<(String, String)> {
    let header = |mirror: &Mirror| {
        let (first, rest) = mirror.path.split_first()?;
        let value = rest.iter().try_fold(arguments.get(first)?, |value, key| value.get(key))?;
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Bool(_) => value.to_string(),
            Value::Number(number) => number.as_i64().filter(|whole| whole.abs() <= GREATEST)?.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        Some((format!("Mcp-Param-{}", mirror.name), encoded(&text)))
    };
    mirrors.iter().filter_map(header).collect()
}

/// The arguments that a tool's schema wants repeated in headers.
///
/// # Errors
/// The schema requests this in a forbidden place, or with an invalid name; then the tool is
/// unusable.
pub fn read(schema: &Value) -> Result<Vec<Mirror>, String> {
    let mut found: Vec<Mirror> = Vec::new();
    walk(schema, &mut Vec::new(), &mut found)?;
    if count(schema) != found.len() {
        return Err(format!("its schema has `{KEY}` where no argument stands for sure"));
    }
    Ok(found)
}

fn walk(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Mirror>) -> Result<(), String> {
    let Some(properties) = schema["properties"].as_object() else { return Ok(()) };
    for (key, property) in properties {
        path.push(key.clone());
        if let Some(name) = property.get(KEY) {
            let name = name.as_str().unwrap_or_default();
            let simple = ["string", "integer", "boolean"].iter().any(|kind| property["type"] == *kind);
            let again = found.iter().any(|other| other.name.eq_ignore_ascii_case(name));
            if !is_token(name) || !simple || again {
                return Err(format!("`{KEY}` of `{}` is not what it must be", path.join(".")));
            }
            found.push(Mirror { name: name.to_owned(), path: path.clone() });
        }
        walk(property, path, found)?;
        path.pop();
    }
    Ok(())
}

/// How often the keyword occurs as an annotation; an argument may have that name too.
fn count(schema: &Value) -> usize {
    match schema {
        Value::Object(object) => {
            let within = |(key, value): (&String, &Value)| match (key.as_str(), value) {
                ("properties" | "$defs" | "definitions" | "patternProperties", Value::Object(named)) => {
                    named.values().map(count).sum()
                }
                (KEY, _) => 1,
                ("enum" | "const" | "default" | "examples", _) => 0,
                (_, value) => count(value),
            };
            object.iter().map(within).sum()
        }
        Value::Array(items) => items.iter().map(count).sum(),
        _ => 0,
    }
}

/// Whether a text is a valid header name (RFC 9110, 5.6.2).
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

/// A value encoded for a header.
fn encoded(text: &str) -> String {
    let (open, close) = ENCODED;
    let plain = text.chars().all(|c| c == '\t' || c == ' ' || c.is_ascii_graphic());
    if plain && text.trim() == text && !(text.starts_with(open) && text.ends_with(close)) {
        return text.to_owned();
    }
    format!("{open}{}{close}", BASE64_STANDARD.encode(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_as_headers_carry_them() {
        let check = |text: &str, expected: &str| assert_eq!(encoded(text), expected);
        // The examples of the specification.
        check("us-west1", "us-west1");
        check("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?=");
        check(" padded ", "=?base64?IHBhZGRlZCA=?=");
        check("line1\nline2", "=?base64?bGluZTEKbGluZTI=?=");
        check("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=");
    }

    #[test]
    fn arguments_that_are_repeated() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", KEY: "Region"},
            "inner": {"type": "object", "properties": {"n": {"type": "integer", KEY: "N"}}},
            KEY: {"type": "string"},
        }});
        let mirrors = read(&schema).unwrap();
        let sent = |arguments: Value| mirrored(&mirrors, arguments.as_object().unwrap());
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            sent(json!({"region": "é", "inner": {"n": -7}})),
            [header("Mcp-Param-Region", "=?base64?w6k=?="), header("Mcp-Param-N", "-7")]
        );
        assert_eq!(sent(json!({"region": null, "inner": {}})), []);
        assert_eq!(sent(json!({"inner": {"n": 1_i64 << 53}})), []);
        let call = json!({"method": "tools/call", "params": {"name": "a b"}});
        assert_eq!(standard(&call), [header("Mcp-Method", "tools/call"), header("Mcp-Name", "a b")]);
    }

    #[test]
    fn schemas_that_ask_wrongly() {
        let refused = |property: Value| {
            let schema = json!({"type": "object", "properties": {"a": property}});
            assert!(read(&schema).is_err(), "{schema}");
        };
        refused(json!({"type": "number", KEY: "A"}));
        refused(json!({"type": "string", KEY: ""}));
        refused(json!({"type": "string", KEY: "A\r\nB"}));
        refused(json!({"type": "string", KEY: 3}));
        refused(json!({"type": "array", "items": {"type": "string", KEY: "A"}}));
        refused(json!({"anyOf": [{"type": "string", KEY: "A"}]}));
        refused(json!({"type": "object", "properties": {
            "b": {"type": "string", KEY: "A"}, "c": {"type": "string", KEY: "a"}}}));
        assert_eq!(read(&json!({"type": "object"})), Ok(Vec::new()));
    }
}
