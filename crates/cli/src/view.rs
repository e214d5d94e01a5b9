//! Shows agents at work: the answer on stdout, and a line for each call on stderr.
//! On a terminal, a spinner turns during long operations.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Instant;

use alara_engine::{Event, ToolCall, Usage};
use alara_harness::{Notice, ToolResult};

use crate::fold::{self, details};
use crate::markdown::Markdown;
use crate::progress::{call_line, count, emitted, generated, job_line, not_done, prompt, shorten};
use crate::prompts::Prompts;
use crate::screen::{DIM, PLAIN, one_line, printable};
use crate::ui;

/// Maximum number of detail lines for a call during a run.
const SHOWN_LINES: usize = 200;

/// Where to show an NPC's text as it is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// On stdout: it is the answer.
    Answer,
    /// On stderr, if that is a terminal; the complete answer goes elsewhere.
    Watched,
    /// Nowhere, unless a call follows: then it isn't an answer, and goes to stderr.
    Held,
    /// Nowhere, like everything else except warnings.
    Silent,
}

impl Words {
    /// Returns the mode for a command that prints a complete answer, or `json`.
    /// With JSON output nothing else is printed, unless the user asks for everything.
    pub fn of_answer(json: bool, verbose: bool) -> Self {
        match (json, std::io::stdout().is_terminal(), std::io::stderr().is_terminal()) {
            (false, true, _) => Words::Answer,
            (_, _, true) => Words::Watched,
            (true, ..) if !verbose => Words::Silent,
            _ => Words::Held,
        }
    }
}

/// Which line is unfinished.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    /// A line of the answer, on stdout.
    Answer,
    /// A line on stderr.
    Remark,
}

/// Shows the events of a session.
pub struct View {
    words: Words,
    verbose: bool,
    markdown: Markdown,
    /// Whether stderr is a terminal.
    watched: bool,
    /// Whether notes may be styled.
    styled: bool,
    open: Open,
    /// The spinner, while it turns.
    spinner: Option<ui::Bar>,
    /// The call whose line is unfinished, on a terminal that can't redraw it.
    call: Option<String>,
    /// Text generated in the current turn.
    said: String,
    /// Start of the current turn.
    begun: Instant,
    /// Number of characters generated for the current call.
    written: usize,
    /// The headings of running conversations inside the first one, with their depths, that nothing
    /// has been printed under yet.
    headings: Vec<(usize, String)>,
    /// Prompts shown so far, if prompts are shown.
    prompts: Prompts,
    /// Number of turns in the session's first conversation.
    pub turns: usize,
    /// Number of calls.
    pub calls: usize,
}

impl View {
    /// Creates a view before any event.
    /// `verbose` shows calls and results in full.
    pub fn new(words: Words, verbose: bool) -> Self {
        View {
            words,
            verbose,
            markdown: Markdown::new(ui::is_styled(&std::io::stdout())),
            watched: std::io::stderr().is_terminal(),
            styled: ui::is_styled(&std::io::stderr()),
            open: Open::Nothing,
            spinner: None,
            call: None,
            said: String::new(),
            begun: Instant::now(),
            written: 0,
            headings: Vec::new(),
            prompts: Prompts::default(),
            turns: 0,
            calls: 0,
        }
    }

    /// Shows an event.
    pub fn show(&mut self, notice: &Notice) {
        match notice {
            Notice::Warning(text) => self.line(&format!("warning: {}", printable(text))),
            Notice::Unchanged { what, nobody } => self.line(&not_done(what, *nobody)),
            Notice::Turn { npc, depth, turn } => self.turn(npc, *depth, *turn),
            Notice::Prompt { npc, scope, turn, prompt } => {
                let new = self.prompts.new_in(npc, scope, *turn, prompt, self.styled);
                self.line(&new);
                self.thinks(npc);
            }
            Notice::Event { depth, event } => self.event(*depth, event),
            Notice::Call { depth, call } => self.begin_call(*depth, call),
            _ if self.words == Words::Silent => {}
            Notice::Result { depth, call, result, took } => {
                self.end_call(*depth, call, result, took.as_secs_f64());
            }
            Notice::Emit(response) => self.line(&emitted(response)),
            Notice::Job { job, call, ended } => self.line(&printable(&job_line(*job, call, *ended))),
            Notice::Compaction { messages } => {
                let messages = count(*messages, "earlier message");
                self.line(&format!("({messages} summed up, to fit the context)"));
            }
        }
    }

