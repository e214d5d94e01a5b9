//! Code as action: a fenced block calls the tool that its first line names, either by the language
//! of the code or by the tool's name.
//!
//! A tool that takes code or a file's text gets it as the lines of the block, verbatim; its other
//! arguments are JSON on the first line.
//! All other calls are blocks of JSON: those of tools that take no such text, and, marked `json`,
//! those whose text contains a fence.
//! A block of any other language is text.

use serde_json::{Map, Value};

use super::literal;
use crate::chat::json::dumps;
use crate::request::Tool;

/// Begins and ends every block.
pub(crate) const FENCE: &str = "```";
/// Ends a block.
pub(crate) const CLOSE: &str = "\n```";
/// Marks a block of JSON where lines would be code.
pub(crate) const JSON: &str = "json";

/// A language of blocks.
#[derive(Debug)]
pub(crate) struct Language {
    /// The mark that we write for this language.
    name: &'static str,
    /// The marks that models use for this language.
    marks: &'static [&'static str],
    /// The names of tools that run it.
    tools: &'static [&'static str],
}

const LANGUAGES: [Language; 3] = [
    Language { name: "bash", marks: &["bash", "sh", "shell"], tools: &["shell", "bash", "sh"] },
    Language { name: "python", marks: &["python", "py", "python3"], tools: &["python", "py"] },
    // Where a turn must be a block, the answer is one too.
    Language { name: "answer", marks: &["answer"], tools: &["finish"] },
];

/// Names of the arguments that are written as the lines of a block.
const LINES: [&str; 3] = ["code", "command", "content"];

/// The language of a tool's code, if it has one.
fn language(tool: &str) -> Option<&'static Language> {
    LANGUAGES.iter().find(|language| language.tools.contains(&tool))
}

/// Whether `tool` gives the answer.
pub(crate) fn answers(tool: &str) -> bool {
    language(tool).is_some_and(|language| language.name == "answer")
}

/// Whether `tool` runs code in a language of its own.
pub(crate) fn runs_code(tool: &str) -> bool {
    language(tool).is_some_and(|language| language.name != "answer")
}

/// The mark that we write on the block of a call of `tool`.
pub(crate) fn mark(tool: &str) -> &str {
    language(tool).map_or(tool, |language| language.name)
}

/// The texts with which models may begin a block that calls any of `tools`.
pub(crate) fn openers<'a>(tools: impl Iterator<Item = &'a Tool>) -> impl Iterator<Item = String> {
    let marks = |tool: &Tool| match language(&tool.name) {
        Some(language) => language.marks.iter().map(|mark| format!("{FENCE}{mark}")).collect(),
        None => vec![format!("{FENCE}{}", tool.name)],
    };
    tools.flat_map(marks)
}

/// The tool of a block and the rest of its first line; `line` is that line without its end.
pub(super) fn tool<'a, 'l>(line: &'l str, tools: &'a [Tool]) -> Option<(&'a Tool, &'l str)> {
    let line = line.trim();
    let (mark, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let language = LANGUAGES.iter().find(|language| language.marks.contains(&mark));
    let is = |tool: &&Tool| {
        tool.name == mark || language.is_some_and(|language| language.tools.contains(&tool.name.as_str()))
    };
    Some((tools.iter().find(is)?, rest.trim()))
}

/// The argument of `tool` that is written as the lines of a block: a required string.
pub(crate) fn lines(tool: &Tool) -> Option<(&str, &Value)> {
    let required: Vec<&str> =
        tool.parameters.get("required")?.as_array()?.iter().filter_map(Value::as_str).collect();
    let texts = required.iter().filter_map(|name| {
        let schema = tool.parameters.get("properties")?.get(name)?;
        (schema.get("type").is_some_and(|kind| kind == "string")).then_some((*name, schema))
    });
    let only = required.len() == 1 && language(&tool.name).is_some();
    let is_lines = |(name, schema): &(&str, &Value)| {
        only || LINES.contains(name) || schema.get("contentMediaType").is_some()
    };
    texts.into_iter().find(is_lines)
}

/// The parameters of `tool` without the argument that is written as the lines of a block.
pub(crate) fn others(tool: &Tool, lines: &str) -> Value {
    let mut parameters = tool.parameters.clone();
    if let Some(Value::Object(properties)) = parameters.get_mut("properties") {
        properties.shift_remove(lines);
    }
    if let Some(Value::Array(required)) = parameters.get_mut("required") {
        required.retain(|name| name != lines);
    }
    parameters
}

/// The parameters of `tool` where the argument that is usually the block's lines contains a fence.
pub(crate) fn fenced(tool: &Tool, lines: &str) -> Value {
    let mut parameters = tool.parameters.clone();
    let schema = parameters.get_mut("properties").and_then(|properties| properties.get_mut(lines));
    if let Some(Value::Object(schema)) = schema
        && let Value::Array(all) = schema.entry("allOf").or_insert_with(|| Value::Array(Vec::new()))
    {
        all.push(serde_json::json!({"pattern": FENCE}));
    }
    parameters
}

/// The arguments of a call of `tool`, from the first line of its block after the mark, and the
/// block's body.
pub(super) fn arguments(tool: &Tool, first_line: &str, body: &str) -> Option<Map<String, Value>> {
    let json = || match literal::value(body.trim()) {
        Some(Value::Object(arguments)) => Some(arguments),
        _ => body.trim().is_empty().then(Map::new),
    };
    match lines(tool) {
        Some((name, _)) if first_line != JSON => {
            // Anything else that models write there is a title, or doesn't matter.
            let mut arguments = match literal::value(first_line) {
                Some(Value::Object(arguments)) => arguments,
                _ => Map::new(),
            };
            arguments.insert(name.to_owned(), body.into());
            Some(arguments)
        }
        _ => json(),
    }
}

/// Renders a call as a block.
///
/// # Errors
/// If the arguments can't be written as JSON.
pub(super) fn render(tool: &str, arguments: &Map<String, Value>) -> serde_json::Result<String> {
    let mark = mark(tool);
    let only = arguments.len() == 1 && language(tool).is_some();
    let text =
        arguments.iter().find(|(name, value)| value.is_string() && (only || LINES.contains(&name.as_str())));
    let Some((name, Value::String(text))) = text else {
        return Ok(format!("{FENCE}{mark}\n{}{CLOSE}", dumps(arguments)?));
    };
    if text.contains(FENCE) {
        return Ok(format!("{FENCE}{mark} {JSON}\n{}{CLOSE}", dumps(arguments)?));
    }
    let mut others = arguments.clone();
    others.shift_remove(name);
    let others = if others.is_empty() { String::new() } else { format!(" {}", dumps(&others)?) };
    Ok(format!("{FENCE}{mark}{others}\n{text}{CLOSE}"))
}
