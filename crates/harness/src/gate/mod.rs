//! Gates: rules about calls that hold whatever a model wants, over what results have told so far.
//!
//! A `.gate` file has three parts:
//! - `observe` says which reads tell what, and where in the [`Ledger`] that stands;
//! - `writes` says what a write makes stale, or what it is known to have made;
//! - `rules` say what must be true before a call is made.
//!
//! All of it is a pure function of calls and their results, without clocks and without IO.
//! So the same trace gives the same verdicts.
//!
//! # Three values
//! A rule's `need` is true, false, or unknown: that is when a fact which it depends on was never
//! read, or may have changed since (see [`Names::truth`]).
//! Then `unknown: require`, the default, refuses the call and names what to read; `unknown: allow`
//! lets it pass.
//! A rule that can't be evaluated, since it compares a text with a number, refuses it too.
//!
//! # Several gates
//! Each gate has a ledger of its own, and all of them must let a call through.
//! So no gate of a sub-team can loosen what stands above, not even by other observations.
//!
//! # Wrapped calls
//! A tool that calls another one is held against the rules of both, if `wraps` says where name and
//! arguments of the inner call stand.
//! Without that, a rule of the outer one can look at `args.tool_name`.

mod cases;
mod check;
mod observe;
mod output;
mod read;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

pub use cases::{Case, Tried};
use check::Shapes;
pub use check::Tools;
pub use observe::Done;
pub use output::Form;
pub use read::read;
pub use text::{Place, Text};

use crate::expression::{Expression, Key, Names, Seen, Truth, fits};
use crate::hidden;
use crate::jinx::{Jinx, Kind};
use crate::ledger::{Ledger, Path, TOLD, cut};
use crate::types::{Blocked, Location};

/// Most calls within each other.
const WRAPPED: usize = 4;

/// A gate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gate {
    /// The file's name without its ending.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// What reads tell.
    pub observed: Vec<Observe>,
    /// What writes change.
    pub writes: Vec<Write>,
    /// The tools that call others.
    pub wraps: Vec<Wrap>,
    /// What must be true before a call, in the order of the file.
    pub rules: Vec<Rule>,
    /// What it is tried with.
    pub cases: Vec<Case>,
    /// The files of the observed tools, by name, as its own team has them.
    pub files: BTreeMap<String, PathBuf>,
}

/// What the results of a tool tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Observe {
    /// The tools.
    pub tools: Pattern,
    /// Where it stands.
    pub place: Place,
    /// What stands there, of `args` and `result`.
    pub value: Expression,
    /// How a text is read.
    pub form: Form,
    /// When a result is a success; `None` = when the tool says so.
    pub ok: Option<Expression>,
    /// Whether the tool only reads, whatever it says itself.
    pub reads: bool,
    /// The types of parts of the value; an empty path is the whole value.
    pub types: Vec<(Path, Kind)>,
    /// Where in the file.
    pub location: Location,
}

/// What a write does to the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The tools.
    pub tools: Pattern,
    /// What may have changed, until it is read again.
    pub stale: Vec<Place>,
    /// What is known after a success.
    pub through: Option<(Place, Expression)>,
    /// Where in the file.
    pub location: Location,
}

/// A tool that calls another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrap {
    /// The tools.
    pub tools: Pattern,
    /// The argument with the inner tool's name.
    pub tool: String,
    /// The argument with its arguments: a mapping, or a JSON text of one.
    /// `None` = all other arguments.
    pub arguments: Option<String>,
}

/// What must be true before a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// The tools.
    pub tools: Pattern,
    /// What must be true.
    pub need: Expression,
    /// What is told if it is not.
    pub reason: Option<Text>,
    /// Whether the call may be made while that is not known.
    pub unknown: Unknown,
    /// The call that makes it known.
    pub fetch: Option<Text>,
    /// Where in the file.
    pub location: Location,
}

/// What holds while it is not known whether a rule is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    /// The call is refused, and what has to be read first is named.
    #[default]
    Require,
    /// The call may be made.
    Allow,
}

