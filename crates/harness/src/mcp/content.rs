//! Converts the content of a server's response into a result: texts unchanged, other parts
//! described.

use alara_engine::mismatch;
use serde_json::Value;

use crate::types::cut::middle;
use crate::types::{KEPT_BYTES, ToolResult};
use alara_team::mcp::printable;

/// The result of a call of a tool whose output has this schema.
/// It consists of the texts, or of the structured content if there are none; other parts are
/// described.
/// If a text only repeats the structured content, the latter is used, since it is shorter.
pub fn called(mut result: Value, schema: Option<&Value>) -> ToolResult {
    if !result.is_object() {
        return ToolResult::failed("the server's result is no object");
    }
    let blocks = result["content"].take();
    let blocks = blocks.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<String> = blocks.iter().map(text).collect();
    let (text, dropped_bytes) = kept(&texts.join("\n"));
    let structured = result["structuredContent"].take();
    if result["isError"] == true {
        let (error, dropped_bytes) = match text.trim().is_empty() {
            false => (text, dropped_bytes),
            true if says_something(&structured) => kept(&plain(&structured)),
            true => ("the tool failed and does not say why".to_owned(), 0),
        };
        return ToolResult { dropped_bytes, ..ToolResult::failed(error) };
    }
    let odd = schema.filter(|_| !structured.is_null()).and_then(|schema| mismatch(schema, &structured));
    let note = odd.map(|why| format!("this is not what the tool's output schema says: {}", printable(&why)));
    let note = note.unwrap_or_default();
    let repeats = || serde_json::from_str::<Value>(&text).is_ok_and(|told| told == structured);
    if !structured.is_null() && (text.trim().is_empty() || repeats()) {
        let (written, dropped_bytes) = kept(&structured.to_string());
        let output = if dropped_bytes == 0 { structured } else { written.into() };
        return ToolResult { dropped_bytes, note, ..ToolResult::succeeded(output) };
    }
    ToolResult { dropped_bytes, note, ..ToolResult::succeeded(text.trim_end_matches(['\n', '\r'])) }
}

/// Whether a value contains anything.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(items) => items.iter().any(says_something),
        Value::Object(map) => map.values().any(says_something),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// A value as text: JSON, unless it is a single text, alone or under a single key.
fn plain(value: &Value) -> String {
    let only = value.as_object().filter(|map| map.len() == 1).and_then(|map| map.values().next());
    match only.unwrap_or(value) {
        Value::String(text) => text.clone(),
        _ => value.to_string(),
    }
}

/// The contents of a resource; if there are several, each with its address.
pub fn read(result: &Value) -> ToolResult {
    let Some(parts) = result["contents"].as_array() else {
        return ToolResult::failed("the server's answer has no contents");
    };
    let part = |part: &Value| match parts.len() {
        1 => resource(part),
        _ => format!("{}:\n{}", printable(part["uri"].as_str().unwrap_or_default()), resource(part)),
    };
    let (text, dropped_bytes) = kept(&parts.iter().map(part).collect::<Vec<_>>().join("\n"));
    ToolResult { dropped_bytes, ..ToolResult::succeeded(text) }
}

/// The beginning of a text up to the limit, and how many bytes were dropped.
pub fn kept(text: &str) -> (String, u64) {
    let (text, dropped) = middle(text, KEPT_BYTES);
    (text, dropped as u64)
}

/// A block of content as a text.
fn text(block: &Value) -> String {
    let part = |key: &str| block[key].as_str().unwrap_or_default();
    match part("type") {
        "text" => part("text").to_owned(),
        "resource" => resource(&block["resource"]),
        "resource_link" => format!("[resource {} at {}]", printable(part("name")), printable(part("uri"))),
        kind @ ("image" | "audio") => {
            format!(
                "[{kind} {}, about {} bytes, not shown]",
                printable(part("mimeType")),
                bytes(&block["data"])
            )
        }
        kind => format!("[content of the unknown type {}, not shown]", printable(kind)),
    }
}

/// The text of a resource, or a description of it.
fn resource(resource: &Value) -> String {
    let part = |key: &str| printable(resource[key].as_str().unwrap_or_default());
    match &resource["text"] {
        Value::String(text) => text.clone(),
        _ => {
            let kind = part("mimeType");
            let kind = if kind.is_empty() { kind } else { format!(", {kind}") };
            format!("[resource {}{kind}, about {} bytes, not shown]", part("uri"), bytes(&resource["blob"]))
        }
    }
}

