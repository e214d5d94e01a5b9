//! Example arguments of a tool, made from its JSON schema.
//!
//! Values that the schema itself offers come first: `const`, `examples`, `default`, `enum`.
//! Otherwise the smallest value that fits: required properties, one item, a number near 1, a text.
//! The same schema always gets the same example, since it is in the static part of a prompt.
//! A schema that contradicts itself, or that uses keywords ignored here (`not`, `if`,
//! `dependentRequired`), may get an example that it doesn't admit.
//! Knows nothing of tools or templates.

mod fit;
mod text;

use serde_json::{Map, Value};

use fit::{admits, numbers};

/// The maximum depth of an example.
/// Only schemas that contain themselves endlessly reach it.
const DEPTH: usize = 12;

/// The most items or properties of an example.
const ITEMS: usize = 16;

/// The most schemas examined for one example, which bounds its time.
const SCHEMAS: usize = 1000;

/// Arguments that fit `parameters`, as far as can be determined.
pub(super) fn arguments(parameters: &Value) -> Map<String, Value> {
    let mut example = Example { root: parameters, open: Vec::new(), left: SCHEMAS };
    match example.value(parameters, "text", 0) {
        Value::Object(arguments) => arguments,
        _ => Map::new(),
    }
}

/// The keywords of one schema, merged with those that it includes.
type Keywords = Map<String, Value>;

struct Example<'a> {
    /// The document that references point into.
    root: &'a Value,
    /// The references that are being followed for the current value, outermost first.
    open: Vec<String>,
    /// How many more schemas may be examined.
    left: usize,
}

impl Example<'_> {
    /// A value for `schema`; `name` is the property's name, from which texts are chosen.
    fn value(&mut self, schema: &Value, name: &str, depth: usize) -> Value {
        let outer = self.open.len();
        let schema = self.keywords(schema, depth);
        let value = offered(&schema).unwrap_or_else(|| match kind(&schema) {
            "object" => Value::Object(self.object(&schema, depth)),
            "array" => Value::Array(self.array(&schema, name, depth)),
            "integer" | "number" => {
                numbers(&schema).find(|value| admits(&schema, value)).unwrap_or(Value::from(1))
            }
            "boolean" => Value::Bool(true),
            "null" => Value::Null,
            _ => text::example(&schema, name).into(),
        });
        self.open.truncate(outer);
        value
    }

    /// The keywords of `schema`, of its references, of all schemas that it joins and of one of its
    /// alternatives.
    fn keywords(&mut self, schema: &Value, depth: usize) -> Keywords {
        let Value::Object(own) = schema else { return Keywords::new() };
        let mut keywords = own.clone();
        self.left = self.left.saturating_sub(1);
        if depth >= DEPTH || self.left == 0 {
            return keywords;
        }
        let mut parts = Vec::new();
        if let Some(Value::String(reference)) = own.get("$ref") {
            parts.extend(reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)).cloned());
            self.open.push(reference.clone());
        }
        if let Some(Value::Array(joined)) = own.get("allOf") {
            parts.extend(joined.iter().cloned());
        }
        for key in ["anyOf", "oneOf"] {
            let Some(Value::Array(alternatives)) = own.get(key) else { continue };
            let ends = alternatives.iter().find(|alternative| !self.recurs(alternative));
            parts.extend(ends.or(alternatives.first()).cloned());
        }
        for part in parts {
            let more = self.keywords(&part, depth + 1);
            join(&mut keywords, more);
        }
        keywords
    }

    /// Whether `schema` is already being followed for the current value.
    fn recurs(&self, schema: &Value) -> bool {
        schema["$ref"]
            .as_str()
            .is_some_and(|reference| reference == "#" || self.open.iter().any(|open| open == reference))
    }

    fn object(&mut self, schema: &Keywords, depth: usize) -> Map<String, Value> {
        let mut out = Map::new();
        if depth >= DEPTH || self.left == 0 {
            return out;
        }
        let none = Map::new();
        let declared = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let required: Vec<&str> = strings(schema.get("required")).collect();
        for (name, schema) in declared.iter().filter(|(name, _)| required.contains(&name.as_str())) {
            out.insert(name.clone(), self.value(schema, name, depth + 1));
        }
        let patterns =
            schema.get("patternProperties").and_then(Value::as_object).and_then(|map| map.iter().next());
        let open = schema.get("additionalProperties").filter(|value| **value != Value::Bool(false));
        let (pattern, undeclared) = match (patterns, open) {
            (Some((pattern, schema)), _) => (Some(pattern.as_str()), schema),
            (None, Some(schema)) => (None, schema),
            (None, None) => (None, &Value::Null),
        };
        for name in required.iter().filter(|name| !declared.contains_key(**name)) {
            out.insert((*name).to_owned(), self.value(undeclared, name, depth + 1));
        }
        let least = count(schema, "minProperties").unwrap_or(0).min(ITEMS);
        for (name, schema) in declared {
            if out.len() < least && !out.contains_key(name) {
                out.insert(name.clone(), self.value(schema, name, depth + 1));
            }
        }
        for index in out.len()..least {
            let name = pattern
                .and_then(|pattern| text::matching(pattern, index + 1..ITEMS))
                .unwrap_or(format!("key{index}"));
            out.insert(name.clone(), self.value(undeclared, &name, depth + 1));
        }
        out
    }

    fn array(&mut self, schema: &Keywords, name: &str, depth: usize) -> Vec<Value> {
        let (items, first) = match (schema.get("items"), schema.get("prefixItems")) {
            (Some(Value::Array(first)), _) => (schema.get("additionalItems"), first.as_slice()),
            (items, first) => (items, first.and_then(Value::as_array).map_or(&[][..], Vec::as_slice)),
        };
        let items = items.or(schema.get("contains"));
        let endless = depth >= DEPTH || self.left == 0 || items.is_some_and(|items| self.recurs(items));
        let shown = if endless { 0 } else { first.len().max(usize::from(items.is_some())) };
        let (least, most) =
            (count(schema, "minItems").unwrap_or(0), count(schema, "maxItems").unwrap_or(usize::MAX));
        let unique = schema.get("uniqueItems") == Some(&Value::Bool(true));
        let mut out: Vec<Value> = Vec::new();
        let wanted = if self.left == 0 { 0 } else { shown.max(least).min(most).min(ITEMS) };
        for index in 0..wanted {
            let schema = first.get(index).or(items).unwrap_or(&Value::Null);
            let mut value = self.value(schema, name, depth + 1);
            if unique && out.contains(&value) {
                value = fit::other(schema, &value, index);
            }
            out.push(value);
        }
        out
    }
}

