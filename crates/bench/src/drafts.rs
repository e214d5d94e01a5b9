//! `bench drafts`: measures the gain of speculative decoding by prompt lookup, and checks that it
//! changes no answer.
//! It also covers the joint computation of forced tokens.
//!
//! Two engines that differ only in this answer every request alternately.
//! The requests are the turns of recorded traces, in which models call tools, and free text with a
//! fixed seed.

use std::path::Path;

use alara_engine::file;
use alara_engine::{DraftUsage, Engine, Event, Gguf, Message, Options, Request, Sampling};
use alara_harness::trace::{Line, Record, request};
use serde::Serialize;

use crate::report::math::median;

/// Turns of the model that ships, in the first task of each category of the suite whose trace is
/// smaller than 20 kB.
const RECORDED: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", env!("ALARA_BENCHES"), "/drafts.jsonl"));

/// Prompts for free text.
const ASKED: [&str; 6] = [
    "Tell me about the history of paper.",
    "Why is the sky blue?",
    "Write a short story about a lighthouse.",
    "What should I pack for a week in the mountains?",
    "Explain how a bicycle stays upright.",
    "Describe a market in the morning.",
];

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct Config {
    /// Engine options, except for speculation.
    pub options: Options,
    /// How often each of the two engines gets all requests, not counting the warm-up.
    pub pairs: usize,
    /// Maximum number of tokens per turn.
    pub tokens: usize,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model file.
    pub model: String,
    /// Number of compute threads.
    pub threads: usize,
    /// Turns with tools, then free text.
    pub sets: Vec<Set>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Set {
    /// The kind.
    pub name: &'static str,
    /// Number of requests.
    pub requests: usize,
    /// Number of tokens in the answers to all of them, once.
    pub tokens: usize,
    /// Median decode speed in tokens/s without draft tokens: one token per step.
    pub without: f64,
    /// Median decode speed in tokens/s with draft tokens.
    pub with: f64,
    /// Median over the pairs of the speedup by draft tokens.
    pub speedup: f64,
    /// Speedup of each pair.
    pub speedups: Vec<f64>,
    /// Draft tokens in one pass, and how many of them were accepted.
    pub drafts: DraftUsage,
    /// Number of requests whose answers were always the same with and without draft tokens.
    pub same: usize,
}

/// Returns the turns with tools of a recorded trace as requests.
///
/// # Errors
/// A line isn't a record.
pub fn turns(trace: &str) -> Result<Vec<Request>, serde_json::Error> {
    let mut turns = Vec::new();
    let mut entries = Vec::new();
    for line in trace.lines() {
        let Line { entry, .. } = serde_json::from_str::<Line>(line)?;
        if let Record::Assistant { .. } = &*entry.record {
            let before =
                entries.iter().filter(|earlier: &&alara_harness::trace::Entry| earlier.scope == entry.scope);
            turns.push(request(before.map(|entry| &*entry.record)));
        }
        // In a trace of several runs, each starts over.
        if let (Record::Start(_), true) = (&*entry.record, entry.scope.is_empty()) {
            entries.clear();
        }
        entries.push(entry);
    }
    turns.retain(|request| !request.tools.is_empty());
    Ok(turns)
}

/// Returns the turns of the default trace.
pub fn recorded() -> Vec<Request> {
    turns(RECORDED).unwrap_or_default()
}

/// Like [`turns`], for a file.
///
/// # Errors
/// The file can't be read, or isn't a trace.
pub fn turns_of(path: &Path) -> std::io::Result<Vec<Request>> {
    Ok(turns(&file::read_text(path, file::RECORDS)?)?)
}

/// Returns requests for free text, sampled at temperature 0.8, each four times with different
/// seeds.
fn free() -> Vec<Request> {
    let free = ASKED.iter().cycle().zip(1..=4 * ASKED.len() as u64).map(|(text, seed)| Request {
        messages: vec![Message::user(*text)],
        sampling: Sampling { temperature: 0.8, seed, ..Sampling::default() },
        // An earlier answer to the same request must not help: in practice it isn't repeated.
        salt: seed.to_string(),
        ..Request::default()
    });
    free.collect()
}

/// Measures the model in `gguf` on the turns `with_tools` and on free text; calls `note` with the
/// current step.
///
/// # Errors
/// An error of the engine.
pub fn measure(
    gguf: &Gguf,
    config: &Config,
    with_tools: Vec<Request>,
    note: &mut dyn FnMut(&str),
) -> alara_engine::Result<Report> {
    let engine = |drafts| Engine::load(gguf, &Options { drafts, ..config.options.clone() });
    let engines = [engine(false)?, engine(true)?];
    engines.iter().for_each(Engine::settle);
    let mut sets = Vec::new();
    for (name, mut requests) in [("tool calls", with_tools), ("free text", free())] {
        for request in &mut requests {
            request.max_tokens =
                Some(request.max_tokens.map_or(config.tokens, |most| most.min(config.tokens)));
        }
        sets.push(compare(name, &engines, &requests, config.pairs, note)?);
    }
    Ok(Report { model: gguf.name().to_owned(), threads: config.options.threads, sets })
}

/// One pass of one engine.
#[derive(Default)]
struct Pass {
    answers: Vec<String>,
    tokens: usize,
    seconds: f64,
    drafts: DraftUsage,
}

impl Pass {
    fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds.max(1e-9)
    }
}

