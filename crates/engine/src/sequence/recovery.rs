//! Recovers calls that a free turn writes as text.
//!
//! Text that may still become a call is held back; the end of the turn decides what it was.
//! If a call can't be repaired, the model is asked again, under a grammar that permits only calls.

use alara_text::chat::{Written, dumps, may_open, written};
use alara_text::grammar::fits;
use alara_text::request::{Event, Finish, Recovered, Tool, ToolCall, Usage};

/// Within how many bytes of a call's beginning a tool's name must come.
/// Longer text without one is no call.
const NAMED_WITHIN: usize = 400;
/// Most calls recovered in one turn.
const CALLS: usize = 8;

/// Recovers calls from the text of one free turn.
pub(crate) struct Recovery {
    /// The tools that may be called.
    tools: Vec<Tool>,
    /// Most calls.
    most: usize,
    /// Number of the next call in the conversation.
    next_call: usize,
    /// The text so far.
    answer: String,
    /// The beginning of the current line, or of the first line held back.
    line: usize,
    /// Events held back: text, and those between its pieces.
    held: Vec<Event>,
    /// Length of the text passed on.
    passed: usize,
    /// Whether the turn makes regular calls.
    calls: bool,
}

/// How to continue after the end of a turn.
#[derive(Debug, PartialEq)]
pub(crate) enum Ending {
    /// The turn is over.
    Over,
    /// The model must be asked again for a call; contains the usage so far.
    Again(Box<Usage>),
}

impl Recovery {
    /// A recovery for a turn that may call `tools`, in `parallel` or one at most.
    pub(crate) fn new(tools: Vec<Tool>, parallel: bool, next_call: usize) -> Self {
        Recovery {
            tools,
            most: if parallel { CALLS } else { 1 },
            next_call,
            answer: String::new(),
            line: 0,
            held: Vec::new(),
            passed: 0,
            calls: false,
        }
    }

    /// Takes the next event and returns those that may be passed on.
    pub(crate) fn push(&mut self, event: Event) -> Vec<Event> {
        match event {
            Event::Text { text } if !self.calls => {
                self.answer += &text;
                self.held.push(Event::Text { text });
                if self.may_become_a_call() { Vec::new() } else { self.pass() }
            }
            Event::ToolCallDelta { .. } | Event::ToolCall(_) | Event::Incomplete { .. } => {
                self.calls = true;
                let mut events = self.pass();
                events.push(event);
                events
            }
            // The probabilities of a text come before it.
            Event::Logprobs { .. } if !self.calls => {
                self.held.push(event);
                Vec::new()
            }
            event => vec![event],
        }
    }

    /// Releases the held-back events before an error.
    pub(crate) fn pass(&mut self) -> Vec<Event> {
        self.passed = self.answer.len();
        std::mem::take(&mut self.held)
    }

    /// Processes the end of the turn.
    /// `again` permits asking once more for a call.
    pub(crate) fn end(&mut self, finish: Finish, mut usage: Usage, again: bool) -> (Vec<Event>, Ending) {
        let may = finish == Finish::Stop && !self.calls && usage.stop_text.is_none();
        match may.then(|| written(&self.answer, &self.tools, &fits)).flatten() {
            Some(Written::Calls { text, calls }) if self.holds_from(&text) => {
                let mut events = self.text_up_to(&text);
                let rest = self.answer[text.len()..].trim().to_owned();
                usage.recovered = Some(Box::new(Recovered { text: rest, again: false }));
                for (index, call) in calls.into_iter().take(self.most).enumerate() {
                    events.extend(self.call(index, call));
                }
                events.push(Event::Done { finish: Finish::ToolCalls, usage });
                (events, Ending::Over)
            }
            Some(Written::Attempt { .. }) if again => {
                let text = self.answer[self.passed..].trim().to_owned();
                self.held.clear();
                usage.recovered = Some(Box::new(Recovered { text, again: true }));
                (Vec::new(), Ending::Again(Box::new(usage)))
            }
            _ => {
                let mut events = self.pass();
                events.push(Event::Done { finish, usage });
                (events, Ending::Over)
            }
        }
    }

    /// Whether everything after `text` was held back.
    fn holds_from(&self, text: &str) -> bool {
        text.len() >= self.passed || self.answer[text.len()..self.passed].trim().is_empty()
    }

    /// The events of the held-back text before calls.
    fn text_up_to(&mut self, text: &str) -> Vec<Event> {
        self.held.clear();
        let before = text.get(self.passed..).unwrap_or_default().to_owned();
        if before.is_empty() { Vec::new() } else { vec![Event::Text { text: before }] }
    }

    /// The events of a call.
    fn call(&mut self, index: usize, mut call: ToolCall) -> [Event; 2] {
        if call.id.is_empty() {
            call.id = format!("call_{}", self.next_call);
        }
        self.next_call += 1;
        let arguments = dumps(&call.arguments).unwrap_or_default();
        [Event::ToolCallDelta { index, name: Some(call.name.clone()), arguments }, Event::ToolCall(call)]
    }

    /// Whether the text from the current or a later line on may be a call.
    fn may_become_a_call(&mut self) -> bool {
        loop {
            let text = &self.answer[self.line..];
            let blank = text.trim().is_empty();
            if (blank && self.line == 0) || (!blank && self.may_be_call(text)) {
                return true;
            }
            match text.find('\n') {
                Some(end) => self.line += end + 1,
                None => return false,
            }
        }
    }

    fn may_be_call(&self, text: &str) -> bool {
        let near = &text[..text.floor_char_boundary(NAMED_WITHIN)];
        let named = text.len() <= NAMED_WITHIN || self.tools.iter().any(|tool| near.contains(&tool.name));
        named && may_open(text, &self.tools)
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