/// The approximate number of bytes in some base64.
fn bytes(data: &Value) -> usize {
    data.as_str().map_or(0, |data| data.len() / 4 * 3)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_of_every_kind() {
        let check = |result: Value, ok: bool, expected: Value| {
            let typed = called(result.clone(), None);
            let found = if ok { typed.output.clone() } else { typed.error.clone().into() };
            assert_eq!((typed.ok, found), (ok, expected), "{result}");
        };
        let text = |text: &str| json!({"type": "text", "text": text});
        check(json!({"content": [text("a"), text("b")]}), true, json!("a\nb"));
        check(json!({"content": []}), true, json!(""));
        check(json!({}), true, json!(""));
        for odd in [json!(null), json!("x"), json!([1])] {
            check(odd, false, json!("the server's result is no object"));
        }
        // The structured content is used where no text has more.
        check(
            json!({"content": [text("{ \"n\": 1 }")], "structuredContent": {"n": 1}}),
            true,
            json!({"n": 1}),
        );
        check(json!({"content": [], "structuredContent": [1, 2]}), true, json!([1, 2]));
        check(json!({"content": [text("one")], "structuredContent": {"n": 1}}), true, json!("one"));
        check(json!({"content": [text("3")], "structuredContent": {"result": 3}}), true, json!("3"));
        check(json!({"content": [text("no such row")], "isError": true}), false, json!("no such row"));
        check(json!({"isError": true}), false, json!("the tool failed and does not say why"));
        // An error may be structured only, or in both forms.
        let fails =
            |structured: Value| json!({"content": [], "structuredContent": structured, "isError": true});
        check(fails(json!({"error": "no such row"})), false, json!("no such row"));
        check(fails(json!("no such row")), false, json!("no such row"));
        check(
            fails(json!({"code": 404, "message": "no such row"})),
            false,
            json!(r#"{"code":404,"message":"no such row"}"#),
        );
        check(fails(json!(["a", 2])), false, json!(r#"["a",2]"#));
        for empty in [json!(null), json!({}), json!({"error": " "}), json!([null, ""])] {
            check(fails(empty), false, json!("the tool failed and does not say why"));
        }
        check(
            json!({"content": [text("  ")], "structuredContent": {"error": "why"}, "isError": true}),
            false,
            json!("why"),
        );
        check(
            json!({"content": [text("in words")], "structuredContent": {"code": 1}, "isError": true}),
            false,
            json!("in words"),
        );
        let image = json!({"type": "image", "mimeType": "image/png", "data": "AAAABBBB"});
        check(json!({"content": [image]}), true, json!("[image image/png, about 6 bytes, not shown]"));
        let resource = |resource: Value| json!({"content": [{"type": "resource", "resource": resource}]});
        check(resource(json!({"uri": "file:///a", "text": "all of it"})), true, json!("all of it"));
        check(
            resource(json!({"uri": "file:///a", "blob": "AAAA"})),
            true,
            json!("[resource file:///a, about 3 bytes, not shown]"),
        );
        check(
            resource(json!({"uri": "file:///a", "blob": "AAAA", "mimeType": "image/png"})),
            true,
            json!("[resource file:///a, image/png, about 3 bytes, not shown]"),
        );
        let link = json!({"type": "resource_link", "name": "a\nb", "uri": "file:///a"});
        check(
            json!({"content": [link, {"type": "x"}]}),
            true,
            json!("[resource a b at file:///a]\n[content of the unknown type x, not shown]"),
        );
        let long = called(json!({"content": [text(&"é".repeat(KEPT_BYTES))]}), None);
        let mark = format!("\n[… {KEPT_BYTES} bytes left out …]\n");
        assert_eq!(long.dropped_bytes, KEPT_BYTES as u64);
        assert_eq!(long.output_text(), ["é".repeat(KEPT_BYTES / 4), "é".repeat(KEPT_BYTES / 4)].join(&mark));
    }
    #[test]
    fn structured_content_is_held_against_its_schema() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let check = |structured: Value, note: &str| {
            let found = called(json!({"structuredContent": structured}), Some(&schema));
            assert_eq!((found.ok, &found.output, found.note.as_str()), (true, &structured, note));
        };
        check(json!({"n": 1}), "");
        check(
            json!({"n": "one"}),
            "this is not what the tool's output schema says: /n: \"one\" is not of type \"integer\"",
        );
        check(json!([1]), "this is not what the tool's output schema says: [1] is not of type \"object\"");
    }

    #[test]
    fn contents_of_resources() {
        let check = |result: Value, expected: &str| {
            let found = read(&result);
            assert_eq!(if found.ok { found.output_text().into_owned() } else { found.error }, expected);
        };
        let (one, two) = (json!({"uri": "a:1", "text": "one"}), json!({"uri": "a:2", "blob": "AAAA"}));
        check(json!({"contents": [one]}), "one");
        check(json!({"contents": [one, two]}), "a:1:\none\na:2:\n[resource a:2, about 3 bytes, not shown]");
        check(json!({"contents": []}), "");
        check(json!(3), "the server's answer has no contents");
    }
}
