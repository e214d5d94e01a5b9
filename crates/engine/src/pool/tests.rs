//! Many sequences on one decoder.
//! Each test covers a mistake made by other engines: a single offset for a whole batch, a cache
//! that can only grow or be cleared, positions limited by a table, and a head width derived from
//! the model's width.

use std::path::Path;

use alara_text::gguf::Gguf;

use super::step::StepOutput;
use super::*;
use crate::architecture::Architecture;
use crate::backend::native::Native;
use crate::backend::{Isa, KvType};
use crate::facts::{Facts, Sizes};

fn open(case: &str) -> Gguf {
    let path = format!("{}/../../tests/fixtures/arch/{case}/model.gguf", env!("CARGO_MANIFEST_DIR"));
    Gguf::open(Path::new(&path)).unwrap()
}

fn window(gguf: &Gguf) -> Option<usize> {
    let architecture = Architecture::of(gguf).unwrap();
    Sizes::of(&Facts::new(gguf, &architecture).unwrap()).unwrap().window
}

fn pool(case: &str, tokens: usize, kv: KvType) -> Pool<Native> {
    let gguf = open(&format!("{case}-exact"));
    let config = CacheConfig::new(tokens, 4, 64, window(&gguf));
    Pool::new(Decoder::load(&gguf, Native::with_threads(2), &config, kv).unwrap(), &config)
}

impl<B: Backend> Pool<B> {
    /// The logits of a step, each sequence's with its index.
    pub fn logits_of_each(&mut self, stepped: &StepOutput<B::Array>) -> Vec<(usize, Vec<f32>)> {
        let all = self.decoder.read(stepped.logits.as_ref()).unwrap();
        let row = self.vocabulary();
        stepped.each().map(|(at, rows)| (at, all[rows.start * row..rows.end * row].to_vec())).collect()
    }

    /// Computes a step and reads all its logits.
    pub fn step_and_read(&mut self, sequences: &mut [&mut SequenceData], budget: usize) -> Vec<f32> {
        let stepped = self.step(sequences, budget).unwrap();
        self.decoder.read(stepped.logits.as_ref()).unwrap()
    }
}

/// One model for every mechanism.
const KINDS: [&str; 6] = [
    "llama3-ropefreqs-exact",
    "gemma3-exact",
    "gpt-oss-mxfp4-f32",
    "deepseek2-glm47flash-exact",
    "mistral3-yarn-exact",
    "qwen35moe-fused-gate-up-exact",
];

fn tokens(seed: usize, len: usize) -> Vec<u32> {
    (0..len).map(|i| ((i * 37 + seed * 101 + i * i * seed) % 490) as u32).collect()
}

/// The logits after the last of `tokens`, computed alone.
fn alone(case: &str, tokens: &[u32]) -> Vec<f32> {
    let mut pool = pool(case, tokens.len(), KvType::F32);
    pool.forward_one(&mut Table::default(), tokens, 1).unwrap()
}

fn attach(pool: &mut Pool<Native>, tokens: &[u32]) -> Table {
    let hit = pool.find("", tokens);
    pool.attach(&hit).unwrap()
}

fn check_close(found: &[f32], expected: &[f32], limit: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest <= limit, "{what}: {largest} > {limit}");
}

/// Before anything is known about the machine's speed.
#[test]
fn a_prompt_gets_few_rows_while_others_decode_steadily() {
    let mut pool = pool("qwen3", 256, KvType::F32);
    let mut first = SequenceData::new(tokens(1, 3), Prefix::default());
    pool.step(&mut [&mut first], 64).unwrap();
    first.tokens.push(7);
    let mut second = SequenceData::new(tokens(2, 100), Prefix::default());
    assert_eq!(pool.budget(&[&mut first], 64), 64);
    assert_eq!(pool.budget(&[&mut first, &mut second], 64), 4);
    assert_eq!(pool.with_steady_decoding(false).budget(&[&mut first, &mut second], 64), 64);
}

