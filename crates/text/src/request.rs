//! What goes into the engine and what comes out: a conversation with permitted tools in, a stream
//! of events out.
//!
//! These are plain values.
//! They know nothing of tokens, templates or models, so the harness can build and fold them without
//! touching the engine's insides.

mod sampling;
mod until;
mod usage;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use sampling::{Biased, Sampling};
pub use until::{Over, Until};
pub use usage::{DraftUsage, GrammarUsage, Miss, Recovered, Usage};

/// A named piece of the system prompt that stays the same from request to request.
///
/// The engine joins the texts of a request's segments with a blank line into one system message.
/// The name serves reports only; reuse is decided by comparing tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// What a report calls this segment, for example `directive` or `skill:git`.
    pub name: String,
    /// The text, without surrounding blank lines.
    pub text: String,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Standing instructions.
    System,
    /// The person, or the agent that delegates.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

/// One message of a conversation, in the shape that Hugging Face chat templates expect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The text; empty for an assistant message that only calls tools.
    #[serde(default)]
    pub content: String,
    /// What a reasoning model thought before it spoke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The calls that an assistant message makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// For a tool message: the `id` of the call that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// For a tool message: the name of the tool that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Message {
    fn plain(role: Role, content: impl Into<String>) -> Self {
        Message {
            role,
            content: content.into(),
            reasoning_content: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
        }
    }

    /// A user message.
    pub fn user(content: impl Into<String>) -> Self {
        Self::plain(Role::User, content)
    }

    /// An assistant message that says `content` and makes `tool_calls`.
    pub fn assistant(content: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        Message { tool_calls, ..Self::plain(Role::Assistant, content) }
    }

    /// The result of `call`, as text.
    pub fn tool_result(call: &ToolCall, content: impl Into<String>) -> Self {
        Message {
            tool_call_id: Some(call.id.clone()),
            name: Some(call.name.clone()),
            ..Self::plain(Role::Tool, content)
        }
    }
}

/// A call that the model made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique within a conversation; made by the engine where the model's format has none.
    #[serde(default)]
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, in the order in which the model wrote them.
    pub arguments: Map<String, Value>,
}

/// A tool that the model may call.
/// The list of a request is its permission set: no other name can be emitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// The name, `[A-Za-z0-9_-]+`.
    pub name: String,
    /// What the tool does, for the model.
    pub description: String,
    /// JSON schema of the arguments: an object schema.
    pub parameters: Value,
    /// Whether calls must be valid for the whole schema.
    /// Else keywords that can't be guaranteed are left out of the grammar and listed in
    /// [`Usage::loosened`].
    /// Who runs the call checks them (see [`violation`](crate::grammar::violation)).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

/// Whether the model must, may or must not call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No call.
    None,
    /// At least one call.
    Required,
    /// A call of this tool.
    Named(String),
    /// Calls of these tools only, of which one is `required` or not.
    /// The prompt tells all of the request's tools, so what may be called can change from turn to
    /// turn while the cached prompt stays.
    Among {
        /// Their names.
        names: Vec<String>,
        /// Whether there must be a call.
        required: bool,
    },
}

impl ToolChoice {
    /// Whether a tool of this name may be called.
    pub fn permits(&self, tool: &str) -> bool {
        match self {
            ToolChoice::None => false,
            ToolChoice::Auto | ToolChoice::Required => true,
            ToolChoice::Named(name) => name == tool,
            ToolChoice::Among { names, .. } => names.iter().any(|name| name == tool),
        }
    }

    /// Whether there must be a call.
    pub fn must_call(&self) -> bool {
        match self {
            ToolChoice::Auto | ToolChoice::None => false,
            ToolChoice::Required | ToolChoice::Named(_) => true,
            ToolChoice::Among { required, .. } => *required,
        }
    }
}

