//! Tool-call formats: how a family of models writes reasoning and calls.
//!
//! The set of families is closed, one file each: what its grammar is, how its output is parsed and how a call is
//! rendered, so that the three can't disagree. Knows nothing of tokens but whether a marker is one.

mod hermes;
mod options;
mod parser;

use serde_json::Value;

use crate::request::{Request, Tool, ToolCall, ToolChoice};
pub use options::{ParseOptions, ReasoningFormat};
pub use parser::{Parsed, Parser};

/// A family of models, by the way they write a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Hermes, Qwen 2.5, Qwen 3: a JSON object with `name` and `arguments` between `<tool_call>` tags.
    Hermes,
}

impl Format {
    /// All families, in the order in which [`Format::detect`] tries them.
    pub const ALL: [Format; 1] = [Format::Hermes];

    /// The family's name, as options and reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Hermes => "hermes",
        }
    }

    /// The family of this name.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The family that a chat template is written for; `None` if it describes no calls or none that we know.
    pub fn detect(template: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| match format {
            Format::Hermes => hermes::detect(template),
        })
    }

    /// A call as the family's template prints it in the history, without what separates it from its neighbours.
    ///
    /// # Errors
    /// If the arguments can't be written as JSON.
    pub fn render_call(self, call: &ToolCall) -> serde_json::Result<String> {
        match self {
            Format::Hermes => hermes::render_call(call),
        }
    }

    /// The grammar of one turn, as Lark for llguidance. `schemas` are the JSON schemas of the permitted tools' arguments,
    /// `token` gives the id of a text that is one token.
    pub(crate) fn grammar(
        self,
        turn: &Turn,
        schemas: &[Value],
        token: &dyn Fn(&str) -> Option<u32>,
    ) -> String {
        match self {
            Format::Hermes => hermes::grammar(turn, schemas, token),
        }
    }

    /// What opens a call.
    fn opener(self) -> &'static str {
        match self {
            Format::Hermes => hermes::OPEN,
        }
    }

    /// Tries to read the call whose opener has just been seen. `text` is all that followed so far, `done` how far an earlier
    /// attempt on a shorter text got.
    fn read_call(self, text: &str, done: &mut Scan) -> Read {
        match self {
            Format::Hermes => hermes::read_call(text, done),
        }
    }
}

/// Opens a reasoning block.
const THINK: &str = "<think>";
/// Closes a reasoning block.
const END_THINK: &str = "</think>";

/// Whether a turn has a reasoning block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// No: the prompt closed an empty one, or the model doesn't reason.
    Never,
    /// The turn may begin with one.
    Optional,
    /// The prompt has opened it, the turn continues inside.
    Open,
}

impl Reasoning {
    /// What the end of a prompt leaves possible; `thinks` says whether the model's template knows reasoning blocks.
    pub fn after(generation_prompt: &str, thinks: bool) -> Self {
        match (generation_prompt.rfind(THINK), generation_prompt.rfind(END_THINK)) {
            (Some(open), close) if close.is_none_or(|close| close < open) => Reasoning::Open,
            (None, None) if thinks => Reasoning::Optional,
            _ => Reasoning::Never,
        }
    }
}

/// What a turn may consist of. Grammar and parser are made from the same value.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// How calls are written.
    pub format: Format,
    /// The tools that may be called; no other name is a call.
    pub tools: Vec<Tool>,
    /// Whether a call is wanted.
    pub tool_choice: ToolChoice,
    /// Whether there may be several calls.
    pub parallel_tool_calls: bool,
    /// Whether the turn begins with a reasoning block.
    pub reasoning: Reasoning,
}

impl Turn {
    /// The turn that a request asks for, after a prompt that `template` rendered with this end.
    pub fn new(format: Format, request: &Request, template: &str, generation_prompt: &str) -> Self {
        let thinks = template.contains(THINK) && request.thinking != Some(false);
        Turn {
            format,
            tools: request.tools.clone(),
            tool_choice: request.tool_choice.clone(),
            parallel_tool_calls: request.parallel_tool_calls,
            reasoning: Reasoning::after(generation_prompt, thinks),
        }
    }

    /// The tools that the choice permits.
    pub fn permitted(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter().filter(|tool| match &self.tool_choice {
            ToolChoice::None => false,
            ToolChoice::Auto | ToolChoice::Required => true,
            ToolChoice::Named(name) => tool.name == *name,
        })
    }
}

/// How far an unfinished call has been looked at, so that each byte is looked at once.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    at: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    end: Option<usize>,
}

impl Scan {
    /// Where the JSON object or array that starts at `start` ends, once that can be seen. Looks at brackets and strings only.
    fn json_end(&mut self, text: &str, start: usize) -> Option<usize> {
        self.at = self.at.max(start);
        while self.end.is_none() {
            let byte = *text.as_bytes().get(self.at)?;
            self.at += 1;
            if self.in_string {
                let escape = byte == b'\\' && !self.escaped;
                self.in_string = byte != b'"' || self.escaped;
                self.escaped = escape;
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.end = (self.depth == 0).then_some(self.at);
                }
                _ => {}
            }
        }
        self.end
    }
}

/// What became of an attempt to read a call.
#[derive(Debug, PartialEq)]
enum Read {
    /// Whether it is one depends on what follows.
    Unfinished,
    /// It can't become a call.
    NotACall,
    /// A call that takes up `length` bytes.
    Call { length: usize, name: String, arguments: serde_json::Map<String, Value> },
}

#[cfg(test)]
mod tests;
