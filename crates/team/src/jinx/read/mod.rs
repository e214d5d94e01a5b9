//! Reads the text of a `.jinx` file into a [`Jinx`]: every key and form, and every possible error,
//! with line and column.
//!
//! One bad key or step doesn't hide the others.
//! This module looks at one file alone; `check` finds problems that involve other jinxes or the
//! meaning of expressions.

mod inputs;
mod keys;
mod own_tests;
mod skill;
mod steps;

use std::time::Duration;

use alara_text::jinja::{self, MARKS};
use alara_text::resembles;
use minijinja::UndefinedBehavior;
use serde_json::{Map, Value};

use super::{Action, Jinx, Skill, Step, Tools};
use crate::hidden;
use crate::source::Source;
use crate::types::{Diagnostic, Effect, Location, Severity, Verdict};
use crate::yaml::{Entry, Node};

/// The keys of a file that have an effect.
const KEYS: [&str; 20] = [
    "tests",
    "jinx_name",
    "name",
    "description",
    "inputs",
    "effect",
    "network",
    "env",
    "timeout",
    "ok",
    "failure",
    "final",
    "hidden",
    "permissions",
    "permission",
    "steps",
    "sections",
    "skill_name",
    "skill_description",
    "engine",
];

/// Keys of existing files that are harmless and have no effect.
const WITHOUT_EFFECT: [&str; 3] = ["file_context", "npc", "aliases"];

/// Most instructions that the templates in a file may use.
const FUEL: u64 = 1_000_000;

/// Reads a jinx.
/// Problems in its file are added to `diagnostics`, in the order of the file.
/// `None` if an error makes the jinx unusable.
pub fn read(source: &Source, diagnostics: &mut Vec<Diagnostic>) -> Option<Jinx> {
    let mut found = Vec::new();
    let jinx = read_in_part(source, &mut found);
    let usable = found.iter().all(|problem| problem.severity < Severity::Error);
    diagnostics.append(&mut found);
    jinx.filter(|_| usable)
}

/// Reads as much of a jinx as possible, whatever else is wrong: for checks only.
pub(crate) fn read_in_part(source: &Source, diagnostics: &mut Vec<Diagnostic>) -> Option<Jinx> {
    let mut found = Vec::new();
    let jinx = match parse(source, &mut found) {
        Ok(node) => Reader { source, diagnostics: &mut found, skill: None }.file(&node),
        Err(problem) => {
            found.push(problem);
            None
        }
    };
    found.sort_by_key(|problem| problem.location);
    diagnostics.append(&mut found);
    jinx
}

/// The file as a tree.
/// A text that is YAML only after its templates are rendered, such as a loop that writes steps, is
/// rendered first.
fn parse(source: &Source, diagnostics: &mut Vec<Diagnostic>) -> Result<Node, Diagnostic> {
    let raw = Node::parse(source, diagnostics);
    match raw {
        Err(problem) if source.text.contains("{%") => {
            let Some(text) = rendered(&source.text) else { return Err(problem) };
            let rendered = Source { path: source.path.clone(), text };
            let node = Node::parse(&rendered, diagnostics).map_err(|_| problem)?;
            let message = "the file is YAML only after rendering; places are those of the rendered text";
            diagnostics.push(source.warning(Location::default(), message));
            Ok(node)
        }
        other => other,
    }
}

/// A file's text with its control flow executed.
/// Names that it doesn't define itself remain for the run: `{{ query }}` renders as `{{ query }}`.
fn rendered(text: &str) -> Option<String> {
    let mut environment = jinja::environment();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(FUEL));
    let text = jinja::bounded(text, &MARKS).ok()?;
    let template = environment.template_from_str(&text).ok()?;
    let names = template.undeclared_variables(false).into_iter();
    let names: Map<String, Value> =
        names.map(|name| (name.clone(), Value::from(format!("{{{{ {name} }}}}")))).collect();
    template.render(minijinja::value::Serde(names)).ok()
}

/// A file while it is read.
struct Reader<'a> {
    source: &'a Source,
    diagnostics: &'a mut Vec<Diagnostic>,
    /// The texts that a step or the file itself serves.
    skill: Option<Skill>,
}

