//! Who computes how many tokens in the next step. Pure: no tensors, no clock.

use std::time::Duration;

/// What a step may take while a sequence waits for its next token. More computes prompts faster, and makes that one wait longer.
const BEAT: Duration = Duration::from_millis(150);

/// Rows that a step may have whatever they take: fewer would hardly be faster.
const LEAST: usize = 16;

/// How many rows the next step may have, at most `most`. `row`: what a row of a prompt takes, zero if that is not known;
/// `decoding`: whether a sequence waits for its next token.
pub fn budget(row: Duration, decoding: bool, most: usize) -> usize {
    match (decoding, BEAT.as_nanos().checked_div(row.as_nanos())) {
        (false, _) => most,
        (true, None) => LEAST.min(most),
        (true, Some(rows)) => usize::try_from(rows).unwrap_or(most).clamp(LEAST.min(most), most),
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

    #[test]
    fn a_step_is_short_while_somebody_waits_for_a_token() {
        let ms = Duration::from_millis;
        assert_eq!(budget(ms(5), false, 512), 512);
        assert_eq!(budget(ms(5), true, 512), 30);
        assert_eq!(budget(Duration::from_micros(10), true, 512), 512);
        assert_eq!([budget(ms(500), true, 512), budget(ms(0), true, 512)], [16, 16]);
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
