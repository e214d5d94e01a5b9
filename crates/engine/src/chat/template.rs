//! Chat templates: Jinja as Hugging Face's `apply_chat_template` sets it up, on minijinja.
//!
//! Owns how a conversation becomes one string. Knows nothing of tokens but the texts that must not be forged.

mod environment;
mod stand_ins;

use std::error::Error as _;

use jiff::civil::DateTime;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error};
use serde_json::{Map, json};

use crate::request::{Message, Request, Role, Segment, Tool};
use environment::Raised;
use stand_ins::StandIns;

/// What can go wrong with a chat template.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template is not valid Jinja.
    #[error("line {line} of the chat template: {message}")]
    Syntax {
        /// Line in the template, from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// The template itself refuses the conversation, by `raise_exception`.
    #[error("the chat template refuses this conversation (its line {line}): {message}")]
    Raised {
        /// Line in the template, from 1.
        line: usize,
        /// The template's own words.
        message: String,
    },
    /// The template could not be carried out for this conversation.
    #[error("line {line} of the chat template does not work for this conversation: {message}")]
    Render {
        /// Line in the template, from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// The conversation uses every private-use character there is, so that control tokens in it can't be made harmless.
    #[error("the conversation leaves no private-use character free to stand in for control token {token}")]
    NoStandIn {
        /// Text of the control token.
        token: String,
    },
}

/// A prompt, rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The whole prompt. Texts of control tokens in it come from the template.
    pub text: String,
    /// Private-use characters in `text` and the plain text that each stands for: a text that reads like a control
    /// token and came from the conversation. The tokenizer puts it back as ordinary text.
    pub stand_ins: Vec<(char, String)>,
    /// The end of `text` that only asks for the answer, for example `<|im_start|>assistant\n`.
    pub generation_prompt: String,
}

/// A model's chat template, compiled.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    bos: String,
    eos: String,
}

/// Instructions that one rendering may take: some seconds of work, far beyond any honest template.
const FUEL: u64 = 50_000_000;

const NAME: &str = "chat";

impl ChatTemplate {
    /// Compiles `source`; `bos` and `eos` are the texts of the model's tokens of these names, or empty.
    ///
    /// # Errors
    /// [`TemplateError::Syntax`] if the source is not valid Jinja.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        let mut environment = environment::hugging_face();
        environment.set_fuel(Some(FUEL));
        environment
            .add_template_owned(NAME, environment::without_generation_tags(source))
            .map_err(|error| TemplateError::Syntax { line: line(&error), message: message(&error) })?;
        Ok(ChatTemplate { environment, source: source.into(), bos: bos.into(), eos: eos.into() })
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation given as JSON: `variables` holds `messages`, `tools` and whatever else the template
    /// shall see, exactly as it shall see it. `tools` and `documents` default to null, `bos_token` and `eos_token` to the
    /// model's. `now` is what `strftime_now` prints.
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
            // A value rather than a global function, since the clock differs from call to call.
            ("strftime_now", environment::clock(now)),
        ];
        context.extend(variables.iter().map(|(key, value)| (key.as_str(), Value::from(Serde(value)))));
        let template = self.environment.get_template(NAME).map_err(|error| failure(&error))?;
        template.render(Value::from_pairs(context)).map_err(|error| failure(&error))
    }

    /// Renders the prompt for a request. `control` are the texts of the model's control tokens.
    ///
    /// # Errors
    /// As [`ChatTemplate::render_values`], and [`TemplateError::NoStandIn`].
    pub fn render(
        &self,
        request: &Request,
        control: &[String],
        now: DateTime,
    ) -> Result<Prompt, TemplateError> {
        let mut messages: Vec<_> =
            system_message(&request.system).as_ref().map(message_value).into_iter().collect();
        messages.extend(request.messages.iter().map(message_value));
        let mut messages = serde_json::Value::Array(messages);
        let mut tools = serde_json::Value::Array(request.tools.iter().map(tool_value).collect());

        let mut stand_ins = StandIns::new(control, &self.source, [&messages, &tools]);
        stand_ins.protect(&mut messages)?;
        stand_ins.protect(&mut tools)?;

        let mut variables = Map::new();
        variables.insert("messages".into(), messages);
        if !request.tools.is_empty() {
            variables.insert("tools".into(), tools);
        }
        if let Some(thinking) = request.thinking {
            // Qwen, GLM and SmolLM call it the one, DeepSeek and Granite the other.
            variables.insert("enable_thinking".into(), thinking.into());
            variables.insert("thinking".into(), thinking.into());
        }
        variables.insert("add_generation_prompt".into(), true.into());
        let text = self.render_values(&variables, now)?;

        // A template that can't do without the generation prompt has none that could be told apart.
        variables.insert("add_generation_prompt".into(), false.into());
        let history = self.render_values(&variables, now).unwrap_or_else(|_| text.clone());
        let generation_prompt = text[common_prefix(&text, &history)..].to_owned();
        Ok(Prompt { text, stand_ins: stand_ins.into_used(), generation_prompt })
    }
}

fn system_message(segments: &[Segment]) -> Option<Message> {
    let texts: Vec<&str> = segments.iter().map(|segment| segment.text.as_str()).collect();
    (!texts.is_empty()).then(|| Message { role: Role::System, ..Message::user(texts.join("\n\n")) })
}

/// A message in the shape that Hugging Face templates expect: calls wrapped as `{"type": "function", "function": …}`.
fn message_value(message: &Message) -> serde_json::Value {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut value = json!({"role": role, "content": message.content});
    if let Some(reasoning) = &message.reasoning_content {
        value["reasoning_content"] = reasoning.as_str().into();
    }
    if !message.tool_calls.is_empty() {
        let call = |call: &crate::request::ToolCall| {
            let function = json!({"name": call.name, "arguments": call.arguments});
            json!({"type": "function", "id": call.id, "function": function})
        };
        value["tool_calls"] = message.tool_calls.iter().map(call).collect();
    }
    if let Some(id) = &message.tool_call_id {
        value["tool_call_id"] = id.as_str().into();
    }
    if let Some(name) = &message.name {
        value["name"] = name.as_str().into();
    }
    value
}

fn tool_value(tool: &Tool) -> serde_json::Value {
    let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters});
    json!({"type": "function", "function": function})
}

/// Length in bytes of the longest common prefix that ends between characters.
fn common_prefix(a: &str, b: &str) -> usize {
    let same = a.char_indices().zip(b.chars()).take_while(|((_, x), y)| x == y).last();
    same.map_or(0, |((at, character), _)| at + character.len_utf8())
}

/// The innermost error: the outer ones only say on whose behalf (a macro, a block) it happened.
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

/// What is wrong, without minijinja's own mention of the place.
fn message(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

#[cfg(test)]
mod tests;
