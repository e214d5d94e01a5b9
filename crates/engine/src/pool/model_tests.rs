//! Compares sequences with an oracle without a cache.
//! Any mix of shared beginnings, hits, forks, evictions, cancellations, batches and drafts gives
//! the logits of a fresh computation, bit for bit.
//!
//! `ALARA_OPERATIONS` sets how many operations each model gets: a few dozen by default, so that it
//! takes seconds.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use alara_text::gguf::{Gguf, Writer};
use alara_text::prompt_lookup::{Acceptance, Draft, Features, OtherText};

use super::*;
use crate::architecture::Architecture;
use crate::backend::KvType;
use crate::backend::native::Native;
use crate::backend::split::Split;
use crate::cache::disk::{Disk, Fingerprint, Log, Options};
use crate::facts::{Facts, Sizes};

/// Rows per step: few, so that prompts take several steps.
pub(super) const BUDGET: usize = 48;

/// Capacity in tokens: a few sequences' worth, so that much is evicted.
const CAPACITY: usize = 640;

/// A seeded random number generator.
pub(super) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        // SplitMix64: <https://prng.di.unimi.it/splitmix64.c>.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// A model's logits after tokens, computed without a cache.
pub(super) struct Oracle<B: Backend = Native> {
    pool: Pool<B>,
    known: HashMap<Vec<u32>, Vec<f32>>,
    /// Permitted deviation of logits.
    tolerance: f32,
    /// Greatest deviation found.
    off: f32,
}

impl Oracle {
    /// On the native backend, where no deviation is permitted.
    pub fn new(gguf: &Gguf) -> Self {
        Oracle::on(Native::with_threads(1), gguf, 0.0)
    }
}

impl<B: Backend> Oracle<B> {
    fn on(backend: B, gguf: &Gguf, tolerance: f32) -> Self {
        Oracle { pool: pool_on(backend, gguf, 1024, 1024), known: HashMap::new(), tolerance, off: 0.0 }
    }

