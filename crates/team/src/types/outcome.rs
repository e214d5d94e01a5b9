//! How a run of an agent ends.

use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The model answered without a call.
    Answer {
        /// The answer.
        text: String,
    },
    /// The run reached the NPC's limit on turns.
    TurnLimit {
        /// The limit.
        turns: usize,
    },
    /// A turn reached the limit on tokens or the end of the context.
    Length,
    /// The run reached the wall-clock limit.
    Deadline,
    /// The run was cancelled.
    Cancelled,
    /// The model repeats itself.
    Repetition {
        /// The tool, if it made the same call several times in a row.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
    },
    /// The model or the sandbox failed.
    Failed {
        /// The error.
        error: String,
    },
}

impl Outcome {
    /// The outcome in one word, as in a trace.
    pub fn tag(&self) -> &'static str {
        match self {
            Outcome::Answer { .. } => "answer",
            Outcome::TurnLimit { .. } => "turn_limit",
            Outcome::Length => "length",
            Outcome::Deadline => "deadline",
            Outcome::Cancelled => "cancelled",
            Outcome::Repetition { .. } => "repetition",
            Outcome::Failed { .. } => "failed",
        }
    }

    /// Why a run ended without an answer, in words.
    pub fn reason(&self) -> String {
        match self {
            Outcome::Answer { .. } => "it is done".to_owned(),
            Outcome::TurnLimit { turns } => format!("stopped after {turns} turns, the NPC's limit"),
            Outcome::Length => {
                "stopped: a turn reached the limit on tokens or the end of the context".to_owned()
            }
            Outcome::Deadline => "the time is up".to_owned(),
            Outcome::Cancelled => "cancelled".to_owned(),
            Outcome::Repetition { call: Some(call) } => {
                format!("stopped: the same call of {call} again and again")
            }
            Outcome::Repetition { call: None } => "stopped: the model repeats itself".to_owned(),
            Outcome::Failed { error } => error.clone(),
        }
    }
}
