//! The scheduler: decides how many tokens of each sequence the next step computes.
//! Pure: no tensors, no clock.

use std::time::Duration;

/// Most tokens per forward pass.
/// A higher limit makes prefill slightly faster and lets other sequences wait longer.
pub const STEP_TOKENS: usize = 512;

/// Target time of a step while a sequence decodes.
/// A longer time makes prefill faster, and lets the decoding sequence wait longer.
pub const STEP_TARGET: Duration = Duration::from_millis(150);

/// Rows that a step may always have.
const MIN_ROWS: usize = 4;

/// Rows that GEMM kernels compute at once: slightly fewer take as long, and slightly more nearly as
/// long as twice as many.
const GEMM_ROWS: usize = 16;

/// Rows from which on a step behaves like prefill alone.
const PREFILL_ROWS: usize = 64;

/// Measured times of computation.
/// Zero until measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    /// Time per prefill token.
    pub prefill_token: Duration,
    /// Time per row in steps as large as the latest ones.
    row: Duration,
    /// Times of decode steps by number of rows.
    decode: LinearFit,
}

impl StepTimes {
    /// Learns the time of a step with `rows` rows besides draft tokens and `all` rows in total.
    /// Draft rows don't measure the cost of other rows.
    pub fn learn(&mut self, rows: usize, all: usize, took: Duration) {
        let learn = |known: &mut Duration, least: usize| {
            if rows >= least && rows == all {
                let seen = took / rows as u32;
                *known = if known.is_zero() { seen } else { (*known + seen) / 2 };
            }
        };
        // An estimate from a few rows is better than none.
        let many = if self.prefill_token.is_zero() { MIN_ROWS } else { PREFILL_ROWS };
        learn(&mut self.row, MIN_ROWS);
        learn(&mut self.prefill_token, many);
        if all < PREFILL_ROWS {
            self.decode.learn(all as f64, took.as_secs_f64());
        }
    }

    /// The time of a decode step in seconds: a fixed part, and a part per row.
    pub fn decode(&self) -> (f64, f64) {
        self.decode.fit()
    }

    /// Resets the cost per row of small steps to a small value.
    #[cfg(test)]
    pub fn forget_decode(&mut self) {
        self.decode = LinearFit::default();
    }

    /// How many rows the next step may have, at most `most`; few if a sequence is `decoding`, so
    /// that it continues steadily.
    pub fn budget(&self, decoding: bool, most: usize) -> usize {
        match (decoding, STEP_TARGET.as_nanos().checked_div(self.row.as_nanos())) {
            (false, _) => most,
            (true, None) => MIN_ROWS.min(most),
            (true, Some(rows)) => {
                let rows = usize::try_from(rows).unwrap_or(most).min(most);
                let near = if rows < GEMM_ROWS * 3 / 4 {
                    rows
                } else {
                    (rows + GEMM_ROWS / 2) / GEMM_ROWS * GEMM_ROWS
                };
                near.clamp(MIN_ROWS.min(most), most)
            }
        }
    }
}

/// A linear fit of step times over rows, weighting recent steps higher.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LinearFit {
    /// Sums of 1, rows, time, rows², rows times time.
    sums: [f64; 5],
}

impl LinearFit {
    /// Decay per step of older steps' weights in the sums: about fifty steps count.
    const DECAY: f64 = 0.98;
    /// Number of rows assumed to take as long as the fixed part, while steps of only one size were
    /// seen.
    const PRIOR: f64 = 8.0;
    /// The weight of that prior against the rows' variance.
    const PRIOR_WEIGHT: f64 = 0.5;

    fn learn(&mut self, rows: f64, time: f64) {
        let (fixed, row) = self.fit();
        // A step delayed by other processes is no measure of rows.
        let time = if self.sums[0] > 4.0 { time.min(2.0 * (fixed + row * rows)) } else { time };
        for (sum, new) in self.sums.iter_mut().zip([1.0, rows, time, rows * rows, rows * time]) {
            *sum = *sum * Self::DECAY + new;
        }
    }

