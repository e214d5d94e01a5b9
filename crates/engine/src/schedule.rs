//! Who computes how many tokens in the next step. Pure: no tensors, no clock.

use std::time::Duration;

/// What a step may take while a sequence waits for its next token. More computes prompts faster, and makes that one wait longer.
pub const BEAT: Duration = Duration::from_millis(150);

/// Rows that a step may have whatever they take.
const LEAST: usize = 4;

/// Rows from which on a step is like one of a prompt alone.
const MANY: usize = 64;

/// How long computing takes, as it was last seen. Zero until then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// A token of a prompt.
    pub token: Duration,
    /// A row of steps as large as the last ones.
    row: Duration,
}

impl Pace {
    /// Learns what a step of so many rows took.
    pub fn learn(&mut self, rows: usize, took: Duration) {
        let learn = |known: &mut Duration, least: usize| {
            if rows >= least {
                let seen = took / rows as u32;
                *known = if known.is_zero() { seen } else { (*known + seen) / 2 };
            }
        };
        // A guess from few rows is better than none.
        let many = if self.token.is_zero() { LEAST } else { MANY };
        learn(&mut self.row, LEAST);
        learn(&mut self.token, many);
    }

    /// How many rows the next step may have, at most `most`; few if a sequence is `decoding`, so that its tokens come steadily.
    pub fn budget(&self, decoding: bool, most: usize) -> usize {
        match (decoding, BEAT.as_nanos().checked_div(self.row.as_nanos())) {
            (false, _) => most,
            (true, None) => LEAST.min(most),
            (true, Some(rows)) => usize::try_from(rows).unwrap_or(most).clamp(LEAST.min(most), most),
        }
    }
}

/// Shares `budget` rows among sequences that wait with `pending` tokens each, in the order of their arrival. Everyone gets one row, so
/// that no prompt stalls a sequence that is decoding. Half of what is left goes to the prompt that came first, the other half to the
/// others, the shortest first, so that neither a long prompt nor many short ones hold up the rest.
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

    /// A machine on which a step takes a while however small it is, and a row the more the further on it is.
    #[test]
    fn a_step_is_short_while_somebody_waits_for_a_token() {
        let took = |fixed: f64, row: f64, rows: usize, at: usize| {
            Duration::from_secs_f64((fixed + row * rows as f64 * (1.0 + at as f64 / 4096.0)) / 1e3)
        };
        for (fixed, row) in [(25.0, 3.0), (60.0, 10.0), (1.0, 0.1), (100.0, 1.0)] {
            let mut pace = Pace::default();
            // The first one's own prompt, alone.
            pace.learn(512, took(fixed, row, 512, 0));
            let (mut at, mut beats) = (0, Vec::new());
            while at < 4096 {
                let rows = pace.budget(true, 512);
                let beat = took(fixed, row, rows, at);
                pace.learn(rows, beat);
                beats.push(beat);
                at += rows - 1;
            }
            beats.sort_unstable();
            let late = beats[beats.len() * 95 / 100];
            assert!(late < Duration::from_millis(250), "{fixed} {row}: {late:?} in {} steps", beats.len());
        }
        assert_eq!([Pace::default().budget(true, 512), Pace::default().budget(false, 512)], [LEAST, 512]);
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
