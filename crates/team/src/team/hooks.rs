//! `hooks` of a `.ctx`: jinxes that run before and after calls, and when a session begins and ends.
//!
//! ```yaml
//! hooks:
//!   before_tool: {jinx: no_push, tools: [shell]}
//!   after_tool: [format_code, log_call]
//!   start: greet
//! ```
//! This module must not know how hooks are run.

use alara_text::nearest;
use serde::Serialize;

use super::ctx::list;
use super::library::{self, Library};
use super::rules::current_name;
use crate::fields::Fields;
use crate::jinx::{Input, Jinx, Kind};
use crate::source::Source;
use crate::types::Diagnostic;
use crate::yaml::{Entry, Node};

/// The event that a hook runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// Before a call is made; a failure of the hook refuses the call.
    BeforeTool,
    /// After a call was made.
    AfterTool,
    /// When a session begins.
    Start,
    /// When a session ends.
    End,
}

impl HookEvent {
    const ALL: [HookEvent; 4] =
        [HookEvent::BeforeTool, HookEvent::AfterTool, HookEvent::Start, HookEvent::End];

    /// The key in a `.ctx`.
    pub fn name(self) -> &'static str {
        match self {
            HookEvent::BeforeTool => "before_tool",
            HookEvent::AfterTool => "after_tool",
            HookEvent::Start => "start",
            HookEvent::End => "end",
        }
    }

    /// The facts that a hook's jinx gets, for inputs of these names.
    /// `arguments` is an object, or JSON for an input that is text; the others are texts.
    pub fn inputs(self) -> &'static [&'static str] {
        match self {
            HookEvent::BeforeTool => &["event", "npc", "tool", "arguments"],
            HookEvent::AfterTool => &["event", "npc", "tool", "arguments", "result", "outcome"],
            HookEvent::Start => &["event", "npc"],
            HookEvent::End => &["event", "npc", "outcome"],
        }
    }

    /// Whether the event is about a call.
    pub fn is_about_tools(self) -> bool {
        matches!(self, HookEvent::BeforeTool | HookEvent::AfterTool)
    }
}

/// A hook.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hook {
    /// The event that it runs on.
    pub event: HookEvent,
    /// The name of the jinx that it runs.
    pub name: String,
    /// That jinx, as the team that declares the hook knows it; `None` if there is none of that
    /// name.
    #[serde(skip)]
    pub jinx: Option<Box<Jinx>>,
    /// The only tools that it runs for, as entries of a list of jinxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

impl Hook {
    /// Whether it runs on this event, for this tool.
    pub fn is_about(&self, event: HookEvent, tool: &str) -> bool {
        let tools = self.tools.as_ref();
        self.event == event && tools.is_none_or(|tools| tools.iter().any(|entry| library::names(entry, tool)))
    }
}

/// Why no NPC of the team runs: it is unclear which calls its hooks were to check.
pub fn unreadable(source: &Source, node: &Node) -> Vec<Diagnostic> {
    let Some(entries) = node.entries() else {
        let what = node.describe();
        let message =
            format!("`hooks` must be a mapping of events to jinxes, not {what}: nobody of the team runs");
        return if node.is_null() { Vec::new() } else { vec![source.error(node.location, message)] };
    };
    let names = HookEvent::ALL.map(HookEvent::name);
    let unknown = entries.iter().filter(|entry| !names.contains(&entry.key.as_str()));
    let report = |entry: &Entry| {
        let near = nearest(&entry.key, names.into_iter()).map(|near| format!(", did you mean `{near}`?"));
        let (near, known) = (near.unwrap_or_default(), names.join(", "));
        let key = &entry.key;
        let message = format!("there is no event `{key}`{near} (known: {known}): nobody of the team runs");
        source.error(entry.location, message)
    };
    unknown.map(report).collect()
}

