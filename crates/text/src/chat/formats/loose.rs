//! Calls that a model writes in no known format: JSON objects, fenced or bare, with whatever keys
//! and braces, and calls of functions as in Python.
//!
//! A call begins a line, and only calls and their marks follow until the end of the answer.
//! Knows nothing of formats, and checks schemas only through [`Fits`].

use serde_json::{Map, Value};

use super::literal::{self, Failure};
use super::value::{self, Types};
use crate::request::{Tool, ToolCall};

/// Languages of fenced blocks that may hold calls.
const LANGUAGES: [&str; 12] = [
    "",
    "json",
    "jsonc",
    "json5",
    "tool_call",
    "tool_code",
    "tool",
    "xml",
    "python",
    "py",
    "text",
    "plaintext",
];
/// Tags that models put around calls.
const TAGS: [&str; 10] = [
    "tool_call",
    "tool_calls",
    "tool_response",
    "tool_code",
    "tool",
    "tools",
    "function",
    "functions",
    "function_call",
    "functioncall",
];
/// Other marks that models put before calls.
const MARKS: [&str; 3] = ["[TOOL_CALLS]", "<|python_tag|>", "\u{feff}"];
/// Keys of the tool's name, keys of its arguments, and keys to ignore.
const NAMES: [&str; 5] = ["name", "function", "tool", "tool_name", "action"];
const ARGUMENTS: [&str; 7] = ["arguments", "parameters", "args", "input", "action_input", "params", "kwargs"];
const IGNORED: [&str; 4] = ["type", "id", "index", "call_id"];
/// Keys of lists of calls in an enclosing object.
const LISTS: [&str; 2] = ["tool_calls", "calls"];
/// How many braces may be missing at the end.
const MISSING: usize = 3;
const FENCE: &str = "```";
/// How far before a call a text may announce it as an example, in bytes.
const EXAMPLE: usize = 120;

/// The calls found in the lines of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum Loose {
    /// From byte `at` to the end there are only valid calls of offered tools.
    Calls { at: usize, calls: Vec<ToolCall> },
    /// From byte `at` on there is an attempt to call `tool`.
    Broken { at: usize, tool: String },
}

/// Whether arguments are valid for the parameters of a tool.
pub(crate) type Fits<'a> = &'a dyn Fn(&Tool, &Map<String, Value>) -> bool;

/// Why a text isn't a sequence of calls.
enum Not {
    /// It is no attempt at a call.
    Calls,
    /// It attempts to call this tool, but can't be completed or doesn't fit its schema.
    Valid(String),
}

/// Looks for calls at the end of an answer.
pub(super) fn find(answer: &str, tools: &[Tool], fits: Fits) -> Option<Loose> {
    for at in candidates(answer, tools) {
        let before = &answer[answer.floor_char_boundary(at.saturating_sub(EXAMPLE))..at];
        if before.to_lowercase().contains("example") {
            continue;
        }
        match row(&answer[at..], tools, fits) {
            Ok(calls) => return Some(Loose::Calls { at, calls }),
            Err(Not::Valid(tool)) => return Some(Loose::Broken { at, tool }),
            Err(Not::Calls) => {}
        }
    }
    None
}

/// Whether a text at the beginning of a line may become a sequence of calls as more text comes.
pub fn may_open(text: &str, tools: &[Tool]) -> bool {
    let rest = text.trim_start_matches(MARKS[2]).trim_start();
    let Some(body) = rest.strip_prefix(FENCE) else {
        return opens(rest, tools) || FENCE.starts_with(rest) && !rest.is_empty();
    };
    match body.split_once('\n') {
        None => LANGUAGES.iter().any(|language| language.starts_with(body.trim())),
        Some((language, body)) => {
            let body = body.trim_start();
            LANGUAGES.contains(&language.trim()) && (body.is_empty() || opens(body, tools))
        }
    }
}

