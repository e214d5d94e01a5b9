//! Reads `.gate` files.
//!
//! ```yaml
//! observe:
//!   get_order: {path: "orders.{{ args.id }}", value: result, types: {status: string, total: number}}
//! writes:
//!   cancel_order: {stale: "orders.{{ args.id }}"}
//! rules:
//!   cancel_order:
//!     need: "orders[args.id].status == 'pending'"
//!     reason: "the order is {{ orders[args.id].status }}; that requires a manager's approval"
//!     unknown: require
//!     fetch: "get_order(id={{ args.id }})"
//! cases:
//!   - name: what was shipped is not cancelled
//!     ledger: {orders: {7: {status: shipped}}}
//!     call: {cancel_order: {id: 7}}
//!     verdict: deny
//! ```
//! Any problem in the file is an error: an author of a gate must be sure of what it guards.

use serde_json::{Map, Value};

use super::cases::Case;
use super::check::Shapes;
use super::output::Form;
use super::text::{Place, Text};
use super::{Gate, Observe, Pattern, Rule, Unknown, Wrap, Write};
use crate::expression::{Expression, Key, written};
use crate::fields::Fields;
use crate::jinx::Kind;
use crate::ledger::Path;
use crate::source::Source;
use crate::types::{Diagnostic, Location, Severity};
use crate::yaml::{Entry, Node};

/// The names of a rule's keys in other policy languages.
const ELSEWHERE: [(&str, &str); 7] = [
    ("when", "need"),
    ("if", "need"),
    ("require", "need"),
    ("condition", "need"),
    ("on", "tools"),
    ("message", "reason"),
    ("else", "reason"),
];

/// Reads a gate; `None` if it has any problem, with an error for each.
pub fn read(source: &Source, diagnostics: &mut Vec<Diagnostic>) -> Option<Gate> {
    let mut found = Vec::new();
    let gate = whole(source, &mut found);
    // Warnings elsewhere are errors here.
    for diagnostic in &mut found {
        diagnostic.severity = Severity::Error;
    }
    let gate = gate.filter(|_| found.is_empty());
    diagnostics.append(&mut found);
    gate
}

fn whole(source: &Source, diagnostics: &mut Vec<Diagnostic>) -> Option<Gate> {
    let node = match Node::parse(source, diagnostics) {
        Ok(node) => node,
        Err(mut error) => {
            error.message += no_yaml(source, &error).unwrap_or_default();
            diagnostics.push(error);
            return None;
        }
    };
    let mut fields = Fields::new(source, &node, diagnostics)?;
    let mut gate = Gate { name: source.stem(), path: source.path.clone(), ..Gate::default() };
    each(&mut fields, "observe", &mut |entry, fields| gate.observed.extend(observe(entry, fields)));
    let observed = fields.diagnostics().is_empty();
    each(&mut fields, "writes", &mut |entry, fields| gate.writes.extend(write(entry, fields)));
    each(&mut fields, "wraps", &mut |entry, fields| gate.wraps.extend(wrap(entry, fields)));
    each(&mut fields, "rules", &mut |entry, fields| gate.rules.extend(rule(entry, fields)));
    cases(&mut fields, &mut gate);
    fields.unknown();
    let rules = fields.entry(&["rules"]).map(|entry| entry.value.entries());
    if rules.is_none_or(|entries| entries.is_some_and(<[Entry]>::is_empty)) {
        let message = "a gate without `rules` guards nothing: name what must be true before a call";
        fields.error(Location::default(), message);
    }
    // An unreadable part may be one that the others name.
    if !observed {
        return None;
    }
    let shapes = Shapes::of(&gate);
    for write in &gate.writes {
        shapes.look_at_stale(write, &mut |message| diagnostics.push(source.error(write.location, message)));
    }
    for rule in &gate.rules {
        shapes.look(rule, &|_| None, &mut |message| diagnostics.push(source.error(rule.location, message)));
    }
    Some(gate)
}

