//! Checks a gate before anything runs: facts that no read returns, values that can't be compared,
//! and tools that don't exist.

use std::collections::BTreeSet;

use alara_text::nearest;

use super::text::{Place, Text};
use super::{Gate, Observe, Pattern, Rule, Write};
use crate::expression::{Comparison, Expression, Filter, Key, Sign, Test, written};
use crate::jinx::{Jinx, Kind};
use crate::ledger::Path;
use crate::source::Source;
use crate::types::{Diagnostic, Effect, Location};

/// The tools that a gate can be about.
#[derive(Clone, Copy, Debug)]
pub struct Tools<'a> {
    /// The known tools.
    pub jinxes: &'a [Jinx],
    /// The names of other tools: of teams below, and of clients.
    pub others: &'a BTreeSet<String>,
    /// Whether these are all tools, and no server may have more.
    pub all: bool,
}

/// The parts of a path, `None` for a computed one, and the types below it.
type Shape<'a> = (Vec<Option<&'a str>>, &'a [(Path, Kind)]);

/// The paths of facts, with their types.
pub struct Shapes<'a> {
    shapes: Vec<Shape<'a>>,
}

impl<'a> Shapes<'a> {
    /// The facts of a gate.
    pub fn of(gate: &'a Gate) -> Self {
        let observed = gate.observed.iter().map(|observe| (&observe.place, observe.types.as_slice()));
        let written = gate.writes.iter().filter_map(|write| Some((&write.through.as_ref()?.0, &[][..])));
        let shapes = observed.chain(written).map(|(place, types)| (place.shape().collect(), types));
        Shapes { shapes: shapes.collect() }
    }

    /// Reports errors in a rule for calls with arguments of these types.
    pub fn look(&self, rule: &Rule, argument: &dyn Fn(&str) -> Option<Kind>, wrong: &mut dyn FnMut(String)) {
        let texts = [("reason", &rule.reason), ("fetch", &rule.fetch)];
        let texts = texts.into_iter().filter_map(|(key, text)| Some((key, text.as_ref()?)));
        let texts = texts.flat_map(|(key, text)| text.expressions().map(move |expression| (key, expression)));
        let mut told = BTreeSet::new();
        for (key, expression) in std::iter::once(("need", &rule.need)).chain(texts) {
            let mut lost = false;
            expression.paths(&mut |keys| {
                if let Some(message) = self.lost(keys) {
                    lost = true;
                    told.insert(format!("`{key}`: {message}"));
                }
            });
            if lost {
                continue;
            }
            let kind = self.kind(expression, argument);
            let kind = if key == "need" { kind.and_then(|kind| condition(expression, kind)) } else { kind };
            if let Err(message) = kind {
                told.insert(format!("`{key}`: {message}"));
            }
        }
        told.into_iter().for_each(wrong);
    }

    /// Reports paths that a write makes stale although no read ever sets them.
    pub(crate) fn look_at_stale(&self, write: &Write, wrong: &mut dyn FnMut(String)) {
        for place in &write.stale {
            let overlaps = |(shape, _): &Shape| {
                let mut parts = shape.iter().zip(place.shape());
                parts.all(|(one, other)| one.is_none_or(|one| other.is_none_or(|other| one == other)))
            };
            if !self.shapes.iter().any(overlaps) {
                let shown = place.shape().map(|part| part.unwrap_or("…")).collect::<Vec<_>>().join(".");
                let root = place.root().unwrap_or_default();
                wrong(format!("`stale`: nobody observes `{shown}`{}", self.known(root, &[])));
            }
        }
    }

