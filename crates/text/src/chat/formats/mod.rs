//! Tool-call formats: how a family of models writes reasoning, text and calls.
//!
//! A [`Format`] is data, one per family, in `families`.
//! The grammar of a turn, the streaming parser and the rendering of a call are all derived from it,
//! so that the three can't disagree.
//! Of tokens it knows only whether a marker is one.

mod families;
pub(crate) mod fences;
mod literal;
mod loose;
mod options;
mod parser;
mod render;
mod thinking;
mod value;
mod written;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::request::{Request, Tool, ToolChoice};
pub(crate) use literal::value as literal;
pub use loose::may_open;
pub use options::ParseOptions;
pub use parser::{Parsed, Parser};
pub(crate) use render::braces;
pub use thinking::{Reasoning, Thinking};
pub(crate) use value::{Types, resolve, type_name};
pub use written::{Written, written};

/// How a family of models writes a turn.
#[derive(PartialEq)]
pub struct Format {
    /// The family's name, as options and reports use it.
    pub name: &'static str,
    /// Texts by which a chat template is recognized as written for the format: all of any one list.
    templates: &'static [&'static [&'static str]],
    /// Markers that must each be one token, so that ordinary text can't produce them.
    pub(crate) tokens: &'static [&'static str],
    /// How reasoning is marked by those models of the family that reason.
    pub thinking: Thinking,
    /// Whether models of the family call from inside a reasoning block, without closing it first.
    pub(crate) ends_reasoning: bool,
    /// Texts before and after the text of a turn.
    pub(crate) answer: (&'static str, &'static str),
    /// Texts around and between the calls of a turn.
    pub(crate) calls: Calls,
    /// The parts of one call.
    pub(crate) call: &'static [Piece],
    /// How many calls a turn has, and whether it may also have text.
    pub(crate) layout: Layout,
    /// Other texts that open a call when nothing constrains the model, each with the index of the
    /// piece that it begins.
    also: &'static [(&'static str, usize)],
    /// Markers that the parser drops.
    drops: &'static [&'static str],
}

/// Texts around and between the calls of a turn.
#[derive(Debug, PartialEq)]
pub(crate) struct Calls {
    pub open: &'static str,
    pub separator: &'static str,
    pub close: &'static str,
}

/// A part of a call.
/// The parser takes any whitespace where a text has some, and between two marks.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    /// A literal text.
    Text(&'static str),
    /// The tool's name.
    Name,
    /// The call's id, letters and digits.
    Id {
        /// Number of characters.
        length: usize,
    },
    /// The call's id, which contains the tool's name and a number: `functions.NAME:0`.
    NumberedId,
    /// The number of the call within the turn, from 1.
    Number,
    /// The first line of a fenced block, which identifies a tool.
    Language,
    /// A JSON object with name and arguments, in this order.
    Object(Keys),
    /// The arguments.
    Arguments(Encoding),
}

/// The keys of a call that is a JSON object.
#[derive(Debug, PartialEq)]
pub(crate) struct Keys {
    pub name: &'static str,
    pub arguments: &'static str,
    /// The key of an id, and the id's length.
    pub id: Option<(&'static str, usize)>,
}

/// How the arguments of a call are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Encoding {
    /// As a JSON object.
    Json,
    /// One after the other, each between tags: strings verbatim, other values as JSON.
    Tagged(&'static Tagged),
    /// As Python's keyword arguments, without the parentheses: `city="Paris", days=3`.
    Keywords,
    /// As the first line and the body of a fenced block.
    Fence,
    /// As an object whose keys are bare and whose strings are enclosed in marks of their own:
    /// `{city:<|"|>Paris<|"|>,days:3}`.
    Braces,
}

/// How an argument is written between tags.
/// A line feed belongs to the tags and not to the value where it ends the text before a value, or
/// begins the text after it.
#[derive(Debug, PartialEq)]
pub(crate) struct Tagged {
    /// Before the key.
    pub open: &'static str,
    /// Between the key and a string.
    pub string: &'static str,
    /// Between the key and any other value; `{type}` is replaced by the name of its JSON type.
    pub other: &'static str,
    /// After the value.
    pub close: &'static str,
}

/// How many calls a turn has, and whether it may also have text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Layout {
    /// Text, then any number of calls.
    TextAndCalls,
    /// The text is there even if it is empty; then any number of calls.
    TextAlwaysAndCalls,
    /// Either text, or one call whose `{` begins the turn.
    TextOrObject,
    /// Messages with headers (harmony), the last of which is text or a call.
    Messages,
}

