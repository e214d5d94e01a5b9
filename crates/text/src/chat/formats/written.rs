//! Calls in an answer's text: what a model writes where nobody reads its calls, or reads them in
//! another family's format, or in no format at all (`loose`).
//!
//! A call counts only at the end of the answer, complete, and of an offered tool.
//! A text about calls makes none.

use std::collections::BTreeMap;
use std::ops::Range;

use super::loose::{self, Fits, Loose};
use super::{Format, Layout, Parsed, Parser, Reasoning, Turn};
use crate::request::{Tool, ToolCall, ToolChoice};

/// Most bytes of text before a call that is one all the same.
/// Cost: an answer that long which ends with a call in earnest is asked about.
const PREFACE: usize = 2000;
/// How far behind an opener a tool's name may stand, in bytes.
const NEAR: usize = 120;
/// By what a message of harmony begins, beside the recipient of a call.
const MESSAGE: [&str; 2] = ["<|start|>", "<|channel|>"];

/// What an answer's text has of calls.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// The text ends with calls.
    Calls {
        /// The text before them, reasoning included.
        text: String,
        /// At least one, each of an offered tool and valid for its schema; without an id where the
        /// format has none.
        calls: Vec<ToolCall>,
    },
    /// Something looks like a call, but is none that could be made as it stands.
    Attempt {
        /// The offered tool that it names.
        tool: String,
    },
}

/// Looks for calls of `tools` in the text of a whole answer, in every format and in none; `None` =
/// it is an answer and nothing else.
/// `fits` says whether arguments are valid for a tool's parameters.
pub fn written(text: &str, tools: &[Tool], fits: Fits) -> Option<Written> {
    let (before, answer) = text.trim_end().split_at(reasoning(text.trim_end()));
    if tools.is_empty() {
        return None;
    }
    let attempt = attempt(answer, tools);
    let first = attempt.map_or(answer.len(), |(at, _)| at);
    let found = |at: usize, calls: Vec<ToolCall>| {
        let text = format!("{before}{}", &answer[..at]).trim_end().to_owned();
        Some(Written::Calls { text, calls })
    };
    if let Some((at, calls)) = in_a_format(answer, first, tools, fits) {
        return found(at, calls);
    }
    let attempt = attempt.map(|(_, tool)| Written::Attempt { tool: tool.to_owned() });
    match loose::find(answer, tools, fits) {
        // Nothing before calls that count may look like a call.
        Some(Loose::Calls { at, calls }) if at <= first && at <= PREFACE => found(at, calls),
        Some(Loose::Broken { at, tool }) if at <= first && at <= PREFACE => Some(Written::Attempt { tool }),
        _ => attempt,
    }
}

/// Calls in one of the formats, not behind the first thing that looks like one.
fn in_a_format(answer: &str, first: usize, tools: &[Tool], fits: Fits) -> Option<(usize, Vec<ToolCall>)> {
    let aside = aside(answer);
    let plain = |at: &usize| !aside.iter().any(|range| range.contains(at));
    // A block of code is a call only where the prompt says so.
    let formats = Format::all().iter().filter(|format| !format.in_fences());
    formats.into_iter().find_map(|format| {
        starts(format, answer).into_iter().filter(|at| *at <= first).filter(plain).find_map(|at| {
            let calls = only_calls(format, &answer[at..], tools)?;
            let valid = |call: &ToolCall| {
                let tool = tools.iter().find(|tool| tool.name == call.name);
                tool.is_some_and(|tool| fits(tool, &call.arguments))
            };
            calls.iter().all(valid).then_some((at, calls))
        })
    })
}

/// Where the first one is that looks like a call, and of which tool.
fn attempt<'a>(answer: &str, tools: &'a [Tool]) -> Option<(usize, &'a str)> {
    let aside = aside(answer);
    let plain = |at: &usize| !aside.iter().any(|range| range.contains(at));
    let found = attempts(answer).filter(plain).filter_map(|at| Some((at, named(&answer[at..], tools)?)));
    found.min_by_key(|(at, _)| *at)
}

/// The length of the reasoning that a text begins with, and of the space behind it.
fn reasoning(text: &str) -> usize {
    let marks = Format::all().iter().map(|format| format.thinking.close).filter(|close| close.contains('/'));
    let ends = marks.filter_map(|close| Some(text.rfind(close)? + close.len()));
    let end = ends.max().unwrap_or(0);
    text.len() - text[end..].trim_start().len()
}

