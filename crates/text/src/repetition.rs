//! Notices that a turn repeats itself: a cycle of tokens without end, or the same call again and
//! again.

use serde_json::{Map, Value};

/// The longest cycle that is noticed, in tokens.
/// Cost: as many comparisons a token.
const PERIOD: usize = 64;
/// How often a cycle must have come in a row to count as endless, and how many tokens that must be
/// at least.
/// Cost: a model that writes the same 256 tokens' worth of filling in earnest is cut off.
/// More lets a stuck one waste as much more time.
const CYCLES: usize = 16;
const TOKENS: usize = 256;

/// How often a turn may make the same call; the last one is not made.
const SAME_CALLS: usize = 3;
/// Most calls of one turn.
const CALLS: usize = 64;

/// Watches the tokens of one turn for a cycle.
#[derive(Debug)]
pub struct CycleDetector {
    /// For each period, how many of the latest tokens equal the one that stands a period before
    /// them.
    repeated: [usize; PERIOD],
}

impl Default for CycleDetector {
    fn default() -> Self {
        CycleDetector { repeated: [0; PERIOD] }
    }
}

impl CycleDetector {
    /// Takes note of the last of the turn's `tokens`, all of which were noted before it.
    pub fn note(&mut self, tokens: &[u32]) {
        let Some((last, before)) = tokens.split_last() else { return };
        for (count, earlier) in self.repeated.iter_mut().zip(before.iter().rev()) {
            *count = if earlier == last { *count + 1 } else { 0 };
        }
    }

    /// Whether the turn has been repeating itself for long.
    pub fn repeats(&self) -> bool {
        self.repeated
            .iter()
            .zip(1..)
            .any(|(count, period)| count + period >= TOKENS.max(CYCLES * period) && *count > 0)
    }
}

/// Watches the calls of one turn.
#[derive(Debug, Default)]
pub struct CallLog {
    made: Vec<(String, Map<String, Value>)>,
}

/// What to do with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallDecision {
    /// Make it.
    Make,
    /// The same call was made too often.
    Repeated,
    /// The turn has had its calls.
    TooMany,
}

impl CallLog {
    /// Whether there is one.
    pub fn any(&self) -> bool {
        !self.made.is_empty()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.made.len()
    }

    /// Takes note of a call.
    pub fn note(&mut self, name: &str, arguments: &Map<String, Value>) -> CallDecision {
        let same = |made: &&(String, Map<String, Value>)| made.0 == name && made.1 == *arguments;
        if self.made.iter().filter(same).count() + 1 >= SAME_CALLS {
            return CallDecision::Repeated;
        }
        if self.made.len() >= CALLS {
            return CallDecision::TooMany;
        }
        self.made.push((name.to_owned(), arguments.clone()));
        CallDecision::Make
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// After how many of the tokens the turn counts as endless.
    fn noticed(tokens: impl IntoIterator<Item = u32>) -> Option<usize> {
        let (mut cycles, mut seen) = (CycleDetector::default(), Vec::new());
        for token in tokens {
            seen.push(token);
            cycles.note(&seen);
            if cycles.repeats() {
                return Some(seen.len());
            }
        }
        None
    }

    #[test]
    fn cycles_are_noticed_once_they_are_long() {
        let check = |lead: u32, period: u32, expected: Option<usize>| {
            let tokens = (1000..1000 + lead).chain((0..period).cycle().take(2000));
            assert_eq!(noticed(tokens), expected, "a cycle of {period} after {lead} others");
        };
        check(0, 1, Some(256));
        check(100, 1, Some(356));
        check(3, 2, Some(259));
        check(0, 16, Some(256));
        check(0, 17, Some(272));
        check(7, 64, Some(7 + 1024));
        check(0, 65, None);
    }

    #[test]
    fn counting_is_no_repetition() {
        // `1, 2, 3, …` with a token a number.
        assert_eq!(noticed((0..4000).map(|n| if n % 2 == 0 { 7 } else { 100 + n })), None);
        // A pause resets a cycle.
        assert_eq!(noticed((0..4000).map(|n| if n % 250 == 0 { 8 } else { 7 })), None);
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(tokens in prop::collection::vec(0..2u32, 0..600), period in 1..5usize) {
            // Random bits hardly ever repeat; a cycle is built in behind them.
            let cycle: Vec<u32> = tokens.iter().copied().take(period).collect();
            let turn: Vec<u32> = tokens.iter().chain(cycle.iter().cycle().take(if cycle.is_empty() { 0 } else { 300 })).copied().collect();
            let endless = |turn: &[u32]| (1..=PERIOD).any(|period| {
                let length = TOKENS.max(CYCLES * period);
                turn.len() >= length && turn[turn.len() - length..].windows(period + 1).all(|w| w[0] == w[period])
            });
            prop_assert_eq!(noticed(turn.iter().copied()), (1..=turn.len()).find(|&length| endless(&turn[..length])));
        }
    }

    #[test]
    fn the_third_equal_call_and_the_65th_are_not_made() {
        let arguments = |n: usize| json!({"n": n, "of": 2}).as_object().cloned().unwrap();
        let mut calls = CallLog::default();
        assert_eq!(calls.note("a", &arguments(1)), CallDecision::Make);
        assert_eq!(calls.note("b", &arguments(1)), CallDecision::Make);
        assert_eq!(calls.note("a", &arguments(1)), CallDecision::Make);
        assert_eq!(calls.note("a", &arguments(2)), CallDecision::Make);
        let reordered = json!({"of": 2, "n": 1}).as_object().cloned().unwrap();
        assert_eq!(calls.note("a", &reordered), CallDecision::Repeated);
        for n in 4..CALLS {
            assert_eq!(calls.note("a", &arguments(n)), CallDecision::Make);
        }
        assert_eq!(calls.note("a", &arguments(99)), CallDecision::TooMany);
        assert_eq!(calls.note("a", &arguments(1)), CallDecision::Repeated);
    }
}
