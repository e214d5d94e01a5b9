//! Reads the keywords that combine schemas: alternatives, conditions, negations, references.

use std::collections::HashSet;
use std::rc::Rc;

use serde_json::{Map, Value};

use super::SchemaError;
use super::document::child;
use super::read::Reader;
use super::shape::{Object, Property, Schema, Shape, Text};
use super::typed::{malformed, names, schemas};

/// The combining keywords in the order in which they are applied.
/// Keys that they declare come after those of the schema itself; keywords that exclude values come
/// last, when most is known.
const JOINING: [&str; 16] = [
    "enum",
    "const",
    "$ref",
    "allOf",
    "anyOf",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "not",
    "if",
    "oneOf",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
    "$dynamicRef",
    "$recursiveRef",
];

impl Reader<'_> {
    /// The part of `schema` that its combining keywords permit as well.
    pub(super) fn join(
        &mut self,
        mut schema: Schema,
        map: &Map<String, Value>,
        at: &str,
    ) -> Result<Schema, SchemaError> {
        for keyword in JOINING {
            let Some(value) = map.get(keyword) else { continue };
            let place = child(at, keyword);
            let other = match keyword {
                "enum" => {
                    constants(value.as_array().ok_or_else(|| malformed(at, keyword, "an array"))?, &place)?
                }
                "const" => constants(std::slice::from_ref(value), &place)?,
                "$ref" => self.reference(value, at)?,
                "allOf" => {
                    for option in self.options(value, &place)? {
                        schema = self.meet(&schema, &option, &place)?;
                    }
                    continue;
                }
                "anyOf" => union(&self.options(value, &place)?),
                "dependentRequired" | "dependentSchemas" | "dependencies" => {
                    schema = self.dependent(schema, map, keyword, at)?;
                    continue;
                }
                "not" => match self.outside(&schema, value, &place)? {
                    Some(complement) => complement,
                    None => return Err(SchemaError::new(&place, "what it leaves out can't be guaranteed")),
                },
                "if" => self.conditional(&schema, map, at)?,
                "oneOf" => {
                    schema = self.one_of(&schema, value, &place)?;
                    continue;
                }
                "unevaluatedProperties" => {
                    schema = self.unevaluated(&schema, value, &place)?;
                    continue;
                }
                "unevaluatedItems" if *value == Value::Bool(true) => continue,
                "contains"
                    if map.get("minContains") == Some(&0.into()) && !map.contains_key("maxContains") =>
                {
                    continue;
                }
                _ => return Err(SchemaError::new(&place, "it is not supported")),
            };
            schema = self.meet(&schema, &other, &place)?;
        }
        Ok(schema)
    }

    pub(super) fn reference(&mut self, value: &Value, at: &str) -> Result<Schema, SchemaError> {
        let place = child(at, "$ref");
        let reference = value.as_str().ok_or_else(|| malformed(at, "$ref", "a string"))?;
        if self.document.is_embedded(at) {
            return Err(SchemaError::new(&place, "references below an id of their own are not supported"));
        }
        let pointer = self.document.pointer(reference).ok_or_else(|| {
            SchemaError::new(&place, format!("{reference} is not in the schema itself; copy it into $defs"))
        })?;
        Ok(Schema::one(Shape::Reference(pointer)))
    }

    fn options(&mut self, value: &Value, place: &str) -> Result<Vec<Schema>, SchemaError> {
        let options =
            value.as_array().ok_or_else(|| SchemaError::new(place, "an array of schemas is expected"))?;
        let options = options.iter().enumerate();
        options.map(|(index, option)| self.read(option, &format!("{place}/{index}"))).collect()
    }

    /// The values of a schema that another excludes; `None` if they can't be expressed.
    fn outside(
        &mut self,
        within: &Schema,
        value: &Value,
        place: &str,
    ) -> Result<Option<Schema>, SchemaError> {
        self.negating(place, |reader| {
            let schema = reader.read(value, place)?;
            if reader.meet(within, &schema, place)?.is_never() {
                return Ok(Some(Schema::Any));
            }
            let keys = reader.keys(within, place)?;
            reader.complement(&schema, keys.as_deref(), place)
        })
    }

    /// Applies `if` and `then`, or not `if` but `else`.
    fn conditional(
        &mut self,
        within: &Schema,
        map: &Map<String, Value>,
        at: &str,
    ) -> Result<Schema, SchemaError> {
        if !map.contains_key("then") && !map.contains_key("else") {
            return Ok(Schema::Any);
        }
        let place = child(at, "if");
        let Some(otherwise) = self.outside(within, &map["if"], &place)? else {
            return Err(SchemaError::new(&place, "what it leaves out can't be guaranteed"));
        };
        let condition = self.read(&map["if"], &place)?;
        let mut branches = Vec::new();
        for (schema, keyword) in [(condition, "then"), (otherwise, "else")] {
            let place = child(at, keyword);
            branches.push(match map.get(keyword) {
                None => schema,
                Some(value) => {
                    let then = self.read(value, &place)?;
                    self.meet(&schema, &then, &place)?
                }
            });
        }
        Ok(union(&branches))
    }

    /// The values of exactly one option, within a schema.
    fn one_of(&mut self, within: &Schema, value: &Value, place: &str) -> Result<Schema, SchemaError> {
        self.negating(place, |reader| {
            let options = reader.options(value, place)?;
            let parts: Result<Vec<Schema>, _> =
                options.iter().map(|option| reader.meet(within, option, place)).collect();
            let parts = parts?;
            let mut exclusive = Vec::new();
            for (index, part) in parts.iter().enumerate() {
                let mut rest = part.clone();
                for (other, option) in options.iter().enumerate() {
                    if other == index || reader.meet(part, &parts[other], place)?.is_never() {
                        continue;
                    }
                    let keys = reader.keys(part, place)?;
                    let complement = reader.complement(option, keys.as_deref(), place)?;
                    rest = reader.meet(
                        &rest,
                        &complement.ok_or_else(|| overlap(place, index, other))?,
                        place,
                    )?;
                }
                exclusive.push(rest);
            }
            Ok(union(&exclusive))
        })
    }

    /// All keys that the objects of a schema can have, if the schema closes them.
    fn keys(&mut self, schema: &Schema, at: &str) -> Result<Option<Vec<String>>, SchemaError> {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        let mut open = vec![Rc::new(schema.clone())];
        while let Some(schema) = open.pop() {
            self.step(at)?;
            let Schema::Union(shapes) = schema.as_ref() else { return Ok(None) };
            for shape in shapes {
                match shape {
                    Shape::Object(object) if object.patterns.is_empty() && object.rest().is_never() => {
                        names.extend(object.properties.iter().map(|property| property.name.clone()));
                    }
                    Shape::Object(_) => return Ok(None),
                    Shape::Reference(pointer) if seen.insert(pointer.clone()) => {
                        open.push(self.schema_at(pointer, at)?);
                    }
                    _ => {}
                }
            }
        }
        Ok(Some(names))
    }

    /// Objects without a key, and those with it that satisfy another schema.
    fn dependent(
        &mut self,
        mut schema: Schema,
        map: &Map<String, Value>,
        keyword: &str,
        at: &str,
    ) -> Result<Schema, SchemaError> {
        let place = child(at, keyword);
        for (name, value) in schemas(map, keyword, at)? {
            let demand = match value {
                Value::Array(_) => {
                    let needed = names(map[keyword].as_object().unwrap_or(map), name, &place)?;
                    with(needed.into_iter().map(|needed| key(needed, Schema::Any, true)).collect())
                }
                Value::Object(_) | Value::Bool(_) if keyword != "dependentRequired" => {
                    self.read(value, &child(&place, name))?
                }
                _ => return Err(malformed(&place, name, "an array of names or a schema")),
            };
            let present = with(vec![key(name, Schema::Any, true)]);
            let mut shapes = Shape::Object(Object::default()).other_types();
            shapes.extend(with(vec![key(name, Schema::NEVER, false)]).shapes());
            shapes.extend(self.meet(&present, &demand, &place)?.shapes());
            schema = self.meet(&schema, &Schema::Union(shapes), &place)?;
        }
        Ok(schema)
    }

    /// Requires keys that no schema declares to satisfy one more schema.
    fn unevaluated(&mut self, schema: &Schema, value: &Value, place: &str) -> Result<Schema, SchemaError> {
        let others = self.read(value, place)?;
        let mut shapes = Vec::new();
        for shape in schema.shapes() {
            let mut object = match shape {
                Shape::Reference(pointer) => {
                    let schema = self.schema_at(&pointer, place)?;
                    shapes.extend(self.unevaluated(&schema, value, place)?.shapes());
                    continue;
                }
                Shape::Object(object) => object,
                other => {
                    shapes.push(other);
                    continue;
                }
            };
            for property in object.properties.iter_mut().filter(|property| !property.declared) {
                property.schema = self.meet(&property.schema, &others, place)?;
            }
            object.rest = Some(object.rest.unwrap_or_else(|| others.clone()));
            if !object.is_empty() {
                shapes.push(Shape::Object(object));
            }
        }
        Ok(Schema::Union(shapes))
    }
}

