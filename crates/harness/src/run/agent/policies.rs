//! An agent under phases and gates: where it stands, what it may call, and what its gates learn.

use std::sync::Arc;
use std::time::Instant;

use alara_engine::ToolCall;

use super::Agent;
use crate::error::Error;
use crate::phases::PLAN;
use crate::run::{gates, review, tool};
use crate::trace::{self, Record, Trace};
use crate::types::{Interrupted, ToolResult};

impl Agent<'_, '_> {
    /// Records where the conversation stands among its phases, if that has changed.
    pub(super) fn note_phase(&mut self) -> Result<(), Error> {
        let Some(standing) = trace::phases(self.records()).map(|machine| machine.standing()) else {
            return Ok(());
        };
        let last = self.records.iter().rev().find_map(|record| match &**record {
            Record::Phase(standing) => Some(standing),
            _ => None,
        });
        if last != Some(&standing) {
            self.records.push(self.trace.push(&self.scope, Record::Phase(standing))?);
        }
        Ok(())
    }

    /// What a call does.
    /// Outside of its phase it does nothing, whoever let it be written.
    pub(super) fn result(&self, call: &ToolCall, deadline: Option<Instant>) -> Result<ToolResult, Error> {
        let caller = self.caller(deadline);
        let machine = trace::phases(self.records());
        if let Some(machine) = machine.as_ref().filter(|machine| !machine.permits(&call.name)) {
            return tool::out_of_phase(&caller, call, machine);
        }
        match machine.and_then(|machine| machine.phases().queue.as_ref()) {
            Some(queue) if call.name == PLAN => Ok(queue.plan(&call.arguments)),
            _ => tool::execute(&caller, &self.tools, call),
        }
    }

    /// Lets gates learn of calls that were interrupted and may have left something of what they do.
    pub(super) fn learn_of_interrupted(&mut self) -> Result<(), Error> {
        let last = self.records.iter().rev().take_while(|record| !matches!(***record, Record::User { .. }));
        let last: Vec<Arc<Record>> = last.cloned().collect();
        let caller = self.caller(None);
        for record in last.iter().rev() {
            let Record::ToolResult { call, result, .. } = &**record else { continue };
            let Some((interrupted, jinx)) = result.interrupted.zip(caller.jinx(&call.name)) else { continue };
            // What a server has done nobody takes back.
            if jinx.remote.is_some() || (interrupted == Interrupted::Left && review::may_change(jinx, false))
            {
                gates::observe(&caller, jinx, &call.arguments, result)?;
            }
        }
        learn(self.trace, &mut self.records);
        Ok(())
    }
}

/// Adds to the records of a conversation what happened to ledgers since, by whomever.
pub(super) fn learn(trace: &Trace, records: &mut Vec<Arc<Record>>) {
    let known = records.iter().filter(|record| matches!(***record, Record::Ledger { .. })).count();
    records.extend(trace.learnt(known));
}