    /// The existing roots, with a suggestion.
    fn known(&self, root: &str, beside: &[&'a str]) -> String {
        let roots = self.shapes.iter().filter_map(|(shape, _)| *shape.first()?);
        let roots: BTreeSet<&str> = roots.chain(beside.iter().copied()).collect();
        let near = nearest(root, roots.iter().copied()).filter(|near| *near != root);
        let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
        match roots.is_empty() {
            true => ", nor anything else".to_owned(),
            false => format!("{hint} (known: {})", roots.into_iter().collect::<Vec<_>>().join(", ")),
        }
    }

    /// Why no fact can ever be known at a path.
    pub fn lost(&self, keys: &[Key]) -> Option<String> {
        let Some(Key::Name(root)) = keys.first() else { return None };
        let path = written(keys);
        if root == "args" {
            let message =
                || "name an argument, as in `args.id`: all of them together are no value".to_owned();
            return (keys.len() == 1).then(message);
        }
        let of_root = || self.shapes.iter().filter(|(shape, _)| shape.first() == Some(&Some(root.as_str())));
        if of_root().next().is_none() {
            if root == "result" {
                return Some("there is no `result` yet: a rule is asked before the call".to_owned());
            }
            // A name alone is usually meant as an argument.
            let argument = match keys.len() {
                1 => format!("; an argument is written args.{root}"),
                _ => String::new(),
            };
            return Some(format!("nobody observes `{root}`{}{argument}", self.known(root, &["args"])));
        }
        if of_root().any(|(shape, _)| shape.len() <= keys.len() && reaches(shape, keys)) {
            return None;
        }
        if of_root().any(|(shape, _)| shape.len() > keys.len()) {
            return Some(format!("`{path}` as a whole is never known: nobody has read all of it"));
        }
        Some(format!("nobody observes `{path}`"))
    }

    /// The type of an expression; `Any` if it isn't declared.
    fn kind(&self, expression: &Expression, argument: &dyn Fn(&str) -> Option<Kind>) -> Result<Kind, String> {
        let kind = |expression| self.kind(expression, argument);
        match expression {
            Expression::Literal(value) if value.is_null() => Ok(Kind::Any),
            Expression::Literal(value) => Ok(Kind::of(value)),
            Expression::Count(counter, _) => Err(format!(
                "a rule can't count calls by `{}`: let `observe` put what was done into the ledger",
                counter.name()
            )),
            Expression::List(items) => {
                items.iter().try_for_each(|item| kind(item).map(drop))?;
                Ok(Kind::Array)
            }
            Expression::Path(keys) => {
                for key in keys {
                    if let Key::Of(inner) = key {
                        let found = kind(inner)?;
                        if !matches!(found, Kind::String | Kind::Integer | Kind::Number | Kind::Any) {
                            let path = written(keys);
                            return Err(format!("{} can't be a key in `{path}`", described(found)));
                        }
                    }
                }
                Ok(self.path(keys, argument))
            }
            Expression::Not(inner) => {
                condition(inner, kind(inner)?)?;
                Ok(Kind::Boolean)
            }
            Expression::And(left, right) | Expression::Or(left, right) => {
                condition(left, kind(left)?)?;
                condition(right, kind(right)?)?;
                Ok(Kind::Boolean)
            }
            Expression::Compare(comparison, left, right) => {
                let (left_kind, right_kind) = (kind(left)?, kind(right)?);
                let wrong = || {
                    Err(format!(
                        "`{} {comparison} {}` compares {} with {}",
                        shown(left),
                        shown(right),
                        described(left_kind),
                        described(right_kind)
                    ))
                };
                let fits = match comparison {
                    Comparison::Equal | Comparison::Unequal => alike(left_kind, right_kind),
                    Comparison::In | Comparison::NotIn => match right_kind {
                        Kind::Any => true,
                        Kind::String | Kind::Object => alike(left_kind, Kind::String),
                        Kind::Array => match &**right {
                            Expression::List(items) if !items.is_empty() => {
                                let mut kinds = items.iter().map(kind);
                                kinds.any(|item| item.is_ok_and(|item| alike(left_kind, item)))
                            }
                            _ => true,
                        },
                        _ => false,
                    },
                    _ => {
                        let ordered =
                            |kind| matches!(kind, Kind::String | Kind::Integer | Kind::Number | Kind::Any);
                        alike(left_kind, right_kind) && ordered(left_kind) && ordered(right_kind)
                    }
                };
                if fits { Ok(Kind::Boolean) } else { wrong() }
            }
            Expression::Test(test, inner) => {
                let found = kind(inner)?;
                if matches!(test, Test::StartingWith(_) | Test::EndingWith(_)) && !alike(found, Kind::String)
                {
                    return Err(format!("`{}` is {}, and no text", shown(inner), described(found)));
                }
                Ok(Kind::Boolean)
            }
            Expression::Filter(filter, inner) => {
                let found = kind(inner)?;
                let (fits, made) = match filter {
                    Filter::Length => (
                        matches!(found, Kind::String | Kind::Array | Kind::Object | Kind::Any),
                        Kind::Integer,
                    ),
                    Filter::Lower => (alike(found, Kind::String), Kind::String),
                    Filter::Map(_) => (alike(found, Kind::Array), Kind::Array),
                };
                let name = match filter {
                    Filter::Length => "length",
                    Filter::Lower => "lower",
                    Filter::Map(_) => "map",
                };
                if fits {
                    Ok(made)
                } else {
                    Err(format!("`{}` is {}, for which there is no `{name}`", shown(inner), described(found)))
                }
            }
            Expression::Compute(sign, left, right) => {
                for side in [left, right] {
                    let found = kind(side)?;
                    if !alike(found, Kind::Number) {
                        let sign = match sign {
                            Sign::Plus => "+",
                            Sign::Minus => "-",
                            Sign::Times => "*",
                        };
                        return Err(format!(
                            "`{}` is {}, and `{sign}` is for numbers",
                            shown(side),
                            described(found)
                        ));
                    }
                }
                Ok(Kind::Number)
            }
        }
    }

    /// The type of the value at a path, if all declarations agree.
    fn path(&self, keys: &[Key], argument: &dyn Fn(&str) -> Option<Kind>) -> Kind {
        if let [Key::Name(root), Key::Name(name)] = keys
            && root == "args"
        {
            return argument(name).unwrap_or(Kind::Any);
        }
        let below = |shape: &[Option<&str>]| -> Option<Path> {
            let rest = keys.get(shape.len()..)?.iter();
            rest.map(|key| if let Key::Name(name) = key { Some(name.clone()) } else { None }).collect()
        };
        let mut kinds = self.shapes.iter().filter(|(shape, _)| reaches(shape, keys)).map(|(shape, types)| {
            let below = below(shape)?;
            types.iter().find(|(path, _)| *path == below).map(|(_, kind)| *kind)
        });
        let first = kinds.next().flatten().unwrap_or(Kind::Any);
        if kinds.all(|kind| kind == Some(first)) { first } else { Kind::Any }
    }
}

/// Whether a path may be at or below a place.
fn reaches(shape: &[Option<&str>], keys: &[Key]) -> bool {
    shape.len() <= keys.len()
        && shape.iter().zip(keys).all(|(part, key)| match (part, key) {
            (Some(part), Key::Name(name)) => part == name,
            _ => true,
        })
}

fn alike(left: Kind, right: Kind) -> bool {
    let number = |kind| matches!(kind, Kind::Integer | Kind::Number);
    left == right || left == Kind::Any || right == Kind::Any || (number(left) && number(right))
}

fn condition(expression: &Expression, kind: Kind) -> Result<Kind, String> {
    if alike(kind, Kind::Boolean) {
        return Ok(kind);
    }
    let remedy = "compare it, or ask whether it `is defined`";
    Err(format!("`{}` is {}, and no condition: {remedy}", shown(expression), described(kind)))
}

fn described(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "a text",
        Kind::Integer | Kind::Number => "a number",
        Kind::Boolean => "true or false",
        Kind::Array => "a list",
        Kind::Object => "a mapping",
        Kind::Any => "anything",
    }
}

