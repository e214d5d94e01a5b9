//! Calls in an answer's text: those that a model writes when no tools are parsed, in another
//! family's format, or in no format at all (`loose`).
//!
//! A call counts only if it is complete, ends the answer, and names an offered tool.
//! A text about calls contains none.

use std::collections::BTreeMap;
use std::ops::Range;

use super::loose::{self, Fits, Loose};
use super::{Format, Layout, Parsed, Parser, Reasoning, Turn};
use crate::request::{Tool, ToolCall, ToolChoice};

/// The most bytes of text that may precede a call.
/// Cost: a longer answer that ends with a genuine call needs a confirmation.
const PREFACE: usize = 2000;
/// How far after an opener a tool's name may be, in bytes.
const NEAR: usize = 120;
/// Texts that begin a harmony message, apart from the recipient of a call.
const MESSAGE: [&str; 2] = ["<|start|>", "<|channel|>"];

/// The calls in an answer's text.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// The text ends with calls.
    Calls {
        /// The text before them, reasoning included.
        text: String,
        /// At least one, each of an offered tool and valid for its schema; the id is empty where
        /// the format has none.
        calls: Vec<ToolCall>,
    },
    /// The text contains something like a call that can't be executed as written.
    Attempt {
        /// The offered tool that it names.
        tool: String,
    },
}

/// Looks for calls of `tools` in the text of a whole answer, in every format and in none.
/// `None` if it is only an answer.
/// `fits` tests whether arguments are valid for a tool's parameters.
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
        // Nothing that looks like a call may precede calls that count.
        Some(Loose::Calls { at, calls }) if at <= first && at <= PREFACE => found(at, calls),
        Some(Loose::Broken { at, tool }) if at <= first && at <= PREFACE => Some(Written::Attempt { tool }),
        _ => attempt,
    }
}

/// Calls in one of the formats that don't come after the first apparent call.
fn in_a_format(answer: &str, first: usize, tools: &[Tool], fits: Fits) -> Option<(usize, Vec<ToolCall>)> {
    let aside = aside(answer);
    let plain = |at: &usize| !aside.iter().any(|range| range.contains(at));
    // A block of code is a call only if the prompt described that.
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

/// The position of the first apparent call, and its tool.
fn attempt<'a>(answer: &str, tools: &'a [Tool]) -> Option<(usize, &'a str)> {
    let aside = aside(answer);
    let plain = |at: &usize| !aside.iter().any(|range| range.contains(at));
    let found = attempts(answer).filter(plain).filter_map(|at| Some((at, named(&answer[at..], tools)?)));
    found.min_by_key(|(at, _)| *at)
}

/// The length of the reasoning at the beginning of a text, with the whitespace after it.
fn reasoning(text: &str) -> usize {
    let marks = Format::all().iter().map(|format| format.thinking.close).filter(|close| close.contains('/'));
    let ends = marks.filter_map(|close| Some(text.rfind(close)? + close.len()));
    let end = ends.max().unwrap_or(0);
    text.len() - text[end..].trim_start().len()
}

/// Where calls of a format may begin, in order.
/// A call marked only by a brace must begin the answer.
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

/// The calls of a text that consists only of calls.
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
    // It is unknown where a harmony call ends.
    let over = !messages || text.ends_with(['}', '>']);
    (over && !calls.is_empty()).then_some(calls)
}

/// The positions of marks by which any format opens a call.
fn attempts(text: &str) -> impl Iterator<Item = usize> {
    let formats = Format::all().iter().filter(|format| !format.in_fences());
    let openers = formats.flat_map(|format| format.openers()).map(|(opener, _)| opener);
    openers.flat_map(|opener| text.match_indices(opener).map(|(at, _)| at))
}

/// The tool whose name is near the beginning of a text as in calls: after a mark or on its own
/// line.
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

/// The parts of a text that quote rather than state: code, quoted lines, and anything after a
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
    // A code span ends with as many marks as it begins with.
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