    /// How far `logits` deviate from those after `tokens`; infinity if they aren't comparable.
    fn off(&mut self, tokens: &[u32], logits: &[f32]) -> f32 {
        let expected = self.logits(tokens);
        if expected == logits {
            return 0.0;
        }
        let comparable = expected.len() == logits.len() && logits.iter().all(|x| x.is_finite());
        let off = expected.iter().zip(logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let off = if comparable { off } else { f32::INFINITY };
        self.off = self.off.max(off);
        off
    }

    pub fn logits(&mut self, tokens: &[u32]) -> &[f32] {
        let Oracle { pool, known, .. } = self;
        known.entry(tokens.to_vec()).or_insert_with(|| {
            let mut table = Table::default();
            let logits = pool.forward_one(&mut table, tokens, 1).unwrap();
            pool.release(table);
            logits
        })
    }
}

pub(super) fn pool(gguf: &Gguf, tokens: usize, step: usize) -> Pool<Native> {
    pool_on(Native::with_threads(1), gguf, tokens, step)
}

pub(super) fn pool_on<B: Backend>(backend: B, gguf: &Gguf, tokens: usize, step: usize) -> Pool<B> {
    let config = cache_config(gguf, tokens, step);
    Pool::new(Decoder::load(gguf, backend, &config, KvType::F16).unwrap(), &config)
}

fn cache_config(gguf: &Gguf, tokens: usize, step: usize) -> CacheConfig {
    let architecture = Architecture::of(gguf).unwrap();
    let window = Sizes::of(&Facts::new(gguf, &architecture).unwrap()).unwrap().window;
    CacheConfig::new(tokens, 2, step, window).with_snapshots(8)
}

/// A prompt of segments from a small stock, and their ends.
fn prompt(random: &mut Random, vocabulary: usize) -> (Vec<u32>, Prefix) {
    let mut tokens = Vec::new();
    let mut prefix = Prefix { salt: ["", "", "", "other"][random.below(4)].into(), ..Prefix::default() };
    for at in 0..1 + random.below(4) {
        // Many have the same beginning.
        let kinds = if at == 0 { 1 } else { 3 };
        let (kind, len) = (random.below(kinds), [40, 31, 32, 5][random.below(2 + 2 * at.min(1))]);
        tokens.extend((0..len).map(|i| ((kind * 7919 + i * 31 + 11) % vocabulary) as u32));
        if random.below(2) == 0 {
            prefix.add(tokens.len());
        }
    }
    prefix.pinned = match random.below(3) {
        0 => 0,
        at => prefix.boundaries.get(at - 1).or(prefix.boundaries.last()).copied().unwrap_or(0),
    };
    let tail = 1 + random.below(12);
    tokens.extend((0..tail).map(|_| random.below(vocabulary) as u32));
    (tokens, prefix)
}

/// The most likely token.
pub(super) fn best(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32
}

/// Statistics of a test pass.
#[derive(Debug, Default)]
struct Tally {
    prompts: usize,
    tokens: usize,
    cached: usize,
    compared: usize,
    preempted: usize,
    evicted: usize,
    disk: usize,
    damaged: usize,
    drafted: usize,
    accepted: usize,
}

/// A disk tier that caches everything.
pub(super) fn options(folder: &Path, log: Log) -> Options {
    Options {
        folder: folder.to_owned(),
        limit: 1 << 30,
        patience: std::time::Duration::MAX,
        always: true,
        log,
        outcome: std::sync::Arc::default(),
    }
}

/// The pool of a new process on the same folder.
pub(super) fn restarted(gguf: &Gguf, folder: &Path, log: Log) -> Pool<Native> {
    restarted_on(Native::with_threads(1), gguf, folder, log)
}

fn restarted_on<B: Backend>(backend: B, gguf: &Gguf, folder: &Path, log: Log) -> Pool<B> {
    let disk = Disk::new(options(folder, log), "a model", Fingerprint::of(&[gguf.name().as_bytes()]));
    pool_on(backend, gguf, CAPACITY, BUDGET).with_disk(disk)
}

/// Writes everything queued.
pub(super) fn flush<B: Backend>(pool: &mut Pool<B>) {
    while pool.write().unwrap() != WriteProgress::Done {}
}

/// Modifies, truncates or removes one of the files in `folder`.
fn damage(random: &mut Random, folder: &Path) -> bool {
    let entries = crate::cache::disk::list(folder).unwrap();
    if entries.is_empty() {
        return false;
    }
    let path = &entries[random.below(entries.len())].path;
    let mut bytes = std::fs::read(path).unwrap();
    let at = random.below(bytes.len());
    match random.below(3) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes.truncate(at),
        _ => {
            std::fs::remove_file(path).unwrap();
            return true;
        }
    }
    // By replacing it, as most tools do: a process that has mapped it continues reading the old
    // one.
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
    true
}

/// Features that justify computing a draft token.
pub(super) const SURE: Features = Features { matched: usize::MAX, other: OtherText::NoMatch };

/// A draft of the continuation of `tokens`, with occasional mistakes.
pub(super) fn draft<B: Backend>(random: &mut Random, oracle: &mut Oracle<B>, tokens: &[u32]) -> Draft {
    let mut text = tokens.to_vec();
    let right = random.below(8);
    for at in 0..1 + random.below(5) {
        let next = best(oracle.logits(&text));
        text.push(if at < right { next } else { next ^ 1 });
    }
    let tokens = text.split_off(tokens.len());
    Draft { features: vec![SURE; tokens.len()], tokens }
}

/// Compares the logits of a sequence after prefill with the oracle's.
/// Appends the most likely tokens, as long as draft tokens are accepted.
/// Returns the number of rows compared.
pub(super) fn follow<B: Backend>(
    oracle: &mut Oracle<B>,
    data: &mut SequenceData,
    logits: &[f32],
    limit: usize,
    what: &str,
) -> usize {
    let vocabulary = oracle.pool.vocabulary();
    let (mut row, mut compared) = (0, 0);
    loop {
        let logits = &logits[row * vocabulary..][..vocabulary];
        let off = oracle.off(&data.tokens, logits);
        assert!(off <= oracle.tolerance, "{what}: row {row} is off by {off}, {:?}", data.found);
        compared += 1;
        data.tokens.push(best(logits));
        data.finished |= data.tokens.len() >= limit;
        row = match data.next_row() {
            Some(next_row) if !data.finished => next_row,
            _ => return compared,
        };
    }
}

