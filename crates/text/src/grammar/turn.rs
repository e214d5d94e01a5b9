//! Converts a turn to a Lark grammar for llguidance: reasoning, then text or calls.
//!
//! Uses the same [`Format`](crate::chat::Format) as the parser and the rendering.
//! A marker that is one token is matched by its id, so that ordinary text with the same spelling
//! can't take its place.
//! Free text contains no text that the parser would take for a marker, so every call is a call in
//! the grammar too.

use serde_json::Value;

use super::arguments::{Rules, Term};
use super::cost::Judge;
use super::{GrammarError, schema};
use crate::chat::Turn;
use crate::chat::formats::{Encoding, Layout, Piece, Reasoning, fences};
use crate::request::Tool;

/// Most calls in a turn that must call.
const FORCED_CALLS: usize = 8;

/// Returns the id of a text that is a single control or user-defined token.
pub(super) type Token<'a> = &'a dyn Fn(&str) -> Option<u32>;

/// The grammar of `turn`, and the constraints of its tools' schemas that it leaves out.
/// `judge` decides which lexemes are too expensive.
///
/// # Errors
/// If a tool can't be expressed in the turn's format, or its schema can't be enforced.
pub(super) fn lark(turn: &Turn, token: Token, judge: Judge) -> Result<(String, Vec<String>), GrammarError> {
    let mut rules = Rules::new(token, judge);
    rules.string_limit = turn.string_limit;
    let layout = turn.format.layout;
    let permitted: Vec<&Tool> = turn.permitted().collect();
    let must = turn.must_call();

    let gap = must || turn.has_shape() || layout == Layout::Messages;
    let reasoning = reasoning(turn, gap, &mut rules);
    let (before, after) = if turn.raw { ("", "") } else { turn.format.answer };
    let (before, after) = (rules.literal(before), rules.literal(after));
    if let Some(schema) = &turn.schema {
        rules.add("start", &format!("{reasoning} {before} answer {after}"));
        let refused = |refusal| GrammarError::Schema { refusal };
        let written = schema::strict(schema).map_err(refused)?;
        let value = rules.json(&written).map_err(refused)?;
        rules.add("answer", &value);
        return Ok((rules.into_text(), Vec::new()));
    }
    if let Some(grammar) = &turn.grammar {
        rules.add("start", &format!("{reasoning} {before} answer {after}"));
        // A nested grammar with its own names.
        rules.add("answer", &format!("%lark {{\n{grammar}\n}}"));
        return Ok((rules.into_text(), Vec::new()));
    }
    // At the start of a turn the parser recognizes reasoning marks even without trailing
    // whitespace.
    let open = turn.thinking.map(|marks| marks.open.trim_end());
    let close = turn.thinking.filter(|_| turn.reasoning != Reasoning::Never).map(|marks| marks.close);
    let marks = turn.reserved();
    let reserved: Vec<&str> = marks.iter().map(|mark| &**mark).chain(open).chain(close).collect();
    let any_text = match layout {
        // Free text must not begin like a call, with any of the keys that the parser knows or with
        // an escaped key.
        Layout::TextOrObject if !permitted.is_empty() => {
            let call = r#" & ~/\s*\{\s*"([^"\\]*\\|(name|parameters|arguments|type|id)")(?s:.*)/"#;
            format!("{}{call}", without(&reserved, '+'))
        }
        _ => without(&reserved, '+'),
    };
    if permitted.is_empty() {
        rules.add("start", &format!("{reasoning} {before} TEXT? {after}"));
        rules.add("TEXT", &any_text);
        return Ok((rules.into_text(), Vec::new()));
    }

    if turn.format.in_fences() {
        let blocks = blocks(turn, &permitted, must, &reserved, &mut rules)?;
        rules.add("start", &format!("{reasoning} {blocks}"));
        if !must {
            rules.add("TEXT", &any_text);
        }
        let loosened = std::mem::take(&mut rules.loosened);
        return Ok((rules.into_text(), loosened));
    }
    let opener = turn.format.opener();
    let open = rules.literal(turn.format.opening());
    let tail = tail(turn, &permitted, &mut rules)?;
    rules.add("tail", &tail);
    // An opener that is a token can't be confused with free text.
    let distinct = opener.is_empty() || open.starts_with("<[");
    let body = match (must, layout) {
        (true, Layout::TextAlwaysAndCalls) => format!("{before} {after} {open} tail"),
        (true, _) => format!("{open} tail"),
        (false, Layout::Messages | Layout::TextOrObject) => format!("({before} TEXT? {after} | {open} tail)"),
        (false, _) if distinct => format!("{before} TEXT? {after} ({open} tail)?"),
        (false, _) => {
            // The text up to the opener and the opener itself are one lexeme.
            rules.add(&format!("lead[suffix={}]", quote(opener)), &without(&reserved[1..], '*'));
            "(TEXT? | lead tail)".to_owned()
        }
    };
    rules.add("start", &format!("{reasoning} {body}"));
    if !must {
        rules.add("TEXT", &any_text);
    }
    let loosened = std::mem::take(&mut rules.loosened);
    Ok((rules.into_text(), loosened))
}

