//! Compares the distribution of draws under a grammar with its definition, by chi-squared tests.

use super::*;

const DRAWS: usize = 20_000;

/// Permits sixteen letters, with nothing forced.
const GRAMMAR: &str = r#"start: /[a-p]/ "!""#;

/// Both allowed and forbidden tokens are likely, and the most likely one is forbidden:
/// between a tenth and a third of the probability is allowed.
fn logits() -> Vec<f32> {
    let size = Vocabulary::get(Kind::Text).size() as u32;
    let bonus = |token| if allowed(token) { 1.3 } else { 0.0 };
    let mut logits: Vec<f32> = (0..size).map(|token| (token * 37 % 17) as f32 / 4.0 + bonus(token)).collect();
    logits[usize::from(b'z')] = 6.0;
    logits
}

fn allowed(token: u32) -> bool {
    (u32::from(b'a')..=u32::from(b'p')).contains(&token)
}

/// The probability of each token by the documented steps, computed simply.
fn expected(options: &Sampling, seen: &[u32]) -> Vec<f64> {
    let logits = logits();
    let penalized = |token: u32| {
        let logit = f64::from(logits[token as usize]);
        let recent = seen.iter().rev().take(options.penalty_last_n);
        let occurrences = recent.filter(|&&seen| seen == token).count() as f64;
        if occurrences == 0.0 {
            return logit;
        }
        let repetition = f64::from(options.repetition_penalty);
        let logit = if logit > 0.0 { logit / repetition } else { logit * repetition };
        logit - f64::from(options.presence_penalty) - f64::from(options.frequency_penalty) * occurrences
    };
    let tokens = (0..logits.len() as u32).filter(|&token| allowed(token));
    let mut kept: Vec<(f64, u32)> = tokens.map(|token| (penalized(token), token)).collect();
    kept.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    kept.truncate(if options.top_k > 0 { options.top_k } else { kept.len() });
    let highest = kept[0].0;
    kept.iter_mut()
        .for_each(|(value, _)| *value = ((*value - highest) / f64::from(options.temperature)).exp());
    let normalize = |kept: &mut Vec<(f64, u32)>| {
        let sum: f64 = kept.iter().map(|(weight, _)| weight).sum();
        kept.iter_mut().for_each(|(weight, _)| *weight /= sum);
    };
    normalize(&mut kept);
    let mut mass = 0.0;
    kept.retain(|(probability, _)| {
        let within = mass < f64::from(options.top_p) || options.top_p >= 1.0;
        mass += probability;
        within
    });
    let least = kept[0].0 * f64::from(options.min_p);
    kept.retain(|(probability, _)| *probability >= least);
    normalize(&mut kept);
    let mut probabilities = vec![0.0; logits.len()];
    kept.into_iter().for_each(|(probability, token)| probabilities[token as usize] = probability);
    probabilities
}

/// Pearson's statistic divided by its critical value: exceeds 1 in one of a thousand runs if the
/// draws have this distribution.
fn excess(probabilities: &[f64], draws: &[u32]) -> f64 {
    let mut counts = vec![0.0; probabilities.len()];
    draws.iter().for_each(|&token| counts[token as usize] += 1.0);
    // Cells with few expected draws are merged, and cells with none must stay empty.
    let (mut rest, mut statistic, mut cells) = ((0.0, 0.0), 0.0, 0.0);
    for (&probability, &count) in probabilities.iter().zip(&counts) {
        let expected = probability * draws.len() as f64;
        if expected == 0.0 && count > 0.0 {
            return f64::INFINITY;
        }
        if expected < 5.0 {
            rest = (rest.0 + expected, rest.1 + count);
            continue;
        }
        statistic += (count - expected).powi(2) / expected;
        cells += 1.0;
    }
    if rest.0 > 0.0 {
        statistic += (rest.1 - rest.0).powi(2) / rest.0;
        cells += 1.0;
    }
    statistic / critical(f64::max(cells - 1.0, 1.0))
}

/// The chi-squared value exceeded with probability 0.1 %, by the approximation of Wilson and
/// Hilferty (1931).
fn critical(freedom: f64) -> f64 {
    let ninth = 2.0 / (9.0 * freedom);
    freedom * (1.0 - ninth + 3.0902 * ninth.sqrt()).powi(3)
}

type Draw<'a> = &'a dyn Fn(&mut Constraint, &mut Sampler, &mut [f32], &[u32]) -> u32;

