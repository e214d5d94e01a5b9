//! `bench prefix`: measures how much of agents' repeated input is computed again.
//!
//! Defines the trace of three agents that share skills, and measures on it:
//! - prefix hits compared with the ideal;
//! - the time to first token, cold, warm and after a restart;
//! - the throughput of parallel agents;
//! - the time between a sequence's tokens during prefill of another.

mod measured;
mod requests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use alara_engine::{Engine, Event, Gguf, Message, Options, Request, Sampling, Usage, disk};
use serde_json::json;

use crate::report::math::median;
pub use measured::{Beside, FirstToken, Hits, Parallel, Report};
use requests::{AGENTS, Text, segment, trace};
pub use requests::{Recorded, recorded};

/// Number of rounds for the throughput of made-up agents.
const ROUNDS: usize = 5;

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct Config {
    /// Engine options.
    /// The measurement sets context and disk tier itself.
    pub options: Options,
    /// The tier on disk, for the time after a restart: a folder without other users.
    pub disk: disk::Options,
    /// The requests of the trace; `None` for those of three agents that share skills.
    pub recorded: Option<Vec<Recorded>>,
    /// Words per skill in that trace.
    pub words: usize,
    /// Lengths of the static prefix for the times to first token, in tokens.
    pub sizes: Vec<usize>,
    /// Numbers of parallel agents, for recorded tasks or made-up requests.
    pub parallel: Vec<usize>,
    /// Number of tokens that each made-up request generates.
    pub generate: usize,
    /// Length of a prompt that is prefilled while another sequence decodes; 0 skips this.
    pub beside: usize,
}

/// Measures the model in `gguf`.
/// Calls `note` with the current step; `evict` evicts a file from the page cache and returns
/// whether it could.
/// whether it could.
///
/// # Errors
/// An error of the engine.
pub fn measure(
    gguf: &Gguf,
    config: &Config,
    note: &mut dyn FnMut(&str),
    evict: &dyn Fn(&Path) -> bool,
) -> alara_engine::Result<Report> {
    let mut bench = Bench { gguf, config, context: config.options.context };
    let made_up = trace(config.words);
    let requests: Vec<&Request> = match &config.recorded {
        Some(recorded) => recorded.iter().map(|recorded| &recorded.request).collect(),
        None => made_up.iter().collect(),
    };
    note(&format!("trace of {} requests", requests.len()));
    let (fitting, context) = bench.fitting(&requests)?;
    bench.context = context;
    let too_long = requests.len() - fitting.len();
    let fit: Vec<&Request> = fitting.iter().map(|&at| requests[at]).collect();
    let trace = Hits { too_long, ..bench.hits(&fit)? };
    let mut parallel = Vec::new();
    if let Some(recorded) = &config.recorded {
        let mut tasks: BTreeMap<usize, Vec<&Request>> = BTreeMap::new();
        for at in fitting {
            tasks.entry(recorded[at].task).or_default().push(&recorded[at].request);
        }
        let tasks: Vec<_> = tasks.into_values().collect();
        for &agents in &config.parallel {
            note(&format!("{} tasks, {agents} at a time", tasks.len()));
            parallel.push(bench.replay(&tasks, agents)?);
        }
    }
    // The following steps use made-up agents, whatever was replayed.
    bench.context = bench.fitting(&made_up.iter().collect::<Vec<_>>())?.1;
    let (mut first_token, mut too_long) = (Vec::new(), Vec::new());
    for &size in &config.sizes {
        note(&format!("time to the first token after {size} static tokens"));
        match bench.first_token(size, evict)? {
            Some(row) => first_token.push(row),
            None => too_long.push(size),
        }
    }
    if config.recorded.is_none() {
        parallel = bench.parallel(&config.parallel, note)?;
    }
    let mut beside = None;
    if config.beside > 0 {
        note(&format!("a prompt of {} tokens beside a sequence that writes", config.beside));
        beside = bench.beside(config.beside)?;
    }
    let (model, threads) = (gguf.name().to_owned(), config.options.threads);
    Ok(Report { model, threads, trace, first_token, too_long, parallel, beside })
}

struct Bench<'a> {
    gguf: &'a Gguf,
    config: &'a Config,
    /// The context that the trace needs.
    context: Option<usize>,
}

