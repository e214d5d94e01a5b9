//! What people see of a conversation: answers on stdout as they come, and a line on stderr for each
//! call.

use std::io::IsTerminal;

use alara_engine::{Event, Usage};
use alara_harness::Notice;
use serde_json::Value;

use crate::markdown::{Markdown, is_styled};
use crate::progress::{call_line, count, generated, job_line, not_done, printable, shorten, verdict};
use crate::ui;

/// Shows one conversation.
pub struct View {
    markdown: Markdown,
    /// Whether stderr is a terminal, where a call's line is begun before it ends.
    live: bool,
    /// Whether remarks may be styled.
    styled: bool,
    /// Whether the answer's last line is open.
    answering: bool,
    /// Whether a thought's last line is open.
    thinking: bool,
    /// The call whose line is open.
    call: Option<String>,
}

impl View {
    /// A view in which nothing has happened.
    pub fn new() -> Self {
        View {
            markdown: Markdown::new(is_styled(&std::io::stdout())),
            live: std::io::stderr().is_terminal(),
            styled: is_styled(&std::io::stderr()),
            answering: false,
            thinking: false,
            call: None,
        }
    }

    /// Shows what happens.
    pub fn show(&mut self, notice: &Notice) {
        match notice {
            Notice::Event { depth: 0, event } => self.event(event),
            Notice::Call { depth, call } if self.live => {
                self.end_line();
                ui::piece(&format!("{}> {}", "  ".repeat(*depth), call_line(call)));
                self.call = Some(call.id.clone());
            }
            Notice::Result { depth, call, result, took } => {
                let verdict = verdict(result, took.as_secs_f64());
                let complaint = result.complaint().lines().next().map(|line| format!(": {}", shorten(line)));
                let end = format!("  {verdict}{}", complaint.unwrap_or_default());
                if self.call.take_if(|open| *open == call.id).is_some() {
                    ui::note(&end);
                } else {
                    self.end_line();
                    ui::note(&format!("{}> {}{end}", "  ".repeat(*depth), call_line(call)));
                }
            }
            Notice::Emit(response) => {
                self.end_line();
                let kind = response["type"].as_str().unwrap_or("response");
                let content = match &response["content"] {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                ui::note(&format!("[{}] {}", shorten(kind), printable(&content)));
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
                let messages = count(*messages, "message");
                ui::note(&format!("the conversation was too long: {messages} summed up"));
            }
            _ => {}
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Text { text } if !text.is_empty() => {
                if self.thinking || self.call.is_some() {
                    self.end_line();
                }
                ui::text(&self.markdown.feed(text));
                self.answering = !text.ends_with('\n');
            }
            Event::Reasoning { text } if !text.is_empty() => {
                if self.answering || self.call.is_some() {
                    self.end_line();
                }
                self.remark_piece(&printable(text));
                self.thinking = !text.ends_with('\n');
            }
            Event::Incomplete { name, .. } => {
                self.end_line();
                ui::note(&format!("the call of {} was cut off, and is not made", shorten(name)));
            }
            Event::Done { .. } => self.end_line(),
            _ => {}
        }
    }

    /// Ends whatever line is open, so that another one can begin.
    pub fn end_line(&mut self) {
        let rest = self.markdown.finish();
        if std::mem::take(&mut self.answering) {
            ui::text(&format!("{rest}\n"));
        }
        if std::mem::take(&mut self.thinking) | self.call.take().is_some() {
            ui::note("");
        }
    }

    /// Shows a remark that is less than an answer.
    pub fn remark(&self, text: &str) {
        self.remark_piece(&format!("{text}\n"));
    }

    fn remark_piece(&self, text: &str) {
        match self.styled {
            true => ui::piece(&format!("\u{1b}[2m{text}\u{1b}[0m")),
            false => ui::piece(text),
        }
    }
}

/// What a message of the user took, in one line: tokens, speed, and how full the context is.
pub fn status(usage: &Usage, last: Option<&Usage>, context: Option<usize>) -> String {
    let share = |part: usize, of: usize| (part * 100).checked_div(of).unwrap_or(0);
    let cached = share(usage.cached_tokens, usage.prompt_tokens);
    let mut text = format!("{} ({cached}% cached), ", count(usage.prompt_tokens, "prompt token"));
    text += &generated(usage);
    if let (Some(last), Some(context)) = (last, context) {
        let used = last.prompt_tokens + last.completion_tokens;
        text += &format!("; context {used} of {context} ({}%)", share(used, context));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_status_line() {
        let usage = Usage {
            prompt_tokens: 200,
            cached_tokens: 150,
            completion_tokens: 30,
            decode_time: Duration::from_secs(2),
            ..Usage::default()
        };
        let check =
            |usage: &Usage, last, context, expected: &str| assert_eq!(status(usage, last, context), expected);
        check(
            &usage,
            Some(&usage),
            Some(1000),
            "200 prompt tokens (75% cached), 30 generated at 15.0 tokens/s; context 230 of 1000 (23%)",
        );
        // Of a turn whose time is not known the tokens say nothing of the speed.
        let mut both = usage.clone();
        both += Usage { completion_tokens: 500, ..Usage::default() };
        check(&both, None, None, "200 prompt tokens (75% cached), 530 generated at 15.0 tokens/s");
        check(
            &Usage { completion_tokens: 7, ..Usage::default() },
            None,
            None,
            "0 prompt tokens (0% cached), 7 generated",
        );
        check(&Usage::default(), None, Some(9), "0 prompt tokens (0% cached), 0 generated");
    }
}
