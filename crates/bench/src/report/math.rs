//! Statistics for reports: intervals, correlations, pass^k, the paired test.

use serde::Serialize;

/// The normal quantile of a two-sided 95 % interval.
const Z: f64 = 1.959_963_984_540_054;

/// Returns Wilson's score interval at 95 % for the share `p` of `n` cases, from 0 to 1.
/// Source: Wilson 1927.
pub fn wilson(p: f64, n: f64) -> (f64, f64) {
    if n <= 0.0 {
        return (0.0, 1.0);
    }
    let zz = Z * Z / n;
    let middle = p + zz / 2.0;
    let half = Z * (p * (1.0 - p) / n + zz / (4.0 * n)).sqrt();
    (((middle - half) / (1.0 + zz)).max(0.0), ((middle + half) / (1.0 + zz)).min(1.0))
}

/// Returns the probability that all of `k` trials succeed, if they are drawn from `trials` of which
/// `solved` succeeded: C(s,k)/C(n,k).
/// Source: tau-bench, arXiv 2406.12045.
pub fn pass_hat(solved: u64, trials: u64, k: u64) -> f64 {
    (0..k).map(|i| solved.saturating_sub(i) as f64 / (trials - i) as f64).product()
}

/// Returns the median; 0 without numbers.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len() / 2), sorted.get(sorted.len().saturating_sub(1) / 2)) {
        (Some(upper), Some(lower)) => (upper + lower) / 2.0,
        _ => 0.0,
    }
}

/// Returns the mean; `None` without values.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.into_iter().fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// Returns Pearson's correlation, from -1 to 1; `None` for fewer than three pairs, or if one side
/// doesn't vary.
pub fn pearson(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let (x, y) = (mean(pairs.iter().map(|pair| pair.0))?, mean(pairs.iter().map(|pair| pair.1))?);
    let sum = |f: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|pair| f(pair.0 - x, pair.1 - y)).sum::<f64>();
    let (xx, yy, xy) = (sum(&|a, _| a * a), sum(&|_, b| b * b), sum(&|a, b| a * b));
    // Rounding errors of equal values don't count as variation.
    let varies = |square: f64, middle: f64| square > 1e-18 * (1.0 + middle * middle) * pairs.len() as f64;
    (varies(xx, x) && varies(yy, y)).then(|| (xy / (xx * yy).sqrt()).clamp(-1.0, 1.0))
}

/// A paired comparison of two conditions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paired {
    /// Number of pairs: the same task under both conditions.
    pub pairs: usize,
    /// Number of pairs in which A did better.
    pub a_better: usize,
    /// Number of pairs in which B did better.
    pub b_better: usize,
    /// Mean of B minus A, from -1 to 1.
    pub difference: f64,
    /// Its 95 % interval, by the method of Agresti and Min for paired shares, which remains wide
    /// for few pairs, even if all agree.
    pub interval: (f64, f64),
    /// Two-sided p-value of the exact sign-flip test: the probability of a difference at least this
    /// large by chance if A and B are equal.
    /// With one trial, that is McNemar's exact test.
    pub p: f64,
}

/// Compares pairs of numbers of solved trials by A and B, out of `trials`.
/// `None` without pairs.
pub fn paired(pairs: &[(u32, u32)], trials: u32) -> Option<Paired> {
    if pairs.is_empty() || trials == 0 {
        return None;
    }
    let differences: Vec<i64> = pairs.iter().map(|(a, b)| i64::from(*b) - i64::from(*a)).collect();
    let (n, unit) = (pairs.len() as f64, f64::from(trials));
    let sum = |power: i32| differences.iter().map(|d| (*d as f64 / unit).powi(power)).sum::<f64>();
    // Add two pairs: half a pair for each side, the other one tied.
    // Source: Agresti and Min 2005, doi:10.1002/sim.1781.
    let middle = sum(1) / (n + 2.0);
    let spread = (sum(2) + 1.0) / (n + 2.0) - middle * middle;
    let half = Z * (spread / (n + 2.0)).sqrt();
    Some(Paired {
        pairs: pairs.len(),
        a_better: differences.iter().filter(|d| **d < 0).count(),
        b_better: differences.iter().filter(|d| **d > 0).count(),
        difference: sum(1) / n,
        interval: ((middle - half).max(-1.0), (middle + half).min(1.0)),
        p: sign_flip(&differences),
    })
}

