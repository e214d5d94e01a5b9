//! Checks calls of other jinxes, the tools of models and the schemas of their answers.

use serde_json::{Map, Value};

use super::{Known, Report, hint};
use crate::hidden;
use crate::jinx::template::single;
use crate::jinx::{Choices, Input, Jinx, Kind, Llm, Offer, Step, Tools};
use crate::types::Severity;

/// The types of JSON schema.
const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "array", "object", "null"];

/// Checks the name and the arguments of a call.
pub fn call(step: &Step, name: &str, with: &Map<String, Value>, known: &Known, report: &mut Report) {
    let Some(jinx) = known.get(name) else {
        if let Some(message) = known.lack(name) {
            report.name(Severity::Error, step.location, name, name, message);
        }
        return;
    };
    let inputs = || jinx.inputs.iter().map(|input| input.name.as_str());
    // A null argument counts as missing.
    for (argument, value) in with.iter().filter(|(_, value)| !value.is_null()) {
        match jinx.inputs.iter().find(|input| input.name == *argument) {
            None => {
                let hint = hint(argument, inputs());
                let takes = if jinx.inputs.is_empty() {
                    "no arguments".to_owned()
                } else {
                    inputs().collect::<Vec<_>>().join(", ")
                };
                let message = format!("`{name}` has no argument `{argument}`{hint} (it takes {takes})");
                report.name(Severity::Error, step.location, argument, argument, message);
            }
            Some(input) => {
                if let Err(message) = fits(input, value) {
                    let message = format!("call of `{name}`: {message}");
                    report.name(Severity::Error, step.location, argument, argument, message);
                }
            }
        }
    }
    for input in missing(jinx, with) {
        report.error(step, format!("call of `{name}`: argument `{input}` is missing"));
    }
}

fn missing<'a>(jinx: &'a Jinx, with: &Map<String, Value>) -> Vec<&'a str> {
    let needed = jinx
        .inputs
        .iter()
        .filter(|input| input.default.is_none() && with.get(&input.name).is_none_or(Value::is_null));
    needed.map(|input| input.name.as_str()).collect()
}

/// Whether a value fits an input, as far as that is known before its placeholders are filled in.
fn fits(input: &Input, value: &Value) -> Result<(), String> {
    if let Value::String(text) = value {
        match input.kind {
            _ if single(text).is_some() => return Ok(()),
            Kind::String if has_placeholders(value) => return Ok(()),
            _ => {}
        }
    } else if has_placeholders(value) {
        let whole = Kind::of(value);
        return match whole == input.kind {
            true => Ok(()),
            false => Err(format!("argument `{}` must be of type {}", input.name, input.kind.name())),
        };
    }
    let choices = match &input.choices {
        Choices::Of(values) => Choices::Of(values.clone()),
        _ => Choices::Any,
    };
    Input { choices, ..input.clone() }.check(value, &Offer::default())
}

fn has_placeholders(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("{{") || text.contains("{%"),
        Value::Array(items) => items.iter().any(has_placeholders),
        Value::Object(map) => map.values().any(has_placeholders),
        _ => false,
    }
}

/// Checks the tools and the schema of a model's step.
pub fn llm(step: &Step, llm: &Llm, known: &Known, report: &mut Report) {
    if let Tools::Some(names) = &llm.tools {
        let unknown = |name: &&String| known.get(name).is_none() && !hidden::is_built_in(name);
        for name in names.iter().filter(unknown) {
            if let Some(message) = known.lack(name) {
                report.name(Severity::Error, step.location, name, name, message);
            }
        }
    }
    if let Some(message) = llm.schema.as_ref().and_then(wrong_schema) {
        report.name(Severity::Error, step.location, "schema", "schema", message);
    }
}

/// Why a value is not a JSON schema, judging by its types; the model's grammar checks it more
/// closely.
fn wrong_schema(schema: &Value) -> Option<String> {
    let Value::Object(map) = schema else {
        return Some(
            "`schema` is a JSON schema: a mapping such as `{type: object, properties: …}`".to_owned(),
        );
    };
    let names = match map.get("type") {
        None => Vec::new(),
        Some(Value::Array(names)) => names.iter().collect(),
        Some(name) => vec![name],
    };
    let wrong = names.into_iter().find(|name| !name.as_str().is_some_and(|name| TYPES.contains(&name)));
    if let Some(name) = wrong {
        let hint = hint(name.as_str().unwrap_or_default(), TYPES.into_iter());
        return Some(format!("`schema` has an unknown type {name}{hint}"));
    }
    let properties = match map.get("properties") {
        None => None,
        Some(Value::Object(properties)) => Some(properties),
        Some(_) => return Some("the `properties` of a `schema` are a mapping of schemas by name".to_owned()),
    };
    let parts = properties.into_iter().flat_map(|properties| properties.values()).chain(map.get("items"));
    parts.filter(|part| !part.is_boolean()).find_map(wrong_schema)
}
