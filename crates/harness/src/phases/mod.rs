//! `phases:` of an NPC: what it may do when, as data.
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
//! - what the ledgers of the NPC's gates know; what they don't know meets no condition.
//!
//! Where a conversation stands is folded from what happened in it ([`Machine`]).
//! The decoder gets what may come next as a choice among the tools; the executor asks too.
//! The prompt stays the same in all phases: what changed is appended to the last message.
//!
//! This module must not know how a conversation is recorded, and where ledgers come from.

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
    /// What conditions may name, in the order of the file.
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
    /// When it holds.
    pub when: Condition,
}

/// How often a tool may fail in a row.
/// Nothing overrides it: it is looked at before gates and ways.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The tools, each with a count of its own: a name, in which `*` stands for anything.
    pub tool: String,
    /// At which failure in a row it is used up.
    pub failures: u64,
    /// The phase that follows; the count begins anew then.
    pub phase: String,
}

/// A phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// The name.
    pub name: String,
    /// What the model is told to do in it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub goal: String,
    /// Which of the NPC's tools may be called: names, in which `*` stands for anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// What a turn of the model is.
    #[serde(default)]
    pub expect: Expect,
    /// What must hold to be in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// Where it goes on; the first condition that holds decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<Next>,
}

/// What a turn of the model is.
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

/// What must hold to be in a phase, and where one is otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// The condition.
    pub when: Condition,
    /// The phase that can make it hold.
    pub phase: String,
}

/// A way out of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    /// The phase that follows.
    pub phase: String,
    /// When.
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