/// Names of tools: words joined by `|`, in which `*` stands for anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern(Vec<String>);

impl Pattern {
    /// Those that are written so.
    pub fn new(text: &str) -> Self {
        Pattern(text.split('|').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect())
    }

    /// Whether a tool is among them.
    pub fn fits(&self, tool: &str) -> bool {
        self.0.iter().any(|pattern| fits(pattern, tool))
    }

    /// Each of the names.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// A tool and its arguments.
type Call = (String, Map<String, Value>);

/// How a rule stands to a call.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    Kept,
    Unknown(Seen),
    Broken(Seen),
    Wrong(String, Seen),
}

impl Gate {
    /// Holds a call against all rules; what stands against it if any does.
    /// Arguments are complete, with their defaults.
    /// Of several rules the first in the file is told that is broken, or else that is unknown: to
    /// read something would not cure the others.
    pub fn verdict(&self, ledger: &Ledger, tool: &str, arguments: &Map<String, Value>) -> Option<Blocked> {
        let calls = match self.calls(tool, arguments) {
            Ok(calls) => calls,
            Err(reason) => return Some(Blocked { rule: "wraps".to_owned(), reason, ..Blocked::default() }),
        };
        let mut unknown = None;
        let ledgers = [ledger];
        for (tool, arguments) in &calls {
            for rule in self.rules.iter().filter(|rule| rule.tools.fits(tool)) {
                let names = Names::of(arguments).with_ledgers(&ledgers);
                match rule.holds(&names) {
                    Verdict::Kept => {}
                    Verdict::Unknown(seen) if unknown.is_none() => {
                        unknown = Some(rule.not_known(&names, seen));
                    }
                    Verdict::Unknown(_) => {}
                    Verdict::Broken(seen) => return Some(rule.broken(&names, seen)),
                    Verdict::Wrong(error, seen) => {
                        let reason = format!("the rule can't be evaluated: {error}");
                        return Some(rule.blocked(reason, seen));
                    }
                }
            }
        }
        unknown
    }

    /// Whether it has a rule about a call, or about one within it.
    pub fn is_about(&self, tool: &str, arguments: &Map<String, Value>) -> bool {
        let Ok(calls) = self.calls(tool, arguments) else { return true };
        calls.iter().any(|(tool, _)| self.rules.iter().any(|rule| rule.tools.fits(tool)))
    }

    /// Notes which of these are the tools that it observes: a team below may have others of the
    /// same name.
    pub fn meet(&mut self, jinxes: &[Jinx]) {
        let observed = |jinx: &&Jinx| self.observed.iter().any(|observe| observe.tools.fits(&jinx.name));
        let files = jinxes.iter().filter(observed).map(|jinx| (jinx.name.clone(), jinx.path.clone()));
        self.files = files.collect();
    }

    /// The names that begin the paths of its facts.
    pub fn roots(&self) -> BTreeSet<&str> {
        self.places().filter_map(Place::root).collect()
    }

    /// Why nothing can ever be known at a path.
    pub fn lost(&self, path: &[Key]) -> Option<String> {
        Shapes::of(self).lost(path)
    }

    /// Where its facts stand.
    fn places(&self) -> impl Iterator<Item = &Place> {
        let written = self.writes.iter().filter_map(|write| Some(&write.through.as_ref()?.0));
        self.observed.iter().map(|observe| &observe.place).chain(written)
    }

    /// Whether a jinx is what its own team calls so.
    /// One of a server is not known before that runs.
    pub fn knows(&self, jinx: &Jinx) -> bool {
        let observed = self.observed.iter().any(|observe| observe.tools.fits(&jinx.name));
        match self.files.get(&jinx.name) {
            Some(file) => *file == jinx.path,
            None => !observed || jinx.remote.is_some(),
        }
    }

