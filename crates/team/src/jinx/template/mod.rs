//! The one expression language: conditions, values and texts of steps, over the names of a
//! [`Scope`].
//!
//! An *expression* is minijinja's; a *template* is JSON whose texts may contain `{{ expression }}`.
//! Values are never rendered again.
//! This module must not know steps, models or programs; `code` passes values to programs.

mod code;
mod quotes;
mod scope;
mod section;

use std::collections::HashSet;
use std::sync::LazyLock;

use alara_text::jinja::{self, MARKS, Marks, Refused};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value as Dynamic};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior};
use regex_automata::meta::Regex;
use serde::Serialize;
use serde_json::{Map, Value};

pub use code::{Code, Language, Piece, code, pieces};
pub use quotes::Quoted;
pub(crate) use quotes::quoted_placeholder;
pub use scope::Scope;
pub use scope::put;
use scope::{dynamic, json};
pub use section::NO_SECTION;

/// Most instructions of one expression or text: far more than any needs, and at most a second of
/// work.
const FUEL: u64 = 2_000_000;

/// Most bytes of a text in a message about it.
const SHOWN: usize = 80;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(environment);

/// The environment of all expressions and texts: strict about undefined names, with Python's
/// methods.
///
/// In addition to minijinja's own filters and tests it has the filters `tojson(indent)`, `fromjson`
/// and, for a skill, `section(name)`, and the test `match(regex)`.
pub fn environment() -> Environment<'static> {
    let mut environment = jinja::environment();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_fuel(Some(FUEL));
    environment.add_filter("tojson", tojson);
    environment.add_filter("fromjson", fromjson);
    environment.add_test("match", matches);
    // A variable of the same name, which skills have as an input, would hide a function; it doesn't
    // hide a filter.
    environment.add_filter("section", section::section);
    environment
}

/// A text in a form that the environment can execute within its limits.
pub fn bounded(text: &str, marks: &Marks) -> Result<String, Error> {
    jinja::bounded(text, marks).map_err(|refused| refusal(&refused))
}

/// As [`bounded`], for an expression.
pub fn bounded_expression(text: &str) -> Result<String, Error> {
    jinja::bounded_expression(text).map_err(|refused| refusal(&refused))
}

fn refusal(refused: &Refused) -> Error {
    Error::new(ErrorKind::SyntaxError, refused.what)
}

/// The value of an expression.
///
/// # Errors
/// It is invalid, uses an undefined name, or can't be evaluated.
pub fn evaluate(expression: &str, scope: &Scope) -> Result<Value, String> {
    json(&compute(expression, scope)?)
}

/// Whether a condition is true; an empty value, zero, null and false are not.
///
/// # Errors
/// As [`evaluate`].
pub fn holds(expression: &str, scope: &Scope) -> Result<bool, String> {
    compute(expression, scope).map(|value| value.is_true())
}

/// A template with its texts filled in: a text that is one `{{ expression }}` becomes its value,
/// any other becomes text.
///
/// # Errors
/// As [`evaluate`].
pub fn fill(template: &Value, scope: &Scope) -> Result<Value, String> {
    Ok(match template {
        Value::String(text) => fill_text(text, scope)?,
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| fill(item, scope)).collect::<Result<_, _>>()?)
        }
        Value::Object(map) => Value::Object(fill_map(map, scope)?),
        other => other.clone(),
    })
}

/// Fills in the values of a mapping.
///
/// # Errors
/// As [`evaluate`].
pub fn fill_map(map: &Map<String, Value>, scope: &Scope) -> Result<Map<String, Value>, String> {
    map.iter().map(|(key, value)| Ok((key.clone(), fill(value, scope)?))).collect()
}

fn fill_text(text: &str, scope: &Scope) -> Result<Value, String> {
    if !text.contains("{{") && !text.contains("{%") && !text.contains("{#") {
        return Ok(Value::from(text));
    }
    if let Some(expression) = single(text) {
        return evaluate(expression, scope);
    }
    let wrong = |error: Error| explain(&error, text, &HashSet::new(), scope);
    let rewritten = bounded(text, &MARKS).map_err(wrong)?;
    let template = ENVIRONMENT.template_from_str(&rewritten).map_err(wrong)?;
    let rendered = template.render(Dynamic::from_object(scope.clone()));
    rendered
        .map(Value::from)
        .map_err(|error| explain(&error, text, &template.undeclared_variables(true), scope))
}

