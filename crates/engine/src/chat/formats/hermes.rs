//! Hermes and Qwen: `<tool_call>\n{"name": "f", "arguments": {…}}\n</tool_call>`, one such block a call.
//!
//! Source: the chat templates of Qwen3 and Hermes 2 Pro. Generated calls have the separators of their `tojson`, so that
//! a call equals its rendering in the next turn's history.

use serde_json::{Map, Value};

use super::{END_THINK, Read, Reasoning, Scan, THINK, Turn};
use crate::chat::json::dumps;
use crate::request::{ToolCall, ToolChoice};

pub(super) const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// Other families put XML or lists into the same tag, so what matters is the first word that the template shows inside
/// it, past the braces and quotes of JSON and Jinja.
pub(super) fn detect(template: &str) -> bool {
    let glue = |character: char| character.is_whitespace() || "{}\"'\\-".contains(character);
    let word = |inside: &str| inside.trim_start_matches("\\n").trim_start_matches(glue).starts_with("name");
    template.split(OPEN).skip(1).any(word)
}

pub(super) fn render_call(call: &ToolCall) -> serde_json::Result<String> {
    let (name, arguments) = (dumps(&call.name)?, dumps(&call.arguments)?);
    Ok(format!("{OPEN}\n{{\"name\": {name}, \"arguments\": {arguments}}}\n{CLOSE}"))
}

pub(super) fn read_call(text: &str, scan: &mut Scan) -> Read {
    let Some(start) = text.find(|character: char| !character.is_whitespace()) else {
        return Read::Unfinished;
    };
    if !text[start..].starts_with('{') {
        return Read::NotACall;
    }
    let Some(end) = scan.json_end(text, start) else { return Read::Unfinished };
    let tail = text[end..].trim_start();
    if !tail.starts_with(CLOSE) {
        return if CLOSE.starts_with(tail) { Read::Unfinished } else { Read::NotACall };
    }
    match name_and_arguments(&text[start..end]) {
        Some((name, arguments)) => {
            Read::Call { length: text.len() - tail.len() + CLOSE.len(), name, arguments }
        }
        None => Read::NotACall,
    }
}

/// Accepts what models make of the format when no grammar holds them: keys in any order, no arguments at all, and
/// arguments as JSON in a string.
fn name_and_arguments(object: &str) -> Option<(String, Map<String, Value>)> {
    let mut object: Map<String, Value> = serde_json::from_str(object).ok()?;
    let Value::String(name) = object.remove("name")? else { return None };
    let arguments = match object.remove("arguments") {
        None => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(Value::String(text)) => serde_json::from_str(&text).ok()?,
        Some(_) => return None,
    };
    Some((name, arguments))
}

/// Lark for one turn. A marker that is one token is matched by its id, so that text which merely reads like it can't
/// take its place; free text contains no marker at all, so a call in it would be a call by the grammar.
pub(super) fn grammar(turn: &Turn, schemas: &[Value], token: &dyn Fn(&str) -> Option<u32>) -> String {
    let marker = |text: &str| token(text).map_or_else(|| literal(text), |id| format!("<[{id}]>"));
    let calls = match turn.tool_choice {
        ToolChoice::None => Calls::None,
        ToolChoice::Auto => Calls::Optional,
        ToolChoice::Required | ToolChoice::Named(_) => Calls::Required,
    };

    let mut rules = Vec::new();
    let after_thought = if calls == Calls::Required { literal("\n\n") } else { String::new() };
    let reasoning = match turn.reasoning {
        Reasoning::Never => String::new(),
        Reasoning::Optional => format!("({} thought {after_thought})?", marker(THINK)),
        Reasoning::Open => format!("thought {after_thought}"),
    };
    if turn.reasoning != Reasoning::Never {
        rules.push(match token(END_THINK) {
            Some(id) => format!("thought: THOUGHT? <[{id}]>\nTHOUGHT: {}", without(&[END_THINK])),
            None => format!("thought[suffix={}]: /(?s:.*)/", literal(END_THINK)),
        });
    }
    // Any opener in the text would be read as one, and a second reasoning block would swallow calls.
    let text = without(&[OPEN, THINK]);
    rules.push(match (calls, token(OPEN)) {
        (Calls::None, _) => format!("start: {reasoning} TEXT?\nTEXT: {text}"),
        (Calls::Required, _) => format!("start: {reasoning} open calls"),
        (Calls::Optional, Some(_)) => format!("start: {reasoning} TEXT? (open calls)?\nTEXT: {text}"),
        (Calls::Optional, None) => {
            let suffix = literal(OPEN);
            let lead = without(&[THINK]).replacen('+', "*", 1);
            format!("start: {reasoning} (TEXT? | lead calls)\nTEXT: {text}\nlead[suffix={suffix}]: {lead}")
        }
    });
    if calls != Calls::None {
        let repeat = if turn.parallel_tool_calls { r#"("\n" open call)*"# } else { "" };
        rules.push(format!("open: {}", marker(OPEN)));
        rules.push(format!("calls: call {repeat}"));
        rules.push(format!("call: \"\\n\" body \"\\n\" {}", marker(CLOSE)));
        let names: Vec<String> = (0..schemas.len()).map(|index| format!("call_{index}")).collect();
        rules.push(format!("body: {}", names.join(" | ")));
        for (index, (tool, schema)) in turn.permitted().zip(schemas).enumerate() {
            let head = literal(&format!("{{\"name\": {}, \"arguments\": ", Value::from(tool.name.as_str())));
            rules.push(format!(
                "call_{index}: {head} arguments_{index} \"}}\"\narguments_{index}: %json {schema}"
            ));
        }
    }
    rules.join("\n")
}

#[derive(Clone, Copy, PartialEq)]
enum Calls {
    None,
    Optional,
    Required,
}

/// A Lark string.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// A Lark terminal: some text that contains none of the markers.
fn without(markers: &[&str]) -> String {
    let exclude = |marker: &&str| format!(" & ~/(?s:.*){}(?s:.*)/", marker.replace('/', r"\/"));
    format!("/(?s:.+)/{}", markers.iter().map(exclude).collect::<String>())
}
