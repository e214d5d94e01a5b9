//! What gates know of a conversation whose calls a client ran, and what stands against the next
//! ones.
//!
//! The client sends the whole conversation with each request, so that the ledgers are a fold over
//! its messages.
//! It could leave some out or make some up: gates bind the NPC, and not whoever runs the tools.

use std::sync::Arc;

use alara_engine::{Message, Role, Tool, ToolCall};
use serde_json::{Map, Value};

use crate::gate::{Change, Done, Gate, Ledger};
use crate::types::{Blocked, Effect, ToolResult};

/// Gates, and what each of them knows.
pub struct Known<'a> {
    tools: &'a [Tool],
    gates: Vec<(&'a Gate, Ledger)>,
}

impl<'a> Known<'a> {
    /// What the messages tell of calls of these tools.
    pub fn of(gates: &'a [Arc<Gate>], tools: &'a [Tool], messages: &[Message]) -> Self {
        let gates = gates.iter().map(|gate| (&**gate, Ledger::default())).collect();
        let mut known = Known { tools, gates };
        // The calls of one turn, and their results.
        let mut turn: Vec<(&ToolCall, Option<ToolResult>)> = Vec::new();
        for message in messages {
            match message.role {
                Role::Assistant => {
                    known.take(&std::mem::take(&mut turn));
                    turn = message.tool_calls.iter().map(|call| (call, None)).collect();
                }
                Role::Tool => {
                    let id = message.tool_call_id.as_deref().unwrap_or_default();
                    let open = turn.iter_mut().find(|(call, result)| call.id == id && result.is_none());
                    match open {
                        Some((_, result)) => *result = Some(ToolResult::succeeded(message.content.as_str())),
                        // Nobody knows what was done.
                        None => known.spoil(),
                    }
                }
                Role::User | Role::System => {}
            }
        }
        known.take(&turn);
        known
    }

    /// What stands against each of the calls of one turn.
    pub fn hold(mut self, calls: &[ToolCall]) -> Vec<Option<Blocked>> {
        let held = calls.iter().map(|call| {
            let arguments = self.arguments(call);
            let verdicts =
                self.gates.iter().map(|(gate, ledger)| gate.verdict(ledger, &call.name, &arguments));
            let blocked = verdicts.fold(None, Blocked::told);
            // It may run at the same time as the next one.
            self.take(&[(call, None)]);
            blocked
        });
        held.collect()
    }

    /// Takes up the calls of one turn; one without a result may have done half of its work.
    /// A client may run them at the same time: what one of them read, another may have changed
    /// since.
    fn take(&mut self, turn: &[(&ToolCall, Option<ToolResult>)]) {
        let failed = ToolResult::failed("there is no result");
        let calls: Vec<_> = turn
            .iter()
            .map(|(call, result)| (call, self.arguments(call), result.as_ref().unwrap_or(&failed)))
            .collect();
        for (gate, ledger) in &mut self.gates {
            let of_call = |(call, arguments, result): &(&&ToolCall, Map<String, Value>, &ToolResult)| {
                // What a client's tool does is known by what the gate says of it alone.
                let done = Done { tool: &call.name, effect: Effect::Write, arguments, result };
                gate.changes(&done)
            };
            let mut changes: Vec<Vec<Change>> = calls.iter().map(of_call).collect();
            changes
                .sort_by_key(|changes| changes.iter().any(|change| matches!(change, Change::Stale { .. })));
            changes.iter().flatten().for_each(|change| ledger.apply(change));
        }
    }

    fn spoil(&mut self) {
        for (_, ledger) in &mut self.gates {
            ledger.apply(&Change::Stale { path: Vec::new() });
        }
    }

    /// The arguments of a call with the defaults that its tool's schema has for others.
    fn arguments(&self, call: &ToolCall) -> Map<String, Value> {
        let mut arguments = call.arguments.clone();
        let tool = self.tools.iter().find(|tool| tool.name == call.name);
        let properties = tool.and_then(|tool| tool.parameters["properties"].as_object());
        for (name, schema) in properties.into_iter().flatten() {
            if let Some(default) = schema.get("default").filter(|_| !arguments.contains_key(name)) {
                arguments.insert(name.clone(), default.clone());
            }
        }
        arguments
    }
}
