//! How long an NPC may go on.

use serde::{Deserialize, Serialize};

/// How long an NPC may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Most turns of the model for one user message.
    /// Default 12.
    pub turns: usize,
    /// Most tokens that one turn may generate.
    /// Default 4096.
    /// A turn that reaches it ends the run, so that a model that never stops does not fill its
    /// context first.
    pub turn_tokens: usize,
    /// Most tokens of reasoning in one turn: after so many it is ended for the model, which goes on
    /// with its answer.
    /// Default none beside `turn_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<usize>,
    /// Most calls of one turn; those beyond are not run.
    /// Default 64.
    pub turn_calls: usize,
    /// After how many equal results of the same call in a row the run ends.
    /// From the second on, the model gets a hint about it.
    /// Default 5, and at least 2.
    pub repeated_calls: usize,
    /// Most bytes of one tool's output that the model gets to read.
    /// Default 16384.
    pub tool_output_bytes: usize,
    /// Most seconds for one user message.
    /// Default none.
    pub seconds: Option<u64>,
    /// Most conversations inside of each other: an NPC that gives work to one that gives work.
    /// Default 3.
    pub depth: usize,
    /// Most tokens of the conversation that are sent to the model; older messages are then summed
    /// up.
    /// Default: what fits the model's context.
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
