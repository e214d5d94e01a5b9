//! The engine's input and output: a conversation with permitted tools in, a stream of events out.
//!
//! All types are plain values.
//! They know nothing of tokens, templates or models, so the harness can build and fold them without
//! depending on the engine's internals.

mod sampling;
mod until;
mod usage;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use sampling::{Biased, Elsewhere, Parameter, Sampling, SamplingOverrides, Values};
pub use until::{Over, Until};
pub use usage::{DraftUsage, GrammarUsage, Miss, Recovered, Usage};

/// A named part of the system prompt that stays the same between requests.
///
/// The engine joins the texts of a request's segments with a blank line into one system message.
/// The name is only for reports; cache reuse is decided by comparing tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The segment's name in reports, for example `directive` or `skill:git`.
    pub name: String,
    /// The text, without surrounding blank lines.
    pub text: String,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Standing instructions.
    System,
    /// The person, or the delegating agent.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

/// One message of a conversation, in the shape that Hugging Face chat templates expect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The text; empty for an assistant message that only calls tools.
    #[serde(default)]
    pub content: String,
    /// The reasoning of the model before its answer.
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

    /// An assistant message with the text `content` and the calls `tool_calls`.
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
    /// Unique within a conversation; the engine assigns one if the model's format has no ids.
    #[serde(default)]
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, in the order in which the model wrote them.
    pub arguments: Map<String, Value>,
}

/// A tool that the model may call.
/// The tools of a request are its permission set: no other name can be generated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// The name, `[A-Za-z0-9_-]+`.
    pub name: String,
    /// A description of the tool for the model.
    pub description: String,
    /// JSON schema of the arguments: an object schema.
    pub parameters: Value,
    /// Whether calls must be valid for the whole schema.
    /// Otherwise keywords that can't be guaranteed are left out of the grammar and listed in
    /// [`Usage::loosened`].
    /// The code that runs the call then checks them (see [`violation`](crate::grammar::violation)).
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
    /// Only calls of these tools; `required` determines whether there must be one.
    /// The prompt describes all of the request's tools, so the permitted tools can change between
    /// turns without invalidating the cached prompt.
    Among {
        /// Their names.
        names: Vec<String>,
        /// Whether a call is required.
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

    /// Whether a call is required.
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
    /// It is cached longest, together with the tools; parts that change between requests belong in
    /// the messages.
    pub system: Vec<Segment>,
    /// Separates tenants: prompts share KV cache entries only with prompts of the same salt.
    /// So the response time reveals nothing about other tenants' prompts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub salt: String,
    /// The conversation so far.
    /// A system message may only be first, and only if `system` is empty.
    pub messages: Vec<Message>,
    /// The tools that this turn may call.
    pub tools: Vec<Tool>,
    /// Names of tools that the prompt doesn't describe; they may be called anyway.
    /// Endpoints do get their descriptions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlisted: Vec<String>,
    /// Whether the model must, may or must not call a tool.
    #[serde(default)]
    pub tool_choice: ToolChoice,
    /// By tool name, schemas of which the arguments must match one, in place of the tool's
    /// `parameters`.
    /// The prompt still describes `parameters`, so the permitted arguments can change between turns
    /// without invalidating the cached prompt.
    /// Endpoints without a grammar don't get them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bound: BTreeMap<String, Vec<Value>>,
    /// The name of the format in which calls are written, in place of the model's own; the prompt
    /// describes it.
    /// `None` = the model's.
    /// Not sent to endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_format: Option<String>,
    /// Whether one turn may make several calls.
    #[serde(default)]
    pub parallel_tool_calls: bool,
    /// Most characters of a string in a call's arguments, unless its schema sets a limit itself.
    /// The limit also bounds lists, free-form objects and free-form values.
    /// `None` = unlimited.
    /// Not sent to endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub string_limit: Option<usize>,
    /// Sampling options.
    #[serde(default)]
    pub sampling: Sampling,
    /// Most tokens to generate; `None` = up to the context's end.
    #[serde(default)]
    pub max_tokens: Option<usize>,
    /// Texts that end the turn; they aren't part of the answer.
    /// They also end the JSON of a schema or the text of a grammar, which stays incomplete:
    /// [`Usage::stop_text`] holds the one that matched.
    #[serde(default)]
    pub stop: Vec<String>,
    /// Generates until `max_tokens`, or a text in `stop`.
    /// The model's own end tokens aren't sampled, and repetition doesn't end the turn.
    /// Intended for benchmarks.
    /// Not allowed with tools or a schema, which determine where an answer ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_eos: bool,
    /// For models with switchable reasoning: on or off; `None` = the template's default.
    /// Templates call it `enable_thinking` or `thinking`; gpt-oss, which always reasons, maps off
    /// to its lowest effort.
    #[serde(default)]
    pub thinking: Option<bool>,
    /// The reasoning effort, for models whose template has levels, such as gpt-oss's.
    /// `None` = the template's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Most tokens of reasoning: then the engine ends the reasoning, and the model continues with
    /// its answer.
    /// `None` = limited only by `max_tokens`.
    #[serde(default)]
    pub reasoning_tokens: Option<usize>,
    /// A JSON schema that the text of the turn must satisfy.
    /// The text may violate it if the turn ends with calls, at `max_tokens` or at a text in `stop`.
    /// With tools the turn has two phases, see the module `sequence::listener`.
    /// If the first ends without a call, its text is discarded, and the second phase answers.
    /// Each phase may use `max_tokens`, and the usage covers both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// A grammar for the text of the turn, in place of a schema; with tools it works like a schema.
    /// Either Lark as llguidance reads it, or GBNF, recognized by its `::=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grammar: Option<String>,
    /// Whether the last message, from the assistant, is the beginning of the answer.
    /// The turn continues it and does not repeat it.
    /// Trailing whitespace of the message is removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continue_final_message: bool,
    /// Reports the model's log-probability of each token of the answer, and this many of the most
    /// likely alternatives, as [`Event::Logprobs`].
    /// `None` = no report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<usize>,
    /// Reports the log-probability of each token of the prompt, with this many of the most likely
    /// alternatives, as [`Event::PromptLogprobs`], and of the token that ends the turn.
    /// This recomputes the whole prompt, ignoring the cache.
    /// `None` = no report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<usize>,
    /// A given answer, used in place of the model's own.
    /// Each of its tokens is computed as if it had been sampled; only `max_tokens` limits them.
    /// With it, a replay continues from the recorded answers and finds them in the cache, as the
    /// agent did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Message>,
    /// The whole prompt as text, in place of the chat template's rendering of system prompt,
    /// messages and tools; control tokens in it are recognized.
    /// Not sent to endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The whole prompt as tokens, in place of `prompt`, used unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_ids: Option<Vec<u32>>,
    /// When to give up: checked while the prompt, the sampler and the grammar of the turn are
    /// built, and between the steps of the model.
    /// Dropping the event stream ends the turn too.
    #[serde(skip)]
    pub until: Until,
}