/// Whether a text begins as calls do, or is the beginning of such an opening.
fn opens(text: &str, tools: &[Tool]) -> bool {
    let is = |opener: &str| text.starts_with(opener) || (!text.is_empty() && opener.starts_with(text));
    let tagged = || TAGS.iter().any(|tag| is(&format!("<{tag}")));
    let called = || {
        let names = tools.iter().map(|tool| tool.name.as_str()).filter(|name| !name.is_empty());
        names
            .flat_map(|name| ["", "print(", "functions."].map(|before| format!("{before}{name}(")))
            .any(|call| is(&call))
    };
    text.starts_with(['{', '[']) || is(MARKS[0]) || is(MARKS[1]) || tagged() || called()
}

/// Where calls may begin: at lines that open one, outside of blocks that can't contain any.
fn candidates(answer: &str, tools: &[Tool]) -> Vec<usize> {
    let (mut found, mut at, mut fence) = (Vec::new(), 0, None);
    for line in answer.split_inclusive('\n') {
        let (from, trimmed) = (at, line.trim_start());
        at += line.len();
        let marks = [FENCE, "~~~"].into_iter().find(|marks| trimmed.starts_with(marks));
        match (fence, marks) {
            (Some(open), Some(marks)) if open == marks => fence = None,
            (Some(_), _) => {}
            (None, marks) => {
                let from = from + line.len() - trimmed.len();
                // Indented code also calls functions.
                let indented = line.len() > trimmed.len() && trimmed.starts_with(char::is_alphabetic);
                if may_open(&answer[from..], tools) && !indented {
                    found.push(from);
                }
                fence = marks;
            }
        }
    }
    found
}

/// The calls that a text consists of.
fn row(text: &str, tools: &[Tool], fits: Fits) -> Result<Vec<ToolCall>, Not> {
    let text = without_end(text);
    let mut calls = Vec::new();
    let mut rest = without_marks(text);
    while !rest.is_empty() {
        match one(rest, tools, fits) {
            Ok((more, length)) => {
                calls.extend(more);
                // Tolerate one extra brace.
                rest = without_marks(rest[length..].trim_start_matches([' ', '\n', '}']));
            }
            Err(Not::Calls) => match undoubled(rest) {
                Some(text) => {
                    calls.extend(row(&text, tools, fits)?);
                    break;
                }
                None => return Err(Not::Calls),
            },
            Err(not) => return Err(not),
        }
    }
    if calls.is_empty() { Err(Not::Calls) } else { Ok(calls) }
}

/// The text with doubled braces outside of strings made single; templates print them doubled.
fn undoubled(text: &str) -> Option<String> {
    if !text.starts_with("{{") {
        return None;
    }
    let (mut single, mut in_string, mut escaped) = (String::with_capacity(text.len()), false, false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        single.push(character);
        if !in_string && "{}".contains(character) {
            characters.next_if_eq(&character);
        }
        in_string ^= character == '"' && !escaped;
        escaped = character == '\\' && !escaped;
    }
    Some(single).filter(|text| !text.starts_with("{{"))
}

/// The text without closing marks of blocks and tags at its end.
fn without_end(text: &str) -> &str {
    let mut text = text.trim_end();
    loop {
        let mut ends = TAGS.iter().filter_map(|tag| text.strip_suffix(tag_end(tag).as_str()).map(str::len));
        let end = text.strip_suffix(FENCE).map(str::len).or_else(|| ends.next());
        let Some(end) = end else { return text };
        text = text[..end].trim_end();
    }
}

fn tag_end(tag: &str) -> String {
    format!("</{tag}>")
}

/// The text without the marks before and between calls.
fn without_marks(text: &str) -> &str {
    let mut text = text;
    loop {
        let before = text.len();
        text = text.trim_start_matches([' ', '\t', '\r', '\n', ',', ';', '[', ']', '\u{feff}']);
        for mark in MARKS {
            text = text.strip_prefix(mark).unwrap_or(text);
        }
        for tag in TAGS {
            for mark in [format!("<{tag}>"), tag_end(tag)] {
                text = text.strip_prefix(mark.as_str()).unwrap_or(text);
            }
        }
        if let Some(fence) = text.strip_prefix(FENCE) {
            let (language, body) = fence.split_once('\n').unwrap_or((fence, ""));
            if LANGUAGES.contains(&language.trim()) {
                text = body;
            }
        }
        if text.len() == before {
            return text;
        }
    }
}