/// Whether a bare name can contain `character`.
fn is_bare(character: char) -> bool {
    character.is_alphanumeric() || "_-.".contains(character)
}

/// The offset at which the second mark begins in a text that begins with one: where a bracket
/// closes and another opens.
fn next_mark(text: &str) -> usize {
    let ends = |pair: &[u8]| b">])".contains(&pair[0]) && b"<[({".contains(&pair[1]);
    text.as_bytes().windows(2).position(ends).map_or(text.len(), |at| at + 1)
}

/// Whether a key can be written without quotes.
pub(crate) fn is_bare_key(key: &str) -> bool {
    !key.is_empty()
        && !key.starts_with(|character: char| character.is_ascii_digit())
        && key.chars().all(|character| character.is_alphanumeric() || character == '_')
}

impl std::fmt::Debug for Format {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

impl Format {
    /// All formats, in the order in which their texts are looked up in templates.
    pub fn all() -> &'static [&'static Format] {
        families::ALL
    }

    /// The format for models that were trained on none; the prompt has to describe it.
    pub fn generic() -> &'static Format {
        &families::GENERIC
    }

    /// The format whose calls are a single JSON object; the prompt has to describe it.
    pub fn bare() -> &'static Format {
        &families::BARE
    }

    /// The format with this name; `house` is the generic format's name up to version 0.1.
    pub fn from_name(name: &str) -> Option<&'static Format> {
        let name = if name == "house" { Format::generic().name } else { name };
        Format::all().iter().copied().find(|format| format.name == name)
    }

    /// The format that a chat template is written for.
    pub(crate) fn detect(template: &str) -> Option<&'static Format> {
        let fits = |format: &&&Format| {
            format.templates.iter().any(|texts| texts.iter().all(|text| template.contains(text)))
        };
        Format::all().iter().find(fits).copied()
    }

    /// Whether the prompt has to describe the format because the template doesn't.
    pub fn described(&self) -> bool {
        self.templates.is_empty()
    }

    /// Whether calls are fenced blocks of code.
    pub fn in_fences(&self) -> bool {
        self.call.contains(&Piece::Language)
    }

    /// Whether the tool of this name runs code in a language that models write in blocks.
    pub fn runs_code(tool: &str) -> bool {
        fences::runs_code(tool)
    }

    /// The text that closes a string in the arguments of a call.
    pub fn end_of_string(&self) -> &'static str {
        let mut marks = self.call.iter().filter_map(|piece| match piece {
            Piece::Arguments(Encoding::Tagged(tagged)) => Some(tagged.close),
            Piece::Arguments(Encoding::Fence) => Some(fences::CLOSE),
            Piece::Arguments(Encoding::Braces) => Some(literal::QUOTE),
            _ => None,
        });
        marks.next().unwrap_or("\"")
    }

    /// The first of the format's markers that isn't a token of the vocabulary; `None` if all are.
    pub fn missing_marker(&self, token: &dyn Fn(&str) -> Option<u32>) -> Option<&'static str> {
        self.tokens.iter().copied().find(|marker| token(marker).is_none())
    }

    /// Why the format can't express calls of `tool`, if it can't.
    pub fn refusal(&self, tool: &Tool) -> Option<String> {
        if tool.name.is_empty() || tool.name.chars().any(char::is_control) {
            return Some("a tool's name must have at least one character and no control characters".into());
        }
        let object = self.call.iter().any(|piece| matches!(piece, Piece::Object(_)));
        if !object && !tool.name.chars().all(is_bare) {
            let name = self.name;
            return Some(format!(
                "the {name} format writes names bare: letters, digits, '_', '-' and '.' are possible"
            ));
        }
        None
    }

    /// Whether the format can express arguments with this key.
    pub(crate) fn expresses_key(&self, key: &str) -> bool {
        self.call.iter().all(|piece| match piece {
            Piece::Arguments(Encoding::Tagged(tagged)) => {
                let after = [tagged.string, tagged.other].map(|text| text.trim_start().chars().next());
                let bare = |character: char| {
                    !character.is_control() && !"<>".contains(character) && !after.contains(&Some(character))
                };
                !key.is_empty() && key.trim() == key && key.chars().all(bare)
            }
            Piece::Arguments(Encoding::Keywords | Encoding::Braces) => is_bare_key(key),
            _ => true,
        })
    }

    /// The text that opens the first call of a turn; empty where a call begins as a JSON object at
    /// the of the turn.
    pub(crate) fn opening(&self) -> &'static str {
        match (self.calls.open, self.call.first()) {
            ("", Some(Piece::Text(text))) => text.trim_end(),
            // Only the first of several marks: whitespace may precede the others.
            (open, _) => open[..next_mark(open)].trim_end(),
        }
    }

    /// The text by which the parser recognizes a call.
    pub(crate) fn opener(&self) -> &'static str {
        self.opening().trim_start()
    }

    /// The texts that open calls, each with the index of the piece that it begins; `None` for the
    /// text that opens the section of all calls.
    fn openers(&self) -> impl Iterator<Item = (&'static str, Option<usize>)> {
        let section = !self.calls.open.is_empty();
        let own = (self.opener(), (!section).then_some(0));
        let also = self.also.iter().map(|&(text, piece)| (text, Some(piece)));
        std::iter::once(own).chain(also).filter(|(text, _)| !text.is_empty())
    }

    /// Whether `mark` is part of the texts around or in calls, or around reasoning.
    pub(crate) fn writes(&self, mark: &str) -> bool {
        let Calls { open, separator, close } = self.calls;
        let pieces = self.call.iter().flat_map(|piece| match piece {
            Piece::Text(text) => vec![*text],
            Piece::Arguments(Encoding::Tagged(tagged)) => vec![tagged.open, tagged.string, tagged.close],
            _ => Vec::new(),
        });
        let around =
            [open, separator, close, self.answer.0, self.answer.1, self.thinking.open, self.thinking.close];
        let others =
            self.tokens.iter().chain(self.drops).copied().chain(self.openers().map(|(text, _)| text));
        around.into_iter().chain(pieces).chain(others).any(|text| text.contains(mark))
    }

    /// As [`Turn::reserved`], for any set of tools.
    fn reserved(&self) -> impl Iterator<Item = &'static str> {
        let ends: &[&str] = if self.layout == Layout::Messages { &parser::MESSAGE_ENDS } else { &[] };
        self.openers().map(|(text, _)| text).chain(self.drops.iter().chain(ends).copied())
    }
}