    fn fit(&self) -> (f64, f64) {
        let [count, rows, time, squares, products] = self.sums;
        if count == 0.0 {
            return (Self::PRIOR, 1.0);
        }
        let (rows, time) = (rows / count, time / count);
        let variance = (squares / count - rows * rows).max(0.0);
        let prior = time / (Self::PRIOR + rows);
        let slope =
            (products / count - rows * time + Self::PRIOR_WEIGHT * prior) / (variance + Self::PRIOR_WEIGHT);
        let slope = slope.clamp(0.01 * prior, time / rows.max(1.0));
        (time - slope * rows, slope)
    }
}

/// The minimum ratio of a draft row's gain to its cost.
const MIN_GAIN: f64 = 1.1;

/// How many draft tokens to compute for each sequence, `most` in total, if a decode-only step has
/// `rows` rows.
/// `probabilities` has for each sequence the acceptance probabilities of its draft tokens,
/// descending;
/// `None` for one that samples no token after the step.
/// A step takes `fixed + row * rows`, and a draft row `drafted`.
///
/// Takes the most likely tokens first, as long as each increases the tokens per second.
/// It does if its probability divided by its time exceeds the step's tokens divided by the step's
/// time.
/// This gives the right number both where rows are cheap or expensive, and where many sequences
/// share a step.
pub fn draft_lengths(
    probabilities: &[Option<Vec<f64>>],
    rows: usize,
    most: usize,
    (fixed, row, drafted): (f64, f64, f64),
) -> Vec<usize> {
    let mut counts = vec![0; probabilities.len()];
    let mut tokens = probabilities.iter().flatten().count() as f64;
    let mut time = fixed + row * rows as f64;
    for _ in 0..most {
        let next = probabilities.iter().zip(&counts).enumerate();
        let next =
            next.filter_map(|(at, (probabilities, &count))| Some((at, *probabilities.as_ref()?.get(count)?)));
        match next.max_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((at, probability)) if probability * time > MIN_GAIN * drafted * tokens => {
                counts[at] += 1;
                tokens += probability;
                time += drafted;
            }
            _ => break,
        }
    }
    counts
}

