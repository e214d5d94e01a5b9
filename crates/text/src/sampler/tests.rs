use proptest::prelude::*;

use super::*;

#[test]
fn random_numbers_are_those_of_the_paper() {
    let mut random = SplitMix64(1_234_567);
    let numbers: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
    assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
}

#[test]
fn zero_temperature_takes_the_most_likely() {
    let check = |logits: &[f32], expected| {
        let mut logits = logits.to_vec();
        assert_eq!(Sampler::new(&Sampling::default()).sample(&mut logits, &[]), expected);
    };
    check(&[1.0, 3.0, 3.0, 2.0], Some(1));
    check(&[f32::NAN, f32::NEG_INFINITY, -5.0], Some(2));
    check(&[f32::NEG_INFINITY, f32::NAN], None);
    check(&[], None);
}

#[test]
fn penalties_follow_their_formulas() {
    let options = Sampling {
        repetition_penalty: 2.0,
        presence_penalty: 1.0,
        frequency_penalty: 0.5,
        penalty_last_n: 3,
        ..Sampling::default()
    };
    let mut logits = [4.0, -4.0, 4.0, 4.0];
    Sampler::new(&options).sample(&mut logits, &[3, 0, 1, 0, 99][..4]);
    assert_eq!(logits, [0.0, -9.5, 4.0, 4.0]);
}

#[test]
fn samples_have_the_distribution_of_the_softmax() {
    // Close together, and far apart.
    for places in [[0, 1, 2], [3, 700, 1199]] {
        let options = Sampling { temperature: 1.0, ..Sampling::default() };
        let mut sampler = Sampler::new(&options);
        let mut counts = [0f64; 3];
        let samples = 20_000;
        for _ in 0..samples {
            let mut logits = vec![f32::NEG_INFINITY; places[2] + 1];
            for (place, weight) in places.into_iter().zip([1f32, 2.0, 5.0]) {
                logits[place] = weight.ln();
            }
            let token = sampler.sample(&mut logits, &[]).unwrap() as usize;
            counts[places.iter().position(|place| *place == token).unwrap()] += 1.0;
        }
        let expected = [1.0, 2.0, 5.0].map(|share| share / 8.0 * f64::from(samples));
        let chi_squared: f64 = counts.iter().zip(expected).map(|(n, e)| (n - e).powi(2) / e).sum();
        assert!(chi_squared < 13.8, "{counts:?}: chi squared {chi_squared}, 0.1 % lies above 13.8");
    }
}

/// The remaining candidates, computed simply from the definitions.
fn naive_candidates(logits: &[f32], options: &Sampling) -> Vec<u32> {
    let mut kept: Vec<(f64, u32)> =
        logits.iter().zip(0..).filter(|(l, _)| l.is_finite()).map(|(&l, t)| (f64::from(l), t)).collect();
    kept.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    if options.top_k > 0 {
        kept.truncate(options.top_k);
    }
    let weight = |logit: f64| ((logit - kept[0].0) / f64::from(options.temperature)).exp();
    let sum: f64 = kept.iter().map(|(logit, _)| weight(*logit)).sum();
    let mut nucleus = Vec::new();
    let mut mass = 0.0;
    for &(logit, token) in &kept {
        nucleus.push((weight(logit) / sum, token));
        mass += weight(logit) / sum;
        // Within rounding of the sampler's f32, either result is right.
        if options.top_p < 1.0 && mass >= f64::from(options.top_p) + 1e-6 {
            break;
        }
    }
    let highest = nucleus[0].0;
    nucleus.retain(|(p, _)| *p >= highest * f64::from(options.min_p) * (1.0 - 1e-6));
    nucleus.into_iter().map(|(_, token)| token).collect()
}

proptest! {
    /// Few of many logits, few different ones, and a temperature that makes some equal.
    #[test]
    fn the_top_logits_give_what_all_give(
        logits in prop::collection::vec(
            prop_oneof![6 => (-40i8..40).prop_map(|x| f32::from(x) / 8.0), 2 => -20f32..20.0, 1 => Just(f32::NEG_INFINITY)], 1..60),
        temperature in prop_oneof![Just(0f32), 0.1f32..3.0, Just(1e30f32)],
        top_k in 0usize..12,
        top_p in 0.05f32..1.2,
        min_p in 0f32..0.9,
        seed in any::<u64>(),
    ) {
        let options = Sampling { temperature, top_k, top_p, min_p, seed, ..Sampling::default() };
        let (mut by_top, mut by_all) = (Sampler::new(&options), Sampler::new(&options));
        let Some(count) = by_top.top_needed() else {
            prop_assert!(temperature > 0.0 && top_k == 0);
            return Ok(());
        };
        let mut top: Vec<(f32, u32)> = logits.iter().copied().zip(0..).filter(|top| top.0.is_finite()).collect();
        top.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        top.truncate(count);
        for _ in 0..6 {
            let sampled = by_top.sample_from_top(&top);
            if let Some(token) = sampled {
                prop_assert_eq!(by_all.sample_unpenalized(&logits), Some(token));
            } else {
                // The sampler is unchanged, so sampling from all logits gives the same token.
                prop_assert_eq!(by_top.sample_unpenalized(&logits), by_all.sample_unpenalized(&logits));
            }
        }
    }

    #[test]
    fn samples_only_what_the_options_leave(
        logits in prop::collection::vec(
            prop_oneof![8 => -20f32..20.0, 1 => Just(f32::NEG_INFINITY), 1 => Just(f32::NAN)], 1..200),
        temperature in 0.1f32..3.0,
        top_k in 0usize..8,
        top_p in 0.05f32..1.2,
        min_p in 0f32..0.9,
        seed in any::<u64>(),
    ) {
        prop_assume!(logits.iter().any(|logit| logit.is_finite()));
        let options = Sampling { temperature, top_k, top_p, min_p, seed, ..Sampling::default() };
        let allowed = naive_candidates(&logits, &options);
        let (mut sampler, mut twin) = (Sampler::new(&options), Sampler::new(&options).with_isa(Isa::SCALAR));
        for _ in 0..8 {
            let token = sampler.sample(&mut logits.clone(), &[]).unwrap();
            prop_assert!(allowed.contains(&token), "{} not in {:?}", token, allowed);
            prop_assert_eq!(twin.sample(&mut logits.clone(), &[]), Some(token));
        }
    }
}
