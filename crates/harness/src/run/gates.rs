//! Checks calls against gates, and lets gates learn from results.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use alara_policy::Decision;
use serde_json::{Map, Value};

use crate::error::Error;
use crate::gate::{Done, Gate};
use crate::hidden::{self, CALL};
use crate::jinx::Jinx;
use crate::ledger::Change;
use crate::run::session::Caller;
use crate::team::{Npc, Team};
use crate::trace::Record;
use crate::types::ToolResult;

/// The gates that learn from every call of a session, whoever makes it: after one NPC writes a
/// file, another NPC's gate no longer trusts what it knew of it.
#[derive(Debug, Default)]
pub struct Observers(Mutex<BTreeMap<String, Arc<Gate>>>);

impl Observers {
    /// Adds the gates of a team and of the teams below it.
    pub fn add(&self, team: &Team) {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut gates, team);
    }

    fn all(&self) -> Vec<(String, Arc<Gate>)> {
        let gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.iter().map(|(name, gate)| (name.clone(), Arc::clone(gate))).collect()
    }
}

fn add(gates: &mut BTreeMap<String, Arc<Gate>>, team: &Team) {
    for gate in team.npcs.iter().flat_map(|npc| &npc.gate.gates) {
        gates.insert(key(gate), Arc::clone(gate));
    }
    team.teams.iter().for_each(|team| add(gates, team));
}

/// The key of a gate in a trace.
pub fn key(gate: &Gate) -> String {
    gate.path.display().to_string()
}

/// A call as gates see it: for a hidden tool, the call that calls it.
fn seen<'c>(jinx: &'c Jinx, arguments: &'c Map<String, Value>) -> (&'c str, Cow<'c, Map<String, Value>>) {
    match jinx.hidden {
        true => (CALL, Cow::Owned(hidden::wrapped(&jinx.name, arguments))),
        false => (&jinx.name, Cow::Borrowed(arguments)),
    }
}

/// The decision of an NPC's gates about its call.
pub fn decide(caller: &Caller, npc: &Npc, jinx: &Jinx, arguments: &Map<String, Value>) -> Decision {
    let (tool, arguments) = seen(jinx, arguments);
    Decision::by_gates(&npc.gate.gates, tool, &arguments, |gate| {
        caller.trace.ledger(&key(gate), |ledger| gate.verdict(ledger, tool, &arguments))
    })
}

/// Lets the gates of the session learn from a call that was made, and records the changes.
/// A call that a dry run didn't make teaches nothing.
///
/// # Errors
/// The trace can't be written.
pub fn observe(
    caller: &Caller,
    jinx: &Jinx,
    arguments: &Map<String, Value>,
    result: &ToolResult,
) -> Result<(), Error> {
    if result.dry_run {
        return Ok(());
    }
    // A person may have changed the arguments.
    let (tool, arguments) = seen(jinx, result.edited.as_ref().unwrap_or(arguments));
    for (key, gate) in caller.session.gates.all() {
        let done = Done { tool, effect: jinx.effect, arguments: &arguments, result };
        let changes = match gate.knows(jinx) {
            true => gate.changes(&done),
            // Another team's jinx of the same name has unknown effects.
            false => vec![Change::Stale { path: Vec::new() }],
        };
        if !changes.is_empty() {
            caller.trace.push(caller.scope, Record::Ledger { gate: key, changes })?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "gates_tests.rs"]
mod tests;
