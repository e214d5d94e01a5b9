//! The inputs of a jinx: every form that files in the wild use, read into one type.
//!
//! ```yaml
//! inputs:
//!   - path                                              # required text
//!   - lines: 10                                         # optional, typed by its default
//!   - mode: {type: string, enum: [a, b], default: a}    # everything said
//!   - name: pattern                                     # the same with the name as a key
//!     description: what to look for
//! ```
//! `inputs` may also be one mapping of names.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// An argument of a jinx.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Input {
    /// The name, also that of the environment variable: `[A-Za-z_][A-Za-z0-9_]*`.
    pub name: String,
    /// The type of its values.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// What it is, for the model; may be empty.
    pub description: String,
    /// The value if none is given; `None` = the input is required.
    pub default: Option<Value>,
    /// The only permitted values.
    pub choices: Choices,
}

/// Which values an input takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Choices {
    /// Any of its type.
    #[default]
    Any,
    /// These.
    Of(Vec<Value>),
    /// Names of those to whom the caller may give work: members of its team and sub-teams (`enum: members`).
    Members,
    /// Names of the skills that the caller may look up (`enum: skills`).
    Skills,
}

/// What is open to a caller, for [`Choices`] that depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The other members of its team, and its sub-teams.
    pub members: Vec<String>,
    /// The skills of its catalog.
    pub skills: Vec<String>,
}

impl Choices {
    /// The values; `None` = any.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Text.
    #[default]
    #[serde(alias = "str", alias = "text")]
    String,
    /// A whole number.
    #[serde(alias = "int")]
    Integer,
    /// Any number.
    #[serde(alias = "float")]
    Number,
    /// True or false.
    #[serde(alias = "bool")]
    Boolean,
    /// A list.
    #[serde(alias = "list")]
    Array,
    /// A mapping.
    #[serde(alias = "dict", alias = "map")]
    Object,
}

impl Kind {
    fn of(value: &Value) -> Kind {
        match value {
            Value::Null | Value::String(_) => Kind::String,
            Value::Bool(_) => Kind::Boolean,
            Value::Number(number) if number.is_f64() => Kind::Number,
            Value::Number(_) => Kind::Integer,
            Value::Array(_) => Kind::Array,
            Value::Object(_) => Kind::Object,
        }
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
        }
    }

    fn holds(self, value: &Value) -> bool {
        match self {
            Kind::Number => value.is_number(),
            Kind::Integer => value.is_i64() || value.is_u64(),
            _ => !value.is_null() && Kind::of(value) == self,
        }
    }
}

/// What may be said about an input.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    #[serde(rename = "type")]
    kind: Option<Kind>,
    #[serde(default)]
    description: String,
    #[serde(default, deserialize_with = "present")]
    default: Option<Value>,
    #[serde(default, rename = "enum")]
    choices: Option<Value>,
}

/// Tells a default of `null` from no default.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Input {
    /// The input's schema: `type`, `description`, `default`, `enum`, in this order, as far as they are given.
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

    /// Whether `value` may be given by a caller to whom `offer` is open.
    ///
    /// # Errors
    /// Why not, for the caller.
    pub fn check(&self, value: &Value, offer: &Offer) -> Result<(), String> {
        if !self.kind.holds(value) {
            return Err(format!("argument `{}` must be of type {}", self.name, self.kind.name()));
        }
        match self.choices.values(offer) {
            Some(values) if !values.contains(value) => {
                Err(format!("argument `{}` must be one of {}", self.name, Value::Array(values)))
            }
            _ => Ok(()),
        }
    }

    /// Reads a value that a person typed: as it stands for text, as JSON otherwise.
    ///
    /// # Errors
    /// It is not of the input's type.
    pub fn parse(&self, text: &str, offer: &Offer) -> Result<Value, String> {
        let value = match self.kind {
            Kind::String => Value::from(text),
            _ => serde_json::from_str(text)
                .map_err(|_| format!("argument `{}` must be of type {}", self.name, self.kind.name()))?,
        };
        self.check(&value, offer)?;
        Ok(value)
    }

    fn new(name: &str, said: Value) -> Result<Self, String> {
        let said = match said {
            Value::Object(map) => serde_json::from_value(Value::Object(map))
                .map_err(|error| format!("input `{name}`: {error}"))?,
            default => Said { kind: None, description: String::new(), default: Some(default), choices: None },
        };
        let mut characters = name.chars();
        let good = characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
            && characters.all(|other| other.is_ascii_alphanumeric() || other == '_');
        if !good {
            return Err(format!("input `{name}`: a name is made of letters, digits and `_`"));
        }
        let choices = match said.choices {
            None => Choices::Any,
            Some(Value::Array(values)) if !values.is_empty() => Choices::Of(values),
            Some(Value::String(word)) if word == "members" => Choices::Members,
            Some(Value::String(word)) if word == "skills" => Choices::Skills,
            Some(other) => {
                return Err(format!("input `{name}`: enum is a list, `members` or `skills`, not {other}"));
            }
        };
        let first = match &choices {
            Choices::Of(values) => values.first(),
            _ => None,
        };
        let guess = || said.default.as_ref().or(first).map(Kind::of).unwrap_or_default();
        let input = Input {
            name: name.to_owned(),
            kind: said.kind.unwrap_or_else(guess),
            description: said.description.trim().to_owned(),
            default: said.default,
            choices,
        };
        let fixed = matches!(input.choices, Choices::Any | Choices::Of(_));
        if let Some(default) = input.default.as_ref().filter(|default| fixed && !default.is_null()) {
            input
                .check(default, &Offer::default())
                .map_err(|reason| format!("{reason}, but its default is {default}"))?;
        }
        Ok(input)
    }
}

