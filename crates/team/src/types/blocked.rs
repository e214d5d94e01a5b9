//! Why a gate refused a call.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The refusal of a call by a rule of a gate, as the model reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// The rule's name.
    pub rule: String,
    /// The reason, in words.
    pub reason: String,
    /// The facts that the rule used, by path.
    #[serde(default)]
    pub facts: Map<String, Value>,
    /// The paths of the facts that must be known first.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// The call that reads them, if the rule names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<String>,
}

impl Blocked {
    /// Picks the refusal to report of two gates: the first, unless it only asks for a read, which
    /// wouldn't fix the other.
    pub fn to_report(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) if !first.unknown.is_empty() && second.unknown.is_empty() => {
                Some(second)
            }
            (first, second) => first.or(second),
        }
    }
}
