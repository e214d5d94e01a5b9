//! An agent under phases and gates: where it stands, what it may call, and what its gates learn.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use alara_engine::{ToolCall, ToolChoice};

use super::{Agent, last_start};
use crate::error::Error;
use crate::hidden::{self, CALL, UNLOCK};
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

    /// The phase that expects a call in the next turn, and the tools that may be called.
    pub(super) fn expected_call(&self) -> Option<(String, String)> {
        let machine = trace::phases(self.records())?;
        let start = last_start(&self.records)?;
        let mut unlocked = trace::unlocked(self.records());
        unlocked.retain(|tool| machine.permits_call(CALL, Some(&tool.name)));
        match machine.choice(&start.tools, &unlocked, None) {
            ToolChoice::Among { names, required: true } => {
                Some((machine.state().phase.clone(), names.join(", ")))
            }
            _ => None,
        }
    }

    /// What a call does.
    /// Outside of its phase it does nothing, whoever let it be written.
    pub(super) fn result(&self, call: &ToolCall, deadline: Option<Instant>) -> Result<ToolResult, Error> {
        let caller = self.caller(deadline);
        let machine = trace::phases(self.records());
        let hidden = last_start(&self.records).map(|start| start.hidden.as_slice()).unwrap_or_default();
        let unlocked = if hidden.is_empty() { Vec::new() } else { trace::unlocked(self.records()) };
        let unlocked: Vec<String> = unlocked.into_iter().map(|tool| tool.name.clone()).collect();
        let inner = hidden::named(call).filter(|inner| unlocked.iter().any(|name| name == inner));
        if let Some(machine) = machine.as_ref().filter(|machine| !machine.permits_call(&call.name, inner)) {
            return tool::out_of_phase(&caller, call, machine);
        }
        match machine.and_then(|machine| machine.phases().queue.as_ref()) {
            Some(queue) if call.name == PLAN => Ok(queue.plan(&call.arguments)),
            _ if call.name == UNLOCK && !hidden.is_empty() => Ok(hidden::unlock(hidden, &call.arguments)),
            _ if (call.name == CALL && !hidden.is_empty()) || unlocked.contains(&call.name) => {
                tool::execute_hidden(&caller, &unlocked, call)
            }
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
            let call = match last_start(&self.records).is_some_and(|start| !start.hidden.is_empty()) {
                true if call.name == CALL => hidden::inner(call).map_or(Cow::Borrowed(call), Cow::Owned),
                _ => Cow::Borrowed(call),
            };
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