/// One turn to generate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The static part of the system prompt, in canonical order; may be empty.
    /// It is kept longest, and so are the tools; what changes from request to request belongs into
    /// the messages.
    pub system: Vec<Segment>,
    /// Separates tenants: prompts share keys and values with prompts of the same salt only.
    /// So nobody can learn from the time of an answer what others asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub salt: String,
    /// The conversation so far.
    /// A system message may only stand first, and only if `system` is empty.
    pub messages: Vec<Message>,
    /// The tools that this turn may call.
    pub tools: Vec<Tool>,
    /// Tools that the prompt does not tell of, by their names; they may be called all the same.
    /// Endpoints get them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlisted: Vec<String>,
    /// Whether a call is wanted.
    #[serde(default)]
    pub tool_choice: ToolChoice,
    /// What the arguments of tools are bound to in place of their `parameters`, by the tool's name:
    /// schemas of which one holds.
    /// The prompt tells `parameters` all the same, so what may be written can change from turn to
    /// turn while the cached prompt stays.
    /// An endpoint that is held to no grammar is not told.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bound: BTreeMap<String, Vec<Value>>,
    /// The format in which calls are written, by its name, in place of the model's own: one that
    /// the prompt describes.
    /// `None` = the model's.
    /// Endpoints don't get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_format: Option<String>,
    /// Whether one turn may make several calls.
    #[serde(default)]
    pub parallel_tool_calls: bool,
    /// Most characters of a string in a call's arguments, unless its schema sets a limit itself;
    /// lists, free-form objects and free-form values end too then.
    /// `None` = as many as come.
    /// Endpoints don't get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub string_limit: Option<usize>,
    /// How tokens are sampled.
    #[serde(default)]
    pub sampling: Sampling,
    /// Most tokens to generate; `None` = up to the context's end.
    #[serde(default)]
    pub max_tokens: Option<usize>,
    /// Texts that end the turn; not part of the answer.
    /// They do so within a schema's JSON or a grammar's text too, and leave it incomplete:
    /// [`Usage::stop_text`] says which it was.
    #[serde(default)]
    pub stop: Vec<String>,
    /// Goes on up to `max_tokens`, or to a text of `stop`.
    /// The model's own ends are not sampled, and repetition does not stop it.
    /// For measurements.
    /// Not with tools or a schema, which say themselves where an answer ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_eos: bool,
    /// For models with switchable reasoning: on or off; `None` = the template's default.
    /// Templates know it as `enable_thinking` or `thinking`; gpt-oss, which always reasons, takes
    /// off for its lowest effort.
    #[serde(default)]
    pub thinking: Option<bool>,
    /// How much to reason, for models whose template knows levels of it, as gpt-oss's does.
    /// `None` = the template's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Most tokens of reasoning: after so many it is ended for the model, which goes on with its
    /// answer.
    /// `None` = as many as `max_tokens` has room for.
    #[serde(default)]
    pub reasoning_tokens: Option<usize>,
    /// A JSON schema: the text of the turn is JSON that is valid for it.
    /// Not so if the turn ends with calls, at `max_tokens` or at a text of `stop`.
    /// With tools the turn is made in two phases, see the module `sequence::listener`.
    /// If the first ends without a call, it is not reported, and the second answers.
    /// Each may have `max_tokens`, and the usage is that of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// A grammar of the text of the turn, in place of a schema, and with tools as one.
    /// It is Lark as llguidance reads it, or GBNF, which is known by its `::=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grammar: Option<String>,
    /// Whether the last message, the assistant's, is the beginning of the answer.
    /// The turn continues it and does not repeat it.
    /// White space at its end is left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continue_final_message: bool,
    /// Reports what the model thought of each token of the answer, beside so many of the most
    /// likely ones, as [`Event::Logprobs`].
    /// `None` = not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<usize>,
    /// Reports the log-probability of each token of the prompt, and of so many of the most
    /// likely ones, as [`Event::PromptLogprobs`], and of the token that ends the turn too.
    /// All of the prompt is computed for it, whatever is cached.
    /// `None` = not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<usize>,
    /// What is answered, whatever the model would generate.
    /// Each of its tokens is computed as if it had been sampled, and only `max_tokens` bounds them.
    /// A replay goes on with what was said, and finds it in the cache, as the agent did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Message>,
    /// The whole prompt as text, in place of what the chat template makes of system prompt,
    /// messages and tools; control tokens in it count.
    /// Endpoints don't get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The whole prompt as tokens, in place of `prompt`: with nothing added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_ids: Option<Vec<u32>>,
    /// When to give up: while the prompt, the sampler and the grammar of the turn are made, and
    /// between the steps of its model.
    /// Dropping the events ends it too.
    #[serde(skip)]
    pub until: Until,
}

impl Request {
    /// Whether the prompt is given as it is, without a chat template.
    /// Then the answer is all that its tokens decode to, and `max_tokens` may be 0.
    pub fn is_raw(&self) -> bool {
        self.prompt.is_some() || self.prompt_ids.is_some()
    }
}

