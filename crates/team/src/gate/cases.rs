//! The cases of a gate: a ledger, a call, and the expected verdict.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Gate, Place};
use crate::ledger::{Change, Ledger, Path};
use crate::types::Location;

/// A case.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The behaviour that it shows.
    pub name: String,
    /// The known facts, as one mapping.
    pub ledger: Map<String, Value>,
    /// The stale facts among them.
    pub stale: Vec<Path>,
    /// The tool that is called.
    pub tool: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// Whether the call may be made.
    pub allowed: bool,
    /// The rule that refuses the call, if the case checks it.
    pub rule: Option<String>,
    /// The paths that must be read first, if the case checks them.
    pub unknown: Option<Vec<String>>,
    /// Its location in the file.
    pub location: Location,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// Its name.
    pub name: String,
    /// Its location.
    #[serde(flatten)]
    pub location: Location,
    /// How the result differs from the expected one; `None` if it doesn't.
    pub wrong: Option<String>,
}

impl Gate {
    /// Runs the cases of the file.
    pub fn try_cases(&self) -> Vec<Tried> {
        let tried = self.cases.iter().map(|case| Tried {
            name: case.name.clone(),
            location: case.location,
            wrong: self.try_case(case).err(),
        });
        tried.collect()
    }

    fn try_case(&self, case: &Case) -> Result<(), String> {
        let ledger = self.ledger_of(case)?;
        let blocked = self.verdict(&ledger, &case.tool, &case.arguments);
        let Some(blocked) = blocked else {
            return if case.allowed { Ok(()) } else { Err("the call is allowed".to_owned()) };
        };
        if case.allowed {
            return Err(format!("the call is denied by `{}`: {}", blocked.rule, blocked.reason));
        }
        if let Some(rule) = case.rule.as_ref().filter(|rule| **rule != blocked.rule) {
            let by = &blocked.rule;
            return Err(format!("the call is denied by `{by}`, not by `{rule}`: {}", blocked.reason));
        }
        match &case.unknown {
            Some(unknown) if *unknown != blocked.unknown => {
                let found = if blocked.unknown.is_empty() {
                    "nothing".to_owned()
                } else {
                    blocked.unknown.join(", ")
                };
                Err(format!("unknown is {found}: {}", blocked.reason))
            }
            _ => Ok(()),
        }
    }

    /// The ledger of a case: each of its values is where a read would put it.
    fn ledger_of(&self, case: &Case) -> Result<Ledger, String> {
        let whole = Value::Object(case.ledger.clone());
        let mut found: Vec<(Path, Value)> = Vec::new();
        for observe in &self.observed {
            for (path, mut value) in below(&whole, &observe.place) {
                let (_, messages) = observe.types(&mut value);
                if let Some(message) = messages.first() {
                    return Err(format!("at `{}`: {message}", path.join(".")));
                }
                found.push((path, value));
            }
        }
        for (place, _) in self.writes.iter().filter_map(|write| write.through.as_ref()) {
            found.extend(below(&whole, place));
        }
        found.sort_by_key(|(path, _)| path.len());
        if let Some(lost) = untold(&whole, &mut Path::new(), &found) {
            return Err(format!("no observation tells `{}`, which the case says is known", lost.join(".")));
        }
        let mut ledger = Ledger::default();
        for (path, value) in found {
            ledger.apply(&Change::Known { path, value });
        }
        for path in &case.stale {
            ledger.apply(&Change::Stale { path: path.clone() });
        }
        Ok(ledger)
    }
}

/// All values of a mapping that a place may lead to.
fn below(whole: &Value, place: &Place) -> Vec<(Path, Value)> {
    let mut found = vec![(Path::new(), whole)];
    for part in place.shape() {
        let mut next = Vec::new();
        for (path, value) in found {
            let Some(map) = value.as_object() else { continue };
            let fits = map.iter().filter(|(key, _)| part.is_none_or(|part| part == *key));
            next.extend(
                fits.map(|(key, value)| ([path.as_slice(), std::slice::from_ref(key)].concat(), value)),
            );
        }
        found = next;
    }
    found.into_iter().map(|(path, value)| (path, value.clone())).collect()
}

/// A path in a mapping that isn't at or below one of those found.
fn untold(value: &Value, path: &mut Path, found: &[(Path, Value)]) -> Option<Path> {
    if found.iter().any(|(at, _)| at == path) {
        return None;
    }
    let Some(map) = value.as_object() else { return Some(path.clone()) };
    for (key, value) in map {
        path.push(key.clone());
        if let Some(lost) = untold(value, path, found) {
            return Some(lost);
        }
        path.pop();
    }
    None
}
