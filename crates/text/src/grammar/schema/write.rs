//! Writes the meaning of a schema in the plain subset of JSON schema that llguidance takes
//! literally:
//! types, bounds, patterns, closed objects, `anyOf`, and references without other keywords next to
//! them.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::SchemaError;
use super::choices::{Choices, MOST_ALTERNATIVES, Presence};
use super::document::child;
use super::pattern::Pattern;
use super::read::Reader;
use super::shape::{Array, Object, Property, Schema, Shape, Text};

/// The longest string or array written if the limit permits more, in characters or items.
const LONGEST: u64 = 65_536;

/// Writes a schema with the definitions that it needs; `false` if no value satisfies it.
pub(super) fn write(reader: &mut Reader, schema: &Schema) -> Result<Value, SchemaError> {
    let (names, places, meaning, possible) = Default::default();
    let mut writer = Writer { reader, names, places, meaning, size: 0, possible, any: false };
    writer.collect(schema)?;
    writer.check_loops()?;
    writer.find_possible()?;
    let mut value = writer.schema(schema)?;
    let mut definitions = Map::new();
    for (index, pointer) in writer.names.clone().iter().enumerate() {
        if writer.possible.contains(pointer) {
            let meaning = writer.meaning[pointer].clone();
            definitions.insert(index.to_string(), writer.schema(&meaning)?);
        }
    }
    if writer.any {
        let all = Schema::Union(Shape::all());
        definitions.insert("any".into(), writer.schema(&all)?);
    }
    if !definitions.is_empty() && value.is_object() {
        value["$defs"] = definitions.into();
    }
    Ok(value)
}

struct Writer<'r, 'a> {
    reader: &'r mut Reader<'a>,
    /// The pointers of all referenced schemas; their indices name the definitions.
    names: Vec<String>,
    places: HashMap<String, usize>,
    meaning: HashMap<String, Rc<Schema>>,
    /// The total number of referenced schemas and their subschemas.
    size: usize,
    /// The referenced schemas that some value satisfies.
    possible: HashSet<String>,
    /// Whether a definition of all values is needed.
    any: bool,
}

impl Writer<'_, '_> {
    /// Reads all referenced schemas, directly or indirectly.
    fn collect(&mut self, schema: &Schema) -> Result<(), SchemaError> {
        let mut named = self.collect_within(schema)?;
        while let Some(pointer) = named.pop() {
            if !self.meaning.contains_key(&pointer) {
                let meaning = self.reader.schema_at(&pointer, &pointer)?;
                self.places.insert(pointer.clone(), self.names.len());
                self.names.push(pointer.clone());
                self.meaning.insert(pointer, meaning.clone());
                named.extend(self.collect_within(&meaning)?);
            }
        }
        Ok(())
    }

    /// The pointers that a schema refers to, itself or in a subschema.
    fn collect_within(&mut self, schema: &Schema) -> Result<Vec<String>, SchemaError> {
        let (mut named, mut open) = (Vec::new(), vec![schema]);
        while let Some(schema) = open.pop() {
            self.reader.step("/$ref")?;
            self.size += 1;
            let Schema::Union(shapes) = schema else { continue };
            for shape in shapes {
                match shape {
                    Shape::Reference(pointer) => named.push(pointer.clone()),
                    Shape::Array(array) => open.extend(array.prefix.iter().chain([&array.items])),
                    Shape::Object(object) => {
                        open.extend(object.properties.iter().map(|property| &property.schema));
                        open.extend(object.patterns.iter().map(|(_, schema)| schema));
                        open.extend(&object.rest);
                    }
                    _ => {}
                }
            }
        }
        Ok(named)
    }

