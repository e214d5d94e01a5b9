//! Guesses at the tokens that come next, and how likely they are to come.
//!
//! What followed when the latest tokens stood in the sequence before may follow again: calls repeat what the prompt says. A guess only
//! decides which rows a step computes beside those that it has to. Each token is drawn as it would be without, from the logits of
//! its own row, and a draft is over where another token comes. So answers are the same with and without, greedy or sampled. Tokens
//! that a grammar forces are no guesses: its mask leaves no other, so they are appended without a draw. Pure: no tensors, no clock.

/// Most tokens of a draft. More would cost a sequence that is cut off more rows, and wins little.
pub const MOST: usize = 32;

/// Tokens of a match that are compared at most: longer ones are as good.
const COMPARED: usize = 16;

/// How many tokens must agree with the latest ones for what followed them to be a guess: the longest match first.
const NGRAMS: [usize; 4] = [8, 4, 2, 1];

/// Tokens that may come next, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// How many tokens before each of them it followed earlier on, at most [`COMPARED`].
    pub matched: Vec<usize>,
}

impl Draft {
    /// How many of the first `rows` tokens are those that `came`.
    pub fn agreed(&self, rows: usize, came: &[u32]) -> usize {
        self.tokens[..rows].iter().zip(came).take_while(|(guessed, came)| guessed == came).count()
    }
}

/// How often guesses come true, by the length of the match. Learned from all that are made, computed or not, so that what is not worth
/// computing is found worth it as soon as it is.
#[derive(Clone, Debug)]
pub struct Odds([f64; 5]);

impl Default for Odds {
    fn default() -> Self {
        // A start only: some dozens of tokens later it hardly counts.
        Odds([0.2, 0.4, 0.6, 0.7, 0.8])
    }
}

impl Odds {
    /// The share of the latest guess in what is known: an estimate over some thirty of them.
    const NEWS: f64 = 1.0 / 32.0;

    fn class(matched: usize) -> usize {
        match matched {
            ..2 => 0,
            2..4 => 1,
            4..6 => 2,
            6..10 => 3,
            10.. => 4,
        }
    }

    /// Learns what came where `draft` was guessed; what follows its first mistake says nothing.
    pub fn learn(&mut self, draft: &Draft, came: &[u32]) {
        for ((guessed, &matched), came) in draft.tokens.iter().zip(&draft.matched).zip(came) {
            let odds = &mut self.0[Self::class(matched)];
            *odds += (f64::from(u8::from(guessed == came)) - *odds) * Self::NEWS;
            if guessed != came {
                return;
            }
        }
    }

    /// For each token of `draft` the probability that it comes, and all before it.
    pub fn chances(&self, draft: &Draft) -> Vec<f64> {
        let mut all = 1.0;
        let chances = draft.matched.iter().map(|&matched| {
            all *= self.0[Self::class(matched)];
            all
        });
        chances.collect()
    }
}

/// Finds where the latest tokens of one sequence stood before.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// By the hash of some tokens, the number of tokens up to the latest place where they stood; 0 = none. Others may have taken the
    /// place: whoever reads compares the tokens.
    places: Vec<u32>,
    /// How many tokens are entered.
    entered: usize,
}

impl Lookup {
    /// For a sequence of at most `limit` tokens. Cost: up to 64 bytes for each of them, as they come.
    pub fn new(limit: usize) -> Self {
        let places = limit.clamp(256, 1 << 20).next_power_of_two() * 2 * NGRAMS.len();
        Lookup { places: vec![0; places], entered: 0 }
    }

    /// A guess at no more than `most` of the tokens that follow `tokens`, which begin with those of the last call.
    pub fn propose(&mut self, tokens: &[u32], most: usize) -> Draft {
        // All but the latest: it is looked for, and nothing follows it.
        for end in self.entered + 1..tokens.len() {
            for count in NGRAMS.into_iter().filter(|count| *count <= end) {
                let place = self.place(&tokens[end - count..end]);
                self.places[place] = end as u32;
            }
            self.entered = end;
        }
        let mut draft = Draft::default();
        let Some((at, matched)) = self.find(tokens) else { return draft };
        for drafted in 0..most {
            // A place that has caught up with the end goes on with what it gave itself: a cycle.
            draft.tokens.push(match (at + drafted).checked_sub(tokens.len()) {
                None => tokens[at + drafted],
                Some(before) => draft.tokens[before],
            });
            draft.matched.push((matched + drafted).min(COMPARED));
        }
        draft
    }

