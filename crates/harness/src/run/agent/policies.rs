//! An agent under phases and gates: its current phase, the calls it may make, and what its gates
//! learn.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use alara_engine::{ToolCall, ToolChoice};

use super::{Agent, last_start};
use crate::error::Error;
use crate::hidden::{self, CALL};
use crate::run::tool::{self, Offered};
use crate::run::{gates, review};
use crate::trace::{self, Record, Trace};
use crate::types::{Interrupted, ToolResult};

impl Agent<'_, '_> {
    /// Records the conversation's current phase, if it has changed.
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

    /// Runs a call.
    pub(super) fn result(&self, call: &ToolCall, deadline: Option<Instant>) -> Result<ToolResult, Error> {
        let machine = trace::phases(self.records());
        let hidden = last_start(&self.records).map(|start| start.hidden.as_slice()).unwrap_or_default();
        let unlocked = if hidden.is_empty() { Vec::new() } else { trace::unlocked(self.records()) };
        let unlocked: Vec<String> = unlocked.into_iter().map(|tool| tool.name.clone()).collect();
        let offered = Offered { tools: &self.tools, hidden, unlocked: &unlocked, phase: machine.as_ref() };
        tool::execute(&self.caller(deadline), &offered, call)
    }

    /// Reports interrupted calls to the gates, if they may have left some of their effects.
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
            // The effects of a server can't be undone.
            if jinx.remote.is_some() || (interrupted == Interrupted::Left && review::may_change(jinx, false))
            {
                gates::observe(&caller, jinx, &call.arguments, result)?;
            }
        }
        learn(self.trace, &mut self.records);
        Ok(())
    }
}

/// Adds later ledger events to the records of a conversation, whoever caused them.
pub(super) fn learn(trace: &Trace, records: &mut Vec<Arc<Record>>) {
    let known = records.iter().filter(|record| matches!(***record, Record::Ledger { .. })).count();
    records.extend(trace.learnt(known));
}