/// Makes every draft seem worthwhile, so that drafting doesn't depend on the clock.
pub(super) fn trust<B: Backend>(pool: &mut Pool<B>) {
    pool.acceptance = Acceptance::default();
    pool.step_times.forget_decode();
}

fn check(name: &str, gguf: &Gguf, seed: u64, operations: usize) -> Tally {
    let mut oracle = Oracle::new(gguf);
    check_on(&|folder| restarted(gguf, folder, Log::default()), &mut oracle, name, gguf, seed, operations)
}

/// Runs the checks on pools that `make` creates on a folder.
fn check_on<B: Backend>(
    make: &dyn Fn(&Path) -> Pool<B>,
    oracle: &mut Oracle<impl Backend>,
    name: &str,
    gguf: &Gguf,
    seed: u64,
    operations: usize,
) -> Tally {
    let mut random = Random(seed);
    let folder = tempfile::tempdir().unwrap();
    let mut pool = make(folder.path());
    let vocabulary = pool.vocabulary().min(400);
    let mut sequences: Vec<(SequenceData, usize)> = Vec::new();
    let mut finished: Vec<Vec<u32>> = Vec::new();
    let mut asked: Vec<(Vec<u32>, Prefix)> = Vec::new();
    let mut tally = Tally::default();
    for operation in 0..operations {
        match random.below(14) {
            0..=2 if sequences.len() < 6 => {
                let (mut tokens, prefix) = prompt(&mut random, vocabulary);
                if let Some(before) = finished.get(random.below(16))
                    && before.len() < 300
                {
                    // Continues an earlier one, sometimes from its middle.
                    let common = [before.len(), random.below(before.len()) + 1][random.below(2)];
                    tokens.splice(..tokens.len().min(30), before[..common].iter().copied());
                }
                tally.prompts += 1;
                tally.tokens += tokens.len();
                let limit = tokens.len() + 1 + random.below(10);
                if prefix.pinned > 0 && prefix.salt.is_empty() {
                    asked.push((tokens.clone(), prefix.clone()));
                }
                sequences.push((SequenceData::new(tokens, prefix), limit));
            }
            3 if !sequences.is_empty() => {
                let which = random.below(sequences.len());
                sequences[which].0.finished = true;
            }
            4 => {
                for _ in 0..random.below(3) {
                    let kind = [OutOfMemory::Blocks, OutOfMemory::Snapshots][random.below(2)];
                    tally.evicted += usize::from(pool.evict(kind));
                }
            }
            5..=7 => {
                for _ in 0..random.below(40) {
                    pool.write().unwrap();
                }
            }
            8 => {
                for (mut data, _) in sequences.drain(..) {
                    pool.finish(&mut data);
                }
                if random.below(3) > 0 {
                    flush(&mut pool);
                }
                pool = make(folder.path());
                // Repeats an earlier request.
                if let Some((tokens, prefix)) = asked.get(random.below(asked.len().max(1))).cloned() {
                    let limit = tokens.len() + 2;
                    (tally.prompts, tally.tokens) = (tally.prompts + 1, tally.tokens + tokens.len());
                    sequences.push((SequenceData::new(tokens, prefix), limit));
                }
            }
            9 if random.below(4) == 0 => tally.damaged += usize::from(damage(&mut random, folder.path())),
            _ => {}
        }
        for (data, limit) in &mut sequences {
            if !data.finished && data.pending() < BUDGET && random.below(3) > 0 {
                data.draft = draft(&mut random, oracle, &data.tokens);
                data.draft.tokens.truncate(*limit - data.tokens.len());
                data.draft.features.truncate(*limit - data.tokens.len());
            }
        }
        trust(&mut pool);
        let mut refs: Vec<&mut SequenceData> = sequences.iter_mut().map(|(data, _)| data).collect();
        if refs.iter().all(|data| data.finished) {
            // Nothing to compute.
        } else {
            let stepped = pool.step(&mut refs, BUDGET).unwrap();
            assert_eq!(stepped.too_long, None, "{name} {operation}: everything fits");
            tally.preempted += usize::from(stepped.each().next().is_none());
            for (at, logits) in pool.logits_of_each(&stepped) {
                let (data, limit) = &mut sequences[at];
                let what = format!("{name} seed {seed} operation {operation}");
                tally.compared += follow(oracle, data, &logits, *limit, &what);
            }
        }
        let mut at = 0;
        while at < sequences.len() {
            if sequences[at].0.finished {
                let (mut data, _) = sequences.swap_remove(at);
                tally.cached += data.found.as_ref().map_or(0, |found| found.cached);
                tally.disk += data.found.as_ref().map_or(0, |found| found.disk);
                tally.drafted += data.drafts().drafted;
                tally.accepted += data.drafts().accepted;
                pool.finish(&mut data);
                finished.insert(random.below(finished.len() + 1), data.tokens);
                finished.truncate(8);
            } else {
                at += 1;
            }
        }
    }
    for (mut data, _) in sequences {
        pool.finish(&mut data);
    }
    while pool.evict(OutOfMemory::Snapshots) || pool.evict(OutOfMemory::Blocks) {}
    let config = cache_config(gguf, CAPACITY, BUDGET);
    let windowed = config.window.map_or(0, |_| config.windowed.blocks);
    let slots = if pool.cache.recurrent() { config.slots } else { 0 };
    assert_eq!(pool.cache.free(), (CAPACITY / 32, windowed), "{name}: nothing leaks");
    assert_eq!(std::iter::from_fn(|| pool.cache.take_slot()).count(), slots, "{name}: nor does state");
    tally
}