#[test]
fn sequences_of_one_step_have_their_own_positions() {
    for case in ["qwen3", "llama3-ropefreqs", "olmo2"] {
        let all = [tokens(1, 3), tokens(2, 70), tokens(3, 33), tokens(4, 1)];
        let mut pool = pool(case, 256, KvType::F32);
        let mut tables: Vec<Table> = all.iter().map(|_| Table::default()).collect();
        // All but the last token of each, in steps of different lengths, so that their blocks
        // interleave.
        for start in (0..70).step_by(9) {
            for (table, tokens) in tables.iter_mut().zip(&all) {
                let end = (start + 9).min(tokens.len() - 1);
                if start < end {
                    pool.forward_one(table, &tokens[start..end], 0).unwrap();
                }
            }
        }
        for table in &mut tables {
            assert!(pool.reserve(table, 1).unwrap());
        }
        let mut inputs: Vec<StepInput> = tables
            .iter_mut()
            .zip(&all)
            .map(|(table, tokens)| StepInput {
                table,
                tokens: &tokens[tokens.len() - 1..],
                drafted: &[],
                outputs: 1,
                saves: vec![],
            })
            .collect();
        let logits = pool.forward(&mut inputs).unwrap();
        for (row, tokens) in logits.chunks(pool.vocabulary()).zip(&all) {
            check_close(row, &alone(case, tokens), 1e-3, &format!("{case}, {} tokens", tokens.len()));
        }
    }
}

#[test]
fn a_prefix_is_shared_wherever_two_prompts_diverge() {
    let mut pool = pool("qwen3", 256, KvType::F32);
    let first = tokens(5, 75);
    let mut table = Table::default();
    pool.forward_one(&mut table, &first, 1).unwrap();
    pool.insert(&Prefix::default(), &first, table);
    for common in [1, 31, 32, 33, 64, 74] {
        let second: Vec<u32> = first[..common].iter().copied().chain(tokens(6, 20)).collect();
        let mut table = attach(&mut pool, &second);
        assert_eq!(table.len(), common);
        let logits = pool.forward_one(&mut table, &second[common..], 1).unwrap();
        check_close(&logits, &alone("qwen3", &second), 1e-3, &format!("{common} common tokens"));
        pool.release(table);
    }
    // The first sequence is unchanged.
    let mut table = attach(&mut pool, &first);
    assert_eq!(table.len(), 74);
    let logits = pool.forward_one(&mut table, &first[74..], 1).unwrap();
    check_close(&logits, &alone("qwen3", &first), 1e-3, "the first again");
}

#[test]
fn positions_beyond_4096_are_computed() {
    let long = tokens(7, 4200);
    let mut pool = pool("llama3-ropefreqs", 4200, KvType::F32);
    let mut table = Table::default();
    for piece in long[..4199].chunks(512) {
        pool.forward_one(&mut table, piece, 0).unwrap();
    }
    let logits = pool.forward_one(&mut table, &long[4199..], 1).unwrap();
    check_close(&logits, &alone("llama3-ropefreqs", &long), 1e-3, "position 4199");
}

#[test]
fn a_smaller_cache_type_costs_little_accuracy() {
    let prompt = tokens(8, 60);
    let exact = alone("llama", &prompt);
    for (kv, limit) in [(KvType::F16, 0.05), (KvType::Q8_0, 0.5)] {
        let mut pool = pool("llama", 64, kv);
        let mut table = Table::default();
        let mut logits = Vec::new();
        for token in prompt.chunks(1) {
            logits = pool.forward_one(&mut table, token, 1).unwrap();
        }
        check_close(&logits, &exact, limit, &format!("{kv:?}"));
    }
}

#[test]
fn a_full_cache_is_an_error_with_its_size() {
    let mut pool = pool("llama", 64, KvType::F16);
    let mut table = Table::default();
    pool.forward_one(&mut table, &tokens(1, 60), 0).unwrap();
    let error = pool.forward_one(&mut table, &tokens(1, 5), 1).err().unwrap();
    assert!(matches!(error, Error::OutOfBlocks { capacity: 64 }), "{error}");
}

/// The logits of every token, fed in pieces of `chunk`.
fn fed(pool: &mut Pool<Native>, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let mut table = Table::default();
    let pieces = tokens.chunks(chunk);
    let logits = pieces.flat_map(|piece| pool.forward_one(&mut table, piece, piece.len()).unwrap()).collect();
    pool.release(table);
    logits
}

/// The logits of the first sequence, fed in pieces of 9 in steps shared with the others.
pub fn together<B: Backend>(pool: &mut Pool<B>, sequences: &[Vec<u32>]) -> Vec<f32> {
    let mut tables: Vec<Table> = sequences.iter().map(|_| Table::default()).collect();
    let mut logits = Vec::new();
    for start in (0..sequences[0].len()).step_by(9) {
        let mut inputs = Vec::new();
        for (table, tokens) in tables.iter_mut().zip(sequences) {
            let end = (start + 9).min(tokens.len());
            if start < end {
                assert!(pool.reserve(table, end - start).unwrap());
                let outputs = if inputs.is_empty() { end - start } else { 0 };
                let tokens = &tokens[start..end];
                inputs.push(StepInput { table, tokens, drafted: &[], outputs, saves: vec![] });
            }
        }
        logits.extend(pool.forward(&mut inputs).unwrap());
    }
    logits
}

