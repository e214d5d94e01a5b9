//! Chat templates: Jinja as Hugging Face's `apply_chat_template` sets it up, on minijinja.
//!
//! Owns the rendering of a conversation as one string.
//! Of tokens it knows only the texts that must not be forged.

mod environment;
mod example;
mod family;
mod generic;
mod limits;
mod messages;
mod placeholders;
mod probe;
mod signature;
mod turns;

use std::borrow::Cow;
use std::error::Error as _;
use std::sync::OnceLock;

use jiff::civil::DateTime;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error};
use serde_json::Map;

use super::Format;
use crate::jinja;
use crate::request::{ReasoningEffort, Request};
use environment::Raised;
pub use family::{Family, Traits};
pub use generic::generic_messages;
use messages::{Dialect, tool_value};
use placeholders::{Guarded, Placeholders};
use probe::Reading;

/// An error of a chat template.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template is not valid Jinja.
    #[error("line {line} of the chat template: {message}")]
    Syntax {
        /// Line in the template, from 1.
        line: usize,
        /// The problem.
        message: String,
    },
    /// The template refuses the conversation with `raise_exception`.
    #[error("the chat template refuses this conversation (its line {line}): {message}")]
    Raised {
        /// Line in the template, from 1.
        line: usize,
        /// The template's message.
        message: String,
    },
    /// The template can't be executed for this conversation.
    #[error("line {line} of the chat template does not work for this conversation: {message}")]
    Render {
        /// Line in the template, from 1.
        line: usize,
        /// The problem.
        message: String,
    },
    /// No thread to compile or render on is available, or minijinja panicked.
    #[error("the chat template can't be carried out: {0}")]
    Thread(#[from] std::io::Error),
    /// The conversation uses every private-use character, so that control tokens in it can't be
    /// escaped.
    #[error("the conversation leaves no private-use character free to stand in for control token {token}")]
    NoPlaceholder {
        /// Text of the control token.
        token: String,
    },
    /// The text of a message is missing from the prompt.
    #[error(
        "{template} leaves out what the {role} says (`{text}`), so that the model would answer to something else; \
         `--chat-template` gives another one"
    )]
    Lost {
        /// The name of the template.
        template: String,
        /// The role of the message.
        role: String,
        /// The beginning of its text.
        text: String,
    },
    /// The template has no place for the tools and calls, and they can't be written as text.
    #[error("tools can't be described to a model whose chat template has no place for them: {message}")]
    Generic {
        /// The problem.
        message: String,
    },
}

/// A rendered prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The whole prompt.
    /// All texts of control tokens in it come from the template.
    pub text: String,
    /// Private-use characters in `text`, each with the plain text that it stands for: text of the
    /// conversation that reads like a control token.
    /// The tokenizer restores it as ordinary text.
    pub placeholders: Vec<(char, String)>,
    /// The suffix of `text` that asks for the answer, for example `<|im_start|>assistant\n`.
    pub generation_prompt: String,
    /// The reasoning and the text of the assistant message to be continued, with placeholders;
    /// no other field contains them.
    pub continued: Option<(String, String)>,
    /// The part of the answer that `text` already contains, as the model would have written it.
    pub continuation: String,
}

impl Prompt {
    /// Appends the beginning of an answer, which may contain placeholders.
    pub fn continue_with(&mut self, beginning: &str) {
        self.text += beginning;
        self.continuation = self
            .placeholders
            .iter()
            .fold(beginning.to_owned(), |text, (character, plain)| text.replace(*character, plain));
    }
}

/// A model's chat template, compiled.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// The name in errors.
    name: String,
    source: String,
    dialect: Dialect,
    /// How the template reads texts; probed on first use.
    reading: OnceLock<Reading>,
    /// A separate template for requests that have tools.
    tool_use: Option<Box<ChatTemplate>>,
    /// How calls are written, if known.
    calls: Option<&'static Format>,
    bos: String,
    eos: String,
    variables: Map<String, serde_json::Value>,
    /// Texts that the template writes around contents, and that are tokens which any text can
    /// contain.
    marks: Vec<String>,
}

const NAME: &str = "chat";

/// Most bytes of a message that an error shows.
const SHOWN: usize = 60;