fn draw(constraint: &mut Constraint, sampler: &mut Sampler, logits: &mut [f32], seen: &[u32]) -> u32 {
    constraint.sample(sampler, logits, seen).unwrap().unwrap()
}

/// How far the draws of `draw` are from their definition, and their cost.
fn measure(options: &Sampling, seen: &[u32], draw: Draw) -> (f64, GrammarUsage) {
    let start = parser(GRAMMAR);
    let mut sampler = Sampler::new(options);
    let mut total = GrammarUsage::default();
    let draws: Vec<u32> = (0..DRAWS)
        .map(|_| {
            let mut constraint = Constraint::new(start.clone(), true, Duration::ZERO);
            let token = draw(&mut constraint, &mut sampler, &mut logits(), seen);
            assert!(constraint.allows(token).unwrap());
            total += constraint.usage();
            token
        })
        .collect();
    (excess(&expected(options, seen), &draws), total)
}

fn options() -> [(&'static str, Sampling); 8] {
    let hot = Sampling { temperature: 1.0, seed: 11, ..Sampling::default() };
    [
        ("temperature 1", hot.clone()),
        ("temperature 0.6", Sampling { temperature: 0.6, ..hot.clone() }),
        (
            "penalties",
            Sampling {
                repetition_penalty: 1.3,
                presence_penalty: 0.4,
                frequency_penalty: 0.2,
                penalty_last_n: 5,
                ..hot.clone()
            },
        ),
        ("top-k", Sampling { top_k: 6, ..hot.clone() }),
        ("top-p", Sampling { top_p: 0.7, ..hot.clone() }),
        ("min-p", Sampling { min_p: 0.2, ..hot.clone() }),
        ("top-k and top-p", Sampling { top_k: 9, top_p: 0.8, temperature: 1.4, ..hot.clone() }),
        ("all", Sampling { top_k: 12, top_p: 0.9, min_p: 0.1, repetition_penalty: 1.2, ..hot }),
    ]
}

const SEEN: [u32; 7] = [99, 100, 97, 109, 65, 97, 112];

#[test]
fn draws_have_the_documented_distribution() {
    for (name, options) in options() {
        let (excess, usage) = measure(&options, &SEEN, &draw);
        println!(
            "{name}: chi squared {excess:.2} of critical; {} rejected, {} masks",
            usage.rejected_tokens, usage.masks
        );
        assert!(excess < 1.0, "{name}: {excess} times the critical value");
        let cuts = options.top_k > 0 || options.top_p < 1.0 || options.min_p > 0.0;
        // Without cuts, a mask is computed only for a rejected token.
        assert_eq!(usage.masks, if cuts { DRAWS } else { usage.rejected_tokens }, "{name}");
        assert!(
            cuts || (DRAWS / 10..DRAWS * 9 / 10).contains(&usage.rejected_tokens),
            "{name}: both ways are taken"
        );
    }
}

#[test]
fn the_test_tells_other_distributions_apart() {
    let options = options();
    let check = |name: &str, draw: Draw| {
        let (_, options) = options.iter().find(|(which, _)| *which == name).unwrap();
        let (excess, _) = measure(options, &SEEN, draw);
        assert!(excess > 1.5, "{name}: {excess} times the critical value");
    };
    // Wrong: rejection although the sampler cuts.
    let reject: Draw = &|constraint, sampler, logits, seen| {
        sampler.penalize(logits, seen);
        let first = sampler.sample_unpenalized(logits).unwrap();
        if constraint.allows(first).unwrap() {
            return first;
        }
        constraint.mask(logits).unwrap();
        sampler.sample_unpenalized(logits).unwrap()
    };
    check("top-k", reject);
    check("top-p", reject);
    check("min-p", reject);
    // Wrong: the most likely token instead of a second draw.
    let greedy: Draw = &|constraint, sampler, logits, seen| {
        sampler.penalize(logits, seen);
        let first = sampler.sample_unpenalized(logits).unwrap();
        if constraint.allows(first).unwrap() {
            return first;
        }
        constraint.mask(logits).unwrap();
        Sampler::new(&Sampling::default()).sample_unpenalized(logits).unwrap()
    };
    check("temperature 1", greedy);
    // Wrong: penalties omitted, or applied to both draws.
    check("penalties", &|constraint, sampler, logits, _| draw(constraint, sampler, logits, &[]));
    let twice: Draw = &|constraint, sampler, logits, seen| {
        sampler.penalize(logits, seen);
        draw(constraint, sampler, logits, seen)
    };
    check("penalties", twice);
    // Wrong: another temperature.
    let colder: Draw = &|constraint, sampler, logits, seen| {
        logits.iter_mut().for_each(|logit| *logit *= 1.1);
        draw(constraint, sampler, logits, seen)
    };
    check("temperature 1", colder);
}

#[test]
fn at_temperature_0_the_most_likely_allowed_token_is_drawn() {
    let start = parser(GRAMMAR);
    for shift in 0..400 {
        let size = Vocabulary::get(Kind::Text).size();
        let mut logits: Vec<f32> = (0..size).map(|token| ((token * 7 + shift * 13) % 101) as f32).collect();
        let most_likely =
            (0..size as u32).filter(|&token| allowed(token)).fold(None, |best: Option<u32>, token| {
                let better = best.is_none_or(|best| logits[token as usize] > logits[best as usize]);
                if better { Some(token) } else { best }
            });
        let mut constraint = Constraint::new(start.clone(), true, Duration::ZERO);
        let drawn = constraint.sample(&mut Sampler::new(&Sampling::default()), &mut logits, &[]).unwrap();
        assert_eq!(drawn, most_likely);
    }
}

#[test]
fn no_finite_logit_is_no_token() {
    let mut constraint = Constraint::new(parser(GRAMMAR), true, Duration::ZERO);
    let mut sampler = Sampler::new(&Sampling { temperature: 1.0, ..Sampling::default() });
    let mut none = vec![f32::NEG_INFINITY; 270];
    assert_eq!(constraint.sample(&mut sampler, &mut none, &[]).unwrap(), None);
    // The only finite logit is forbidden.
    none[usize::from(b'z')] = 1.0;
    assert_eq!(constraint.sample(&mut sampler, &mut none, &[]).unwrap(), None);
}

/// A draw from the top logits, as a device returns them, equals the draw from all; where they don't
/// suffice, the fallback gives the same result.
#[test]
fn few_logits_draw_what_all_draw() {
    let start = parser(GRAMMAR);
    let size = Vocabulary::get(Kind::Text).size();
    let candidates: Vec<u32> = (0..size.div_ceil(32))
        .map(|at| u32::MAX.checked_shr((32 * (at + 1)).saturating_sub(size) as u32).unwrap_or(0))
        .collect();
    let ways = [
        Sampling::default(),
        Sampling { temperature: 1.0, top_k: 3, seed: 5, ..Sampling::default() },
        Sampling { temperature: 0.7, top_k: 16, top_p: 0.8, min_p: 0.05, seed: 6, ..Sampling::default() },
        // More than the allowed tokens.
        Sampling { temperature: 1.5, top_k: 40, seed: 7, ..Sampling::default() },
    ];
    for options in ways {
        let (mut by_few, mut by_all) = (Sampler::new(&options), Sampler::new(&options));
        let count = by_few.top_needed().unwrap();
        let mut decided = 0;
        for shift in 0..300 {
            let logits: Vec<f32> =
                (0..size).map(|token| ((token * 7 + shift * 13) % 101) as f32 / 9.0).collect();
            let mut top_k = |among: &[u32]| {
                let set = |token: usize| among[token / 32] >> (token % 32) & 1 == 1;
                let mut few: Vec<(f32, u32)> = (0..size)
                    .filter(|&token| set(token))
                    .map(|token| (logits[token], token as u32))
                    .collect();
                few.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                few.truncate(count);
                Ok(Some(few))
            };
            let constraint = || Constraint::new(start.clone(), true, Duration::ZERO);
            let few =
                constraint().sample_from_top::<GrammarError>(&mut by_few, &candidates, &mut top_k).unwrap();
            decided += usize::from(few.is_some());
            let drawn = few.or_else(|| constraint().sample(&mut by_few, &mut logits.clone(), &[]).unwrap());
            assert_eq!(drawn, constraint().sample(&mut by_all, &mut logits.clone(), &[]).unwrap());
            assert!(drawn.is_some_and(allowed));
        }
        assert!(decided > 200, "{options:?}: {decided}");
    }
    for open in [
        Sampling { temperature: 1.0, top_p: 0.9, ..Sampling::default() },
        Sampling { repetition_penalty: 1.1, ..Sampling::default() },
    ] {
        assert_eq!(Sampler::new(&open).top_needed(), None);
    }
}
