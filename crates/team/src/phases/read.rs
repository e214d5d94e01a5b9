//! Reads `phases:` of an NPC's file.
//! Anything unknown is an error, including an unknown key: an agent that should be bound must not
//! run unbound.

use std::collections::BTreeSet;

use alara_text::nearest;

use super::check::{check, names};
use super::{Budget, Condition, Expect, Fact, Gate, Next, Phase, Phases, Queue};
use crate::expression::{Key, fits};
use crate::fields::{Fields, is_name};
use crate::source::Source;
use crate::types::{Diagnostic, Location, Severity};
use crate::yaml::{Entry, Node};

/// Keys of `phases` that aren't phases.
const KEYS: [&str; 4] = ["start", "facts", "queue", "retries"];
/// Keys of a phase.
const PHASE_KEYS: [&str; 5] = ["goal", "tools", "expect", "gate", "next"];

/// The tools of the NPC whose phases are read.
pub struct Listed<'a> {
    /// The known tools.
    pub tools: &'a [String],
    /// The hidden ones among them.
    pub hidden: &'a [String],
    /// Whether there may be another tool that matches a name or pattern: one of a server, or one
    /// whose file is unusable, which has its own diagnostic.
    pub beside: &'a dyn Fn(&str) -> bool,
    /// The first components of the paths in ledgers.
    pub ledger: &'a BTreeSet<String>,
    /// Why no fact can ever be known at a path of a ledger.
    pub lost: &'a dyn Fn(&[Key]) -> Option<String>,
}

impl Listed<'_> {
    /// Whether a tool matches a pattern, or may.
    pub(super) fn has(&self, pattern: &str) -> bool {
        self.tools.iter().any(|tool| fits(pattern, tool)) || (self.beside)(pattern)
    }
}