/// An expression in a message.
fn shown(expression: &Expression) -> String {
    match expression {
        Expression::Literal(value) => match value.as_str() {
            Some(text) => format!("'{text}'"),
            None => value.to_string(),
        },
        Expression::Path(keys) => written(keys),
        Expression::Filter(_, inner) => format!("{} | …", shown(inner)),
        Expression::List(_) => "[…]".to_owned(),
        _ => "(…)".to_owned(),
    }
}

impl Gate {
    /// Checks the gate against these tools.
    /// All problems are errors: a rule for a tool that doesn't exist guards nothing.
    pub fn check(&self, source: &Source, tools: &Tools, diagnostics: &mut Vec<Diagnostic>) {
        let mut wrong =
            |location: Location, message: String| diagnostics.push(source.error(location, message));
        let patterns = self.observed.iter().map(|observe| (&observe.tools, observe.location));
        let patterns = patterns.chain(self.writes.iter().map(|write| (&write.tools, write.location)));
        let patterns = patterns.chain(self.rules.iter().map(|rule| (&rule.tools, rule.location)));
        for (pattern, location) in patterns {
            self.unknown_tools(pattern, tools, &mut |message| wrong(location, message));
        }
        for observe in &self.observed {
            for jinx in tools.jinxes.iter().filter(|jinx| observe.tools.fits(&jinx.name) && !observe.reads) {
                if jinx.effect == Effect::Write {
                    let name = &jinx.name;
                    let message = format!(
                        "`{name}` may write, so that nothing of it is observed: say `effect: read` here or in its file if it only reads"
                    );
                    wrong(observe.location, message);
                }
            }
        }
        let observed = self.observed.iter().map(|it| (&it.tools, it.arguments(), it.location));
        let written = self.writes.iter().map(|it| (&it.tools, it.arguments(), it.location));
        for (pattern, arguments, location) in observed.chain(written) {
            unknown_arguments(pattern, &arguments, tools, &mut |message| wrong(location, message));
        }
        let shapes = Shapes::of(self);
        for rule in &self.rules {
            let mut told = BTreeSet::new();
            unknown_arguments(&rule.tools, &rule.arguments(), tools, &mut |message| {
                told.insert(message);
            });
            if let Some(tool) = rule.fetched() {
                self.unknown_tools(&Pattern(vec![tool.to_owned()]), tools, &mut |message| {
                    told.insert(format!("`fetch`: {message}"));
                });
            }
            for jinx in tools.jinxes.iter().filter(|jinx| rule.tools.fits(&jinx.name)) {
                let input = |name: &str| jinx.inputs.iter().find(|input| input.name == name);
                let kind = |name: &str| input(name).map(|input| input.kind);
                shapes.look(rule, &kind, &mut |message| {
                    told.insert(message);
                });
            }
            told.into_iter().for_each(|message| wrong(rule.location, message));
        }
    }