/// The calls at the beginning of a text, and their length.
fn one(text: &str, tools: &[Tool], fits: Fits) -> Result<(Vec<ToolCall>, usize), Not> {
    if let Some(rest) = text.strip_prefix("<function=") {
        let (name, rest) = rest.split_once('>').ok_or(Not::Calls)?;
        let tool = offered(name.trim_matches('"'), tools).ok_or(Not::Calls)?;
        let (arguments, length) = literal::object(rest.trim_start()).map_err(|_| Not::Calls)?;
        let left = rest.trim_start().len() - length;
        return Ok((vec![fitting(tool, arguments, fits)?], text.len() - left));
    }
    if !text.starts_with('{') {
        return function(text, tools, fits);
    }
    match literal::object(text) {
        Ok((object, length)) => Ok((calls(object, tools, fits)?, length)),
        // Only the outer braces are doubled.
        Err(_) if text.starts_with("{{") => {
            let (object, length) = literal::object(&text[1..]).map_err(|_| Not::Calls)?;
            let rest = text[1 + length..].trim_start();
            let end = rest.strip_prefix('}').map_or(rest.len(), str::len);
            Ok((calls(object, tools, fits)?, text.len() - end))
        }
        Err(Failure::Unfinished) => {
            let whole = (1..=MISSING)
                .find_map(|braces| literal::object(&format!("{text}{}", "}".repeat(braces))).ok());
            match whole {
                Some((object, _)) => Ok((calls(object, tools, fits)?, text.len())),
                None => Err(meant(text, tools)),
            }
        }
        // For example unescaped quotes within a string: only if the call is all that follows.
        Err(Failure::Wrong) if text.ends_with(['}', ']']) => Err(meant(text, tools)),
        Err(Failure::Wrong) => Err(Not::Calls),
    }
}

/// What an unreadable JSON text was meant to be: a call if it names an offered tool as calls do.
fn meant(text: &str, tools: &[Tool]) -> Not {
    let names = |key: &str| {
        let (_, rest) = text.split_once(&format!("\"{key}\""))?;
        let name = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
        tools.iter().find(|tool| name.split('"').next() == Some(tool.name.as_str()))
    };
    let arguments = || ARGUMENTS.iter().any(|key| text.contains(&format!("\"{key}\"")));
    let tool =
        NAMES.iter().find_map(|key| names(key)).filter(|_| arguments() && !text.contains("\"properties\""));
    tool.map_or(Not::Calls, |tool| Not::Valid(tool.name.clone()))
}

/// The calls that an object describes.
fn calls(mut object: Map<String, Value>, tools: &[Tool], fits: Fits) -> Result<Vec<ToolCall>, Not> {
    object
        .retain(|key, value| !(IGNORED.contains(&key.as_str()) && (value.is_string() || value.is_number())));
    if let [(key, Value::Array(list))] = object.iter().collect::<Vec<_>>().as_slice()
        && LISTS.contains(&key.as_str())
    {
        let object = |value: &Value| value.as_object().cloned().ok_or(Not::Calls);
        let each = list.iter().map(|value| calls(object(value)?, tools, fits));
        return Ok(each.collect::<Result<Vec<_>, Not>>()?.into_iter().flatten().collect());
    }
    if let [(key, Value::Object(inner))] = object.iter().collect::<Vec<_>>().as_slice()
        && *key == "function"
    {
        return calls((*inner).clone(), tools, fits);
    }
    let name = NAMES.iter().find(|key| object.get(**key).is_some_and(Value::is_string)).ok_or(Not::Calls)?;
    let name = object.shift_remove(*name);
    let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
    let tool = offered(name, tools).ok_or(Not::Calls)?;
    let key = ARGUMENTS.iter().find(|key| object.contains_key(**key));
    let given = key.and_then(|key| object.shift_remove(*key));
    // With further keys it is a tool definition, or data.
    if given.is_some() && !object.is_empty() {
        return Err(Not::Calls);
    }
    let arguments = match given {
        // Without such a key all other keys are arguments, or it is some other object.
        None => {
            let known = object.keys().all(|key| property(tool, key).is_some());
            if !known || (object.is_empty() && !required(tool).is_empty()) {
                return Err(Not::Calls);
            }
            std::mem::take(&mut object)
        }
        Some(Value::Object(arguments)) => arguments,
        Some(Value::Null) => Map::new(),
        Some(Value::String(text)) => match (literal::value(&text), required(tool).as_slice()) {
            (Some(Value::Object(arguments)), _) => arguments,
            (_, [only]) if !text.trim_start().starts_with('{') => {
                Map::from_iter([((*only).to_owned(), Value::String(text))])
            }
            _ => return Err(Not::Valid(tool.name.clone())),
        },
        Some(_) => return Err(Not::Valid(tool.name.clone())),
    };
    if arguments.contains_key("properties") && property(tool, "properties").is_none() {
        return Err(Not::Calls);
    }
    Ok(vec![fitting(tool, arguments, fits)?])
}

