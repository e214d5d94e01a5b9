//! The events of a run, as the lines of a trace.

use std::path::PathBuf;
use std::sync::Arc;

use alara_engine::{Finish, Message, Sampling, Segment, Tool, ToolCall, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::calls::Calls;
use crate::ledger::Change;
use crate::mcp::Served;
use crate::phases::{Phases, Standing};
use crate::types::{Limits, Outcome, ToolResult, Verdict};

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A conversation begins: its NPC, its model and its rules.
    /// Within a conversation: it continues with these.
    Start(Box<Start>),
    /// The user, or a delegating NPC, sends a message.
    User {
        /// The text.
        text: String,
    },
    /// A hint to the model about its work: in its conversation, as a user message.
    Hint {
        /// The text.
        text: String,
        /// The reason for the hint.
        about: About,
    },
    /// The model has ended a turn.
    Assistant {
        /// Its text, reasoning and calls.
        message: Message,
        /// Why it stopped.
        finish: Finish,
        /// The usage of the turn.
        usage: Usage,
    },
    /// A call is about to be checked and run.
    ToolCall {
        /// The call.
        call: ToolCall,
    },
    /// A call was answered.
    ToolResult {
        /// The call.
        call: ToolCall,
        /// The result, uncut up to the sandbox's limit.
        result: ToolResult,
        /// The text that the model reads.
        text: String,
        /// How long it took, in seconds.
        seconds: f64,
    },
    /// A call was checked against the rules.
    /// Also written for a call of a tool that isn't on the list.
    Permission {
        /// The jinx.
        jinx: String,
        /// The verdict.
        verdict: Verdict,
        /// Its source: a rule and its location, the list, or a person's answer.
        by: String,
    },
    /// A program of a call has changed files of the work directory, or a server's tool that
    /// writes has succeeded.
    Changed {
        /// The number of files; 0 if it is unknown.
        files: usize,
    },
    /// A result changed the ledger of a gate.
    Ledger {
        /// The gate's file.
        gate: String,
        /// The changes, in this order.
        changes: Vec<Change>,
    },
    /// A step ran a jinx.
    Jinx {
        /// Its name.
        jinx: String,
        /// The name of the step.
        place: String,
        /// The arguments.
        arguments: Map<String, Value>,
        /// The result.
        result: ToolResult,
        /// How long it took, in seconds.
        seconds: f64,
    },
    /// A program started in the background, or has ended.
    Job {
        /// Its number.
        job: usize,
        /// The call that started it.
        call: String,
        /// How it ended, if it did: "exit status 1".
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<String>,
    },
    /// A jinx emitted a response.
    Emit {
        /// `{type, id?, content}`; see [`Action::Emit`](crate::jinx::Action::Emit).
        response: Value,
    },
    /// The conversation was compacted: one user message replaces all messages except the last
    /// `kept`.
    Compaction {
        /// That message.
        summary: String,
        /// How many messages don't change.
        kept: usize,
    },
    /// The conversation's phase or facts have changed.
    /// Derived from the other records, for people who read the trace.
    Phase(Standing),
    /// The last message of the user and everything after it no longer count.
    Retract,
    /// The run that the last user message began is over.
    End {
        /// How it ended.
        outcome: Outcome,
    },
}

/// The reason for a hint to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// A call in its text that could not be made.
    Call,
    /// An empty answer without any call.
    Empty,
    /// An answer right after a call that failed.
    Failure,
    /// A missing file that the task names.
    File,
    /// A turn that was cut off.
    Cut,
    /// A text in a phase that expects a call.
    Phase,
    /// The end of the run: the turn after it has to be the answer.
    Closing,
}

/// The settings that stay the same during a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The version of alara.
    pub version: String,
    /// The team's name.
    pub team: String,
    /// The team's directory; `None` if it is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Whether the user named the team, rather than alara finding it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub team_named: bool,
    /// The NPC's name.
    pub npc: String,
    /// The model's name.
    pub model: String,
    /// The model that the user asked for, whatever the NPC names; `None` for the NPC's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// How many parameters it has, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// Most tokens of its conversations, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
    /// The work directory.
    pub work: PathBuf,
    /// The sandbox's enforced layers, in words.
    pub sandbox: String,
    /// The NPC's limits.
    pub limits: Limits,
    /// The static system prompt.
    pub system: Vec<Segment>,
    /// The directive that a person gave the NPC in place of its file's; `None` for the file's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive: Option<String>,
    /// The files of the work directory that are part of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_files: Vec<ContextFile>,
    /// Whether calls that change something aren't run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The permitted tools.
    pub tools: Vec<Tool>,
    /// The tools that it may unlock; its prompt doesn't name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<Tool>,
    /// The state of the MCP servers that the NPC names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<Served>,
    /// The sampling settings.
    pub sampling: Sampling,
    /// Whether a model that can reason does so; `None` uses the model's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<bool>,
    /// Messages before the first user message: examples of completed tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Message>,
    /// Whether results are plain text rather than JSON.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain_results: bool,
    /// The format of calls that replaces the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_format: Option<String>,
    /// Whether each turn is a call.
    #[serde(default, skip_serializing_if = "Calls::is_free")]
    pub calls: Calls,
    /// The JSON schema of the answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The phases of its work; `None` permits every call at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<Phases>,
    /// The files of the gates that bind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<String>,
    /// Whether to hide the gates' facts from the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ledger_hidden: bool,
}

/// A file with instructions for agents that work in a directory, see
/// [`ContextFiles`](crate::context_files::ContextFiles).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextFile {
    /// Its path, relative to the repository's root.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: usize,
    /// The SHA-256 of its content, in hexadecimal digits.
    pub sha256: String,
}

/// A record with its conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The conversation.
    /// Empty for the one that the run began with, `@name` for another one of the user's.
    /// Otherwise the path to an inner conversation, made of the calls and steps that lead there
    /// (`call_2/work`).
    /// [`PERSON`] for jinxes that a person runs.
    #[serde(default, rename = "in", skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// The record.
    #[serde(flatten, with = "shared")]
    pub record: Arc<Record>,
}

/// The scope of `place` within another one.
pub(crate) fn inside(scope: &str, place: &str) -> String {
    if scope.is_empty() { place.to_owned() } else { format!("{scope}/{place}") }
}

/// The scope of jinxes that a person runs outside of a conversation.
pub const PERSON: &str = "/";

impl Entry {
    /// Whether it belongs to one of the user's own conversations, and not to an inner one.
    pub fn is_the_users(&self) -> bool {
        self.scope.is_empty() || (self.scope.starts_with('@') && !self.scope.contains('/'))
    }
}

/// Serialises a shared value as the value itself.
mod shared {
    use super::{Arc, Record};

    pub fn serialize<S: serde::Serializer>(record: &Arc<Record>, serializer: S) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&**record, serializer)
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Arc<Record>, D::Error> {
        serde::Deserialize::deserialize(deserializer).map(Arc::new)
    }
}
