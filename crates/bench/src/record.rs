//! The records of a run, one per line: the header, each attempt, each finished task.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::{fmt, io};

use alara_engine::Sampling;
use alara_harness::calls::Calls;
use alara_harness::knowledge::Retrieval;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::dialogue::Measures;
use crate::policy::RetryPolicy;
use crate::price::Price;
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
    /// The model file or endpoint.
    /// `gold` if the gold solutions were played.
    pub model: Named,
    /// Metadata in the model's file; `None` if there is no local file.
    /// May differ when a run is resumed, because earlier versions didn't write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
    /// The model of users played by NPCs; `None` if it is the same model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Named>,
    /// Engine settings: context, KV type and so on, named like the binary's options.
    pub engine: Value,
    /// The team, with the hash of its NPC's system prompt and tools.
    pub team: Named,
    /// The NPC that worked on the tasks.
    pub npc: String,
    /// Whether the team's gates applied; `None` for the setting in its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<bool>,
    /// The retrieval method; `None` for the setting in the team's files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrieval: Option<Retrieval>,
    /// Price of the model's tokens; `None` if unknown.
    /// May differ when a run is resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Sampling parameters; each attempt's seed is derived from the run's `seed`.
    pub sampling: Sampling,
    /// Minimum temperature of later attempts.
    pub retry_temperature: f32,
    /// Whether reasoning models reason; `None` for their default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<bool>,
    /// Whether each turn had to be a call; `None` for the setting in the NPC's file, or the model's
    /// format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<Calls>,
    /// How often to try a task, and how.
    pub policy: RetryPolicy,
    /// Time limit per task in seconds, for all its attempts together, unless the task has its own.
    pub timeout: u64,
    /// Number of parallel tasks.
    pub parallel: usize,
    /// The condition, as named in a sweep.
    pub condition: String,
    /// Number of the repetition, from 1.
    pub trial: u32,
    /// The version of alara.
    pub version: String,
    /// The programs that tasks use, and their versions.
    pub programs: BTreeMap<String, String>,
    /// The computer.
    pub machine: Machine,
    /// The ids of the tasks of this run.
    pub tasks: Vec<String>,
    /// Start time, RFC 3339.
    /// May differ when a run is resumed.
    pub started: String,
    /// Options of the command that started it, without those for its output.
    /// May differ when a run is resumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

/// Metadata in a model's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The architecture.
    pub architecture: String,
    /// Number of parameters, in billions.
    pub parameters: f64,
    /// The quantization.
    pub quantization: String,
}

/// A name, and the hash of its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The display name.
    pub name: String,
    /// SHA-256 of the content, in hexadecimal; empty if there is nothing to hash.
    pub hash: String,
}

impl Named {
    /// Hashes this content under `name`.
    pub fn of(name: impl Into<String>, content: &[u8]) -> Self {
        Named { name: name.into(), hash: format!("{:x}", Sha256::digest(content)) }
    }

    /// Hashes the content of this file under `name`.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn of_file(name: impl Into<String>, file: &Path) -> io::Result<Self> {
        let mut hash = Sha256::new();
        io::copy(&mut File::open(file)?, &mut hash)?;
        Ok(Named { name: name.into(), hash: format!("{:x}", hash.finalize()) })
    }
}

/// Value of [`Header::condition`] if there is no name.
pub const DEFAULT_CONDITION: &str = "default";

/// A computer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system, such as `linux`.
    pub os: String,
    /// Processor architecture, such as `x86_64`.
    pub arch: String,
    /// Number of processors available to the run.
    pub cpus: usize,
    /// Name of the processor; empty if the system doesn't report it.
    pub cpu: String,
    /// Memory in bytes; 0 if the system doesn't report it.
    pub memory: u64,
    /// Version of the system; empty if the system doesn't report it.
    pub kernel: String,
}

