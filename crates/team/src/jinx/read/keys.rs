//! Reads values of one kind from a node, or reports a diagnostic with its location.

use std::time::Duration;

use alara_text::nearest;
use serde_json::Value;

use super::Reader;
use crate::types::Location;
use crate::yaml::{Kind, Node};

/// The units of durations, in seconds.
const UNITS: [(&str, f64); 5] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];

impl Reader<'_> {
    pub(super) fn error(&mut self, location: Location, message: impl Into<String>) {
        self.diagnostics.push(self.source.error(location, message));
    }

    pub(super) fn warning(&mut self, location: Location, message: impl Into<String>) {
        self.diagnostics.push(self.source.warning(location, message));
    }

    /// Warns of a key that is not among the `known` ones.
    pub(super) fn known(&mut self, location: Location, key: &str, known: &[&str]) {
        if !known.contains(&key) {
            let hint = hint(key, known.iter().copied());
            self.warning(location, format!("unknown key `{key}`{hint}"));
        }
    }

    /// A text; a number or boolean as written.
    pub(super) fn text(&mut self, node: &Node, key: &str) -> Option<String> {
        let text = node.text().map(str::to_owned);
        if text.is_none() {
            self.error(node.location, format!("`{key}` is a text, not {}", node.describe()));
        }
        text
    }

    pub(super) fn flag(&mut self, node: &Node, key: &str) -> Option<bool> {
        match &node.kind {
            Kind::Scalar(Value::Bool(flag)) => Some(*flag),
            _ => {
                self.error(node.location, format!("`{key}` is true or false, not {}", node.describe()));
                None
            }
        }
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(&mut self, node: &Node, key: &str, words: &[(&str, T)]) -> Option<T> {
        let names = || words.iter().map(|(word, _)| *word);
        let found = node.text().and_then(|text| words.iter().find(|(word, _)| *word == text));
        if found.is_none() {
            let known = names().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
            let hint = node.text().map(|text| hint(text, names())).unwrap_or_default();
            let found = node.text().map_or_else(|| node.describe().to_owned(), |text| format!("`{text}`"));
            self.error(node.location, format!("`{key}` is one of {known}, not {found}{hint}"));
        }
        found.map(|(_, value)| *value)
    }

    /// A list of names, or a single name.
    pub(super) fn names(&mut self, node: &Node, key: &str) -> Vec<String> {
        match &node.kind {
            Kind::List(items) => items.iter().filter_map(|item| self.text(item, key)).collect(),
            Kind::Scalar(Value::Null) => Vec::new(),
            Kind::Scalar(_) => self.text(node, key).into_iter().collect(),
            Kind::Map(_) => {
                self.error(node.location, format!("`{key}` is a list of names, not {}", node.describe()));
                Vec::new()
            }
        }
    }

    /// A number of seconds, or a number with a unit: `500ms`, `60s`, `30m`, `2h`, `1d`.
    /// Above 0.
    pub(super) fn duration(&mut self, node: &Node, key: &str) -> Option<Duration> {
        let seconds = match &node.kind {
            Kind::Scalar(Value::Number(number)) => number.as_f64(),
            Kind::Scalar(Value::String(text)) => {
                let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
                let (number, unit) = text.split_at(unit);
                let factor = match unit {
                    "" => Some(1.0),
                    unit => UNITS.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds),
                };
                number.trim().parse().ok().zip(factor).map(|(number, factor): (f64, f64)| number * factor)
            }
            _ => None,
        };
        let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let duration = duration.filter(|duration| !duration.is_zero());
        if duration.is_none() {
            let message = format!(
                "`{key}` is a time above 0: a number of seconds, or `500ms`, `30s`, `5m`, `2h`, `1d`"
            );
            self.error(node.location, message);
        }
        duration
    }

    /// An expression.
    /// Braces around the whole expression are ignored; a literal list or mapping is an expression
    /// too.
    pub(super) fn expression(&mut self, node: &Node, key: &str) -> Option<String> {
        match &node.kind {
            Kind::Scalar(Value::Null) => {
                self.error(node.location, format!("`{key}` is an expression, not nothing"));
                None
            }
            Kind::Scalar(Value::String(text)) => {
                let text = text.trim();
                let inner = text.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
                let inner = inner.filter(|inner| !inner.contains("{{"));
                Some(inner.unwrap_or(text).trim().to_owned())
            }
            _ => Some(literal(&node.value())),
        }
    }
}

/// A value written as an expression.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let entries =
                map.iter().map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), literal(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// A suggestion for an unknown name, or nothing.
pub(super) fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(name, known).map(|near| format!(", did you mean `{near}`?")).unwrap_or_default()
}
