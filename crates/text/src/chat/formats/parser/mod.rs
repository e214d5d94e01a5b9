//! The streaming parser: splits generated text into reasoning, text and calls.
//!
//! The result depends only on the text, never on how it was cut into pieces.
//! A call is complete when its arguments are.
//! Whatever can't become a complete call of a permitted tool stays text, so that no part of the
//! answer is lost.
//! Whitespace next to a mark or at the beginning of the text is dropped; whitespace at the end of
//! the turn's text is kept.
//! Text under a grammar keeps all of its whitespace, and so does text that continues a bare prompt.

mod call;
mod harmony;
mod object;
mod tagged;

use serde_json::{Map, Value};

use super::{Format, Layout, Piece, Reasoning, Thinking, Turn};
use crate::request::Tool;
use call::{Call, CallProgress, PieceMatch, literal_text};
pub(super) use harmony::ENDS as MESSAGE_ENDS;

/// A parsed part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Parsed {
    /// The next piece of the text.
    Text(String),
    /// The next piece of the reasoning.
    Reasoning(String),
    /// The next piece of the arguments of the current call, as JSON text.
    /// All pieces of a call concatenated are the JSON of its arguments, if the call is completed.
    Delta {
        /// The name of a permitted tool.
        name: String,
        /// The first piece may be empty.
        arguments: String,
    },
    /// A complete call.
    ToolCall {
        /// The id that the model gave the call; empty where the format has none.
        id: String,
        /// The name of a permitted tool.
        name: String,
        /// The arguments, in the order in which the model wrote them.
        /// Not validated against the tool's schema.
        arguments: Map<String, Value>,
    },
    /// A call that was cut off by the end of the turn.
    /// It must not run.
    Incomplete {
        /// The id that the model gave the call; empty where the format has none.
        id: String,
        /// The name of a permitted tool.
        name: String,
        /// The beginning of the arguments, as JSON text.
        arguments: String,
    },
}

/// Parses one turn incrementally.
#[derive(Debug)]
pub struct Parser {
    format: &'static Format,
    thinking: Option<Thinking>,
    /// The tools whose calls are recognized.
    tools: Vec<Tool>,
    parallel: bool,
    /// Whether the whole answer is text, verbatim.
    raw: bool,
    /// Whether a grammar shapes the text until the end of the turn, so that markers mean nothing.
    shaped: bool,
    /// Whether a grammar shapes the text including its leading whitespace.
    exact: bool,
    /// The separator between reasoning and shaped text, which isn't part of the text.
    gap: &'static str,
    /// Whether the turn was cut off, rather than ended by the model.
    cut: bool,
    state: ParserState,
    /// Text received but not yet classified.
    pending: String,
    /// Whether the current block has emitted anything, so that whitespace is inside it.
    begun: bool,
}

#[derive(Debug)]
enum ParserState {
    /// At the start of a turn that may begin with reasoning.
    Start,
    TextBlock(TextBlock),
    /// In a possible call; its opener is still in `pending`.
    Call(Box<Call>),
    /// After a call, where another one or the end of all calls may follow.
    BetweenCalls,
    /// In the header of a message.
    Header,
}

/// The kind of running text.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TextBlock {
    Text,
    Reasoning,
    /// Reasoning that stays in the text, with its marks.
    Verbatim,
    /// Addressed to another recipient.
    Dropped,
}

/// What ends a block.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    /// The block continues.
    Not,
    AtMark,
    /// The end of the turn.
    Turn,
}

/// A mark that ends the text of a block.
#[derive(Clone, Copy)]
enum Mark {
    EndOfReasoning,
    /// The beginning of a call, or of the section of all calls.
    Opener(Option<usize>),
    Dropped,
    EndOfMessage,
}

impl Parser {
    /// A parser for a turn whose answer starts after the prompt.
    pub fn new(turn: &Turn) -> Self {
        let messages = turn.format.layout == Layout::Messages;
        Parser {
            format: turn.format,
            thinking: turn.thinking.filter(|_| turn.reasoning != Reasoning::Never),
            tools: turn.permitted().cloned().collect(),
            parallel: turn.parallel_tool_calls,
            raw: turn.raw,
            shaped: turn.has_shape() && turn.format.answer.1.is_empty(),
            exact: turn.has_shape(),
            gap: "",
            cut: false,
            state: match turn.reasoning {
                _ if messages => ParserState::Header,
                Reasoning::Never => ParserState::TextBlock(TextBlock::Text),
                Reasoning::Optional => ParserState::Start,
                Reasoning::Open => ParserState::TextBlock(TextBlock::Reasoning),
            },
            pending: String::new(),
            begun: false,
        }
    }