impl ChatTemplate {
    /// Compiles `source`; `bos` and `eos` are the texts of the model's BOS and EOS tokens, or
    /// empty.
    ///
    /// # Errors
    /// [`TemplateError::Syntax`] if the source is not valid Jinja.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        let mut environment = environment::hugging_face();
        let text = jinja::bounded(&environment::without_generation_tags(source), &jinja::MARKS)
            .map_err(|refused| TemplateError::Syntax { line: refused.line, message: refused.what.into() })?;
        let looked_up = limits::on_deep_stack(|| {
            let added =
                environment.add_template_owned(NAME, text).and_then(|()| environment.get_template(NAME));
            let added = added.map(|template| template.undeclared_variables(false));
            added.map_err(|error| TemplateError::Syntax { line: line(&error), message: message(&error) })
        })??;
        Ok(ChatTemplate {
            dialect: Dialect::of(source, &looked_up),
            environment,
            name: "the chat template".into(),
            source: source.into(),
            reading: OnceLock::new(),
            tool_use: None,
            calls: None,
            bos: bos.into(),
            eos: eos.into(),
            variables: Map::new(),
            marks: Vec::new(),
        })
    }

    /// Returns the template with `variables` added to every conversation.
    #[must_use]
    pub fn with_variables(self, variables: Map<String, serde_json::Value>) -> Self {
        ChatTemplate { variables, ..self }
    }

    /// Returns the template with a name for errors.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        ChatTemplate { name: name.into(), ..self }
    }

    /// Returns the template with a separate one for requests that have tools.
    #[must_use]
    pub fn with_tool_use(self, template: ChatTemplate) -> Self {
        ChatTemplate { tool_use: Some(Box::new(template)), ..self }
    }

    /// Returns the template for a vocabulary with these
    /// [marks](crate::tokenizer::Tokenizer::marks).
    /// Messages of any role but the assistant can't forge those that the template or its calls use.
    #[must_use]
    pub fn with_marks<'m>(self, marks: impl Iterator<Item = &'m str> + Clone) -> Self {
        let format = self.calls.or_else(|| self.format()).unwrap_or(Format::generic());
        let used = |mark: &&str| {
            self.source.contains(mark)
                || format.writes(mark)
                || generic::RESPONSE.0.contains(mark)
                || generic::RESPONSE.1.contains(mark)
        };
        let own = marks.clone().filter(used).map(String::from).collect();
        let tool_use = self.tool_use.map(|template| Box::new(template.with_marks(marks)));
        ChatTemplate { marks: own, tool_use, ..self }
    }

    /// The template that renders `request`.
    pub fn serving(&self, request: &Request) -> &ChatTemplate {
        self.tool_use.as_deref().filter(|_| !request.tools.is_empty()).unwrap_or(self)
    }

    /// Returns the template for a model that writes calls in `format`.
    /// This matters if the template prints no calls, or if the prompt has to describe the format.
    #[must_use]
    pub fn with_calls(self, format: &'static Format) -> Self {
        let dialect = self.dialect.without(format.described());
        let tool_use = self.tool_use.map(|template| Box::new(template.with_calls(format)));
        ChatTemplate { calls: Some(format), dialect, tool_use, ..self }
    }

    /// The call format that the template is written for: the generic format if it prints neither
    /// tools nor calls.
    /// `None` if it prints some in an unknown way.
    pub fn format(&self) -> Option<&'static Format> {
        if let Some(template) = &self.tool_use {
            return template.format();
        }
        let untaught = self.dialect.without_tools && self.dialect.without_calls;
        if untaught { Some(Format::generic()) } else { Format::detect(&self.source) }
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation given as JSON: `variables` holds `messages`, `tools` and any other
    /// template variables, passed on unchanged.
    /// `tools` and `documents` default to null, `bos_token` and `eos_token` to the model's.
    /// `strftime_now` prints `now`.
    ///
    /// # Errors
    /// [`TemplateError::Raised`] and [`TemplateError::Render`].
    pub fn render_values(
        &self,
        variables: &Map<String, serde_json::Value>,
        now: DateTime,
    ) -> Result<String, TemplateError> {
        let mut context: Vec<(&str, Value)> = vec![
            ("tools", Value::from(())),
            ("documents", Value::from(())),
            ("bos_token", Value::from(self.bos.as_str())),
            ("eos_token", Value::from(self.eos.as_str())),
            // A value rather than a global function, since the time differs between calls.
            ("strftime_now", environment::clock(now)),
        ];
        let fuel = limits::fuel(variables);
        let variables = self.variables.iter().chain(variables);
        context.extend(variables.map(|(key, value)| (key.as_str(), Value::from(Serde(value)))));
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(fuel));
        // Values and errors nest deeply as well, so drop them on the deep stack.
        limits::on_deep_stack(move || {
            let rendered =
                environment.get_template(NAME).and_then(|chat| chat.render(Value::from_pairs(context)));
            rendered.map_err(|error| failure(&error))
        })?
    }

    /// Renders the prompt for a request.
    /// `control` holds the texts of the model's control tokens.
    ///
    /// # Errors
    /// As [`ChatTemplate::render_values`], [`TemplateError::NoPlaceholder`], and
    /// [`TemplateError::Lost`].
    pub fn render(
        &self,
        request: &Request,
        control: &[String],
        now: DateTime,
    ) -> Result<Prompt, TemplateError> {
        if !std::ptr::eq(self, self.serving(request)) {
            return self.serving(request).render(request, control, now);
        }
        let (request, continued) = match request.continue_final_message.then(|| request.messages.split_last())
        {
            Some(Some((last, before))) => {
                let before = Request { messages: before.to_vec(), ..request.clone() };
                let thoughts = last.reasoning_content.as_deref().unwrap_or_default();
                (Cow::Owned(before), Some([thoughts, &last.content].map(serde_json::Value::from)))
            }
            _ => (Cow::Borrowed(request), None),
        };
        let request = request.as_ref();
        let dialect = self.dialect;
        let reading = *self.reading.get_or_init(|| Reading::of(self));
        let mut messages = dialect.messages(request);
        let listed = request.tools.iter().filter(|tool| !request.unlisted.contains(&tool.name));
        let mut tools: Vec<_> = listed.map(tool_value).collect();

        let mut continued = continued.map(Vec::from).unwrap_or_default();
        let values = messages.iter().chain(&tools).chain(&continued);
        let mut placeholders = Placeholders::new(control, &self.marks, &self.source, values);
        for message in &mut messages {
            let own = message["role"] == "assistant";
            placeholders.protect(message, if own { Guarded::Control } else { Guarded::Marks })?;
        }
        tools.iter_mut().try_for_each(|tool| placeholders.protect(tool, Guarded::Marks))?;
        continued.iter_mut().try_for_each(|text| placeholders.protect(text, Guarded::Control))?;

        let format = self.calls.unwrap_or(Format::generic());
        if dialect.without_calls {
            generic::calls_as_text(&mut messages, format)?;
        }
        if dialect.without_results {
            messages = generic::with_results_as_text(messages);
        }
        if dialect.without_tools {
            let (tools, must) = (std::mem::take(&mut tools), generic::must(request));
            generic::describe(&mut messages, &tools, format, dialect.without_results, must)?;
        }
        if dialect.without_system || reading.without_system {
            generic::with_system_in_first_turn(&mut messages);
        }
        if dialect.alternating {
            messages = turns::alternating(messages);
        }

        reading.give_parts(&mut messages);

        let mut variables = Map::new();
        variables.insert("messages".into(), messages.into());
        if !tools.is_empty() {
            let name = if dialect.xml_tools { "xml_tools" } else { "tools" };
            variables.insert(name.into(), tools.into());
        }
        if let Some(thinking) = request.thinking {
            // Qwen, GLM and SmolLM use the first name, DeepSeek and Granite the second.
            variables.insert("enable_thinking".into(), thinking.into());
            variables.insert("thinking".into(), thinking.into());
        }
        let effort = request.reasoning_effort.map(|effort| match effort {
            ReasoningEffort::Low => "low",
            ReasoningEffort::Medium => "medium",
            ReasoningEffort::High => "high",
        });
        // Harmony models always reason; this is the lowest effort.
        let least = (dialect.harmony && request.thinking == Some(false)).then_some("low");
        if let Some(effort) = least.or(effort) {
            variables.insert("reasoning_effort".into(), effort.into());
        }
        variables.insert("add_generation_prompt".into(), true.into());
        let text = self.render_values(&variables, now)?;
        let messages = variables["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some((role, lost)) = probe::lost(messages, &text) {
            let (template, role) = (self.name.clone(), role.to_owned());
            let text = lost[..lost.floor_char_boundary(SHOWN)].to_owned();
            return Err(TemplateError::Lost { template, role, text });
        }

        // A template that can't be rendered without a generation prompt has no separable one.
        variables.insert("add_generation_prompt".into(), false.into());
        let history = self.render_values(&variables, now).unwrap_or_else(|_| text.clone());
        let generation_prompt = text[common_prefix(&text, &history)..].to_owned();
        let mut continued = continued.iter().map(|value| value.as_str().unwrap_or_default().to_owned());
        Ok(Prompt {
            text,
            placeholders: placeholders.into_used(),
            generation_prompt,
            continued: continued.next().zip(continued.next()),
            continuation: String::new(),
        })
    }
}

/// Length in bytes of the longest common prefix that ends between characters.
fn common_prefix(a: &str, b: &str) -> usize {
    let same = a.char_indices().zip(b.chars()).take_while(|((_, x), y)| x == y).last();
    same.map_or(0, |((at, character), _)| at + character.len_utf8())
}

/// Converts the innermost error: the outer ones only name the macro or block that it happened in.
fn failure(error: &Error) -> TemplateError {
    let mut innermost = error;
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(Raised(message)) = inner.downcast_ref() {
            return TemplateError::Raised { line: line(innermost), message: message.clone() };
        }
        innermost = inner.downcast_ref().unwrap_or(innermost);
        cause = inner.source();
    }
    TemplateError::Render { line: line(innermost), message: message(innermost) }
}

fn line(error: &Error) -> usize {
    error.line().unwrap_or(0)
}

/// The error's message, without minijinja's own location.
fn message(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

#[cfg(test)]
mod tests;
