//! YAML as a tree whose nodes know their locations, so that each problem has a line and column.
//!
//! This module owns what is peculiar about YAML: a first line `#!…`, and the words that PyYAML
//! takes for booleans (`yes`, `off`).
//! Of keys that occur twice the last one counts, as in PyYAML, with a warning.
//! It must not know what the files mean.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

use crate::source::Source;
use crate::types::{Diagnostic, Location};

/// A value and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where.
    pub location: Location,
    /// What.
    pub kind: Kind,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Nothing, a boolean, a number or a text.
    Scalar(Value),
    /// A list.
    List(Vec<Node>),
    /// A mapping, without keys that occur twice.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Where the key stands.
    pub location: Location,
    /// The key, as text.
    pub key: String,
    /// The value.
    pub value: Node,
}

impl Node {
    /// Reads a file's text.
    /// A key that occurs twice is reported, and the last one counts.
    ///
    /// # Errors
    /// What is no YAML, with its location.
    pub fn parse(source: &Source, diagnostics: &mut Vec<Diagnostic>) -> Result<Node, Diagnostic> {
        let options = serde_saphyr::options! {
            duplicate_keys: DuplicateKeyPolicy::PassThrough,
            with_snippet: false,
        };
        let mut node: Node = serde_saphyr::from_str_with_options(&source.text, options).map_err(|error| {
            let location = error.location().map_or_else(Location::default, |location| location_of(&location));
            let message = error.to_string();
            // The location stands before the message already.
            let message = message.split_once(": ").map_or(message.as_str(), |(before, rest)| {
                if before.contains("line") { rest } else { &message }
            });
            source.error(location, message)
        })?;
        node.unify(source, diagnostics);
        Ok(node)
    }

    /// Leaves the last of several entries with the same key.
    fn unify(&mut self, source: &Source, diagnostics: &mut Vec<Diagnostic>) {
        match &mut self.kind {
            Kind::Scalar(value) => {
                // The parser takes single letters for booleans too, which YAML files in the wild
                // never mean.
                if let (true, Some(letter)) = (value.is_boolean(), letter(source, self.location)) {
                    *value = letter.into();
                }
            }
            Kind::List(items) => items.iter_mut().for_each(|item| item.unify(source, diagnostics)),
            Kind::Map(entries) => {
                entries.iter_mut().for_each(|entry| entry.value.unify(source, diagnostics));
                let mut index = 0;
                while index < entries.len() {
                    let key = &entries[index].key;
                    if let Some(later) = entries[index + 1..].iter().find(|other| other.key == *key) {
                        let message = format!("the key `{key}` occurs twice; the last one counts");
                        diagnostics.push(source.warning(later.location, message));
                        entries.remove(index);
                    } else {
                        index += 1;
                    }
                }
            }
        }
    }

    /// The entries, if it is a mapping.
    pub fn entries(&self) -> Option<&[Entry]> {
        match &self.kind {
            Kind::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The items, if it is a list.
    pub fn items(&self) -> Option<&[Node]> {
        match &self.kind {
            Kind::List(items) => Some(items),
            _ => None,
        }
    }

    /// The value of a key, if it is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries()?.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether it is nothing: `null`, `~` or an empty value.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Scalar(Value::Null))
    }

    /// The same as a plain value.
    pub fn value(&self) -> Value {
        match &self.kind {
            Kind::Scalar(value) => value.clone(),
            Kind::List(items) => items.iter().map(Node::value).collect(),
            Kind::Map(entries) => {
                Value::Object(entries.iter().map(|entry| (entry.key.clone(), entry.value.value())).collect())
            }
        }
    }

    /// What kind of value it is, for messages.
    pub fn describe(&self) -> &'static str {
        match &self.kind {
            Kind::Scalar(Value::Null) => "nothing",
            Kind::Scalar(Value::Bool(_)) => "a boolean",
            Kind::Scalar(Value::Number(_)) => "a number",
            Kind::Scalar(_) => "a text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
        }
    }

    /// The node at a path of keys and indices, as JSON pointers write it (`/steps/0/code`), or the
    /// deepest one on the way to it.
    pub fn at(&self, pointer: &str) -> &Node {
        pointer
            .split('/')
            .skip(1)
            .try_fold(self, |node, part| match &node.kind {
                Kind::Map(_) => node.get(part).ok_or(node),
                Kind::List(items) => part.parse().ok().and_then(|index: usize| items.get(index)).ok_or(node),
                Kind::Scalar(_) => Err(node),
            })
            .unwrap_or_else(|deepest| deepest)
    }
}

