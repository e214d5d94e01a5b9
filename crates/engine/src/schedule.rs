//! The scheduler: which sequence computes how many tokens in the next step.
//! Pure: no tensors, no clock.

use std::time::Duration;

/// Most tokens that one forward pass computes.
/// More makes prompts slightly faster and other sequences wait longer.
pub const STEP_TOKENS: usize = 512;

/// What a step may take while a sequence decodes.
/// More makes prefill faster, and the decoding sequence wait longer.
pub const STEP_TARGET: Duration = Duration::from_millis(150);

/// Rows that a step may have whatever they take.
const MIN_ROWS: usize = 4;

/// Rows that GEMM kernels compute at once: some less take as long, and some more nearly as long as
/// twice as many.
const GEMM_ROWS: usize = 16;

/// Rows from which on a step is like one of prefill alone.
const PREFILL_ROWS: usize = 64;

/// How long computing takes, as it was last seen.
/// Zero until then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    /// A token of prefill.
    pub prefill_token: Duration,
    /// A row of steps as large as the last ones.
    row: Duration,
    /// Steps of decode, by their rows.
    decode: LinearFit,
}

impl StepTimes {
    /// Learns what a step took, of so many rows without draft tokens and so many in all.
    /// Draft rows are no measure of what others take.
    pub fn learn(&mut self, rows: usize, all: usize, took: Duration) {
        let learn = |known: &mut Duration, least: usize| {
            if rows >= least && rows == all {
                let seen = took / rows as u32;
                *known = if known.is_zero() { seen } else { (*known + seen) / 2 };
            }
        };
        // An estimate from few rows is better than none.
        let many = if self.prefill_token.is_zero() { MIN_ROWS } else { PREFILL_ROWS };
        learn(&mut self.row, MIN_ROWS);
        learn(&mut self.prefill_token, many);
        if all < PREFILL_ROWS {
            self.decode.learn(all as f64, took.as_secs_f64());
        }
    }

    /// What a step of decode takes, in seconds: a fixed time, and one for each row.
    pub fn decode(&self) -> (f64, f64) {
        self.decode.fit()
    }

    /// Takes all rows of small steps to cost the same little again.
    #[cfg(test)]
    pub fn forget_decode(&mut self) {
        self.decode = LinearFit::default();
    }

    /// How many rows the next step may have, at most `most`; few if a sequence is `decoding`, so
    /// that its tokens come steadily.
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

/// A linear fit of the times of steps over their rows, the latest counting the most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LinearFit {
    /// Sums of 1, rows, time, rows², rows times time.
    sums: [f64; 5],
}

impl LinearFit {
    /// What a step's share in the sums is multiplied by with each further step: some fifty count.
    const DECAY: f64 = 0.98;
    /// Rows that would take as long as the fixed time, where only steps of one size were seen.
    const PRIOR: f64 = 8.0;
    /// The weight of that prior against the rows' variance.
    const PRIOR_WEIGHT: f64 = 0.5;

    fn learn(&mut self, rows: f64, time: f64) {
        let (fixed, row) = self.fit();
        // A step that other processes held up says little about rows.
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

/// How many times its cost the gain of a draft row must be.
const MIN_GAIN: f64 = 1.1;

/// How many draft tokens each sequence gets computed, `most` in all, where a step that only decodes
/// has `rows`.
/// `probabilities`: of each sequence those with which its draft tokens are accepted, descending.
/// `None` for one that samples no token after the step.
/// A step takes `fixed + row * rows`, and a draft row `drafted`.
///
/// The likeliest come first, as long as each raises the tokens a second.
/// That is where its probability over its time is more than the tokens of the step over the step's
/// time.
/// So the right number follows where rows cost little or much, or many sequences share them.
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

/// Shares `budget` rows among sequences with `pending` tokens each, in the order of their arrival.
/// Everyone gets one row, so that no prompt stalls a sequence that is decoding.
/// Half of what is left goes to the prompt that came first, the other half to the others, the
/// shortest first.
/// So neither a long prompt nor many short ones hold up the rest.
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

    /// A machine on which a step takes a fixed time, and a row the more the further on it is.
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
        // Where a row costs as much as a step, nothing pays.
        check(&[&[0.95, 0.9]], 9, (0.0, 1.0, 1.0), &[0]);
        // Nor with many sequences, whose rows are the step's time.
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
