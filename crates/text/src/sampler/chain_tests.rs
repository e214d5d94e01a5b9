//! Compares llama.cpp's steps with results that `scripts/record-samplers` recorded from llama.cpp,
//! and with their formulas.

use serde::Deserialize;

use super::*;

const RECORDED: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/sampler/llama.json"));

#[derive(Deserialize)]
struct Recorded {
    chain: Vec<Truncated>,
    dry: Vec<Penalized>,
}

#[derive(Deserialize)]
struct Truncated {
    options: Sampling,
    logits: Vec<f32>,
    /// The remaining tokens and their probabilities.
    shares: Vec<(u32, f64)>,
}

#[derive(Deserialize)]
struct Penalized {
    options: Sampling,
    logits: Vec<f32>,
    seen: Vec<u32>,
    left: Vec<f32>,
}

fn recorded() -> Recorded {
    serde_json::from_str(RECORDED).unwrap()
}

/// The candidates of a sampler's last step, and their probabilities.
fn shares(options: &Sampling, logits: &[f32]) -> Vec<(u32, f64)> {
    let mut sampler = Sampler::new(options);
    sampler.sample_by_chain(logits).unwrap();
    let total: f64 = sampler.weights.iter().copied().map(f64::from).sum();
    let left = sampler.candidates.iter().zip(&sampler.weights);
    let mut left: Vec<(u32, f64)> =
        left.map(|((_, token), weight)| (*token, f64::from(*weight) / total)).collect();
    left.sort_by_key(|&(token, _)| token);
    left
}

#[test]
fn what_is_left_is_what_llama_cpp_leaves() {
    let recorded = recorded().chain;
    let truncated = recorded.iter().filter(|record| record.shares.len() < record.logits.len()).count();
    assert!(recorded.len() >= 60 && truncated >= 30, "{truncated} of {}", recorded.len());
    for Truncated { options, logits, shares: expected } in recorded {
        let found = shares(&options, &logits);
        let tokens = |shares: &[(u32, f64)]| shares.iter().map(|&(token, _)| token).collect::<Vec<_>>();
        assert_eq!(tokens(&found), tokens(&expected), "{options:?}");
        for ((token, found), (_, expected)) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 2e-5, "{options:?}: {token} has {found}, not {expected}");
        }
    }
}

#[test]
fn repetitions_cost_what_llama_cpp_takes_for_them() {
    let recorded = recorded().dry;
    assert!(recorded.iter().filter(|record| record.left != record.logits).count() >= 10);
    for Penalized { options, mut logits, seen, left } in recorded {
        Sampler::new(&options).penalize(&mut logits, &seen);
        for (token, (found, expected)) in logits.iter().zip(&left).enumerate() {
            let near = (found - expected).abs() <= 1e-5 * expected.abs().max(1.0);
            assert!(near, "{options:?}: {token} has {found}, not {expected}");
        }
    }
}

/// The relative frequencies of `samples` sampled tokens.
fn frequencies(options: &Sampling, logits: &[f32], samples: usize) -> Vec<f64> {
    let mut sampler = Sampler::new(options);
    let mut counts = vec![0.0; logits.len()];
    for _ in 0..samples {
        counts[sampler.sample(&mut logits.to_vec(), &[]).unwrap() as usize] += 1.0 / samples as f64;
    }
    counts
}

#[test]
fn xtc_excludes_as_often_as_it_is_told() {
    let logits = [0.5f32, 0.3, 0.2].map(f32::ln);
    let options =
        Sampling { temperature: 1.0, xtc_probability: 0.4, xtc_threshold: 0.25, ..Sampling::default() };
    let found = frequencies(&options, &logits, 20_000);
    // XTC drops the first of the two tokens that reach the threshold.
    let expected = [0.6 * 0.5, 0.6 * 0.3 + 0.4 * 0.6, 0.6 * 0.2 + 0.4 * 0.4];
    for (found, expected) in found.iter().zip(expected) {
        // Five standard deviations.
        assert!((found - expected).abs() < 5.0 * (0.25f64 / 20_000.0).sqrt(), "{found} not {expected}");
    }
}

