//! One call, piece by piece as its format describes it.

use serde_json::{Map, Value};

use super::object::ObjectScan;
use super::tagged::TaggedScan;
use super::{Parsed, TextBlock};
use crate::chat::formats::literal::{self, Failure};
use crate::chat::formats::{Encoding, Format, Piece, fences, is_bare, next_mark};
use crate::request::Tool;

/// A call being parsed.
/// Positions count from the call's opener.
#[derive(Debug)]
pub(super) struct Call {
    /// The block that the opener belongs to if it turns out not to open a call.
    pub within: TextBlock,
    /// Whether a call precedes it, so that it must be one as well.
    pub follows: bool,
    /// Whether the opener of the section of all calls comes first.
    section: bool,
    piece: usize,
    at: usize,
    id: String,
    name: Option<String>,
    /// The first line of a block after its mark.
    first_line: String,
    /// The arguments once they are complete.
    arguments: Option<Map<String, Value>>,
    /// The part of the arguments' JSON text that was already reported.
    reported: String,
    state: Option<Scan>,
    /// The position up to which the end of the arguments was searched.
    searched: usize,
}

/// The longest first line of a block, in bytes.
const LONGEST_LINE: usize = 4096;

/// Progress within the current piece.
#[derive(Debug)]
enum Scan {
    Object(ObjectScan),
    Tagged(TaggedScan),
}

/// The outcome of an attempt to read on.
#[derive(Debug)]
pub(super) enum CallProgress {
    /// Undecided until more text comes.
    More,
    /// It can't become one.
    NotACall,
    /// The turn ended before the call's name.
    Unnamed,
    /// The turn ended inside the call.
    CutOff { id: String, name: String, arguments: String },
    /// A call that takes up `length` bytes.
    Complete { length: usize, id: String, name: String, arguments: Map<String, Value> },
}

/// Whether a piece matches.
pub(super) enum PieceMatch {
    More,
    Wrong,
    /// The piece ends at this position.
    To(usize),
}

impl Call {
    /// A call whose text begins with piece number `piece`.
    pub(super) fn new(within: TextBlock, piece: usize) -> Self {
        Call {
            within,
            follows: false,
            section: false,
            piece,
            at: 0,
            id: String::new(),
            name: None,
            first_line: String::new(),
            arguments: None,
            reported: String::new(),
            state: None,
            searched: 0,
        }
    }

    /// The first call of a section whose opener comes first.
    pub(super) fn in_section(within: TextBlock) -> Self {
        Call { section: true, ..Call::new(within, 0) }
    }

    /// Begins the call with a permitted name that was read elsewhere.
    pub(super) fn begin(&mut self, name: &str, out: &mut Vec<Parsed>) {
        self.name = Some(name.to_owned());
        out.push(Parsed::Delta { name: name.to_owned(), arguments: String::new() });
    }

    /// Reads on in `text`, which starts at the opener; `end` means that nothing follows it.
    pub(super) fn advance(
        &mut self,
        format: &'static Format,
        tools: &[Tool],
        text: &str,
        end: bool,
        out: &mut Vec<Parsed>,
    ) -> CallProgress {
        loop {
            let reading = if self.section {
                literal_text(text, self.at, format.calls.open)
            } else {
                match format.call.get(self.piece) {
                    Some(piece) => self.piece(piece, tools, text, out),
                    None => return self.complete(),
                }
            };
            match reading {
                PieceMatch::To(at) => {
                    self.at = at;
                    self.piece += usize::from(!self.section);
                    self.section = false;
                }
                // The closing texts may be missing: everything that matters has come.
                PieceMatch::Wrong if self.over(format) => return self.complete(),
                PieceMatch::More if end && self.over(format) => {
                    self.at = text.len();
                    return self.complete();
                }
                PieceMatch::Wrong => return CallProgress::NotACall,
                PieceMatch::More if !end => return CallProgress::More,
                PieceMatch::More => {
                    return match self.name.take() {
                        Some(name) => CallProgress::CutOff {
                            id: std::mem::take(&mut self.id),
                            name,
                            arguments: std::mem::take(&mut self.reported),
                        },
                        None => CallProgress::Unnamed,
                    };
                }
            }
        }
    }

    /// Whether the arguments are complete.
    /// For tagged arguments only the text after them decides this.
    fn over(&self, format: &Format) -> bool {
        let before = self.piece.checked_sub(1).and_then(|last| format.call.get(last));
        self.arguments.is_some() && !matches!(before, Some(Piece::Arguments(Encoding::Tagged(_))))
    }

