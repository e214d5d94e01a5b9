//! The meaning of a schema: a set of JSON values, as a union of shapes of one type each.
//!
//! Owns the shapes, and operations that need only one of them.
//! Intersections may need the document, for references, and are in `meet`.

use serde_json::Value;

use super::number::Number;
use super::pattern::Pattern;

/// Longest string that a set may exclude, and limit of their total length, in bytes: each becomes a
/// path through an expression.
const LONGEST_EXCEPT: usize = 128;
const MOST_EXCEPT: usize = 16_384;

/// A set of JSON values.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Schema {
    /// All values.
    Any,
    /// The values of all these shapes; the empty union has no values.
    Union(Vec<Shape>),
}

/// A set of values of one type, or the meaning of a schema elsewhere in the document.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Null,
    Boolean(bool),
    Number(Number),
    Text(Text),
    Array(Array),
    Object(Object),
    /// The JSON pointer of another schema.
    Reference(String),
}

/// A set of strings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Text {
    pub min: u64,
    pub max: Option<u64>,
    pub patterns: Vec<Pattern>,
    /// The strings of a finite set; then the only other limits are inexact patterns.
    pub only: Option<Vec<String>>,
    pub except: Vec<String>,
    /// The pointer to the keyword that sets the patterns.
    pub limited_at: String,
}

/// A set of arrays.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Array {
    pub prefix: Vec<Schema>,
    /// The schema of the items after the prefix.
    pub items: Schema,
    pub min: u64,
    pub max: Option<u64>,
    /// The pointer to the keyword that requires distinct items, if any.
    pub unique: Option<String>,
}

/// A set of objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Object {
    pub properties: Vec<Property>,
    /// Schemas of keys that aren't properties; no key matches two of the patterns.
    pub patterns: Vec<(Pattern, Schema)>,
    /// The schema of all other keys; `None` if undeclared.
    pub rest: Option<Schema>,
    /// Whether the schema declares properties.
    /// If so, undeclared keys are not written.
    pub declares: bool,
    pub min: u64,
    pub max: Option<u64>,
    /// The pointer to the keyword that sets `min` or `max`.
    pub counted_at: String,
}

/// A key of an object.
/// A forbidden key has the schema that nothing satisfies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Property {
    pub name: String,
    pub schema: Schema,
    pub required: bool,
    /// Whether `properties` lists it, which determines the order of keys.
    pub declared: bool,
}

impl Schema {
    /// The set without values.
    pub(super) const NEVER: Schema = Schema::Union(Vec::new());

    pub(super) fn one(shape: Shape) -> Self {
        Schema::Union(vec![shape])
    }

    pub(super) fn is_never(&self) -> bool {
        matches!(self, Schema::Union(shapes) if shapes.is_empty())
    }

    /// The shapes; for [`Schema::Any`] one of each type.
    pub(super) fn shapes(&self) -> Vec<Shape> {
        match self {
            Schema::Any => Shape::all(),
            Schema::Union(shapes) => shapes.clone(),
        }
    }

    /// A single value; `None` if it contains a number that can't be represented.
    pub(super) fn constant(value: &Value) -> Option<Self> {
        Some(Schema::one(match value {
            Value::Null => Shape::Null,
            Value::Bool(value) => Shape::Boolean(*value),
            Value::Number(number) => Shape::Number(Number::point(number)?),
            Value::String(text) => Shape::Text(Text { only: Some(vec![text.clone()]), ..Text::default() }),
            Value::Array(items) => Shape::Array(Array {
                prefix: items.iter().map(Schema::constant).collect::<Option<_>>()?,
                items: Schema::NEVER,
                min: items.len() as u64,
                ..Array::default()
            }),
            Value::Object(map) => {
                let property = |(name, value): (&String, &Value)| {
                    let schema = Schema::constant(value)?;
                    Some(Property { name: name.clone(), schema, required: true, declared: true })
                };
                let properties = map.iter().map(property).collect::<Option<_>>()?;
                Shape::Object(Object { properties, rest: Some(Schema::NEVER), ..Object::default() })
            }
        }))
    }
}

impl Shape {
    /// One shape of each type, without limits.
    pub(super) fn all() -> Vec<Self> {
        vec![
            Shape::Null,
            Shape::Boolean(false),
            Shape::Boolean(true),
            Shape::Number(Number::default()),
            Shape::Text(Text::default()),
            Shape::Array(Array::default()),
            Shape::Object(Object::default()),
        ]
    }

    /// All values of other types.
    pub(super) fn other_types(&self) -> Vec<Self> {
        let same = |other: &Shape| {
            std::mem::discriminant(self) == std::mem::discriminant(other)
                && !matches!((self, other), (Shape::Boolean(a), Shape::Boolean(b)) if a != b)
        };
        Shape::all().into_iter().filter(|other| !same(other)).collect()
    }
}

