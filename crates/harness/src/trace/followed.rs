//! The phases of a conversation, followed record by record, and what the model is told of them.
//!
//! What is told is a block behind the message that changed it; no message before is touched, so the
//! cached prompt stays.

use alara_engine::{Message, Role};

use super::Record;
use crate::phases::{Event, Machine};

/// Where a conversation stands, and what of that its model was told.
#[derive(Debug, Default)]
pub struct Followed<'a> {
    now: Now<'a>,
    /// What the last message of the user began with; it may be taken back.
    before: Option<Now<'a>>,
}

#[derive(Clone, Debug, Default)]
struct Now<'a> {
    machine: Option<Machine<'a>>,
    /// What happened so far, for phases that others take the place of.
    seen: Vec<&'a Record>,
    /// The call that is being run.
    running: Option<&'a str>,
    /// The last block that the model was told.
    told: String,
}

impl<'a> Followed<'a> {
    /// Where it stands; `None` = there are no phases.
    pub fn machine(&self) -> Option<&Machine<'a>> {
        self.now.machine.as_ref()
    }

    /// Takes up what happened next.
    pub fn follow(&mut self, record: &'a Record) {
        match record {
            Record::Start(start) => self.now.begin(start.phases.as_ref().map(Machine::new)),
            Record::User { .. } => self.before = Some(self.now.clone()),
            Record::Retract => {
                if let Some(before) = self.before.take() {
                    self.now = before;
                }
            }
            // The messages that told it are gone.
            Record::Compaction { .. } => self.now.told.clear(),
            _ => {}
        }
        self.now.take_up(record);
    }

    /// Tells the model behind the last message where it stands, if that has changed and it is its
    /// turn.
    pub fn tell(&mut self, messages: &mut [Message]) {
        let Some(machine) = &self.now.machine else { return };
        let Some(last) = messages.last_mut().filter(|last| matches!(last.role, Role::User | Role::Tool))
        else {
            return;
        };
        let block = machine.block();
        if block == self.now.told {
            return;
        }
        last.content += &format!("\n\n{block}");
        self.now.told = block;
    }
}

impl<'a> Now<'a> {
    /// Other phases begin; what has happened counts for them too.
    fn begin(&mut self, machine: Option<Machine<'a>>) {
        if self.machine.as_ref().map(Machine::phases) == machine.as_ref().map(Machine::phases) {
            return;
        }
        self.machine = machine;
        self.running = None;
        for record in std::mem::take(&mut self.seen) {
            self.take_up(record);
        }
    }

    fn take_up(&mut self, record: &'a Record) {
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
                if running == Some(call.id.as_str()) && !result.interrupted =>
            {
                Event::Result { tool: &call.name, arguments: &call.arguments, ok: result.ok }
            }
            _ => {
                self.running = running;
                return;
            }
        };
        self.seen.push(record);
        if let Some(machine) = &mut self.machine {
            machine.apply(event);
        }
    }
}