/// How much a model reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningEffort {
    /// Little.
    Low,
    /// The default of most.
    Medium,
    /// Much.
    High,
}

/// A token and what the model thought of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logprob {
    /// Its id.
    pub token: u32,
    /// Its bytes in the text, perhaps half a character.
    pub bytes: Vec<u8>,
    /// The natural logarithm of its probability by the model's own logits, before any bias,
    /// penalty, temperature or grammar; at least [`LEAST`](Self::LEAST).
    pub logprob: f32,
}

impl Logprob {
    /// What stands for the logarithm of 0, which JSON can't write.
    pub const LEAST: f32 = -9999.0;

    /// Its text; bytes that are not UTF-8 become U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// A token of an answer, and what could have come in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprobs {
    /// The token of the answer.
    /// One that was not sampled, since nothing else could follow, has probability 1.
    #[serde(flatten)]
    pub chosen: Logprob,
    /// The most likely tokens, the most likely first; none for a token that was not sampled.
    pub top: Vec<Logprob>,
}

/// What happens while a turn is generated, in order; `Done` comes last, exactly once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A part of the prompt is computed, and more is to come.
    /// Told after each step of a long one but the last.
    Prefill {
        /// Tokens whose keys and values are there, cached ones included.
        computed: usize,
        /// Of these, the tokens that were found in the cache.
        cached: usize,
        /// Tokens of the prompt.
        prompt: usize,
    },
    /// The next piece of the answer.
    Text {
        /// Never splits a character.
        text: String,
    },
    /// The next piece of the model's reasoning.
    Reasoning {
        /// Never splits a character.
        text: String,
    },
    /// The tokens of the piece that comes next, be it text, reasoning or a call's; for requests
    /// with `logprobs` only.
    /// Marks between pieces are with the piece that they precede.
    Logprobs {
        /// In their order.
        tokens: Vec<TokenLogprobs>,
    },
    /// The tokens of the prompt; for requests with `prompt_logprobs` only.
    /// Comes before the answer.
    PromptLogprobs {
        /// In their order.
        /// The first has no context to predict it from: its probability is 1, without alternatives.
        tokens: Vec<TokenLogprobs>,
    },
    /// The next piece of a call that is being written.
    /// The call itself follows, as `ToolCall` or as `Incomplete`, unless the turn ends because it
    /// was made again and again.
    ToolCallDelta {
        /// Which call of the turn it is, from 0.
        index: usize,
        /// The tool's name: with the first piece of a call, and only then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// A piece of the arguments' JSON text, perhaps empty.
        /// All pieces of a call together are the text of its arguments.
        arguments: String,
    },
    /// A complete call, valid for its tool's schema.
    ToolCall(ToolCall),
    /// A call that the end of the turn cut off.
    /// It must not run.
    Incomplete {
        /// The tool's name.
        name: String,
        /// The beginning of the arguments' JSON text.
        arguments: String,
    },
    /// The turn has ended.
    Done {
        /// Why it ended.
        finish: Finish,
        /// What it cost.
        usage: Usage,
    },
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended its turn, or a stop text came.
    Stop,
    /// The turn ends with tool calls.
    ToolCalls,
    /// `max_tokens` or the context's end was reached; a call that was under way is
    /// [`Event::Incomplete`], once its name is known.
    Length,
    /// The model repeats itself: a cycle of tokens without end, the same call again and again, or
    /// more calls than a turn may have.
    /// The last of these calls is not reported; those before it are complete.
    Repetition,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn usage_and_requests_of_earlier_versions_still_load() {
        let usage: Usage = serde_json::from_value(json!({
            "prompt_tokens": 9, "cached_tokens": 3, "completion_tokens": 4, "time_to_first_token": 0.5, "decode_time": 2,
        }))
        .unwrap();
        let nothing = (GrammarUsage::default(), DraftUsage::default());
        assert_eq!((usage.completion_tokens, (usage.grammar, usage.drafts)), (4, nothing));
        let again: Usage = serde_json::from_value(serde_json::to_value(&usage).unwrap()).unwrap();
        assert_eq!(again, usage);
        let request: Request =
            serde_json::from_value(json!({"system": [], "messages": [], "tools": []})).unwrap();
        assert_eq!(request, Request::default());
    }
}
