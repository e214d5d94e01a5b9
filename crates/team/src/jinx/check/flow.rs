//! Follows the steps of a jinx in the order in which they run: which names are defined where, and
//! which steps never run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::names::{self, Text, constant, root, texts};
use super::{Known, Report, calls, effect, hint};
use crate::jinx::template::quoted_placeholder;
use crate::jinx::{Action, Jinx, Kind, Step};
use crate::types::{Effect, Location, Severity};

/// Names that are defined everywhere.
const GIVEN: [&str; 5] = ["ctx", "npc", "team", "store", "skills"];
/// Names that have a special meaning somewhere.
const SPECIAL: [&str; 9] = ["ctx", "npc", "team", "store", "skills", "output", "skill", "error", "loop"];

/// The names at one point, each with whether it is certainly defined.
type Scope = BTreeMap<String, bool>;

/// Checks one jinx.
pub fn check(jinx: &Jinx, known: &Known, store: &[&str], report: &mut Report) {
    let mut scope: Scope = GIVEN.iter().map(|name| ((*name).to_owned(), true)).collect();
    scope.extend(jinx.inputs.iter().map(|input| (input.name.clone(), true)));
    if jinx.skill.is_some() {
        scope.insert("skill".to_owned(), true);
    }
    let ok = jinx.ok.as_deref().map(Text::Expression);
    for text in ok.into_iter().chain(jinx.failure.as_deref().map(Text::Template)) {
        let mut scope = scope.clone();
        scope.insert("out".to_owned(), true);
        Flow { jinx, known, store, report, lost: BTreeSet::new(), outside: None }.text(
            Location { line: 1, column: 1 },
            text,
            &scope,
        );
    }
    let mut flow = Flow { jinx, known, store, report, lost: BTreeSet::new(), outside: None };
    flow.block(&jinx.steps, &mut scope);
}

struct Flow<'a, 'r> {
    jinx: &'a Jinx,
    known: &'a Known<'a>,
    store: &'a [&'a str],
    report: &'a mut Report<'r>,
    /// Names that went out of scope with a loop.
    lost: BTreeSet<String>,
    /// The names outside the current parallel loop.
    outside: Option<BTreeSet<String>>,
}

impl Flow<'_, '_> {
    /// Whether the steps certainly end the jinx.
    fn block(&mut self, steps: &[Step], scope: &mut Scope) -> bool {
        let mut names = BTreeSet::new();
        let mut ended = false;
        for (index, step) in steps.iter().enumerate() {
            if ended {
                self.report.warning(step, "this never runs: the step before it ends the jinx".to_owned());
                break;
            }
            if !step.name.is_empty() && step.name != format!("step_{}", index + 1) {
                if !names.insert(&step.name) {
                    self.report.warning(
                        step,
                        format!("another step before this one is called `{}`, too", step.name),
                    );
                }
                self.shadows(step, &step.name);
            }
            ended = self.step(step, scope);
        }
        ended
    }

    /// Warns of a name that hides another one.
    fn shadows(&mut self, step: &Step, name: &str) {
        if self.jinx.inputs.iter().any(|input| input.name == name) {
            self.report.warning(step, format!("the name `{name}` hides the input of this name"));
        } else if SPECIAL.contains(&name) {
            self.report.warning(step, format!("the name `{name}` hides what `{name}` means elsewhere"));
        }
    }

    fn step(&mut self, step: &Step, scope: &mut Scope) -> bool {
        if let Action::Set { set } = &step.action {
            // In order: a value may use an earlier one.
            for (path, value) in set {
                let mut texts = Vec::new();
                names::add(value, &mut texts);
                texts.into_iter().for_each(|text| self.text(step.location, text, scope));
                self.set(step, path, scope);
            }
            return false;
        }
        for text in texts(step) {
            self.text(step.location, text, scope);
        }
        if self.outside.is_some() || step.cache.is_some() {
            self.writes(step);
        }
        let mut ended = false;
        match &step.action {
            Action::Call { jinx, with } => calls::call(step, jinx, with, self.known, self.report),
            Action::Llm(llm) => calls::llm(step, llm, self.known, self.report),
            Action::When { when, then, otherwise } => ended = self.when(when, then, otherwise, scope),
            Action::For { variable, items, parallel, until, steps } => {
                self.items(step, items);
                self.each(step, variable, *parallel, until.as_deref(), steps, scope);
            }
            Action::Try { steps, catch, finally } => ended = self.attempt(steps, catch, finally, scope),
            Action::Return { .. } => ended = true,
            Action::Bash { .. }
            | Action::Python { .. }
            | Action::Text { .. }
            | Action::Jobs { .. }
            | Action::Search(_)
            | Action::Set { .. }
            | Action::Emit { .. } => {}
        }
        let result = matches!(
            &step.action,
            Action::Bash { .. }
                | Action::Python { .. }
                | Action::Text { .. }
                | Action::Llm(_)
                | Action::Jobs { .. }
                | Action::Search(_)
                | Action::Call { .. }
                | Action::For { .. }
        );
        if result {
            scope.insert("output".to_owned(), true);
            if !step.name.is_empty() {
                scope.insert(step.name.clone(), true);
            }
        }
        ended
    }

