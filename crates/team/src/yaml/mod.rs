//! YAML as a tree whose nodes know their locations, so that each problem has a line and column.
//!
//! This module owns the peculiarities of YAML: a first line `#!…`, and the words that PyYAML reads
//! as booleans (`yes`, `off`).
//! Of duplicate keys, the last one counts, as in PyYAML, with a warning.
//! Where a text is expected, a number or boolean counts as written: `007`, `1.10`, `no`.
//! It must not know what the files mean.

mod all;
mod words;

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, NonFiniteFloatPolicy, Options, Spanned};

use crate::source::Source;
use crate::types::{Diagnostic, Location};
pub use all::read_all;

/// A value with its location.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its location.
    pub location: Location,
    /// Its value.
    pub kind: Kind,
    /// A number or boolean as written.
    written: String,
    /// First byte and number of bytes in the file, while the file is being read.
    span: (usize, usize),
}

/// The value of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Null, a boolean, a number or a text.
    Scalar(Value),
    /// A list.
    List(Vec<Node>),
    /// A mapping, without duplicate keys.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The location of the key.
    pub location: Location,
    /// The key, as text.
    pub key: String,
    /// The value.
    pub value: Node,
}

impl Node {
    /// Parses a file's text.
    /// A duplicate key is reported, and the last one counts.
    ///
    /// # Errors
    /// A syntax error, with its location.
    pub fn parse(source: &Source, diagnostics: &mut Vec<Diagnostic>) -> Result<Node, Diagnostic> {
        let mut options = options();
        options.duplicate_keys = DuplicateKeyPolicy::PassThrough;
        let mut node: Node = serde_saphyr::from_str_with_options(&source.text, options)
            .map_err(|error| problem(source, &error))?;
        node.unify(source, diagnostics);
        Ok(node)
    }

    /// An empty mapping without a file.
    pub fn empty() -> Node {
        Node {
            location: Location::default(),
            kind: Kind::Map(Vec::new()),
            written: String::new(),
            span: (0, 0),
        }
    }

    /// Records how numbers and booleans are written, and keeps the last of several entries with the
    /// same key.
    fn unify(&mut self, source: &Source, diagnostics: &mut Vec<Diagnostic>) {
        match &mut self.kind {
            Kind::Scalar(value @ (Value::Bool(_) | Value::Number(_))) => {
                let (first, length) = self.span;
                let written = source.text.get(first..first.saturating_add(length)).unwrap_or_default();
                // A tag or an anchor may come before it, and quotes around a value with a tag.
                let written = written.split_whitespace().last().unwrap_or_default().trim_matches(['"', '\'']);
                self.written = if written.is_empty() { value.to_string() } else { written.to_owned() };
                // The parser also reads single letters as booleans, which existing YAML files never
                // mean.
                if value.is_boolean() && matches!(self.written.as_str(), "y" | "n" | "Y" | "N") {
                    *value = self.written.as_str().into();
                }
            }
            Kind::Scalar(_) => {}
            Kind::List(items) => items.iter_mut().for_each(|item| item.unify(source, diagnostics)),
            Kind::Map(entries) => {
                entries.iter_mut().for_each(|entry| entry.value.unify(source, diagnostics));
                // The next occurrence of each key, from the end.
                let mut later = HashMap::new();
                let (mut last, mut twice) = (Vec::with_capacity(entries.len()), Vec::new());
                for entry in std::mem::take(entries).into_iter().rev() {
                    match later.insert(entry.key.clone(), entry.location) {
                        Some(location) => twice.push((entry.key, location)),
                        None => last.push(entry),
                    }
                }
                last.reverse();
                *entries = last;
                diagnostics.extend(twice.into_iter().rev().map(|(key, location)| {
                    let message = format!("the key `{key}` occurs twice; the last one counts");
                    source.warning(location, message)
                }));
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

    /// The text, if it is one; a number or boolean as written.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(Value::String(text)) => Some(text),
            Kind::Scalar(Value::Bool(_) | Value::Number(_)) => Some(&self.written),
            _ => None,
        }
    }

    /// Whether it is null: `null`, `~` or an empty value.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Scalar(Value::Null))
    }

    /// The node as a plain value.
    pub fn value(&self) -> Value {
        match &self.kind {
            Kind::Scalar(value) => value.clone(),
            Kind::List(items) => items.iter().map(Node::value).collect(),
            Kind::Map(entries) => {
                Value::Object(entries.iter().map(|entry| (entry.key.clone(), entry.value.value())).collect())
            }
        }
    }

    /// The kind of value, for messages.
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

    /// The node at a path of keys and indices in JSON pointer form (`/steps/0/code`), or the
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

/// The options for reading files.
/// A number with leading zeros is an identifier, and stays a text; so does a number that JSON can't
/// represent.
fn options() -> Options {
    serde_saphyr::options! {
        with_snippet: false,
        leading_zero_numbers_as_strings: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
    }
}

/// Reads a file's text as a `T`.
///
/// # Errors
/// It isn't YAML or not a `T`; with the location.
pub fn read<T: DeserializeOwned>(source: &Source) -> Result<T, Diagnostic> {
    serde_saphyr::from_str_with_options(&source.text, options()).map_err(|error| problem(source, &error))
}

fn problem(source: &Source, error: &serde_saphyr::Error) -> Diagnostic {
    let location = error.location().map_or_else(Location::default, |location| location_of(&location));
    source.error(location, words::message(error))
}

fn location_of(location: &serde_saphyr::Location) -> Location {
    let number = |number: u64| usize::try_from(number).unwrap_or(0);
    Location { line: number(location.line()), column: number(location.column()) }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, defined, .. } = Spanned::<Bare>::deserialize(deserializer)?;
        let number = |number: Option<u64>| number.and_then(|number| usize::try_from(number).ok());
        let span = number(defined.span().byte_offset()).zip(number(defined.span().byte_len()));
        Ok(Node {
            location: location_of(&referenced),
            kind: value.0,
            written: String::new(),
            span: span.unwrap_or_default(),
        })
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