    /// Takes the next piece of generated text and returns the parts that it completes.
    pub fn push(&mut self, text: &str) -> Vec<Parsed> {
        if self.raw {
            let whole = Some(text.to_owned()).filter(|text| !text.is_empty());
            return whole.map(Parsed::Text).into_iter().collect();
        }
        self.pending.push_str(text);
        let mut out = Vec::new();
        while self.step(&mut out, false) {}
        out
    }

    /// Ends the turn and returns the rest.
    pub fn finish(&mut self) -> Vec<Parsed> {
        let mut out = Vec::new();
        while !self.raw && self.step(&mut out, true) {}
        out
    }

    /// Ends a turn that a limit or a stop text cut off, and returns the rest.
    /// The beginning of a call that has no name yet is not reported as text: the grammar keeps free
    /// text from beginning like a call.
    pub fn cut_off(&mut self) -> Vec<Parsed> {
        self.cut = true;
        self.finish()
    }

    /// Whether the text so far ends inside a reasoning block.
    pub fn is_reasoning(&self) -> bool {
        matches!(self.state, ParserState::TextBlock(TextBlock::Reasoning))
    }

    /// Advances by one state; false if nothing more can be decided.
    fn step(&mut self, out: &mut Vec<Parsed>, end: bool) -> bool {
        match self.state {
            ParserState::Start => self.start(end),
            ParserState::TextBlock(block) => self.block(block, out, end),
            ParserState::Call(_) => self.call(out, end),
            ParserState::BetweenCalls => self.between_calls(end),
            ParserState::Header => self.header(out, end),
        }
    }

    fn start(&mut self, end: bool) -> bool {
        let text = self.pending.trim_start();
        let Some(thinking) = self.thinking else {
            return self.enter(ParserState::TextBlock(TextBlock::Text), 0);
        };
        let (open, close) = (thinking.open.trim_end(), thinking.close.trim_end());
        let undecided = |marker: &str| marker.starts_with(text) && text.len() < marker.len();
        if !end && (undecided(open) || undecided(close)) {
            return false;
        }
        let space = self.pending.len() - text.len();
        if text.starts_with(open) {
            self.enter(ParserState::TextBlock(TextBlock::Reasoning), space + open.len())
        } else if text.starts_with(close) {
            // The prompt opened the block, or the model skips it.
            self.end_of_reasoning(space + close.len())
        } else {
            self.enter(ParserState::TextBlock(TextBlock::Text), 0)
        }
    }

    /// Reads running text up to the next mark.
    fn block(&mut self, block: TextBlock, out: &mut Vec<Parsed>, end: bool) -> bool {
        if block == TextBlock::Text && !self.gap.is_empty() {
            if !end && self.gap.len() > self.pending.len() && self.gap.starts_with(&self.pending) {
                return false;
            }
            let gap = if self.pending.starts_with(self.gap) { self.gap.len() } else { 0 };
            self.pending.drain(..gap);
            self.gap = "";
        }
        if block == TextBlock::Text && self.format.layout == Layout::TextOrObject && self.at_object() {
            self.state = ParserState::Call(Box::new(Call::new(block, 0)));
            return true;
        }
        let marks = self.marks(block);
        let (length, found) = first(&self.pending, &marks, end);
        let ends = match found {
            // Whitespace before an opener belongs to the text only if no call follows.
            Some((Mark::Opener(_) | Mark::Dropped, _)) => Ends::Not,
            Some(_) => Ends::AtMark,
            None if end => Ends::Turn,
            None => Ends::Not,
        };
        self.print(block, length, ends, out);
        let Some((mark, marker)) = found else { return false };
        match mark {
            Mark::EndOfReasoning => self.end_of_reasoning(marker),
            Mark::EndOfMessage => {
                if block == TextBlock::Verbatim {
                    out.push(Parsed::Text(self.pending[..marker].to_owned()));
                }
                self.enter(ParserState::Header, marker)
            }
            Mark::Dropped => {
                let at = self.pending.len() - self.pending.trim_start().len();
                self.pending.replace_range(at..at + marker, "");
                true
            }
            Mark::Opener(piece) => {
                let call = match piece {
                    Some(piece) => Call::new(block, piece),
                    None => Call::in_section(block),
                };
                self.state = ParserState::Call(Box::new(call));
                true
            }
        }
    }

