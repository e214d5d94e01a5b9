//! Many sequences on one decoder. Each test is a mistake that other engines make: one offset for a whole batch, a cache
//! that can only grow or be cleared, positions bounded by a table, head width taken from the model's width.

use std::path::Path;

use super::*;
use crate::backend::KvType;
use crate::backend::candle::Candle;
use crate::gguf::Gguf;

fn pool(case: &str, tokens: usize, kv: KvType) -> Pool<Candle> {
    let path = format!("{}/../../tests/fixtures/arch/{case}-exact/model.gguf", env!("CARGO_MANIFEST_DIR"));
    let gguf = Gguf::open(Path::new(&path)).unwrap();
    let layout = layout(tokens);
    Pool::new(Decoder::load(&gguf, Candle::cpu(), layout, kv).unwrap(), layout)
}

fn tokens(seed: usize, len: usize) -> Vec<u32> {
    (0..len).map(|i| ((i * 37 + seed * 101 + i * i * seed) % 490) as u32).collect()
}

/// The logits after the last of `tokens`, computed alone.
fn alone(case: &str, tokens: &[u32]) -> Vec<f32> {
    let mut pool = pool(case, tokens.len(), KvType::F32);
    pool.forward_one(&mut BlockTable::default(), tokens, 1).unwrap()
}

fn check_close(found: &[f32], expected: &[f32], limit: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest <= limit, "{what}: {largest} > {limit}");
}

#[test]
fn sequences_of_one_step_have_their_own_positions() {
    for case in ["qwen3", "llama3-ropefreqs", "olmo2"] {
        let all = [tokens(1, 3), tokens(2, 70), tokens(3, 33), tokens(4, 1)];
        let mut pool = pool(case, 256, KvType::F32);
        let mut tables: Vec<BlockTable> = all.iter().map(|_| BlockTable::default()).collect();
        // All but the last token of each, in turns of different lengths, so that their blocks interleave.
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
        let mut parts: Vec<Part> = tables
            .iter_mut()
            .zip(&all)
            .map(|(table, tokens)| Part { table, tokens: &tokens[tokens.len() - 1..], outputs: 1 })
            .collect();
        let logits = pool.forward(&mut parts).unwrap();
        for (row, tokens) in logits.chunks(pool.vocabulary()).zip(&all) {
            check_close(row, &alone(case, tokens), 1e-3, &format!("{case}, {} tokens", tokens.len()));
        }
    }
}

#[test]
fn a_prefix_is_shared_wherever_two_prompts_part() {
    let mut pool = pool("qwen3", 256, KvType::F32);
    let first = tokens(5, 75);
    let mut table = BlockTable::default();
    pool.forward_one(&mut table, &first, 1).unwrap();
    pool.keep(first.clone(), table);
    for common in [1, 31, 32, 33, 64, 74] {
        let second: Vec<u32> = first[..common].iter().copied().chain(tokens(6, 20)).collect();
        let mut table = pool.attach(&second);
        assert_eq!(table.len(), common);
        let logits = pool.forward_one(&mut table, &second[common..], 1).unwrap();
        check_close(&logits, &alone("qwen3", &second), 1e-3, &format!("{common} common tokens"));
        pool.release(table);
    }
    // The first sequence is as it was.
    let mut table = pool.attach(&first);
    assert_eq!(table.len(), 74);
    let logits = pool.forward_one(&mut table, &first[74..], 1).unwrap();
    check_close(&logits, &alone("qwen3", &first), 1e-3, "the first again");
}

#[test]
fn positions_beyond_4096_are_computed() {
    let long = tokens(7, 4200);
    let mut pool = pool("llama3-ropefreqs", 4200, KvType::F32);
    let mut table = BlockTable::default();
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
        let mut table = BlockTable::default();
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
    let mut table = BlockTable::default();
    pool.forward_one(&mut table, &tokens(1, 60), 0).unwrap();
    let error = pool.forward_one(&mut table, &tokens(1, 5), 1).err().unwrap();
    assert!(matches!(error, Error::OutOfBlocks { capacity: 64 }), "{error}");
}
