//! What people see of an agent at work, and how calls, results and costs are put in a line.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::path::Path;

use alara_engine::{Event, ToolCall, Usage};
use alara_harness::{Notice, ToolResult};
use serde_json::{Map, Value};

use crate::ui;

/// How many lines of a tool's output are shown while it works.
const SHOWN_LINES: usize = 6;
/// How many characters of an argument or a line are shown.
const SHOWN_CHARACTERS: usize = 120;

/// Shows on stderr what an agent does.
#[derive(Default)]
pub struct Progress {
    /// How many turns there were in the conversation that the run began with.
    pub turns: usize,
    /// How many calls.
    pub calls: usize,
    /// Whether the cursor stands behind streamed text.
    within_line: bool,
}

impl Progress {
    /// Whether the streamed text is all that a person at a terminal needs to see.
    pub fn is_on_screen() -> bool {
        std::io::stdout().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Shows what happens.
    pub fn show(&mut self, notice: &Notice) {
        match notice {
            Notice::Turn { depth: 0, turn, .. } => self.turns = *turn,
            // Others speak on a line of their own.
            Notice::Turn { npc, depth, turn: 1 } => {
                self.end_line();
                let who = if npc.is_empty() { "the model" } else { npc };
                ui::note(&format!("{}{}:", "  ".repeat(depth.saturating_sub(1)), printable(who)));
            }
            Notice::Event { event: Event::Text { text } | Event::Reasoning { text }, .. } => {
                ui::piece(&printable(text));
                self.within_line = !text.ends_with('\n') && (self.within_line || !text.is_empty());
            }
            Notice::Event { event: Event::Incomplete { name, .. }, .. } => {
                self.end_line();
                ui::note(&format!("the call of {name} was cut off, and is not made"));
            }
            Notice::Call { call, .. } => {
                self.end_line();
                self.calls += 1;
                ui::note(&format!("> {}", call_line(call)));
            }
            Notice::Result { result, took, .. } => {
                self.end_line();
                ui::note(&format!("  {}", verdict(result, took.as_secs_f64())));
                ui::piece(&excerpt(result));
            }
            Notice::Emit(response) => {
                self.end_line();
                ui::note(&format!("* {}", response_line(response)));
            }
            Notice::Warning(text) => {
                self.end_line();
                ui::note(&format!("warning: {}", printable(text)));
            }
            Notice::Unchanged { what, nobody } => {
                self.end_line();
                ui::note(&not_done(what, *nobody));
            }
            Notice::Job { job, call, ended } => {
                self.end_line();
                ui::note(&printable(&job_line(*job, call, *ended)));
            }
            Notice::Compaction { messages } => {
                self.end_line();
                ui::note(&format!("({} summed up, to fit the context)", count(*messages, "earlier message")));
            }
            Notice::Turn { .. } | Notice::Event { .. } => {}
        }
    }

    /// Ends a line of streamed text, so that another one can begin.
    pub fn end_line(&mut self) {
        if self.within_line {
            ui::note("");
            self.within_line = false;
        }
    }

    /// What it all took, in one line.
    pub fn summary(&self, usage: &Usage, trace: Option<&Path>) -> String {
        let mut text = format!("{}, {}; ", count(self.turns, "turn"), count(self.calls, "tool call"));
        text += &prompt(usage);
        text += &generated(usage);
        if let Some(path) = trace {
            text += &format!("; trace {}", path.display());
        }
        text
    }
}

/// That nothing was changed, and how it could be.
pub fn not_done(what: &str, nobody: bool) -> String {
    let hint = if nobody { ": nobody is there to be asked; --yes permits it" } else { "" };
    format!("  not done, no file was changed: it {}{hint}", printable(what))
}

/// What becomes of a job, in one line.
pub fn job_line(job: usize, call: &str, ended: Option<&str>) -> String {
    match ended {
        None => format!("  job {job} runs in the background: {call}"),
        Some(how) => format!("  job {job} is over, {how}: {call}"),
    }
}

/// A response of a jinx in one line.
pub fn response_line(response: &Value) -> String {
    let content = match &response["content"] {
        Value::Null => "(removed)".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let kind = response["type"].as_str().unwrap_or("response");
    format!("{}: {}", printable(kind), printable(&shorten(&content)))
}

/// So many of them, in words.
pub fn count(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// How many tokens the prompts had, and how many of them were not computed.
pub fn prompt(usage: &Usage) -> String {
    let cached = match usage.disk_tokens {
        0 => format!("{} cached", usage.cached_tokens),
        disk => format!("{} cached, {disk} of them from disk", usage.cached_tokens),
    };
    format!("{} ({cached}), ", count(usage.prompt_tokens, "prompt token"))
}

/// How many tokens were generated, how fast, and how many draft tokens were accepted.
pub fn generated(usage: &Usage) -> String {
    let generated = match usage.tokens_per_second() {
        Some(speed) => format!("{} generated at {speed:.1} tokens/s", usage.completion_tokens),
        None => format!("{} generated", usage.completion_tokens),
    };
    match usage.drafts.drafted {
        0 => generated,
        drafted => format!("{generated} ({} of {drafted} draft tokens accepted)", usage.drafts.accepted),
    }
}

/// How a call ended: whether it succeeded, and after how many seconds.
pub fn verdict(result: &ToolResult, seconds: f64) -> String {
    let verdict = match (result.ok, result.exit) {
        (true, _) => "ok".to_owned(),
        (false, None) if result.blocked.is_some() => {
            let rule = result.blocked.as_ref().map_or("", |blocked| &blocked.rule);
            format!("blocked by the rule `{rule}`")
        }
        (false, Some(code)) => format!("failed with exit status {code}"),
        (false, None) => "failed".to_owned(),
    };
    format!("{verdict}, {seconds:.2} s")
}

/// A call in one line: the tool and its arguments.
pub fn call_line(call: &ToolCall) -> String {
    arguments_line(&call.name, &call.arguments)
}

/// A tool and arguments in one line.
pub fn arguments_line(name: &str, arguments: &Map<String, Value>) -> String {
    let mut line = name.to_owned();
    for (name, value) in arguments {
        let value = match value {
            Value::String(text) if !text.contains(['\n', '"']) && !text.is_empty() => text.clone(),
            other => other.to_string(),
        };
        line += &format!("  {name}: {}", shorten(&value));
    }
    line
}

/// The first lines of what a tool gave back or complained about, indented.
pub fn excerpt(result: &ToolResult) -> String {
    let (output, complaint) = (result.output_text(), result.complaint());
    let lines = output.lines().chain(complaint.lines());
    let mut text = String::new();
    let mut more = 0;
    for (index, line) in lines.enumerate() {
        if index < SHOWN_LINES {
            text += &format!("  | {}\n", shorten(line));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        text += &format!("  | … {more} more\n");
    }
    text
}

/// At most so many characters in one line, all of them [`printable`].
pub fn shorten(line: &str) -> String {
    let line = printable(line).replace('\n', " ");
    let mut characters = line.chars();
    let mut text: String = characters.by_ref().take(SHOWN_CHARACTERS).collect();
    if characters.next().is_some() {
        text.push('…');
    }
    text
}

/// Text without characters that could play with the terminal: control characters but newline and
/// tab, and those that turn the direction of writing.
pub fn printable(text: &str) -> Cow<'_, str> {
    let plays = |c: char| {
        (c.is_control() && c != '\t' && c != '\n')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    match text.contains(plays) {
        true => Cow::Owned(text.chars().map(|c| if plays(c) { '\u{fffd}' } else { c }).collect()),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_and_results_in_short() {
        let call = |arguments| ToolCall { id: String::new(), name: "shell".into(), arguments };
        let check = |arguments: Value, expected: &str| {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            assert_eq!(call_line(&call(arguments)), expected);
        };
        check(json!({"command": "ls -l"}), "shell  command: ls -l");
        check(json!({"path": "", "n": 3, "text": "a\nb"}), r#"shell  path: ""  n: 3  text: "a\nb""#);
        assert_eq!(shorten("red \u{1b}[31m"), "red \u{fffd}[31m");
        assert_eq!(shorten(&"é".repeat(200)).chars().count(), SHOWN_CHARACTERS + 1);
        let output = (1..=8).map(|line| line.to_string()).collect::<Vec<_>>().join("\n");
        assert_eq!(
            excerpt(&ToolResult::succeeded(output)),
            "  | 1\n  | 2\n  | 3\n  | 4\n  | 5\n  | 6\n  | … 2 more\n"
        );
    }
}