    fn turn(&mut self, npc: &str, depth: usize, turn: usize) {
        if depth == 0 {
            self.turns = turn;
            self.said.clear();
        } else if turn == 1 {
            self.headings.retain(|(other, _)| *other < depth);
            if self.words != Words::Silent && (self.verbose || !npc.is_empty()) {
                // Other NPCs begin on a separate line.
                self.headings.push((depth, format!("{}{}:", "  ".repeat(depth - 1), one_line(named(npc)))));
            }
        }
        (self.begun, self.written) = (Instant::now(), 0);
        self.thinks(npc);
    }

    /// Prints the headings above something that a conversation at this depth prints.
    /// Deeper conversations are over by then.
    fn head(&mut self, depth: usize) {
        for (other, heading) in std::mem::take(&mut self.headings) {
            if other <= depth {
                self.line(&heading);
            }
        }
    }

    fn thinks(&mut self, npc: &str) {
        self.spin(&format!("{} thinks", printable(named(npc))));
    }

    fn event(&mut self, depth: usize, event: &Event) {
        match event {
            Event::Prefill { computed, cached, prompt } => {
                let seconds = self.begun.elapsed().as_secs_f64();
                let speed = computed.saturating_sub(*cached) as f64 / seconds.max(1e-3);
                self.spin(&format!("reads the prompt: {computed} of {prompt} tokens, {speed:.0} tokens/s"));
            }
            Event::ToolCallDelta { name, arguments, .. } => {
                self.written = if name.is_some() { 0 } else { self.written } + arguments.chars().count();
                match name {
                    Some(name) if self.watched => {
                        self.end_line();
                        self.spin(&format!("writes a call of {}", shorten(name)));
                    }
                    None if self.written > 0 => {
                        self.spin(&format!("writes a call, {} characters", self.written));
                    }
                    _ => {}
                }
            }
            Event::Text { text } if depth == 0 => self.say(text),
            Event::Text { text } | Event::Reasoning { text } => {
                let shown = self.verbose || (self.watched && depth == 0);
                if shown && !text.is_empty() && self.words != Words::Silent {
                    self.head(depth);
                    self.open(Open::Remark);
                    self.remark_piece(&printable(text));
                    self.open = if text.ends_with('\n') { Open::Nothing } else { Open::Remark };
                }
            }
            Event::Incomplete { name, .. } if self.words != Words::Silent => {
                self.head(depth);
                self.line(&format!("the call of {} was cut off, and is not made", shorten(name)));
            }
            Event::Done { .. } => self.end_line(),
            Event::Incomplete { .. }
            | Event::ToolCall(_)
            | Event::Logprobs { .. }
            | Event::PromptLogprobs { .. } => {}
        }
    }

    /// Shows a piece of the answer, or of text before it.
    fn say(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.said += text;
        let open = match self.words {
            Words::Answer => Open::Answer,
            Words::Watched => Open::Remark,
            Words::Held | Words::Silent => return,
        };
        self.open(open);
        match open {
            Open::Answer => ui::text(&self.markdown.feed(text)),
            _ => ui::piece(&printable(text)),
        }
        // The Markdown renderer may hold back the end.
        self.open = if text.ends_with('\n') { Open::Nothing } else { open };
    }