    /// Reports names that no tool has; tools that are only called by another tool are unknown here.
    fn unknown_tools(&self, pattern: &Pattern, tools: &Tools, wrong: &mut dyn FnMut(String)) {
        if !tools.all || !self.wraps.is_empty() {
            return;
        }
        for part in pattern.parts() {
            let one = Pattern(vec![part.to_owned()]);
            let mut names = tools.jinxes.iter().map(|jinx| &jinx.name).chain(tools.others);
            if names.any(|name| one.fits(name)) {
                continue;
            }
            let names = tools.jinxes.iter().map(|jinx| &jinx.name).chain(tools.others);
            let near = nearest(part, names.map(String::as_str));
            let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
            wrong(format!("there is no tool `{part}`{hint}"));
        }
    }
}

/// Reports arguments that a tool doesn't have; a server's tools may take more than they declare.
fn unknown_arguments(
    pattern: &Pattern,
    arguments: &BTreeSet<&str>,
    tools: &Tools,
    wrong: &mut dyn FnMut(String),
) {
    for jinx in tools.jinxes.iter().filter(|jinx| pattern.fits(&jinx.name) && jinx.remote.is_none()) {
        let inputs = || jinx.inputs.iter().map(|input| input.name.as_str());
        for name in arguments.iter().filter(|name| !inputs().any(|input| input == **name)) {
            let near = nearest(name, inputs()).map(|near| format!(", did you mean `{near}`?"));
            wrong(format!("`{}` has no argument `{name}`{}", jinx.name, near.unwrap_or_default()));
        }
    }
}

/// The arguments that expressions use.
fn arguments<'a>(expressions: impl Iterator<Item = &'a Expression>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    for expression in expressions {
        expression.paths(&mut |keys| {
            if let [Key::Name(root), Key::Name(name), ..] = keys
                && root == "args"
            {
                found.insert(name.as_str());
            }
        });
    }
    found
}

impl Observe {
    fn arguments(&self) -> BTreeSet<&str> {
        arguments(self.place.expressions().chain([&self.value]).chain(&self.ok))
    }
}

impl Write {
    fn arguments(&self) -> BTreeSet<&str> {
        let through = self.through.iter().flat_map(|(place, value)| place.expressions().chain([value]));
        arguments(self.stale.iter().flat_map(Place::expressions).chain(through))
    }
}

impl Rule {
    fn arguments(&self) -> BTreeSet<&str> {
        let texts = self.reason.iter().chain(&self.fetch).flat_map(Text::expressions);
        arguments(std::iter::once(&self.need).chain(texts))
    }

    /// The tool that reads the facts that the rule needs.
    fn fetched(&self) -> Option<&str> {
        let (tool, _) = self.fetch.as_ref()?.beginning().split_once('(')?;
        Some(tool.trim()).filter(|tool| !tool.is_empty())
    }
}