impl Machine {
    /// Returns the computer that this runs on.
    pub fn this() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |path: &str, name: &str| {
            let text = text(path);
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
            value.map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let memory = field("/proc/meminfo", "MemTotal");
        let memory = memory.strip_suffix(" kB").and_then(|kib| kib.parse::<u64>().ok());
        Machine {
            cpu: field("/proc/cpuinfo", "model name"),
            memory: memory.map_or(0, |kib| kib * 1024),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
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
    /// The verification failed.
    Failed,
    /// There is no result, for a reason that isn't the agent's fault.
    /// A program is missing, the setup failed, the disk is full, or the model can't be reached.
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

/// The cost of model turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Number of tool calls by the model.
    pub tool_calls: u64,
    /// Number of prompt tokens, including cached ones.
    pub tokens_in: u64,
    /// Number of prompt tokens whose keys and values were reused.
    pub tokens_cached: u64,
    /// Number of generated tokens.
    pub tokens_out: u64,
    /// Seconds of generation, without prefill.
    pub decode_seconds: f64,
    /// Number of generated tokens in turns whose decode time is unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_untimed: u64,
}

/// One turn of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// The NPC.
    pub npc: String,
    /// The model, and the hash of its file; empty for an endpoint.
    pub model: Named,
    /// Number of tool calls.
    pub tool_calls: u64,
    /// Number of prompt tokens, including cached ones.
    pub tokens_in: u64,
    /// Number of prompt tokens whose keys and values were reused.
    pub tokens_cached: u64,
    /// Number of generated tokens.
    pub tokens_out: u64,
    /// Seconds from the request to the first token.
    pub ttft: f64,
    /// Seconds of generation, without prefill.
    pub decode_seconds: f64,
    /// Number of draft tokens of speculative decoding.
    #[serde(default)]
    pub tokens_drafted: u64,
    /// Number of these that were accepted.
    #[serde(default)]
    pub tokens_accepted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Cost {
    /// Adds up the cost of these turns.
    pub fn of(messages: &[TurnRecord]) -> Self {
        let mut cost = Cost::default();
        for message in messages {
            cost += Cost {
                tool_calls: message.tool_calls,
                tokens_in: message.tokens_in,
                tokens_cached: message.tokens_cached,
                tokens_out: message.tokens_out,
                decode_seconds: message.decode_seconds,
                tokens_untimed: if message.decode_seconds > 0.0 { 0 } else { message.tokens_out },
            };
        }
        cost
    }

    /// Returns the generated tokens per second of decoding, counting only those with a known time.
    /// 0 if there are none.
    pub fn tokens_per_second(&self) -> f64 {
        let timed = self.tokens_out.saturating_sub(self.tokens_untimed);
        if self.decode_seconds > 0.0 { timed as f64 / self.decode_seconds } else { 0.0 }
    }

    /// Returns the share of prompt tokens that were reused, from 0 to 1.
    pub fn prefix_hit(&self) -> f64 {
        if self.tokens_in > 0 { self.tokens_cached as f64 / self.tokens_in as f64 } else { 0.0 }
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.tokens_in = self.tokens_in.saturating_add(other.tokens_in);
        self.tokens_cached = self.tokens_cached.saturating_add(other.tokens_cached);
        self.tokens_out = self.tokens_out.saturating_add(other.tokens_out);
        self.decode_seconds += other.decode_seconds;
        self.tokens_untimed = self.tokens_untimed.saturating_add(other.tokens_untimed);
    }
}

/// One attempt at a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The task's id.
    pub task: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The seed of its sampler.
    pub seed: u64,
    /// How it ended.
    pub verdict: Verdict,
    /// Why it wasn't solved: the verification's output, and anything else that stopped the agent.
    /// Empty if solved.
    pub reason: String,
    /// Wall-clock time, including verification.
    pub seconds: f64,
    /// Cost of the model.
    #[serde(flatten)]
    pub cost: Cost,
    /// Seconds from the first request to its first token; `None` if there was none.
    pub ttft: Option<f64>,
    /// Generated tokens per second of decoding.
    pub tokens_per_second: f64,
    /// Path of the trace, relative to the run file; empty if there is none.
    /// Attempts in the same conversation share it.
    pub trace: String,
    /// Number of refused calls by gate rule and phase: `rule NAME`, `phase NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refusals: BTreeMap<String, u64>,
    /// Measures of a dialogue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialogue: Option<Box<Measures>>,
    /// The models' turns, in order: the agent's, and those of NPCs that it delegated to.
    #[serde(default)]
    pub messages: Vec<TurnRecord>,
}

/// A finished task.
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
    /// Why it wasn't solved; empty if it was.
    pub reason: String,
    /// Number of attempts; 0 if the setup failed.
    pub attempts: u32,
    /// Wall-clock time, including setup and all attempts.
    pub seconds: f64,
}

impl Finished {
    /// Creates the record of `task`.
    pub fn new(task: &Task, verdict: Verdict, reason: String, attempts: u32, seconds: f64) -> Self {
        let (id, category) = (task.id.clone(), task.category.clone());
        Finished { task: id, category, difficulty: task.difficulty, verdict, reason, attempts, seconds }
    }
}

/// Returns the current time in the format of [`Header::started`].
pub fn now() -> String {
    jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string()
}

/// Returns the first field in which two headers describe different runs: path, first value, second
/// value.
pub fn difference(first: &Header, second: &Header) -> Option<(String, String, String)> {
    // A header consists of strings, numbers and lists, whose conversion to JSON can't fail.
    let value = |header| serde_json::to_value(header).unwrap_or_default();
    let (mut first, second) = (value(first), value(second));
    for name in ["started", "price", "about", "command"] {
        first[name] = second[name].clone();
    }
    // These change when the same computer is rebooted.
    for name in ["kernel", "memory"] {
        first["machine"][name] = second["machine"][name].clone();
    }
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