    /// Checks the names that a text uses, and the text itself.
    fn text(&mut self, step: Location, text: Text, scope: &Scope) {
        if let Text::Code(language, code) = text
            && !is_one_placeholder(code)
            && let Some(quoted) = quoted_placeholder(language, code)
        {
            self.report.piece(step, &quoted.found, quoted.to_string());
        }
        let uses = match text.uses() {
            Ok(uses) => uses,
            Err(wrong) => {
                let line = text.as_str().lines().nth(wrong.line - 1).unwrap_or_default().trim();
                let message = format!("{} in `{line}`", wrong.message);
                return self.report.piece(step, line, message);
            }
        };
        for used in uses {
            let name = root(&used.path);
            if name == "store" {
                self.store_key(step, text.as_str(), &used.path);
            }
            let (severity, message) = match scope.get(name) {
                Some(true) => continue,
                _ if used.guarded => continue,
                Some(false) => {
                    let message =
                        format!("`{name}` may be undefined here: not every way to this step sets it");
                    (Severity::Warning, message)
                }
                None => (Severity::Error, self.undefined(name, scope)),
            };
            self.report.name(severity, step, text.as_str(), name, message);
        }
    }

    fn undefined(&self, name: &str, scope: &Scope) -> String {
        match name {
            "error" => "`error` is only defined in `catch`".to_owned(),
            "loop" => "`loop` is only defined in the steps of a `for`".to_owned(),
            "output" => "`output` is not defined before the first step has a result".to_owned(),
            "skill" => "`skill` is only defined in a jinx with `sections`".to_owned(),
            _ if self.lost.contains(name) => {
                format!(
                    "`{name}` is not defined here: it ended with its loop; `set` it before the loop to keep it"
                )
            }
            _ => format!("`{name}` is not defined{}", hint(name, scope.keys().map(String::as_str))),
        }
    }

    /// Warns of a key that the team's store doesn't have, if the team declares its keys.
    fn store_key(&mut self, step: Location, text: &str, path: &str) {
        let Some(key) = path.split('.').nth(1).filter(|_| !self.store.is_empty()) else { return };
        if !self.store.contains(&key) {
            let hint = hint(key, self.store.iter().copied());
            let message = format!("the team's store has no key `{key}`{hint}");
            self.report.name(Severity::Warning, step, text, key, message);
        }
    }

    fn set(&mut self, step: &Step, path: &str, scope: &mut Scope) {
        let name = root(path);
        if name == "store" {
            self.store_key(step.location, path, path);
            self.writes(step);
            return;
        }
        if self.outside.as_ref().is_some_and(|outside| outside.contains(name)) {
            let message = format!(
                "a parallel `for` can't set `{name}`, which is defined outside of it: use the loop's result, or leave out `parallel`"
            );
            self.report.name(Severity::Error, step.location, path, name, message);
        }
        scope.insert(name.to_owned(), true);
    }

    /// Reports steps that may write where writing is forbidden.
    fn writes(&mut self, step: &Step) {
        let simple = names::blocks(&step.action).is_empty();
        if !simple || effect(step, self.jinx, self.known) < Effect::Write {
            return;
        }
        let who = match &step.action {
            Action::Call { jinx, .. } => format!("`{jinx}`"),
            _ => format!("the jinx `{}`", self.jinx.name),
        };
        if self.outside.is_some() {
            let message = match &step.action {
                Action::Set { .. } => "this one writes to the store: leave out `parallel`".to_owned(),
                _ => format!("this one may: declare `effect: read` on {who} if it only reads"),
            };
            self.report.error(step, format!("steps of a parallel `for` may not write, and {message}"));
        }
        if step.cache.is_some() {
            let message = format!(
                "`cache` has no effect on a step that may write: declare `effect: read` on {who} if it only reads"
            );
            self.report.warning(step, message);
        }
    }