/// The likely mistake in a gate that isn't YAML.
fn no_yaml(source: &Source, error: &Diagnostic) -> Option<&'static str> {
    let line = source.text.lines().nth(error.location.line.checked_sub(1)?)?;
    if line.trim_start_matches(' ').starts_with('\t') {
        return Some(": indent with spaces");
    }
    let before = line.split_once("{{").map(|(before, _)| before);
    if before.is_some_and(|before| before.matches(['"', '\'']).count() % 2 == 0) {
        return Some(": put a text with `{{ … }}` in quotes");
    }
    error.message.contains("block mapping").then_some(": keys of one mapping begin in the same column")
}

/// Reads each mapping in the mapping at a key; an entry may be a list of several.
fn each(fields: &mut Fields, key: &'static str, read: &mut dyn FnMut(&Entry, &mut Fields)) {
    let Some(entry) = fields.entry(&[key]) else { return };
    let source = fields.source();
    let Some(entries) = entry.value.entries() else {
        let found = entry.value.describe();
        let example = if key == "rules" { ", such as {cancel_order: {need: …}}" } else { "" };
        let message = format!("`{key}` must be a mapping of names, not {found}{example}");
        fields.error(entry.value.location, message);
        return;
    };
    for entry in entries {
        let items = entry.value.items().unwrap_or(std::slice::from_ref(&entry.value));
        if items.is_empty() || Pattern::new(&entry.key).parts().next().is_none() {
            fields.error(entry.location, format!("`{}` of `{key}` says nothing", entry.key));
        }
        for item in items {
            let Some(mut inner) = Fields::new(source, item, fields.diagnostics()) else { continue };
            read(entry, &mut inner);
            if key == "rules" {
                inner.meant(&ELSEWHERE);
            }
            inner.unknown();
        }
    }
}

/// Parses the text at a key; `None` if it is missing, or invalid with an error.
fn parsed<T>(fields: &mut Fields, key: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
    let value = &fields.entry(&[key])?.value;
    let location = value.location;
    let Some(text) = value.text() else {
        fields.error(location, format!("`{key}` is one text in quotes, not {}", value.describe()));
        return None;
    };
    if text.trim().is_empty() {
        fields.error(location, format!("`{key}` is empty: leave it out, or say what is meant"));
    }
    let text = fields.text(&[key])?;
    parse(&text).map_err(|error| fields.error(location, format!("`{key}`: {error}"))).ok()
}

/// As [`parsed`], for a required key.
fn needed<T>(
    fields: &mut Fields,
    entry: &Entry,
    key: &'static str,
    what: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    if fields.entry(&[key]).is_none() {
        fields.error(entry.location, format!("`{}` needs the key `{key}`: {what}", entry.key));
        return None;
    }
    parsed(fields, key, parse)
}

/// Parses an expression that may use only a call.
fn of_call(text: &str) -> Result<Expression, String> {
    let expression = Expression::parse(text)?;
    only_call(std::iter::once(&expression))?;
    Ok(expression)
}

/// Parses a place that may use only a call.
fn place(text: &str) -> Result<Place, String> {
    let place = Place::parse(text)?;
    only_call(place.expressions())?;
    Ok(place)
}

fn only_call<'a>(expressions: impl Iterator<Item = &'a Expression>) -> Result<(), String> {
    let mut wrong = None;
    for expression in expressions {
        if let Some((counter, _)) = expression.counts().first() {
            return Err(format!("calls are not counted here: there is no `{}`", counter.name()));
        }
        expression.paths(&mut |keys| {
            if !matches!(keys.first(), Some(Key::Name(root)) if root == "args" || root == "result") {
                wrong.get_or_insert_with(|| written(keys));
            }
        });
    }
    match wrong {
        Some(path) => {
            Err(format!("`{path}` is not known here: a result is read by itself, of `args` and `result`"))
        }
        None => Ok(()),
    }
}