/// The part of the start rule for reasoning.
/// With `gap`, no free text follows, so that the template's gap has to be spelled out.
fn reasoning(turn: &Turn, gap: bool, rules: &mut Rules) -> String {
    let (Some(thinking), true) = (turn.thinking, turn.reasoning != Reasoning::Never) else {
        return String::new();
    };
    let gap = if gap { rules.literal(thinking.gap) } else { String::new() };
    let close = rules.literal(thinking.close);
    // Texts that the parser would take for a call, or for the end of the message.
    let ends = turn.format.ends_reasoning || turn.format.layout == Layout::Messages;
    let marks = turn.reserved();
    let calls: Vec<&str> = marks.iter().map(|mark| &**mark).filter(|_| ends).collect();
    if close.starts_with("<[") {
        rules.add("thought", &format!("THOUGHT? {close}"));
        rules.add("THOUGHT", &without(&[calls.as_slice(), &[thinking.close]].concat(), '+'));
    } else {
        rules.add(&format!("thought[suffix={}]", quote(thinking.close)), &without(&calls, '*'));
    }
    match turn.reasoning {
        Reasoning::Open => format!("thought {gap}"),
        _ => format!("({} thought {gap})?", rules.literal(thinking.open)),
    }
}

/// A block that calls a tool, or, unless a call is required, any text.
/// The text up to a block and the block's mark are one lexeme, one for each mark and its
/// continuation.
fn blocks(
    turn: &Turn,
    permitted: &[&Tool],
    must: bool,
    reserved: &[&str],
    rules: &mut Rules,
) -> Result<String, GrammarError> {
    let mut blocks = Vec::new();
    for tool in permitted {
        if let Some(reason) = turn.format.refusal(tool) {
            return Err(GrammarError::Name { tool: tool.name.clone(), reason });
        }
        for tool in bound(turn, tool) {
            for (mark, body) in rules.block(&tool)? {
                let mark = format!("{}{}{mark}", fences::FENCE, fences::mark(&tool.name));
                blocks.push(match must {
                    true => format!("{} {body}", rules.literal(&mark)),
                    false => {
                        let lead = format!("lead_{}", blocks.len());
                        rules.add(&format!("{lead}[suffix={}]", quote(&mark)), &without(reserved, '*'));
                        format!("{lead} {body}")
                    }
                });
            }
        }
    }
    // The token that closes a block may also end the line.
    rules.add("END_OF_BLOCK", "/[ \\n]{1,4}/");
    let body = format!("({}) END_OF_BLOCK?", blocks.join(" | "));
    Ok(if must { body } else { format!("({body} | TEXT?)") })
}

/// The tool once for each schema that replaces its own.
fn bound(turn: &Turn, tool: &Tool) -> Vec<Tool> {
    let bound = turn.bound.get(&tool.name).map(|schemas| {
        schemas.iter().map(|schema| Tool { parameters: schema.clone(), ..tool.clone() }).collect()
    });
    bound.unwrap_or_else(|| vec![tool.clone()])
}