impl Default for Array {
    fn default() -> Self {
        Array { prefix: Vec::new(), items: Schema::Any, min: 0, max: None, unique: None }
    }
}

impl Array {
    /// The maximum number of items.
    pub(super) fn most(&self) -> Option<u64> {
        let declared = self.items.is_never().then_some(self.prefix.len() as u64);
        least(self.max, declared)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.most().is_some_and(|most| most < self.min)
            || self.prefix.iter().take(self.min as usize).any(Schema::is_never)
    }
}

impl Object {
    pub(super) fn property(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|property| property.name == name)
    }

    /// The schema of keys that are neither properties nor match a pattern.
    pub(super) fn rest(&self) -> &Schema {
        self.rest.as_ref().unwrap_or(&Schema::Any)
    }

    /// As [`Object::rest`], but excludes keys that the schema doesn't declare.
    pub(super) fn written_rest(&self) -> &Schema {
        static NOTHING: Schema = Schema::NEVER;
        if self.rest.is_none() && self.declares { &NOTHING } else { self.rest() }
    }

    pub(super) fn required(&self) -> u64 {
        self.properties.iter().filter(|property| property.required).count() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.properties.iter().any(|property| property.required && property.schema.is_never())
            || self.max.is_some_and(|max| max < self.min.max(self.required()))
    }
}

impl Text {
    /// The intersection of both sets.
    pub(super) fn meet(&self, other: &Text) -> Text {
        let mut both = self.clone();
        both.min = both.min.max(other.min);
        both.max = least(both.max, other.max);
        if both.patterns.is_empty() || !other.patterns.is_empty() {
            both.limited_at.clone_from(&other.limited_at);
        }
        both.patterns
            .extend(other.patterns.iter().filter(|pattern| !self.patterns.contains(pattern)).cloned());
        both.except.extend(other.except.iter().filter(|text| !self.except.contains(text)).cloned());
        both.only = match (both.only, &other.only) {
            (Some(a), Some(b)) => {
                let b: std::collections::HashSet<&String> = b.iter().collect();
                Some(a.into_iter().filter(|text| b.contains(text)).collect())
            }
            (a, b) => a.or_else(|| b.clone()),
        };
        both.settled()
    }

    /// Removes from a finite set the strings that the other limits exclude, as far as can be
    /// decided.
    pub(super) fn settled(mut self) -> Text {
        let Some(mut only) = self.only.take() else { return self };
        let (min, max) = (self.min, self.max.unwrap_or(u64::MAX));
        let except: std::collections::HashSet<String> = self.except.drain(..).collect();
        only.retain(|text| (min..=max).contains(&(text.chars().count() as u64)) && !except.contains(text));
        self.patterns.retain(|pattern| {
            let matches = |text: &String| if pattern.exact { pattern.matches(text) } else { None };
            let known: Option<Vec<bool>> = only.iter().map(matches).collect();
            let Some(mut known) = known.map(Vec::into_iter) else { return true };
            only.retain(|_| known.next().unwrap_or_default());
            false
        });
        Text { only: Some(only), patterns: self.patterns, limited_at: self.limited_at, ..Text::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        let mut exact: Vec<Pattern> = self.patterns.iter().filter(|pattern| pattern.exact).cloned().collect();
        if self.min > 0 || self.max.is_some() {
            exact.push(Pattern::length(self.min, self.max));
        }
        self.only.as_ref().is_some_and(Vec::is_empty)
            || self.max.is_some_and(|max| max < self.min)
            || (exact.len() > 1 && Pattern::are_disjoint(&exact))
    }

    /// The complement; `None` if no sets of this kind represent it.
    pub(super) fn complement(&self) -> Option<Vec<Text>> {
        let only = self.only.as_deref().unwrap_or_default();
        let long = only.iter().any(|text| text.len() > LONGEST_EXCEPT)
            || only.iter().map(String::len).sum::<usize>() > MOST_EXCEPT;
        if !self.patterns.is_empty() || long {
            return None;
        }
        let mut others = Vec::new();
        if let Some(only) = &self.only {
            others.push(Text { except: only.clone(), ..Text::default() });
        }
        if !self.except.is_empty() {
            others.push(Text { only: Some(self.except.clone()), ..Text::default() });
        }
        if let Some(shorter) = self.min.checked_sub(1) {
            others.push(Text { max: Some(shorter), ..Text::default() });
        }
        if let Some(max) = self.max {
            others.push(Text { min: max.saturating_add(1), ..Text::default() });
        }
        Some(others)
    }
}

/// The smaller of two optional limits.
pub(super) fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// A count in a keyword, which may be written as `2.0`.
pub(super) fn count(value: &Value) -> Option<u64> {
    let float = || value.as_f64().filter(|number| *number >= 0.0 && number.fract() == 0.0);
    value.as_u64().or_else(|| float().map(|number| number as u64))
}