#[test]
fn mirostat_keeps_the_surprise_at_its_aim() {
    // Zipf's law over 500 tokens, whose surprise is 6.3 bits without truncation.
    let logits: Vec<f32> = (1..=500).map(|rank| -(rank as f32).ln()).collect();
    let total: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
    for (version, tau) in [(1, 2.0), (2, 2.0), (1, 4.0), (2, 4.0)] {
        let options = Sampling {
            temperature: 1.0,
            mirostat: version,
            mirostat_tau: tau,
            seed: 4,
            ..Sampling::default()
        };
        let mut sampler = Sampler::new(&options);
        let mut surprise = 0.0;
        for at in 0..4000 {
            let before = sampler.mu;
            let token = sampler.sample(&mut logits.clone(), &[]).unwrap();
            // Among the remaining candidates.
            let left: f64 = sampler.candidates.iter().map(|&(logit, _)| f64::from(logit).exp()).sum();
            let observed = -(f64::from(logits[token as usize]).exp() / left).log2();
            assert!((sampler.mu - (before - 0.1 * (observed - f64::from(tau)))).abs() < 1e-4, "{at}");
            surprise += observed / 4000.0;
        }
        assert!(total > 6.0 && (surprise - f64::from(tau)).abs() < 0.1, "{version}: {surprise} not {tau}");
    }
    let greedy = Sampling { mirostat: 2, ..Sampling::default() };
    assert_eq!(Sampler::new(&greedy).sample(&mut [1.0, 3.0, 2.0], &[]), Some(1));
    let alone = Sampling { mirostat: 1, temperature: 1.0, ..Sampling::default() };
    assert_eq!(Sampler::new(&alone).sample(&mut [f32::NEG_INFINITY, 3.0], &[]), Some(1));
    assert_eq!(Sampler::new(&alone).sample(&mut [f32::NEG_INFINITY, f32::NAN], &[]), None);
}

/// Every instruction set gives the same draws; neutral values disable a step.
#[test]
fn steps_that_are_neutral_change_nothing() {
    let logits: Vec<f32> = (0..300).map(|token| ((token * 37) % 101) as f32 / 9.0).collect();
    let plain = Sampling { temperature: 0.8, top_k: 40, top_p: 0.9, seed: 3, ..Sampling::default() };
    let neutral = Sampling {
        xtc_threshold: 0.6,
        xtc_probability: 1.0,
        dry_base: 0.5,
        dry_multiplier: 1.0,
        mirostat_tau: 1.0,
        dynatemp_exponent: 3.0,
        ..plain.clone()
    };
    let tokens = |sampler: &mut Sampler| -> Vec<Option<u32>> {
        (0..50).map(|_| sampler.sample(&mut logits.clone(), &[1, 2, 3, 1, 2])).collect()
    };
    let expected = tokens(&mut Sampler::new(&plain));
    assert_eq!(tokens(&mut Sampler::new(&neutral)), expected);
    assert_eq!(Sampler::new(&neutral).top_needed(), Some(40));
    for chained in [
        Sampling { typical_p: 0.9, ..plain.clone() },
        Sampling { xtc_probability: 0.5, ..plain.clone() },
        Sampling { dynatemp_range: 0.3, ..plain.clone() },
        Sampling { mirostat: 1, ..plain.clone() },
        Sampling { mirostat: 2, ..plain },
    ] {
        let mut sampler = Sampler::new(&chained);
        assert!(sampler.top_needed().is_none() && sampler.truncates(), "{chained:?}");
        let here = tokens(&mut sampler);
        assert_eq!(tokens(&mut Sampler::new(&chained).with_isa(alara_kernels::Isa::SCALAR)), here);
        assert_ne!(here, expected, "{chained:?}");
    }
}

#[test]
fn biases_are_added_and_ban() {
    let biased = |bias: &[(u32, f32)]| {
        let logit_bias =
            bias.iter().map(|&(token, bias)| (crate::request::Biased::Token(token), bias)).collect();
        Sampler::new(&Sampling { logit_bias, ..Sampling::default() })
    };
    let mut logits = [1.0, 3.0, 2.0];
    assert_eq!(biased(&[(0, 2.5), (9, 1.0)]).sample(&mut logits, &[]), Some(0));
    assert_eq!(logits, [3.5, 3.0, 2.0]);
    let mut logits = [1.0, 3.0, 2.0];
    assert_eq!(biased(&[(1, -100.0)]).sample(&mut logits, &[]), Some(2));
    assert_eq!(logits, [1.0, f32::NEG_INFINITY, 2.0]);
    assert_eq!(biased(&[(0, -100.0)]).sample(&mut [1.0], &[]), None);
    assert!(biased(&[(0, 0.5)]).top_needed().is_none());
}