    /// Files from strangers may have any number of keys.
    #[test]
    fn many_keys_take_no_more_time_each() {
        let begun = std::time::Instant::now();
        let text: String = (0..40_000).map(|index| format!("k{index}: 1\n")).collect();
        let (node, diagnostics) = parse(&format!("{text}k7: 2\nk7: 3\n"));
        let node = node.unwrap();
        assert_eq!((node.entries().unwrap().len(), diagnostics.len()), (40_000, 2));
        assert_eq!(node.get("k7").unwrap().value(), 3);
        assert!(diagnostics[0].location.line < diagnostics[1].location.line, "{diagnostics:?}");
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
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
        assert_eq!(error.unwrap_err().to_string(), "a.npc:2:2: error: illegal placement of ':' indicator");
    }

    #[test]
    fn a_text_is_as_it_is_written() {
        let check = |written: &str| {
            let (node, diagnostics) =
                parse(&format!("\u{feff}é: 'ü'\na: {written} # why\nb: [&n {written}, *n]\n"));
            let node = node.unwrap();
            let texts = ["/a", "/b/0", "/b/1"].map(|pointer| node.at(pointer).text());
            assert_eq!((texts, diagnostics), ([Some(written); 3], Vec::new()));
        };
        for written in [
            "007",
            "7",
            "7.0",
            "1.10",
            "1e3",
            "0x10",
            "0o17",
            "0b1",
            "1_000",
            "-0",
            "+5",
            ".5",
            "12:30",
            "2026-01-31",
            "2026-01-31T12:30:00Z",
            "no",
            "On",
            "TRUE",
            "y",
            "N",
            ".nan",
            "-.inf",
        ] {
            check(written);
        }
        let text = |text: &str| parse(text).0.unwrap().get("a").and_then(Node::text).map(str::to_owned);
        assert_eq!(text("a: !!int 7"), Some("7".to_owned()));
        assert_eq!(text("a: \"7\""), Some("7".to_owned()));
        assert_eq!(text("a: ~"), None);
        assert_eq!(text("a: [1]"), None);
        // Code that reads numbers still gets them, and identifiers are not numbers.
        let value = |text: &str| parse(text).0.unwrap().at("/a").value();
        assert_eq!(value("a: 1_000"), serde_json::json!(1000));
        assert_eq!(value("a: 0x10"), serde_json::json!(16));
        assert_eq!(value("a: 0.50"), serde_json::json!(0.5));
        assert_eq!(value("a: 007"), serde_json::json!("007"));
        assert_eq!(value("a: .inf"), serde_json::json!(".inf"));
    }

    #[test]
    fn problems_are_told_in_words_of_the_file() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only how it fails matters")]
        struct Thing {
            name: String,
            #[serde(default)]
            count: Option<std::num::NonZeroU32>,
            #[serde(default)]
            size: u64,
            #[serde(default)]
            share: f32,
            #[serde(default)]
            on: bool,
            #[serde(default)]
            list: Vec<String>,
            #[serde(default)]
            level: Option<crate::types::Effect>,
        }
        let check = |text: &str, expected: &str| {
            let source = Source { path: "a.yaml".into(), text: text.to_owned() };
            let message = read::<Thing>(&source).unwrap_err().to_string();
            assert_eq!(message, format!("a.yaml:{expected}"), "{text}");
        };
        check(
            "name: a\n---\nname: b\n",
            "3:1: error: a second YAML document begins here, but a file is one: leave out the line `---` before it, or put it into a file of its own",
        );
        check("{}", "1:1: error: the key `name` is missing");
        check(
            "name: a\nnmae: b",
            "2:1: error: unknown key `nmae`, did you mean `name`? (known: name, count, size, share, on, list, level)",
        );
        check("name: a\ncount: 0", "2:1: error: this must be a whole number above 0, not `0`");
        check("name: a\nsize: -1", "2:7: error: this must be a whole number, 0 or more");
        check("name: a\nsize: x", "2:7: error: this must be a whole number, 0 or more");
        check("name: a\nshare: much", "2:8: error: this must be a number");
        check("name: a\non: maybe", "2:5: error: this must be true or false");
        check("name: a\nlist: 3", "2:7: error: this must be a list");
        check("name: [a]", "1:7: error: this must be a text");
        check("name: ~", "1:7: error: this must be a text, not nothing");
        check("name: a\nname: b", "2:1: error: the key `name` occurs twice: leave one out");
        check("- a", "1:1: error: this must be a mapping");
        check(
            "name: *a",
            "1:7: error: this alias has no anchor: what `*name` repeats is marked `&name` before it",
        );
        let deep = format!("name: {}", "[".repeat(100_000));
        let source = Source { path: "a.yaml".into(), text: deep };
        let message = read::<Thing>(&source).unwrap_err().message;
        assert!(!message.contains("limit") && !message.contains("budget"), "{message}");
    }
}