    fn complete(&mut self) -> CallProgress {
        match (self.name.take(), self.arguments.take()) {
            (Some(name), Some(arguments)) => {
                CallProgress::Complete { length: self.at, id: std::mem::take(&mut self.id), name, arguments }
            }
            _ => CallProgress::NotACall,
        }
    }

    fn piece(
        &mut self,
        piece: &'static Piece,
        tools: &[Tool],
        text: &str,
        out: &mut Vec<Parsed>,
    ) -> PieceMatch {
        let rest = &text[self.at..];
        match piece {
            Piece::Text(literal) => literal_text(text, self.at, literal),
            Piece::Name => {
                let name = rest.trim_start();
                let Some(length) = name.find(|character| !is_bare(character)) else {
                    return PieceMatch::More;
                };
                let at = text.len() - name.len() + length;
                self.named(&name[..length], tools, out).map_or(PieceMatch::Wrong, |()| PieceMatch::To(at))
            }
            Piece::Language => {
                let Some(length) = rest.find('\n') else {
                    return if rest.len() > LONGEST_LINE { PieceMatch::Wrong } else { PieceMatch::More };
                };
                // The block's mark directly follows the fence.
                let line = rest[..length].trim_start_matches('`');
                let named = fences::tool(line, tools).and_then(|(tool, first_line)| {
                    first_line.clone_into(&mut self.first_line);
                    self.named(&tool.name, tools, out)
                });
                named.map_or(PieceMatch::Wrong, |()| PieceMatch::To(self.at + length + 1))
            }
            Piece::Id { .. } | Piece::Number => {
                let Some(length) = rest.find(|character: char| !character.is_ascii_alphanumeric()) else {
                    return PieceMatch::More;
                };
                if matches!(piece, Piece::Id { .. }) {
                    self.id = rest[..length].to_owned();
                }
                PieceMatch::To(self.at + length)
            }
            Piece::NumberedId => {
                let Some(length) = rest.find('<') else { return PieceMatch::More };
                let id = rest[..length].trim();
                let name = id.strip_prefix("functions.").unwrap_or(id);
                let name = name.rsplit_once(':').map_or(name, |(name, _)| name);
                self.id = id.to_owned();
                self.named(name, tools, out).map_or(PieceMatch::Wrong, |()| PieceMatch::To(self.at + length))
            }
            Piece::Object(keys) => {
                let mut scan = match self.state.take() {
                    Some(Scan::Object(scan)) => scan,
                    _ => ObjectScan::new(text, self.at),
                };
                let reading = scan.advance(text, keys);
                if self.name.is_none()
                    && let Some(name) = scan.name(text)
                    && self.named(&name, tools, out).is_none()
                {
                    return PieceMatch::Wrong;
                }
                if let (Some(name), Some(more)) = (&self.name, scan.arguments(text, self.reported.len())) {
                    out.push(Parsed::Delta { name: name.clone(), arguments: more.to_owned() });
                    self.reported.push_str(more);
                }
                if let PieceMatch::To(at) = reading {
                    let Some((id, arguments)) = scan.read(&text[..at], keys) else {
                        return PieceMatch::Wrong;
                    };
                    self.id = id;
                    self.report_rest(&arguments, out);
                    self.arguments = Some(arguments);
                }
                self.state = Some(Scan::Object(scan));
                reading
            }
            Piece::Arguments(encoding) => self.arguments(*encoding, tools, text, out),
        }
    }