/// What a turn may contain.
/// Grammar and parser are derived from the same value.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// How calls are written.
    pub format: &'static Format,
    /// The tools that may be called; any other name is not a call.
    pub tools: Vec<Tool>,
    /// Whether the turn may, must or must not call.
    pub tool_choice: ToolChoice,
    /// Schemas by tool name that replace the tool's own: its arguments must match one of them.
    pub bound: BTreeMap<String, Vec<Value>>,
    /// Whether there may be several calls.
    pub parallel_tool_calls: bool,
    /// Whether the turn begins with a reasoning block.
    pub reasoning: Reasoning,
    /// How reasoning is marked; `None` if the model writes none.
    pub thinking: Option<Thinking>,
    /// The schema of the text, if it must be JSON.
    pub schema: Option<Value>,
    /// The grammar of the text in Lark, if it has one.
    pub grammar: Option<String>,
    /// The limit also bounds lists, free-form objects and free-form values, so that every call
    /// ends, except with recursive schemas.
    /// `None` = unlimited.
    pub string_limit: Option<usize>,
    /// Whether the turn continues a bare text: its text is exactly what its tokens decode to,
    /// without marks, and with all whitespace.
    pub raw: bool,
}

impl Turn {
    /// The turn for `request`, after a prompt that `template` rendered with this end.
    pub fn new(format: &'static Format, request: &Request, template: &str, generation_prompt: &str) -> Self {
        let thinking = format.thinking.in_template(template);
        let reasoning = match thinking {
            Some(thinking) => thinking.after(generation_prompt, request.thinking != Some(false)),
            None => Reasoning::Never,
        };
        Turn {
            format,
            tools: request.tools.clone(),
            tool_choice: request.tool_choice.clone(),
            bound: request.bound.clone(),
            parallel_tool_calls: request.parallel_tool_calls,
            reasoning,
            thinking,
            schema: None,
            grammar: None,
            string_limit: request.string_limit,
            raw: request.is_raw() && request.tools.is_empty(),
        }
    }