    /// Refuses schemas that are defined as themselves.
    fn check_loops(&self) -> Result<(), SchemaError> {
        // The path to the current schema with the references still to visit, and the visited
        // schemas.
        let (mut way, mut on_way, mut done) = (Vec::new(), HashSet::new(), HashSet::new());
        for start in &self.names {
            let mut next = Some(start);
            loop {
                match next {
                    Some(next) if on_way.contains(next) => {
                        return Err(SchemaError::new(next, "it refers to itself without end"));
                    }
                    Some(next) if done.insert(next) => {
                        on_way.insert(next);
                        way.push((next, self.stands_for(next)));
                    }
                    _ => {}
                }
                let Some((here, others)) = way.last_mut() else { break };
                next = others.pop();
                if next.is_none() {
                    on_way.remove(*here);
                    way.pop();
                }
            }
        }
        Ok(())
    }

    /// The pointers to which a schema is an alias, directly or as an alternative.
    fn stands_for(&self, pointer: &str) -> Vec<&String> {
        let Some(Schema::Union(shapes)) = self.meaning.get(pointer).map(Rc::as_ref) else {
            return Vec::new();
        };
        let named = shapes.iter().filter_map(|shape| match shape {
            Shape::Reference(next) => Some(next),
            _ => None,
        });
        named.collect()
    }

    /// Finds the definitions that finite values satisfy.
    fn find_possible(&mut self) -> Result<(), SchemaError> {
        loop {
            let before = self.possible.len();
            self.reader.spend(self.size, "")?;
            // References follow the schemas that use them.
            for pointer in self.names.iter().rev() {
                if !self.possible.contains(pointer) && self.is_possible(&self.meaning[pointer]) {
                    self.possible.insert(pointer.clone());
                }
            }
            if self.possible.len() == before {
                return Ok(());
            }
        }
    }

    fn is_possible(&self, schema: &Schema) -> bool {
        let Schema::Union(shapes) = schema else { return true };
        shapes.iter().any(|shape| match shape {
            Shape::Reference(pointer) => self.possible.contains(pointer),
            Shape::Array(array) => {
                let needed = array.prefix.iter().take(array.min as usize);
                (array.min <= array.prefix.len() as u64 || self.is_possible(&array.items))
                    && needed.into_iter().all(|item| self.is_possible(item))
            }
            Shape::Object(object) => {
                let mut needed = object.properties.iter().filter(|property| property.required);
                needed.all(|property| self.is_possible(&property.schema))
            }
            _ => true,
        })
    }

    fn schema(&mut self, schema: &Schema) -> Result<Value, SchemaError> {
        let Schema::Union(shapes) = schema else {
            self.any = true;
            return Ok(json!({"$ref": "#/$defs/any"}));
        };
        let booleans = [false, true].map(|value| shapes.contains(&Shape::Boolean(value)));
        let (mut constants, mut options) = (Vec::new(), Vec::new());
        if booleans == [true, true] {
            options.push(json!({"type": "boolean"}));
        }
        self.reader.spend(1 + shapes.len(), "")?;
        for shape in shapes {
            match shape {
                Shape::Null => options.push(json!({"type": "null"})),
                Shape::Boolean(_) if booleans == [true, true] => {}
                Shape::Boolean(value) => constants.push(Value::Bool(*value)),
                Shape::Number(number) => {
                    for schema in number.schemas() {
                        match schema.get("const") {
                            Some(constant) => constants.push(constant.clone()),
                            None => options.push(schema),
                        }
                    }
                }
                Shape::Text(Text { only: Some(only), patterns, .. }) if patterns.is_empty() => {
                    constants.extend(only.iter().cloned().map(Value::String));
                }
                Shape::Text(text) => options.extend(texts(text)),
                Shape::Array(array) => options.extend(self.arrays(array)?),
                Shape::Object(object) => options.extend(self.objects(object)?),
                Shape::Reference(pointer) if self.possible.contains(pointer) => {
                    let index = self.places.get(pointer).copied().unwrap_or_default();
                    options.push(json!({"$ref": format!("#/$defs/{index}")}));
                }
                Shape::Reference(_) => {}
            }
        }
        if !constants.is_empty() {
            options.insert(0, json!({"enum": constants}));
        }
        Ok(match options.len() {
            0 => Value::Bool(false),
            1 => options.swap_remove(0),
            _ => json!({"anyOf": options}),
        })
    }

