//! The limits of an NPC's runs.

use serde::{Deserialize, Serialize};

/// The limits of an NPC's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Most turns of the model for one user message.
    /// Default 12.
    pub turns: usize,
    /// Most tokens that one turn may generate.
    /// Default 4096.
    /// A turn that reaches it ends the run, so that a model that never stops doesn't fill its
    /// context first.
    pub turn_tokens: usize,
    /// Most tokens of reasoning in one turn: then the reasoning is closed, and the model continues
    /// with its answer.
    /// Default none, apart from `turn_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<usize>,
    /// Most calls of one turn; further ones aren't run.
    /// Default 64.
    pub turn_calls: usize,
    /// How many equal results of the same call in a row end the run.
    /// From the second on, the model gets a hint about it.
    /// Default 5, and at least 2.
    pub repeated_calls: usize,
    /// Most bytes of one tool's output that the model reads.
    /// Default 16384.
    pub tool_output_bytes: usize,
    /// Most seconds for one user message.
    /// Default none.
    pub seconds: Option<u64>,
    /// Most nested conversations: an NPC that delegates to one that delegates.
    /// Default 3.
    pub depth: usize,
    /// Most tokens of the conversation that are sent to the model; beyond that, older messages are
    /// summarised.
    /// Default: as many as fit into the model's context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            turns: 12,
            turn_tokens: 4096,
            reasoning_tokens: None,
            turn_calls: 64,
            repeated_calls: 5,
            tool_output_bytes: 16 * 1024,
            seconds: None,
            depth: 3,
            window: None,
        }
    }
}
