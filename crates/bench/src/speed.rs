//! Measures prefill and decode speed of a bare decoder like llama-bench: arbitrary tokens, one
//! warm-up, then repetitions from an empty cache.
//! Also measures the overhead of a grammar on decoding.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use alara_engine::{
    DeviceSummary, Gguf, GrammarUsage, Probe, ProbeSettings, ProbeTurns, Profile, Spent, limits,
};
use serde::Serialize;

/// Tokens per forward pass.
const BATCH: usize = 512;

/// Settings of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Length of the prompt in tokens; 0 skips prefill.
    pub prompt: usize,
    /// Tokens to decode, one at a time; 0 skips decode.
    pub generate: usize,
    /// Tokens in the cache before either begins.
    pub depth: usize,
    /// Number of tools whose grammar constrains decoding; 0 decodes without a grammar.
    pub tools: usize,
    /// Number of measured repetitions.
    pub repetitions: usize,
    /// Whether to measure the time of each operation.
    pub profile: bool,
    /// How the model is computed.
    pub settings: ProbeSettings,
}

/// One measurement, with llama-bench's field names.
#[derive(Clone, Debug, Serialize)]
pub struct Test {
    /// The model file.
    pub model_filename: String,
    /// Its size in bytes.
    pub model_size: u64,
    /// Device that computes: `cpu`, `cuda:0` and so on.
    pub devices: String,
    /// The vendor's name of the GPU; empty without one.
    pub gpu_info: String,
    /// Layers on the GPU.
    pub n_gpu_layers: usize,
    /// Number of compute threads.
    pub n_threads: usize,
    /// Tokens per forward pass.
    pub n_batch: usize,
    /// Number format of the keys.
    pub type_k: String,
    /// Number format of the values.
    pub type_v: String,
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Tokens decoded.
    pub n_gen: usize,
    /// Tokens in the cache at the start.
    pub n_depth: usize,
    /// Mean time of a repetition in nanoseconds.
    pub avg_ns: u64,
    /// Its standard deviation.
    pub stddev_ns: u64,
    /// Mean speed in tokens/s.
    pub avg_ts: f64,
    /// Its standard deviation.
    pub stddev_ts: f64,
    /// The time of each repetition.
    pub samples_ns: Vec<u64>,
    /// The speed of each repetition.
    pub samples_ts: Vec<f64>,
    /// The overhead of the grammar, for a test of constrained decoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grammar: Option<Constrained>,
    /// The operations, the longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile: Vec<Operation>,
    /// The machine's limits, for comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// The time of one kind of operation in a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Number of calls per repetition.
    pub calls: f64,
    /// Time per repetition in nanoseconds.
    pub avg_ns: f64,
    /// Share of a repetition's time.
    pub share: f64,
    /// Bytes of weights, keys, values and state per repetition.
    pub bytes: f64,
    /// Read speed, as a share of the measured bandwidth.
    pub share_of_bandwidth: f64,
    /// Integer multiply-add speed, as a share of the measured peak.
    pub share_of_peak: f64,
}

/// Measured limits of the machine.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Limits {
    /// Memory bandwidth of its threads, in bytes per second.
    pub read_bandwidth: f64,
    /// Operations per second on 8-bit integers.
    pub integer_peak: f64,
}

impl Limits {
    /// Measures the limits, which takes a second.
    pub fn measure(config: &Config) -> Limits {
        let (read_bandwidth, integer_peak) = limits(config.settings.threads, config.settings.isa);
        Limits { read_bandwidth, integer_peak }
    }

