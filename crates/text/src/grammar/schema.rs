//! JSON schemas, made ready for llguidance.
//!
//! A schema is read into what it means, a union of shapes (`shape`). allOf, oneOf, not, if and
//! dependencies are resolved exactly (`join`, `meet`).
//! The meaning is written in the plain part of JSON schema that llguidance takes literally
//! (`write`).
//! Its numbers, strings and objects become rules of a grammar (`json` beside this module).
//! So every text that the grammar permits satisfies the schema, or the schema is refused with the
//! keyword and its place: see [`SchemaError`].
//! Owns nothing of calls and formats.
//!
//! Not every text that satisfies a schema can be written.
//! So a generated text equals its rendering, and always ends in a value that others can read:
//! - Separators are `", "` and `": "`.
//!   Characters that can be written as themselves are; others have their short escape (`\n`, `\"`),
//!   and control characters without one do not occur.
//! - Keys come in the order of `properties`: first the schema's own, then those of joined schemas,
//!   then those that are only required, then all others.
//! - Objects that declare properties are closed unless `additionalProperties` or
//!   `patternProperties` say otherwise.
//! - Numbers have no exponent and no `-0`, fractions at most 17 digits, integers no fraction.
//!   They keep 10^-15 away from bounds that are exclusive.
//!   Without a bound they end where an `f64` ceases to hold all integers, at 2^53.
//! - Strings and arrays with a limit are at most 65,536 long.
//!   Formats are narrower than their standards (`format`).
//! - Of `oneOf`, options that may hold together are told apart only if what each leaves out can be
//!   said exactly.
//!
//! Keywords that JSON schema does not have are annotations, and so are formats that it does not
//! have.

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

/// Why a schema can't be honoured.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}{reason}", place(.keyword, .pointer))]
pub struct SchemaError {
    /// JSON pointer to the keyword, in the schema; empty for the whole.
    pub pointer: String,
    /// The keyword, or what stands in its place.
    pub keyword: String,
    /// What is wrong with it.
    pub reason: String,
}

fn place(keyword: &str, pointer: &str) -> String {
    if pointer.is_empty() { String::new() } else { format!("{keyword} at {pointer}: ") }
}

impl SchemaError {
    /// For a reason that has no place.
    pub(super) fn of_whole(reason: String) -> Self {
        SchemaError::new("", reason)
    }

    /// Whether it is about parameters that depend on each other, where each is written apart.
    pub(super) fn is_dependence(&self) -> bool {
        self.reason == DEPENDENT
    }

    pub(super) fn new(pointer: &str, reason: impl Into<String>) -> Self {
        let keyword = pointer.rsplit('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~");
        SchemaError { pointer: pointer.to_owned(), keyword, reason: reason.into() }
    }
}

/// Why parameters that depend on each other are refused.
const DEPENDENT: &str = "arguments that depend on each other don't fit the format, which has them one by one";

/// A property of a tool's parameters.
pub(crate) struct Property {
    pub name: String,
    pub required: bool,
    /// As [`strict`] has it, with the definitions that it needs.
    pub schema: Value,
}

/// Any schema, as a grammar takes it.
///
/// # Errors
/// [`SchemaError`].
pub(crate) fn strict(schema: &Value) -> Result<Value, SchemaError> {
    let mut reader = reader(schema)?;
    let meaning = reader.read(schema, "")?;
    written(&mut reader, &meaning)?.ok_or_else(unsatisfiable)
}

/// A tool's parameters, as a grammar takes them: an object, closed unless they say otherwise.
/// Strings end after `string_limit` characters where they have no limit of their own, and so do
/// lists and free-form values.
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

/// Which of a tool's parameters are wanted one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// All, and they have to be independent of each other.
    Exactly,
    /// Those of any alternative, required if they are so in all of them: more than the parameters
    /// permit, where they depend on each other.
    Loosely,
}

/// A tool's parameters one by one, for formats that write each apart.
/// What is not declared is not there.
///
/// # Errors
/// [`SchemaError`], also if the parameters are not independent of each other and have to be.
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

/// An object with the properties of all of these, each with what any of them permits.
fn any_of(objects: Vec<Object>) -> Option<Object> {
    let count = objects.len();
    let mut any = Object { rest: Some(Schema::NEVER), ..Object::default() };
    // How many objects require a property, by its place.
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

/// Whether any choice of an object's properties is permitted.
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

/// The objects among what parameters mean.
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

/// What a grammar takes for a meaning; `None` if nothing satisfies it.
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
