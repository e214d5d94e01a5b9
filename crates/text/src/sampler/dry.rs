//! DRY: penalizes tokens that would extend a repetition, more the longer it is.
//!
//! Source: the pull request 5637 of text-generation-webui, and `llama_sampler_dry_apply` of
//! llama.cpp.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Sequence breakers as token sequences.
/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Breakers {
    /// Maps a breaker's first token to its remaining tokens.
    rests: Arc<HashMap<u32, Rests>>,
}

/// The tokens that follow the first token of breakers.
/// A position is compared with all rests of one length at once, however many there are.
#[derive(Debug, Default)]
struct Rests {
    all: HashSet<Box<[u32]>>,
    lengths: BTreeSet<usize>,
}

impl Breakers {
    /// Breakers of these sequences; empty ones are ignored.
    pub fn new<'s>(sequences: impl IntoIterator<Item = &'s [u32]>) -> Self {
        let mut rests = HashMap::<u32, Rests>::new();
        for sequence in sequences {
            if let Some((first, rest)) = sequence.split_first() {
                let rests = rests.entry(*first).or_default();
                rests.all.insert(rest.into());
                rests.lengths.insert(rest.len());
            }
        }
        Breakers { rests: Arc::new(rests) }
    }

    /// Whether the token alone is a breaker.
    fn is_one(&self, token: u32) -> bool {
        self.rests.get(&token).is_some_and(|rests| rests.lengths.contains(&0))
    }

    /// How many tokens follow the last breaker in `tokens`.
    fn tokens_after(&self, tokens: &[u32]) -> usize {
        let longest_at = |at: usize| {
            let after = &tokens[at + 1..];
            let rests = self.rests.get(&tokens[at])?;
            let mut longest_first = rests.lengths.iter().rev();
            let is_there = |length: usize| after.get(..length).is_some_and(|rest| rests.all.contains(rest));
            longest_first.find(|length| is_there(**length)).map(|length| after.len() - length)
        };
        (0..tokens.len()).rev().find_map(longest_at).unwrap_or(tokens.len())
    }
}

/// The tokens that would extend a repetition of at least `allowed` tokens, each with its longest
/// one.
/// The length is the number of last `tokens` that also preceded the token earlier.
/// Takes time proportional to the number of tokens.
pub(super) fn repetitions(tokens: &[u32], allowed: usize, breakers: &Breakers) -> BTreeMap<u32, usize> {
    let mut longest = BTreeMap::new();
    if tokens.len() <= allowed {
        return longest;
    }
    let most = breakers.tokens_after(tokens);
    if most < allowed {
        return longest;
    }
    for (back, matched) in suffix_matches(tokens).into_iter().enumerate().skip(1) {
        let length = matched.min(most);
        let next = tokens[tokens.len() - back];
        if length >= allowed && !breakers.is_one(next) {
            let known = longest.entry(next).or_insert(length);
            *known = length.max(*known);
        }
    }
    longest
}

/// For each distance from the end, how many tokens before it match the last tokens.
/// This is the Z function of the reversed tokens (Gusfield, "Algorithms on Strings, Trees and
/// Sequences", 1.3).
fn suffix_matches(tokens: &[u32]) -> Vec<usize> {
    let back = |at: usize| tokens[tokens.len() - 1 - at];
    let mut matches = vec![0; tokens.len()];
    // The match that extends furthest back.
    let (mut start, mut end) = (0, 0);
    for at in 1..tokens.len() {
        let mut matched = if at < end { matches[at - start].min(end - at) } else { 0 };
        while at + matched < tokens.len() && back(matched) == back(at + matched) {
            matched += 1;
        }
        if at + matched > end {
            (start, end) = (at, at + matched);
        }
        matches[at] = matched;
    }
    matches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn breakers(sequences: &[&[u32]]) -> Breakers {
        Breakers::new(sequences.iter().copied())
    }

    /// By definition: for each position, the longest suffix of `tokens` that precedes it.
    fn by_definition(tokens: &[u32], allowed: usize, most: usize) -> BTreeMap<u32, usize> {
        let mut longest = BTreeMap::new();
        for at in 1..tokens.len() {
            let same = |count: &usize| tokens[at - count..at] == tokens[tokens.len() - count..];
            let length = (0..=at).take_while(same).last().unwrap().min(most);
            if length >= allowed {
                let known = longest.entry(tokens[at]).or_insert(length);
                *known = length.max(*known);
            }
        }
        longest
    }

    #[test]
    fn what_prolongs_a_repetition_is_found() {
        let check = |tokens: &[u32], breaks: &[&[u32]], expected: &[(u32, usize)]| {
            let found = repetitions(tokens, 2, &breakers(breaks));
            assert_eq!(found.into_iter().collect::<Vec<_>>(), expected, "{tokens:?} {breaks:?}");
        };
        // a b c c b c y a b c
        check(&[1, 2, 3, 3, 2, 3, 25, 1, 2, 3], &[], &[(3, 3), (25, 2)]);
        check(&[1, 2, 3, 1, 2], &[], &[(3, 2)]);
        check(&[1, 2, 3, 1], &[], &[]);
        check(&[1, 2], &[], &[]);
        // A breaker inside the repetition, at its end, and as the next token.
        check(&[9, 1, 2, 3, 9, 1, 2], &[&[9]], &[(3, 2)]);
        check(&[1, 2, 3, 1, 2], &[&[2]], &[]);
        check(&[1, 2, 3, 1, 2], &[&[3]], &[]);
        // A breaker of two tokens: the second alone breaks nothing.
        check(&[8, 9, 1, 2, 3, 8, 9, 1, 2], &[&[8, 9]], &[(3, 2)]);
        check(&[9, 1, 2, 3, 9, 1, 2], &[&[8, 9]], &[(3, 3)]);
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(tokens in prop::collection::vec(0..3u32, 0..60), allowed in 1..4usize) {
            let expected = by_definition(&tokens, allowed, tokens.len());
            let found = repetitions(&tokens, allowed, &Breakers::default());
            prop_assert_eq!(&found, &expected);
            // A breaker that occurs nowhere else.
            let mut broken = tokens.clone();
            broken.insert(tokens.len() / 2, 9);
            let after = tokens.len() - tokens.len() / 2;
            let mut expected = if after < allowed { BTreeMap::new() } else { by_definition(&broken, allowed, after) };
            expected.remove(&9);
            prop_assert_eq!(repetitions(&broken, allowed, &breakers(&[&[9]])), expected);
        }
    }
}
