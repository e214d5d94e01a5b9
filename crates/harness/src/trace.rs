//! The trace: an append-only list of what happened. Everything that a run knows is folded from it.
//!
//! A run may hold conversations inside of others (an NPC that another one gave work to): each record names its own. As a file it is
//! one JSON object a line, flushed line by line, so a killed run leaves all that it did. This module must not know how turns are
//! made or tools are run.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alara_engine::{Finish, Message, Request, Sampling, Segment, Tool, ToolCall, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::agent::Outcome;
use crate::error::Error;
use crate::jinx::{ToolResult, Verdict};
use crate::team::Limits;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A conversation begins: who speaks, with what and under which rules.
    Start(Box<Start>),
    /// The user, or whoever delegates, says something.
    User {
        /// What.
        text: String,
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
    /// A call was held against the rules. Also written for a call of a tool that is not on the list.
    Permission {
        /// The jinx.
        jinx: String,
        /// What was decided.
        verdict: Verdict,
        /// By what: a rule and where it stands, the list, or a person's answer.
        by: String,
    },
    /// A step or a person ran a jinx.
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
    /// A jinx gave a response to whoever watches.
    Emit {
        /// `{type, id?, content}`; see [`Action::Emit`](crate::jinx::Action::Emit).
        response: Value,
    },
    /// The conversation was shortened: all messages but the last `kept` are replaced by one of the user.
    Compaction {
        /// That message.
        summary: String,
        /// How many messages stay as they are.
        kept: usize,
    },
    /// The run that the last user message began is over.
    End {
        /// How it ended.
        outcome: Outcome,
    },
}

/// What stays the same during a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The version of alara.
    pub version: String,
    /// The team's name.
    pub team: String,
    /// The NPC's name.
    pub npc: String,
    /// The model's name.
    pub model: String,
    /// The work directory.
    pub work: PathBuf,
    /// What the sandbox enforces, in words.
    pub sandbox: String,
    /// The NPC's limits.
    pub limits: Limits,
    /// The static system text.
    pub system: Vec<Segment>,
    /// The permitted tools.
    pub tools: Vec<Tool>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// The JSON schema of the answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

/// A record and where in the run it belongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The conversation: empty for the one that the run began with, otherwise the way to a conversation inside of it, by the
    /// calls and steps that lead there (`call_2/work`).
    #[serde(default, rename = "in", skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// What happened.
    #[serde(flatten, with = "shared")]
    pub record: Arc<Record>,
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

/// A line of the file: an entry and when it was written.
#[derive(Serialize, Deserialize)]
struct Line<E> {
    time: String,
    #[serde(flatten)]
    entry: E,
}

/// The records of a run, in memory and, if wanted, in a file. Shared by all that work on the run.
#[derive(Debug, Default)]
pub struct Trace {
    inner: Mutex<Inner>,
    path: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: Vec<Entry>,
    file: Option<File>,
}

impl Trace {
    /// A trace that lives in memory only. Work that runs beside other work keeps its own, which is then
    /// [joined](Self::join), so that the order of a trace never depends on threads.
    pub fn in_memory() -> Self {
        Trace::default()
    }

    /// A trace that is also written to a new file at `path`, whose directories are made.
    ///
    /// # Errors
    /// The file can't be created, or exists already.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let error = |source| Error::Trace { path: path.to_owned(), source };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(error)?;
        }
        let file = File::options().append(true).create_new(true).open(path).map_err(error)?;
        let inner = Inner { entries: Vec::new(), file: Some(file) };
        Ok(Trace { inner: Mutex::new(inner), path: Some(path.to_owned()) })
    }

    /// Appends what happened in the conversation `scope`.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn push(&self, scope: &str, record: Record) -> Result<Arc<Record>, Error> {
        let record = Arc::new(record);
        self.append(Entry { scope: scope.to_owned(), record: record.clone() })?;
        Ok(record)
    }

    /// Appends all that happened in `branch`.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn join(&self, branch: Trace) -> Result<(), Error> {
        let inner = branch.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        inner.entries.into_iter().try_for_each(|entry| self.append(entry))
    }

    fn append(&self, entry: Entry) -> Result<(), Error> {
        let mut inner = self.lock();
        if let (Some(path), Some(file)) = (&self.path, &mut inner.file) {
            let line = Line { time: jiff::Timestamp::now().to_string(), entry: &entry };
            let written = serde_json::to_string(&line)
                .map_err(std::io::Error::from)
                .and_then(|line| file.write_all(format!("{line}\n").as_bytes()));
            written.map_err(|source| Error::Trace { path: path.clone(), source })?;
        }
        inner.entries.push(entry);
        Ok(())
    }

    /// Everything that has happened so far, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.clone()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether nothing has happened yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has happened after the first `count` entries.
    pub fn since(&self, count: usize) -> Vec<Entry> {
        self.lock().entries[count..].to_vec()
    }

    /// What all turns of the run cost together, those of conversations inside of it too.
    pub fn usage(&self) -> Usage {
        usage(self.lock().entries.iter().map(|entry| &*entry.record))
    }

    /// Where the trace is written.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the entries of a trace file. A last line that a killed run left unfinished is left out.
///
/// # Errors
/// The file can't be read, or another line is no record.
pub fn read(path: &Path) -> Result<Vec<Entry>, Error> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Error::Trace { path: path.to_owned(), source })?;
    let mut entries = Vec::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        match serde_json::from_str::<Line<Entry>>(line) {
            Ok(line) => entries.push(line.entry),
            Err(_) if !line.ends_with('\n') => {}
            Err(source) => return Err(Error::TraceLine { path: path.to_owned(), line: index + 1, source }),
        }
    }
    Ok(entries)
}

/// The request for the next turn of a conversation, from its own records.
pub fn request<'a>(records: impl IntoIterator<Item = &'a Record>) -> Request {
    let mut request = Request::default();
    for record in records {
        match record {
            Record::Start(start) => {
                request.system.clone_from(&start.system);
                request.tools.clone_from(&start.tools);
                request.sampling = start.sampling.clone();
                request.schema.clone_from(&start.schema);
                request.max_tokens = Some(start.limits.turn_tokens);
                request.reasoning_tokens = start.limits.reasoning_tokens;
            }
            Record::User { text } => request.messages.push(Message::user(text)),
            Record::Assistant { message, .. } => request.messages.push(message.clone()),
            Record::ToolResult { call, text, .. } => request.messages.push(Message::tool_result(call, text)),
            Record::Compaction { summary, kept } => {
                let recent = request.messages.len().saturating_sub(*kept);
                request.messages.splice(..recent, [Message::user(summary)]);
            }
            Record::ToolCall { .. }
            | Record::Permission { .. }
            | Record::Jinx { .. }
            | Record::Emit { .. }
            | Record::End { .. } => {}
        }
    }
    request
}

/// What turns cost together; the time to the first token is the first turn's.
pub fn usage<'a>(records: impl IntoIterator<Item = &'a Record>) -> Usage {
    let mut total = Usage::default();
    for record in records {
        if let Record::Assistant { usage, .. } = record {
            total += *usage;
        }
    }
    total
}
