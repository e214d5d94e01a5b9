//! Logits against llama.cpp's, on tiny models with random weights.
//!
//! Six cases lie in `tests/fixtures/arch`; all of them, and their description, in `$ALARA_SHARED/fixtures/arch`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Probe;
use crate::backend::KvType;
use crate::gguf::Gguf;

const ARCHITECTURES: [&str; 4] = ["llama", "olmo2", "phi3", "qwen3"];

#[derive(Deserialize)]
struct Reference {
    arch: String,
    tokens: Vec<u32>,
    n_vocab: usize,
    tolerance: Tolerance,
}

#[derive(Deserialize)]
struct Tolerance {
    against: String,
    max_abs: f32,
    rms: f32,
    f16_kv_max_abs: Option<f32>,
}

fn own_cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch")
}

/// The folder of all cases, or a visible note that it is absent.
fn shared_cases() -> Option<PathBuf> {
    let shared = std::env::var_os("ALARA_SHARED").map(PathBuf::from);
    let shared = shared.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let cases = shared.join("fixtures/arch");
    if cases.is_dir() {
        return Some(cases);
    }
    eprintln!("skipped: no cases in {} (set ALARA_SHARED)", cases.display());
    None
}

fn cases(folder: &Path, exact: bool) -> Vec<(PathBuf, Reference)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let case = entry.unwrap().path();
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let Ok(text) = std::fs::read_to_string(case.join("reference.json")) else { continue };
        let reference: Reference = serde_json::from_str(&text).unwrap();
        let known = ARCHITECTURES.contains(&reference.arch.as_str()) && !name.contains("iq4");
        if known && name.ends_with("-exact") == exact {
            found.push((case, reference));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn floats(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

/// All logits of `tokens`, fed in pieces of `chunk`.
fn logits(probe: &mut Probe, tokens: &[u32], chunk: usize) -> Vec<f32> {
    probe.clear();
    tokens.chunks(chunk).flat_map(|piece| probe.feed(piece, piece.len()).unwrap()).collect()
}

/// Largest and root-mean-square difference of the last rows.
fn difference(found: &[f32], expected: &[f32]) -> (f32, f32) {
    let found = &found[found.len() - expected.len()..];
    let squares: f64 = found.iter().zip(expected).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let largest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    (largest, (squares / expected.len() as f64).sqrt() as f32)
}

fn check(case: &Path, reference: &Reference, kv: KvType, chunk: usize, limit: f32) {
    let gguf = Gguf::open(&case.join("model.gguf")).unwrap();
    let mut probe = Probe::load(&gguf, 64, kv).unwrap();
    assert_eq!(probe.vocabulary(), reference.n_vocab);
    let expected = floats(&case.join(&reference.tolerance.against));
    let (largest, rms) = difference(&logits(&mut probe, &reference.tokens, chunk), &expected);
    let name = case.file_name().unwrap().to_string_lossy();
    println!("{name} {kv:?} in pieces of {chunk}: largest {largest:.2e} (limit {limit:.2e}), rms {rms:.2e}");
    assert!(largest <= limit, "{name} {kv:?} in pieces of {chunk}: {largest} > {limit}");
    if kv == KvType::F32 {
        assert!(rms <= reference.tolerance.rms, "{name}: rms {rms} > {}", reference.tolerance.rms);
    }
}

#[test]
fn f32_models_agree_at_every_position_however_they_are_fed() {
    let folders = [Some(own_cases()), shared_cases()];
    let mut count = 0;
    for folder in folders.into_iter().flatten() {
        for (case, reference) in cases(&folder, true) {
            for chunk in [1, 7, 20, reference.tokens.len()] {
                check(&case, &reference, KvType::F32, chunk, reference.tolerance.max_abs);
            }
            let limit = reference.tolerance.f16_kv_max_abs.unwrap();
            check(&case, &reference, KvType::F16, reference.tokens.len(), limit);
            count += 1;
        }
    }
    assert!(count >= 6, "only {count} cases");
}

#[test]
fn quantized_models_agree_within_the_noise_of_8_bit_activations() {
    let Some(folder) = shared_cases() else { return };
    let cases = cases(&folder, false);
    assert!(cases.len() >= 30, "only {} cases", cases.len());
    for (case, reference) in cases {
        for chunk in [7, reference.tokens.len()] {
            check(&case, &reference, KvType::F32, chunk, reference.tolerance.max_abs);
        }
    }
}
