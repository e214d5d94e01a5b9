//! Detects turns that repeat themselves: an endless cycle of tokens, or the same call over and
//! over.

use serde_json::{Map, Value};

/// The longest cycle detected, in tokens.
/// Cost: this many comparisons per token.
const PERIOD: usize = 256;
/// How many consecutive repetitions make a cycle endless, and how many tokens they must have at
/// least.
/// Cost: a model that intentionally writes 256 tokens of repetitive filler is cut off.
/// A higher value would let a stuck model waste proportionally more time.
const CYCLES: usize = 16;
const TOKENS: usize = 256;
/// Cycles longer than this, such as calls that alternate, must come less often, but in more tokens.
const SHORT: usize = 64;
const LONG_CYCLES: usize = 6;
const LONG_TOKENS: usize = 1024;

/// At which identical call a turn is ended; that call isn't made.
const SAME_CALLS: usize = 3;
/// Most calls of one turn.
const CALLS: usize = 64;

/// Watches the tokens of one turn for a cycle.
#[derive(Debug)]
pub struct CycleDetector {
    /// For each period, how many of the latest tokens equal the token one period before them.
    repeated: [usize; PERIOD],
}

impl Default for CycleDetector {
    fn default() -> Self {
        CycleDetector { repeated: [0; PERIOD] }
    }
}

impl CycleDetector {
    /// Records the last of the turn's `tokens`; all earlier ones must have been recorded.
    pub fn note(&mut self, tokens: &[u32]) {
        let Some((last, before)) = tokens.split_last() else { return };
        for (count, earlier) in self.repeated.iter_mut().zip(before.iter().rev()) {
            *count = if earlier == last { *count + 1 } else { 0 };
        }
    }

    /// Whether the turn has entered an endless cycle.
    pub fn repeats(&self) -> bool {
        self.repeated.iter().zip(1..).any(|(count, period)| count + period >= endless(period) && *count > 0)
    }
}

/// How many tokens a cycle of this length must have to be endless.
fn endless(period: usize) -> usize {
    match period <= SHORT {
        true => TOKENS.max(CYCLES * period),
        false => LONG_TOKENS.max(LONG_CYCLES * period),
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
    /// Don't make it: the same call was made too often.
    Repeated,
    /// Don't make it: the turn has reached its limit of calls.
    TooMany,
}

impl CallLog {
    /// Whether any calls were recorded.
    pub fn any(&self) -> bool {
        !self.made.is_empty()
    }

    /// Number of recorded calls.
    pub fn count(&self) -> usize {
        self.made.len()
    }

    /// Records a call.
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

    /// After how many of the tokens a turn counts as endless.
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
        check(0, 65, Some(1024));
        check(0, 256, Some(1536));
        check(0, 257, None);
    }

    #[test]
    fn counting_is_no_repetition() {
        // `1, 2, 3, …` with one token per number.
        assert_eq!(noticed((0..4000).map(|n| if n % 2 == 0 { 7 } else { 100 + n })), None);
        // An interruption resets a cycle.
        assert_eq!(noticed((0..4000).map(|n| if n % 250 == 0 { 8 + n / 250 } else { 7 })), None);
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(tokens in prop::collection::vec(0..2u32, 0..600), period in 1..5usize) {
            // Random bits hardly ever repeat; append a cycle to them.
            let cycle: Vec<u32> = tokens.iter().copied().take(period).collect();
            let turn: Vec<u32> = tokens.iter().chain(cycle.iter().cycle().take(if cycle.is_empty() { 0 } else { 300 })).copied().collect();
            let is_endless = |turn: &[u32]| (1..=PERIOD).any(|period| {
                let length = endless(period);
                turn.len() >= length && turn[turn.len() - length..].windows(period + 1).all(|w| w[0] == w[period])
            });
            prop_assert_eq!(noticed(turn.iter().copied()), (1..=turn.len()).find(|&length| is_endless(&turn[..length])));
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