    fn arrays(&mut self, array: &Array) -> Result<Vec<Value>, SchemaError> {
        let impossible = |item: &Schema| !self.is_possible(item);
        let mut prefix: &[Schema] = &array.prefix;
        let mut most = array.max.unwrap_or(u64::MAX);
        if let Some(end) = prefix.iter().position(impossible) {
            (prefix, most) = (&prefix[..end], most.min(end as u64));
        }
        if impossible(&array.items) {
            most = most.min(prefix.len() as u64);
        }
        if array.min > most.min(LONGEST) {
            return Ok(Vec::new());
        }
        if let Some(place) = &array.unique
            && most > 1
        {
            return differing(array, most).ok_or_else(|| {
                SchemaError::new(
                    place,
                    "items that differ can't be guaranteed, unless few values are permitted",
                )
            });
        }
        let mut schema = json!({"type": "array"});
        if !prefix.is_empty() {
            schema["prefixItems"] = prefix.iter().map(|item| self.schema(item)).collect::<Result<_, _>>()?;
        }
        schema["items"] =
            if most > prefix.len() as u64 { self.schema(&array.items)? } else { Value::Bool(false) };
        if array.min > 0 {
            schema["minItems"] = array.min.into();
        }
        if most < u64::MAX {
            schema["maxItems"] = most.min(LONGEST).into();
        }
        Ok(vec![schema])
    }

    fn objects(&mut self, object: &Object) -> Result<Vec<Value>, SchemaError> {
        let mut needed = object.properties.iter().filter(|property| property.required);
        if needed.any(|property| !self.is_possible(&property.schema)) {
            return Ok(Vec::new());
        }
        let rest = object.written_rest();
        let patterns: Vec<_> =
            object.patterns.iter().filter(|(_, schema)| self.is_possible(schema)).collect();
        let open = !patterns.is_empty() || self.is_possible(rest);
        let mut choices = Choices::new(open, object.max);
        let kinds: Vec<Presence> = object.properties.iter().map(|property| self.presence(property)).collect();
        choices.resolve(&kinds, Vec::new(), object.min).ok_or_else(|| {
            SchemaError::new(&object.counted_at, "the number of properties can't be guaranteed among so many")
        })?;

        let values: Vec<Value> = (object.properties.iter().zip(&kinds))
            .map(|(property, presence)| match presence {
                Presence::Never => Ok(Value::Bool(false)),
                _ => self.schema(&property.schema),
            })
            .collect::<Result<_, _>>()?;
        let mut keys = Map::new();
        for (pattern, schema) in &object.patterns {
            keys.insert(pattern.source(), self.schema(schema)?);
        }
        let rest = if self.is_possible(rest) { self.schema(rest)? } else { Value::Bool(false) };
        if choices.made.len() > 1 {
            let size = values.iter().chain(keys.values()).chain([&rest]).map(nodes).sum::<usize>();
            self.reader.spend(size.saturating_mul(choices.made.len()), &object.counted_at)?;
        }
        let patterns_at =
            child(object.counted_at.rsplit_once('/').unwrap_or_default().0, "patternProperties");
        let schemas = choices.made.into_iter().map(|(presence, min)| {
            let mut properties = Map::new();
            let mut required = Vec::new();
            for ((property, presence), value) in object.properties.iter().zip(presence).zip(&values) {
                match presence {
                    // Such a key must not be written as an undeclared one either.
                    Presence::Never if open => properties.insert(property.name.clone(), Value::Bool(false)),
                    Presence::Never => None,
                    Presence::Maybe => properties.insert(property.name.clone(), value.clone()),
                    Presence::Always => {
                        required.push(property.name.clone());
                        properties.insert(property.name.clone(), value.clone())
                    }
                };
            }
            let mut schema = json!({"type": "object", "properties": properties});
            if !keys.is_empty() {
                schema["patternProperties"] = keys.clone().into();
                schema["$comment"] = patterns_at.clone().into();
            }
            let count = required.len() as u64;
            schema["additionalProperties"] = rest.clone();
            schema["required"] = required.into();
            if min > 0 {
                schema["minProperties"] = (min + count).into();
            }
            if let Some(max) = object.max.filter(|_| open) {
                schema["maxProperties"] = max.into();
            }
            schema
        });
        Ok(schemas.collect())
    }