/// The value that a schema offers itself, if it admits it.
fn offered(schema: &Keywords) -> Option<Value> {
    let list = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
    let one = |key: &str| schema.get(key).into_iter();
    let all = one("const").chain(list("examples")).chain(one("default")).chain(list("enum"));
    all.into_iter().find(|value| admits(schema, value)).cloned()
}

/// The type of the example.
fn kind(schema: &Keywords) -> &str {
    let has = |keys: &[&str]| keys.iter().any(|key| schema.contains_key(*key));
    match schema.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(_)) => {
            let mut kinds = strings(schema.get("type"));
            kinds.find(|kind| *kind != "null").unwrap_or("null")
        }
        _ if has(&[
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "minProperties",
        ]) =>
        {
            "object"
        }
        _ if has(&["items", "prefixItems", "minItems"]) => "array",
        _ if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) => "number",
        _ => "string",
    }
}

/// Adds the keywords of another schema that must hold as well.
fn join(into: &mut Keywords, more: Keywords) {
    for (key, value) in more {
        match (into.get_mut(&key), value) {
            (None, value) => drop(into.insert(key, value)),
            (Some(Value::Array(list)), Value::Array(more)) if key == "required" => {
                list.extend(more);
            }
            (Some(Value::Object(map)), Value::Object(more)) if key == "properties" => {
                for (name, schema) in more {
                    match (map.get_mut(&name), schema) {
                        (Some(Value::Object(known)), Value::Object(more)) => join(known, more),
                        (Some(_), _) => {}
                        (None, schema) => drop(map.insert(name, schema)),
                    }
                }
            }
            _ => {}
        }
    }
}

fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn count(schema: &Keywords, key: &str) -> Option<usize> {
    schema.get(key).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok())
}

#[cfg(test)]
mod tests;