impl Reader<'_> {
    fn file(&mut self, node: &Node) -> Option<Jinx> {
        let Some(entries) = node.entries() else {
            self.error(node.location, format!("a jinx is a mapping, not {}", node.describe()));
            return None;
        };
        for Entry { location, key, .. } in entries {
            if WITHOUT_EFFECT.contains(&key.as_str()) {
                self.warning(*location, format!("the key `{key}` has no effect"));
            } else if !KEYS.contains(&key.as_str()) && resembles(key, "permission") {
                // A call that should need a confirmation must not run without one.
                self.error(*location, format!("unknown key `{key}`, did you mean `permission`?"));
            } else {
                self.known(*location, key, &KEYS);
            }
        }
        let key = |key: &str| node.get(key).filter(|node| !node.is_null());
        let mut jinx = Jinx {
            name: self.name(node),
            timeout: Duration::from_secs(60),
            path: self.source.path.clone(),
            ..Jinx::default()
        };
        if let Some(text) = key("description").or_else(|| key("skill_description")) {
            jinx.description = self.text(text, "description").unwrap_or_default().trim().to_owned();
        }
        if let Some(inputs) = key("inputs") {
            jinx.inputs = self.inputs(inputs);
        }
        if let Some(flag) = key("network") {
            jinx.network = self.flag(flag, "network").unwrap_or_default();
        }
        if let Some(names) = key("env") {
            jinx.env = self.names(names, "env");
        }
        if let Some(timeout) = key("timeout").and_then(|node| self.duration(node, "timeout")) {
            jinx.timeout = timeout;
        }
        jinx.ok = key("ok").and_then(|node| self.expression(node, "ok"));
        if let Some(text) = key("failure") {
            jinx.failure = self.text(text, "failure");
            if key("ok").is_none() {
                self.warning(text.location, "`failure` has no effect without `ok`".to_owned());
            }
        }
        if let Some(flag) = key("final") {
            jinx.last = self.flag(flag, "final").unwrap_or_default();
        }
        if let Some(flag) = key("hidden") {
            jinx.hidden = self.flag(flag, "hidden").unwrap_or_default();
            if jinx.hidden && !hidden::is_unguessable(&jinx.name) {
                let message = format!(
                    "the name `{0}` of a hidden jinx can be guessed: end it in four digits or more, as in `{0}_4821`",
                    jinx.name
                );
                self.warning(flag.location, message);
            }
        }
        jinx.permission = self.permission(node);
        if let Some(tests) = key("tests") {
            jinx.tests = self.tests(tests);
        }
        if let Some(sections) = key("sections") {
            self.skill = self.skill_of(sections, node);
        }
        if let Some(steps) = key("steps") {
            jinx.steps = self.steps(steps);
        }
        jinx.skill = self.skill.take();
        if jinx.skill.is_some() && jinx.steps.is_empty() {
            jinx.steps.push(skill::serve(skill::SECTION, node.location));
        }
        if jinx.skill.is_some() {
            skill::add_input(&mut jinx);
        }
        if jinx.steps.is_empty() && key("steps").is_none_or(|steps| steps.items().is_none_or(<[_]>::is_empty))
        {
            let location = key("steps").map_or(Location { line: 1, column: 1 }, |steps| steps.location);
            self.error(location, format!("the jinx `{}` has no steps", jinx.name));
        }
        jinx.effect = match key("effect") {
            Some(effect) => self.effect(effect).unwrap_or_default(),
            None if jinx.steps.iter().all(computes) => Effect::None,
            None => Effect::default(),
        };
        Some(jinx)
    }

    fn name(&mut self, node: &Node) -> String {
        let named = ["jinx_name", "name", "skill_name"].iter().find_map(|key| node.get(key));
        let (name, location) = match named {
            Some(node) => (self.text(node, "jinx_name").unwrap_or_default(), node.location),
            None => (self.source.stem(), Location { line: 1, column: 1 }),
        };
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
            self.error(location, format!("the name `{name}` is not made of letters, digits, `_` and `-`"));
        }
        name
    }

    fn effect(&mut self, node: &Node) -> Option<Effect> {
        let words = [("none", Effect::None), ("read", Effect::Read), ("write", Effect::Write)];
        self.word(node, "effect", &words)
    }

    /// `permission: ask`, or in the form of existing files `permissions: {default: ask}`.
    fn permission(&mut self, node: &Node) -> Option<Verdict> {
        let words = [("allow", Verdict::Allow), ("ask", Verdict::Ask), ("deny", Verdict::Deny)];
        let rules = node.get("permission").or_else(|| node.get("permissions"))?;
        let verdict = match rules.entries() {
            None => rules,
            Some(entries) => {
                for Entry { location, key, .. } in entries {
                    self.known(*location, key, &["default"]);
                }
                rules.get("default")?
            }
        };
        if verdict.is_null() {
            return None;
        }
        self.word(verdict, "permission", &words)
    }
}

/// Whether a step certainly has no effect on the world, whatever other jinxes do.
fn computes(step: &Step) -> bool {
    let all = |steps: &[Step]| steps.iter().all(computes);
    match &step.action {
        Action::Bash { .. }
        | Action::Python { .. }
        | Action::Jobs { .. }
        | Action::Search(_)
        | Action::Call { .. } => false,
        Action::Text { .. } | Action::Emit { .. } | Action::Return { .. } => true,
        Action::Llm(llm) => llm.tools == Tools::None,
        Action::Set { set } => set.keys().all(|path| !path.starts_with("store.")),
        Action::When { then, otherwise, .. } => all(then) && all(otherwise),
        Action::For { steps, .. } => all(steps),
        Action::Try { steps, catch, finally } => all(steps) && all(catch) && all(finally),
    }
}

#[cfg(test)]
mod tests;