    fn presence(&self, property: &Property) -> Presence {
        match self.is_possible(&property.schema) {
            true if property.required => Presence::Always,
            true => Presence::Maybe,
            false => Presence::Never,
        }
    }
}

/// The number of values in a value, including itself.
fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(nodes).sum::<usize>(),
        Value::Object(map) => map.values().map(nodes).sum(),
        _ => 0,
    }
}

fn texts(text: &Text) -> Option<Value> {
    if text.min > LONGEST {
        return None;
    }
    if let Some(only) = &text.only {
        let limits = text.patterns.iter().map(
            |pattern| json!({"type": "string", "pattern": pattern.source(), "$comment": text.limited_at}),
        );
        let all: Vec<Value> = [json!({"enum": only})].into_iter().chain(limits).collect();
        return Some(json!({"allOf": all}));
    }
    let mut patterns: Vec<String> = text.patterns.iter().map(Pattern::source).collect();
    if !text.except.is_empty() {
        patterns.push(Pattern::except(&text.except).source());
    }
    let mut schema = json!({"type": "string"});
    if text.min > 0 {
        schema["minLength"] = text.min.into();
    }
    if let Some(max) = text.max {
        schema["maxLength"] = max.min(LONGEST).into();
    }
    let others = patterns.split_off(patterns.len().min(1));
    if let Some(pattern) = patterns.pop() {
        schema["pattern"] = pattern.into();
        schema["$comment"] = text.limited_at.clone().into();
    }
    if others.is_empty() {
        return Some(schema);
    }
    let others = others.into_iter().map(|pattern| json!({"type": "string", "pattern": pattern}));
    let all: Vec<Value> = [schema].into_iter().chain(others).collect();
    Some(json!({"allOf": all}))
}

/// Enumerates arrays of distinct items if the items have few possible values.
fn differing(array: &Array, most: u64) -> Option<Vec<Value>> {
    let values = if array.prefix.is_empty() { few_values(&array.items)? } else { return None };
    let mut arrays: Vec<Vec<usize>> = vec![Vec::new()];
    let mut next = 0;
    while let Some(shorter) = arrays.get(next).cloned() {
        next += 1;
        if (shorter.len() as u64) < most {
            let unused = (0..values.len()).filter(|index| !shorter.contains(index));
            arrays.extend(unused.map(|index| [&shorter[..], &[index]].concat()));
        }
        if arrays.len() > MOST_ALTERNATIVES {
            return None;
        }
    }
    arrays.retain(|items| items.len() as u64 >= array.min);
    let constants = arrays
        .into_iter()
        .map(|array| array.into_iter().map(|index| values[index].clone()).collect::<Vec<Value>>());
    Some(vec![json!({"enum": constants.collect::<Vec<_>>()})])
}

/// Enumerates the values of a schema if they are few and all different.
fn few_values(schema: &Schema) -> Option<Vec<Value>> {
    let Schema::Union(shapes) = schema else { return None };
    let mut values: Vec<Value> = Vec::new();
    for shape in shapes {
        match shape {
            Shape::Null => values.push(Value::Null),
            Shape::Boolean(value) => values.push(Value::Bool(*value)),
            Shape::Number(number) => {
                number.single()?;
                values.extend(number.schemas().into_iter().filter_map(|schema| schema.get("const").cloned()));
            }
            Shape::Text(Text { only: Some(only), patterns, .. }) if patterns.is_empty() => {
                values.extend(only.iter().cloned().map(Value::String));
            }
            _ => return None,
        }
    }
    let mut distinct: Vec<Value> = Vec::new();
    values.into_iter().for_each(|value| {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    });
    (distinct.len() <= 5).then_some(distinct)
}
