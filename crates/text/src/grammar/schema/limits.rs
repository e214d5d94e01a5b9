//! Limits what a schema leaves unbounded.

use serde_json::{Map, Value, json};

/// Most items of a list, and keys of an object besides its properties, if the schema sets no limit.
const ITEMS: u64 = 64;
/// How deep values without a schema nest, and how many such values a list or an object has.
const NESTED: usize = 2;
const FREE: u64 = 8;

/// Limits the strings of a written schema to `most` characters unless it sets its own limit;
/// lists, objects and free-form values are limited too.
/// Only recursive definitions stay unbounded.
pub(super) fn limited(mut schema: Value, most: Option<usize>) -> Value {
    if let Some(most) = most {
        limit(&mut schema, most as u64);
        unfold(&mut schema);
    }
    schema
}

fn limit(schema: &mut Value, most: u64) {
    let Value::Object(map) = schema else { return };
    for (key, value) in map.iter_mut() {
        match (key.as_str(), value) {
            ("properties" | "patternProperties" | "$defs", Value::Object(schemas)) => {
                schemas.values_mut().for_each(|schema| limit(schema, most));
            }
            ("anyOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(|schema| limit(schema, most));
            }
            ("items" | "additionalProperties", schema) => limit(schema, most),
            _ => {}
        }
    }
    let (keyword, least, most) = match map.get("type").and_then(Value::as_str) {
        Some("string") => ("maxLength", "minLength", most),
        Some("array") => ("maxItems", "minItems", ITEMS + map.get("prefixItems").map_or(0, length)),
        Some("object") => ("maxProperties", "minProperties", ITEMS + map.get("required").map_or(0, length)),
        _ => return,
    };
    let is_open = |map: &Map<String, Value>| {
        map.contains_key("patternProperties") || map.get("additionalProperties") != Some(&Value::Bool(false))
    };
    if !map.contains_key(keyword) && (keyword != "maxProperties" || is_open(map)) {
        let least = map.get(least).and_then(Value::as_u64).unwrap_or(0);
        map.insert(keyword.into(), most.max(least).into());
    }
}

fn length(list: &Value) -> u64 {
    list.as_array().map_or(0, Vec::len) as u64
}

/// Unrolls the recursive definition of any value into a finite chain of definitions.
fn unfold(schema: &mut Value) {
    let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) else { return };
    let Some(any) = definitions.get("any").cloned() else { return };
    for level in 0..=NESTED {
        let mut value = any.clone();
        let options = value.get_mut("anyOf").and_then(Value::as_array_mut);
        if let Some(options) = options {
            for (kind, keyword) in [("array", "maxItems"), ("object", "maxProperties")] {
                if level == NESTED {
                    options.retain(|option| option["type"] != kind);
                }
                let nesting = options.iter_mut().filter(|option| option["type"] == kind);
                nesting.for_each(|option| option[keyword] = FREE.into());
            }
        }
        redirect(&mut value, &format!("#/$defs/any{}", level + 1));
        definitions.insert(if level == 0 { "any".into() } else { format!("any{level}") }, value);
    }
}

fn redirect(value: &mut Value, target: &str) {
    if value.get("$ref").is_some_and(|pointer| pointer == "#/$defs/any") {
        *value = json!({"$ref": target});
        return;
    }
    match value {
        Value::Object(map) => map.values_mut().for_each(|value| redirect(value, target)),
        Value::Array(values) => values.iter_mut().for_each(|value| redirect(value, target)),
        _ => {}
    }
}
