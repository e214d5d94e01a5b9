//! Conditions: expressions over past calls, `queue`, `turns`, `answers`, the facts, and the
//! contents of ledgers.

use std::collections::BTreeSet;
use std::fmt;

use alara_text::nearest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Listed, Phases};
use crate::expression::{Counter, Expression, Key, Names, Seen, Truth};

/// A condition.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Condition {
    text: String,
    expression: Expression,
}

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// It is not an expression.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Condition { text: text.to_owned(), expression: Expression::parse(text)? })
    }

    /// Its expression.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Whether it is true.
    ///
    /// # Errors
    /// It compares or computes values of the wrong types.
    pub fn truth(&self, names: &Names) -> Result<Truth, String> {
        names.truth(&self.expression, &mut Seen::default())
    }

    /// Whether it is known to be true.
    /// A condition that can't be evaluated is not: what it guards stays closed.
    pub fn is_met(&self, names: &Names) -> bool {
        self.truth(names) == Ok(Truth::True)
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Condition {}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Condition {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Condition::parse(&text)
    }
}

impl From<Condition> for String {
    fn from(condition: Condition) -> String {
        condition.text
    }
}

/// The names that conditions can use in addition to facts.
pub const NAMES: [&str; 3] = ["answers", "queue", "turns"];
/// The parts of `queue`.
const QUEUE: [&str; 3] = ["done", "empty", "pending"];

/// The names that conditions can use in addition to facts, with their values.
pub fn values(pending: &[String], done: &[String], turns: u64, answers: u64) -> Map<String, Value> {
    let queue = json!({"empty": pending.is_empty(), "pending": pending, "done": done});
    Map::from_iter([
        ("queue".to_owned(), queue),
        ("turns".to_owned(), turns.into()),
        ("answers".to_owned(), answers.into()),
    ])
}

/// The values that a condition uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// The calls that it counts.
    pub counted: BTreeSet<(Counter, String)>,
    /// The facts and other names in it.
    pub names: BTreeSet<String>,
    /// Whether it uses a ledger.
    pub ledger: bool,
    /// The numbers in it.
    pub numbers: BTreeSet<u64>,
}

/// The values that a condition uses, which may name these `facts`.
///
/// # Errors
/// The problem, and what to write instead.
pub fn uses(condition: &Condition, phases: &Phases, facts: &[&str], listed: &Listed) -> Result<Uses, String> {
    let mut uses = Uses::default();
    let mut paths = Vec::new();
    condition.expression.walk(&mut |expression| match expression {
        Expression::Count(counter, pattern) => drop(uses.counted.insert((*counter, pattern.clone()))),
        Expression::Literal(value) => uses.numbers.extend(value.as_u64()),
        Expression::Path(keys) => paths.push(keys.as_slice()),
        _ => {}
    });
    if uses.counted.iter().any(|(counter, _)| *counter == Counter::Said) {
        return Err("there is no `said` here: phases know calls, and not what was said".to_owned());
    }
    for path in paths {
        let Some(Key::Name(name)) = path.first() else { continue };
        check_path(name, path, phases, facts, listed)?;
        if facts.contains(&name.as_str()) || NAMES.contains(&name.as_str()) {
            uses.names.insert(name.clone());
        } else {
            uses.ledger = true;
        }
    }
    Ok(uses)
}

fn check_path(
    name: &str,
    path: &[Key],
    phases: &Phases,
    facts: &[&str],
    listed: &Listed,
) -> Result<(), String> {
    if name == "queue" {
        if phases.queue.is_none() {
            return Err(
                "`queue` needs a list of tasks: add `queue: {from: …, done: …}` to the phases".to_owned()
            );
        }
        return match path.get(1) {
            Some(Key::Name(part)) if !QUEUE.contains(&part.as_str()) => {
                Err(format!("a queue has no `{part}`, only {}", QUEUE.join(", ")))
            }
            _ => Ok(()),
        };
    }
    if facts.contains(&name) || NAMES.contains(&name) {
        return Ok(());
    }
    if listed.ledger.contains(name) {
        return (listed.lost)(path).map_or(Ok(()), Err);
    }
    let known = facts.iter().copied().chain(NAMES).chain(listed.ledger.iter().map(String::as_str));
    let functions = Counter::CALLS.iter().map(|counter| counter.name());
    let near = nearest(name, known.chain(functions));
    let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_else(|| {
        let facts = if facts.is_empty() { "none yet".to_owned() } else { facts.join(", ") };
        format!(": name it under `facts` (facts before this: {facts})")
    });
    Err(format!("`{name}` is not known here{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_condition_asks_for() {
        let ledger = BTreeSet::from(["orders".to_owned()]);
        let lost = |path: &[Key]| (path.len() < 2).then(|| "nobody has read all orders".to_owned());
        let listed = Listed { tools: &[], hidden: &[], beside: &|_| false, ledger: &ledger, lost: &lost };
        let found = |condition: &str| {
            let condition = Condition::parse(condition)?;
            uses(&condition, &Phases::default(), &["verified"], &listed)
        };
        let check = |condition: &str, counted: &[&str], names: &[&str], numbers: &[u64]| {
            let uses = found(condition).unwrap();
            let calls = uses.counted.iter().map(|(counter, pattern)| format!("{} {pattern}", counter.name()));
            assert_eq!(calls.collect::<Vec<_>>(), counted, "{condition}");
            assert_eq!(uses.names.iter().collect::<Vec<_>>(), names, "{condition}");
            assert_eq!(uses.numbers, numbers.iter().copied().collect(), "{condition}");
        };
        check("ok('get_*')", &["ok get_*"], &[], &[]);
        check("failed( \"a\" ) >= 3 and not verified", &["failed a"], &["verified"], &[3]);
        check("orders.x.ok == 'ok(1)' or turns > 6", &[], &["turns"], &[6]);
        assert!(found("orders.x").unwrap().ledger && !found("turns > 1").unwrap().ledger);
        let check = |condition: &str, expected: &str| {
            assert_eq!(found(condition).unwrap_err(), expected, "{condition}");
        };
        check("orders", "nobody has read all orders");
        check("said('yes')", "there is no `said` here: phases know calls, and not what was said");
        check("ok(verified)", "`ok` takes the name of a tool in quotes: ok('get_*')");
        check("verfied", "`verfied` is not known here, did you mean `verified`?");
        check(
            "shipped_yesterday",
            "`shipped_yesterday` is not known here: name it under `facts` (facts before this: verified)",
        );
        check("queue.empty", "`queue` needs a list of tasks: add `queue: {from: …, done: …}` to the phases");
        check("verified and", "a value is missing at the end");
    }
}
