//! The ledger: facts about the world from the results of calls, by path.
//!
//! It is a fold over [`Change`]s, which depend on calls and their results alone.
//! The result of a read is stored where its gate says; facts that a write may have changed are
//! stale until they are read again.
//! A path is known at or below a stored fact: the values above it were not read.
//! This module must not know rules and conditions.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A path in a ledger, as components: an ID may contain points.
pub type Path = Vec<String>;

/// The effect of a result on the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// A fact is known from now on.
    Known {
        /// Its path.
        path: Path,
        /// Its value.
        value: Value,
    },
    /// Facts at, above and below this path may have changed; an empty path means all facts.
    Stale {
        /// The path.
        path: Path,
    },
    /// A part of a result could not be stored.
    Wrong {
        /// The part, the reason and the path.
        message: String,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Change::Known { path, value } => write!(f, "{} is {}", path.join("."), short(value)),
            Change::Stale { path } if path.is_empty() => f.write_str("everything is stale"),
            Change::Stale { path } => write!(f, "{} is stale", path.join(".")),
            Change::Wrong { message } => f.write_str(message),
        }
    }
}

/// Most bytes of a fact in the text for a model.
pub const TOLD: usize = 400;

/// The known facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Facts by path; no path is a prefix of another one.
    facts: BTreeMap<Path, Fact>,
}

#[derive(Clone, Debug, PartialEq)]
struct Fact {
    value: Value,
    /// The parts that became stale or known again since the fact was read, in this order; an empty
    /// path means the whole fact.
    marks: Vec<(Path, Mark)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Stale,
    Known,
}

impl Fact {
    /// Marks a part, which replaces earlier marks of its own parts.
    fn mark(&mut self, path: &[String], mark: Mark) {
        self.marks.retain(|(other, _)| !other.starts_with(path));
        self.marks.push((path.to_vec(), mark));
    }

    /// Its value, with a note about its stale parts.
    fn described(&self) -> String {
        const STALE: &str = "may have changed since it was read";
        let stale = |(_, mark): &&(Path, Mark)| *mark == Mark::Stale;
        let stale: Vec<String> = self.marks.iter().filter(stale).map(|(path, _)| path.join(".")).collect();
        let text = cut(&self.value, TOLD);
        match stale.as_slice() {
            [] => text,
            parts if parts.iter().any(String::is_empty) => STALE.to_owned(),
            parts => format!("{text}; {STALE}: {}", parts.join(", ")),
        }
    }

    /// Whether a part, or a part of it, may be outdated.
    fn is_stale(&self, path: &[String]) -> bool {
        self.marks.iter().fold(false, |stale, (at, mark)| match mark {
            Mark::Stale => stale || at.starts_with(path) || path.starts_with(at),
            Mark::Known => stale && !path.starts_with(at),
        })
    }
}

/// The state of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Found<'a> {
    /// Its value is known.
    Known(&'a Value),
    /// Its value is unknown.
    Unknown,
    /// Its value was known, but a write may have changed it since.
    Stale,
}

impl Ledger {
    /// The ledger after all of these changes.
    pub fn fold<'a>(changes: impl IntoIterator<Item = &'a Change>) -> Self {
        let mut ledger = Ledger::default();
        changes.into_iter().for_each(|change| ledger.apply(change));
        ledger
    }

    /// Applies a change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Known { path, value } => self.put(path, value),
            Change::Stale { path } => self.spoil(path),
            Change::Wrong { .. } => {}
        }
    }

    /// The state of a path.
    pub fn find(&self, path: &[String]) -> Found<'_> {
        let Some((at, fact)) = self.around(path) else { return Found::Unknown };
        let rest = &path[at.len()..];
        if fact.is_stale(rest) {
            return Found::Stale;
        }
        look_up(&fact.value, rest).map_or(Found::Unknown, Found::Known)
    }

    /// Each fact with its path, in the text for a model.
    pub fn described(&self) -> impl Iterator<Item = (String, String)> {
        self.facts.iter().map(|(path, fact)| (path.join("."), fact.described()))
    }

    /// All known facts, as one mapping, with `{"stale": [path, …]}` if any are stale.
    pub fn value(&self) -> Value {
        let mut whole = Value::Object(Map::new());
        let mut stale = Vec::new();
        for (path, fact) in &self.facts {
            // No path is a prefix of another one, so only mappings created here are on the way.
            put_below(&mut whole, path, &fact.value);
            let marks = fact.marks.iter().filter(|(_, mark)| *mark == Mark::Stale);
            stale.extend(marks.map(|(rest, _)| Value::from([path.as_slice(), rest].concat().join("."))));
        }
        if !stale.is_empty() {
            put_below(&mut whole, &["stale".to_owned()], &stale.into());
        }
        whole
    }

    /// The fact at or above a path.
    fn around(&self, path: &[String]) -> Option<(&Path, &Fact)> {
        // All prefixes of a path come before it, and no other fact is between the two.
        let (at, fact) = self.facts.range(..=path.to_vec()).next_back()?;
        path.starts_with(at).then_some((at, fact))
    }

    fn put(&mut self, path: &Path, value: &Value) {
        let around = self.around(path).map(|(at, _)| at.clone()).filter(|at| at.len() < path.len());
        if let Some((at, fact)) = around.and_then(|at| Some((at.clone(), self.facts.get_mut(&at)?))) {
            let rest = &path[at.len()..];
            if put_below(&mut fact.value, rest, value) {
                fact.mark(rest, Mark::Known);
                return;
            }
            // It differs from the value that was read.
            self.facts.remove(&at);
        }
        self.facts.retain(|other, _| !other.starts_with(path));
        self.facts.insert(path.clone(), Fact { value: value.clone(), marks: Vec::new() });
    }

    fn spoil(&mut self, path: &[String]) {
        for (at, fact) in &mut self.facts {
            if at.starts_with(path) {
                fact.mark(&[], Mark::Stale);
            } else if path.starts_with(at) {
                fact.mark(&path[at.len()..], Mark::Stale);
            }
        }
    }
}