impl Bench<'_> {
    /// Loads an engine that has the processor for itself.
    fn load(&self, options: &Options) -> alara_engine::Result<Engine> {
        let engine = Engine::load(self.gguf, options)?;
        engine.settle();
        Ok(engine)
    }

    /// Loads an engine for `tokens` tokens in each of `parallel` sequences; `None` if the model's
    /// context is smaller.
    /// Runs a warm-up, so that the first measured request has no extra cost.
    fn engine(&self, tokens: usize, parallel: usize, disk: bool) -> alara_engine::Result<Option<Engine>> {
        let options = Options {
            context: Some(tokens),
            parallel,
            disk: disk.then(|| self.config.disk.clone()),
            ..self.config.options.clone()
        };
        let engine = self.load(&options)?;
        if engine.context() < tokens {
            return Ok(None);
        }
        let hello = Request {
            messages: vec![Message::user(Text(99).words(tokens.min(200) / 12))],
            max_tokens: Some(1),
            ..Request::default()
        };
        run(&engine, &hello)?;
        Ok(Some(engine))
    }

    /// Returns which of `requests` fit into the model's longest context, and the context needed for
    /// them and their answers.
    /// The latter is `None` if the default context is enough.
    fn fitting(&self, requests: &[&Request]) -> alara_engine::Result<(Vec<usize>, Option<usize>)> {
        let options = |context: Option<usize>| Options { context, disk: None, ..self.config.options.clone() };
        let usual = Engine::load(self.gguf, &options(self.config.options.context))?;
        let mut needed = Vec::new();
        for request in requests {
            let answer = self.config.generate.max(usual.answer_tokens(request)?.len());
            needed.push(usual.prompt_tokens(request)?.len() + 64 + answer);
        }
        // As long as needed, or as possible.
        let (mut most, mut context) = (needed.iter().copied().max().unwrap_or(0), None);
        if most > usual.context() {
            // The context is limited by the model's training and by memory.
            let usual = usual.context();
            let longest =
                Engine::load(self.gguf, &options(Some(most))).map_or(usual, |engine| engine.context());
            most = most.min(longest);
            context = Some(longest).filter(|longest| *longest > usual);
        }
        Ok(((0..needed.len()).filter(|&at| needed[at] <= most).collect(), context))
    }

    fn hits(&self, trace: &[&Request]) -> alara_engine::Result<Hits> {
        // Don't use the engine's default: it would truncate a longer trace.
        let options = Options { disk: None, context: self.context, ..self.config.options.clone() };
        let engine = Engine::load(self.gguf, &options)?;
        let mut hits = Hits { requests: trace.len(), ..Hits::default() };
        let mut seen: Vec<Vec<u32>> = Vec::new();
        for request in trace {
            let tokens = engine.prompt_tokens(request)?;
            let common = |other: &Vec<u32>| other.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
            // The last token is always computed, for its logits.
            let ideal = seen.iter().map(common).max().unwrap_or(0).min(tokens.len() - 1);
            // The recorded answer is in no earlier prompt: its hits wouldn't be among the ideal
            // ones.
            let asked = Request { max_tokens: Some(4), answer: None, ..(*request).clone() };
            let usage = run(&engine, &asked)?;
            hits.prompt_tokens += tokens.len();
            hits.ideal_tokens += ideal;
            hits.hit_tokens += usage.cached_tokens.min(ideal);
            seen.push(tokens);
        }
        hits.share = hits.hit_tokens as f64 / hits.ideal_tokens.max(1) as f64;
        Ok(hits)
    }

    fn first_token(
        &self,
        size: usize,
        evict: &dyn Fn(&Path) -> bool,
    ) -> alara_engine::Result<Option<FirstToken>> {
        let Some(engine) = self.engine(size + 256, 1, true)? else { return Ok(None) };
        // Find how many words make a given number of tokens.
        let sample = 100;
        let request = |words: usize, question: u64| Request {
            system: vec![segment("static", Text(size as u64).words(words))],
            messages: vec![Message::user(Text(question).words(18))],
            max_tokens: Some(1),
            ..Request::default()
        };
        let count = |words: usize| engine.prompt_tokens(&request(words, 1)).map(|tokens| tokens.len());
        let (none, some) = (count(1)?, count(1 + sample)?);
        let words = 1 + size.saturating_sub(none) * sample / (some - none).max(1);
        let time = |engine: &Engine, question: u64| -> alara_engine::Result<(f64, Usage)> {
            let usage = run(engine, &request(words, question))?;
            Ok((usage.time_to_first_token.as_secs_f64() * 1e3, usage))
        };
        let (cold_ms, usage) = time(&engine, 1)?;
        let (warm_ms, _) = time(&engine, 2)?;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (prefill_ms, snapshot_ms) = (ms(usage.prefill_time), ms(usage.snapshot_time));
        drop(engine);
        let again = |question: u64| match self.engine(size + 256, 1, true)? {
            Some(engine) => time(&engine, question),
            None => Ok((0.0, Usage::default())),
        };
        let (restart_ms, restarted) = again(3)?;
        let files = disk::list(&self.config.disk.folder).unwrap_or_default();
        let evicted = files.iter().all(|entry| evict(&entry.path));
        let uncached_ms = if evicted { Some(again(4)?.0) } else { None };
        Ok(Some(FirstToken {
            prompt_tokens: usage.prompt_tokens,
            cold_ms,
            warm_ms,
            restart_ms,
            disk_tokens: restarted.disk_tokens,
            uncached_ms,
            prefill_ms,
            snapshot_ms,
            snapshot_share: if prefill_ms > 0.0 { snapshot_ms / prefill_ms } else { 0.0 },
        }))
    }

    /// Measures the latency; `None` if the two don't fit into the context.
    fn beside(&self, tokens: usize) -> alara_engine::Result<Option<Beside>> {
        let Some(engine) = self.engine(tokens + 512, 2, false)? else { return Ok(None) };
        // An answer that can't end or repeat itself before it is long enough.
        let writing = Request {
            messages: vec![Message::user("Tell me about the house.")],
            schema: Some(json!({"type": "string", "minLength": 20_000})),
            sampling: Sampling { temperature: 1.0, ..Sampling::default() },
            ..Request::default()
        };
        let prompt = |words: usize| Request {
            messages: vec![Message::user(Text(3).words(words))],
            max_tokens: Some(1),
            ..Request::default()
        };
        let count = |words: usize| engine.prompt_tokens(&prompt(words)).map(|tokens| tokens.len());
        let (none, some) = (count(1)?, count(101)?);
        let reading = prompt(1 + tokens.saturating_sub(none) * 100 / (some - none).max(1));
        let mut written = engine.generate(&writing)?;
        let is_text = |event: &alara_engine::Result<Event>| matches!(event, Ok(Event::Text { .. }));
        // The first tokens have extra costs.
        for event in written.by_ref().filter(is_text).take(8) {
            event?;
        }
        std::thread::scope(|scope| {
            let begun = Instant::now();
            let reader = scope.spawn(|| run(&engine, &reading));
            let mut gaps = Vec::new();
            let mut last = begun;
            while !reader.is_finished() {
                let Some(event) = written.next() else { break };
                if is_text(&event) {
                    gaps.push(last.elapsed().as_secs_f64() * 1e3);
                    last = Instant::now();
                }
                event?;
            }
            drop(written);
            let usage = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            gaps.sort_by(f64::total_cmp);
            let at = |share: f64| gaps.get(((gaps.len() as f64 * share).ceil() as usize).saturating_sub(1));
            Ok(at(1.0).map(|&longest_ms| Beside {
                prompt_tokens: usage.prompt_tokens,
                prefill_ms: usage.time_to_first_token.as_secs_f64() * 1e3,
                pieces: gaps.len(),
                median_ms: at(0.5).copied().unwrap_or(longest_ms),
                p95_ms: at(0.95).copied().unwrap_or(longest_ms),
                longest_ms,
            }))
        })
    }

    /// Measures each number of agents in turn, [`ROUNDS`] times.
    /// A machine's speed changes from minute to minute, and this spreads each change over all of
    /// them.
    fn parallel(&self, agents: &[usize], note: &mut dyn FnMut(&str)) -> alara_engine::Result<Vec<Parallel>> {
        let Some(&most) = agents.iter().max() else { return Ok(Vec::new()) };
        let trace = trace(self.config.words);
        let options =
            Options { parallel: most, disk: None, context: self.context, ..self.config.options.clone() };
        let engine = self.load(&options)?;
        // Cache their static prefix, as in normal operation.
        for request in trace.iter().take(most.min(AGENTS.len())) {
            run(&engine, &Request { max_tokens: Some(1), ..request.clone() })?;
        }
        let mut question = 7;
        // Returns how much `agents` agents generate, and how long it takes.
        let mut write = |agents: usize, generate: usize| -> alara_engine::Result<(usize, f64)> {
            let ask = |agent: usize| {
                let mut request = trace[agent % AGENTS.len()].clone();
                request.messages.push(Message::assistant("so", Vec::new()));
                request.messages.push(Message::user(Text(question + agent as u64).words(12)));
                request.max_tokens = Some(generate);
                engine.generate(&request)
            };
            let begun = Instant::now();
            let turns = (0..agents).map(ask).collect::<Result<Vec<_>, _>>()?;
            let mut tokens = 0;
            for turn in turns {
                tokens += done(turn)?.completion_tokens;
            }
            question += agents as u64;
            Ok((tokens, begun.elapsed().max(Duration::from_micros(1)).as_secs_f64()))
        };
        let mut measured = vec![(0, Vec::new(), Vec::new()); agents.len()];
        for round in 1..=ROUNDS {
            for (&agents, (all, rates, decode_rates)) in agents.iter().zip(&mut measured) {
                note(&format!("{agents} agents at once, {round} of {ROUNDS}"));
                let (tokens, seconds) = write(agents, self.config.generate)?;
                let (more, longer) = write(agents, 2 * self.config.generate)?;
                *all = tokens;
                rates.push(tokens as f64 / seconds);
                if more > tokens && longer > seconds {
                    decode_rates.push((more - tokens) as f64 / (longer - seconds));
                }
            }
        }
        let rows = agents.iter().zip(measured).map(|(&agents, (tokens, rates, decode_rates))| Parallel {
            agents,
            tokens,
            tokens_per_second: median(&rates),
            decode_per_second: (!decode_rates.is_empty()).then(|| median(&decode_rates)),
            tasks_per_minute: None,
        });
        Ok(rows.collect())
    }

    /// Lets `agents` agents share `tasks`, and send the requests of each task one after the other.
    fn replay(&self, tasks: &[Vec<&Request>], agents: usize) -> alara_engine::Result<Parallel> {
        let options = Options {
            parallel: agents,
            steady: false,
            disk: None,
            context: self.context,
            ..self.config.options.clone()
        };
        let engine = self.load(&options)?;
        let next = AtomicUsize::new(0);
        let work = || -> alara_engine::Result<usize> {
            let mut tokens = 0;
            while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                for request in task {
                    tokens += run(&engine, request)?.completion_tokens;
                }
            }
            Ok(tokens)
        };
        let begun = Instant::now();
        let tokens = std::thread::scope(|scope| {
            let agents: Vec<_> = (0..agents).map(|_| scope.spawn(work)).collect();
            let tokens = agents
                .into_iter()
                .map(|agent| agent.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            tokens.sum::<alara_engine::Result<usize>>()
        })?;
        let seconds = begun.elapsed().max(Duration::from_micros(1)).as_secs_f64();
        Ok(Parallel {
            agents,
            tokens,
            tokens_per_second: tokens as f64 / seconds,
            decode_per_second: None,
            tasks_per_minute: Some(tasks.len() as f64 * 60.0 / seconds),
        })
    }
}