/// Reads the phases at a node.
///
/// # Errors
/// The first problem; all of them are reported.
pub fn read(
    source: &Source,
    node: &Node,
    listed: &Listed,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<Phases, Diagnostic> {
    let mut own = Vec::new();
    let mut phases = build(source, node, &mut own);
    let is_error = |problem: &Diagnostic| problem.severity == Severity::Error;
    if let Some(phases) = &mut phases {
        let is_phase = |entry: &&Entry| !KEYS.contains(&entry.key.as_str());
        let written = node.entries().unwrap_or_default().iter().filter(is_phase).count();
        if !own.iter().any(is_error) {
            own.extend(check(source, node, phases, listed));
        } else if phases.phases.len() == written && !phases.start.is_empty() {
            // The names are known, whatever else is wrong in a phase.
            own.extend(names(source, node, phases, listed));
        }
    }
    let wrong = own.iter().find(|problem| is_error(problem)).cloned();
    diagnostics.append(&mut own);
    match (phases, wrong) {
        (Some(phases), None) => Ok(phases),
        (_, wrong) => Err(wrong.unwrap_or_else(|| source.error(node.location, "these are no phases"))),
    }
}

fn build(source: &Source, node: &Node, diagnostics: &mut Vec<Diagnostic>) -> Option<Phases> {
    let mut fields = Fields::new(source, node, diagnostics)?;
    let mut phases = Phases { start: fields.text(&["start"]).unwrap_or_default(), ..Phases::default() };
    if let Some(entry) = fields.entry(&["facts"]) {
        phases.facts = facts(&mut fields, entry);
    }
    let (queue, retries) = (fields.entry(&["queue"]), fields.entry(&["retries"]));
    let entries: Vec<&Entry> = fields.others().into_iter().map(|(entry, _)| entry).collect();
    phases.queue = queue.and_then(|entry| read_queue(source, entry, fields.diagnostics()));
    if let Some(entry) = retries {
        phases.retries = budgets(&mut fields, entry);
    }
    for entry in &entries {
        if !is_name(&entry.key) {
            let message =
                format!("the name `{}` of a phase is not made of letters, digits, `_` and `-`", entry.key);
            fields.error(entry.location, message);
        } else if let Some(misread) = misread(entry) {
            fields.error(entry.location, misread);
        } else {
            phases.phases.extend(phase(source, entry, fields.diagnostics()));
        }
    }
    if entries.is_empty() {
        fields.error(
            node.location,
            "there is no phase: add one, such as `work: {tools: [shell], expect: either}`",
        );
    } else if phases.start.is_empty() {
        let first = &entries[0].key;
        fields.error(
            node.location,
            format!("`start` must say in which phase a conversation begins: `start: {first}`"),
        );
    }
    Some(phases)
}

/// Why an entry is not a phase, but perhaps a misspelt key.
fn misread(entry: &Entry) -> Option<String> {
    let key = &entry.key;
    let near =
        nearest(key, KEYS.into_iter()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let Some(entries) = entry.value.entries() else {
        let found = entry.value.describe();
        return Some(format!(
            "`{key}` is read as a phase, which is a mapping of {}, not {found}{near}",
            PHASE_KEYS.join(", ")
        ));
    };
    let known = |entry: &Entry| nearest(&entry.key, PHASE_KEYS.into_iter()).is_some();
    (!entries.iter().any(known)).then(|| {
        format!("`{key}` is read as a phase, but has none of its keys: {}{near}", PHASE_KEYS.join(", "))
    })
}

fn facts(fields: &mut Fields, entry: &Entry) -> Vec<Fact> {
    let Some(entries) = entry.value.entries() else {
        let found = entry.value.describe();
        fields.error(
            entry.value.location,
            format!("facts are a mapping of names to conditions, such as `{{verified: \"ok('check_id')\"}}`, not {found}"),
        );
        return Vec::new();
    };
    let mut facts = Vec::new();
    for entry in entries {
        let is_variable = entry
            .key
            .chars()
            .enumerate()
            .all(|(at, c)| c == '_' || c.is_ascii_alphabetic() || (at > 0 && c.is_ascii_digit()));
        if !is_variable {
            fields.error(
                entry.location,
                format!(
                    "`{}` can't stand in a condition: a fact's name is made of letters, digits and `_`",
                    entry.key
                ),
            );
        } else if let Some(when) = condition(fields, &entry.value, &entry.key) {
            facts.push(Fact { name: entry.key.clone(), when });
        }
    }
    facts
}

fn read_queue(source: &Source, entry: &Entry, diagnostics: &mut Vec<Diagnostic>) -> Option<Queue> {
    let mut fields = Fields::new(source, &entry.value, diagnostics)?;
    let from = required(&mut fields, entry, "from", "in which phase the list is made: `from: planning`");
    let done = fields.entry(&["done"]);
    let done = match done {
        Some(done) => condition(&mut fields, &done.value, "done"),
        None => {
            fields.error(
                entry.location,
                "a queue needs `done`: which call ends a task: `done: \"ok('call_tool')\"`",
            );
            None
        }
    };
    let mut before = Vec::new();
    if let Some(entry) = fields.entry(&["before"]) {
        for node in pairs(&mut fields, &entry.value, "before", "[transfer, close]") {
            let texts: Vec<String> = node.items().into_iter().flatten().filter_map(text).collect();
            match <[String; 2]>::try_from(texts) {
                Ok([first, second]) => before.push((first, second)),
                Err(_) => fields.error(
                    node.location,
                    "each rule is a pair of words, the first of which comes before the second: [transfer, close]",
                ),
            }
        }
    }
    unknown(&mut fields, "a queue");
    Some(Queue { from: from?, before, done: done? })
}

fn budgets(fields: &mut Fields, entry: &Entry) -> Vec<Budget> {
    const FORM: &str = "[3, escalate]: after so many failures in a row, that phase";
    let Some(entries) = entry.value.entries() else {
        let found = entry.value.describe();
        fields.error(entry.value.location, format!("retries are a mapping of tools to {FORM}; not {found}"));
        return Vec::new();
    };
    let mut budgets = Vec::new();
    for entry in entries {
        let items = entry.value.items().unwrap_or_default();
        let failures = items.first().and_then(|node| node.value().as_u64()).filter(|count| *count > 0);
        let phase = items.get(1).and_then(text).filter(|_| items.len() == 2);
        match failures.zip(phase) {
            Some((failures, phase)) => budgets.push(Budget { tool: entry.key.clone(), failures, phase }),
            None => fields
                .error(entry.value.location, format!("the budget of `{}` must be a pair {FORM}", entry.key)),
        }
    }
    budgets
}

fn phase(source: &Source, entry: &Entry, diagnostics: &mut Vec<Diagnostic>) -> Option<Phase> {
    let mut fields = Fields::new(source, &entry.value, diagnostics)?;
    let mut phase = Phase { name: entry.key.clone(), ..Phase::default() };
    phase.goal = fields.text(&["goal"]).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(entry) = fields.entry(&["tools"]) {
        let alone = entry.value.text().map(|_| std::slice::from_ref(&entry.value));
        match alone.or(entry.value.items()) {
            Some(nodes) => {
                for node in nodes {
                    match text(node) {
                        Some(tool) => phase.tools.push(tool),
                        None => fields.error(
                            node.location,
                            format!("a tool is listed by its name, not by {}", node.describe()),
                        ),
                    }
                }
            }
            None => {
                let found = entry.value.describe();
                fields.error(
                    entry.value.location,
                    format!("`tools` is a list of names, such as [get_*, shell], not {found}"),
                );
            }
        }
    }
    if let Some(entry) = fields.entry(&["expect"]) {
        let written = entry.value.text().unwrap_or_default();
        match Expect::named(written) {
            Some(expect) => phase.expect = expect,
            None => fields.error(
                entry.value.location,
                format!("`expect` is one of {}, not `{written}`", Expect::NAMES.join(", ")),
            ),
        }
    }
    if let Some(entry) = fields.entry(&["gate"]) {
        // The phase that it leads to is looked up when all are known.
        phase.gate = match entry.value.items() {
            None => {
                condition(&mut fields, &entry.value, "gate").map(|when| Gate { when, phase: String::new() })
            }
            Some(_) => {
                way(&mut fields, &entry.value, "gate").map(|Next { phase, when }| Gate { when, phase })
            }
        };
    }
    if let Some(entry) = fields.entry(&["next"]) {
        for node in pairs(&mut fields, &entry.value, "next", "[verify, identified]") {
            phase.next.extend(way(&mut fields, node, "next"));
        }
    }
    unknown(&mut fields, "a phase");
    Some(phase)
}

/// `[phase, condition]`.
fn way(fields: &mut Fields, node: &Node, key: &str) -> Option<Next> {
    let items = node.items().unwrap_or_default();
    let found = items.first().and_then(text).zip(items.get(1)).filter(|_| items.len() == 2);
    let Some((phase, when)) = found else {
        let (found, form) = (node.describe(), "[verify, identified], or [verify, true]");
        fields.error(
            node.location,
            format!("in `{key}` stands a pair of a phase and its condition: {form}; this is {found}"),
        );
        return None;
    };
    condition(fields, when, key).map(|when| Next { phase, when })
}

/// The lists in a list.
fn pairs<'n>(fields: &mut Fields, node: &'n Node, key: &str, example: &str) -> &'n [Node] {
    match node.items() {
        Some(items) if items.iter().any(|item| item.items().is_some()) || items.is_empty() => items,
        _ => {
            fields.error(
                node.location,
                format!("`{key}` is a list of pairs, with brackets around the pairs too: [{example}]"),
            );
            &[]
        }
    }
}

