//! What a run writes down, one record a line: the header, each attempt, each finished task.

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
    /// `gold` when the gold solutions ran.
    pub model: Named,
    /// What the model's file says of itself; `None` = there is none here.
    /// May differ when a run is resumed: earlier versions did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
    /// The model of users who are NPCs; `None` = the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Named>,
    /// How the model runs: context, KV type and so on, as the binary's options have it.
    pub engine: Value,
    /// The team, and the hash of what its NPC tells the model: system prompt and tools.
    pub team: Named,
    /// The NPC that worked on the tasks.
    pub npc: String,
    /// Whether the team's gates were asked; `None` = as its files say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<bool>,
    /// How documents were found; `None` = as the team's files say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrieval: Option<Retrieval>,
    /// What tokens of the model cost; `None` = nobody said so.
    /// May differ when a run is resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// How tokens are sampled; `seed` is the run's, from which each attempt's is derived.
    pub sampling: Sampling,
    /// What the temperature of later attempts is raised to.
    pub retry_temperature: f32,
    /// Whether models that can reason do so; `None` = as they are used to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<bool>,
    /// Whether each turn had to be a call; `None` = as the NPC's file or the model's format had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<Calls>,
    /// How often a task is tried, and how.
    pub policy: RetryPolicy,
    /// Seconds a task, for all its attempts together, unless the task says otherwise.
    pub timeout: u64,
    /// How many tasks ran at a time.
    pub parallel: usize,
    /// What the run is one of: its condition, by the name that a sweep gives it.
    pub condition: String,
    /// Which repetition it is, from 1.
    pub trial: u32,
    /// The version of alara.
    pub version: String,
    /// The programs that tasks use and the version that each tells.
    pub programs: BTreeMap<String, String>,
    /// The computer.
    pub machine: Machine,
    /// The ids of the tasks of this run.
    pub tasks: Vec<String>,
    /// When it started, RFC 3339.
    /// May differ when a run is resumed.
    pub started: String,
    /// The options of the command that started it, without those for its output.
    /// May differ when a run is resumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

/// What a model's file says of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// What it calls its architecture.
    pub architecture: String,
    /// In thousands of millions.
    pub parameters: f64,
    /// What it calls its quantization.
    pub quantization: String,
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

/// What [`Header::condition`] is where nobody named one.
pub const DEFAULT_CONDITION: &str = "default";

/// A computer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The operating system, as `linux`.
    pub os: String,
    /// The processor architecture, as `x86_64`.
    pub arch: String,
    /// How many processors the run may use.
    pub cpus: usize,
    /// What the processor calls itself; empty where the system does not say.
    pub cpu: String,
    /// Bytes of memory; 0 where the system does not say.
    pub memory: u64,
    /// The system's version; empty where it does not say.
    pub kernel: String,
}

impl Machine {
    /// The computer that this runs on.
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
    /// The verification did not pass.
    Failed,
    /// It could not be told, for a reason that is not the agent's.
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
    /// Of the generated tokens those of turns of which that is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_untimed: u64,
}

/// One turn of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// Who spoke.
    pub npc: String,
    /// The model that spoke, and the hash of its file; empty for an endpoint.
    pub model: Named,
    /// Tool calls that it made.
    pub tool_calls: u64,
    /// Tokens of the prompt, cached ones included.
    pub tokens_in: u64,
    /// Tokens of the prompt whose keys and values were reused.
    pub tokens_cached: u64,
    /// Tokens generated.
    pub tokens_out: u64,
    /// Seconds from the request to the first token.
    pub ttft: f64,
    /// Seconds spent generating, prefill not included.
    pub decode_seconds: f64,
    /// Draft tokens of speculative decoding.
    #[serde(default)]
    pub tokens_drafted: u64,
    /// Of these, the accepted ones.
    #[serde(default)]
    pub tokens_accepted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Cost {
    /// What these turns cost.
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

    /// Generated tokens per second of decoding, of those whose time is known.
    /// 0 where of none it is.
    pub fn tokens_per_second(&self) -> f64 {
        let timed = self.tokens_out.saturating_sub(self.tokens_untimed);
        if self.decode_seconds > 0.0 { timed as f64 / self.decode_seconds } else { 0.0 }
    }

    /// The share of prompt tokens that were reused, 0 to 1.
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
    /// From 1.
    pub attempt: u32,
    /// The seed of its sampler.
    pub seed: u64,
    /// How it ended.
    pub verdict: Verdict,
    /// Why it was not solved: the verification's output, and what else stopped the agent.
    /// Empty if solved.
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
    /// Attempts that are one conversation share it.
    pub trace: String,
    /// How often each rule of a gate and each phase refused a call: `rule NAME`, `phase NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refusals: BTreeMap<String, u64>,
    /// How a dialogue went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialogue: Option<Box<Measures>>,
    /// The turns of models, in order: the agent's, and those of whom it gave work to.
    #[serde(default)]
    pub messages: Vec<TurnRecord>,
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

/// The first field in which two headers describe different runs, as path, first value, second
/// value.
pub fn difference(first: &Header, second: &Header) -> Option<(String, String, String)> {
    // A header is made of texts, numbers and lists, which always become JSON.
    let value = |header| serde_json::to_value(header).unwrap_or_default();
    let (mut first, second) = (value(first), value(second));
    for name in ["started", "price", "about", "command"] {
        first[name] = second[name].clone();
    }
    // What changes when the same computer starts anew.
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