    /// A call and those within it, from the outermost on.
    ///
    /// # Errors
    /// What is within it can't be seen: then nobody knows which rules it is to be held against.
    fn calls(&self, tool: &str, arguments: &Map<String, Value>) -> Result<Vec<Call>, String> {
        let mut calls = vec![(tool.to_owned(), arguments.clone())];
        loop {
            let Some((tool, arguments)) = calls.last() else { return Ok(calls) };
            let wrap = self.wraps.iter().find(|wrap| wrap.tools.fits(tool)).cloned();
            // What calls hidden tools needs no line in the file.
            let built_in = || (tool == hidden::CALL && hidden::is_wrapped(arguments)).then(Wrap::built_in);
            let Some(wrap) = wrap.or_else(built_in) else { return Ok(calls) };
            if calls.len() >= WRAPPED {
                return Err(format!("`{tool}` calls deeper than {WRAPPED} calls within each other"));
            }
            let inner = wrap.inner(tool, arguments)?;
            calls.push(inner);
        }
    }
}

impl Wrap {
    /// Where the call of a hidden tool stands in the one that calls it.
    fn built_in() -> Self {
        let (tool, arguments) = hidden::PLACES;
        Wrap {
            tools: Pattern::new(hidden::CALL),
            tool: tool.to_owned(),
            arguments: Some(arguments.to_owned()),
        }
    }

    fn inner(&self, outer: &str, arguments: &Map<String, Value>) -> Result<Call, String> {
        let Some(Value::String(tool)) = arguments.get(&self.tool) else {
            return Err(format!(
                "`{outer}` is to name the tool that it calls in its argument `{}`",
                self.tool
            ));
        };
        let Some(name) = &self.arguments else {
            let mut rest = arguments.clone();
            rest.shift_remove(&self.tool);
            return Ok((tool.clone(), rest));
        };
        let inner = match arguments.get(name) {
            None | Some(Value::Null) => Some(Map::new()),
            Some(Value::Object(map)) => Some(map.clone()),
            Some(Value::String(text)) if text.trim().is_empty() => Some(Map::new()),
            Some(Value::String(text)) => serde_json::from_str(text).ok(),
            Some(_) => None,
        };
        let inner = inner.ok_or_else(|| {
            format!("the argument `{name}` of `{outer}` is to be a JSON object: the arguments of `{tool}`")
        })?;
        Ok((tool.clone(), inner))
    }
}

impl Rule {
    fn holds(&self, names: &Names) -> Verdict {
        let mut seen = Seen::default();
        match names.truth(&self.need, &mut seen) {
            Ok(Truth::True) => Verdict::Kept,
            Ok(Truth::Unknown) if self.unknown == Unknown::Allow => Verdict::Kept,
            Ok(Truth::Unknown) => Verdict::Unknown(seen),
            Ok(Truth::False) => {
                // What else was looked at did not matter.
                seen.unknown.clear();
                Verdict::Broken(seen)
            }
            Err(error) => Verdict::Wrong(error, seen),
        }
    }

    fn broken(&self, names: &Names, seen: Seen) -> Blocked {
        let reason = self.reason.as_ref().map(|reason| reason.fill(names));
        self.blocked(reason.unwrap_or_else(|| format!("the rule `{}` is not kept", self.name)), seen)
    }

    fn not_known(&self, names: &Names, seen: Seen) -> Blocked {
        let fetch = self.fetch.as_ref().map(|fetch| fetch.fill(names));
        let what = seen.unknown.join("`, `");
        let state = match seen.stale.is_empty() {
            true => "is not known yet",
            false => "is not known, it may have changed since it was read",
        };
        let remedy = fetch.as_ref().map(|fetch| format!(": call {fetch} first")).unwrap_or_default();
        Blocked { fetch, ..self.blocked(format!("`{what}` {state}{remedy}"), seen) }
    }

    fn blocked(&self, reason: String, seen: Seen) -> Blocked {
        let mut facts = seen.facts;
        for value in facts.values_mut() {
            let text = cut(value, TOLD);
            if text.ends_with('…') {
                *value = text.into();
            }
        }
        Blocked { rule: self.name.clone(), reason, facts, unknown: seen.unknown, fetch: None }
    }
}
