//! Derives from a conversation's records what its next turn may do.
//!
//! It uses records alone, so that a replay and a resumed conversation give the same.

use alara_engine::{Format, Request, Tool, ToolCall, ToolChoice};
use serde_json::{Value, json};

use super::{About, Record};
use crate::calls::Calls;
use crate::types::ToolResult;

/// The format for the rest of a conversation whose model writes its calls as text.
const CODE: &str = "code";
const GENERIC: &str = "generic";
/// How many equal results of a call, with nothing new between them, forbid it in the next turn.
const REPEATED: usize = 2;
/// The temperature for a turn that may not repeat a call.
const DRAWN: f32 = 0.7;
/// Within how many characters a text must differ from one that was called in vain.
const BEGINNING: usize = 24;
/// Units of durations.
const UNITS: [&str; 5] = ["s", "ms", "sec", "secs", "seconds"];

/// The constraints on the next turn.
#[derive(Debug, Default)]
pub struct Steering<'a> {
    calls: Calls,
    /// The format that the conversation begins with, if it isn't the model's own.
    begins: Option<&'a str>,
    /// Whether one of its tools runs code.
    codes: bool,
    /// Whether a turn wrote its calls as text.
    strayed: bool,
    /// Whether the next turn must be a call.
    forced: bool,
    /// Whether the next turn must do something, so that it can't be the answer.
    acts: bool,
    /// Whether the next turn must be the answer.
    closing: bool,
    /// The calls since the last new result, with their results and how often these recurred.
    made: Vec<(&'a ToolCall, &'a ToolResult, usize)>,
}

impl<'a> Steering<'a> {
    /// Applies the next record.
    pub fn follow(&mut self, record: &'a Record) {
        match record {
            Record::Start(start) => {
                self.calls = start.calls;
                self.begins = start.tool_format.as_deref();
                self.codes = start.tools.iter().any(|tool| Format::runs_code(&tool.name));
            }
            Record::User { .. } => {
                (self.forced, self.acts, self.closing) = (false, false, false);
                self.made.clear();
            }
            Record::Hint { about, .. } => {
                self.forced = true;
                self.closing = *about == About::Closing;
                self.acts = !self.closing;
            }
            Record::Assistant { usage, .. } => {
                (self.forced, self.acts, self.closing) = (false, false, false);
                self.strayed |= usage.recovered.is_some();
            }
            Record::ToolResult { call, result, .. } => self.note(call, result),
            _ => {}
        }
    }

    fn note(&mut self, call: &'a ToolCall, result: &'a ToolResult) {
        let same = |made: &&mut (&ToolCall, &ToolResult, usize)| {
            made.0.name == call.name && made.0.arguments == call.arguments && alike(made.1, result)
        };
        match self.made.iter_mut().find(same) {
            Some(made) => {
                made.2 += 1;
                self.forced = true;
            }
            // After a new result, an earlier call may be tried again.
            None => {
                self.made.retain(|made| made.0.name != call.name || made.0.arguments != call.arguments);
                self.made.iter_mut().for_each(|made| made.2 = 1);
                self.made.push((call, result, 1));
            }
        }
    }

    /// The format of the next turn, if it isn't the model's own.
    /// A model that doesn't follow the format of its template is asked for blocks of code, which
    /// every model can write, or for calls constrained by a grammar.
    pub fn format(&self) -> Option<&'a str> {
        let strays = self.calls == Calls::Auto && self.strayed;
        if strays { Some(if self.codes { CODE } else { GENERIC }) } else { self.begins }
    }

    /// Whether the next turn must be a call.
    pub(crate) fn is_forced(&self) -> bool {
        match self.calls {
            Calls::Free => false,
            Calls::Auto => self.forced || self.format() == Some(GENERIC),
            Calls::Forced | Calls::Thought => true,
        }
    }

    /// The calls that the next turn can't make, since they gave nothing new.
    fn forbidden(&self) -> impl Iterator<Item = &'a ToolCall> {
        let steers = self.calls != Calls::Free;
        self.made.iter().filter(move |made| steers && made.2 >= REPEATED).map(|made| made.0)
    }

    /// The tool with which an NPC with `tools` answers in the next turn, if that must be a call.
    pub fn finish(&self, tools: &[Tool]) -> Option<String> {
        self.calls.finish(tools).filter(|_| self.is_forced() || self.closing)
    }

    /// Requires a call in the next turn, where the mode alone doesn't.
    pub fn force(&self, request: &mut Request) {
        if self.calls == Calls::Auto && !request.tools.is_empty() && (self.is_forced() || self.closing) {
            self.calls.force(request);
            // With another format, the prompt differs too.
            if self.format() == Some(GENERIC) {
                request.unlisted.clear();
            }
        }
    }

    /// Applies the constraints to the next turn.
    pub fn hold(&self, request: &mut Request) {
        if request.tools.is_empty() {
            return;
        }
        request.tool_format = self.format().map(str::to_owned);
        // In a forced turn, `finish` is the last of its tools.
        let forced = self.calls != Calls::Free && (self.is_forced() || self.closing);
        let finish = request.tools.last().map(|tool| tool.name.clone()).filter(|_| forced);
        if self.closing {
            request.tool_choice = finish.map_or(ToolChoice::None, ToolChoice::Named);
            return;
        }
        if let (true, ToolChoice::Required, Some(finish)) = (self.acts, &request.tool_choice, finish) {
            let names = request.tools.iter().map(|tool| tool.name.clone());
            let names = names.filter(|name| *name != finish).collect();
            request.tool_choice = ToolChoice::Among { names, required: true };
        }
        let forbidden: Vec<&ToolCall> = self.forbidden().collect();
        for tool in &request.tools {
            let calls: Vec<&ToolCall> =
                forbidden.iter().filter(|call| call.name == tool.name).copied().collect();
            if let (false, Some(parameters)) = (request.bound.contains_key(&tool.name), without(tool, &calls))
            {
                request.bound.insert(tool.name.clone(), vec![parameters]);
            }
        }
        if !forbidden.is_empty() {
            // Combined with a length, the regular expression of a text is too large to compile; the
            // limit on tokens applies all the same.
            request.string_limit = None;
            request.sampling.temperature = request.sampling.temperature.max(DRAWN);
        }
    }
}

