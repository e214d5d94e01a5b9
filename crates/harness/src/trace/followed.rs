//! The phases of a conversation, what its gates know and what is unlocked, followed record by
//! record, and what the model is told of them.
//!
//! What is told is a block behind the message that changed it; no message before is touched, so the
//! cached prompt stays.

use std::collections::BTreeMap;

use alara_engine::{Message, Role, Tool};

use super::{Record, fold};
use crate::hidden;
use crate::ledger::Ledger;
use crate::phases::{Event, Machine};

/// Where a conversation stands, and what of that its model was told.
#[derive(Debug, Default)]
pub struct Followed<'a> {
    now: Now<'a>,
    /// What the last message of the user began with; it may be taken back.
    before: Option<Now<'a>>,
    /// What each gate of the session knows, by its file: what was done is not taken back.
    ledgers: BTreeMap<String, Ledger>,
    /// The gates that bind the NPC.
    gates: &'a [String],
    /// Whether the model is told what they know.
    shown: bool,
    /// The tools that may be unlocked.
    hidden: &'a [Tool],
}

#[derive(Clone, Debug, Default)]
struct Now<'a> {
    machine: Option<Machine<'a>>,
    /// What happened so far, for phases that others take the place of.
    seen: Vec<&'a Record>,
    /// The call that is being run.
    running: Option<&'a str>,
    /// The last block on phases that the model was told.
    phase: String,
    /// What the model was told of facts, by their paths.
    facts: BTreeMap<String, String>,
    /// The tools that are unlocked, in that order.
    unlocked: Vec<&'a str>,
    /// Whether the messages that told of them are gone.
    untold: bool,
}

impl<'a> Followed<'a> {
    /// Where it stands; `None` = there are no phases.
    pub fn machine(&self) -> Option<&Machine<'a>> {
        self.now.machine.as_ref()
    }

    /// The hidden tools that are unlocked, in that order.
    pub fn unlocked(&self) -> Vec<&'a Tool> {
        let of = |name: &&str| self.hidden.iter().find(|tool| tool.name == *name);
        self.now.unlocked.iter().filter_map(of).collect()
    }

    /// Each fact that the gates know, with its path.
    pub fn facts(&self) -> BTreeMap<String, String> {
        let known = known(&self.ledgers, self.gates).into_iter().rev();
        known.flat_map(Ledger::told).collect()
    }

    /// Takes up what happened next.
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
            // The messages that told it are gone.
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

    /// Tells the model behind the last message where it stands and what is known, as far as that
    /// has changed and it is its turn.
    pub fn tell(&mut self, messages: &mut [Message]) {
        let Some(last) = messages.last_mut().filter(|last| matches!(last.role, Role::User | Role::Tool))
        else {
            return;
        };
        if std::mem::take(&mut self.now.untold) {
            let unlocked: Vec<String> =
                self.unlocked().into_iter().map(|tool| hidden::told(tool).to_string()).collect();
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

/// What these gates know.
fn known<'l>(ledgers: &'l BTreeMap<String, Ledger>, gates: &[String]) -> Vec<&'l Ledger> {
    gates.iter().filter_map(|gate| ledgers.get(gate)).collect()
}

impl<'a> Now<'a> {
    /// Other phases begin; what has happened counts for them too.
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
            // Others were answered without being made, or were taken back: the run was cancelled or
            // killed.
            Record::ToolResult { call, result, .. }
                if running == Some(call.id.as_str()) && result.interrupted.is_none() =>
            {
                let unlocked = hidden::unlocked(call, result);
                let unlocked = unlocked.filter(|name| hidden.iter().any(|tool| tool.name == *name));
                self.unlocked.extend(unlocked.filter(|name| !self.unlocked.contains(name)));
                // What it names otherwise is any text.
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