fn operations(default: usize) -> usize {
    std::env::var("ALARA_OPERATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn models(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("model.gguf"));
    let mut models: Vec<PathBuf> = entries.filter(|path| path.exists()).collect();
    if let Some(only) = std::env::var_os("ALARA_CASE") {
        models.retain(|path| path.to_string_lossy().contains(&*only.to_string_lossy()));
    }
    models.sort();
    models
}

fn check_all(folder: &Path, default: usize) {
    let (mut cached, mut disk, mut tokens) = (0, 0, 0);
    let (mut drafted, mut accepted) = (0, 0);
    for (seed, path) in models(folder).into_iter().enumerate() {
        let name = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        let tally = check(&name, &Gguf::open(&path).unwrap(), seed as u64, operations(default));
        println!("{name}: {tally:?}");
        cached += tally.cached;
        disk += tally.disk;
        tokens += tally.tokens;
        drafted += tally.drafted;
        accepted += tally.accepted;
    }
    assert!(
        0 < accepted && accepted < drafted,
        "some draft tokens must be accepted and some not: {accepted} of {drafted}"
    );
    assert!(
        cached > 0 && disk > 0,
        "there must be hits to test: {cached} of {tokens} tokens, {disk} from disk"
    );
}

#[test]
fn any_mixture_gives_what_a_fresh_computation_gives() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tally = check("alara-tiny", &Gguf::open(&root.join("models/alara-tiny.gguf")).unwrap(), 1, 60);
    println!("alara-tiny: {tally:?}");
    check_all(&root.join("tests/fixtures/arch"), 50);
}

/// No fixture has chunked windows, but a Llama works as a Llama 4 without experts, here with chunks
/// of nine tokens.
#[test]
fn so_it_does_where_windows_are_chunks() {
    let llama = fixture("llama-exact");
    let writer = Writer::copy_as(&llama, "llama4");
    let writer = writer.meta("llama4.attention.sliding_window", 9u32);
    let gguf = Gguf::from_vec("llama4", writer.bytes().unwrap()).unwrap();
    let tally = check("llama4", &gguf, 70, operations(120));
    println!("llama4: {tally:?}");
    assert!(tally.cached > 0 && tally.compared > 0, "{tally:?}");
}

