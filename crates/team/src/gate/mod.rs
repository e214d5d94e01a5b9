//! Gates: rules about calls that apply whatever a model wants, based on the results of earlier
//! calls.
//!
//! A `.gate` file has three parts:
//! - `observe` tells which facts a read returns, and their paths in the [`Ledger`];
//! - `writes` tells which facts a write makes stale, or sets;
//! - `rules` tell what must be true before a call is made.
//!
//! A verdict is a pure function of calls and their results, without clocks and without IO.
//! So the same trace gives the same verdicts.
//!
//! # Three values
//! A rule's `need` is true, false, or unknown: unknown if a fact that it depends on was never read,
//! or may have changed since (see [`Names::truth`]).
//! Then `unknown: require`, the default, refuses the call and names what to read; `unknown: allow`
//! permits it.
//! A rule that can't be evaluated, since it compares a text with a number, refuses the call too.
//!
//! # Several gates
//! Each gate has its own ledger, and a call must pass all of them.
//! So no gate of a sub-team can loosen one above, not even by other observations.
//!
//! # Wrapped calls
//! The call of a tool that calls another one is checked against the rules of both, if `wraps` names
//! the arguments with the inner call's name and arguments.
//! Without that, a rule for the outer tool can use `args.tool_name`.

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

/// Most nested calls.
const WRAPPED: usize = 4;

/// A gate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gate {
    /// The file's name without its extension.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// The facts that reads return.
    pub observed: Vec<Observe>,
    /// The effects of writes.
    pub writes: Vec<Write>,
    /// The tools that call others.
    pub wraps: Vec<Wrap>,
    /// The conditions for calls, in the order of the file.
    pub rules: Vec<Rule>,
    /// Its test cases.
    pub cases: Vec<Case>,
    /// The files of the observed tools, by name, as the gate's own team has them.
    pub files: BTreeMap<String, PathBuf>,
}

/// A fact in the results of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Observe {
    /// The tools.
    pub tools: Pattern,
    /// Its path in the ledger.
    pub place: Place,
    /// The value at that path, computed from `args` and `result`.
    pub value: Expression,
    /// How a text result is parsed.
    pub form: Form,
    /// When a result is a success; `None` if the tool decides.
    pub ok: Option<Expression>,
    /// Whether the tool only reads, whatever its own declaration is.
    pub reads: bool,
    /// The types of parts of the value; an empty path is the whole value.
    pub types: Vec<(Path, Kind)>,
    /// Its location in the file.
    pub location: Location,
}

/// The effect of a write on the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The tools.
    pub tools: Pattern,
    /// The facts that may have changed, until they are read again.
    pub stale: Vec<Place>,
    /// The fact that is known after a success.
    pub through: Option<(Place, Expression)>,
    /// Its location in the file.
    pub location: Location,
}

/// A tool that calls another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrap {
    /// The tools.
    pub tools: Pattern,
    /// The argument with the inner tool's name.
    pub tool: String,
    /// The argument with the inner tool's arguments: a mapping, or its JSON text.
    /// `None` for all other arguments.
    pub arguments: Option<String>,
}

/// A condition for calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// The tools.
    pub tools: Pattern,
    /// The condition.
    pub need: Expression,
    /// The message if it is false.
    pub reason: Option<Text>,
    /// Whether the call may be made while the condition is unknown.
    pub unknown: Unknown,
    /// The call that reads the missing facts.
    pub fetch: Option<Text>,
    /// Its location in the file.
    pub location: Location,
}

/// The verdict while a rule's condition is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    /// The call is refused, and the message names what to read first.
    #[default]
    Require,
    /// The call may be made.
    Allow,
}

/// Names of tools, separated by `|`, in which `*` matches anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern(Vec<String>);

impl Pattern {
    /// Parses a pattern.
    pub fn new(text: &str) -> Self {
        Pattern(text.split('|').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect())
    }

    /// Whether a tool matches.
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

/// The result of a rule for a call.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    Kept,
    Unknown(Seen),
    Broken(Seen),
    Wrong(String, Seen),
}

impl Gate {
    /// Checks a call against all rules; returns the refusal, if there is one.
    /// Arguments are complete, with their defaults.
    /// Of several rules, the first broken one in the file is reported, otherwise the first unknown
    /// one: reading a fact wouldn't fix the broken ones.
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

    /// Records which of these jinxes are the tools that it observes: a team below may have others
    /// of the same name.
    pub fn meet(&mut self, jinxes: &[Jinx]) {
        let observed = |jinx: &&Jinx| self.observed.iter().any(|observe| observe.tools.fits(&jinx.name));
        let files = jinxes.iter().filter(observed).map(|jinx| (jinx.name.clone(), jinx.path.clone()));
        self.files = files.collect();
    }

    /// The first components of the paths of its facts.
    pub fn roots(&self) -> BTreeSet<&str> {
        self.places().filter_map(Place::root).collect()
    }

    /// Why no fact can ever be known at a path.
    pub fn lost(&self, path: &[Key]) -> Option<String> {
        Shapes::of(self).lost(path)
    }

    fn places(&self) -> impl Iterator<Item = &Place> {
        let written = self.writes.iter().filter_map(|write| Some(&write.through.as_ref()?.0));
        self.observed.iter().map(|observe| &observe.place).chain(written)
    }

    /// Whether a jinx is the one that its own team has under that name.
    /// A server's tool is unknown before the server runs.
    pub fn knows(&self, jinx: &Jinx) -> bool {
        let observed = self.observed.iter().any(|observe| observe.tools.fits(&jinx.name));
        match self.files.get(&jinx.name) {
            Some(file) => *file == jinx.path,
            None => !observed || jinx.remote.is_some(),
        }
    }

    /// A call and the calls within it, from the outermost on.
    ///
    /// # Errors
    /// The inner call can't be determined: then it is unknown which rules apply to it.
    fn calls(&self, tool: &str, arguments: &Map<String, Value>) -> Result<Vec<Call>, String> {
        let mut calls = vec![(tool.to_owned(), arguments.clone())];
        loop {
            let Some((tool, arguments)) = calls.last() else { return Ok(calls) };
            let wrap = self.wraps.iter().find(|wrap| wrap.tools.fits(tool)).cloned();
            // The jinx that calls hidden tools needs no line in the file.
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
    /// The position of a hidden tool's call in the call that makes it.
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
                // The other facts that were read didn't matter.
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
