//! From a turn to its grammar, as Lark for llguidance: reasoning, then text or calls.
//!
//! Walks the same [`Format`](crate::chat::Format) as the parser and the rendering.
//! A marker that is one token is matched by its id, so that text which merely reads like it can't
//! take its place.
//! Free text contains nothing that the parser would take for a marker, so a call in it would be a
//! call by the grammar.

use serde_json::Value;

use super::arguments::{Rules, Term};
use super::cost::Judge;
use super::{GrammarError, schema};
use crate::chat::Turn;
use crate::chat::formats::{Encoding, Layout, Piece, Reasoning, fences};
use crate::request::Tool;

/// Most calls of a turn that must call.
const FORCED_CALLS: usize = 8;

/// Gives the id of a text that is a single control or user-defined token.
pub(super) type Token<'a> = &'a dyn Fn(&str) -> Option<u32>;

/// The grammar of `turn`, and what of its tools' schemas is left out of it.
/// `judge` says which lexemes cost too much.
///
/// # Errors
/// If a tool can't be expressed in the turn's format, or its schema can't be honoured.
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
        // A grammar within this one: its names are its own.
        rules.add("answer", &format!("%lark {{\n{grammar}\n}}"));
        return Ok((rules.into_text(), Vec::new()));
    }
    // At the start of a turn the parser knows the marks of reasoning even if they are cut short.
    let open = turn.thinking.map(|marks| marks.open.trim_end());
    let close = turn.thinking.filter(|_| turn.reasoning != Reasoning::Never).map(|marks| marks.close);
    let marks = turn.reserved();
    let reserved: Vec<&str> = marks.iter().map(|mark| &**mark).chain(open).chain(close).collect();
    let any_text = match layout {
        // What begins like a call, with any of the keys that the parser knows or with one that has
        // an escape, is none.
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
    // Free text can be told from an opener that is a token of its own.
    let distinct = opener.is_empty() || open.starts_with("<[");
    let body = match (must, layout) {
        (true, Layout::TextAlwaysAndCalls) => format!("{before} {after} {open} tail"),
        (true, _) => format!("{open} tail"),
        (false, Layout::Messages | Layout::TextOrObject) => format!("({before} TEXT? {after} | {open} tail)"),
        (false, _) if distinct => format!("{before} TEXT? {after} ({open} tail)?"),
        (false, _) => {
            // Text up to the opener and the opener itself are one lexeme.
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

/// The part of the start rule that is reasoning.
/// `gap` says whether what follows doesn't begin with free text, so that the gap of the template
/// has to be spelled out.
fn reasoning(turn: &Turn, gap: bool, rules: &mut Rules) -> String {
    let (Some(thinking), true) = (turn.thinking, turn.reasoning != Reasoning::Never) else {
        return String::new();
    };
    let gap = if gap { rules.literal(thinking.gap) } else { String::new() };
    let close = rules.literal(thinking.close);
    // What the parser would take for a call, or for the end of the message.
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

/// A block that is a call of a tool, or, unless one must be there, any text.
/// Text up to a block and what marks it are one lexeme, for each mark with what follows it.
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
    // The token that closes a block may end the line as well.
    rules.add("END_OF_BLOCK", "/[ \\n]{1,4}/");
    let body = format!("({}) END_OF_BLOCK?", blocks.join(" | "));
    Ok(if must { body } else { format!("({body} | TEXT?)") })
}

/// The tool as it may be called: with each of the schemas that it is bound to.
fn bound(turn: &Turn, tool: &Tool) -> Vec<Tool> {
    let bound = turn.bound.get(&tool.name).map(|schemas| {
        schemas.iter().map(|schema| Tool { parameters: schema.clone(), ..tool.clone() }).collect()
    });
    bound.unwrap_or_else(|| vec![tool.clone()])
}

/// All calls of a turn, behind the opener.
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
    // A turn that must call has no other end.
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

/// The parts of a call, without the opener where each call has its own.
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
            // Blocks have a grammar of their own.
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
    // llguidance's strings have no such character, and JSON doesn't escape it.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A Lark regular expression for text that contains none of the markers, as often as `repeat` says.
pub(super) fn without(markers: &[&str], repeat: char) -> String {
    let any = format!("/(?s:.{repeat})/");
    if markers.is_empty() {
        return any;
    }
    // One complement of all: an intersection of many has very many states.
    let markers: Vec<String> = markers.iter().map(|marker| escape(marker)).collect();
    format!("{any} & ~/(?s:.*)({})(?s:.*)/", markers.join("|"))
}

/// `text` as a regular expression that matches nothing else.
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
