//! Reads the inputs of a jinx: every form in existing files, parsed into one type.
//!
//! ```yaml
//! inputs:
//!   - path                                              # required text
//!   - lines: 10                                         # optional, typed by its default
//!   - note: null                                        # optional, without a value
//!   - mode: {type: string, enum: [a, b], default: a}    # all keys
//!   - name: pattern                                     # the same with the name as a key
//!     description: what to look for
//! ```
//! `inputs` may also be one mapping of names.

use std::collections::HashSet;

use serde_json::Value;

use super::Reader;
use crate::jinx::{Choices, Input, Kind, Offer};
use crate::types::Location;
use crate::yaml::{Entry, Kind as Shape, Node};

/// The keys of an input.
const KEYS: [&str; 5] = ["type", "description", "default", "enum", "required"];

/// The names of types: those of JSON schema and of Python.
const TYPES: [(&str, Kind); 14] = [
    ("string", Kind::String),
    ("integer", Kind::Integer),
    ("number", Kind::Number),
    ("boolean", Kind::Boolean),
    ("array", Kind::Array),
    ("object", Kind::Object),
    ("str", Kind::String),
    ("text", Kind::String),
    ("int", Kind::Integer),
    ("float", Kind::Number),
    ("bool", Kind::Boolean),
    ("list", Kind::Array),
    ("dict", Kind::Object),
    ("map", Kind::Object),
];

impl Reader<'_> {
    pub(super) fn inputs(&mut self, node: &Node) -> Vec<Input> {
        let items = match &node.kind {
            Shape::List(items) => items.as_slice(),
            Shape::Map(_) => std::slice::from_ref(node),
            Shape::Scalar(_) => {
                self.error(
                    node.location,
                    format!("`inputs` is a list or a mapping, not {}", node.describe()),
                );
                &[]
            }
        };
        let (mut inputs, mut names) = (Vec::new(), HashSet::new());
        let mut add = |reader: &mut Self, location, input: Option<Input>| {
            let Some(input) = input else { return };
            match names.insert(input.name.clone()) {
                true => inputs.push(input),
                false => reader.error(location, format!("the input `{}` occurs twice", input.name)),
            }
        };
        for item in items {
            match &item.kind {
                // `no` is a name too.
                Shape::Scalar(Value::String(_) | Value::Bool(_)) => {
                    let input = self.input(item.location, item.text().unwrap_or_default(), &[]);
                    add(self, item.location, input);
                }
                Shape::Map(entries) if names_itself(entries) => {
                    let name = item.get("name").and_then(Node::text).unwrap_or_default();
                    let entries: Vec<Entry> =
                        entries.iter().filter(|entry| entry.key != "name").cloned().collect();
                    let input = self.input(item.location, name, &entries);
                    add(self, item.location, input);
                }
                Shape::Map(entries) => {
                    for Entry { location, key, value } in entries {
                        let input = match &value.kind {
                            Shape::Map(entries) => self.input(*location, key, entries),
                            _ => {
                                let default = Entry {
                                    location: *location,
                                    key: "default".to_owned(),
                                    value: value.clone(),
                                };
                                self.input(*location, key, &[default])
                            }
                        };
                        add(self, *location, input);
                    }
                }
                _ => self.error(
                    item.location,
                    format!("an input is a name or a mapping, not {}", item.describe()),
                ),
            }
        }
        inputs
    }

    fn input(&mut self, location: Location, name: &str, entries: &[Entry]) -> Option<Input> {
        if !is_name(name) {
            self.error(location, format!("the input `{name}`: a name is made of letters, digits and `_`"));
            return None;
        }
        let mut input = Input {
            name: name.to_owned(),
            kind: Kind::default(),
            description: String::new(),
            default: None,
            choices: Choices::Any,
        };
        let (mut kind, mut required, mut at) = (None, None, location);
        for Entry { location, key, value } in entries {
            match key.as_str() {
                "type" => kind = self.word(value, "type", &TYPES),
                "description" if value.is_null() => {}
                "description" => {
                    let text = self.text(value, "description").unwrap_or_default();
                    input.description = text.trim().to_owned();
                }
                "default" => (input.default, at) = (Some(value.value()), value.location),
                "enum" => input.choices = self.choices(value)?,
                "required" => required = self.flag(value, "required"),
                _ => self.known(*location, key, &KEYS),
            }
        }
        let value = |key: &str| entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value);
        if kind.map_or_else(|| mixed(&input.choices), |kind| kind == Kind::String) {
            // As written: `007`, `1.10` and `no` are texts here.
            if let (Some(default), Some(node)) = (&mut input.default, value("default")) {
                as_written(default, node);
            }
            if let (Choices::Of(values), Some(nodes)) =
                (&mut input.choices, value("enum").and_then(Node::items))
            {
                values.iter_mut().zip(nodes).for_each(|(value, node)| as_written(value, node));
            }
        }
        match (&input.default, required) {
            (None, Some(false)) => input.default = Some(Value::Null),
            (Some(Value::Null), Some(true)) => input.default = None,
            (Some(_), Some(true)) => {
                self.warning(location, format!("the input `{name}` has a default, so it is not required"));
            }
            _ => {}
        }
        let first = match &input.choices {
            Choices::Of(values) => values.first(),
            _ => None,
        };
        let guess = || input.default.as_ref().or(first).map(Kind::of).unwrap_or_default();
        input.kind = kind.unwrap_or_else(guess);
        let fixed = matches!(input.choices, Choices::Any | Choices::Of(_));
        if let Some(default) = input.default.as_ref().filter(|default| fixed && !default.is_null())
            && let Err(reason) = input.check(default, &Offer::default())
        {
            self.error(at, format!("{reason}, but its default is {default}"));
            return None;
        }
        Some(input)
    }

    fn choices(&mut self, node: &Node) -> Option<Choices> {
        match &node.kind {
            Shape::List(items) if !items.is_empty() => {
                Some(Choices::Of(items.iter().map(Node::value).collect()))
            }
            Shape::Scalar(Value::String(word)) if word == "members" => Some(Choices::Members),
            Shape::Scalar(Value::String(word)) if word == "skills" => Some(Choices::Skills),
            _ => {
                self.error(node.location, "`enum` is a list of values, `members` or `skills`");
                None
            }
        }
    }
}

/// Whether these can only all be texts: `enum: [no, yes, maybe]`.
fn mixed(choices: &Choices) -> bool {
    let Choices::Of(values) = choices else { return false };
    values.iter().any(Value::is_string) && !values.iter().all(Value::is_string)
}

/// Replaces a scalar by the text as written.
fn as_written(value: &mut Value, node: &Node) {
    if let Some(text) = node.text() {
        *value = text.into();
    }
}

/// Whether a mapping has the form `{name: x, description: …}` rather than `{x: default, …}`.
fn names_itself(entries: &[Entry]) -> bool {
    let known = |entry: &Entry| KEYS.contains(&entry.key.as_str()) || entry.key == "name";
    entries.len() > 1
        && entries.iter().any(|entry| entry.key == "name" && entry.value.text().is_some())
        && entries.iter().all(known)
}

/// Whether `name` is valid for a variable.
pub(super) fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|other| other.is_ascii_alphanumeric() || other == '_')
}
