//! Reads keywords into the exact meaning of a schema.
//!
//! Owns the keywords that concern a single type; those that combine schemas are in `join`.
//! Keywords that aren't known to be harmless are refused.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Map, Value};

use super::SchemaError;
use super::document::{Document, Draft, child};
use super::pattern::{Pattern, Search};
use super::shape::{Array, Object, Property, Schema, Shape};
use super::typed::{counted, keys, malformed, names, numbers, schemas, texts, types};

/// How deep schemas may nest, including references.
const DEEPEST: usize = 64;
/// Limits the steps of reading, and the number of schemas written, with alternatives spelled out:
/// a few tenths of a second.
/// Real schemas of a hundred alternatives with many properties each take less than half of that.
const MOST_STEPS: usize = 100_000;
const MOST_WRITTEN: usize = 200_000;
/// Most optional properties of an object: each takes two entries in a row of llguidance's parser,
/// which holds 2,000, and any of them may come next.
const MOST_OPTIONAL: usize = 980;
/// Steps charged for a question about expressions.
const QUESTION: usize = 20;

/// Keywords that apply to one type only.
const TYPED: [&str; 23] = [
    "type",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
    "minProperties",
    "maxProperties",
    "propertyNames",
];

/// Keywords introduced after draft 4, with their draft.
const SINCE: [(&str, Draft); 14] = [
    ("const", Draft::Draft6),
    ("contains", Draft::Draft6),
    ("propertyNames", Draft::Draft6),
    ("if", Draft::Draft7),
    ("$recursiveRef", Draft::Draft201909),
    ("dependentRequired", Draft::Draft201909),
    ("dependentSchemas", Draft::Draft201909),
    ("maxContains", Draft::Draft201909),
    ("minContains", Draft::Draft201909),
    ("unevaluatedItems", Draft::Draft201909),
    ("unevaluatedProperties", Draft::Draft201909),
    ("$dynamicRef", Draft::Draft202012),
    ("prefixItems", Draft::Draft202012),
    ("dependencies", Draft::Draft4),
];

