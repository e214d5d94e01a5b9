//! The inputs of a jinx: their types, their schema for a model, and the check of their values.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// An argument of a jinx.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Input {
    /// The name, also of the environment variable: `[A-Za-z_][A-Za-z0-9_]*`.
    pub name: String,
    /// The type of its values.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Its description for the model; may be empty.
    pub description: String,
    /// The value if none is given; `None` if the input is required.
    pub default: Option<Value>,
    /// The only permitted values.
    pub choices: Choices,
}

/// The values that an input accepts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Choices {
    /// Any value of its type.
    #[default]
    Any,
    /// These values.
    Of(Vec<Value>),
    /// Names of the members to whom the caller may delegate: of its team and sub-teams (`enum:
    /// members`).
    Members,
    /// Names of the skills that the caller may look up (`enum: skills`).
    Skills,
}

/// The members and skills available to a caller, for [`Choices`] that depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The other members of its team, and its sub-teams.
    pub members: Vec<String>,
    /// The skills of its catalog.
    pub skills: Vec<String>,
}

impl Choices {
    /// The values; `None` for any.
    pub fn values(&self, offer: &Offer) -> Option<Vec<Value>> {
        let names = |names: &[String]| Some(names.iter().map(|name| Value::from(name.as_str())).collect());
        match self {
            Choices::Any => None,
            Choices::Of(values) => Some(values.clone()),
            Choices::Members => names(&offer.members),
            Choices::Skills => names(&offer.skills),
        }
    }
}

/// The types of JSON schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Text.
    #[default]
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Boolean,
    /// A list.
    Array,
    /// A mapping.
    Object,
    /// Anything: only for external tools, whose schema has the details.
    Any,
}

impl Kind {
    /// The type of a value; text for null.
    pub fn of(value: &Value) -> Kind {
        match value {
            Value::Null | Value::String(_) => Kind::String,
            Value::Bool(_) => Kind::Boolean,
            Value::Number(number) if number.is_f64() => Kind::Number,
            Value::Number(_) => Kind::Integer,
            Value::Array(_) => Kind::Array,
            Value::Object(_) => Kind::Object,
        }
    }

    /// The type with this name in a schema; [`Kind::Any`] if there is none.
    pub fn named(name: &str) -> Kind {
        let all = [Kind::String, Kind::Integer, Kind::Number, Kind::Boolean, Kind::Array, Kind::Object];
        all.into_iter().find(|kind| kind.name() == name).unwrap_or(Kind::Any)
    }

    /// The name in a schema.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
            Kind::Array => "array",
            Kind::Object => "object",
            Kind::Any => "any",
        }
    }

    /// Whether a value is of the type.
    pub fn holds(self, value: &Value) -> bool {
        match self {
            Kind::Any => true,
            Kind::Number => value.is_number(),
            Kind::Integer => whole(value).is_some(),
            _ => !value.is_null() && Kind::of(value) == self,
        }
    }
}

impl Input {
    /// The input's schema: those of `type`, `description`, `default` and `enum` that are given, in
    /// this order.
    pub fn schema(&self, offer: &Offer) -> Value {
        let mut schema = Map::new();
        schema.insert("type".to_owned(), json!(self.kind.name()));
        if !self.description.is_empty() {
            schema.insert("description".to_owned(), json!(self.description));
        }
        if let Some(default) = self.default.as_ref().filter(|default| !default.is_null()) {
            schema.insert("default".to_owned(), default.clone());
        }
        if let Some(values) = self.choices.values(offer) {
            schema.insert("enum".to_owned(), Value::Array(values));
        }
        Value::Object(schema)
    }

    /// `value` in the normal form of its type: a whole number is written without a decimal point,
    /// which JSON Schema permits for integers.
    pub fn settled(&self, value: &Value) -> Value {
        let whole = (self.kind == Kind::Integer).then(|| whole(value)).flatten();
        whole.unwrap_or_else(|| value.clone())
    }

    /// Whether a caller with this `offer` may give `value`.
    ///
    /// # Errors
    /// The reason why not, for the caller.
    pub fn check(&self, value: &Value, offer: &Offer) -> Result<(), String> {
        if !self.kind.holds(value) {
            return Err(format!("argument `{}` must be of type {}", self.name, self.kind.name()));
        }
        match self.choices.values(offer) {
            Some(values) if !values.contains(value) && !values.contains(&self.settled(value)) => {
                Err(format!("argument `{}` must be one of {}", self.name, Value::Array(values)))
            }
            _ => Ok(()),
        }
    }

    /// Parses a value that a person typed: verbatim for text, otherwise as JSON.
    ///
    /// # Errors
    /// The value doesn't have the input's type.
    pub fn parse(&self, text: &str, offer: &Offer) -> Result<Value, String> {
        let value = match self.kind {
            Kind::String => Value::from(text),
            Kind::Any => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
            _ => serde_json::from_str(text)
                .map_err(|_| format!("argument `{}` must be of type {}", self.name, self.kind.name()))?,
        };
        self.check(&value, offer)?;
        Ok(self.settled(&value))
    }
}

/// A whole number without a decimal point: `1.0` is 1 in JSON Schema.
fn whole(value: &Value) -> Option<Value> {
    if value.is_i64() || value.is_u64() {
        return Some(value.clone());
    }
    // Up to here every whole number is exact.
    let number = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 2f64.powi(53))?;
    Some(Value::from(number as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_point_zero_is_an_integer() {
        let input = Input {
            name: "n".to_owned(),
            kind: Kind::Integer,
            description: String::new(),
            default: None,
            choices: Choices::Any,
        };
        let check = |value: Value, expected: Option<Value>| {
            let settled = input.check(&value, &Offer::default()).is_ok().then(|| input.settled(&value));
            assert_eq!(settled.map(|value| value.to_string()), expected.map(|value| value.to_string()));
        };
        check(json!(1.0), Some(json!(1)));
        check(json!(-2e3), Some(json!(-2000)));
        check(json!(7), Some(json!(7)));
        check(json!(u64::MAX), Some(json!(u64::MAX)));
        check(json!(1.5), None);
        check(json!(1e300), None);
        check(json!("1"), None);
        assert_eq!(input.parse("3.0", &Offer::default()).unwrap().to_string(), "3");
        let one = Input { choices: Choices::Of(vec![json!(1)]), ..input };
        assert!(one.check(&json!(1.0), &Offer::default()).is_ok());
        assert!(one.check(&json!(2.0), &Offer::default()).is_err());
    }
}
