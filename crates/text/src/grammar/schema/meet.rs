//! Intersections and complements of schemas.

use std::collections::{HashMap, HashSet};

use super::SchemaError;
use super::number::Number;
use super::pattern::Pattern;
use super::read::Reader;
use super::shape::{Array, Object, Property, Schema, Shape, Text, least};

/// Most expressions that a string may have to match at once.
const MOST_PATTERNS: usize = 8;
/// How many required keys are compared to prove two objects disjoint.
const MOST_MARKS: usize = 8;

impl Reader<'_> {
    /// The exact intersection of two schemas.
    /// Order of keys: those declared by the first, those declared by the second, the others.
    pub fn meet(&mut self, a: &Schema, b: &Schema, at: &str) -> Result<Schema, SchemaError> {
        let (a, b) = match (a, b) {
            (Schema::Any, other) | (other, Schema::Any) => return Ok(other.clone()),
            (Schema::Union(a), Schema::Union(b)) => (a, b),
        };
        self.enter(at)?;
        let mut both = Vec::new();
        for x in a {
            for y in b {
                self.step(at)?;
                for shape in self.meet_shapes(x, y, at)? {
                    if both.len() > 40 || !both.contains(&shape) {
                        both.push(shape);
                    }
                }
            }
        }
        self.leave();
        Ok(Schema::Union(both))
    }

    fn meet_shapes(&mut self, a: &Shape, b: &Shape, at: &str) -> Result<Vec<Shape>, SchemaError> {
        let shape = match (a, b) {
            (Shape::Reference(x), Shape::Reference(y)) if x == y => Some(a.clone()),
            (Shape::Reference(pointer), other) => {
                let schema = self.schema_at(pointer, at)?;
                return Ok(self.meet(&schema, &Schema::one(other.clone()), at)?.shapes());
            }
            (other, Shape::Reference(pointer)) => {
                let schema = self.schema_at(pointer, at)?;
                return Ok(self.meet(&Schema::one(other.clone()), &schema, at)?.shapes());
            }
            (Shape::Null, Shape::Null) => Some(Shape::Null),
            (Shape::Boolean(x), Shape::Boolean(y)) => (x == y).then_some(Shape::Boolean(*x)),
            (Shape::Number(x), Shape::Number(y)) => {
                let both = x.meet(y).ok_or_else(|| {
                    SchemaError::new(at, "the common multiple of two multipleOf can't be held exactly")
                })?;
                (!both.is_empty()).then_some(Shape::Number(both))
            }
            (Shape::Text(x), Shape::Text(y)) => {
                // Length limits only matter together with expressions.
                if x.patterns.len() + y.patterns.len() > 0 {
                    self.question(at)?;
                }
                let both = x.meet(y);
                if both.patterns.len() > MOST_PATTERNS {
                    let reason = format!("a string must match more than {MOST_PATTERNS} expressions at once");
                    return Err(SchemaError::new(at, reason));
                }
                Some(both).filter(|both| !both.is_empty()).map(Shape::Text)
            }
            (Shape::Array(x), Shape::Array(y)) => {
                Some(self.meet_arrays(x, y, at)?).filter(|both| !both.is_empty()).map(Shape::Array)
            }
            (Shape::Object(x), Shape::Object(y)) if self.are_apart(x, y, at)? => None,
            (Shape::Object(x), Shape::Object(y)) => {
                Some(self.meet_objects(x, y, at)?).filter(|both| !both.is_empty()).map(Shape::Object)
            }
            _ => None,
        };
        Ok(shape.into_iter().collect())
    }

    fn meet_arrays(&mut self, a: &Array, b: &Array, at: &str) -> Result<Array, SchemaError> {
        let prefix = (0..a.prefix.len().max(b.prefix.len())).map(|index| {
            let item = |array: &Array| array.prefix.get(index).unwrap_or(&array.items).clone();
            self.meet(&item(a), &item(b), at)
        });
        Ok(Array {
            prefix: prefix.collect::<Result<_, _>>()?,
            items: self.meet(&a.items, &b.items, at)?,
            min: a.min.max(b.min),
            max: least(a.max, b.max),
            unique: a.unique.clone().or_else(|| b.unique.clone()),
        })
    }

    /// Whether a key that one of the objects requires proves them disjoint, like a key that names
    /// an object's kind.
    fn are_apart(&mut self, a: &Object, b: &Object, at: &str) -> Result<bool, SchemaError> {
        for (one, other) in [(a, b), (b, a)] {
            let required = one.properties.iter().filter(|property| property.required);
            for property in required.take(MOST_MARKS) {
                self.step(at)?;
                let theirs = match other.property(&property.name) {
                    Some(theirs) => theirs.schema.clone(),
                    None => self.key(other, &property.name, at)?,
                };
                // Comparing nested values costs as much as intersecting them.
                if theirs.is_never() || is_scalar(&theirs) && is_scalar(&property.schema) {
                    let both = self.meet(&property.schema, &theirs, at)?;
                    if both.is_never() {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    pub fn meet_objects(&mut self, a: &Object, b: &Object, at: &str) -> Result<Object, SchemaError> {
        let mut properties: Vec<Property> = Vec::new();
        let by_name = |object: &Object| -> HashMap<String, usize> {
            let names = object.properties.iter().map(|property| property.name.clone());
            names.enumerate().map(|(at, name)| (name, at)).collect()
        };
        let (names_a, names_b, mut seen) = (by_name(a), by_name(b), HashSet::new());
        for (one, other, names) in [(a, b, &names_b), (b, a, &names_a)] {
            for property in &one.properties {
                self.step(at)?;
                if !seen.insert(&property.name) {
                    continue;
                }
                let theirs = names.get(&property.name).map(|&at| &other.properties[at]);
                let schema = match theirs {
                    Some(theirs) => theirs.schema.clone(),
                    None => self.key(other, &property.name, at)?,
                };
                properties.push(Property {
                    name: property.name.clone(),
                    schema: self.meet(&property.schema, &schema, at)?,
                    required: property.required || theirs.is_some_and(|theirs| theirs.required),
                    declared: property.declared || theirs.is_some_and(|theirs| theirs.declared),
                });
            }
        }
        properties.sort_by_key(|property| !property.declared);
        let mut patterns = Vec::new();
        for (one, other) in [(a, b), (b, a)] {
            for (pattern, schema) in &one.patterns {
                let same = other.patterns.iter().find(|(known, _)| known == pattern);
                if same.is_none() {
                    self.check_disjoint(other.patterns.iter().map(|(known, _)| known), pattern, at)?;
                }
                if patterns.iter().all(|(known, _)| known != pattern) {
                    let theirs = same.map_or(other.rest(), |(_, schema)| schema);
                    patterns.push((pattern.clone(), self.meet(schema, theirs, at)?));
                }
            }
        }
        let rest = match (&a.rest, &b.rest) {
            (Some(a), Some(b)) => Some(self.meet(a, b, at)?),
            (a, b) => a.clone().or_else(|| b.clone()),
        };
        let counted = if a.min > 0 || a.max.is_some() { a } else { b };
        Ok(Object {
            properties,
            patterns,
            rest,
            declares: a.declares || b.declares,
            min: a.min.max(b.min),
            max: least(a.max, b.max),
            counted_at: counted.counted_at.clone(),
        })
    }

    /// The schema of an object's values under a key that isn't one of its properties.
    pub fn key(&mut self, object: &Object, name: &str, at: &str) -> Result<Schema, SchemaError> {
        for (pattern, schema) in &object.patterns {
            self.question(at)?;
            match pattern.matches(name) {
                Some(true) => return Ok(schema.clone()),
                Some(false) => {}
                None => {
                    return Err(SchemaError::new(at, "an expression of patternProperties is too complex"));
                }
            }
        }
        Ok(object.rest().clone())
    }

    /// Checks that no key matches two patterns, since a grammar distinguishes keys by pattern.
    pub fn check_disjoint<'p>(
        &mut self,
        patterns: impl Iterator<Item = &'p Pattern>,
        pattern: &Pattern,
        at: &str,
    ) -> Result<(), SchemaError> {
        for known in patterns {
            let pair = (known.regex.clone(), pattern.regex.clone());
            let disjoint = match self.disjoint.get(&pair) {
                Some(disjoint) => *disjoint,
                None => {
                    self.question(at)?;
                    let disjoint = Pattern::are_disjoint(&[known.clone(), pattern.clone()]);
                    self.disjoint.insert(pair, disjoint);
                    disjoint
                }
            };
            if !disjoint {
                return Err(SchemaError::new(at, "a key may match several expressions of patternProperties"));
            }
        }
        Ok(())
    }

    /// The exact complement of a schema; `None` if it can't be expressed.
    /// With `keys`, only objects without other keys are included.
    pub fn complement(
        &mut self,
        schema: &Schema,
        keys: Option<&[String]>,
        at: &str,
    ) -> Result<Option<Schema>, SchemaError> {
        let Schema::Union(shapes) = schema else { return Ok(Some(Schema::NEVER)) };
        self.enter(at)?;
        let mut others = Some(Schema::Any);
        for shape in shapes {
            self.step(at)?;
            let complement = self.complement_of(shape, keys, at)?;
            others = match (others, complement) {
                (Some(others), Some(complement)) => Some(self.meet(&others, &complement, at)?),
                _ => None,
            };
        }
        self.leave();
        Ok(others)
    }

    fn complement_of(
        &mut self,
        shape: &Shape,
        keys: Option<&[String]>,
        at: &str,
    ) -> Result<Option<Schema>, SchemaError> {
        let same_type: Option<Vec<Shape>> = match shape {
            Shape::Reference(pointer) => {
                let key = (pointer.clone(), keys.map(<[_]>::to_vec));
                if let Some(known) = self.complements.get(&key) {
                    return Ok(known.clone());
                }
                let schema = self.schema_at(pointer, at)?;
                let complement = self.complement(&schema, keys, at)?;
                self.complements.insert(key, complement.clone());
                return Ok(complement);
            }
            Shape::Null | Shape::Boolean(_) => Some(Vec::new()),
            Shape::Number(number) => number.complement().map(shapes(Shape::Number, Number::is_empty)),
            Shape::Text(text) => text.complement().map(shapes(Shape::Text, Text::is_empty)),
            Shape::Array(array) => complement_of_array(array),
            Shape::Object(object) => self.complement_of_object(object, keys, at)?,
        };
        Ok(same_type.map(|mut same_type| {
            same_type.extend(shape.other_types());
            Schema::Union(same_type)
        }))
    }

    fn complement_of_object(
        &mut self,
        object: &Object,
        keys: Option<&[String]>,
        at: &str,
    ) -> Result<Option<Vec<Shape>>, SchemaError> {
        let others = match object.rest() {
            Schema::Any => &[],
            rest if rest.is_never() => keys.unwrap_or_default(),
            _ => return Ok(None),
        };
        let unknown = object.rest().is_never() && keys.is_none();
        if unknown || !object.patterns.is_empty() || object.max.is_some() {
            return Ok(None);
        }
        let mut outside = Vec::new();
        let mut with = |name: &String, schema: Schema, required: bool| {
            let property = Property { name: name.clone(), schema, required, declared: false };
            let properties = vec![property];
            outside.push(Shape::Object(Object { properties, ..Object::default() }));
        };
        for name in others.iter().filter(|name| object.property(name).is_none()) {
            with(name, Schema::Any, true);
        }
        for property in &object.properties {
            if property.required {
                with(&property.name, Schema::NEVER, false);
            }
            let Some(schema) = self.complement(&property.schema, None, at)? else { return Ok(None) };
            if !schema.is_never() {
                with(&property.name, schema, true);
            }
        }
        if let Some(max) = object.min.checked_sub(1) {
            let counted_at = object.counted_at.clone();
            outside.push(Shape::Object(Object { max: Some(max), counted_at, ..Object::default() }));
        }
        Ok(Some(outside))
    }
}

/// Whether a schema only permits values without nested values.
fn is_scalar(schema: &Schema) -> bool {
    let Schema::Union(shapes) = schema else { return false };
    shapes.iter().all(|shape| !matches!(shape, Shape::Array(_) | Shape::Object(_) | Shape::Reference(_)))
}

fn shapes<T>(shape: impl Fn(T) -> Shape, is_empty: impl Fn(&T) -> bool) -> impl Fn(Vec<T>) -> Vec<Shape> {
    move |sets| sets.into_iter().filter(|set| !is_empty(set)).map(&shape).collect()
}

fn complement_of_array(array: &Array) -> Option<Vec<Shape>> {
    if !array.prefix.is_empty() || array.items != Schema::Any || array.unique.is_some() {
        return None;
    }
    let shorter = array.min.checked_sub(1).map(|max| Array { max: Some(max), ..Array::default() });
    let longer = array.max.map(|max| Array { min: max.saturating_add(1), ..Array::default() });
    Some(shorter.into_iter().chain(longer).map(Shape::Array).collect())
}