/// Reads the schemas of a document.
pub(super) struct Reader<'a> {
    pub document: Document<'a>,
    known: HashMap<String, Rc<Schema>>,
    /// Complements of referenced schemas, by pointer and keys.
    pub(super) complements: HashMap<(String, Option<Vec<String>>), Option<Schema>>,
    /// Pairs of expressions, and whether no key matches both.
    pub(super) disjoint: HashMap<(String, String), bool>,
    depth: usize,
    steps: usize,
    written: usize,
    /// Number of negations around the current schema.
    negating: usize,
    /// Pointers of the schemas whose complement is needed.
    negated: Vec<String>,
    /// Keywords that the document's draft doesn't define.
    /// They are applied anyway, which is safe only outside of negations.
    foreign: Vec<SchemaError>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(document: Document<'a>) -> Self {
        Reader {
            document,
            known: HashMap::new(),
            complements: HashMap::new(),
            disjoint: HashMap::new(),
            depth: 0,
            steps: 0,
            written: 0,
            negating: 0,
            negated: Vec::new(),
            foreign: Vec::new(),
        }
    }

    /// The meaning of the schema at a pointer.
    pub(super) fn schema_at(&mut self, pointer: &str, at: &str) -> Result<Rc<Schema>, SchemaError> {
        if self.negating > 0 {
            self.negated.push(pointer.to_owned());
        }
        if let Some(schema) = self.known.get(pointer) {
            return Ok(schema.clone());
        }
        let root = self.document.root;
        let value = root.pointer(pointer).ok_or_else(|| SchemaError::new(at, "it leads nowhere"))?;
        let schema = Rc::new(self.read(value, pointer)?);
        self.known.insert(pointer.to_owned(), schema.clone());
        Ok(schema)
    }

    /// Refuses what can only be detected after reading everything.
    pub(super) fn finish(&self) -> Result<(), SchemaError> {
        let is_negated = |refusal: &&SchemaError| {
            let mut above =
                self.negated.iter().filter_map(|pointer| refusal.pointer.strip_prefix(pointer.as_str()));
            above.any(|rest| rest.starts_with('/'))
        };
        self.foreign.iter().find(is_negated).cloned().map_or(Ok(()), Err)
    }

    /// Runs an action that depends on the complement of the schema at a pointer.
    pub(super) fn negating<T>(&mut self, at: &str, action: impl FnOnce(&mut Self) -> T) -> T {
        self.negated.push(at.to_owned());
        self.negating += 1;
        let outcome = action(self);
        self.negating -= 1;
        outcome
    }

    pub(super) fn read(&mut self, value: &Value, at: &str) -> Result<Schema, SchemaError> {
        let map = match value {
            Value::Bool(true) => return Ok(Schema::Any),
            Value::Bool(false) => return Ok(Schema::NEVER),
            Value::Object(map) => map,
            _ => return Err(SchemaError::new(at, "a schema is an object, true or false")),
        };
        self.enter(at)?;
        self.step(at)?;
        let schema = match map.get("$ref") {
            // Up to draft 7, keywords next to a reference are ignored.
            Some(reference) if self.document.draft <= Draft::Draft7 => self.reference(reference, at)?,
            _ => {
                self.note_foreign(map, at);
                let own = self.own(map, at)?;
                self.join(own, map, at)?
            }
        };
        self.leave();
        Ok(schema)
    }

    pub(super) fn enter(&mut self, at: &str) -> Result<(), SchemaError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(SchemaError::new(
                at,
                format!("schemas nest more than {DEEPEST} deep, or recurse for ever"),
            ));
        }
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    pub(super) fn step(&mut self, at: &str) -> Result<(), SchemaError> {
        self.steps(1, at)
    }

    /// Charges a question about expressions.
    pub(super) fn question(&mut self, at: &str) -> Result<(), SchemaError> {
        self.steps(QUESTION, at)
    }

    fn steps(&mut self, steps: usize, at: &str) -> Result<(), SchemaError> {
        self.steps += steps;
        if self.steps > MOST_STEPS {
            return Err(SchemaError::new(at, "the schema has too many combinations"));
        }
        Ok(())
    }

    /// Charges the writing of this many schemas.
    pub(super) fn spend(&mut self, schemas: usize, at: &str) -> Result<(), SchemaError> {
        self.written = self.written.saturating_add(schemas);
        if self.written > MOST_WRITTEN {
            let reason = "there are too many alternatives to write them all out; name what repeats in $defs, or \
                          permit less";
            return Err(SchemaError::new(at, reason));
        }
        Ok(())
    }

    fn note_foreign(&mut self, map: &Map<String, Value>, at: &str) {
        let draft = self.document.draft;
        let is_foreign = |(keyword, since): &&(&str, Draft)| {
            let removed = *keyword == "dependencies" && draft > Draft::Draft7;
            map.contains_key(*keyword) && (draft < *since || removed)
        };
        if let Some((keyword, _)) = SINCE.iter().find(is_foreign) {
            let reason = "the draft in $schema does not have it, which makes a negation ambiguous";
            self.foreign.push(SchemaError::new(&child(at, keyword), reason));
        }
    }

    fn own(&mut self, map: &Map<String, Value>, at: &str) -> Result<Schema, SchemaError> {
        if !TYPED.iter().any(|keyword| map.contains_key(*keyword)) {
            return Ok(Schema::Any);
        }
        let types = types(map).ok_or_else(|| {
            SchemaError::new(
                &child(at, "type"),
                "a type is null, boolean, number, integer, string, array or object",
            )
        })?;
        let mut shapes = Vec::new();
        for name in &types {
            match *name {
                "null" => shapes.push(Shape::Null),
                "boolean" => shapes.extend([false, true].map(Shape::Boolean)),
                "integer" if types.contains(&"number") => {}
                "integer" | "number" => {
                    let number = numbers(map, *name == "integer", at)?;
                    shapes.extend(Some(number).filter(|set| !set.is_empty()).map(Shape::Number));
                }
                "string" => {
                    shapes.extend(Some(texts(map, at)?).filter(|set| !set.is_empty()).map(Shape::Text));
                }
                "array" => {
                    let array = self.arrays(map, at)?;
                    shapes.extend(Some(array).filter(|set| !set.is_empty()).map(Shape::Array));
                }
                _ => {
                    let object = self.objects(map, at)?;
                    shapes.extend(Some(object).filter(|set| !set.is_empty()).map(Shape::Object));
                }
            }
        }
        Ok(Schema::Union(shapes))
    }

    fn arrays(&mut self, map: &Map<String, Value>, at: &str) -> Result<Array, SchemaError> {
        // Older drafts put tuples in `items`, and the schema of later items in `additionalItems`.
        let (tuple, rest) = match map.get("items") {
            Some(Value::Array(_)) => ("items", "additionalItems"),
            _ => ("prefixItems", "items"),
        };
        let mut prefix = Vec::new();
        if let Some(items) = map.get(tuple) {
            let items = items.as_array().ok_or_else(|| malformed(at, tuple, "an array of schemas"))?;
            for (index, item) in items.iter().enumerate() {
                prefix.push(self.read(item, &format!("{}/{index}", child(at, tuple)))?);
            }
        }
        let items = match map.get(rest) {
            Some(items) => self.read(items, &child(at, rest))?,
            None => Schema::Any,
        };
        let unique = match map.get("uniqueItems") {
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(child(at, "uniqueItems")),
            Some(_) => return Err(malformed(at, "uniqueItems", "true or false")),
        };
        let min = counted(map, "minItems", at)?.unwrap_or(0);
        Ok(Array { prefix, items, min, max: counted(map, "maxItems", at)?, unique })
    }

    fn objects(&mut self, map: &Map<String, Value>, at: &str) -> Result<Object, SchemaError> {
        let counter = if map.contains_key("minProperties") { "minProperties" } else { "maxProperties" };
        let mut object = Object {
            declares: map.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty()),
            min: counted(map, "minProperties", at)?.unwrap_or(0),
            max: counted(map, "maxProperties", at)?,
            counted_at: child(at, counter),
            ..Object::default()
        };
        let place = child(at, "patternProperties");
        let (mut matched, mut every) = (Vec::new(), None);
        for (source, value) in schemas(map, "patternProperties", at)? {
            let here = child(&place, source);
            let schema = self.read(value, &here)?;
            match Pattern::search(source).map_err(|message| SchemaError::new(&here, message))? {
                Search::Everything => {
                    every = Some(match every {
                        None => schema,
                        Some(other) => self.meet(&other, &schema, &place)?,
                    });
                }
                Search::Strings(strings) => {
                    matched.extend(strings.into_iter().map(|name| (name, schema.clone())));
                }
                Search::Pattern(pattern) => {
                    self.check_disjoint(object.patterns.iter().map(|(known, _)| known), &pattern, &place)?;
                    object.patterns.push((pattern, schema));
                }
            }
        }
        // If every key matches an expression, none is left for `additionalProperties`.
        if let Some(every) = every {
            for at in 0..object.patterns.len() {
                object.patterns[at].1 = self.meet(&object.patterns[at].1, &every, &place)?;
            }
            object.rest = Some(every);
        }
        // Properties must also satisfy the schemas of all patterns that match their names.
        let mut named: Vec<(String, Schema, bool)> = Vec::new();
        for (name, value) in schemas(map, "properties", at)? {
            let schema = self.read(value, &child(&child(at, "properties"), name))?;
            named.push((name.clone(), schema, true));
        }
        named.extend(matched.into_iter().map(|(name, schema)| (name, schema, false)));
        // The position of each name.
        let mut places: HashMap<String, usize> = HashMap::new();
        for (name, schema, declared) in named {
            let matching = self.key(&object, &name, &place)?;
            let schema = self.meet(&schema, &matching, &place)?;
            match places.get(&name) {
                Some(&at) => {
                    let known = &object.properties[at].schema;
                    object.properties[at].schema = self.meet(known, &schema, &place)?;
                }
                None => {
                    places.insert(name.clone(), object.properties.len());
                    object.properties.push(Property { name, schema, required: false, declared });
                }
            }
        }
        if let Some(rest) = map.get("additionalProperties")
            && object.rest.is_none()
        {
            object.rest = Some(self.read(rest, &child(at, "additionalProperties"))?);
        }
        for name in names(map, "required", at)? {
            if let Some(&at) = places.get(name) {
                object.properties[at].required = true;
                continue;
            }
            let schema = self.key(&object, name, &place)?;
            let name = name.to_owned();
            places.insert(name.clone(), object.properties.len());
            object.properties.push(Property { name, schema, required: true, declared: false });
        }
        if object.properties.iter().filter(|property| !property.required).count() > MOST_OPTIONAL {
            let reason =
                format!("an object may have {MOST_OPTIONAL} optional properties; nest them, or require some");
            return Err(SchemaError::new(&child(at, "properties"), reason));
        }
        match map.get("propertyNames") {
            None => Ok(object),
            Some(value) => {
                let place = child(at, "propertyNames");
                let schema = self.read(value, &place)?;
                match keys(&schema, &place)? {
                    None => Ok(object),
                    Some(keys) => self.meet_objects(&object, &keys, &place),
                }
            }
        }
    }
}