fn overlap(place: &str, index: usize, other: usize) -> SchemaError {
    SchemaError::new(place, format!("options {index} and {other} may both hold; exclude that, or use anyOf"))
}

fn key(name: &str, schema: Schema, required: bool) -> Property {
    Property { name: name.to_owned(), schema, required, declared: false }
}

fn with(properties: Vec<Property>) -> Schema {
    Schema::one(Shape::Object(Object { properties, ..Object::default() }))
}

fn union(schemas: &[Schema]) -> Schema {
    if schemas.contains(&Schema::Any) {
        return Schema::Any;
    }
    Schema::Union(schemas.iter().flat_map(Schema::shapes).collect())
}

fn constants(values: &[Value], place: &str) -> Result<Schema, SchemaError> {
    let strings = values.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let text = Text { only: Some(strings), ..Text::default() };
    let mut shapes: Vec<Shape> =
        Some(text).filter(|text| !text.is_empty()).map(Shape::Text).into_iter().collect();
    for value in values.iter().filter(|value| !value.is_string()) {
        let constant = Schema::constant(value).ok_or_else(|| {
            SchemaError::new(place, format!("{value} has a number that can't be held exactly"))
        })?;
        shapes.extend(constant.shapes());
    }
    Ok(Schema::Union(shapes))
}