    /// Returns the operations by time, over `repetitions` that took `total` together.
    fn held_against(
        &self,
        spent: &BTreeMap<String, Spent>,
        repetitions: usize,
        total: Duration,
    ) -> Vec<Operation> {
        let each = 1.0 / repetitions.max(1) as f64;
        let mut operations: Vec<Operation> = spent
            .iter()
            .map(|(name, spent)| {
                let seconds = spent.time.as_secs_f64().max(1e-12);
                Operation {
                    name: name.clone(),
                    calls: spent.calls as f64 * each,
                    avg_ns: seconds * 1e9 * each,
                    share: seconds / total.as_secs_f64().max(1e-12),
                    bytes: spent.bytes as f64 * each,
                    share_of_bandwidth: spent.bytes as f64 / seconds / self.read_bandwidth,
                    share_of_peak: spent.operations as f64 / seconds / self.integer_peak,
                }
            })
            .collect();
        operations.sort_by(|a, b| b.avg_ns.total_cmp(&a.avg_ns));
        operations
    }
}

/// The overhead of a grammar on the steps of a decoder.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Constrained {
    /// Number of tools in the grammar.
    pub n_tools: usize,
    /// Mean time per token in nanoseconds, including forced tokens.
    pub avg_token_ns: u64,
    /// Its time as a share of the time of the forward passes.
    pub share_of_steps: f64,
    /// Number of forward passes, each of which computes a sampled token and the forced tokens after
    /// it.
    pub n_steps: usize,
    /// Its total usage, in all repetitions and the warm-up.
    pub usage: GrammarUsage,
}