fn run(engine: &Engine, request: &Request) -> alara_engine::Result<Usage> {
    done(engine.generate(request)?)
}

fn done(events: alara_engine::Events) -> alara_engine::Result<Usage> {
    let mut used = Usage::default();
    for event in events {
        if let Event::Done { usage, .. } = event? {
            used = usage;
        }
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn model(case: &str) -> Option<Gguf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let own = root.join("tests/fixtures/arch").join(case).join("model.gguf");
        let shared = || crate::absent::shared(&format!("fixtures/arch/{case}/model.gguf"));
        let path = Some(own).filter(|own| own.is_file()).or_else(shared)?;
        Some(Gguf::open(&path).expect("it is a model"))
    }

    /// The hits equal those of an unlimited cache, whatever kind of state the model has.
    #[test]
    fn a_trace_hits_what_could_be_hit() {
        let template = |name: &str| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/templates");
            Some(std::fs::read_to_string(folder.join(name)).expect("the template is there"))
        };
        for (case, name) in [
            ("qwen3-exact", "qwen3.jinja"),
            ("qwen35-exact", "qwen35.jinja"),
            ("gemma3-exact", "gemma3.jinja"),
            ("gpt-oss-mxfp4-f32", "gpt-oss.jinja"),
        ] {
            let Some(gguf) = model(case) else { continue };
            let folder = tempfile::tempdir().expect("there is room");
            let disk = disk::Options {
                folder: folder.path().to_owned(),
                limit: 1 << 30,
                patience: Duration::MAX,
                always: true,
                log: disk::Log::default(),
                outcome: Arc::default(),
            };
            let chat_template = template(name);
            let options = Options { threads: 1, parallel: 3, chat_template, ..Options::default() };
            let config = Config {
                options,
                disk,
                recorded: None,
                words: 40,
                sizes: vec![600, 1 << 20],
                parallel: vec![2],
                generate: 3,
                beside: 400,
            };
            let report = measure(&gguf, &config, &mut |_| {}, &|_| false).expect("it can be measured");
            println!("{case}: {report:?}");
            assert_eq!(report.trace.requests, 60);
            assert!(report.trace.share >= 0.98, "{case}: {:?}", report.trace);
            // A size that doesn't fit into the context is skipped, and listed.
            let [first] = report.first_token[..] else { panic!("{:?}", report.first_token) };
            assert_eq!(report.too_long, [1 << 20]);
            // Snapshots are counted where they exist, and are part of the prefill.
            let has_state = case != "qwen3-exact";
            assert!(first.prefill_ms > 0.0 && first.prefill_ms <= first.cold_ms, "{case}: {first:?}");
            assert!(!has_state || first.snapshot_ms > 0.0, "{case}: {first:?}");
            assert!((0.0..0.5).contains(&first.snapshot_share), "{case}: {first:?}");
            let beside = report.beside.expect("both fit");
            assert!(beside.prompt_tokens >= 380 && beside.pieces > 0, "{case}: {beside:?}");
            assert!(
                beside.median_ms <= beside.p95_ms && beside.p95_ms <= beside.longest_ms,
                "{case}: {beside:?}"
            );
            // Part of it is in memory, since every prompt begins with it.
            assert!(first.disk_tokens * 2 > first.prompt_tokens, "{case}: {first:?}");
            assert_eq!(report.parallel[0].agents, 2);
        }
    }

    /// Recorded requests are replayed task by task, several tasks at a time, and none are skipped.
    #[test]
    fn tasks_are_replayed() {
        let Some(gguf) = model("qwen3-exact") else { return };
        let template = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/templates/qwen3.jinja");
        let chat_template = Some(std::fs::read_to_string(template).expect("the template is there"));
        let request = |at: usize| {
            let answer = Message::assistant(Text(at as u64).words(1 + at % 3), Vec::new());
            Request { max_tokens: None, answer: Some(answer), ..trace(20)[at].clone() }
        };
        let recorded: Vec<Recorded> =
            (0..9).map(|at| Recorded { request: request(at), task: at % 4 }).collect();
        let config = Config {
            options: Options { threads: 1, chat_template, ..Options::default() },
            disk: disk::Options {
                folder: std::env::temp_dir(),
                limit: 0,
                patience: Duration::MAX,
                always: true,
                log: disk::Log::default(),
                outcome: Arc::default(),
            },
            recorded: Some(recorded),
            words: 20,
            sizes: Vec::new(),
            parallel: vec![1, 3],
            generate: 3,
            beside: 0,
        };
        let report = measure(&gguf, &config, &mut |_| {}, &|_| false).expect("it can be measured");
        assert_eq!((report.trace.requests, report.trace.too_long), (9, 0));
        let [one, three] = &report.parallel[..] else { panic!("{:?}", report.parallel) };
        assert_eq!((one.agents, three.agents), (1, 3));
        // Eighteen words, and nine ends of turns.
        assert!(one.tokens >= 27 && three.tokens == one.tokens, "{report:?}");
        assert!(one.tasks_per_minute.is_some_and(|rate| rate > 0.0) && one.decode_per_second.is_none());
    }
}