/// A condition as text; `true` is one.
fn condition(fields: &mut Fields, node: &Node, key: &str) -> Option<Condition> {
    match text(node) {
        Some(text) => match Condition::parse(&text) {
            Ok(condition) => Some(condition),
            Err(reason) => {
                fields.error(node.location, reason);
                None
            }
        },
        None => {
            fields.error(
                node.location,
                format!(
                    "`{key}` needs a condition, such as \"ok('check_id')\", without braces around it; this is {}",
                    node.describe()
                ),
            );
            None
        }
    }
}

fn text(node: &Node) -> Option<String> {
    node.text().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn required(fields: &mut Fields, entry: &Entry, key: &'static str, what: &str) -> Option<String> {
    let found = fields.text(&[key]);
    if found.is_none() {
        fields.error(entry.location, format!("`{}` must say {what}", entry.key));
    }
    found
}

/// Reports unknown keys as errors.
fn unknown(fields: &mut Fields, of: &str) {
    let others: Vec<(Location, String)> = fields
        .others()
        .into_iter()
        .map(|(entry, near)| {
            let guards = of == "a phase" && ["when", "if", "need"].contains(&entry.key.as_str());
            let near = if guards { Some("gate") } else { near };
            let hint =
                near.map_or_else(|| ": leave it out".to_owned(), |near| format!(", did you mean `{near}`?"));
            (entry.location, format!("{of} has no key `{}`{hint}", entry.key))
        })
        .collect();
    others.into_iter().for_each(|(location, message)| fields.error(location, message));
}
