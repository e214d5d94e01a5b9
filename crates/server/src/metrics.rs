//! Metrics of the server, in Prometheus' format
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alara_engine::Usage;
use alara_harness::model::Loaded;

use crate::answer::{Item, Piece};

/// Counters.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: AtomicU64,
    refused: AtomicU64,
    answers: AtomicU64,
    failures: AtomicU64,
    prompt: AtomicU64,
    cached: AtomicU64,
    completion: AtomicU64,
    drafted: AtomicU64,
    accepted: AtomicU64,
    calls: AtomicU64,
    changed: AtomicU64,
    /// Microseconds, like the others.
    prefill: AtomicU64,
    decode: AtomicU64,
    first: AtomicU64,
}

/// State of the slots.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Maximum number of requests processed in parallel.
    pub parallel: usize,
    /// Number of requests being processed.
    pub working: usize,
    /// Number of requests waiting for a slot.
    pub waiting: usize,
}

impl Metrics {
    /// Counts a request answered with this status.
    pub fn request(&self, status: u16) {
        add(&self.requests, 1);
        add(&self.refused, u64::from(status >= 400));
    }

    /// Counts a piece of an answer, or a failure.
    pub fn count(&self, item: &Item) {
        match item {
            Ok(Piece::Call(_)) => add(&self.calls, 1),
            Ok(Piece::End(end)) => self.end(&end.usage),
            Ok(_) => {}
            Err(_) => add(&self.failures, 1),
        }
    }

    /// Counts a prompt whose head differs from an earlier one without need.
    pub fn changed(&self) {
        add(&self.changed, 1);
    }

    fn end(&self, usage: &Usage) {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        add(&self.answers, 1);
        add(&self.prompt, usage.prompt_tokens as u64);
        add(&self.cached, usage.cached_tokens as u64);
        add(&self.completion, usage.completion_tokens as u64);
        add(&self.drafted, usage.drafts.drafted as u64);
        add(&self.accepted, usage.drafts.accepted as u64);
        add(&self.prefill, micros(usage.prefill_time));
        add(&self.decode, micros(usage.decode_time));
        add(&self.first, micros(usage.time_to_first_token));
    }

    /// Formats all counters, and the state of the slots.
    pub fn text(&self, load: Load, loaded: &[Loaded]) -> String {
        let mut text = String::new();
        let mut tell = |name: &str, kind: &str, help: &str, value: f64| {
            // Writing to a string can't fail.
            let _ = writeln!(
                text,
                "# HELP alara_{name} {help}\n# TYPE alara_{name} {kind}\nalara_{name} {value}"
            );
        };
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed) as f64;
        let (prompt, cached) = (get(&self.prompt), get(&self.cached));
        let counters = [
            ("requests_total", "Requests that were answered, with whatever status.", get(&self.requests)),
            ("requests_refused_total", "Of these, with a status of 400 or above.", get(&self.refused)),
            ("answers_total", "Answers of a model or an NPC that came to their end.", get(&self.answers)),
            ("answers_failed_total", "Answers that could not begin or broke off.", get(&self.failures)),
            ("prompt_tokens_total", "Tokens of prompts.", prompt),
            ("prompt_tokens_cached_total", "Of these, from the prefix cache.", cached),
            ("tokens_predicted_total", "Tokens generated.", get(&self.completion)),
            ("draft_tokens_total", "Draft tokens computed.", get(&self.drafted)),
            ("draft_tokens_accepted_total", "Of these, accepted.", get(&self.accepted)),
            ("tool_calls_total", "Tool calls handed to clients.", get(&self.calls)),
            (
                "prompt_heads_changed_total",
                "Prompts that a change near their beginning kept from the cache.",
                get(&self.changed),
            ),
            ("prompt_seconds_total", "Time of prefill.", get(&self.prefill) / 1e6),
            ("tokens_predicted_seconds_total", "Time of decode.", get(&self.decode) / 1e6),
            ("time_to_first_token_seconds_total", "Time to first tokens.", get(&self.first) / 1e6),
        ];
        for (name, help, value) in counters {
            tell(name, "counter", help, value);
        }
        let hits = if prompt > 0.0 { cached / prompt } else { 0.0 };
        let bytes: u64 = loaded.iter().map(|model| model.bytes).sum();
        let (cached, capacity) = loaded
            .iter()
            .filter_map(|model| model.cached)
            .fold((0, 0), |(cached, capacity), (more, room)| (cached + more, capacity + room));
        let gauges = [
            ("prefix_hit_ratio", "Share of prompts' tokens from the prefix cache.", hits),
            ("requests_processing", "Requests that are worked on.", load.working as f64),
            ("requests_deferred", "Requests that wait for a slot.", load.waiting as f64),
            ("slots", "Requests that can be worked on at a time.", load.parallel as f64),
            ("models_loaded", "Models that are loaded.", loaded.len() as f64),
            ("models_bytes", "Memory that these take, their KV caches included.", bytes as f64),
            ("kv_cache_tokens", "Tokens in their KV caches.", cached as f64),
            ("kv_cache_capacity_tokens", "Tokens that these can hold.", capacity as f64),
        ];
        for (name, help, value) in gauges {
            tell(name, "gauge", help, value);
        }
        text
    }
}

fn add(number: &AtomicU64, more: u64) {
    number.fetch_add(more, Ordering::Relaxed);
}