/// A call as in Python, with keywords or with the single argument that the tool requires.
fn function(text: &str, tools: &[Tool], fits: Fits) -> Result<(Vec<ToolCall>, usize), Not> {
    let printed = text.strip_prefix("print(");
    let start = printed.unwrap_or(text);
    let start = start.strip_prefix("functions.").unwrap_or(start);
    let (name, arguments) = start.split_once('(').ok_or(Not::Calls)?;
    let tool = offered(name, tools).ok_or(Not::Calls)?;
    let before = text.len() - arguments.len();
    let read = match literal::keywords(arguments) {
        Err(Failure::Wrong) => {
            let [only] = required(tool)[..] else { return Err(Not::Calls) };
            literal::prefix(arguments)
                .map(|(value, length)| (Map::from_iter([(only.to_owned(), value)]), length))
        }
        read => read,
    };
    let whole = || text.ends_with(')');
    let (arguments, length) = read.map_err(|failure| match failure {
        Failure::Wrong if !whole() => Not::Calls,
        _ => Not::Valid(tool.name.clone()),
    })?;
    let mut rest = text[before + length..].trim_start();
    for _ in 0..=usize::from(printed.is_some()) {
        rest = rest.strip_prefix(')').ok_or(Not::Calls)?.trim_start();
    }
    Ok((vec![fitting(tool, arguments, fits)?], text.len() - rest.len()))
}

fn offered<'a>(name: &str, tools: &'a [Tool]) -> Option<&'a Tool> {
    let name = name.trim();
    let name = name.strip_prefix("functions.").unwrap_or(name);
    tools.iter().find(|tool| !name.is_empty() && tool.name == name)
}

fn property<'a>(tool: &'a Tool, key: &str) -> Option<&'a Value> {
    tool.parameters.get("properties")?.get(key)
}

fn required(tool: &Tool) -> Vec<&str> {
    let names = tool.parameters.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The call, if its arguments are valid for the tool's schema, possibly after reading strings as
/// the values that they contain.
fn fitting(tool: &Tool, mut arguments: Map<String, Value>, fits: Fits) -> Result<ToolCall, Not> {
    let parameters = &tool.parameters;
    if !fits(tool, &arguments) {
        let needed = required(tool);
        arguments.retain(|key, value| !value.is_null() || needed.contains(&key.as_str()));
        for (key, given) in &mut arguments {
            let types = Types::of_argument(parameters, key);
            match given {
                Value::String(text) if !types.string() => {
                    *given = value::read(text, types).unwrap_or(Value::Null);
                }
                Value::Number(_) | Value::Bool(_) if types.only_string() => *given = given.to_string().into(),
                _ => {}
            }
        }
    }
    if fits(tool, &arguments) {
        Ok(ToolCall { id: String::new(), name: tool.name.clone(), arguments })
    } else {
        Err(Not::Valid(tool.name.clone()))
    }
}
