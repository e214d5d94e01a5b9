//! Converts JSON schemas to a form that llguidance supports.
//!
//! A schema is read into its meaning, a union of shapes (`shape`). allOf, oneOf, not, if and
//! dependencies are resolved exactly (`join`, `meet`).
//! The meaning is written in the plain subset of JSON schema that llguidance takes literally
//! (`write`).
//! Its numbers, strings and objects become rules of a grammar (the module `json`).
//! So every text that the grammar permits satisfies the schema; otherwise the schema is refused
//! with the keyword and its place: see [`SchemaError`].
//! Knows nothing of calls and formats.
//!
//! The grammar permits only some of the texts that satisfy a schema.
//! This makes a generated text equal to its rendering, and it always ends in a value that other
//! parsers can read:
//! - Separators are `", "` and `": "`.
//!   Characters that need no escape have none; others have their short escape (`\n`, `\"`),
//!   and control characters without one do not occur.
//! - Keys come in the order of `properties`: first the schema's own, then those of joined schemas,
//!   then those that are only required, then all others.
//! - Objects that declare properties are closed unless `additionalProperties` or
//!   `patternProperties` permit more.
//! - Numbers have no exponent and no `-0`, fractions at most 17 digits, integers no fraction.
//!   They keep a distance of 10^-15 from exclusive bounds.
//!   Without a bound they stop at 2^53, where an `f64` can no longer represent all integers.
//! - Strings and arrays with a limit are at most 65,536 long.
//!   Formats are narrower than their standards (`format`).
//! - Overlapping options of `oneOf` are separated only if the complement of each can be
//!   expressed exactly.
//!
//! Keywords and formats that JSON schema doesn't define are annotations.

mod choices;
mod document;
mod expression;
mod format;
mod join;
mod limits;
mod loosen;
mod meet;
mod number;
mod pattern;
mod read;
mod shape;
mod typed;
mod validate;
mod write;

use std::collections::HashMap;

use serde_json::{Value, json};

use document::Document;
pub(super) use document::child;
pub(super) use loosen::loosen;
pub use loosen::loosened;
use read::Reader;
use shape::{Object, Schema, Shape};
pub use validate::{fits, mismatch, violation};

/// Why a schema can't be enforced.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}{reason}", place(.keyword, .pointer))]
pub struct SchemaError {
    /// JSON pointer to the keyword within the schema; empty for the schema itself.
    pub pointer: String,
    /// The keyword, or whatever is in its place.
    pub keyword: String,
    /// The problem with it.
    pub reason: String,
}

fn place(keyword: &str, pointer: &str) -> String {
    if pointer.is_empty() { String::new() } else { format!("{keyword} at {pointer}: ") }
}

impl SchemaError {
    /// An error that concerns the schema as a whole.
    pub(super) fn of_whole(reason: String) -> Self {
        SchemaError::new("", reason)
    }

    /// Whether the refusal is about dependent parameters in a format that writes each separately.
    pub(super) fn is_dependence(&self) -> bool {
        self.reason == DEPENDENT
    }

    pub(super) fn new(pointer: &str, reason: impl Into<String>) -> Self {
        let keyword = pointer.rsplit('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~");
        SchemaError { pointer: pointer.to_owned(), keyword, reason: reason.into() }
    }
}

/// The reason for refusing dependent parameters.
const DEPENDENT: &str = "arguments that depend on each other don't fit the format, which has them one by one";

/// A property of a tool's parameters.
pub(crate) struct Property {
    pub name: String,
    pub required: bool,
    /// As returned by [`strict`], with the definitions that it needs.
    pub schema: Value,
}

/// Converts any schema to the form for a grammar.
///
/// # Errors
/// [`SchemaError`].
pub(crate) fn strict(schema: &Value) -> Result<Value, SchemaError> {
    let mut reader = reader(schema)?;
    let meaning = reader.read(schema, "")?;
    written(&mut reader, &meaning)?.ok_or_else(unsatisfiable)
}

/// Converts a tool's parameters to the form for a grammar: an object, closed unless they permit
/// more.
/// Strings without a limit of their own end after `string_limit` characters, and lists and
/// free-form values are limited too.
///
/// # Errors
/// [`SchemaError`].
pub(crate) fn arguments(parameters: &Value, string_limit: Option<usize>) -> Result<Value, SchemaError> {
    let parameters = given(parameters);
    let mut reader = reader(&parameters)?;
    let objects = objects(&mut reader, &parameters)?;
    let meaning = Schema::Union(objects.into_iter().map(Shape::Object).collect());
    let written = written(&mut reader, &meaning)?.ok_or_else(unsatisfiable)?;
    Ok(limits::limited(written, string_limit))
}

/// How to treat dependent parameters of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// Return all parameters; they have to be independent of each other.
    Exactly,
    /// Return those of any alternative, required if required in all of them: for dependent
    /// parameters this permits more than the schema.
    Loosely,
}

