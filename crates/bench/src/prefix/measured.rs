//! What is measured of the prefix cache.

use serde::Serialize;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model file.
    pub model: String,
    /// Threads that computed.
    pub threads: usize,
    /// The trace.
    pub trace: Hits,
    /// For each size that fits into the model's context.
    pub first_token: Vec<FirstToken>,
    /// The sizes that don't fit.
    pub too_long: Vec<usize>,
    /// For each number of agents.
    pub parallel: Vec<Parallel>,
    /// Inter-token latency of a sequence while a prompt is computed; `None` if that is not
    /// measured.
    pub beside: Option<Beside>,
}

/// Hits of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Hits {
    /// Requests.
    pub requests: usize,
    /// Tokens of their prompts.
    pub prompt_tokens: usize,
    /// Of these, how many each prompt has in common with any earlier one, at the most.
    pub ideal_tokens: usize,
    /// How many of these were not computed again.
    pub hit_tokens: usize,
    /// Hits of the ideal, from 0 to 1.
    pub share: f64,
    /// Requests that don't fit into the model's context; they are not among the others.
    pub too_long: usize,
}

/// Times to the first token, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FirstToken {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Nothing of it was seen before.
    pub cold_ms: f64,
    /// Its static prefix was.
    pub warm_ms: f64,
    /// It was, by an earlier process, whose files the system still has in memory.
    pub restart_ms: f64,
    /// Tokens that came from disk then.
    pub disk_tokens: usize,
    /// And if the system has to read the files from the disk; `None` if it can't be made to.
    pub uncached_ms: Option<f64>,
    /// What computing the prompt took when it was cold, by the engine's own clock.
    pub prefill_ms: f64,
    /// Of that, taking snapshots for later prompts: allocating, copying state, filing.
    pub snapshot_ms: f64,
    /// Snapshots of the prefill, from 0 to 1.
    pub snapshot_share: f64,
}

/// Throughput of agents that work at once.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Parallel {
    /// How many agents.
    pub agents: usize,
    /// Tokens that they generated, all together.
    pub tokens: usize,
    /// Tokens a second while they were at it, prompts included.
    /// Of made-up agents the median of some rounds, and the next too.
    pub tokens_per_second: f64,
    /// Tokens a second without the prompts: what twice as long answers took more.
    /// `None` if they were not longer.
    pub decode_per_second: Option<f64>,
    /// Of recorded requests: tasks that were gone through, a minute.
    pub tasks_per_minute: Option<f64>,
}

/// Inter-token latency of a sequence while the prompt of another is computed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Beside {
    /// Tokens of that prompt.
    pub prompt_tokens: usize,
    /// Until its first token.
    pub prefill_ms: f64,
    /// Pieces of text that the sequence wrote meanwhile; nearly always a token each.
    pub pieces: usize,
    /// Time between two of them: the median, what 95 of 100 stay below, and the longest.
    pub median_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// The longest.
    pub longest_ms: f64,
}
