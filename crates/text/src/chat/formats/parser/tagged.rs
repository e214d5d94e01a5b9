//! Arguments that follow one another, each between tags.

use serde_json::{Map, Value};

use super::call::{PieceMatch, literal_text};
use crate::chat::formats::value::{Types, read};
use crate::chat::formats::{Tagged, literal};
use crate::chat::json::dumps;

/// Progress in the arguments.
#[derive(Debug)]
pub(super) struct TaggedScan {
    at: usize,
    /// The value being read.
    value: Option<Open>,
    pub(super) arguments: Map<String, Value>,
}

#[derive(Debug)]
struct Open {
    key: String,
    types: Types,
    /// Where the value starts.
    start: usize,
    /// The position up to which it was reported, as a string whose quote is still open.
    reported: Option<usize>,
    /// The position up to which its end was searched.
    searched: usize,
}

impl TaggedScan {
    pub(super) fn new(at: usize) -> Self {
        TaggedScan { at, value: None, arguments: Map::new() }
    }

    /// Reads on; appends the JSON text of what it read to `json`.
    pub(super) fn advance(
        &mut self,
        text: &str,
        tagged: &'static Tagged,
        parameters: &Value,
        json: &mut String,
    ) -> PieceMatch {
        loop {
            if let Some(mut open) = self.value.take() {
                match open.advance(text, tagged, json) {
                    Some((None, _)) => return PieceMatch::Wrong,
                    Some((Some(value), end)) => {
                        self.arguments.insert(open.key, value);
                        self.at = end;
                    }
                    None => {
                        self.value = Some(open);
                        return PieceMatch::More;
                    }
                }
                continue;
            }
            let begin = match literal_text(text, self.at, tagged.open) {
                PieceMatch::To(begin) => begin,
                PieceMatch::More => return PieceMatch::More,
                PieceMatch::Wrong => {
                    json.push_str(if self.arguments.is_empty() { "{}" } else { "}" });
                    return PieceMatch::To(self.at);
                }
            };
            let (key, types, start) = match key(&text[begin..], tagged) {
                Key::More => return PieceMatch::More,
                Key::Wrong => return PieceMatch::Wrong,
                Key::Read { key, string, length } => {
                    let types = match string {
                        Some(true) => Types::of(&serde_json::json!({"type": "string"}), &Value::Null),
                        Some(false) => Types::default(),
                        None => Types::of_argument(parameters, &key),
                    };
                    (key, types, begin + length)
                }
            };
            json.push_str(if self.arguments.is_empty() { "{" } else { ", " });
            json.push_str(&dumps(&key).unwrap_or_default());
            json.push_str(": ");
            self.value = Some(Open { key, types, start, reported: None, searched: start });
        }
    }
}

enum Key {
    More,
    Wrong,
    Read {
        key: String,
        /// Whether the tag declares the value a string, if it does either.
        string: Option<bool>,
        length: usize,
    },
}

/// Reads a key and the text between it and its value.
fn key(text: &str, tagged: &Tagged) -> Key {
    let after = tagged.string.trim_start();
    let Some(length) = after.chars().next().and_then(|first| text.find(first)) else { return Key::More };
    let key = text[..length].trim();
    if key.is_empty() || key.contains('\n') {
        return Key::Wrong;
    }
    let distinct = tagged.string != tagged.other;
    let variants: Vec<(bool, String)> = match tagged.other.contains("{type}") {
        true => ["string", "number", "boolean", "null", "object", "array", "integer"]
            .map(|name| (name == "string", tagged.other.replace("{type}", name)))
            .into(),
        false => vec![(true, tagged.string.into()), (false, tagged.other.into())],
    };
    let mut more = false;
    for (string, variant) in variants {
        match literal_text(text, length, &variant) {
            PieceMatch::To(end) => {
                // The line feed that belongs to the tag may not have come yet.
                let line = variant.ends_with('\n');
                if line && end == text.len() {
                    return Key::More;
                }
                let end = end + usize::from(line && text[end..].starts_with('\n'));
                return Key::Read { key: key.to_owned(), string: distinct.then_some(string), length: end };
            }
            PieceMatch::More => more = true,
            PieceMatch::Wrong => {}
        }
    }
    if more { Key::More } else { Key::Wrong }
}

impl Open {
    /// The value, if it is one, and the end of its closing tag, once both have come.
    fn advance(&mut self, text: &str, tagged: &Tagged, json: &mut String) -> Option<(Option<Value>, usize)> {
        let close = tagged.close.trim();
        let mut from = self.searched;
        let found = loop {
            match text[from..].find(close).map(|at| from + at) {
                // A string within the value may contain the tag.
                Some(at) if !self.types.only_string() && literal::unfinished(&text[self.start..at]) => {
                    from = at + close.len();
                }
                found => break found,
            }
        };
        let end = found.unwrap_or_else(|| {
            let held = (text.len() + 1).saturating_sub(close.len()).max(from);
            self.searched = text.floor_char_boundary(held);
            self.searched
        });
        let line = tagged.close.starts_with('\n');
        let raw = &text[self.start..end];
        // Until the end has come, a line feed may still belong to the tag.
        let raw = if line { raw.strip_suffix('\n').unwrap_or(raw) } else { raw };
        if self.types.only_string() {
            let from = *self.reported.get_or_insert_with(|| {
                json.push('"');
                0
            });
            if let Ok(quoted) = dumps(&raw.get(from..).unwrap_or_default()) {
                json.push_str(&quoted[1..quoted.len() - 1]);
            }
            self.reported = Some(raw.len().max(from));
        }
        found?;
        let value = read(raw, self.types);
        match (self.reported, &value) {
            (Some(_), _) => json.push('"'),
            (None, Some(value)) => json.push_str(&dumps(value).unwrap_or_default()),
            (None, None) => {}
        }
        Some((value, end + close.len()))
    }
}
