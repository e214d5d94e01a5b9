//! What can happen in a run, as the lines of a trace tell it.

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

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A conversation begins: who speaks, with what and under which rules.
    /// Within a conversation: it goes on with these.
    Start(Box<Start>),
    /// The user, or whoever delegates, says something.
    User {
        /// What.
        text: String,
    },
    /// A hint to the model about how it works: in its conversation, as a message of the user.
    Hint {
        /// What.
        text: String,
        /// What it is about.
        about: About,
    },
    /// The model has spoken.
    Assistant {
        /// Its text, reasoning and calls.
        message: Message,
        /// Why it stopped.
        finish: Finish,
        /// What the turn cost.
        usage: Usage,
    },
    /// A call is about to be checked and run.
    ToolCall {
        /// The call.
        call: ToolCall,
    },
    /// A call was answered.
    ToolResult {
        /// The call that is answered.
        call: ToolCall,
        /// What the tool did, uncut up to the sandbox's limit.
        result: ToolResult,
        /// What the model gets to read.
        text: String,
        /// How long it took, in seconds.
        seconds: f64,
    },
    /// A call was held against the rules.
    /// Also written for a call of a tool that is not on the list.
    Permission {
        /// The jinx.
        jinx: String,
        /// What was decided.
        verdict: Verdict,
        /// By what: a rule and where it stands, the list, or a person's answer.
        by: String,
    },
    /// A result changed what is known, by a gate.
    Ledger {
        /// The gate's file.
        gate: String,
        /// How, in this order.
        changes: Vec<Change>,
    },
    /// A step ran a jinx.
    Jinx {
        /// Its name.
        jinx: String,
        /// Where: the step's name.
        place: String,
        /// With what.
        arguments: Map<String, Value>,
        /// What it did.
        result: ToolResult,
        /// How long it took, in seconds.
        seconds: f64,
    },
    /// A program began to run in the background, or has ended.
    Job {
        /// Its number.
        job: usize,
        /// What was called.
        call: String,
        /// How it ended, if it did: "exit status 1".
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<String>,
    },
    /// A jinx gave a response to whoever watches.
    Emit {
        /// `{type, id?, content}`; see [`Action::Emit`](crate::jinx::Action::Emit).
        response: Value,
    },
    /// The conversation was shortened: all messages but the last `kept` are replaced by one of the
    /// user.
    Compaction {
        /// That message.
        summary: String,
        /// How many messages stay as they are.
        kept: usize,
    },
    /// The conversation stands elsewhere among its phases than before, or knows more.
    /// What follows from the other records, for whoever reads the trace.
    Phase(Standing),
    /// The last message of the user and all that followed no longer count.
    Retract,
    /// The run that the last user message began is over.
    End {
        /// How it ended.
        outcome: Outcome,
    },
}

/// What a hint to the model is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// A call in its text that could not be made.
    Call,
    /// An empty answer, where nothing was done.
    Empty,
    /// An answer right after a call that failed.
    Failure,
    /// A file that the task names and that was not made.
    File,
    /// A turn that was cut off.
    Cut,
    /// A text in a phase that expects a call.
    Phase,
    /// The end of the run: the turn after it has to be the answer.
    Closing,
}

/// What stays the same during a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The version of alara.
    pub version: String,
    /// The team's name.
    pub team: String,
    /// The team's directory; `None` = it is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Whether the user named the team, rather than that it was found.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub team_named: bool,
    /// The NPC's name.
    pub npc: String,
    /// The model's name.
    pub model: String,
    /// The model as the user asked for it, whatever the NPC names; `None`: it is the NPC's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// How many parameters it has, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// Most tokens of its conversations, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
    /// The work directory.
    pub work: PathBuf,
    /// What the sandbox enforces, in words.
    pub sandbox: String,
    /// The NPC's limits.
    pub limits: Limits,
    /// The static system prompt.
    pub system: Vec<Segment>,
    /// The directive that a person gave the NPC in place of its file's; `None` = the file's holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive: Option<String>,
    /// The files of the work directory that are a part of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_files: Vec<ContextFile>,
    /// Whether what changes something is not run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The permitted tools.
    pub tools: Vec<Tool>,
    /// The tools that it may unlock; its prompt does not name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<Tool>,
    /// What became of the MCP servers that the NPC names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<Served>,
    /// How tokens are sampled.
    pub sampling: Sampling,
    /// Whether a model that can reason does so; `None` = as it is set up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<bool>,
    /// Messages before the first one of the user: how others did their tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Message>,
    /// Whether results are plain text instead of JSON.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain_results: bool,
    /// The format of calls, in place of the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_format: Option<String>,
    /// Whether each turn is a call.
    #[serde(default, skip_serializing_if = "Calls::is_free")]
    pub calls: Calls,
    /// The JSON schema of the answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// What may be done when; `None` = anything at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<Phases>,
    /// The files of the gates that bind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<String>,
    /// Whether the model is not told what the gates know.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ledger_hidden: bool,
}

/// A file that tells agents how to work in a directory, see
/// [`ContextFiles`](crate::context_files::ContextFiles).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextFile {
    /// Its path, relative to the repository's root.
    pub path: PathBuf,
    /// Its length.
    pub bytes: usize,
    /// The SHA-256 of its content, in hexadecimal digits.
    pub sha256: String,
}

/// A record and where in the run it belongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The conversation.
    /// Empty for the one that the run began with, `@name` for another one of the user's.
    /// Otherwise the way to a conversation inside of one, by the calls and steps that lead there
    /// (`call_2/work`).
    /// [`PERSON`] for what a person runs.
    #[serde(default, rename = "in", skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// What happened.
    #[serde(flatten, with = "shared")]
    pub record: Arc<Record>,
}

/// The scope of something named `place` inside of another one.
pub(crate) fn inside(scope: &str, place: &str) -> String {
    if scope.is_empty() { place.to_owned() } else { format!("{scope}/{place}") }
}

/// The scope of jinxes that a person runs beside a conversation.
pub const PERSON: &str = "/";

impl Entry {
    /// Whether it belongs to a conversation of the user's own, and not to one inside of another.
    pub fn is_the_users(&self) -> bool {
        self.scope.is_empty() || (self.scope.starts_with('@') && !self.scope.contains('/'))
    }
}

/// A shared value is written as the value.
mod shared {
    use super::{Arc, Record};

    pub fn serialize<S: serde::Serializer>(record: &Arc<Record>, serializer: S) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&**record, serializer)
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Arc<Record>, D::Error> {
        serde::Deserialize::deserialize(deserializer).map(Arc::new)
    }
}
