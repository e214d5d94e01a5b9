//! Who computes how many tokens in the next step.
//! Pure: no tensors, no clock.

use std::time::Duration;

/// Most tokens that one forward pass computes.
/// More makes prompts slightly faster and other sequences wait longer.
pub const STEP_TOKENS: usize = 512;

/// What a step may take while a sequence waits for its next token.
/// More computes prompts faster, and makes that one wait longer.
pub const BEAT: Duration = Duration::from_millis(150);

/// Rows that a step may have whatever they take.
const LEAST: usize = 4;

/// Rows that kernels for many rows compute at once: some less take as long, and some more nearly as
/// long as twice as many.
const BLOCK: usize = 16;

/// Rows from which on a step is like one of a prompt alone.
const MANY: usize = 64;

/// How long computing takes, as it was last seen.
/// Zero until then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// A token of a prompt.
    pub token: Duration,
    /// A row of steps as large as the last ones.
    row: Duration,
    /// Steps of few rows.
    few: Line,
}

impl Pace {
    /// Learns what a step took, of so many rows that had to be and so many in all: drafted ones are
    /// no measure of what others take.
    pub fn learn(&mut self, rows: usize, all: usize, took: Duration) {
        let learn = |known: &mut Duration, least: usize| {
            if rows >= least && rows == all {
                let seen = took / rows as u32;
                *known = if known.is_zero() { seen } else { (*known + seen) / 2 };
            }
        };
        // A guess from few rows is better than none.
        let many = if self.token.is_zero() { LEAST } else { MANY };
        learn(&mut self.row, LEAST);
        learn(&mut self.token, many);
        if all < MANY {
            self.few.learn(all as f64, took.as_secs_f64());
        }
    }

    /// What a step of few rows takes: a part that it takes however small it is, and a part for each
    /// row.
    /// In seconds.
    pub fn few(&self) -> (f64, f64) {
        self.few.fit()
    }

    /// Takes all rows of small steps to cost the same little again.
    #[cfg(test)]
    pub fn forget_few(&mut self) {
        self.few = Line::default();
    }

    /// How many rows the next step may have, at most `most`; few if a sequence is `decoding`, so
    /// that its tokens come steadily.
    pub fn budget(&self, decoding: bool, most: usize) -> usize {
        match (decoding, BEAT.as_nanos().checked_div(self.row.as_nanos())) {
            (false, _) => most,
            (true, None) => LEAST.min(most),
            (true, Some(rows)) => {
                let rows = usize::try_from(rows).unwrap_or(most).min(most);
                let near = if rows < BLOCK * 3 / 4 { rows } else { (rows + BLOCK / 2) / BLOCK * BLOCK };
                near.clamp(LEAST.min(most), most)
            }
        }
    }
}

/// The line through the times of steps of few rows, the latest counting the most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Line {
    /// Sums of 1, rows, time, rows², rows times time.
    sums: [f64; 5],
}

impl Line {
    /// What a step's share in the sums is multiplied by with each further step: some fifty count.
    const FADES: f64 = 0.98;
    /// Rows that would take what a step takes however small it is, as long as steps of one size
    /// only were seen.
    const GUESS: f64 = 8.0;
    /// How much that guess counts against the rows' variance.
    const DOUBT: f64 = 0.5;

    fn learn(&mut self, rows: f64, time: f64) {
        let (fixed, row) = self.fit();
        // Who was held up by others says little about rows.
        let time = if self.sums[0] > 4.0 { time.min(2.0 * (fixed + row * rows)) } else { time };
        for (sum, new) in self.sums.iter_mut().zip([1.0, rows, time, rows * rows, rows * time]) {
            *sum = *sum * Self::FADES + new;
        }
    }

    fn fit(&self) -> (f64, f64) {
        let [count, rows, time, squares, products] = self.sums;
        if count == 0.0 {
            return (Self::GUESS, 1.0);
        }
        let (rows, time) = (rows / count, time / count);
        let variance = (squares / count - rows * rows).max(0.0);
        let guess = time / (Self::GUESS + rows);
        let slope = (products / count - rows * time + Self::DOUBT * guess) / (variance + Self::DOUBT);
        let slope = slope.clamp(0.01 * guess, time / rows.max(1.0));
        (time - slope * rows, slope)
    }
}

/// How much more than it costs a drafted row must be worth.
const WORTH: f64 = 1.1;