/// All calls of a turn, after the opener.
fn tail(turn: &Turn, permitted: &[&Tool], rules: &mut Rules) -> Result<String, GrammarError> {
    let format = turn.format;
    let mut calls = Vec::new();
    for (index, tool) in permitted.iter().enumerate() {
        if permitted[..index].iter().any(|other| other.name == tool.name) {
            let reason = "there are two tools of this name".to_owned();
            return Err(GrammarError::Name { tool: tool.name.clone(), reason });
        }
        if let Some(reason) = format.refusal(tool) {
            return Err(GrammarError::Name { tool: tool.name.clone(), reason });
        }
        for tool in bound(turn, tool) {
            let parts = call(turn, &tool, rules)?;
            let body = rules.sequence(&parts);
            let name = format!("call_{}", calls.len());
            rules.add(&name, &body);
            calls.push(name);
        }
    }
    rules.add("call", &calls.join(" | "));
    let several =
        turn.parallel_tool_calls && !matches!(format.layout, Layout::Messages | Layout::TextOrObject);
    // A turn that must call has no other limit.
    let often = if turn.must_call() { format!("{{0,{}}}", FORCED_CALLS - 1) } else { "*".to_owned() };
    let (separator, close) = (rules.literal(format.calls.separator), rules.literal(format.calls.close));
    if format.calls.open.is_empty() {
        let opener = rules.literal(format.opening());
        let more = if several { format!("({separator} {opener} call){often}") } else { String::new() };
        return Ok(format!("call {more} {close}"));
    }
    let rest = rules.literal(format.calls.open.strip_prefix(format.opening()).unwrap_or_default());
    let more = if several { format!("({separator} call){often}") } else { String::new() };
    Ok(format!("{rest} call {more} {close}"))
}

/// The parts of a call, without the opener if each call has its own.
fn call(turn: &Turn, tool: &Tool, rules: &mut Rules) -> Result<Vec<Term>, GrammarError> {
    let format = turn.format;
    let mut parts = Vec::new();
    for (at, piece) in format.call.iter().enumerate() {
        match piece {
            Piece::Text(text) if at == 0 && format.calls.open.is_empty() => {
                let rest = text.strip_prefix(format.opening()).unwrap_or(text);
                parts.push(Term::Literal(rest.into()));
            }
            Piece::Text(text) => parts.push(Term::Literal((*text).into())),
            Piece::Name => parts.push(Term::Literal(tool.name.clone())),
            Piece::Id { length } => parts.push(Term::Rule(id(*length))),
            Piece::NumberedId => {
                parts.push(Term::Literal(format!("functions.{}:", tool.name)));
                parts.push(Term::Rule("/[0-9]{1,4}/".into()));
            }
            // Blocks have a separate grammar.
            Piece::Language => {}
            Piece::Number => parts.push(Term::Rule("/[1-9][0-9]{0,3}/".into())),
            Piece::Object(keys) => {
                let head =
                    format!("{{{}: {}, {}: ", quote(keys.name), quote(&tool.name), quote(keys.arguments));
                parts.push(Term::Literal(head));
                parts.extend(rules.arguments(Encoding::Json, tool, format)?);
                if let Some((key, length)) = keys.id {
                    parts.push(Term::Literal(format!(", {}: \"", quote(key))));
                    parts.push(Term::Rule(id(length)));
                    parts.push(Term::Literal("\"".into()));
                }
                parts.push(Term::Literal("}".into()));
            }
            Piece::Arguments(encoding) => parts.extend(rules.arguments(*encoding, tool, format)?),
        }
    }
    Ok(parts)
}

fn id(length: usize) -> String {
    format!("/[a-zA-Z0-9]{{{length}}}/")
}

/// A Lark string.
pub(super) fn quote(text: &str) -> String {
    // llguidance's strings don't permit this character, and JSON doesn't escape it.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A Lark regular expression for text without any of the markers, repeated as in `repeat`.
pub(super) fn without(markers: &[&str], repeat: char) -> String {
    let any = format!("/(?s:.{repeat})/");
    if markers.is_empty() {
        return any;
    }
    // One complement of all: an intersection of many would have too many states.
    let markers: Vec<String> = markers.iter().map(|marker| escape(marker)).collect();
    format!("{any} & ~/(?s:.*)({})(?s:.*)/", markers.join("|"))
}

/// `text` as a regular expression that matches only this text.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => escaped.push_str("\\n"),
            _ if r"\.+*?()|[]{}^$/&-~#".contains(character) => escaped.extend(['\\', character]),
            _ => escaped.push(character),
        }
    }
    escaped
}
