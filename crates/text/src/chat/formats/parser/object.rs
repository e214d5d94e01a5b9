//! Reads JSON objects byte by byte, each byte once.

use serde_json::{Map, Value};

use super::call::PieceMatch;
use crate::chat::formats::Keys;

/// State of the scan of an object.
/// Positions count from the beginning of the text.
#[derive(Clone, Debug)]
pub(super) struct ObjectScan {
    start: usize,
    at: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The start of the last string at depth one.
    string: usize,
    /// The role of the next value at depth one if it follows a key.
    key: Option<Role>,
    /// Ranges of the values of interest.
    name: Option<(usize, usize)>,
    arguments: Option<(usize, Option<usize>)>,
}

/// The role of a key of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Name,
    Arguments,
    Other,
}

/// Keys that may begin a call; free text never begins with an object that has one of them first.
const CALL_KEYS: [&str; 5] = ["name", "parameters", "arguments", "type", "id"];

/// Whether a text begins like the object of a call, with a complete first key.
pub(super) fn begins_call(text: &str) -> bool {
    let object = text.trim_start().strip_prefix('{').map(str::trim_start);
    let key = object.and_then(|object| object.strip_prefix('"')?.split_once('"'));
    key.is_some_and(|(key, _)| key.contains('\\') || CALL_KEYS.contains(&key))
}

impl ObjectScan {
    /// A scan of the object that begins at `at`, after whitespace.
    pub(super) fn new(text: &str, at: usize) -> Self {
        let start = text.len() - text[at..].trim_start().len();
        ObjectScan {
            start,
            at: start,
            depth: 0,
            in_string: false,
            escaped: false,
            string: start,
            key: None,
            name: None,
            arguments: None,
        }
    }

    /// Scans to the object's end, looking at brackets and strings only.
    pub(super) fn whole(&mut self, text: &str) -> PieceMatch {
        self.scan(text, |_, _| Role::Other)
    }

    /// As [`ObjectScan::whole`], and records where name and arguments are.
    pub(super) fn advance(&mut self, text: &str, keys: &Keys) -> PieceMatch {
        self.scan(text, |from, to| match text.get(from + 1..to - 1) {
            Some(key) if key == keys.name => Role::Name,
            Some(key) if is_arguments(key, keys) => Role::Arguments,
            _ => Role::Other,
        })
    }

    fn scan(&mut self, text: &str, role: impl Fn(usize, usize) -> Role) -> PieceMatch {
        if self.at == self.start {
            // More whitespace may have come.
            self.start = text.len() - text[self.start..].trim_start().len();
            self.at = self.start;
            match text.as_bytes().get(self.at) {
                None => return PieceMatch::More,
                Some(b'{') => {}
                Some(_) => return PieceMatch::Wrong,
            }
        }
        while let Some(&byte) = text.as_bytes().get(self.at) {
            self.at += 1;
            if self.in_string {
                let escape = byte == b'\\' && !self.escaped;
                self.in_string = byte != b'"' || self.escaped;
                self.escaped = escape;
                if !self.in_string && self.depth == 1 && self.key == Some(Role::Name) {
                    self.name = Some((self.string, self.at));
                }
                continue;
            }
            match byte {
                b'"' => {
                    self.in_string = true;
                    if self.depth == 1 {
                        self.string = self.at - 1;
                    }
                }
                b':' if self.depth == 1 => {
                    let end = text[..self.at - 1].trim_end().len();
                    self.key = (end > self.string + 1).then(|| role(self.string, end));
                    if self.key == Some(Role::Arguments) {
                        self.arguments = Some((self.at, None));
                    }
                }
                b',' if self.depth == 1 => self.value_ends(),
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    if self.depth == 1 {
                        self.value_ends();
                    }
                    self.depth -= 1;
                    if self.depth == 0 {
                        return PieceMatch::To(self.at);
                    }
                }
                _ => {}
            }
        }
        PieceMatch::More
    }

    fn value_ends(&mut self) {
        if self.key.take() == Some(Role::Arguments)
            && let Some((_, end)) = &mut self.arguments
        {
            *end = Some(self.at - 1);
        }
    }

    /// The value of the name's key, once it is complete.
    pub(super) fn name(&self, text: &str) -> Option<String> {
        let (from, to) = self.name?;
        serde_json::from_str(text.get(from..to)?).ok()
    }

    /// The text of the arguments' object scanned so far, without its first `known` bytes.
    pub(super) fn arguments<'a>(&self, text: &'a str, known: usize) -> Option<&'a str> {
        let (from, to) = self.arguments?;
        let seen = text.get(from..to.unwrap_or(self.at))?;
        let object = seen.trim_start();
        let object = if to.is_some() { object.trim_end() } else { object };
        object.starts_with('{').then(|| object.get(known..)).flatten().filter(|more| !more.is_empty())
    }

    /// The text of the whole object scanned so far, without its first `known` bytes.
    pub(super) fn seen<'a>(&self, text: &'a str, known: usize) -> &'a str {
        text.get(self.start + known..self.at).unwrap_or_default()
    }

    /// The id and the arguments of a complete object.
    /// Accepts what models write when no grammar constrains them: keys in any order, no arguments,
    /// and arguments as JSON in a string.
    pub(super) fn read(&self, text: &str, keys: &Keys) -> Option<(String, Map<String, Value>)> {
        let mut object: Map<String, Value> = serde_json::from_str(&text[self.start..]).ok()?;
        object.get(keys.name)?.as_str()?;
        let known = |key: &str| {
            key == keys.name
                || is_arguments(key, keys)
                || keys.id.is_some_and(|id| id.0 == key)
                || OTHER.contains(&key)
        };
        if !object.keys().all(|key| known(key)) {
            return None;
        }
        let id = keys.id.and_then(|(key, _)| object.get(key)?.as_str().map(str::to_owned));
        let key = object.keys().find(|key| is_arguments(key, keys)).cloned();
        let arguments = match key.and_then(|key| object.remove(&key)) {
            None => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(Value::String(text)) => serde_json::from_str(&text).ok()?,
            Some(_) => return None,
        };
        Some((id.unwrap_or_default(), arguments))
    }
}

/// Keys that models add to a call; ignored.
const OTHER: [&str; 2] = ["type", "id"];

fn is_arguments(key: &str, keys: &Keys) -> bool {
    key == keys.arguments || ["arguments", "parameters"].contains(&key)
}
