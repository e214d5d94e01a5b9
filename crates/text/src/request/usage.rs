//! What a turn cost, and what speculative decoding, the prefix cache and the grammar had to do with
//! it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a turn cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that were not computed again, since what they leave behind was in
    /// memory or on disk.
    pub cached_tokens: usize,
    /// Of these, the tokens for which it was read from disk.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub disk_tokens: usize,
    /// Why no more of them were; `None` if nothing in the cache goes on after them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miss: Option<Miss>,
    /// The text of the request's `stop` that ended the turn; `None` if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_text: Option<String>,
    /// What stood in the place of the turn's calls; `None` if they were written as the format has
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<Box<Recovered>>,
    /// Tokens generated.
    pub completion_tokens: usize,
    /// Time from the request to the first generated token.
    #[serde(with = "seconds")]
    pub time_to_first_token: Duration,
    /// Time of the steps that computed the prompt, or what was not cached of it.
    #[serde(default, with = "seconds", skip_serializing_if = "Duration::is_zero")]
    pub prefill_time: Duration,
    /// Of that, what it took to keep state of the prompt for later ones to go on from.
    #[serde(default, with = "seconds", skip_serializing_if = "Duration::is_zero")]
    pub snapshot_time: Duration,
    /// Time from the first generated token to the last; zero where that is not known, as of an
    /// answer that came all at once.
    #[serde(with = "seconds")]
    pub decode_time: Duration,
    /// Of a sum: the tokens of those turns whose time of decode is not known.
    #[serde(skip)]
    pub untimed_tokens: usize,
    /// What the grammar took part in; all zero for a turn without one.
    #[serde(default)]
    pub grammar: GrammarUsage,
    /// Draft tokens, and how many of them were accepted.
    #[serde(default)]
    pub drafts: DraftUsage,
    /// What of the tools' schemas the grammar did not guarantee: tool, keyword, place and reason of
    /// each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loosened: Vec<String>,
}

/// The text of a turn whose calls were not written as such.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// It; no part of the answer.
    pub text: String,
    /// Whether it was no complete call, so that the turn's calls are a second try, under a grammar.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
}

/// Speculative decoding by prompt lookup.
/// It never changes an answer: an accepted token saves a step, a rejected one costs a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DraftUsage {
    /// Draft tokens that were computed.
    pub drafted: usize,
    /// Of these, those that were then sampled too.
    pub accepted: usize,
}

impl std::ops::AddAssign for DraftUsage {
    fn add_assign(&mut self, other: Self) {
        self.drafted += other.drafted;
        self.accepted += other.accepted;
    }
}

/// Why no more of a prompt was found in the prefix cache.
/// `at`: how many of its tokens were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Miss {
    /// The prompt that it has most in common with goes on otherwise.
    Diverged {
        /// Tokens that were found.
        at: usize,
        /// The text around that point, in this prompt.
        prompt: String,
        /// And in the other.
        kept: String,
    },
    /// More was cached once, and evicted since.
    Evicted {
        /// Tokens that were found.
        at: usize,
        /// How many more there were.
        tokens: usize,
    },
    /// More keys and values are cached, but not the recurrent or windowed state that it takes to go
    /// on after them.
    NoState {
        /// Tokens that were found.
        at: usize,
        /// How many more there are.
        tokens: usize,
    },
}

impl std::fmt::Display for Miss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Miss::Diverged { at, prompt, kept } => {
                write!(f, "diverged at token {at}: {prompt:?} against {kept:?}")
            }
            Miss::Evicted { at, tokens } => {
                write!(f, "evicted after token {at}: {tokens} more were kept once")
            }
            Miss::NoState { at, tokens } => {
                write!(f, "no state at the boundary: {tokens} more tokens are kept after token {at}")
            }
        }
    }
}

/// What the grammar did in a turn, or in several: the fields of turns add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GrammarUsage {
    /// Grammars that had to be compiled; the others were at hand from earlier turns.
    pub compiled: usize,
    /// Time to get hold of the compiled grammar, before the prompt is computed.
    #[serde(with = "seconds")]
    pub prepare_time: Duration,
    /// Time that the grammar took between forward passes, while the model waited.
    #[serde(with = "seconds")]
    pub step_time: Duration,
    /// Masks computed: the tokens that may follow, out of the whole vocabulary.
    pub masks: usize,
    /// Tokens sampled without a mask that the grammar rejected.
    pub rejected_tokens: usize,
    /// Tokens that the grammar left no choice about, appended without being sampled.
    pub forced_tokens: usize,
}

impl std::ops::AddAssign for GrammarUsage {
    fn add_assign(&mut self, other: Self) {
        self.compiled += other.compiled;
        self.prepare_time += other.prepare_time;
        self.step_time += other.step_time;
        self.masks += other.masks;
        self.rejected_tokens += other.rejected_tokens;
        self.forced_tokens += other.forced_tokens;
    }
}

impl Usage {
    /// Tokens generated in a second of decode, of those whose time is known.
    /// `None`: of none it is.
    pub fn tokens_per_second(&self) -> Option<f64> {
        let timed = self.completion_tokens.saturating_sub(self.untimed());
        (timed > 0).then(|| timed as f64 / self.decode_time.as_secs_f64())
    }

    fn untimed(&self) -> usize {
        if self.decode_time.is_zero() { self.completion_tokens } else { self.untimed_tokens }
    }
}

/// Adds what a later turn cost.
/// The time to the first token stays the first turn's, a miss is the latest turn's, and so is what
/// was recovered.
impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, later: Usage) {
        if *self == Usage::default() {
            *self = later;
            return;
        }
        self.untimed_tokens = self.untimed() + later.untimed();
        self.prompt_tokens += later.prompt_tokens;
        self.cached_tokens += later.cached_tokens;
        self.disk_tokens += later.disk_tokens;
        self.miss = later.miss;
        self.stop_text = later.stop_text;
        self.recovered = later.recovered.or(self.recovered.take());
        self.completion_tokens += later.completion_tokens;
        self.prefill_time += later.prefill_time;
        self.snapshot_time += later.snapshot_time;
        self.decode_time += later.decode_time;
        self.grammar += later.grammar;
        self.drafts += later.drafts;
        for loosened in later.loosened {
            if !self.loosened.contains(&loosened) {
                self.loosened.push(loosened);
            }
        }
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(value.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grammars_did_adds_up() {
        let one = GrammarUsage {
            compiled: 1,
            prepare_time: Duration::from_millis(2),
            step_time: Duration::from_millis(3),
            masks: 4,
            rejected_tokens: 5,
            forced_tokens: 6,
        };
        let mut two = one;
        two += GrammarUsage { compiled: 0, ..one };
        let times = (two.prepare_time.as_millis(), two.step_time.as_millis());
        assert_eq!((two.compiled, times, two.masks), (1, (4, 6), 8));
        assert_eq!((two.rejected_tokens, two.forced_tokens), (10, 12));
    }
}
