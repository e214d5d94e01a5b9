//! Validates values against schemas, with an external validator that has no limits.
//!
//! So its work is estimated first: the depth of the schema, including references, and how often a
//! part of it would be applied to a part of the value.
//! Schemas of a few lines can cause billions of such steps.

use std::collections::{HashMap, HashSet};
use std::ptr::from_ref;

use serde_json::{Map, Value};

use super::document::Document;
use crate::request::Tool;

/// Largest depth of a schema, and largest number of values in it.
const DEEPEST: usize = 400;
const MOST_VALUES: usize = 100_000;
/// Most steps, each of which applies one schema to one value.
const MOST_STEPS: u64 = 1_000_000;

/// Why a call's arguments are invalid for a tool's parameters; `None` if they are valid, or can't
/// be checked.
pub fn violation(parameters: &Value, arguments: &Map<String, Value>) -> Option<String> {
    mismatch(parameters, &Value::Object(arguments.clone()))
}

/// Whether a call's arguments are valid for the parameters of its tool, or can't be checked.
pub fn fits(tool: &Tool, arguments: &Map<String, Value>) -> bool {
    violation(&tool.parameters, arguments).is_none()
}

/// Why a value is invalid for a schema: the first reason and its place; `None` if it is valid, or
/// can't be checked.
/// A value whose validation takes too much work is invalid.
pub fn mismatch(schema: &Value, value: &Value) -> Option<String> {
    let document = Document::new(schema)?;
    if !is_small(&document) || !Steps::of(&document).are_few(schema, value) {
        return Some("the schema asks for too much work to hold values to it".into());
    }
    let validator = built(schema).ok()?;
    let error = validator.iter_errors(value).next()?;
    let place = error.instance_path().to_string();
    Some(if place.is_empty() { error.to_string() } else { format!("{place}: {error}") })
}

/// Whether values can be validated against a schema.
pub(super) fn can_be_checked(schema: &Value) -> bool {
    Document::new(schema).is_some_and(|document| is_small(&document)) && built(schema).is_ok()
}

fn built(schema: &Value) -> Result<jsonschema::Validator, String> {
    jsonschema::options().should_validate_formats(true).build(schema).map_err(|error| error.to_string())
}

/// Whether recursing through a schema fits on the stack.
fn is_small(document: &Document) -> bool {
    let (mut seen, mut open) = (HashSet::new(), vec![(document.root, 0)]);
    while let Some((value, depth)) = open.pop() {
        if !seen.insert(from_ref(value)) {
            continue;
        }
        if depth > DEEPEST || seen.len() > MOST_VALUES {
            return false;
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(map) => {
                open.extend(map.values().map(|value| (value, depth + 1)));
                open.extend(target(document, map).map(|value| (value, depth + 1)));
            }
            _ => {}
        }
    }
    true
}

/// The schema that a reference points to.
fn target<'a>(document: &Document<'a>, map: &Map<String, Value>) -> Option<&'a Value> {
    let keywords = ["$ref", "$dynamicRef", "$recursiveRef"];
    let reference = keywords.iter().find_map(|keyword| map.get(*keyword)?.as_str())?;
    document.root.pointer(&document.pointer(reference)?)
}

/// Counts how often a part of a schema is applied to a part of a value.
struct Steps<'d, 'a> {
    document: &'d Document<'a>,
    /// Counts by both parts; infinite while a count is in progress.
    known: HashMap<(*const Value, *const Value), u64>,
}

impl<'d, 'a> Steps<'d, 'a> {
    fn of(document: &'d Document<'a>) -> Self {
        Steps { document, known: HashMap::new() }
    }

    fn are_few(mut self, schema: &Value, value: &Value) -> bool {
        self.count(schema, value) <= MOST_STEPS
    }

    fn count(&mut self, schema: &Value, value: &Value) -> u64 {
        let Value::Object(map) = schema else { return 1 };
        let key = (from_ref(schema), from_ref(value));
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        if self.known.len() as u64 > MOST_STEPS / 4 {
            return u64::MAX;
        }
        self.known.insert(key, u64::MAX);
        let mut steps: u64 = 1;
        if let Some(target) = target(self.document, map) {
            steps = steps.saturating_add(self.count(target, value));
        }
        for (keyword, part) in map {
            steps = steps.saturating_add(self.of_keyword(keyword, part, value));
        }
        // Finding unevaluated values takes another pass over everything.
        if ["unevaluatedProperties", "unevaluatedItems"].iter().any(|keyword| map.contains_key(*keyword)) {
            steps = steps.saturating_mul(2);
        }
        self.known.insert(key, steps);
        steps
    }

    fn of_keyword(&mut self, keyword: &str, part: &Value, value: &Value) -> u64 {
        let items = || value.as_array().into_iter().flatten();
        let inside = || items().chain(value.as_object().into_iter().flat_map(|map| map.values()));
        let pairs: Vec<(&Value, &Value)> = match (keyword, part) {
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                schemas.iter().map(|schema| (schema, value)).collect()
            }
            ("not" | "if" | "then" | "else", schema) => vec![(schema, value)],
            ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                schemas.values().map(|schema| (schema, value)).collect()
            }
            ("properties", Value::Object(schemas)) => {
                let Value::Object(value) = value else { return 0 };
                value.iter().filter_map(|(name, value)| Some((schemas.get(name)?, value))).collect()
            }
            ("patternProperties", Value::Object(schemas)) => {
                schemas.values().flat_map(|schema| inside().map(move |value| (schema, value))).collect()
            }
            ("items" | "prefixItems", Value::Array(schemas)) => schemas.iter().zip(items()).collect(),
            (
                "items"
                | "additionalItems"
                | "unevaluatedItems"
                | "contains"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "propertyNames",
                schema,
            ) => inside().map(|value| (schema, value)).collect(),
            _ => return 0,
        };
        pairs
            .into_iter()
            .fold(0, |steps: u64, (schema, value)| steps.saturating_add(self.count(schema, value)))
    }
}
