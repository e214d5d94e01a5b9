//! `phases:` of an NPC: which calls it may make when, as data.
//!
//! ```yaml
//! phases:
//!   start: triage
//!   facts: {identified: "ok('get_user*')", verified: "ok('log_verification')"}
//!   retries: {log_verification: [3, escalate]}
//!   queue: {from: planning, before: [[transfer, close]], done: "ok('call_tool')"}
//!   triage: {goal: Find out who asks, tools: [get_user*], expect: either, next: [[verify, identified]]}
//!   execute: {tools: [call_tool], gate: verified, expect: call, next: [[confirm, queue.empty]]}
//! ```
//!
//! A condition is an [expression](crate::expression) over
//! - `ok('get_*')` and `failed('get_*')`: how many calls of such tools succeeded and failed,
//! - `queue.empty`, `queue.pending` and `queue.done`: the tasks,
//! - `turns` and `answers`: the model's turns in this phase, and those that called nothing,
//! - the facts,
//! - the contents of the ledgers of the NPC's gates; an unknown value makes no condition true.
//!
//! The state of a conversation is folded from its events ([`Machine`]).
//! The decoder gets the next turn's options as a choice among the tools; the executor checks too.
//! The prompt stays the same in all phases: changes are appended to the last message.
//!
//! This module must not know how a conversation is recorded, or where ledgers come from.

mod check;
mod condition;
mod machine;
mod order;
mod queue;
mod read;
mod samples;

use serde::{Deserialize, Serialize};

pub use condition::Condition;
pub use machine::{Count, Event, Machine, Standing, State};
pub use order::{Order, order};
pub use queue::{PLAN, Queue};
pub use read::{Listed, read};

/// The phases of an NPC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// The phase in which a conversation begins.
    pub start: String,
    /// Facts that conditions may name, in the order of the file.
    /// Each sees those before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
    /// The list of tasks, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// How often tools may fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retries: Vec<Budget>,
    /// The phases, in the order of the file.
    pub phases: Vec<Phase>,
}

/// A name for a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// The name.
    pub name: String,
    /// When it is true.
    pub when: Condition,
}

/// How often a tool may fail in a row.
/// Nothing overrides it: it is checked before gates and ways.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The tools, each with its own count: a name, in which `*` matches anything.
    pub tool: String,
    /// The number of failures in a row that uses it up.
    pub failures: u64,
    /// The phase that follows; the count restarts then.
    pub phase: String,
}

/// A phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// The name.
    pub name: String,
    /// The model's goal in it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub goal: String,
    /// Which of the NPC's tools may be called: names, in which `*` matches anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// The kind of the model's turns.
    #[serde(default)]
    pub expect: Expect,
    /// The condition for being in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// The following phases; the first condition that is true decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<Next>,
}

/// The kind of the model's turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expect {
    /// A text: no tool can be called.
    Text,
    /// A call of one of the phase's tools.
    Call,
    /// Either.
    #[default]
    Either,
}

impl Expect {
    /// The names of all.
    pub const NAMES: [&str; 3] = ["text", "call", "either"];

    fn named(name: &str) -> Option<Self> {
        [Expect::Text, Expect::Call, Expect::Either]
            .into_iter()
            .zip(Expect::NAMES)
            .find(|(_, known)| *known == name)
            .map(|(expect, _)| expect)
    }
}

/// A condition for being in a phase, and the phase that is entered otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// The condition.
    pub when: Condition,
    /// The phase that can make it true.
    pub phase: String,
}

/// A way out of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    /// The phase that follows.
    pub phase: String,
    /// The condition.
    pub when: Condition,
}

impl Phases {
    /// A phase by its name.
    pub fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

#[cfg(test)]
mod tests;
