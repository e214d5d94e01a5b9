//! The phase, facts and unlocked tools of a conversation, followed record by record, and the blocks
//! that tell the model about them.
//!
//! A block is appended to the message after which the state changed; earlier messages don't change,
//! so the cached prompt stays valid.

use std::collections::BTreeMap;

use alara_engine::{Message, Role, Tool};

use super::{Record, fold};
use crate::hidden;
use crate::ledger::Ledger;
use crate::phases::{Event, Machine};

/// The state of a conversation, and the part of it that the model has read.
#[derive(Debug, Default)]
pub struct Followed<'a> {
    now: Now<'a>,
    /// The state before the last message of the user, which may be retracted.
    before: Option<Now<'a>>,
    /// The ledger of each gate of the session, by its file: effects of calls can't be retracted.
    ledgers: BTreeMap<String, Ledger>,
    /// The gates that bind the NPC.
    gates: &'a [String],
    /// Whether the model reads the facts that they know.
    shown: bool,
    /// The tools that may be unlocked.
    hidden: &'a [Tool],
}

#[derive(Clone, Debug, Default)]
struct Now<'a> {
    machine: Option<Machine<'a>>,
    /// The records so far, in case other phases replace the current ones.
    seen: Vec<&'a Record>,
    running: Option<&'a str>,
    /// The last block on phases that the model has read.
    phase: String,
    /// The facts that the model has read, by their paths.
    facts: BTreeMap<String, String>,
    /// The unlocked tools, in the order of unlocking.
    unlocked: Vec<&'a str>,
    /// Whether the messages about them are gone.
    untold: bool,
}

impl<'a> Followed<'a> {
    /// The phases and the current state; `None` if there are no phases.
    pub fn machine(&self) -> Option<&Machine<'a>> {
        self.now.machine.as_ref()
    }

    /// The unlocked hidden tools, in the order of unlocking.
    pub fn unlocked(&self) -> Vec<&'a Tool> {
        let of = |name: &&str| self.hidden.iter().find(|tool| tool.name == *name);
        self.now.unlocked.iter().filter_map(of).collect()
    }

    /// Each fact that the gates know, with its path.
    pub fn facts(&self) -> BTreeMap<String, String> {
        let known = known(&self.ledgers, self.gates).into_iter().rev();
        known.flat_map(Ledger::described).collect()
    }

    /// Applies the next record.
    pub fn follow(&mut self, record: &'a Record) {
        match record {
            Record::Start(start) => {
                (self.gates, self.shown) = (&start.gates, !start.ledger_hidden);
                self.hidden = &start.hidden;
                let ledgers = known(&self.ledgers, self.gates);
                let machine = start.phases.as_ref().map(|phases| Machine::new(phases, &ledgers));
                self.now.begin(machine, &ledgers, self.hidden);
            }
            Record::User { .. } => self.before = Some(self.now.clone()),
            Record::Retract => {
                if let Some(before) = self.before.take() {
                    self.now = before;
                }
            }
            // The messages with the blocks are gone.
            Record::Compaction { .. } => {
                self.now.phase.clear();
                self.now.facts.clear();
                self.now.untold = true;
            }
            Record::Ledger { .. } => fold::take_over(&mut self.ledgers, record),
            _ => {}
        }
        self.now.take_up(record, &known(&self.ledgers, self.gates), self.hidden);
    }

    /// Appends the state to the last message, if it has changed and it is the model's turn.
    pub fn tell(&mut self, messages: &mut [Message]) {
        let Some(last) = messages.last_mut().filter(|last| matches!(last.role, Role::User | Role::Tool))
        else {
            return;
        };
        if std::mem::take(&mut self.now.untold) {
            let unlocked: Vec<String> =
                self.unlocked().into_iter().map(|tool| hidden::describe(tool).to_string()).collect();
            if !unlocked.is_empty() {
                last.content += &format!("\n\n<unlocked>\n{}\n</unlocked>", unlocked.join("\n"));
            }
        }
        if self.shown {
            let facts = self.facts();
            let new = facts.iter().filter(|(path, fact)| self.now.facts.get(*path) != Some(*fact));
            let new: Vec<String> = new.map(|(path, fact)| format!("{path}: {fact}")).collect();
            if !new.is_empty() {
                last.content += &format!("\n\n<ledger>\n{}\n</ledger>", new.join("\n"));
            }
            self.now.facts = facts;
        }
        let Some(machine) = &self.now.machine else { return };
        let block = machine.block();
        if block != self.now.phase {
            last.content += &format!("\n\n{block}");
            self.now.phase = block;
        }
    }
}

/// The facts that these gates know.
fn known<'l>(ledgers: &'l BTreeMap<String, Ledger>, gates: &[String]) -> Vec<&'l Ledger> {
    gates.iter().filter_map(|gate| ledgers.get(gate)).collect()
}

impl<'a> Now<'a> {
    /// Begins other phases; past records count for them too.
    fn begin(&mut self, machine: Option<Machine<'a>>, ledgers: &[&Ledger], hidden: &[Tool]) {
        if self.machine.as_ref().map(Machine::phases) == machine.as_ref().map(Machine::phases) {
            return;
        }
        self.machine = machine;
        self.running = None;
        self.unlocked.clear();
        for record in std::mem::take(&mut self.seen) {
            self.take_up(record, ledgers, hidden);
        }
    }

    fn take_up(&mut self, record: &'a Record, ledgers: &[&Ledger], hidden: &[Tool]) {
        let running = self.running.take();
        let event = match record {
            Record::User { .. } => Event::User,
            Record::Assistant { message, .. } => Event::Turn { calls: !message.tool_calls.is_empty() },
            Record::ToolCall { call } => {
                self.running = Some(&call.id);
                self.seen.push(record);
                return;
            }
            // Others were answered without being made, or undone: the run was cancelled or killed.
            Record::ToolResult { call, result, .. }
                if running == Some(call.id.as_str()) && result.interrupted.is_none() =>
            {
                let unlocked = hidden::unlocked(call, result);
                let unlocked = unlocked.filter(|name| hidden.iter().any(|tool| tool.name == *name));
                self.unlocked.extend(unlocked.filter(|name| !self.unlocked.contains(name)));
                // Any other name is arbitrary text.
                let inner = hidden::named(call).filter(|name| self.unlocked.contains(name));
                Event::Result { tool: &call.name, inner, arguments: &call.arguments, ok: result.ok }
            }
            _ => {
                self.running = running;
                return;
            }
        };
        self.seen.push(record);
        if let Some(machine) = &mut self.machine {
            machine.apply(event, ledgers);
        }
    }
}