    /// Whether the text of the turn begins with a brace.
    fn at_object(&self) -> bool {
        !self.begun && !self.tools.is_empty() && self.pending.trim_start().starts_with('{')
    }

    fn marks(&self, block: TextBlock) -> Vec<(&'static str, Mark)> {
        let mut marks = Vec::new();
        if self.shaped && block == TextBlock::Text {
            return marks;
        }
        if self.format.layout == Layout::Messages {
            marks.extend(MESSAGE_ENDS.map(|text| (text, Mark::EndOfMessage)));
            return marks;
        }
        if block == TextBlock::Reasoning
            && let Some(thinking) = self.thinking
        {
            marks.push((thinking.close, Mark::EndOfReasoning));
        }
        let opens = block == TextBlock::Text || self.format.ends_reasoning;
        if opens && !self.tools.is_empty() && self.format.layout != Layout::TextOrObject {
            marks.extend(self.format.openers().map(|(text, piece)| (text, Mark::Opener(piece))));
        }
        if block == TextBlock::Text {
            let reasons = self.thinking.is_some();
            let drops =
                self.format.drops.iter().filter(|text| reasons || !text.contains(self.format.thinking.close));
            marks.extend(drops.map(|&text| (text, Mark::Dropped)));
        }
        marks
    }

    fn call(&mut self, out: &mut Vec<Parsed>, end: bool) -> bool {
        let ParserState::Call(call) = &mut self.state else { return false };
        let (block, follows) = (call.within, call.follows);
        // Whitespace before the opener is still pending.
        let space = self.pending.len() - self.pending.trim_start().len();
        let step = call.advance(self.format, &self.tools, &self.pending[space..], end, out);
        match step {
            CallProgress::More => false,
            CallProgress::Unnamed if self.cut && (follows || self.is_cut_call(space)) => {
                self.pending.clear();
                self.enter(ParserState::TextBlock(TextBlock::Text), 0)
            }
            CallProgress::Complete { length, id, name, arguments } => {
                out.push(Parsed::ToolCall { id, name, arguments });
                if !self.parallel {
                    self.tools.clear();
                }
                self.enter(ParserState::BetweenCalls, space + length)
            }
            CallProgress::CutOff { id, name, arguments } => {
                out.push(Parsed::Incomplete { id, name, arguments });
                self.pending.clear();
                self.enter(ParserState::TextBlock(TextBlock::Text), 0)
            }
            CallProgress::NotACall | CallProgress::Unnamed => {
                // The opener was only text; a call may still follow it.
                let openers = self.format.openers().map(|(text, _)| text);
                let opener =
                    openers.filter(|text| self.pending[space..].starts_with(text)).map(str::len).max();
                let first = self.pending[space..].chars().next().map_or(0, char::len_utf8);
                self.state = ParserState::TextBlock(block);
                self.print(block, space + opener.unwrap_or(first), Ends::Not, out);
                true
            }
        }
    }