fn observe(entry: &Entry, fields: &mut Fields) -> Option<Observe> {
    let place = needed(fields, entry, "path", "where in the ledger the result stands", place);
    let value = match fields.entry(&["value"]) {
        Some(_) => parsed(fields, "value", of_call),
        None => Expression::parse("result").ok(),
    };
    let location = fields.location("parse");
    let form = match (fields.text(&["parse"]), fields.text(&["regex"])) {
        (Some(name), regex) => {
            Form::named(&name, regex.as_deref()).map_err(|error| fields.error(location, error)).ok()
        }
        (None, Some(_)) => {
            let location = fields.location("regex");
            fields.error(location, "the key `regex` is for `parse: regex`");
            None
        }
        (None, None) => Some(Form::Plain),
    };
    let ok = parsed(fields, "ok", of_call);
    let effect = parsed(fields, "effect", |text| match text {
        "read" => Ok(()),
        _ => Err(format!("only `read` can be said here, not `{text}`: what writes is not observed")),
    });
    let types = types(fields);
    Some(Observe {
        tools: Pattern::new(&entry.key),
        place: place?,
        value: value?,
        form: form?,
        ok,
        reads: effect.is_some(),
        types,
        location: entry.location,
    })
}

/// `types: {status: string, address.city: string}`, or one type for the whole value.
fn types(fields: &mut Fields) -> Vec<(Path, Kind)> {
    let Some(entry) = fields.entry(&["types"]) else { return Vec::new() };
    let nodes: Vec<(Path, &Node)> = match entry.value.entries() {
        Some(entries) => entries
            .iter()
            .map(|entry| (entry.key.split('.').map(str::to_owned).collect(), &entry.value))
            .collect(),
        None => vec![(Path::new(), &entry.value)],
    };
    let mut types = Vec::new();
    for (path, node) in nodes {
        let name = node.text().unwrap_or_default();
        let kind = Kind::named(name);
        if kind.name() == name {
            types.push((path, kind));
            continue;
        }
        let known = ["string", "integer", "number", "boolean", "array", "object"];
        let near =
            alara_text::nearest(name, known.into_iter()).map(|near| format!(", did you mean `{near}`?"));
        let (hint, known) = (near.unwrap_or_default(), known.join(", "));
        fields.error(node.location, format!("there is no type {}{hint} (known: {known})", node.value()));
    }
    types
}

fn write(entry: &Entry, fields: &mut Fields) -> Option<Write> {
    let mut stale = Vec::new();
    let listed = fields.entry(&["stale"]);
    for node in listed
        .map(|entry| entry.value.items().unwrap_or(std::slice::from_ref(&entry.value)))
        .unwrap_or_default()
    {
        match node.text().ok_or_else(|| format!("a path is a text, not {}", node.describe())).and_then(place)
        {
            Ok(place) => stale.push(place),
            Err(error) => fields.error(node.location, format!("`stale`: {error}")),
        }
    }
    let (path, value) = (parsed(fields, "path", place), parsed(fields, "value", of_call));
    let through = fields.entry(&["path"]).is_some();
    if through != fields.entry(&["value"]).is_some() {
        fields.error(entry.location, "`path` and `value` belong together: where something stands, and what");
    } else if listed.is_none() && !through {
        let message = format!(
            "`{}` needs `stale`, the paths that it may change (`[]` for none), or `path` and `value`",
            entry.key
        );
        fields.error(entry.location, message);
    }
    Some(Write { tools: Pattern::new(&entry.key), stale, through: path.zip(value), location: entry.location })
}

fn wrap(entry: &Entry, fields: &mut Fields) -> Option<Wrap> {
    let argument = |text: &str| Ok(text.to_owned());
    let tool =
        needed(fields, entry, "tool", "the argument with the name of the tool that is called", argument);
    let arguments = fields.text(&["arguments"]);
    Some(Wrap { tools: Pattern::new(&entry.key), tool: tool?, arguments })
}