/// Whether two results differ at most in durations.
pub(crate) fn alike(one: &ToolResult, other: &ToolResult) -> bool {
    let text = |text: &str| without_times(text);
    let output = |result: &ToolResult| {
        result.output.as_str().map(text).map_or_else(|| result.output.clone(), Value::from)
    };
    one == other
        || (one.ok, one.exit) == (other.ok, other.exit)
            && output(one) == output(other)
            && text(&one.stderr) == text(&other.stderr)
            && text(&one.error) == text(&other.error)
}

/// A text without the numbers of durations such as `0.002s` and `1.5 seconds`.
fn without_times(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let length = from.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(from.len());
        let (number, after) = from.split_at(length);
        let unit = after.trim_start_matches(' ');
        let unit = &unit[..unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len())];
        out += before;
        if !(number.contains('.') && UNITS.contains(&unit)) {
            out += number;
        }
        rest = after;
    }
    out + rest
}

/// The parameters of a tool without these calls of it; `None` if they don't change.
/// The longest text of such a call must begin differently: a model that may write nearly all of it
/// again will do so.
fn without(tool: &Tool, calls: &[&ToolCall]) -> Option<Value> {
    let mut parameters = tool.parameters.clone();
    let mut changed = false;
    for call in calls.iter().filter(|_| !tool.strict) {
        let texts = call.arguments.iter().filter_map(|(key, value)| Some((key, value.as_str()?.trim())));
        let Some((key, text)) = texts.max_by_key(|(_, text)| text.len()) else { continue };
        let schema = parameters.get_mut("properties").and_then(|properties| properties.get_mut(key));
        let Some(Value::Object(schema)) = schema.filter(|_| !text.is_empty()) else { continue };
        let Value::Array(all) = schema.entry("allOf").or_insert_with(|| json!([])) else { continue };
        all.push(json!({"pattern": begins_otherwise(text)}));
        changed = true;
    }
    changed.then_some(parameters)
}

/// A regular expression for texts that begin differently from this one, ignoring leading blanks.
fn begins_otherwise(text: &str) -> String {
    let length = text.chars().count().div_ceil(2).min(BEGINNING);
    let first: Vec<String> = text.chars().take(length).map(escaped).collect();
    // From the inside: each character is followed by another text, or by nothing.
    let others = first.iter().enumerate().rev().fold(String::new(), |after, (index, character)| {
        let blank = if index == 0 { r"\s" } else { "" };
        let same = if after.is_empty() { after } else { format!("|{character}{after}") };
        format!(r"(?:[^{character}{blank}][\s\S]*{same})?")
    });
    format!(r"^\s*{others}$")
}

fn escaped(character: char) -> String {
    match character {
        '\n' => r"\n".to_owned(),
        '\t' => r"\t".to_owned(),
        '\r' => r"\r".to_owned(),
        character if character.is_ascii_punctuation() => format!("\\{character}"),
        character => character.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use regex_automata::meta::Regex;

    use super::*;

    #[test]
    fn another_beginning() {
        for (one, other, alike) in [
            ("Ran 3 tests in 0.002s", "Ran 3 tests in 0.1s", true),
            ("took 1.5 seconds", "took 2.25 seconds", true),
            ("3 tests in 0.002s", "4 tests in 0.002s", false),
            ("1.5 apples", "2.5 apples", false),
            ("job 1 at 0.5 %", "job 1 at 0.7 %", false),
        ] {
            assert_eq!(without_times(one) == without_times(other), alike, "{one}, {other}");
        }
        for text in ["ls", "git tag v1.0 && git push", "a\nb", &"grep -c 'x[1]' a^b | ".repeat(20)] {
            let regex = Regex::new(&begins_otherwise(text)).unwrap();
            for same in [text.to_owned(), format!("  {text}"), format!("{text} -l")] {
                assert!(!regex.is_match(&same), "{same}");
            }
            let others = [format!("cd x; {text}"), text.replacen(char::is_alphabetic, "_", 1), String::new()];
            for other in others {
                assert!(regex.is_match(&other), "{other:?} beside {text:?}");
            }
        }
    }
}
