//! The cost of a turn, and the part that speculative decoding, the prefix cache and the grammar had
//! in it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The cost of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, including cached ones.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that were not recomputed, since their state was cached in memory or on
    /// disk.
    pub cached_tokens: usize,
    /// Of these, the tokens whose state was read from disk.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub disk_tokens: usize,
    /// Why no more tokens were cached; `None` if no cached prompt continues after them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miss: Option<Miss>,
    /// The text in the request's `stop` that ended the turn; `None` if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_text: Option<String>,
    /// The text that replaced the turn's calls; `None` if they were written in the model's format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<Box<Recovered>>,
    /// Number of generated tokens.
    pub completion_tokens: usize,
    /// Time from the request to the first generated token.
    #[serde(with = "seconds")]
    pub time_to_first_token: Duration,
    /// Time of the steps that computed the uncached part of the prompt.
    #[serde(default, with = "seconds", skip_serializing_if = "Duration::is_zero")]
    pub prefill_time: Duration,
    /// Of that, the time for saving state of the prompt, from which later prompts can continue.
    #[serde(default, with = "seconds", skip_serializing_if = "Duration::is_zero")]
    pub snapshot_time: Duration,
    /// Time from the first generated token to the last; zero if unknown, for example for an answer
    /// that arrived all at once.
    #[serde(with = "seconds")]
    pub decode_time: Duration,
    /// In a sum: the tokens of the turns whose decode time is unknown.
    #[serde(skip)]
    pub untimed_tokens: usize,
    /// Work of the grammar; all zero for a turn without one.
    #[serde(default)]
    pub grammar: GrammarUsage,
    /// Draft tokens, and how many of them were accepted.
    #[serde(default)]
    pub drafts: DraftUsage,
    /// Constraints of the tools' schemas that the grammar did not guarantee: each with tool,
    /// keyword, place and reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loosened: Vec<String>,
}

/// The text of a turn whose calls were not written in the call format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The text; not part of the answer.
    pub text: String,
    /// Whether the text was an incomplete call, so that the calls come from a second attempt under
    /// a grammar.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
}

/// Speculative decoding by prompt lookup.
/// It never changes an answer: an accepted token saves a step, a rejected one costs a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DraftUsage {
    /// Draft tokens computed.
    pub drafted: usize,
    /// Of these, the tokens that were accepted.
    pub accepted: usize,
}

impl std::ops::AddAssign for DraftUsage {
    fn add_assign(&mut self, other: Self) {
        self.drafted += other.drafted;
        self.accepted += other.accepted;
    }
}

/// Why no more of a prompt was found in the prefix cache.
/// `at` is the number of tokens found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Miss {
    /// The most similar cached prompt continues differently.
    Diverged {
        /// Number of tokens found.
        at: usize,
        /// This prompt's text around that point.
        prompt: String,
        /// The cached prompt's text around that point.
        kept: String,
    },
    /// More tokens were cached earlier, but have been evicted.
    Evicted {
        /// Number of tokens found.
        at: usize,
        /// Number of evicted tokens.
        tokens: usize,
    },
    /// More keys and values are cached, but not the recurrent or windowed state needed to continue
    /// from them.
    NoState {
        /// Number of tokens found.
        at: usize,
        /// Number of further tokens with cached keys and values.
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

/// Work of the grammar in one turn, or summed over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GrammarUsage {
    /// Grammars compiled; others were cached from earlier turns.
    pub compiled: usize,
    /// Time to get the compiled grammar, before the prompt is computed.
    #[serde(with = "seconds")]
    pub prepare_time: Duration,
    /// Time spent on the grammar between forward passes, while the model waited.
    #[serde(with = "seconds")]
    pub step_time: Duration,
    /// Masks computed over the whole vocabulary.
    pub masks: usize,
    /// Tokens sampled without a mask that the grammar rejected.
    pub rejected_tokens: usize,
    /// Tokens forced by the grammar, appended without being sampled.
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
    /// Tokens generated per second of decode, counting those with a known time.
    /// `None` if there are none.
    pub fn tokens_per_second(&self) -> Option<f64> {
        let timed = self.completion_tokens.saturating_sub(self.untimed());
        (timed > 0).then(|| timed as f64 / self.decode_time.as_secs_f64())
    }

    fn untimed(&self) -> usize {
        if self.decode_time.is_zero() { self.completion_tokens } else { self.untimed_tokens }
    }
}

/// Adds the cost of a later turn.
/// Keeps the first turn's time to the first token, and takes the latest turn's miss and recovered
/// text.
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