/// The part of a value at a path.
pub fn look_up<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, part| match value {
        Value::Object(map) => map.get(part),
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Puts a part into a mapping; returns whether each component of the path was a mapping.
fn put_below(whole: &mut Value, path: &[String], value: &Value) -> bool {
    let Some((last, way)) = path.split_last() else { return false };
    let inside = way.iter().try_fold(whole, |inside, part| match inside {
        Value::Object(map) => Some(map.entry(part.clone()).or_insert_with(|| Map::new().into())),
        Value::Array(items) => items.get_mut(part.parse::<usize>().ok()?),
        _ => None,
    });
    match inside {
        Some(Value::Object(map)) => {
            map.insert(last.clone(), value.clone());
            true
        }
        Some(Value::Array(items)) => match last.parse().ok().and_then(|index: usize| items.get_mut(index)) {
            Some(item) => {
                *item = value.clone();
                true
            }
            None => false,
        },
        _ => false,
    }
}

/// A value in a message.
pub fn short(value: &Value) -> String {
    cut(value, 60)
}

/// A value as JSON, of at most this many bytes.
pub fn cut(value: &Value, bytes: usize) -> String {
    let text = value.to_string();
    let end = text.floor_char_boundary(bytes);
    if end < text.len() { format!("{}…", &text[..end]) } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> Path {
        if text.is_empty() { Path::new() } else { text.split('.').map(str::to_owned).collect() }
    }

    fn known(at: &str, value: Value) -> Change {
        Change::Known { path: path(at), value }
    }

    fn stale(at: &str) -> Change {
        Change::Stale { path: path(at) }
    }

    fn told(ledger: &Ledger, at: &str) -> String {
        match ledger.find(&path(at)) {
            Found::Known(value) => value.to_string(),
            Found::Unknown => "unknown".to_owned(),
            Found::Stale => "stale".to_owned(),
        }
    }

    #[test]
    fn a_write_makes_stale_what_it_touches_until_it_is_read_again() {
        let order = || known("orders.1", json!({"status": "pending", "items": [{"id": 4}]}));
        let check = |changes: &[Change], expected: &[(&str, &str)]| {
            let ledger = Ledger::fold(changes);
            for (at, expected) in expected {
                assert_eq!(told(&ledger, at), *expected, "{at} after {changes:?}");
            }
        };
        check(
            &[order()],
            &[
                ("orders.1.status", "\"pending\""),
                ("orders.1.items.0.id", "4"),
                ("orders.1.items.1", "unknown"),
                ("orders.1.nothing", "unknown"),
                ("orders.2", "unknown"),
                ("orders.10", "unknown"),
                // The other orders were not read.
                ("orders", "unknown"),
            ],
        );
        check(&[order(), stale("orders.1")], &[("orders.1.status", "stale"), ("orders.1", "stale")]);
        check(&[order(), stale("orders")], &[("orders.1.status", "stale"), ("orders.2", "unknown")]);
        check(&[order(), stale("")], &[("orders.1.status", "stale")]);
        check(
            &[order(), stale("orders.1.status")],
            &[("orders.1.status", "stale"), ("orders.1", "stale"), ("orders.1.items.0.id", "4")],
        );
        check(&[order(), stale("orders.2"), stale("users")], &[("orders.1.status", "\"pending\"")]);
        check(&[order(), stale("orders"), order()], &[("orders.1.status", "\"pending\"")]);
        check(
            &[order(), stale("orders.1.status"), known("orders.1.status", json!("cancelled"))],
            &[("orders.1.status", "\"cancelled\""), ("orders.1.items.0.id", "4")],
        );
        // Reading a part doesn't make a stale whole known.
        check(
            &[order(), stale("orders.1"), known("orders.1.status", json!("cancelled"))],
            &[("orders.1.status", "\"cancelled\""), ("orders.1.items.0.id", "stale"), ("orders.1", "stale")],
        );
    }

    #[test]
    fn a_later_read_of_more_counts() {
        let ledger = Ledger::fold(&[
            known("users.5.orders.7", json!({"a": 1})),
            known("users.5", json!({"name": "x"})),
        ]);
        assert_eq!(told(&ledger, "users.5.orders.7"), "unknown");
        assert_eq!(told(&ledger, "users.5.name"), "\"x\"");
        let ledger = Ledger::fold(&[known("users.5", json!("x")), known("users.5.age", json!(3))]);
        assert_eq!(told(&ledger, "users.5.age"), "3");
        assert_eq!(told(&ledger, "users.5"), "unknown");
    }

    #[test]
    fn an_id_may_have_points_in_it() {
        let whole = |id: &str| vec!["orders".to_owned(), id.to_owned()];
        let ledger = Ledger::fold(&[Change::Known { path: whole("a.b"), value: json!(1) }]);
        assert_eq!(ledger.find(&whole("a.b")), Found::Known(&json!(1)));
        assert_eq!(told(&ledger, "orders.a.b"), "unknown");
    }

    #[test]
    fn it_is_shown_as_one_value() {
        let ledger = Ledger::fold(&[
            known("a.1", json!({"x": 1})),
            known("a.2", json!(2)),
            known("b", json!(3)),
            stale("a.1.x"),
        ]);
        assert_eq!(ledger.value(), json!({"a": {"1": {"x": 1}, "2": 2}, "b": 3, "stale": ["a.1.x"]}));
    }
}