/// The individual parameters of a tool, for formats that write each separately.
/// Undeclared parameters aren't permitted.
///
/// # Errors
/// [`SchemaError`], also if the parameters depend on each other but must not.
pub(crate) fn properties(
    parameters: &Value,
    together: Together,
    string_limit: Option<usize>,
) -> Result<Vec<Property>, SchemaError> {
    const ENTANGLING: [&str; 14] = [
        "patternProperties",
        "additionalProperties",
        "minProperties",
        "maxProperties",
        "propertyNames",
        "anyOf",
        "oneOf",
        "if",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "not",
        "enum",
        "allOf",
    ];
    let parameters = given(parameters);
    let mut reader = reader(&parameters)?;
    let mut objects = objects(&mut reader, &parameters)?;
    if together == Together::Loosely {
        objects = any_of(objects).into_iter().collect();
    }
    let object = objects.pop().filter(|object| objects.is_empty() && is_flat(object)).ok_or_else(|| {
        let culprit = ENTANGLING.iter().find(|keyword| parameters.get(keyword).is_some()).unwrap_or(&"$ref");
        SchemaError::new(&child("", culprit), DEPENDENT)
    })?;
    let mut properties = Vec::new();
    for property in object.properties {
        match written(&mut reader, &property.schema)? {
            Some(schema) => {
                let schema = limits::limited(schema, string_limit);
                properties.push(Property { name: property.name, required: property.required, schema });
            }
            None if property.required => return Err(unsatisfiable()),
            None => {}
        }
    }
    Ok(properties)
}

/// An object with the properties of all of these objects, each permitting what any of them permits.
fn any_of(objects: Vec<Object>) -> Option<Object> {
    let count = objects.len();
    let mut any = Object { rest: Some(Schema::NEVER), ..Object::default() };
    // How many objects require a property, by its position.
    let (mut places, mut required) = (HashMap::new(), Vec::new());
    for property in objects.into_iter().flat_map(|object| object.properties) {
        let at = *places.entry(property.name.clone()).or_insert(any.properties.len());
        match any.properties.get_mut(at).map(|known| &mut known.schema) {
            None => {
                required.push(usize::from(property.required));
                any.properties.push(property);
            }
            Some(known) => {
                required[at] += usize::from(property.required);
                *known = match (std::mem::replace(known, Schema::Any), property.schema) {
                    (Schema::Union(mut shapes), Schema::Union(more)) => {
                        let new: Vec<Shape> =
                            more.into_iter().filter(|shape| !shapes.contains(shape)).collect();
                        shapes.extend(new);
                        Schema::Union(shapes)
                    }
                    _ => Schema::Any,
                };
            }
        }
    }
    for (property, required) in any.properties.iter_mut().zip(required) {
        property.required = required == count;
    }
    Some(any).filter(|_| count > 0)
}

/// Whether any combination of an object's properties is permitted.
fn is_flat(object: &Object) -> bool {
    let many = object.properties.len() as u64;
    object.patterns.is_empty()
        && [Schema::Any, Schema::NEVER].contains(object.rest())
        && object.min <= object.required()
        && object.max.is_none_or(|max| max >= many)
}

fn given(parameters: &Value) -> Value {
    match parameters {
        Value::Object(map) if !map.is_empty() => parameters.clone(),
        _ => json!({"type": "object"}),
    }
}

fn reader(schema: &Value) -> Result<Reader<'_>, SchemaError> {
    let document = Document::new(schema)
        .ok_or_else(|| SchemaError::new("/$schema", "the draft is too old; use 2020-12"))?;
    Ok(Reader::new(document))
}

/// The objects that parameters permit.
fn objects(reader: &mut Reader, parameters: &Value) -> Result<Vec<Object>, SchemaError> {
    let meaning = reader.read(parameters, "")?;
    let object = Schema::one(Shape::Object(Object { declares: true, ..Object::default() }));
    let shapes = reader.meet(&meaning, &object, "")?.shapes();
    let objects = shapes.into_iter().filter_map(|shape| match shape {
        Shape::Object(object) => Some(object),
        _ => None,
    });
    Ok(objects.collect())
}

/// Writes a meaning as a schema for the grammar; `None` if nothing satisfies it.
fn written(reader: &mut Reader, meaning: &Schema) -> Result<Option<Value>, SchemaError> {
    let schema = write::write(reader, meaning)?;
    reader.finish()?;
    Ok(Some(schema).filter(|schema| *schema != Value::Bool(false)))
}

fn unsatisfiable() -> SchemaError {
    SchemaError::new("", "no value satisfies the schema")
}

#[cfg(test)]
mod tests;
