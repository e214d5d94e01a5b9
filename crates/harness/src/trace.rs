//! The trace: an append-only list of what happened. Everything that a run knows is folded from it.
//!
//! As a file it is one JSON object a line, flushed line by line, so a killed run leaves all that it did. This module
//! must not know how turns are made or tools are run.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use alara_engine::{Finish, Message, Request, Sampling, Segment, Tool, ToolCall, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::Outcome;
use crate::error::Error;
use crate::jinx::ToolResult;
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

/// A line of the file: a record and when it was written.
#[derive(Serialize, Deserialize)]
struct Line<R> {
    time: String,
    #[serde(flatten)]
    record: R,
}

/// The records of one conversation, in memory and, if wanted, in a file.
#[derive(Debug, Default)]
pub struct Trace {
    records: Vec<Record>,
    file: Option<(PathBuf, File)>,
}

impl Trace {
    /// A trace that lives in memory only.
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
        Ok(Trace { records: Vec::new(), file: Some((path.to_owned(), file)) })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn push(&mut self, record: Record) -> Result<(), Error> {
        if let Some((path, file)) = &mut self.file {
            let line = Line { time: jiff::Timestamp::now().to_string(), record: &record };
            let written = serde_json::to_string(&line)
                .map_err(std::io::Error::from)
                .and_then(|line| file.write_all(format!("{line}\n").as_bytes()));
            written.map_err(|source| Error::Trace { path: path.clone(), source })?;
        }
        self.records.push(record);
        Ok(())
    }

    /// All records, oldest first.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Where the trace is written.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(path, _)| path.as_path())
    }
}

/// Reads the records of a trace file. A last line that a killed run left unfinished is left out.
///
/// # Errors
/// The file can't be read, or another line is no record.
pub fn read(path: &Path) -> Result<Vec<Record>, Error> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Error::Trace { path: path.to_owned(), source })?;
    let mut records = Vec::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        match serde_json::from_str::<Line<Record>>(line) {
            Ok(line) => records.push(line.record),
            Err(_) if !line.ends_with('\n') => {}
            Err(source) => return Err(Error::TraceLine { path: path.to_owned(), line: index + 1, source }),
        }
    }
    Ok(records)
}

/// The request for the next turn of a conversation.
pub fn request(records: &[Record]) -> Request {
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
            Record::ToolCall { .. } | Record::End { .. } => {}
        }
    }
    request
}

/// What all turns of a conversation cost together; the time to the first token is the first turn's.
pub fn usage(records: &[Record]) -> Usage {
    let mut total = Usage::default();
    for record in records {
        if let Record::Assistant { usage, .. } = record {
            total += *usage;
        }
    }
    total
}