    /// Returns the turn without calls and with JSON as its text.
    #[must_use]
    pub fn in_json(self, schema: &Value) -> Self {
        Turn { tools: Vec::new(), tool_choice: ToolChoice::None, schema: Some(schema.clone()), ..self }
    }

    /// Returns the turn without calls and with a text that matches a Lark grammar.
    #[must_use]
    pub fn in_grammar(self, lark: &str) -> Self {
        Turn { tools: Vec::new(), tool_choice: ToolChoice::None, grammar: Some(lark.into()), ..self }
    }

    /// Returns the turn with exactly one call required.
    #[must_use]
    pub fn that_must_call(self) -> Self {
        let tool_choice = match self.tool_choice {
            ToolChoice::Auto => ToolChoice::Required,
            ToolChoice::Among { names, .. } => ToolChoice::Among { names, required: true },
            other => other,
        };
        Turn { tool_choice, parallel_tool_calls: false, ..self }
    }

    /// Whether the turn's text has a grammar, which decides when it is complete.
    pub fn has_shape(&self) -> bool {
        self.schema.is_some() || self.grammar.is_some()
    }

    /// The text that a turn begins with if it continues this reasoning and this text, including the
    /// marks of both, as the model would have written them.
    /// With an empty text the reasoning continues.
    pub fn continuation(&self, thoughts: &str, text: &str) -> String {
        let (thoughts, text) = (thoughts.trim_end(), text.trim_end());
        let marks = self.thinking.filter(|_| self.reasoning != Reasoning::Never);
        let thinks = self.reasoning == Reasoning::Open || !thoughts.is_empty();
        let thought = marks.filter(|_| thinks).map_or(String::new(), |marks| {
            let open = if self.reasoning == Reasoning::Open { "" } else { marks.open };
            let line = if marks.gap.starts_with('\n') { "\n" } else { "" };
            let close = [line, marks.close, marks.gap].concat();
            format!("{open}{thoughts}{}", if text.is_empty() { "" } else { &close })
        });
        let before = if text.is_empty() { "" } else { self.format.answer.0 };
        [&thought, before, text].concat()
    }

    /// Whether the turn may have calls.
    pub fn may_call(&self) -> bool {
        !self.has_shape() && self.permitted().next().is_some()
    }

    /// Whether the turn must be a call.
    pub fn must_call(&self) -> bool {
        !self.has_shape() && self.tool_choice.must_call()
    }

    /// The text that ends the reasoning of this turn; `None` if it has no reasoning.
    pub fn end_of_reasoning(&self) -> Option<&'static str> {
        self.thinking.filter(|_| self.reasoning != Reasoning::Never).map(|thinking| thinking.close)
    }

    /// Texts that free text can't contain because the parser would take them for marks.
    pub(crate) fn reserved(&self) -> Vec<Cow<'static, str>> {
        if self.format.in_fences() {
            return fences::openers(self.permitted()).map(Cow::Owned).collect();
        }
        self.format.reserved().map(Cow::Borrowed).collect()
    }

    /// The tools that the choice permits.
    pub fn permitted(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter().filter(|tool| self.tool_choice.permits(&tool.name))
    }
}

#[cfg(test)]
mod tests;