    /// How many tokens there are up to the place where the last of `tokens` stood before, and how many of them agree.
    fn find(&self, tokens: &[u32]) -> Option<(usize, usize)> {
        NGRAMS.into_iter().filter(|count| *count <= tokens.len()).find_map(|count| {
            let at = self.places[self.place(&tokens[tokens.len() - count..])] as usize;
            let before = tokens[..at].iter().rev().zip(tokens.iter().rev()).take(COMPARED);
            let matched = before.take_while(|(a, b)| a == b).count();
            (matched >= count).then_some((at, matched))
        })
    }

    fn place(&self, tokens: &[u32]) -> usize {
        // Multiplication spreads upwards; the high bits are taken. Constant: 2^64 over the golden ratio (Knuth, volume 3, 6.4).
        let mix = |hash: u64, token: &u32| (hash ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = tokens.iter().fold(tokens.len() as u64, |hash, token| mix(hash.rotate_left(23), token));
        (hash >> (u64::BITS - self.places.len().trailing_zeros())) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(tokens: &[u32], most: usize, expected: &[u32]) -> Draft {
        let draft = Lookup::new(64).propose(tokens, most);
        assert_eq!(draft.tokens, expected, "{tokens:?}");
        draft
    }

    #[test]
    fn what_followed_last_time_is_guessed() {
        let draft = check(&[1, 2, 3, 4, 5, 6, 9, 1, 2, 3], 3, &[4, 5, 6]);
        assert_eq!(draft.matched, [3, 4, 5]);
        check(&[7, 1, 2, 3, 8, 1, 2], 2, &[3, 8]);
        // The latest of several.
        check(&[1, 2, 5, 1, 2, 6, 1, 2], 1, &[6]);
        // The longer match before the shorter.
        check(&[1, 2, 3, 4, 5, 7, 9, 3, 4, 6, 1, 2, 3, 4], 1, &[5]);
        check(&[1, 2, 3, 1], 2, &[2, 3]);
        check(&[1, 2, 3], 4, &[]);
        check(&[], 4, &[]);
        // A cycle goes on and on.
        check(&[1, 2, 1, 2, 1], 7, &[2, 1, 2, 1, 2, 1, 2]);
        check(&[4, 4, 4], 3, &[4, 4, 4]);
    }

    #[test]
    fn asking_again_is_the_same_and_what_came_is_known() {
        let mut lookup = Lookup::new(64);
        let mut tokens = vec![1, 2, 3, 4, 1, 2];
        for expected in [3, 4, 1, 2, 3] {
            for _ in 0..2 {
                assert_eq!(lookup.propose(&tokens, 1).tokens, [expected], "{tokens:?}");
            }
            tokens.push(expected);
        }
        tokens.extend([9, 1, 2]);
        assert_eq!(lookup.propose(&tokens, 2).tokens, [3, 9], "which stood there last");
    }

    #[test]
    fn chances_are_learned() {
        let draft = Draft { tokens: vec![1, 2, 3], matched: vec![16, 1, 1] };
        let mut odds = Odds::default();
        let before = odds.chances(&draft);
        assert!(before[0] > before[1] && before[1] > before[2] && before[2] > 0.0, "{before:?}");
        for _ in 0..200 {
            odds.learn(&draft, &[1, 2, 3, 4]);
        }
        assert!(odds.chances(&draft)[2] > 0.98, "{odds:?}");
        for _ in 0..200 {
            odds.learn(&draft, &[1, 9, 3]);
        }
        let chances = odds.chances(&draft);
        assert!(chances[0] > 0.98 && chances[1] < 0.02, "{odds:?}");
        assert_eq!((draft.agreed(3, &[1, 2, 9]), draft.agreed(1, &[1, 2]), draft.agreed(3, &[])), (2, 1, 0));
    }

    proptest! {
        /// Whatever the sequence: a guess followed as many equal tokens earlier on as it says.
        #[test]
        fn a_guess_stood_there_before(tokens in prop::collection::vec(0..4u32, 0..120), most in 0..9usize) {
            let mut lookup = Lookup::new(1);
            for end in 0..=tokens.len() {
                let draft = lookup.propose(&tokens[..end], most);
                prop_assert!(draft.tokens.len() <= most && draft.matched.len() == draft.tokens.len());
                let text = [&tokens[..end], &draft.tokens].concat();
                for at in end..text.len() {
                    let matched = draft.matched[at - end];
                    let before = &text[at - matched..at];
                    prop_assert!(matched >= 1 && (0..at - matched).any(|from| text[from..].starts_with(before)
                        && text[from + matched] == text[at]), "{:?} {:?}", text, draft);
                }
            }
        }
    }
}