#[test]
fn a_row_never_depends_on_what_shares_its_step_nor_on_threads_or_instructions() {
    for case in KINDS {
        let gguf = open(case);
        let config = CacheConfig::new(256, 4, 64, window(&gguf));
        let load = |backend: Native| {
            Pool::new(Decoder::load(&gguf, backend, &config, KvType::F16).unwrap(), &config)
        };
        let all = [tokens(1, 56), tokens(2, 5), tokens(3, 33), tokens(4, 50)];
        let expected = fed(&mut load(Native::new(1, Isa::SCALAR)), &all[0], 56);
        for isa in Isa::available() {
            let mut pool = load(Native::new(3, isa));
            for chunk in [1, 7, 20] {
                assert_eq!(fed(&mut pool, &all[0], chunk), expected, "{case} in pieces of {chunk}, {isa:?}");
            }
            for wanted in [0, 1, 5] {
                let mut table = Table::default();
                let found = pool.forward_one(&mut table, &all[0], wanted).unwrap();
                pool.release(table);
                let last = &expected[expected.len() - wanted * pool.vocabulary()..];
                assert_eq!(found, last, "{case}, {wanted} rows wanted, {isa:?}");
            }
        }
        // Four sequences in one step, each at its own position.
        let mut pool = load(Native::with_threads(2));
        let found = together(&mut pool, &all);
        assert_eq!(found, expected, "{case} beside three others");
    }
}

#[test]
fn chunks_of_the_delta_rule_give_what_its_rows_give() {
    let gguf = open("qwen35moe-fused-gate-up-exact");
    let config = CacheConfig::new(256, 4, 256, None);
    let load =
        |backend: Native| Pool::new(Decoder::load(&gguf, backend, &config, KvType::F32).unwrap(), &config);
    let (mut rows, mut chunks) = (load(Native::with_threads(1)), load(Native::with_threads(1).chunked()));
    for length in [16, 63, 64, 65, 127, 130] {
        let tokens = tokens(length, length);
        let found = fed(&mut chunks, &tokens, length);
        check_close(&found, &fed(&mut rows, &tokens, length), 2e-3, &format!("{length} tokens"));
    }
}

#[test]
fn a_ring_of_blocks_gives_what_all_blocks_give() {
    for case in ["gemma3-exact", "gpt-oss-mxfp4-f32"] {
        let gguf = open(case);
        let load = |config: &CacheConfig| {
            Pool::new(Decoder::load(&gguf, Native::with_threads(2), config, KvType::F16).unwrap(), config)
        };
        let long = tokens(9, 1500);
        let ring = CacheConfig::new(1500, 1, 16, window(&gguf));
        let mut all = ring;
        // A window longer than any sequence holds every block.
        (all.windowed, all.window) = (all.full, Some(1 << 40));
        assert!(ring.windowed.blocks < all.windowed.blocks, "{case}: the ring is no smaller");
        assert_eq!(fed(&mut load(&ring), &long, 16), fed(&mut load(&all), &long, 16), "{case}");
    }
}

#[test]
fn a_finished_turn_of_any_model_is_gone_on_from() {
    for case in KINDS {
        let gguf = open(case);
        let config = CacheConfig::new(2048, 1, 64, window(&gguf));
        let mut pool =
            Pool::new(Decoder::load(&gguf, Native::with_threads(1), &config, KvType::F16).unwrap(), &config);
        let long = tokens(3, 700);
        let mut table = Table::default();
        for piece in long[..600].chunks(50) {
            pool.forward_one(&mut table, piece, 0).unwrap();
        }
        pool.insert(&Prefix::default(), &long[..600], table);
        let mut table = attach(&mut pool, &long);
        assert_eq!(table.len(), 600, "{case}");
        let found = pool.forward_one(&mut table, &long[600..], 100).unwrap();
        pool.release(table);
        let expected = fed(&mut pool, &long, 700);
        assert_eq!(found, expected[600 * pool.vocabulary()..], "{case}");
    }
}