/// How many of its drafted tokens each sequence gets computed, `most` in all, where a step that
/// only decodes has `rows`.
/// `chances`: of each sequence that draws a token after the step, the probabilities that its
/// drafted tokens come, descending; `None` for one that does not.
/// A step takes `fixed + row * rows`, and a drafted row `drafted`.
///
/// The likeliest come first, as long as each makes the tokens come faster: its probability over
/// what it takes is more than the tokens of the step over what that takes.
/// So where rows cost little or much, or many sequences share them, the right number follows.
pub fn drafts(
    chances: &[Option<Vec<f64>>],
    rows: usize,
    most: usize,
    (fixed, row, drafted): (f64, f64, f64),
) -> Vec<usize> {
    let mut counts = vec![0; chances.len()];
    let mut tokens = chances.iter().flatten().count() as f64;
    let mut time = fixed + row * rows as f64;
    for _ in 0..most {
        let next = chances.iter().zip(&counts).enumerate();
        let next = next.filter_map(|(at, (chances, &count))| Some((at, *chances.as_ref()?.get(count)?)));
        match next.max_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((at, chance)) if chance * time > WORTH * drafted * tokens => {
                counts[at] += 1;
                tokens += chance;
                time += drafted;
            }
            _ => break,
        }
    }
    counts
}

/// Shares `budget` rows among sequences that wait with `pending` tokens each, in the order of their
/// arrival.
/// Everyone gets one row, so that no prompt stalls a sequence that is decoding.
/// Half of what is left goes to the prompt that came first, the other half to the others, the
/// shortest first, so that neither a long prompt nor many short ones hold up the rest.
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

    /// A machine on which a step takes a while however small it is, and a row the more the further
    /// on it is.
    #[test]
    fn a_step_is_short_while_somebody_waits_for_a_token() {
        let took = |fixed: f64, row: f64, rows: usize, at: usize| {
            Duration::from_secs_f64((fixed + row * rows as f64 * (1.0 + at as f64 / 4096.0)) / 1e3)
        };
        for (fixed, row) in [(25.0, 3.0), (60.0, 10.0), (1.0, 0.1), (100.0, 1.0)] {
            let mut pace = Pace::default();
            // The first one's own prompt, alone.
            pace.learn(512, 512, took(fixed, row, 512, 0));
            let (mut at, mut beats) = (0, Vec::new());
            while at < 4096 {
                let rows = pace.budget(true, 512);
                let beat = took(fixed, row, rows, at);
                pace.learn(rows, rows, beat);
                beats.push(beat);
                at += rows - 1;
            }
            beats.sort_unstable();
            let late = beats[beats.len() * 95 / 100];
            assert!(late < Duration::from_millis(250), "{fixed} {row}: {late:?} in {} steps", beats.len());
        }
        assert_eq!([Pace::default().budget(true, 512), Pace::default().budget(false, 512)], [LEAST, 512]);
        let budget =
            |row: u64, most| Pace { row: Duration::from_millis(row), ..Pace::default() }.budget(true, most);
        assert_eq!([13, 12, 9, 8, 7, 6, 4].map(|row| budget(row, 512)), [11, 16, 16, 16, 16, 32, 32]);
        assert_eq!((budget(4, 30), budget(500, 512)), (30, LEAST), "never more than may be");
    }

    #[test]
    fn a_draft_is_as_long_as_it_pays() {
        let check = |chances: &[&[f64]], most, times, expected: &[usize]| {
            let chances: Vec<_> = chances.iter().map(|chances| Some(chances.to_vec())).collect();
            assert_eq!(drafts(&chances, chances.len(), most, times), expected, "{chances:?} {times:?}");
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
            drafts(&[None, Some(vec![0.9])], 40, 9, cheap),
            [0, 1],
            "one that waits for its prompt draws none"
        );
    }

    #[test]
    fn what_rows_take_is_learned() {
        let mut pace = Pace::default();
        let near = |(fixed, row): (f64, f64), expected: (f64, f64)| {
            let close = |a: f64, b: f64| (a - b).abs() < 0.1 * b.max(0.1);
            assert!(close(fixed * 1e3, expected.0) && close(row * 1e3, expected.1), "{fixed} {row}");
        };
        for _ in 0..20 {
            pace.learn(1, 1, Duration::from_millis(9));
        }
        near(pace.few(), (8.0, 1.0));
        for step in 0..200 {
            let rows = 1 + step % 5;
            let late = if step % 50 == 49 { 200 } else { 0 };
            pace.learn(rows, rows, Duration::from_millis(20 + 4 * rows as u64 + late));
        }
        let (fixed, row) = pace.few();
        assert!((16.0..26.0).contains(&(fixed * 1e3)) && (3.0..6.0).contains(&(row * 1e3)), "{fixed} {row}");
    }

    proptest! {
        #[test]
        fn everyone_moves_and_the_budget_holds(pending in prop::collection::vec(0..2000usize, 0..20), budget in 1..600usize) {
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
