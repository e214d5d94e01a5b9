//! Who computes how many tokens in the next step. Pure: no tensors, no clock.

/// Shares `budget` rows among sequences that wait with `pending` tokens each. Everyone gets one row, so that no prompt
/// stalls a sequence that is decoding; what is left goes to the prompts in the order of arrival.
pub fn plan(pending: &[usize], budget: usize) -> Vec<usize> {
    let mut rows: Vec<usize> = pending.iter().map(|&pending| pending.min(1)).collect();
    let mut left = budget.saturating_sub(rows.iter().sum());
    for (rows, &pending) in rows.iter_mut().zip(pending) {
        let more = (pending - *rows).min(left);
        *rows += more;
        left -= more;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decoding_goes_on_beside_a_long_prompt() {
        assert_eq!(plan(&[1, 1000, 1, 20], 512), [1, 509, 1, 1]);
        assert_eq!(plan(&[3, 4], 512), [3, 4]);
        assert_eq!(plan(&[], 512), Vec::<usize>::new());
    }

    proptest! {
        #[test]
        fn everyone_moves_and_the_budget_holds(pending in prop::collection::vec(0..2000usize, 0..20), budget in 1..600usize) {
            let rows = plan(&pending, budget);
            prop_assert!(rows.iter().sum::<usize>() <= budget.max(pending.len()));
            for (rows, pending) in rows.iter().zip(&pending) {
                prop_assert!(rows <= pending && (*rows > 0 || *pending == 0));
            }
        }
    }
}