/// Reads the hooks of a team that knows the jinxes of `library`; `others` permits tools of servers.
/// An unusable hook stays: the calls that it was meant to check are refused.
/// Hooks before unknown tools are `reasons` to let no NPC of the team run.
pub fn read(
    source: &Source,
    node: &Node,
    library: &Library,
    others: bool,
    reasons: &mut Vec<Diagnostic>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Hook> {
    let mut hooks = Vec::new();
    for entry in node.entries().into_iter().flatten() {
        let event = HookEvent::ALL.into_iter().find(|event| event.name() == entry.key);
        let Some(event) = event else { continue };
        for node in list(&entry.value).iter().filter(|node| !node.is_null()) {
            hooks.extend(hook(event, source, node, library, others, reasons, diagnostics));
        }
    }
    hooks
}

fn hook(
    event: HookEvent,
    source: &Source,
    node: &Node,
    library: &Library,
    others: bool,
    reasons: &mut Vec<Diagnostic>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Hook> {
    let (name, location, tools) = match node.text() {
        Some(name) => (name.trim().to_owned(), node.location, None),
        None => {
            let mut fields = Fields::new(source, node, diagnostics)?;
            let location = fields.location("jinx");
            let name = fields.text(&["jinx"]);
            let tools = fields.entry(&["tools"]).map(|entry| list(&entry.value));
            fields.unknown();
            let Some(name) = name else {
                fields
                    .error(node.location, "a hook is the name of a jinx, or {jinx: NAME, tools: [NAME, …]}");
                return None;
            };
            (name, location, tools)
        }
    };
    if let Some(tools) = tools.as_ref().filter(|_| !event.is_about_tools()) {
        let location = tools.first().map_or(node.location, |node| node.location);
        let message = format!("`tools` has no effect: `{}` is about no call", event.name());
        diagnostics.push(source.warning(location, message));
    }
    for node in tools.iter().flatten().filter(|_| event.is_about_tools() && !others) {
        let entry = current_name(node.text().unwrap_or_default());
        if library.find(entry).0.is_empty() {
            let hint = nearest(entry, library.names()).map(|near| format!(", did you mean `{near}`?"));
            let hint = hint.unwrap_or_default();
            let message = format!("there is no tool {}{hint}", node.value());
            if event == HookEvent::AfterTool {
                diagnostics.push(source.warning(node.location, message));
                continue;
            }
            let error = source.error(
                node.location,
                format!("{message}{} of the team runs", if hint.is_empty() { ": nobody" } else { " Nobody" }),
            );
            diagnostics.push(error.clone());
            reasons.push(error);
        }
    }
    let jinx = library.get(&name);
    let problem = match jinx {
        None => {
            let hint = nearest(&name, library.names()).map(|near| format!(", did you mean `{near}`?"));
            Some(format!("there is no jinx `{name}`{}", hint.unwrap_or_default()))
        }
        Some(jinx) => misfit(event, jinx),
    };
    if let Some(problem) = problem {
        let then =
            if event == HookEvent::BeforeTool { "; the calls that it is about are refused" } else { "" };
        diagnostics.push(source.error(location, format!("the hook can't be run: {problem}{then}")));
    }
    let tools = tools
        .filter(|_| event.is_about_tools())
        .map(|tools| tools.iter().filter_map(Node::text).map(|name| current_name(name).to_owned()).collect());
    Some(Hook { event, name, jinx: jinx.cloned().map(Box::new), tools })
}

/// Why a jinx can't take the facts of an event, if so.
fn misfit(event: HookEvent, jinx: &Jinx) -> Option<String> {
    let takes = |input: &Input| match input.name.as_str() {
        name if !event.inputs().contains(&name) => input.default.is_some(),
        "arguments" => matches!(input.kind, Kind::Object | Kind::String | Kind::Any),
        _ => matches!(input.kind, Kind::String | Kind::Any),
    };
    let input = jinx.inputs.iter().find(|input| !takes(input))?;
    Some(format!(
        "`{}` takes `{}` of type {}, and `{}` gives: {}",
        jinx.name,
        input.name,
        input.kind.name(),
        event.name(),
        event.inputs().join(", ")
    ))
}
