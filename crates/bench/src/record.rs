//! What a run writes down, one record a line: the header, each attempt, each finished task.

use std::fs::File;
use std::path::Path;
use std::{fmt, io};

use alara_engine::Sampling;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::task::{Difficulty, Task};

/// One line of a run file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub enum Record {
    /// The first line.
    Header(Box<Header>),
    /// One attempt at a task.
    Attempt(Attempt),
    /// The end of a task.
    Task(Finished),
}

/// The configuration of a run, and where it ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The suite.
    pub suite: Named,
    /// The model file or endpoint. `gold` when the gold solutions ran.
    pub model: Named,
    /// How the model runs: context, KV type and so on, as the binary's options have it.
    pub engine: Value,
    /// The team, and the hash of what its NPC tells the model: system text and tools.
    pub team: Named,
    /// The NPC that worked on the tasks.
    pub npc: String,
    /// How tokens are drawn; `seed` is the run's, from which each attempt's is derived.
    pub sampling: Sampling,
    /// What the temperature of later attempts is raised to.
    pub retry_temperature: f32,
    /// Most attempts a task.
    pub attempts: u32,
    /// Seconds a task, for all its attempts together, unless the task says otherwise.
    pub timeout: u64,
    /// The version of alara.
    pub version: String,
    /// The computer.
    pub machine: Machine,
    /// The ids of the tasks of this run.
    pub tasks: Vec<String>,
    /// When it started, RFC 3339. The one field that may differ when a run is resumed.
    pub started: String,
}

/// A name and what it stood for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The name, as people say it.
    pub name: String,
    /// SHA-256 of the content, in hexadecimal; empty where there is none to hash.
    pub hash: String,
}

impl Named {
    /// `name` for this content.
    pub fn of(name: impl Into<String>, content: &[u8]) -> Self {
        Named { name: name.into(), hash: format!("{:x}", Sha256::digest(content)) }
    }

    /// `name` for the content of this file.
    ///
    /// # Errors
    /// It can't be read.
    pub fn of_file(name: impl Into<String>, file: &Path) -> io::Result<Self> {
        let mut hash = Sha256::new();
        io::copy(&mut File::open(file)?, &mut hash)?;
        Ok(Named { name: name.into(), hash: format!("{:x}", hash.finalize()) })
    }
}

/// A computer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The operating system, as `linux`.
    pub os: String,
    /// The processor architecture, as `x86_64`.
    pub arch: String,
    /// How many processors the run may use.
    pub cpus: usize,
}

impl Machine {
    /// The computer that this runs on.
    pub fn this() -> Self {
        Machine {
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// How an attempt or a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The verification passed.
    Solved,
    /// The verification did not pass.
    Failed,
    /// It could not be told, for a reason that is not the agent's: a program is missing, the setup failed, the disk is
    /// full, the model can't be reached.
    Error,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Verdict::Solved => "solved",
            Verdict::Failed => "failed",
            Verdict::Error => "error",
        })
    }
}

/// What a number of model turns cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Tool calls that the model made.
    pub tool_calls: u64,
    /// Tokens of all prompts, cached ones included.
    pub tokens_in: u64,
    /// Tokens of the prompts whose keys and values were reused.
    pub tokens_cached: u64,
    /// Tokens generated.
    pub tokens_out: u64,
    /// Seconds spent generating, prefill not included.
    pub decode_seconds: f64,
}

impl Cost {
    /// Generated tokens per second of decoding; 0 where nothing was measured.
    pub fn tokens_per_second(&self) -> f64 {
        if self.decode_seconds > 0.0 { self.tokens_out as f64 / self.decode_seconds } else { 0.0 }
    }

    /// The share of prompt tokens that were reused, 0 to 1.
    pub fn prefix_hit(&self) -> f64 {
        if self.tokens_in > 0 { self.tokens_cached as f64 / self.tokens_in as f64 } else { 0.0 }
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.tool_calls += other.tool_calls;
        self.tokens_in += other.tokens_in;
        self.tokens_cached += other.tokens_cached;
        self.tokens_out += other.tokens_out;
        self.decode_seconds += other.decode_seconds;
    }
}

/// One attempt at a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The task's id.
    pub task: String,
    /// From 1.
    pub attempt: u32,
    /// The seed of its random draws.
    pub seed: u64,
    /// How it ended.
    pub verdict: Verdict,
    /// Why it was not solved: what the verification said, and what else stopped the agent. Empty if solved.
    pub reason: String,
    /// Wall-clock time with verification.
    pub seconds: f64,
    /// What the model did.
    #[serde(flatten)]
    pub cost: Cost,
    /// Seconds from the first request to its first token; `None` if there was none.
    pub ttft: Option<f64>,
    /// Generated tokens per second of decoding.
    pub tokens_per_second: f64,
    /// The trace, relative to the run file; empty if there is none.
    pub trace: String,
}

/// A task that has come to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The task's id.
    pub task: String,
    /// Its category.
    pub category: String,
    /// Its difficulty.
    pub difficulty: Difficulty,
    /// How the last attempt ended.
    pub verdict: Verdict,
    /// Why it was not solved; empty if it was.
    pub reason: String,
    /// How many attempts were made; 0 if the setup failed.
    pub attempts: u32,
    /// Wall-clock time with setup and all attempts.
    pub seconds: f64,
}

impl Finished {
    /// The record of `task`.
    pub fn new(task: &Task, verdict: Verdict, reason: String, attempts: u32, seconds: f64) -> Self {
        let (id, category) = (task.id.clone(), task.category.clone());
        Finished { task: id, category, difficulty: task.difficulty, verdict, reason, attempts, seconds }
    }
}

/// The present time, as [`Header::started`] has it.
pub fn now() -> String {
    jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string()
}

/// The first field in which two headers describe different runs, as path, first value, second value.
pub fn difference(first: &Header, second: &Header) -> Option<(String, String, String)> {
    // A header is made of texts, numbers and lists, which always become JSON.
    let value = |header| serde_json::to_value(header).unwrap_or_default();
    let (mut first, second) = (value(first), value(second));
    first["started"] = second["started"].clone();
    unequal("", &first, &second)
}

fn unequal(path: &str, first: &Value, second: &Value) -> Option<(String, String, String)> {
    match (first, second) {
        (Value::Object(a), Value::Object(b)) => a.keys().chain(b.keys()).find_map(|key| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            unequal(&path, a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null))
        }),
        _ if first == second => None,
        _ => Some((path.to_owned(), first.to_string(), second.to_string())),
    }
}
