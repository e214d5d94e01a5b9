//! Conditions: expressions over what happened, by the functions `ok('pattern')` and
//! `failed('pattern')`, `queue`, `turns`, `answers` and the facts.

use std::collections::BTreeSet;

use alara_engine::nearest;
use serde_json::{Map, Value, json};

use super::Phases;
use crate::jinx::template::{Scope, holds, names};

/// A function of conditions: how many calls of tools that fit a pattern ended so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// `ok('pattern')`: those that succeeded.
    Ok,
    /// `failed('pattern')`: those that did not.
    Failed,
}

impl Counter {
    const ALL: [Counter; 2] = [Counter::Ok, Counter::Failed];

    /// The function's name.
    pub fn name(self) -> &'static str {
        match self {
            Counter::Ok => "ok",
            Counter::Failed => "failed",
        }
    }
}

/// The names that conditions see beside facts.
pub const NAMES: [&str; 3] = ["answers", "queue", "turns"];
/// What `queue` has.
const QUEUE: [&str; 3] = ["done", "empty", "pending"];

/// What a condition is computed over: what the functions count, and the names without facts.
pub fn scope(
    count: impl Fn(Counter, &str) -> u64 + Clone + Send + Sync + 'static,
    values: &Map<String, Value>,
) -> Scope {
    let mut scope = Scope::default();
    values.iter().for_each(|(name, value)| scope.know(name, value));
    for counter in Counter::ALL {
        let count = count.clone();
        scope.count(counter.name(), move |pattern| count(counter, pattern));
    }
    scope
}

/// The names that conditions see beside facts, with their values.
pub fn values(pending: &[String], done: &[String], turns: u64, answers: u64) -> Map<String, Value> {
    let queue = json!({"empty": pending.is_empty(), "pending": pending, "done": done});
    Map::from_iter([
        ("queue".to_owned(), queue),
        ("turns".to_owned(), turns.into()),
        ("answers".to_owned(), answers.into()),
    ])
}

/// Whether a condition holds.
/// One that can't be computed does not: what it guards stays closed.
pub fn is_met(condition: &str, scope: &Scope) -> bool {
    holds(condition, scope).unwrap_or(false)
}

/// What a condition asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// What it counts.
    pub counted: BTreeSet<(Counter, String)>,
    /// Its other names, without what is looked up in them.
    pub names: BTreeSet<String>,
    /// The numbers in it.
    pub numbers: BTreeSet<u64>,
}

/// What a condition asks for, which may name these `facts` and roots of a `ledger`.
///
/// # Errors
/// What is wrong with it, and what to write instead.
pub fn uses(condition: &str, phases: &Phases, facts: &[&str], ledger: &[String]) -> Result<Uses, String> {
    let mut uses = Uses { numbers: numbers(condition), ..Uses::default() };
    for counter in Counter::ALL {
        uses.counted.extend(patterns(condition, counter)?.into_iter().map(|pattern| (counter, pattern)));
    }
    for path in names(condition)? {
        let (name, part) = path.split_once('.').unwrap_or((&path, ""));
        if Counter::ALL.iter().any(|counter| counter.name() == name) {
            continue;
        }
        if name == "queue" {
            if phases.queue.is_none() {
                return Err(
                    "`queue` needs a list of tasks: add `queue: {from: …, done: …}` to the phases".to_owned()
                );
            }
            let part = part.split('.').next().unwrap_or_default();
            if !part.is_empty() && !QUEUE.contains(&part) {
                return Err(format!("a queue has no `{part}`, only {}", QUEUE.join(", ")));
            }
        }
        let known = || facts.iter().copied().chain(NAMES).chain(ledger.iter().map(String::as_str));
        if !known().any(|other| other == name) {
            let functions = Counter::ALL.iter().map(|counter| counter.name());
            let near = nearest(name, known().chain(functions));
            let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_else(|| {
                let facts = if facts.is_empty() { "none yet".to_owned() } else { facts.join(", ") };
                format!(": name it under `facts` (facts before this: {facts})")
            });
            return Err(format!("`{name}` is not known here{hint}"));
        }
        uses.names.insert(name.to_owned());
    }
    Ok(uses)
}

/// The patterns that a function gets in a condition, which have to be written in it.
fn patterns(condition: &str, counter: Counter) -> Result<Vec<String>, String> {
    let mut patterns = Vec::new();
    let mut rest = condition;
    let mut before = None;
    while let Some(first) = rest.chars().next() {
        if first == '"' || first == '\'' {
            let (_, after) = quoted(rest).ok_or("a quote is not closed")?;
            (rest, before) = (after, Some(first));
            continue;
        }
        if !is_word(first) {
            (rest, before) = (&rest[first.len_utf8()..], Some(first));
            continue;
        }
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word == counter.name() && before != Some('.') {
            let argument = after.trim_start().strip_prefix('(').map(str::trim_start);
            let found = argument.and_then(quoted).filter(|(_, after)| after.trim_start().starts_with(')'));
            let (pattern, after) = found
                .ok_or_else(|| format!("`{word}` takes the name of a tool in quotes: {word}('get_*')"))?;
            patterns.push(pattern.to_owned());
            (rest, before) = (after, Some('\''));
        } else {
            (rest, before) = (after, word.chars().last());
        }
    }
    Ok(patterns)
}

/// The text in quotes with which this begins, and what follows.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| *c == '"' || *c == '\'')?;
    // No name of a tool has anything to escape.
    text[1..].split_once(quote)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn numbers(condition: &str) -> BTreeSet<u64> {
    let words = condition.split(|c| !is_word(c));
    words.filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_condition_asks_for() {
        let check = |condition: &str, expected: Result<(&[&str], &[&str], &[u64]), &str>| {
            let found = uses(condition, &Phases::default(), &["verified"], &["orders".to_owned()]);
            let found = found.map(|uses| {
                let counted =
                    uses.counted.iter().map(|(counter, pattern)| format!("{} {pattern}", counter.name()));
                (
                    counted.collect::<Vec<_>>(),
                    uses.names.into_iter().collect::<Vec<_>>(),
                    uses.numbers.into_iter().collect(),
                )
            });
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
            let expected = expected.map(|(counted, names, numbers): (&[&str], &[&str], &[u64])| {
                (owned(counted), owned(names), numbers.to_vec())
            });
            assert_eq!(found, expected.map_err(str::to_owned), "{condition}");
        };
        check("ok('get_*')", Ok((&["ok get_*"], &[], &[])));
        check("failed( \"a\" ) >= 3 and not verified", Ok((&["failed a"], &["verified"], &[3])));
        check("orders.x.ok == 'ok(1)' or turns > 6", Ok((&[], &["orders", "turns"], &[1, 6])));
        check("ok(verified)", Err("`ok` takes the name of a tool in quotes: ok('get_*')"));
        check("verfied", Err("`verfied` is not known here, did you mean `verified`?"));
        check(
            "shipped_yesterday",
            Err("`shipped_yesterday` is not known here: name it under `facts` (facts before this: verified)"),
        );
        check(
            "queue.empty",
            Err("`queue` needs a list of tasks: add `queue: {from: …, done: …}` to the phases"),
        );
        assert!(uses("verified and", &Phases::default(), &["verified"], &[]).is_err());
    }
}
