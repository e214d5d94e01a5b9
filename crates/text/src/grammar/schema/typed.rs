//! Reads the keywords that concern only numbers, strings or names.

use serde_json::{Map, Value};

use super::SchemaError;
use super::document::child;
use super::format::{self, Format};
use super::number::{self, Bound, Multiple, Number};
use super::pattern::{Pattern, Search};
use super::shape::{Object, Property, Schema, Shape, Text, count, least};

/// The types that a schema permits, all if it names none; `None` if it names an unknown type.
pub(super) fn types(map: &Map<String, Value>) -> Option<Vec<&str>> {
    const ALL: [&str; 7] = ["null", "boolean", "number", "integer", "string", "array", "object"];
    let types = match map.get("type") {
        None => return Some(ALL.to_vec()),
        Some(Value::String(name)) => vec![name.as_str()],
        Some(Value::Array(names)) => names.iter().map(Value::as_str).collect::<Option<_>>()?,
        Some(_) => return None,
    };
    let mut distinct: Vec<&str> = Vec::new();
    for name in types {
        if !distinct.contains(&name) {
            ALL.contains(&name).then(|| distinct.push(name))?;
        }
    }
    Some(distinct)
}

pub(super) fn numbers(map: &Map<String, Value>, whole: bool, at: &str) -> Result<Number, SchemaError> {
    let mut set = Number { whole, ..Number::default() };
    let mut add = |limit: Number| {
        // Without steps, sets of numbers can always be intersected.
        set = set.meet(&limit).unwrap_or_default();
    };
    for (keyword, exclusive, low) in
        [("minimum", "exclusiveMinimum", true), ("maximum", "exclusiveMaximum", false)]
    {
        let mut limit = |keyword: &str, value: &Value, open: bool| {
            let number = value.as_number().ok_or_else(|| malformed(at, keyword, "a number"))?;
            let value = number::bound(number, low).ok_or_else(|| too_exact(at, keyword))?;
            let bound = Some(Bound { value, open });
            let (low, high) = if low { (bound, None) } else { (None, bound) };
            add(Number { low, high, ..Number::default() });
            Ok(())
        };
        // In draft 4 this keyword is a boolean that modifies the other one.
        let open = map.get(exclusive) == Some(&Value::Bool(true));
        if let Some(value) = map.get(keyword) {
            limit(keyword, value, open)?;
        }
        match map.get(exclusive) {
            None | Some(Value::Bool(_)) => {}
            Some(value) => limit(exclusive, value, true)?,
        }
    }
    if let Some(step) = map.get("multipleOf") {
        let number = step.as_number().ok_or_else(|| malformed(at, "multipleOf", "a number"))?;
        set.step = Some(Multiple::new(number).ok_or_else(|| too_exact(at, "multipleOf"))?);
    }
    Ok(set)
}

pub(super) fn texts(map: &Map<String, Value>, at: &str) -> Result<Text, SchemaError> {
    let mut set = Text {
        min: counted(map, "minLength", at)?.unwrap_or(0),
        max: counted(map, "maxLength", at)?,
        ..Text::default()
    };
    if let Some(keyword) = ["pattern", "format"].into_iter().find(|keyword| map.contains_key(*keyword)) {
        set.limited_at = child(at, keyword);
    }
    if let Some(pattern) = map.get("pattern") {
        let source = pattern.as_str().ok_or_else(|| malformed(at, "pattern", "a string"))?;
        match Pattern::search(source).map_err(|message| SchemaError::new(&child(at, "pattern"), message))? {
            Search::Everything => {}
            Search::Pattern(pattern) => set.patterns.push(pattern),
            Search::Strings(strings) => set.only = Some(strings),
        }
    }
    if let Some(name) = map.get("format") {
        let name = name.as_str().ok_or_else(|| malformed(at, "format", "a string"))?;
        match format::lookup(name) {
            Format::Annotation => {}
            Format::Known(regex, max) => {
                set.max = least(set.max, max);
                set.patterns.push(Pattern { regex, exact: false });
            }
            Format::Unsupported => {
                let reason = format!("strings of format {name} can't be guaranteed");
                return Err(SchemaError::new(&child(at, "format"), reason));
            }
        }
    }
    Ok(set.settled())
}

/// The objects whose keys a schema permits; `None` if it permits all.
pub(super) fn keys(schema: &Schema, at: &str) -> Result<Option<Object>, SchemaError> {
    let Schema::Union(shapes) = schema else { return Ok(None) };
    let texts: Vec<&Text> = shapes
        .iter()
        .filter_map(|shape| if let Shape::Text(text) = shape { Some(text) } else { None })
        .collect();
    let mut object = Object { rest: Some(Schema::NEVER), ..Object::default() };
    let unlimited = |text: &Text| *text == Text { limited_at: text.limited_at.clone(), ..Text::default() };
    let simple = |text: &Text| text.min == 0 && text.max.is_none() && text.except.is_empty();
    match texts[..] {
        _ if shapes.iter().any(|shape| matches!(shape, Shape::Reference(_))) => {
            return Err(SchemaError::new(at, "names by reference are not supported"));
        }
        [] => {}
        [text] if unlimited(text) => return Ok(None),
        [Text { only: Some(names), patterns, .. }] if patterns.is_empty() => {
            let property = |name: &String| {
                let name = name.clone();
                Property { name, schema: Schema::Any, required: false, declared: false }
            };
            object.properties = names.iter().map(property).collect();
        }
        [text]
            if simple(text) && text.only.is_none() && text.patterns.len() == 1 && text.patterns[0].exact =>
        {
            object.patterns.push((text.patterns[0].clone(), Schema::Any));
        }
        [text] if text.patterns.is_empty() && text.except.is_empty() => {
            object.patterns.push((Pattern::length(text.min, text.max), Schema::Any));
        }
        [text] if text.patterns.is_empty() && text.min == 0 && text.max.is_none() => {
            object.patterns.push((Pattern::except(&text.except), Schema::Any));
        }
        _ => return Err(SchemaError::new(at, "names are limited in more than one way")),
    }
    Ok(Some(object))
}

pub(super) fn counted(map: &Map<String, Value>, keyword: &str, at: &str) -> Result<Option<u64>, SchemaError> {
    let value = map.get(keyword).map(|value| count(value).ok_or_else(|| malformed(at, keyword, "a count")));
    value.transpose()
}

/// The schemas in a keyword that maps names to them.
pub(super) fn schemas<'m>(
    map: &'m Map<String, Value>,
    keyword: &str,
    at: &str,
) -> Result<impl Iterator<Item = (&'m String, &'m Value)>, SchemaError> {
    let schemas = match map.get(keyword) {
        None => None,
        Some(value) => Some(value.as_object().ok_or_else(|| malformed(at, keyword, "an object of schemas"))?),
    };
    Ok(schemas.into_iter().flatten())
}

/// The strings in a keyword that lists names.
pub(super) fn names<'m>(
    map: &'m Map<String, Value>,
    keyword: &str,
    at: &str,
) -> Result<Vec<&'m str>, SchemaError> {
    let Some(value) = map.get(keyword) else { return Ok(Vec::new()) };
    let names = value.as_array().and_then(|names| names.iter().map(Value::as_str).collect());
    names.ok_or_else(|| malformed(at, keyword, "an array of names"))
}

pub(super) fn malformed(at: &str, keyword: &str, expected: &str) -> SchemaError {
    SchemaError::new(&child(at, keyword), format!("{expected} is expected"))
}

fn too_exact(at: &str, keyword: &str) -> SchemaError {
    SchemaError::new(&child(at, keyword), "the number can't be held exactly")
}