/// Reads the `inputs` of a jinx.
///
/// # Errors
/// Which input is wrong and why.
pub(crate) fn read(inputs: Value) -> Result<Vec<Input>, String> {
    let items = match inputs {
        Value::Null => Vec::new(),
        Value::Array(items) => items,
        map @ Value::Object(_) => vec![map],
        other => return Err(format!("inputs must be a list, not {other}")),
    };
    let mut inputs: Vec<Input> = Vec::new();
    let mut add = |input: Input| match inputs.iter().any(|other| other.name == input.name) {
        true => Err(format!("input `{}` occurs twice", input.name)),
        false => {
            inputs.push(input);
            Ok(())
        }
    };
    for item in items {
        match item {
            Value::String(name) => add(Input::new(&name, Value::Object(Map::new()))?)?,
            Value::Object(mut map) if names_itself(&map) => {
                let name = map.shift_remove("name");
                let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
                add(Input::new(name, Value::Object(map.clone()))?)?;
            }
            Value::Object(map) => {
                for (name, said) in map {
                    add(Input::new(&name, said)?)?;
                }
            }
            other => return Err(format!("an input is a name or a mapping, not {other}")),
        }
    }
    Ok(inputs)
}

/// Whether a mapping is of the form `{name: x, description: …}` rather than `{x: default, …}`.
fn names_itself(map: &Map<String, Value>) -> bool {
    map.len() > 1
        && map.get("name").is_some_and(Value::is_string)
        && map.keys().all(|key| matches!(key.as_str(), "name" | "type" | "description" | "default" | "enum"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(yaml: &str, expected: Result<Value, &str>) {
        let value: Value = serde_saphyr::from_str(yaml).unwrap();
        let found = read(value).map(|inputs| {
            let each =
                |input: Input| (input.name.clone(), json!([input.schema(&Offer::default()), input.default]));
            Value::Object(inputs.into_iter().map(each).collect())
        });
        assert_eq!(found, expected.map_err(str::to_owned), "{yaml}");
    }

    #[test]
    fn every_form_in_the_wild() {
        check("- path", Ok(json!({"path": [{"type": "string"}, null]})));
        check("- rounds: 3", Ok(json!({"rounds": [{"type": "integer", "default": 3}, 3]})));
        check("- ratio: 0.5", Ok(json!({"ratio": [{"type": "number", "default": 0.5}, 0.5]})));
        check("- deep: true", Ok(json!({"deep": [{"type": "boolean", "default": true}, true]})));
        check("- text: ''", Ok(json!({"text": [{"type": "string", "default": ""}, ""]})));
        check(
            "- task: {description: What to do}",
            Ok(json!({"task": [{"type": "string", "description": "What to do"}, null]})),
        );
        check(
            "- n: {type: int, default: 2, enum: [1, 2], description: How many}",
            Ok(
                json!({"n": [{"type": "integer", "description": "How many", "default": 2, "enum": [1, 2]}, 2]}),
            ),
        );
        check(
            "- name: query\n  description: What to find",
            Ok(json!({"query": [{"type": "string", "description": "What to find"}, null]})),
        );
        check("- name: x", Ok(json!({"name": [{"type": "string", "default": "x"}, "x"]})));
        check(
            "{a: {type: string}, b: 1}",
            Ok(json!({"a": [{"type": "string"}, null], "b": [{"type": "integer", "default": 1}, 1]})),
        );
        check("null", Ok(json!({})));
    }

    #[test]
    fn optional_without_a_value() {
        let inputs = read(json!([{"mode": null}])).unwrap();
        assert_eq!(
            (inputs[0].schema(&Offer::default()), &inputs[0].default),
            (json!({"type": "string"}), &Some(Value::Null))
        );
    }

    #[test]
    fn mistakes_are_named() {
        check("3", Err("inputs must be a list, not 3"));
        check("[a, a]", Err("input `a` occurs twice"));
        check("- a-b", Err("input `a-b`: a name is made of letters, digits and `_`"));
        check(
            "- a: {type: int, default: x}",
            Err("argument `a` must be of type integer, but its default is \"x\""),
        );
        check(
            "- a: {typ: int}",
            Err("input `a`: unknown field `typ`, expected one of `type`, `description`, `default`, `enum`"),
        );
    }
}