/// The expression of a text that is one `{{ expression }}` and nothing else.
pub fn single(text: &str) -> Option<&str> {
    let inside = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let inside = inside.strip_prefix(['-', '+']).unwrap_or(inside);
    let inside = inside.strip_suffix(['-', '+']).unwrap_or(inside).trim();
    is_expression(inside).then_some(inside)
}

fn is_expression(text: &str) -> bool {
    bounded_expression(text).is_ok_and(|text| ENVIRONMENT.compile_expression(&text).is_ok())
}

fn compute(expression: &str, scope: &Scope) -> Result<Dynamic, String> {
    let wrong = |error: Error| explain(&error, expression, &HashSet::new(), scope);
    let rewritten = bounded_expression(expression).map_err(wrong)?;
    let compiled = ENVIRONMENT.compile_expression(&rewritten).map_err(wrong)?;
    let value = compiled.eval(Dynamic::from_object(scope.clone())).and_then(|value| {
        if value.is_undefined() { Err(Error::from(ErrorKind::UndefinedError)) } else { Ok(value) }
    });
    value.map_err(|error| explain(&error, expression, &compiled.undeclared_variables(true), scope))
}

/// Explains an error in a text; `names` are those that it uses.
fn explain(error: &Error, text: &str, names: &HashSet<String>, scope: &Scope) -> String {
    if error.kind() == ErrorKind::UndefinedError {
        let mut missing: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| !defined(name, scope)).collect();
        missing.sort_unstable();
        if !missing.is_empty() {
            let missing = missing.join("`, `");
            return format!("`{missing}` is not defined");
        }
    }
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    if detail.starts_with(NO_SECTION) {
        return detail;
    }
    let line = text.trim().lines().next().unwrap_or_default();
    let end = line.floor_char_boundary(SHOWN);
    let more = if end < text.trim().len() { "…" } else { "" };
    format!("{detail} in `{}{more}`", &line[..end])
}

/// Whether a path such as `order.items` leads to a value.
fn defined(path: &str, scope: &Scope) -> bool {
    let mut keys = path.split('.');
    let Some(first) = keys.next() else { return false };
    if ENVIRONMENT.globals().any(|(name, _)| name == first) {
        return true;
    }
    let found = scope.find(first).cloned();
    keys.try_fold(found, |value, key| Some(value.and_then(|value| value.get_attr(key).ok())))
        .flatten()
        .is_some_and(|value| !value.is_undefined())
}

/// JSON, compact or on several lines.
#[expect(clippy::needless_pass_by_value, reason = "the form of a filter")]
fn tojson(state: &mut State, value: &Dynamic, options: Kwargs) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let indent: Option<usize> = options.get("indent")?;
    options.assert_all_used()?;
    let indent = indent.map(|indent| indent.min(16));
    jinja::printable_apart(state, value, indent.unwrap_or_default())?;
    let wrong = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let Some(indent) = indent else { return serde_json::to_string(value).map_err(wrong) };
    let indent = b" ".repeat(indent);
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(&indent);
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter)).map_err(wrong)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn fromjson(text: &str) -> Result<Dynamic, Error> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("the text is no JSON: {error}")))?;
    Ok(dynamic(&value))
}

/// Whether a regular expression matches anywhere in a text; other values are matched as JSON.
fn matches(state: &mut State, value: &Dynamic, pattern: &str) -> Result<bool, Error> {
    let pattern = Regex::new(pattern).map_err(|_| {
        Error::new(ErrorKind::InvalidOperation, format!("`{pattern}` is no regular expression"))
    })?;
    let text = match value.as_str() {
        Some(text) => text.to_owned(),
        None => tojson(state, value, Kwargs::from_iter(std::iter::empty::<(&str, Dynamic)>()))?,
    };
    Ok(pattern.is_match(&text))
}

#[cfg(test)]
mod tests;