/// Divides `budget` rows among sequences with `pending` tokens each, in order of arrival.
/// Each gets one row, so that no prompt stalls a decoding sequence.
/// Half of the rest goes to the oldest prompt, the other half to the others, the shortest first.
/// So neither a long prompt nor many short ones delay the rest.
pub fn plan(pending: &[usize], budget: usize) -> Vec<usize> {
    let mut rows: Vec<usize> = pending.iter().map(|&pending| pending.min(1)).collect();
    let mut left = budget.saturating_sub(rows.iter().sum());
    let mut give = |at: usize, most: usize| {
        let more = (pending[at] - rows[at]).min(most).min(left);
        rows[at] += more;
        left -= more;
        left
    };
    let mut prompts = (0..pending.len()).filter(|at| pending[*at] > 1);
    let Some(first) = prompts.next() else { return rows };
    let mut others: Vec<usize> = prompts.collect();
    others.sort_by_key(|at| pending[*at]);
    give(first, budget.saturating_sub(pending.len()).div_ceil(2));
    for at in others {
        give(at, usize::MAX);
    }
    give(first, usize::MAX);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decoding_goes_on_beside_a_long_prompt() {
        assert_eq!(plan(&[1, 1000, 1, 20], 512), [1, 490, 1, 20]);
        assert_eq!(plan(&[1000, 2000, 20], 503), [251, 232, 20], "half for the first, then the shortest");
        assert_eq!(plan(&[3, 4], 512), [3, 4]);
        assert_eq!(plan(&[], 512), Vec::<usize>::new());
    }

    /// A machine on which a step takes a fixed time, plus a time per row that grows with the
    /// position.
    #[test]
    fn a_step_is_short_while_a_sequence_decodes() {
        let took = |fixed: f64, row: f64, rows: usize, at: usize| {
            Duration::from_secs_f64((fixed + row * rows as f64 * (1.0 + at as f64 / 4096.0)) / 1e3)
        };
        for (fixed, row) in [(25.0, 3.0), (60.0, 10.0), (1.0, 0.1), (100.0, 1.0)] {
            let mut times = StepTimes::default();
            // The first one's own prompt, alone.
            times.learn(512, 512, took(fixed, row, 512, 0));
            let (mut at, mut all_times) = (0, Vec::new());
            while at < 4096 {
                let rows = times.budget(true, 512);
                let time = took(fixed, row, rows, at);
                times.learn(rows, rows, time);
                all_times.push(time);
                at += rows - 1;
            }
            all_times.sort_unstable();
            let late = all_times[all_times.len() * 95 / 100];
            assert!(
                late < Duration::from_millis(250),
                "{fixed} {row}: {late:?} in {} steps",
                all_times.len()
            );
        }
        assert_eq!(
            [StepTimes::default().budget(true, 512), StepTimes::default().budget(false, 512)],
            [MIN_ROWS, 512]
        );
        let budget = |row: u64, most| {
            StepTimes { row: Duration::from_millis(row), ..StepTimes::default() }.budget(true, most)
        };
        assert_eq!([13, 12, 9, 8, 7, 6, 4].map(|row| budget(row, 512)), [11, 16, 16, 16, 16, 32, 32]);
        assert_eq!((budget(4, 30), budget(500, 512)), (30, MIN_ROWS), "never more than may be");
    }

    #[test]
    fn a_draft_is_as_long_as_it_pays() {
        let check = |probabilities: &[&[f64]], most, times, expected: &[usize]| {
            let probabilities: Vec<_> =
                probabilities.iter().map(|probabilities| Some(probabilities.to_vec())).collect();
            assert_eq!(
                draft_lengths(&probabilities, probabilities.len(), most, times),
                expected,
                "{probabilities:?} {times:?}"
            );
        };
        let cheap = (8.0, 1.0, 1.0);
        check(&[&[0.9, 0.8, 0.7, 0.1]], 9, cheap, &[3]);
        check(&[&[0.9, 0.8, 0.7, 0.1]], 2, cheap, &[2]);
        check(&[&[0.1]], 9, cheap, &[0]);
        check(&[&[0.9; 20]], 32, cheap, &[20]);
        // If a row costs as much as a step, no draft is worthwhile.
        check(&[&[0.95, 0.9]], 9, (0.0, 1.0, 1.0), &[0]);
        // Nor with many sequences, whose rows dominate the step's time.
        check(&[&[0.6, 0.5][..]; 40], 512, cheap, &[0; 40]);
        check(&[&[0.6, 0.2], &[0.9, 0.8], &[]], 9, cheap, &[1, 2, 0]);
        assert_eq!(
            draft_lengths(&[None, Some(vec![0.9])], 40, 9, cheap),
            [0, 1],
            "one that waits for its prompt draws none"
        );
    }

    #[test]
    fn the_cost_of_rows_is_learned() {
        let mut times = StepTimes::default();
        let near = |(fixed, row): (f64, f64), expected: (f64, f64)| {
            let close = |a: f64, b: f64| (a - b).abs() < 0.1 * b.max(0.1);
            assert!(close(fixed * 1e3, expected.0) && close(row * 1e3, expected.1), "{fixed} {row}");
        };
        for _ in 0..20 {
            times.learn(1, 1, Duration::from_millis(9));
        }
        near(times.decode(), (8.0, 1.0));
        for step in 0..200 {
            let rows = 1 + step % 5;
            let late = if step % 50 == 49 { 200 } else { 0 };
            times.learn(rows, rows, Duration::from_millis(20 + 4 * rows as u64 + late));
        }
        let (fixed, row) = times.decode();
        assert!((16.0..26.0).contains(&(fixed * 1e3)) && (3.0..6.0).contains(&(row * 1e3)), "{fixed} {row}");
    }

    proptest! {
        #[test]
        fn every_sequence_moves_and_the_budget_holds(pending in prop::collection::vec(0..2000usize, 0..20), budget in 1..600usize) {
            let rows = plan(&pending, budget);
            prop_assert!(rows.iter().sum::<usize>() <= budget.max(pending.len()));
            let all = pending.iter().sum::<usize>();
            prop_assert!(rows.iter().sum::<usize>() >= budget.min(all), "nothing is left unused");
            for (rows, pending) in rows.iter().zip(&pending) {
                prop_assert!(rows <= pending && (*rows > 0 || *pending == 0));
            }
        }
    }
}