    fn arguments(
        &mut self,
        encoding: Encoding,
        tools: &[Tool],
        text: &str,
        out: &mut Vec<Parsed>,
    ) -> PieceMatch {
        match encoding {
            Encoding::Json => {
                let mut scan = match self.state.take() {
                    Some(Scan::Object(scan)) => scan,
                    _ => ObjectScan::new(text, self.at),
                };
                let reading = scan.whole(text);
                let more = scan.seen(text, self.reported.len()).to_owned();
                self.report(&more, out);
                if let PieceMatch::To(at) = reading {
                    let object = crate::chat::formats::value::object(text[self.at..at].trim());
                    let Some(object) = object else { return PieceMatch::Wrong };
                    self.arguments = Some(object);
                }
                self.state = Some(Scan::Object(scan));
                reading
            }
            Encoding::Tagged(tagged) => {
                let mut scan = match self.state.take() {
                    Some(Scan::Tagged(scan)) => scan,
                    _ => TaggedScan::new(self.at),
                };
                let name = self.name.as_deref().unwrap_or_default();
                let tool = tools.iter().find(|tool| tool.name == name);
                let parameters = tool.map_or(&Value::Null, |tool| &tool.parameters);
                let mut json = String::new();
                let reading = scan.advance(text, tagged, parameters, &mut json);
                self.report(&json, out);
                if let PieceMatch::To(_) = reading {
                    self.arguments = Some(std::mem::take(&mut scan.arguments));
                }
                self.state = Some(Scan::Tagged(scan));
                reading
            }
            Encoding::Fence => {
                // The previous line may end exactly where the block does.
                let block = self.at - 1;
                let from = self.searched.max(block);
                let found = text[from..].find(fences::CLOSE).map(|at| from + at);
                let Some(end) = found else {
                    self.searched = text.len().saturating_sub(fences::CLOSE.len()).max(block);
                    while !text.is_char_boundary(self.searched) {
                        self.searched -= 1;
                    }
                    return PieceMatch::More;
                };
                let tool = tools.iter().find(|tool| Some(&tool.name) == self.name.as_ref());
                let body = &text[self.at.min(end)..end];
                let read = tool.and_then(|tool| fences::arguments(tool, &self.first_line, body));
                let Some(arguments) = read else { return PieceMatch::Wrong };
                self.report_rest(&arguments, out);
                self.arguments = Some(arguments);
                PieceMatch::To(end + fences::CLOSE.len())
            }
            // Don't parse before the closing parenthesis may have come.
            Encoding::Keywords if !self.comes(text, ')') => PieceMatch::More,
            Encoding::Braces if !self.comes(text, '}') => PieceMatch::More,
            Encoding::Keywords => self.literal(literal::keywords(&text[self.at..]), out),
            Encoding::Braces => self.literal(literal::object(&text[self.at..]), out),
        }
    }

    /// Whether the unsearched part of the text contains the character.
    fn comes(&mut self, text: &str, character: char) -> bool {
        let from = self.searched.max(self.at);
        self.searched = text.len();
        text[from..].contains(character)
    }

    fn literal(
        &mut self,
        read: Result<(Map<String, Value>, usize), Failure>,
        out: &mut Vec<Parsed>,
    ) -> PieceMatch {
        match read {
            Err(Failure::Unfinished) => PieceMatch::More,
            Err(Failure::Wrong) => PieceMatch::Wrong,
            Ok((arguments, length)) => {
                self.report_rest(&arguments, out);
                self.arguments = Some(arguments);
                PieceMatch::To(self.at + length)
            }
        }
    }

    /// Records the name; `None` if no such tool is permitted.
    fn named(&mut self, name: &str, tools: &[Tool], out: &mut Vec<Parsed>) -> Option<()> {
        tools.iter().any(|tool| tool.name == name).then(|| self.begin(name, out))
    }

    fn report(&mut self, more: &str, out: &mut Vec<Parsed>) {
        if let Some(name) = &self.name
            && !more.is_empty()
        {
            out.push(Parsed::Delta { name: name.clone(), arguments: more.to_owned() });
            self.reported.push_str(more);
        }
    }

    /// Reports the part of the arguments that could not be reported as it came.
    fn report_rest(&mut self, arguments: &Map<String, Value>, out: &mut Vec<Parsed>) {
        if self.reported.is_empty()
            && let Ok(text) = crate::chat::json::dumps(arguments)
        {
            self.report(&text, out);
        }
    }
}

/// Matches `literal` from `at` on; where either has whitespace, or two marks are adjacent, the
/// other may have different whitespace or none.
pub(super) fn literal_text(text: &str, at: usize, literal: &str) -> PieceMatch {
    let mut rest = text[at..].trim_start();
    for mut words in literal.split_whitespace() {
        while !words.is_empty() {
            let (word, more) = words.split_at(next_mark(words));
            words = more;
            rest = rest.trim_start();
            match rest.strip_prefix(word) {
                Some(after) => rest = after,
                None if word.starts_with(rest) => return PieceMatch::More,
                None => return PieceMatch::Wrong,
            }
        }
    }
    PieceMatch::To(text.len() - rest.len())
}
