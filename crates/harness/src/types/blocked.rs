//! Why a gate did not let a call through.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A call that a rule of a gate stands against: what the model is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// The rule's name.
    pub rule: String,
    /// Why, in words.
    pub reason: String,
    /// The facts that the rule looked at, by path.
    #[serde(default)]
    pub facts: Map<String, Value>,
    /// The paths of what would have to be known first.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// The call that makes it known, if the rule names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<String>,
}

impl Blocked {
    /// What is told of what two gates say of a call: the first that stands against it, but for one
    /// that only wants something to be read, which would not cure the other.
    pub fn told(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) if !first.unknown.is_empty() && second.unknown.is_empty() => {
                Some(second)
            }
            (first, second) => first.or(second),
        }
    }
}