fn rule(entry: &Entry, fields: &mut Fields) -> Option<Rule> {
    let tools = texts(fields, "tools").map_or_else(|| entry.key.clone(), |tools| tools.join("|"));
    if Pattern::new(&tools).parts().next().is_none() {
        fields.error(entry.location, format!("the rule `{}` names no tool", entry.key));
    }
    let need = needed(fields, entry, "need", "what must be true before the call", Expression::parse);
    let location = fields.location("need");
    let (reason, fetch) = (parsed(fields, "reason", Text::parse), parsed(fields, "fetch", Text::parse));
    let unknown = match fields.entry(&["unknown"]) {
        None => Some(Unknown::Require),
        Some(_) => parsed(fields, "unknown", |text| match text {
            "require" => Ok(Unknown::Require),
            "allow" => Ok(Unknown::Allow),
            _ => Err(format!("it is `require` or `allow`, not `{text}`")),
        }),
    };
    Some(Rule {
        name: entry.key.clone(),
        tools: Pattern::new(&tools),
        need: need?,
        reason,
        unknown: unknown?,
        fetch,
        location,
    })
}

fn cases(fields: &mut Fields, gate: &mut Gate) {
    let Some(entry) = fields.entry(&["cases"]) else { return };
    let source = fields.source();
    let Some(items) = entry.value.items() else {
        let found = entry.value.describe();
        fields.error(entry.value.location, format!("`cases` must be a list, not {found}"));
        return;
    };
    for item in items {
        let Some(mut fields) = Fields::new(source, item, fields.diagnostics()) else { continue };
        gate.cases.extend(case(item, &mut fields, &gate.rules));
        fields.unknown();
    }
}

fn case(node: &Node, fields: &mut Fields, rules: &[Rule]) -> Option<Case> {
    let ledger = mapping(fields, "ledger").unwrap_or_default();
    let stale = texts(fields, "stale").unwrap_or_default();
    let call = match fields.entry(&["call"]).and_then(|entry| entry.value.entries()) {
        Some([call]) => match call.value.value() {
            Value::Object(arguments) => Some((call.key.clone(), arguments)),
            Value::Null => Some((call.key.clone(), Map::new())),
            _ => None,
        },
        _ => None,
    };
    if call.is_none() {
        fields.error(node.location, "a case needs one `call`, such as {cancel_order: {id: 7}}");
    }
    let allowed = match fields.text(&["verdict"]).as_deref() {
        Some("allow") => Some(true),
        Some("deny") => Some(false),
        _ => {
            fields.error(node.location, "a case needs its `verdict`: allow or deny");
            None
        }
    };
    let (name, rule) = (fields.text(&["name"]), fields.text(&["rule"]));
    let location = fields.location("rule");
    if let Some(rule) = rule.as_deref().filter(|name| rules.iter().all(|rule| rule.name != **name)) {
        let near = alara_text::nearest(rule, rules.iter().map(|rule| rule.name.as_str()));
        let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
        fields.error(location, format!("there is no rule `{rule}`{hint}"));
    }
    let unknown = texts(fields, "unknown");
    let (tool, arguments) = call?;
    let name = name.unwrap_or_else(|| format!("{tool} {}", Value::Object(arguments.clone())));
    let stale = stale.iter().map(|path| path.split('.').map(str::to_owned).collect()).collect();
    Some(Case {
        name,
        ledger,
        stale,
        tool,
        arguments,
        allowed: allowed?,
        rule,
        unknown,
        location: node.location,
    })
}

/// The mapping at a key.
fn mapping(fields: &mut Fields, key: &'static str) -> Option<Map<String, Value>> {
    let entry = fields.entry(&[key])?;
    match entry.value.value() {
        Value::Object(map) => Some(map),
        _ => {
            let found = entry.value.describe();
            fields.error(entry.value.location, format!("`{key}` must be a mapping, not {found}"));
            None
        }
    }
}

/// The text or list of texts at a key.
fn texts(fields: &mut Fields, key: &'static str) -> Option<Vec<String>> {
    let entry = fields.entry(&[key])?;
    let items = entry.value.items().unwrap_or(std::slice::from_ref(&entry.value));
    let mut texts = Vec::new();
    for item in items {
        match item.text() {
            Some(text) => texts.push(text.to_owned()),
            None => fields.error(item.location, format!("`{key}` has texts, not {}", item.describe())),
        }
    }
    Some(texts)
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