/// Where calls of a format may begin, in order.
/// One that is marked by nothing but a brace begins the answer.
fn starts(format: &'static Format, text: &str) -> Vec<usize> {
    let (mut openers, mut last) = (MESSAGE.to_vec(), PREFACE);
    match format.layout {
        Layout::Messages => openers.push(format.opener()),
        Layout::TextOrObject => {
            openers = [&["{"], format.drops].concat();
            last = 0;
        }
        _ => openers = format.openers().map(|(opener, _)| opener).collect(),
    }
    let all = openers.into_iter().flat_map(|opener| text.match_indices(opener).map(|(at, _)| at));
    let mut starts: Vec<usize> = all.filter(|at| *at <= last).collect();
    starts.sort_unstable();
    starts
}

/// The calls of a text, if it consists of nothing else.
fn only_calls(format: &'static Format, text: &str, tools: &[Tool]) -> Option<Vec<ToolCall>> {
    let messages = format.layout == Layout::Messages;
    let mut parser = Parser::new(&Turn {
        format,
        tools: tools.to_vec(),
        tool_choice: ToolChoice::Auto,
        bound: BTreeMap::new(),
        parallel_tool_calls: true,
        reasoning: if messages { Reasoning::Optional } else { Reasoning::Never },
        thinking: messages.then_some(format.thinking),
        schema: None,
        grammar: None,
        string_limit: None,
        raw: false,
    });
    let mut parsed = parser.push(text);
    parsed.extend(parser.finish());
    let mut calls = Vec::new();
    for piece in parsed {
        match piece {
            Parsed::Delta { .. } | Parsed::Reasoning(_) => {}
            Parsed::ToolCall { id, name, arguments } => calls.push(ToolCall { id, name, arguments }),
            Parsed::Text(_) | Parsed::Incomplete { .. } => return None,
        }
    }
    // What follows a call of harmony is not told.
    let over = !messages || text.ends_with(['}', '>']);
    (over && !calls.is_empty()).then_some(calls)
}

/// The places of marks by which some format opens a call.
fn attempts(text: &str) -> impl Iterator<Item = usize> {
    let formats = Format::all().iter().filter(|format| !format.in_fences());
    let openers = formats.flat_map(|format| format.openers()).map(|(opener, _)| opener);
    openers.flat_map(|opener| text.match_indices(opener).map(|(at, _)| at))
}

/// The tool whose name stands near the beginning of a text as in calls: behind a mark or on a line
/// of its own.
fn named<'a>(text: &str, tools: &'a [Tool]) -> Option<&'a str> {
    let text = near(text);
    // A key for the name takes precedence over any other text.
    let key = text.split_once("\"name\"").map(|(_, value)| value.trim_start_matches([' ', ':', '"']));
    let part = |character: char| character.is_alphanumeric() || "_-".contains(character);
    let stands = |name: &str| {
        text.match_indices(name).any(|(at, _)| {
            let before = text[..at].chars().next_back().is_some_and(|before| !part(before) && before != ' ');
            before && !text[at + name.len()..].starts_with(part)
        })
    };
    let is = |name: &&str| match key {
        Some(value) => value.strip_prefix(*name).is_some_and(|rest| !rest.starts_with(part)),
        None => stands(name),
    };
    tools.iter().map(|tool| tool.name.as_str()).filter(|name| !name.is_empty()).find(is)
}

fn near(text: &str) -> &str {
    &text[..text.floor_char_boundary(NEAR)]
}

/// What of a text is told about rather than said: code, quoted lines, and whatever begins behind a
/// quotation mark.
fn aside(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut fence: Option<(&str, usize)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let (from, trimmed) = (at, line.trim_start());
        at += line.len();
        let marks = ["```", "~~~"].into_iter().find(|marks| trimmed.starts_with(marks));
        match (fence, marks) {
            (None, Some(marks)) => fence = Some((marks, from)),
            (Some((open, start)), Some(marks)) if open == marks => {
                found.push(start..at);
                fence = None;
            }
            (Some(_), _) => {}
            (None, None) if trimmed.starts_with('>') => found.push(from..at),
            (None, None) => {}
        }
    }
    found.extend(fence.map(|(_, start)| start..text.len()));
    // Spans of code end with as many marks as they begin with.
    let mut from = 0;
    while let Some(start) = text[from..].find('`').map(|at| from + at) {
        let marks = text[start..].len() - text[start..].trim_start_matches('`').len();
        let inner = start + marks;
        from = inner;
        if found.iter().any(|range: &Range<usize>| range.contains(&start)) {
            continue;
        }
        let mut rest = inner;
        while let Some(end) = text[rest..].find('`').map(|at| rest + at) {
            let run = text[end..].len() - text[end..].trim_start_matches('`').len();
            rest = end + run;
            if run == marks {
                found.push(start..rest);
                from = rest;
                break;
            }
        }
    }
    found.extend(
        text.match_indices(['"', '\'', '“', '„', '«', '‘']).map(|(at, mark)| at..at + mark.len() + 1),
    );
    found
}

#[cfg(test)]
#[path = "written_tests.rs"]
mod tests;