/// Returns the share of all sign choices for which the sum is at least as far from zero as the
/// actual one.
/// Exact: builds the distribution of sums one value at a time.
fn sign_flip(differences: &[i64]) -> f64 {
    let sizes: Vec<usize> =
        differences.iter().map(|d| d.unsigned_abs() as usize).filter(|d| *d > 0).collect();
    let total: usize = sizes.iter().sum();
    // `chances[s + total]` is the probability of the sum s.
    let mut chances = vec![0.0; 2 * total + 1];
    chances[total] = 1.0;
    let mut reach = 0;
    for size in sizes {
        let mut next = vec![0.0; chances.len()];
        for at in total - reach..=total + reach {
            next[at - size] += chances[at] / 2.0;
            next[at + size] += chances[at] / 2.0;
        }
        reach += size;
        chances = next;
    }
    let found = differences.iter().sum::<i64>().unsigned_abs() as usize;
    let far = |(at, chance): (usize, &f64)| (at.abs_diff(total) >= found).then_some(*chance);
    chances.iter().enumerate().filter_map(far).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 5e-5, "{found} instead of {expected}");
    }

    #[test]
    fn medians() {
        assert_eq!([median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0]), median(&[])], [2.0, 2.5, 0.0]);
    }

    #[test]
    fn intervals_as_tables_have_them() {
        // R: prop.test(x, n, correct = FALSE)
        let check = |solved: f64, n: f64, low: f64, high: f64| {
            let (found_low, found_high) = wilson(solved / n, n);
            near(found_low, low);
            near(found_high, high);
        };
        check(0.0, 10.0, 0.0, 0.27753);
        check(0.0, 20.0, 0.0, 0.16113);
        check(20.0, 20.0, 0.83887, 1.0);
        check(5.0, 10.0, 0.23659, 0.76341);
        check(84.0, 115.0, 0.64286, 0.80311);
        assert_eq!(wilson(0.0, 0.0), (0.0, 1.0));
    }

    #[test]
    fn pass_hat_counts_draws() {
        let check = |solved, trials, k, expected| near(pass_hat(solved, trials, k), expected);
        check(3, 4, 1, 0.75);
        check(3, 4, 2, 0.5);
        check(3, 4, 4, 0.0);
        check(4, 4, 4, 1.0);
        check(0, 4, 1, 0.0);
    }

    #[test]
    fn pass_hat_is_the_share_of_choices_in_which_all_succeed() {
        for trials in 1u32..=8 {
            for solved in 0..=trials {
                // The first `solved` trials succeeded; a choice is a bit set.
                let choices = |k: u32| (0u32..1 << trials).filter(move |choice| choice.count_ones() == k);
                for k in 1..=trials {
                    let all = choices(k).filter(|choice| choice >> solved == 0).count() as f64;
                    let expected = all / choices(k).count() as f64;
                    let found = pass_hat(u64::from(solved), u64::from(trials), u64::from(k));
                    assert!((found - expected).abs() < 1e-12, "{solved} of {trials}, {k}: {found}");
                }
            }
        }
    }

    #[test]
    fn correlation_needs_three_that_differ() {
        near(pearson(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]).unwrap(), 1.0);
        near(pearson(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)]).unwrap(), 0.5);
        assert_eq!(pearson(&[(1.0, 2.0), (2.0, 4.0)]), None);
        assert_eq!(pearson(&[(0.1, 2.0), (0.1, 4.0), (0.1, 1.0)]), None);
    }

    #[test]
    fn the_paired_test_is_mcnemars_with_one_trial() {
        // 8 of 10 discordant pairs for B: 2 * (1 + 10 + 45) / 1024.
        let pairs: Vec<(u32, u32)> = [vec![(0, 1); 8], vec![(1, 0); 2], vec![(1, 1); 20]].concat();
        let found = paired(&pairs, 1).unwrap();
        near(found.p, 112.0 / 1024.0);
        near(found.difference, 0.2);
        assert_eq!((found.pairs, found.a_better, found.b_better), (30, 2, 8));
        near(paired(&[(1, 1); 5], 1).unwrap().p, 1.0);
        // Differences of 2, 2 and 1 trials: 2 of the 8 sums are as far from zero as 5.
        near(paired(&[(0, 2), (0, 2), (1, 2)], 3).unwrap().p, 0.25);
        assert_eq!(paired(&[], 1), None);
    }

    #[test]
    fn differences_without_spread_have_an_interval() {
        let check = |pairs: &[(u32, u32)], trials: u32, low: f64, high: f64| {
            let found = paired(pairs, trials).unwrap().interval;
            near(found.0, low);
            near(found.1, high);
        };
        // 1.959964 / 22: there is no difference, and twenty pairs are few.
        check(&[(0, 0); 20], 1, -0.08909, 0.08909);
        check(&[(3, 3); 20], 3, -0.08909, 0.08909);
        check(&[(0, 1); 20], 1, 0.75953, 1.0);
        check(&[(1, 0)], 1, -1.0, 0.51010);
        // 12 and 21 of 100 pairs: (21 - 12)/102 ± z sqrt(((12 + 21 + 1) - 81/102)/102²).
        let pairs = [vec![(1, 0); 12], vec![(0, 1); 21], vec![(1, 1); 67]].concat();
        check(&pairs, 1, -0.02249, 0.19896);
    }
}