    fn when(&mut self, when: &str, then: &[Step], otherwise: &[Step], scope: &mut Scope) -> bool {
        let always = constant(when);
        for (branch, runs) in [(then, true), (otherwise, false)] {
            if let (Some(first), Some(value)) = (branch.first(), always)
                && value != runs
            {
                self.report.warning(first, format!("this never runs: `{when}` is always {value}"));
            }
        }
        let (mut left, mut right) = (scope.clone(), scope.clone());
        // A condition that tests whether a name is defined makes it known in the branches.
        for used in Text::Expression(when).uses().unwrap_or_default().iter().filter(|used| used.guarded) {
            left.insert(used.path.clone(), true);
            right.insert(used.path.clone(), true);
        }
        let ends = (self.block(then, &mut left), self.block(otherwise, &mut right));
        *scope = match (always, ends) {
            (Some(true), _) | (None, (false, true)) => left,
            (Some(false), _) | (None, (true, false)) => right,
            _ => merged(&left, &right),
        };
        always.map_or(ends.0 && ends.1, |always| if always { ends.0 } else { ends.1 })
    }

    fn each(
        &mut self,
        step: &Step,
        variable: &str,
        parallel: bool,
        until: Option<&str>,
        steps: &[Step],
        scope: &Scope,
    ) {
        self.shadows(step, variable);
        let before = self.outside.clone();
        if parallel {
            let names = scope.keys().cloned();
            self.outside = Some(self.outside.iter().flatten().cloned().chain(names).collect());
        }
        if let Some(outside) = &mut self.outside {
            outside.remove(variable);
        }
        let mut inner = scope.clone();
        inner.insert(variable.to_owned(), true);
        inner.insert("loop".to_owned(), true);
        self.block(steps, &mut inner);
        if let Some(until) = until {
            self.text(step.location, Text::Expression(until), &inner);
        }
        self.outside = before;
        self.lost.extend(inner.into_keys().filter(|name| !scope.contains_key(name)));
    }

    /// Reports a loop over a value that is certainly no list.
    fn items(&mut self, step: &Step, items: &str) {
        let items = items.trim();
        let kind = match names::value(items) {
            Some(Value::Array(_) | Value::Object(_)) => return,
            Some(value) => kind(&value),
            None => {
                let input = self.jinx.inputs.iter().find(|input| input.name == items);
                match input.map(|input| input.kind) {
                    Some(Kind::Integer) => "a whole number",
                    Some(Kind::Number) => "a number",
                    Some(Kind::Boolean) => "true or false",
                    Some(Kind::String) => "a text",
                    _ => return,
                }
            }
        };
        // A step may have given the name another value.
        if sets(&self.jinx.steps, items) {
            return;
        }
        let hint = match kind {
            "a whole number" => format!("; `range({items})` counts so far"),
            "a text" => {
                format!("; `{items}.splitlines()` are its lines, and an input of `type: list` takes a list")
            }
            _ => String::new(),
        };
        self.report.error(step, format!("`for` goes through a list, and `{items}` is {kind}{hint}"));
    }

    fn attempt(&mut self, steps: &[Step], catch: &[Step], finally: &[Step], scope: &mut Scope) -> bool {
        let mut tried = scope.clone();
        let tried_ends = self.block(steps, &mut tried);
        // A failure may come after any of the steps.
        let half = merged(scope, &tried);
        let mut caught = half.clone();
        caught.insert("error".to_owned(), true);
        let caught_ends = self.block(catch, &mut caught);
        if !scope.contains_key("error") {
            caught.remove("error");
        }
        // Without a `catch`, the failure propagates.
        let passes = catch.is_empty() && !finally.is_empty();
        let mut last = merged(&half, &caught);
        let before = last.clone();
        let finally_ends = self.block(finally, &mut last);
        *scope = match (tried_ends, caught_ends) {
            _ if passes => tried,
            (true, false) => caught,
            (false, true) => tried,
            _ => merged(&tried, &caught),
        };
        scope.extend(last.into_iter().filter(|(name, sure)| *sure && before.get(name) != Some(sure)));
        finally_ends || (tried_ends && (passes || caught_ends))
    }
}

/// The names that are known after either of two branches.
fn merged(left: &Scope, right: &Scope) -> Scope {
    let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    let sure = |scope: &Scope, name: &String| scope.get(name).copied().unwrap_or(false);
    names.into_iter().map(|name| (name.clone(), sure(left, name) && sure(right, name))).collect()
}

/// The kind of a value, in words.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_f64() => "a number",
        Value::Number(_) => "a whole number",
        Value::Bool(_) => "true or false",
        Value::String(_) => "a text",
        _ => "nothing",
    }
}

/// Whether one of these steps, or of their inner steps, sets a name.
fn sets(steps: &[Step], name: &str) -> bool {
    steps.iter().any(|step| {
        step.name == name
            || matches!(&step.action, Action::Set { set } if set.keys().any(|path| root(path) == name))
            || matches!(&step.action, Action::For { variable, .. } if variable == name)
            || names::blocks(&step.action).into_iter().any(|steps| sets(steps, name))
    })
}

/// Whether a program consists of one placeholder: then its value is the program, and it isn't
/// quoted.
fn is_one_placeholder(code: &str) -> bool {
    crate::jinx::template::single(code).is_some()
}