fn compare(
    name: &'static str,
    engines: &[Engine; 2],
    requests: &[Request],
    pairs: usize,
    note: &mut dyn FnMut(&str),
) -> alara_engine::Result<Set> {
    // The first pass isn't measured.
    // Each pass has its own salts, so that no answers of the previous one are in the cache.
    let expected = pass(&engines[0], requests, 0)?;
    let mut last = pass(&engines[1], requests, 0)?;
    let mut same: Vec<bool> = expected.answers.iter().zip(&last.answers).map(|(a, b)| a == b).collect();
    let (mut speeds, mut speedups) = ([Vec::new(), Vec::new()], Vec::new());
    for pair in 1..=pairs {
        note(&format!("{name}, pair {pair} of {pairs}"));
        // The order alternates, so that neither engine has an advantage.
        for which in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            let now = pass(&engines[which], requests, pair)?;
            same.iter_mut()
                .zip(now.answers.iter().zip(&expected.answers))
                .for_each(|(same, (a, b))| *same &= a == b);
            speeds[which].push(now.tokens_per_second());
            if which == 1 {
                last = now;
            }
        }
        speedups.push(speeds[1][pair - 1] / speeds[0][pair - 1]);
    }
    Ok(Set {
        name,
        requests: requests.len(),
        tokens: expected.tokens,
        without: median(&speeds[0]),
        with: median(&speeds[1]),
        speedup: median(&speedups),
        speedups,
        drafts: last.drafts,
        same: same.iter().filter(|same| **same).count(),
    })
}

fn pass(engine: &Engine, requests: &[Request], number: usize) -> alara_engine::Result<Pass> {
    let mut pass = Pass::default();
    for request in requests {
        let mut answer = String::new();
        let salt = format!("{number} {}", request.salt);
        for event in engine.generate(&Request { salt, ..request.clone() })? {
            match event? {
                Event::Text { text } | Event::Reasoning { text } => answer += &text,
                Event::ToolCall(call) => answer += &format!("\n{} {:?}", call.name, call.arguments),
                Event::Incomplete { name, arguments } => answer += &format!("\n{name} {arguments}…"),
                Event::Prefill { .. }
                | Event::ToolCallDelta { .. }
                | Event::Logprobs { .. }
                | Event::PromptLogprobs { .. } => {}
                Event::Done { finish, usage } => {
                    answer += &format!("\n{finish:?} after {}", usage.completion_tokens);
                    pass.tokens += usage.completion_tokens;
                    pass.seconds += usage.decode_time.as_secs_f64();
                    pass.drafts += usage.drafts;
                }
            }
        }
        pass.answers.push(answer);
    }
    Ok(pass)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorded turns are complete, and the shipped model gives the same answers to them with
    /// and without draft tokens, some of which are accepted.
    #[test]
    fn answers_to_recorded_turns_are_the_same() {
        let all = turns(RECORDED).expect("it is a trace");
        assert!(all.len() >= 12 && all.iter().all(|turn| !turn.messages.is_empty()), "{}", all.len());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/alara-tiny.gguf");
        let gguf = Gguf::open(&path).expect("it ships");
        let options = Options { threads: 1, ..Options::default() };
        let some = all.into_iter().step_by(5).collect();
        let config = Config { options, pairs: 1, tokens: 24 };
        let report = measure(&gguf, &config, some, &mut |_| {}).expect("it can be measured");
        for set in &report.sets {
            assert!(set.requests > 1 && set.same == set.requests && set.tokens > set.requests, "{set:?}");
        }
    }
}
