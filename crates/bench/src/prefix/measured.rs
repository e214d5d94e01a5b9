//! Results of the prefix cache measurements.

use serde::Serialize;

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model file.
    pub model: String,
    /// Number of compute threads.
    pub threads: usize,
    /// Hits on the trace.
    pub trace: Hits,
    /// Results for each size that fits into the model's context.
    pub first_token: Vec<FirstToken>,
    /// Sizes that don't fit.
    pub too_long: Vec<usize>,
    /// Results for each number of agents.
    pub parallel: Vec<Parallel>,
    /// Inter-token latency of a sequence during prefill of another; `None` if not measured.
    pub beside: Option<Beside>,
}

/// Hits on a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Hits {
    /// Number of requests.
    pub requests: usize,
    /// Total number of prompt tokens.
    pub prompt_tokens: usize,
    /// Number of these that each prompt shares, at most, with any earlier one.
    pub ideal_tokens: usize,
    /// Number of these that were not computed again.
    pub hit_tokens: usize,
    /// Ratio of hits to the ideal, from 0 to 1.
    pub share: f64,
    /// Number of requests that don't fit into the model's context, which the other numbers exclude.
    pub too_long: usize,
}

/// Times to first token, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FirstToken {
    /// Length of the prompt in tokens.
    pub prompt_tokens: usize,
    /// With nothing cached.
    pub cold_ms: f64,
    /// With the static prefix in memory.
    pub warm_ms: f64,
    /// With the static prefix cached by an earlier process, its files still in the page cache.
    pub restart_ms: f64,
    /// Number of tokens that were loaded from disk in that case.
    pub disk_tokens: usize,
    /// As `restart_ms`, with the files read from disk; `None` if they can't be evicted from the
    /// page cache.
    pub uncached_ms: Option<f64>,
    /// Prefill time of the cold prompt, measured by the engine.
    pub prefill_ms: f64,
    /// Part of that for snapshots for later prompts: allocating, copying state, filing.
    pub snapshot_ms: f64,
    /// Share of the snapshots in the prefill time, from 0 to 1.
    pub snapshot_share: f64,
}

/// Throughput of parallel agents.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Parallel {
    /// Number of agents.
    pub agents: usize,
    /// Total number of tokens that they generated.
    pub tokens: usize,
    /// Tokens per second over the whole time, prefill included.
    /// For made-up agents, this and the next are medians over several rounds.
    pub tokens_per_second: f64,
    /// Decode speed in tokens/s, from the additional time for answers twice as long.
    /// `None` if they were not longer.
    pub decode_per_second: Option<f64>,
    /// For recorded requests, tasks per minute.
    pub tasks_per_minute: Option<f64>,
}

/// Inter-token latency of a sequence during prefill of another.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Beside {
    /// Length of the prefilled prompt in tokens.
    pub prompt_tokens: usize,
    /// Time until its first token.
    pub prefill_ms: f64,
    /// Number of text pieces that the sequence generated in that time; nearly always one token
    /// each.
    pub pieces: usize,
    /// Median time between two pieces.
    pub median_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// The longest.
    pub longest_ms: f64,
}
