//! JSON schemas of tool arguments, made ready for llguidance.
//!
//! Objects are closed, separators are fixed to those that templates print, and strings have exactly one spelling, so
//! that a generated call equals its rendering.

use serde_json::{Map, Value, json};

/// Keywords that llguidance honours, and those that only annotate. Source: llguidance 1.9.1, `src/json/schema.rs`.
const HONOURED: [&str; 42] = [
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "const",
    "enum",
    "type",
    "items",
    "additionalItems",
    "prefixItems",
    "minItems",
    "maxItems",
    "properties",
    "additionalProperties",
    "patternProperties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "$anchor",
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "id",
    "$comment",
    "title",
    "description",
    "default",
    "readOnly",
    "writeOnly",
    "examples",
    "contentMediaType",
    "contentEncoding",
];

/// Keywords whose value is a map of names to schemas.
const MAPS: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// A tool's `parameters` as the grammar uses them.
pub(super) fn arguments(parameters: &Value) -> Value {
    let mut schema = match parameters {
        Value::Object(map) if !map.is_empty() => parameters.clone(),
        _ => json!({"type": "object"}),
    };
    if let Value::Object(root) = &mut schema {
        // Arguments are an object, whatever else the schema leaves open.
        root.entry("type").or_insert_with(|| "object".into());
        if !composed(root) {
            root.entry("properties").or_insert_with(|| json!({}));
        }
    }
    close(&mut schema);
    schema["x-guidance"] = json!({
        "whitespace_flexible": false,
        "item_separator": ", ",
        "key_separator": ": ",
        // Without `u`: a character that can be written as itself is.
        "json_allowed_escapes": "nrbtf\\\"",
    });
    schema
}

/// Whether other subschemas have a say in which keys an object has.
fn composed(schema: &Map<String, Value>) -> bool {
    ["allOf", "anyOf", "oneOf", "$ref", "patternProperties", "unevaluatedProperties"]
        .iter()
        .any(|key| schema.contains_key(*key))
}

/// Refuses undeclared keys in objects that declare some, unless the schema says something else about them. What
/// `allOf` joins is left open: closed parts would exclude each other.
fn close(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    let declares = map.contains_key("properties");
    if declares && !composed(map) {
        map.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    for (key, value) in map.iter_mut() {
        match value {
            Value::Object(schemas) if MAPS.contains(&key.as_str()) => schemas.values_mut().for_each(close),
            Value::Object(_) if key == "items" || key == "additionalProperties" => close(value),
            Value::Array(items) if ["prefixItems", "items"].contains(&key.as_str()) => {
                items.iter_mut().for_each(close);
            }
            Value::Array(items) if ["anyOf", "oneOf"].contains(&key.as_str()) && !declares => {
                items.iter_mut().for_each(close);
            }
            _ => {}
        }
    }
}

/// Where in a schema the first keyword stands that can't be honoured, as a JSON pointer.
pub(super) fn unsupported_keyword(schema: &Value) -> Option<String> {
    let Value::Object(map) = schema else { return None };
    let inside =
        |place: String, schema: &Value| unsupported_keyword(schema).map(|rest| format!("/{place}{rest}"));
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    map.iter().find_map(|(key, value)| match value {
        _ if key == "x-guidance" => None,
        _ if !HONOURED.contains(&key.as_str()) => Some(format!("/{}", escaped(key))),
        Value::Object(schemas) if MAPS.contains(&key.as_str()) => {
            schemas.iter().find_map(|(name, schema)| inside(format!("{key}/{}", escaped(name)), schema))
        }
        Value::Object(_) if !["const", "default"].contains(&key.as_str()) => inside(key.clone(), value),
        Value::Array(items) if !["enum", "examples", "const", "default"].contains(&key.as_str()) => {
            items.iter().enumerate().find_map(|(index, schema)| inside(format!("{key}/{index}"), schema))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_closed() {
        let check = |schema: Value, expected: Value| {
            let mut actual = arguments(&schema);
            actual.as_object_mut().unwrap().shift_remove("x-guidance").unwrap();
            assert_eq!(actual, expected);
        };
        let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
        check(json!({}), none.clone());
        check(json!(null), none.clone());
        check(json!({"type": "object"}), none);
        check(
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"properties": {"b": {}}}}, "m": {"type": "object"}}}),
            json!({"type": "object", "properties": {
                "a": {"type": "array", "items": {"properties": {"b": {}}, "additionalProperties": false}},
                "m": {"type": "object"},
            }, "additionalProperties": false}),
        );
        let open = json!({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}});
        check(open.clone(), open);
        let joined =
            json!({"type": "object", "allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]});
        check(joined.clone(), joined);
    }

    #[test]
    fn names_the_place_of_a_keyword() {
        let check = |schema: Value, expected: Option<&str>| {
            assert_eq!(unsupported_keyword(&schema).as_deref(), expected);
        };
        check(json!({"properties": {"not": {"type": "string"}}, "default": {"not": 1}}), None);
        check(
            json!({"properties": {"a/b": {"items": {"uniqueItems": true}}}}),
            Some("/properties/a~1b/items/uniqueItems"),
        );
        check(json!({"anyOf": [{}, {"not": {}}]}), Some("/anyOf/1/not"));
    }
}