/// The word at a location, if it is a single letter.
fn letter(source: &Source, location: Location) -> Option<String> {
    let line = source.text.lines().nth(location.line.checked_sub(1)?)?;
    let mut characters = line.chars().skip(location.column.checked_sub(1)?);
    let letter = characters.next().filter(|letter| matches!(letter, 'y' | 'n' | 'Y' | 'N'))?;
    characters.next().is_none_or(|next| !next.is_alphanumeric()).then(|| letter.to_string())
}

fn location_of(location: &serde_saphyr::Location) -> Location {
    let number = |number: u64| usize::try_from(number).unwrap_or(0);
    Location { line: number(location.line()), column: number(location.column()) }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::<Bare>::deserialize(deserializer)?;
        Ok(Node { location: location_of(&referenced), kind: value.0 })
    }
}

/// A node without its location.
struct Bare(Kind);

impl<'de> Deserialize<'de> for Bare {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BareVisitor)
    }
}

struct BareVisitor;

impl<'de> Visitor<'de> for BareVisitor {
    type Value = Bare;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Bare, E> {
        Ok(Bare(Kind::Scalar(Value::Null)))
    }

    fn visit_none<E>(self) -> Result<Bare, E> {
        Ok(Bare(Kind::Scalar(Value::Null)))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Bare, D::Error> {
        Bare::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Bare, E> {
        Ok(Bare(Kind::Scalar(value.into())))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Bare, E> {
        Ok(Bare(Kind::Scalar(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Bare, E> {
        Ok(Bare(Kind::Scalar(value.into())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Bare, E> {
        Ok(Bare(Kind::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Bare, E> {
        Ok(Bare(Kind::Scalar(text.into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Bare, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Bare(Kind::List(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bare, A::Error> {
        let mut entries = Vec::new();
        // A key is its text, whatever it looks like: `on` is no boolean here.
        while let Some((key, value)) = map.next_entry::<Spanned<String>, Node>()? {
            entries.push(Entry { location: location_of(&key.referenced), key: key.value, value });
        }
        Ok(Bare(Kind::Map(entries)))
    }
}

/// A mapping as plain values.
pub fn map(entries: &[Entry]) -> Map<String, Value> {
    entries.iter().map(|entry| (entry.key.clone(), entry.value.value())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Result<Node, Diagnostic>, Vec<Diagnostic>) {
        let mut diagnostics = Vec::new();
        let source = Source { path: "a.npc".into(), text: text.to_owned() };
        (Node::parse(&source, &mut diagnostics), diagnostics)
    }

    #[test]
    fn values_of_every_kind() {
        let check = |text: &str, expected: Value| {
            let (node, diagnostics) = parse(text);
            assert_eq!((node.unwrap().value(), diagnostics), (expected, Vec::new()), "{text}");
        };
        use serde_json::json;
        check("#!/usr/bin/env npc\na: 1\n", json!({"a": 1}));
        check("a: [x, 1, -2, 1.5, ~, '3', true]", json!({"a": ["x", 1, -2, 1.5, null, "3", true]}));
        check(
            "a: {yes: yes, off: off, on: On, n: No, y: y, 'no': 'no'}",
            json!({"a": {"yes": true, "off": false, "on": true, "n": false, "y": "y", "no": "no"}}),
        );
        check("a:\nb: |\n  two\n  lines\n1: one", json!({"a": null, "b": "two\nlines\n", "1": "one"}));
        check("", json!(null));
    }

    #[test]
    fn places_and_problems() {
        let (node, diagnostics) = parse("a: 1\nb:\n  - c: 2\n    a: 3\na: 4\n");
        let node = node.unwrap();
        assert_eq!(node.value(), serde_json::json!({"b": [{"c": 2, "a": 3}], "a": 4}));
        let found: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["a.npc:5:1: warning: the key `a` occurs twice; the last one counts"]);
        assert_eq!(node.at("/b/0/a").location, Location { line: 4, column: 8 });
        assert_eq!(node.at("/b/7/a").location, node.at("/b").location);
        let (error, _) = parse("a: [1\nb: 2\n");
        assert_eq!(
            error.unwrap_err().to_string(),
            "a.npc:2:2: error: illegal placement of ':' indicator at line 2, column 2"
        );
    }
}
