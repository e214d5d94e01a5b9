//! A tool as one line, written like a function of a programming language: a fraction of the tokens
//! of its JSON schema.
//!
//! `read_file(path: string, lines?: integer): Return the text of a file`, followed by a line for
//! each parameter that has a description.
//! Types are written as in TypeScript.
//! Constraints that a type can't express (lengths, patterns) are enforced by the grammar, or
//! reported when a call is refused.

use serde_json::{Map, Value};

/// How deep types are written out; deeper objects are `object`.
const DEPTH: usize = 4;

/// The lines of a tool: `function` has `name`, `description` and `parameters`.
pub(super) fn signature(function: &Value) -> String {
    let root = &function["parameters"];
    let none = Map::new();
    let properties = root.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let mut lines = vec![format!(
        "- {}({}): {}",
        function["name"].as_str().unwrap_or_default(),
        fields(root, root, 0).join(", "),
        function["description"].as_str().unwrap_or_default().trim()
    )];
    for (name, schema) in properties {
        if let Some(text) =
            schema.get("description").and_then(Value::as_str).filter(|text| !text.trim().is_empty())
        {
            lines.push(format!("  {name}: {}", text.trim()));
        }
    }
    lines.join("\n")
}

/// `name: type` of each property, with `?` if it is optional.
fn fields(schema: &Value, root: &Value, depth: usize) -> Vec<String> {
    let required = |name: &str| {
        let list = schema.get("required").and_then(Value::as_array);
        list.is_some_and(|list| list.iter().any(|required| required == name))
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    let field = |(name, schema): (&String, &Value)| {
        let optional = if required(name) { "" } else { "?" };
        format!("{name}{optional}: {}", kind(schema, root, depth + 1))
    };
    properties.into_iter().flatten().map(field).collect()
}

/// The type of a schema's values.
fn kind(schema: &Value, root: &Value, depth: usize) -> String {
    let several = |options: &[Value]| {
        let mut kinds: Vec<String> = options.iter().map(|option| kind(option, root, depth)).collect();
        kinds.dedup();
        kinds.join(" | ")
    };
    let get = |key: &str| schema.get(key);
    if depth > DEPTH {
        return plain(schema).to_owned();
    }
    if let Some(target) = get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#')) {
        return root.pointer(target).map_or("any".to_owned(), |schema| kind(schema, root, depth + 1));
    }
    if let Some(value) = get("const") {
        return value.to_string();
    }
    if let Some(values) = get("enum").and_then(Value::as_array) {
        return values.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    if let Some(options) = get("anyOf").or(get("oneOf")).and_then(Value::as_array) {
        return several(options);
    }
    match get("type") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | "),
        Some(Value::String(name)) if name == "array" => {
            let item = get("items").map_or("any".to_owned(), |items| kind(items, root, depth + 1));
            if item.contains([' ', '|']) { format!("({item})[]") } else { format!("{item}[]") }
        }
        Some(Value::String(name)) if name == "string" => match get("format").and_then(Value::as_str) {
            Some(format) => format!("string ({format})"),
            None => name.clone(),
        },
        _ if get("properties").is_some_and(|map| map.as_object().is_some_and(|map| !map.is_empty())) => {
            format!("{{{}}}", fields(schema, root, depth).join(", "))
        }
        _ => plain(schema).to_owned(),
    }
}

fn plain(schema: &Value) -> &str {
    schema.get("type").and_then(Value::as_str).unwrap_or("any")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_are_written_as_functions() {
        let check = |properties: Value, expected: &str| {
            let parameters = json!({
                "type": "object", "properties": properties, "required": ["a"],
                "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
            });
            let tool = json!({"name": "f", "description": "Does it.\n", "parameters": parameters});
            assert_eq!(signature(&tool), expected);
        };
        check(json!({}), "- f(): Does it.");
        check(
            json!({"a": {"type": "string", "description": "What"}, "b": {"type": "integer"}}),
            "- f(a: string, b?: integer): Does it.\n  a: What",
        );
        check(
            json!({"a": {"enum": ["x", 1]}, "b": {"type": ["string", "null"]}, "c": {"anyOf": [{"type": "number"}, {"const": "all"}]}}),
            "- f(a: \"x\" | 1, b?: string | null, c?: number | \"all\"): Does it.",
        );
        check(
            json!({"a": {"type": "array", "items": {"type": "string"}}, "b": {"type": "array", "items": {"enum": [1, 2]}}}),
            "- f(a: string[], b?: (1 | 2)[]): Does it.",
        );
        check(
            json!({"a": {"type": "object", "properties": {"x": {}, "when": {"type": "string", "format": "date"}}}}),
            "- f(a: {x?: any, when?: string (date)}): Does it.",
        );
        check(
            json!({"a": {"$ref": "#/$defs/node"}, "b": {"$ref": "#/nowhere"}}),
            "- f(a: {next?: {next?: any}}, b?: any): Does it.",
        );
    }
}
