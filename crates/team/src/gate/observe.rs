//! Derives the changes to a ledger from a call and its result.

use serde_json::{Map, Value};

use super::output::typed;
use super::{Gate, Observe, Write};
use crate::expression::{Names, Seen, Truth};
use crate::ledger::{Change, Path, look_up, short};
use crate::types::{Effect, ToolResult};

/// A call that was made.
#[derive(Clone, Copy, Debug)]
pub struct Done<'a> {
    /// The tool.
    pub tool: &'a str,
    /// The tool's declared effect.
    pub effect: Effect,
    /// The arguments, with defaults filled in.
    pub arguments: &'a Map<String, Value>,
    /// Its result.
    pub result: &'a ToolResult,
}

impl Gate {
    /// The changes that a call makes to the ledger.
    ///
    /// The result of a successful read is stored at the paths in `observe`.
    /// A write makes the facts in `writes` stale, even if it failed: it may be half done.
    /// A write that `writes` doesn't list may have changed everything.
    pub fn changes(&self, done: &Done) -> Vec<Change> {
        // It was never made.
        if done.result.blocked.is_some() {
            return Vec::new();
        }
        let writes = done.effect == Effect::Write;
        let everything = || if writes { vec![Change::Stale { path: Path::new() }] } else { Vec::new() };
        let Ok(calls) = self.calls(done.tool, done.arguments) else { return everything() };
        let Some((tool, arguments)) = calls.last() else { return everything() };
        let observed: Vec<&Observe> = self
            .observed
            .iter()
            .filter(|observe| observe.tools.fits(tool) && (observe.reads || !writes))
            .collect();
        if !observed.is_empty() {
            return observed
                .iter()
                .flat_map(|observe| observe.changes(tool, arguments, done.result))
                .collect();
        }
        // The rules of the innermost call describe the effect.
        let named = calls.iter().rev().find_map(|(tool, arguments)| {
            let named: Vec<&Write> = self.writes.iter().filter(|write| write.tools.fits(tool)).collect();
            (!named.is_empty()).then_some((named, tool, arguments))
        });
        match named {
            Some((named, tool, arguments)) => {
                named.iter().flat_map(|write| write.changes(tool, arguments, done.result)).collect()
            }
            None => everything(),
        }
    }
}

impl Observe {
    fn changes(&self, tool: &str, arguments: &Map<String, Value>, result: &ToolResult) -> Vec<Change> {
        let raw = Names::of(arguments).with_result(&result.output);
        let wrong = |error: String| Change::Wrong { message: format!("of `{tool}`: {error}") };
        let success = match &self.ok {
            _ if !result.ok => Ok(Truth::False),
            Some(ok) => raw.truth(ok, &mut Seen::default()),
            None => Ok(Truth::True),
        };
        match success {
            Ok(Truth::True) => {}
            Ok(Truth::False | Truth::Unknown) => return Vec::new(),
            Err(error) => return vec![wrong(format!("`ok` can't be evaluated: {error}"))],
        }
        let read = self.form.read(&result.output).and_then(|read| {
            let names = Names::of(arguments).with_result(&read);
            let mut seen = Seen::default();
            let path = self.place.path(&names)?;
            let value = names.value(&self.value, &mut seen)?;
            let missing = || format!("there is no `{}`", seen.unknown.join("`, `"));
            Ok((path, value.ok_or_else(missing)?.into_owned()))
        });
        match read {
            Ok((path, mut value)) => {
                let (usable, messages) = self.types(&mut value);
                let known = if usable { Change::Known { path, value } } else { Change::Stale { path } };
                std::iter::once(known).chain(messages.into_iter().map(wrong)).collect()
            }
            Err(error) => {
                // The earlier fact is not the one that was just read.
                let path = self.place.path(&raw).ok();
                path.map(|path| Change::Stale { path }).into_iter().chain([wrong(error)]).collect()
            }
        }
    }

    /// Converts the parts of a value to their declared types; parts of another type are left out
    /// and reported.
    /// Returns false if the whole value is of another type.
    pub(super) fn types(&self, value: &mut Value) -> (bool, Vec<String>) {
        let mut messages = Vec::new();
        for (path, kind) in &self.types {
            let Some(found) = look_up(value, path).filter(|found| !kind.holds(found)) else { continue };
            let text = found.as_str().filter(|_| self.form.is_text());
            if let Some(converted) = text.and_then(|text| typed(text, *kind)) {
                set(value, path, Some(converted));
                continue;
            }
            let at = if path.is_empty() { "the value".to_owned() } else { format!("`{}`", path.join(".")) };
            messages.push(format!("{at} is to be of the type {}, not {}", kind.name(), short(found)));
            if !set(value, path, None) {
                return (false, messages);
            }
        }
        // Types for parts imply that there are parts.
        if !self.types.is_empty()
            && self.types.iter().all(|(path, _)| !path.is_empty())
            && !value.is_object()
            && !value.is_array()
        {
            messages.push(format!("the value is to be a mapping, not {}", short(value)));
            return (false, messages);
        }
        (true, messages)
    }
}

/// Replaces or removes a part of a mapping; returns false if that isn't possible.
fn set(value: &mut Value, path: &[String], part: Option<Value>) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return match part {
            Some(part) => {
                *value = part;
                true
            }
            None => false,
        };
    };
    match (value, rest) {
        (Value::Object(map), []) => {
            match part {
                Some(part) => drop(map.insert(first.clone(), part)),
                None => drop(map.shift_remove(first)),
            }
            true
        }
        (Value::Object(map), rest) => map.get_mut(first).is_some_and(|inside| set(inside, rest, part)),
        (Value::Array(items), rest) if !rest.is_empty() => {
            let index = first.parse::<usize>().ok();
            index.and_then(|index| items.get_mut(index)).is_some_and(|inside| set(inside, rest, part))
        }
        _ => false,
    }
}

impl Write {
    fn changes(&self, tool: &str, arguments: &Map<String, Value>, result: &ToolResult) -> Vec<Change> {
        let names = Names::of(arguments).with_result(&result.output);
        let mut changes = Vec::new();
        let wrong = |error: String| Change::Wrong { message: format!("of `{tool}`: {error}") };
        for place in &self.stale {
            match place.path(&names) {
                Ok(path) => changes.push(Change::Stale { path }),
                Err(error) => {
                    // Its effects are unknown.
                    changes.push(Change::Stale { path: Path::new() });
                    changes.push(wrong(error));
                }
            }
        }
        let Some((place, value)) = &self.through else { return changes };
        let path = match place.path(&names) {
            Ok(path) => path,
            Err(error) => {
                changes.push(Change::Stale { path: Path::new() });
                changes.push(wrong(error));
                return changes;
            }
        };
        if !result.ok {
            changes.push(Change::Stale { path });
            return changes;
        }
        let mut seen = Seen::default();
        match names.value(value, &mut seen) {
            Ok(Some(value)) => changes.push(Change::Known { path, value: value.into_owned() }),
            Ok(None) => {
                changes.push(Change::Stale { path });
                changes.push(wrong(format!("there is no `{}`", seen.unknown.join("`, `"))));
            }
            Err(error) => {
                changes.push(Change::Stale { path });
                changes.push(wrong(error));
            }
        }
        changes
    }
}