    fn begin_call(&mut self, depth: usize, call: &ToolCall) {
        self.calls += 1;
        if self.words == Words::Silent {
            return;
        }
        if self.words == Words::Held && depth == 0 && !self.said.trim().is_empty() {
            ui::note(&printable(std::mem::take(&mut self.said).trim_end()));
        }
        self.head(depth);
        let line = format!("{}> {}", "  ".repeat(depth), call_line(call));
        if self.watched && ui::is_dumb() && !self.verbose {
            self.end_line();
            ui::piece(&line);
            self.call = Some(call.id.clone());
        } else {
            self.end_line();
            self.spin(&line);
        }
    }

    fn end_call(&mut self, depth: usize, call: &ToolCall, result: &ToolResult, seconds: f64) {
        let indent = "  ".repeat(depth);
        if self.call.take_if(|open| *open == call.id).is_some() {
            return ui::note(&fold::end(result, seconds));
        }
        self.end_line();
        if self.verbose {
            let lines = details(call, result, seconds, self.styled);
            lines.iter().take(SHOWN_LINES).for_each(|line| ui::note(&format!("{indent}{line}")));
            if lines.len() > SHOWN_LINES {
                ui::note(&format!("{indent}  | … {} more", lines.len() - SHOWN_LINES));
            }
            return;
        }
        let columns = ui::columns().map(|columns| columns.saturating_sub(indent.len()));
        ui::note(&format!("{indent}{}", fold::line(call, result, seconds, columns, self.styled)));
    }

    /// Shows a spinner next to these words, until something else is shown.
    pub fn spin(&mut self, words: &str) {
        if !self.watched || self.open != Open::Nothing || self.call.is_some() {
            return;
        }
        self.spinner.get_or_insert_with(ui::spinner).set_message(words);
    }

    /// Ends any unfinished line, except one of this kind.
    fn open(&mut self, open: Open) {
        // An answer continues after a finished line: it may be inside a code fence.
        let other = self.open != Open::Nothing && self.open != open;
        if other || self.call.is_some() {
            self.end_line();
        }
        self.clear();
    }

    fn clear(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }

    /// Ends any unfinished line, so that another one can begin.
    pub fn end_line(&mut self) {
        self.clear();
        let rest = self.markdown.finish();
        let open = std::mem::replace(&mut self.open, Open::Nothing);
        match open {
            Open::Answer => ui::text(&format!("{rest}\n")),
            // The renderer may have held back a whole last line.
            _ if !rest.is_empty() => ui::text(&rest),
            _ => {}
        }
        if (open == Open::Remark) | self.call.take().is_some() {
            ui::note("");
        }
    }

    /// Prints a line on stderr.
    fn line(&mut self, text: &str) {
        self.end_line();
        ui::note(text);
    }

    /// Shows an answer, unless it was shown completely as it was generated.
    pub fn answer(&mut self, text: &str) {
        self.end_line();
        match self.words {
            Words::Answer if self.said.trim() == text.trim() => {}
            Words::Answer => {
                ui::line((self.markdown.feed(text.trim_end()) + &self.markdown.finish()).trim_end());
            }
            Words::Watched | Words::Held | Words::Silent => ui::line(text.trim_end()),
        }
    }

    /// Shows the available part of a truncated answer, unless it was shown as it was generated.
    pub fn rest(&mut self, text: &str) {
        self.end_line();
        if self.words != Words::Answer && !text.trim().is_empty() {
            ui::line(text.trim_end());
        }
    }

    /// Shows a note that is less important than an answer.
    pub fn remark(&self, text: &str) {
        self.remark_piece(&format!("{text}\n"));
    }

    fn remark_piece(&self, text: &str) {
        match self.styled {
            true => ui::piece(&format!("{DIM}{text}{PLAIN}")),
            false => ui::piece(text),
        }
    }

    /// Summarizes the usage of the whole session in one line.
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

/// Returns the NPC's display name, which may be missing.
fn named(npc: &str) -> &str {
    if npc.is_empty() { "the model" } else { npc }
}

impl Drop for View {
    /// A spinner must not precede an error.
    fn drop(&mut self) {
        self.clear();
    }
}