/// Measures prefill and decode of the model in `gguf`; calls `progress` before each repetition.
///
/// # Errors
/// The model can't be loaded or computed.
pub fn measure(
    gguf: &Gguf,
    config: &Config,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Test>, alara_engine::Error> {
    let tokens = config.depth + config.prompt.max(config.generate) + 1;
    let profile = Profile::default();
    let (mut probe, limits) = if config.profile {
        progress("what the machine does at most");
        let probe = Probe::profiled(gguf, tokens, &config.settings, profile.clone())?;
        (probe, Some(Limits::measure(config)))
    } else {
        (Probe::load(gguf, tokens, &config.settings)?, None)
    };
    let mut turns = (config.tools > 0).then(|| ProbeTurns::new(gguf, config.tools)).transpose()?;
    let mut tests = Vec::new();
    for (prompt, generate) in [(config.prompt, 0), (0, config.generate)] {
        if prompt + generate == 0 {
            continue;
        }
        let mut samples = Vec::with_capacity(config.repetitions);
        let mut steps = Steps::default();
        let mut spent: BTreeMap<String, Spent> = BTreeMap::new();
        for repetition in 0..=config.repetitions {
            // A long context doesn't warm up more than a short one.
            let depth = if repetition == 0 { config.depth.min(BATCH) } else { config.depth };
            let name = if prompt > 0 { "prefill" } else { "decode" };
            let which = if repetition == 0 { "warm-up".into() } else { format!("{repetition}") };
            progress(&format!("{name} {}, {which} of {}", prompt + generate, config.repetitions));
            let time = match &mut turns {
                Some(turns) if generate > 0 => constrained(&mut probe, turns, generate, depth, &mut steps)?,
                _ => once(&mut probe, &profile, prompt, generate, depth)?,
            };
            let now = profile.take();
            if repetition > 0 {
                samples.push(time);
                for (name, now) in now {
                    *spent.entry(name).or_default() += now;
                }
            }
        }
        let mut test = summary(gguf, config, probe.device(), (prompt, generate), &samples);
        test.grammar =
            turns.as_ref().filter(|_| generate > 0).map(|turns| steps.added(config.tools, turns.usage()));
        if let Some(limits) = limits {
            test.profile = limits.held_against(&spent, samples.len(), samples.iter().sum());
            test.limits = Some(limits);
        }
        tests.push(test);
    }
    Ok(tests)
}

/// The forward passes of decoding under a grammar.
#[derive(Default)]
struct Steps {
    count: usize,
    tokens: usize,
    time: Duration,
}

impl Steps {
    fn added(&self, n_tools: usize, usage: GrammarUsage) -> Constrained {
        let tokens = self.tokens.max(1) as f64;
        Constrained {
            n_tools,
            avg_token_ns: (usage.step_time.as_secs_f64() * 1e9 / tokens) as u64,
            share_of_steps: usage.step_time.as_secs_f64() / self.time.as_secs_f64(),
            n_steps: self.count,
            usage,
        }
    }
}

/// Decodes `generate` tokens under the grammar, in as few steps as it allows.
fn constrained(
    probe: &mut Probe,
    turns: &mut ProbeTurns,
    generate: usize,
    depth: usize,
    steps: &mut Steps,
) -> Result<Duration, alara_engine::Error> {
    probe.clear();
    let limit = probe.vocabulary().min(1000);
    fill(probe, limit, depth)?;
    let start = Instant::now();
    let mut tokens = vec![token(0, limit)];
    let mut left = generate;
    while left > 0 {
        tokens.truncate(left);
        left -= tokens.len();
        let begun = Instant::now();
        let mut logits = probe.feed(&tokens, 1)?;
        steps.time += begun.elapsed();
        steps.count += 1;
        steps.tokens += tokens.len();
        tokens = turns.next(&mut logits)?;
    }
    Ok(start.elapsed())
}

fn once(
    probe: &mut Probe,
    profile: &Profile,
    prompt: usize,
    generate: usize,
    depth: usize,
) -> Result<Duration, alara_engine::Error> {
    let limit = probe.vocabulary().min(1000);
    probe.clear();
    fill(probe, limit, depth)?;
    profile.take();
    let start = Instant::now();
    fill(probe, limit, prompt)?;
    for i in 0..generate {
        probe.feed(&[token(i, limit)], 1)?;
    }
    Ok(start.elapsed())
}

/// Processes `count` tokens.
fn fill(probe: &mut Probe, limit: usize, count: usize) -> Result<(), alara_engine::Error> {
    let tokens: Vec<u32> = (0..count).map(|i| token(i, limit)).collect();
    for (at, piece) in tokens.chunks(BATCH).enumerate() {
        let last = at * BATCH + piece.len() == count;
        probe.feed(piece, usize::from(last))?;
    }
    Ok(())
}

/// Returns an arbitrary token below `limit`.
fn token(i: usize, limit: usize) -> u32 {
    ((i * 31 + 7) % limit) as u32
}

fn summary(
    gguf: &Gguf,
    config: &Config,
    device: &DeviceSummary,
    (prompt, generate): (usize, usize),
    samples: &[Duration],
) -> Test {
    let tokens = (prompt + generate) as f64;
    let times: Vec<f64> = samples.iter().map(Duration::as_secs_f64).collect();
    let speeds: Vec<f64> = times.iter().map(|seconds| tokens / seconds).collect();
    let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
    let kind = format!("{:?}", config.settings.kv).to_lowercase();
    Test {
        model_filename: gguf.name().into(),
        model_size: gguf.file_bytes(),
        devices: device.device.to_string(),
        gpu_info: device.gpu.clone(),
        n_gpu_layers: device.layers,
        n_threads: config.settings.threads,
        n_batch: BATCH,
        type_k: kind.clone(),
        type_v: kind,
        n_prompt: prompt,
        n_gen: generate,
        n_depth: config.depth,
        avg_ns: nanoseconds(mean(&times)),
        stddev_ns: nanoseconds(deviation(&times)),
        avg_ts: mean(&speeds),
        stddev_ts: deviation(&speeds),
        samples_ns: times.iter().copied().map(nanoseconds).collect(),
        samples_ts: speeds,
        grammar: None,
        profile: Vec::new(),
        limits: None,
    }
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

/// Returns the standard deviation of the sample.
fn deviation(numbers: &[f64]) -> f64 {
    let mean = mean(numbers);
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    if numbers.len() < 2 { 0.0 } else { (squares / (numbers.len() - 1) as f64).sqrt() }
}

#[cfg(test)]
mod tests {
    use alara_engine::{Device, Offload};

    use super::*;

    #[test]
    fn mean_and_deviation_are_the_samples() {
        assert_eq!(mean(&[1.0, 2.0, 3.0]), 2.0);
        assert_eq!(deviation(&[1.0, 2.0, 3.0]), 1.0);
        assert_eq!(deviation(&[5.0]), 0.0);
    }

    #[test]
    fn a_tiny_model_is_measured() {
        let case = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/arch/qwen3-exact/model.gguf");
        let gguf = Gguf::open(std::path::Path::new(case)).unwrap();
        let settings = ProbeSettings { threads: 1, ..ProbeSettings::default() };
        let config =
            Config { prompt: 8, generate: 4, depth: 3, tools: 0, repetitions: 2, profile: false, settings };
        let tests = measure(&gguf, &config, &mut |_| ()).unwrap();
        let shapes: Vec<_> =
            tests.iter().map(|test| (test.n_prompt, test.n_gen, test.samples_ns.len())).collect();
        assert_eq!(shapes, [(8, 0, 2), (0, 4, 2)]);
        assert!(tests.iter().all(|test| test.avg_ts > 0.0 && test.grammar.is_none()));
        assert!(tests.iter().all(|test| test.devices == "cpu" && test.n_gpu_layers == 0));
        let offload = Offload { device: Device::Candle, ..Offload::cpu() };
        let config = Config { settings: ProbeSettings { offload, ..settings }, repetitions: 1, ..config };
        assert_eq!(measure(&gguf, &config, &mut |_| ()).unwrap()[0].devices, "candle");
    }

    #[test]
    fn a_profile_accounts_for_the_time() {
        let case = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/arch/qwen3-exact/model.gguf");
        let gguf = Gguf::open(std::path::Path::new(case)).unwrap();
        let settings = ProbeSettings { threads: 1, ..ProbeSettings::default() };
        let config =
            Config { prompt: 8, generate: 4, depth: 3, tools: 0, repetitions: 2, profile: true, settings };
        let tests = measure(&gguf, &config, &mut |_| ()).unwrap();
        for test in &tests {
            let share: f64 = test.profile.iter().map(|operation| operation.share).sum();
            assert!(share > 0.1 && share <= 1.0, "{share}");
            let limits = test.limits.unwrap();
            assert!(limits.read_bandwidth > 1e7 && limits.integer_peak > 1e7, "{limits:?}");
        }
        // Eight tokens in one step, four in four: excludes the depth and the warm-up.
        let attention =
            |test: &Test| test.profile.iter().find(|operation| operation.name == "attention").unwrap().calls;
        assert_eq!(attention(&tests[1]), 4.0 * attention(&tests[0]));
    }

    #[test]
    fn the_grammar_s_part_is_measured() {
        let case = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/arch/qwen3-exact/model.gguf");
        let gguf = Gguf::open(std::path::Path::new(case)).unwrap();
        let settings = ProbeSettings { threads: 1, ..ProbeSettings::default() };
        let config =
            Config { prompt: 4, generate: 60, depth: 0, tools: 20, repetitions: 2, profile: false, settings };
        let tests = measure(&gguf, &config, &mut |_| ()).unwrap();
        assert!(tests[0].grammar.is_none());
        let grammar = tests[1].grammar.unwrap();
        let usage = grammar.usage;
        assert_eq!((grammar.n_tools, usage.compiled), (20, 1));
        // Two repetitions and the warm-up.
        assert!(usage.forced_tokens > 0 && grammar.n_steps < 180, "{grammar:?}");
        assert!(usage.rejected_tokens > 0 && usage.rejected_tokens <= usage.masks, "{grammar:?}");
        assert!(grammar.avg_token_ns > 0 && grammar.share_of_steps > 0.0, "{grammar:?}");
    }
}