    fn between_calls(&mut self, end: bool) -> bool {
        let text = self.pending.trim_start();
        let space = self.pending.len() - text.len();
        let calls = &self.format.calls;
        let section = !calls.open.is_empty();
        let another = match self.format.call.first() {
            Some(Piece::Text(text)) if section => text.trim(),
            _ => "",
        };
        let marks = [calls.separator.trim(), calls.close.trim(), another];
        let (separator, close) = (marks[0], marks[1]);
        let undecided = |mark: &&str| !mark.is_empty() && mark.starts_with(text) && text.len() < mark.len();
        if !end && marks.iter().any(undecided) {
            return false;
        }
        if self.cut && marks.iter().any(undecided) {
            return self.enter(ParserState::TextBlock(TextBlock::Text), self.pending.len());
        }
        match literal_text(text, 0, close) {
            _ if close.is_empty() => {}
            PieceMatch::To(length) => {
                return self.enter(ParserState::TextBlock(TextBlock::Text), space + length);
            }
            PieceMatch::More if !end => return false,
            // The turn ends in the middle of the texts that close the calls.
            PieceMatch::More => {
                return self.enter(ParserState::TextBlock(TextBlock::Text), self.pending.len());
            }
            PieceMatch::Wrong => {}
        }
        let follows = |mark: &str| !mark.is_empty() && text.starts_with(mark);
        if !self.tools.is_empty() && (follows(separator) || follows(another)) {
            let skipped = if follows(separator) { separator.len() } else { 0 };
            let mut call = Call::new(TextBlock::Text, 0);
            call.follows = true;
            return self.enter(ParserState::Call(Box::new(call)), space + skipped);
        }
        match self.format.layout {
            Layout::Messages => self.enter(ParserState::TextBlock(TextBlock::Dropped), 0),
            _ => self.enter(ParserState::TextBlock(TextBlock::Text), 0),
        }
    }

    /// Whether the pending text from `at` on can only be the beginning of a call.
    fn is_cut_call(&self, at: usize) -> bool {
        let text = &self.pending[at..];
        match self.format.layout {
            // Only its keys distinguish a call from any other object.
            Layout::TextOrObject => object::begins_call(text),
            // A block may have any language.
            _ if self.format.in_fences() => false,
            _ => self.format.openers().any(|(opener, _)| text.starts_with(opener)),
        }
    }

    /// Enters the text after `consumed` bytes, which end with the mark that ends the reasoning.
    fn end_of_reasoning(&mut self, consumed: usize) -> bool {
        self.gap = self.thinking.filter(|_| self.exact).map_or("", |thinking| thinking.gap);
        self.enter(ParserState::TextBlock(TextBlock::Text), consumed)
    }

    fn enter(&mut self, state: ParserState, consumed: usize) -> bool {
        self.pending.drain(..consumed);
        self.begun = false;
        self.state = state;
        true
    }

    /// Emits the first `length` pending bytes, without whitespace at the block's start.
    /// Trailing whitespace stays pending; it is dropped where the block ends at a mark, and kept
    /// where the turn ends a text.
    fn print(&mut self, block: TextBlock, length: usize, ends: Ends, out: &mut Vec<Parsed>) {
        let text = &self.pending[..length];
        let kept = match (ends, block) {
            (Ends::Turn, TextBlock::Text | TextBlock::Verbatim) => length,
            _ => text.trim_end().len(),
        };
        let piece = &text[..kept];
        let keeps = self.begun || self.exact && block == TextBlock::Text;
        let piece = if keeps { piece } else { piece.trim_start() }.to_owned();
        self.pending.drain(..if ends == Ends::Not { kept } else { length });
        self.begun |= !piece.is_empty();
        match block {
            _ if piece.is_empty() => {}
            TextBlock::Text | TextBlock::Verbatim => out.push(Parsed::Text(piece)),
            TextBlock::Reasoning => out.push(Parsed::Reasoning(piece)),
            TextBlock::Dropped => {}
        }
    }
}

/// Length of the part of `text` before the first of the markers, and that marker with its length.
/// Unless `end` is set, a suffix of `text` that may begin a marker is left out.
fn first(text: &str, marks: &[(&'static str, Mark)], end: bool) -> (usize, Option<(Mark, usize)>) {
    let found = marks.iter().filter_map(|&(marker, mark)| Some((text.find(marker)?, marker.len(), mark)));
    // Of two markers at the same position the longer one wins.
    let found = found.min_by_key(|&(at, length, _)| (at, usize::MAX - length));
    let held = if end {
        text.len()
    } else {
        text.len() - marks.iter().map(|mark| partial(text, mark.0)).max().unwrap_or(0)
    };
    match found {
        // A longer marker that begins at this position may still come.
        Some((at, length, mark)) if at <= held => (at, Some((mark, length))),
        _ => (held, None),
    }
}

/// Length of the longest suffix of `text` that is a prefix of `marker`.
fn partial(text: &str, marker: &str) -> usize {
    let lengths = (1..marker.len()).rev().filter(|&length| marker.is_char_boundary(length));
    lengths.into_iter().find(|&length| text.ends_with(&marker[..length])).unwrap_or(0)
}
