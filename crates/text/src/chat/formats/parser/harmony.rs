//! Messages with headers, as gpt-oss writes them.
//!
//! Source: the harmony format's description by OpenAI: `<|start|>ROLE
//! to=RECIPIENT<|channel|>CHANNEL <|constrain|>TYPE<|message|>…`.
//! Recipient and channel may be swapped; the answer's first header begins after the role.
//! Models leave out `functions.`.

use super::{Call, Ends, Parsed, Parser, ParserState, TextBlock};
use crate::chat::formats::Piece;

/// Tokens that end a message.
pub(in crate::chat::formats) const ENDS: [&str; 4] = ["<|end|>", "<|call|>", "<|return|>", "<|start|>"];
const BODY: &str = "<|message|>";
const CHANNEL: &str = "<|channel|>";
const RECIPIENT: &str = "to=";
const FUNCTIONS: &str = "functions.";

impl Parser {
    /// Reads a message's header.
    pub(super) fn header(&mut self, out: &mut Vec<Parsed>, end: bool) -> bool {
        let Some(length) = self.pending.find(BODY) else {
            // A header without these is the message itself, unless it was cut off.
            let header = self.pending.contains(CHANNEL) || self.pending.trim_start().starts_with(RECIPIENT);
            if end && !(self.cut && header) {
                self.print(TextBlock::Text, self.pending.len(), Ends::Turn, out);
            }
            return false;
        };
        let header = &self.pending[..length];
        let word = |text: &str| {
            let end = text.find(|character: char| character.is_whitespace() || character == '<');
            text[..end.unwrap_or(text.len())].to_owned()
        };
        let channel = header.rsplit_once(CHANNEL).map(|(_, text)| word(text)).unwrap_or_default();
        let recipient = header.rsplit_once(RECIPIENT).map(|(_, text)| word(text)).unwrap_or_default();
        let body = length + BODY.len();
        let name = recipient.strip_prefix(FUNCTIONS).unwrap_or(&recipient);
        if self.tools.iter().any(|tool| tool.name == name) {
            let arguments = self.format.call.iter().position(|piece| matches!(piece, Piece::Arguments(_)));
            let mut call = Call::new(TextBlock::Text, arguments.unwrap_or_default());
            call.begin(name, out);
            return self.enter(ParserState::Call(Box::new(call)), body);
        }
        let elsewhere = !recipient.is_empty() && recipient != "assistant" && recipient != "user";
        let block = match channel.as_str() {
            "analysis" if self.thinking.is_some() => TextBlock::Reasoning,
            "analysis" => {
                let at = header.find(CHANNEL).unwrap_or_default();
                out.push(Parsed::Text(self.pending[at..body].to_owned()));
                TextBlock::Verbatim
            }
            _ if elsewhere => TextBlock::Dropped,
            _ => TextBlock::Text,
        };
        self.enter(ParserState::TextBlock(block), body)
    }
}