/// With the last blocks on another backend, and with evicted static text moved to host memory.
#[test]
fn so_it_does_on_a_split_model_with_a_tier_in_memory() {
    let (mut cached, mut evicted, mut accepted) = (0, 0, 0);
    for (seed, case) in SORTS.into_iter().enumerate() {
        let gguf = fixture(case);
        let make = |folder: &Path| {
            let backend = Split::new(Native::with_threads(1), Native::with_threads(1), 1 + seed % 2);
            restarted_on(backend, &gguf, folder, Log::default()).with_host_tier(1 << 20)
        };
        let mut oracle = Oracle::new(&gguf);
        let tally = check_on(&make, &mut oracle, case, &gguf, 40 + seed as u64, operations(120));
        println!("{case}: {tally:?}");
        cached += tally.cached;
        evicted += tally.evicted;
        accepted += tally.accepted;
    }
    // What one of them evicts depends on the speed of the disk.
    assert!(cached > 0 && evicted > 0 && accepted > 0, "{cached} {evicted} {accepted}");
}

/// There the last bits of a row depend on the other rows in its step; a wrong block deviates far
/// more.
/// `ALARA_CASE` selects the fixtures whose names contain it, in place of those that are always
/// present.
#[cfg(any(feature = "cuda", feature = "metal"))]
#[test]
fn so_it_does_on_the_gpu_within_rounding() {
    use crate::backend::candle::Candle;
    let Some(gpu) = crate::device::Device::Auto.open().unwrap() else {
        println!("skipped: this machine has no GPU that this build can use");
        return;
    };
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch");
    let mut paths: Vec<PathBuf> = SORTS.iter().map(|case| own.join(case).join("model.gguf")).collect();
    if let (Some(shared), Some(_)) = (std::env::var_os("ALARA_SHARED"), std::env::var_os("ALARA_CASE")) {
        paths = models(&Path::new(&shared).join("fixtures/arch"));
    }
    for (seed, path) in paths.into_iter().enumerate() {
        let case = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
        let gguf = Gguf::open(&path).unwrap();
        let backend = || Candle::on(gpu.handle.clone());
        let make =
            |folder: &Path| restarted_on(backend(), &gguf, folder, Log::default()).with_host_tier(1 << 20);
        // With quantized weights, the number of rows affects how activations are rounded.
        // That occasionally changes the choice of an expert, which moves a row by up to 7 (also in
        // llama.cpp).
        // Errors in blocks or state show in the float models.
        let mut oracle = Oracle::on(backend(), &gguf, if case.ends_with("-exact") { 0.01 } else { 8.0 });
        let tally = check_on(&make, &mut oracle, case, &gguf, 60 + seed as u64, operations(120));
        println!("{case}: off by at most {:.1e}, {tally:?}", oracle.off);
        assert!(tally.cached > 0 && tally.evicted > 0 && tally.compared > 50, "{case}: {tally:?}");
    }
}

#[test]
fn so_it_does_for_all_models_of_the_fixtures() {
    for cases in ["fixtures/arch", "fixtures/arch-more"].into_iter().filter_map(crate::absent::shared) {
        check_all(&cases, 20);
    }
}

/// Steps until all sequences have finished prefill; returns the number of rows computed.
pub(super) fn rows(pool: &mut Pool<Native>, sequences: &mut [&mut SequenceData]) -> usize {
    let mut rows = 0;
    while sequences.iter().any(|data| data.pending() > 0 && !data.finished) {
        let before: usize = sequences.iter().map(|data| data.pending()).sum();
        pool.step(sequences, BUDGET).unwrap();
        rows += before - sequences.iter().map(|data| data.pending()).sum::<usize>();
    }
    rows
}

pub(super) fn fixture(case: &str) -> Gguf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch");
    Gguf::open(&folder.join(case).join("model.gguf")).unwrap()
}

/// One model of each kind of state: none, a window, a window with sinks, recurrent of four kinds.
pub(super) const SORTS: [&str; 7] = [
    "qwen3-exact",
    "gemma3-exact",
    "gpt-oss-mxfp4-f32",
    "qwen35moe-fused-gate-up-exact",
    "lfm2-tiny-exact",
    "granitehybrid-tiny-exact",
    "falcon-h1-tiny-exact",
];

pub(super) fn text(kind: u32, len: u32) -> Vec<u32> {
    (0..len).map(|i| (kind * 61 + i * 7) % 283).collect()
}