impl Request {
    /// Whether the prompt is given verbatim, without a chat template.
    /// Then the answer is everything that its tokens decode to, and `max_tokens` may be 0.
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

/// A token and the model's log-probability for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logprob {
    /// Its id.
    pub token: u32,
    /// Its bytes in the text, possibly part of a character.
    pub bytes: Vec<u8>,
    /// The natural logarithm of its probability according to the model's logits, before any bias,
    /// penalty, temperature or grammar; at least [`LEAST`](Self::LEAST).
    pub logprob: f32,
}

impl Logprob {
    /// Replaces the logarithm of 0, which JSON can't represent.
    pub const LEAST: f32 = -9999.0;

    /// Its text; bytes that are not UTF-8 become U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// A token of an answer, and its alternatives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprobs {
    /// The token of the answer.
    /// A token that wasn't sampled, because it was forced, has probability 1.
    #[serde(flatten)]
    pub chosen: Logprob,
    /// The most likely tokens in descending order; empty for a token that wasn't sampled.
    pub top: Vec<Logprob>,
}

/// The events of generating a turn, in order; `Done` comes last, exactly once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A part of the prompt was computed, and more follows.
    /// Sent after each step of a long prompt except the last.
    Prefill {
        /// Tokens whose keys and values are available, including cached ones.
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
    /// The tokens of the next piece, be it text, reasoning or a call's; only for requests with
    /// `logprobs`.
    /// Marks between pieces are reported with the piece that follows them.
    Logprobs {
        /// The tokens in order.
        tokens: Vec<TokenLogprobs>,
    },
    /// The tokens of the prompt; only for requests with `prompt_logprobs`.
    /// Comes before the answer.
    PromptLogprobs {
        /// The tokens in order.
        /// The first has no context to predict it from: its probability is 1, without alternatives.
        tokens: Vec<TokenLogprobs>,
    },
    /// The next piece of a call being generated.
    /// The complete call follows as `ToolCall` or as `Incomplete`, unless the turn ends because the
    /// same call was repeated too often.
    ToolCallDelta {
        /// Index of the call in the turn, from 0.
        index: usize,
        /// The tool's name; only with the first piece of a call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// A piece of the arguments' JSON text, possibly empty.
        /// The pieces of a call concatenated are the text of its arguments.
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
        /// The resources used.
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
    /// `max_tokens` or the context's end was reached; a call in progress is reported as
    /// [`Event::Incomplete`] if its name is known.
    Length,
    /// The model repeats itself: an endless cycle of tokens, the same call over and over, or more
    /// calls than a turn may have.
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
