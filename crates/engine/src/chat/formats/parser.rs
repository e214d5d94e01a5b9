//! The streaming parser: generated text to reasoning, text and calls.
//!
//! What comes out depends on the text alone, never on how it was cut. Whatever is not a complete call of a permitted
//! tool stays text, so nothing that the model said is lost. Whitespace around reasoning, text and calls is dropped.

use serde_json::{Map, Value};

use super::{END_THINK, Format, Read, Reasoning, Scan, THINK, Turn};

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Parsed {
    /// The next piece of the text.
    Text(String),
    /// The next piece of the reasoning.
    Reasoning(String),
    /// A complete call.
    ToolCall {
        /// The tool's name: a permitted one.
        name: String,
        /// The arguments, in the order in which the model wrote them. Not validated against the tool's schema.
        arguments: Map<String, Value>,
    },
}

/// Parses one turn.
#[derive(Debug)]
pub struct Parser {
    format: Format,
    /// The tools whose calls are recognised.
    tools: Vec<String>,
    parallel: bool,
    state: State,
    /// Received and not yet decided.
    pending: String,
    /// Whether the current block has printed anything, that is, whether whitespace is inside it.
    begun: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// At the start of a turn that may begin with reasoning.
    Start,
    Reasoning,
    Text,
    /// Behind the opener of what may be a call; the opener is still in `pending`.
    Call(Scan),
}

impl Parser {
    /// A parser for a turn whose answer starts behind the prompt.
    pub fn new(turn: &Turn) -> Self {
        Parser {
            format: turn.format,
            tools: turn.permitted().map(|tool| tool.name.clone()).collect(),
            parallel: turn.parallel_tool_calls,
            state: match turn.reasoning {
                Reasoning::Never => State::Text,
                Reasoning::Optional => State::Start,
                Reasoning::Open => State::Reasoning,
            },
            pending: String::new(),
            begun: false,
        }
    }

    /// Takes the next piece of generated text, returns what it decides.
    pub fn push(&mut self, text: &str) -> Vec<Parsed> {
        self.pending.push_str(text);
        let mut out = Vec::new();
        while self.step(&mut out, false) {}
        out
    }

    /// Takes note that the turn has ended, returns the rest.
    pub fn finish(&mut self) -> Vec<Parsed> {
        let mut out = Vec::new();
        while self.step(&mut out, true) {}
        out
    }

    /// Decides as much as one state can; false if nothing more can be decided.
    fn step(&mut self, out: &mut Vec<Parsed>, end: bool) -> bool {
        match self.state {
            State::Start => self.start(end),
            State::Reasoning => self.reasoning(out, end),
            State::Text => self.text(out, end),
            State::Call(scan) => self.call(scan, out, end),
        }
    }

    fn start(&mut self, end: bool) -> bool {
        let text = self.pending.trim_start();
        if !end && THINK.starts_with(text) && text.len() < THINK.len() {
            return false;
        }
        match text.strip_prefix(THINK) {
            Some(rest) => {
                self.pending = rest.to_owned();
                self.state = State::Reasoning;
            }
            None => self.state = State::Text,
        }
        true
    }

    fn reasoning(&mut self, out: &mut Vec<Parsed>, end: bool) -> bool {
        let (length, found) = up_to(&self.pending, END_THINK, end);
        let piece = self.take(length, found || end);
        out.extend(piece.map(Parsed::Reasoning));
        if found {
            self.enter_text(END_THINK.len());
        }
        found
    }

    fn text(&mut self, out: &mut Vec<Parsed>, end: bool) -> bool {
        let opener = self.format.opener();
        let (length, found) = if self.tools.is_empty() {
            (self.pending.len(), false)
        } else {
            up_to(&self.pending, opener, end)
        };
        // Whitespace before an opener belongs to the text only if no call follows.
        let piece = self.take(length, end && !found);
        out.extend(piece.map(Parsed::Text));
        if found {
            self.state = State::Call(Scan::default());
        }
        found
    }

    fn call(&mut self, mut scan: Scan, out: &mut Vec<Parsed>, end: bool) -> bool {
        let opener = self.format.opener();
        let start = self.pending.find(opener).map_or(0, |at| at + opener.len());
        let read = self.format.read_call(&self.pending[start..], &mut scan);
        match read {
            Read::Call { length, name, arguments } if self.tools.contains(&name) => {
                out.push(Parsed::ToolCall { name, arguments });
                if !self.parallel {
                    self.tools.clear();
                }
                self.enter_text(start + length);
                true
            }
            Read::Unfinished if !end => {
                self.state = State::Call(scan);
                false
            }
            _ => {
                // The opener was only text; what follows it may still hold a call.
                let piece = self.take(start, false);
                out.extend(piece.map(Parsed::Text));
                self.state = State::Text;
                true
            }
        }
    }

    fn enter_text(&mut self, consumed: usize) {
        self.pending.drain(..consumed);
        self.begun = false;
        self.state = State::Text;
    }

    /// Removes the first `length` bytes of what is pending and returns them, without whitespace at the block's start.
    /// Whitespace at their end stays pending, or is dropped where the block ends.
    fn take(&mut self, length: usize, block_ends: bool) -> Option<String> {
        let text = &self.pending[..length];
        let kept = text.trim_end().len();
        let piece = &text[..kept];
        let piece = if self.begun { piece } else { piece.trim_start() }.to_owned();
        let consumed = if block_ends { length } else { kept };
        self.pending.drain(..consumed);
        self.begun |= !piece.is_empty();
        (!piece.is_empty()).then_some(piece)
    }
}

/// Length of the part of `text` that lies before `marker`, and whether the marker is there. As long as more can
/// come, an end of `text` that may begin the marker doesn't count.
fn up_to(text: &str, marker: &str, end: bool) -> (usize, bool) {
    if let Some(at) = text.find(marker) {
        return (at, true);
    }
    let partial =
        if end { 0 } else { (1..marker.len()).rev().find(|&n| text.ends_with(&marker[..n])).unwrap_or(0) };
    (text.len() - partial, false)
}
