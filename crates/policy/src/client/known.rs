//! The gates' knowledge of a conversation whose calls a client ran, and their verdicts on the next
//! calls.
//!
//! The client sends the whole conversation with each request, so the ledgers are a fold over its
//! messages.
//! It could leave out or invent messages: gates bind the NPC, and not the program that runs the
//! tools.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use alara_text::request::{Message, Role, Tool, ToolCall};
use serde_json::{Map, Value};

use alara_team::gate::{Done, Gate};
use alara_team::ledger::{Change, Ledger};
use alara_team::types::{Effect, ToolResult};

use crate::decision::Decision;

/// Gates with their ledgers.
pub struct Known<'a> {
    tools: &'a [Tool],
    gates: &'a [Arc<Gate>],
    /// By the gate's file.
    ledgers: BTreeMap<&'a Path, Ledger>,
}

impl<'a> Known<'a> {
    /// The ledgers after the calls of these tools in the messages.
    pub fn of(gates: &'a [Arc<Gate>], tools: &'a [Tool], messages: &[Message]) -> Self {
        let ledgers = gates.iter().map(|gate| (gate.path.as_path(), Ledger::default())).collect();
        let mut known = Known { tools, gates, ledgers };
        // The calls of one turn, and their results.
        let mut turn: Vec<(&ToolCall, Option<ToolResult>)> = Vec::new();
        // Whether there is a result of another call among them.
        let mut is_odd = false;
        for message in messages {
            match message.role {
                Role::Assistant => {
                    known.take(&std::mem::take(&mut turn), std::mem::take(&mut is_odd));
                    turn = message.tool_calls.iter().map(|call| (call, None)).collect();
                }
                Role::Tool => {
                    let id = message.tool_call_id.as_deref().unwrap_or_default();
                    let open = turn.iter_mut().find(|(call, result)| call.id == id && result.is_none());
                    match open {
                        Some((_, result)) => *result = Some(ToolResult::succeeded(message.content.as_str())),
                        None => is_odd = true,
                    }
                }
                Role::User | Role::System => {}
            }
        }
        known.take(&turn, is_odd);
        known
    }

    /// The decisions of the gates about the calls of one turn.
    pub fn decide(mut self, calls: &[ToolCall]) -> Vec<Decision> {
        let decided = calls.iter().map(|call| {
            let arguments = self.arguments(call);
            let ledgers = &self.ledgers;
            let verdict =
                |gate: &Gate| gate.verdict(ledgers.get(gate.path.as_path())?, &call.name, &arguments);
            let decision = Decision::by_gates(self.gates, &call.name, &arguments, verdict);
            // It may run at the same time as the next one.
            self.take(&[(call, None)], false);
            decision
        });
        decided.collect()
    }

    /// Applies the calls of one turn; a call without a result may be half done.
    /// A client may run them at the same time: another call may have changed what one of them read.
    /// `is_odd` means that something unknown happened too.
    fn take(&mut self, turn: &[(&ToolCall, Option<ToolResult>)], is_odd: bool) {
        let failed = ToolResult::failed("there is no result");
        let calls: Vec<_> = turn
            .iter()
            .map(|(call, result)| (call, self.arguments(call), result.as_ref().unwrap_or(&failed)))
            .collect();
        for gate in self.gates {
            let Some(ledger) = self.ledgers.get_mut(gate.path.as_path()) else { continue };
            let of_call = |(call, arguments, result): &(&&ToolCall, Map<String, Value>, &ToolResult)| {
                // Only the gate knows what a client's tool does.
                let done = Done { tool: &call.name, effect: Effect::Write, arguments, result };
                gate.changes(&done)
            };
            let mut changes: Vec<Vec<Change>> = calls.iter().map(of_call).collect();
            changes
                .sort_by_key(|changes| changes.iter().any(|change| matches!(change, Change::Stale { .. })));
            let everything = is_odd.then(|| Change::Stale { path: Vec::new() });
            changes.iter().flatten().chain(&everything).for_each(|change| ledger.apply(change));
        }
    }

    /// The arguments of a call, with the defaults in its tool's schema.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use alara_team::source::Source;

    const GATE: &str = r#"
observe:
  get: {path: "a.{{ args.id }}", parse: json, effect: read}
  look: {path: "a.{{ args.id }}", parse: json}
writes:
  set: {stale: "a.{{ args.id }}"}
  say: {stale: []}
rules:
  cut: {need: "a[args.id].n == 1"}
"#;

    fn call(id: &str, tool: &str, of: &str) -> ToolCall {
        let arguments = json!({"id": of}).as_object().cloned().unwrap();
        ToolCall { id: id.into(), name: tool.into(), arguments }
    }

    /// The verdict on `cut(id=1)` after turns: calls as `tool(id)=result`, without `=` if there is
    /// no result.
    fn verdict(turns: &[&[&str]], tool: &Tool) -> String {
        let gate =
            alara_team::gate::read(&Source::new("g.gate".into(), GATE.into()), &mut Vec::new()).unwrap();
        let mut messages = vec![Message::user("begin")];
        for turn in turns {
            let calls = turn.iter().enumerate().map(|(at, text)| {
                let (name, rest) = text.split_once('(').unwrap();
                let (of, rest) = rest.split_once(')').unwrap();
                (call(&format!("c{at}"), name, of), rest.strip_prefix('='))
            });
            let calls: Vec<_> = calls.collect();
            messages.push(Message::assistant("", calls.iter().map(|(call, _)| call.clone()).collect()));
            let results =
                calls.iter().filter_map(|(call, result)| Some(Message::tool_result(call, (*result)?)));
            messages.extend(results);
        }
        let gates = [Arc::new(gate)];
        let known = Known::of(&gates, std::slice::from_ref(tool), &messages);
        let decision = known.decide(&[call("x", "cut", "1")]).remove(0);
        match decision.refusal.and_then(|refusal| refusal.blocked) {
            None => "made".to_owned(),
            Some(blocked) if blocked.unknown.is_empty() => "broken".to_owned(),
            Some(blocked) if blocked.reason.contains("may have changed") => "stale".to_owned(),
            Some(_) => "unknown".to_owned(),
        }
    }

    fn tool(parameters: Value) -> Tool {
        Tool { name: "get".into(), description: String::new(), parameters, strict: false }
    }

    #[test]
    fn a_ledger_is_a_fold_over_messages() {
        let check = |turns: &[&[&str]], expected: &str| {
            assert_eq!(verdict(turns, &tool(json!({}))), expected, "{turns:?}");
        };
        let one = r#"get(1)={"n": 1}"#;
        check(&[], "unknown");
        check(&[&[one]], "made");
        check(&[&[r#"get(1)={"n": 2}"#]], "broken");
        check(&[&[r#"get(2)={"n": 1}"#]], "unknown");
        check(&[&["get(1)=no json"]], "unknown");
        // Only a tool that the gate declares as a read is one.
        check(&[&[r#"look(1)={"n": 1}"#]], "unknown");
        check(&[&[one], &[r#"look(1)={"n": 1}"#]], "stale");
        check(&[&[one], &["other(1)=done"]], "stale");
        check(&[&[one], &["say(1)=done"]], "made");
        check(&[&[one], &["set(2)=done"]], "made");
        check(&[&[one], &["set(1)=done"]], "stale");
        check(&[&[one], &["set(1)=done"], &[one]], "made");
        // Half of it may be done.
        check(&[&[one], &["set(1)"]], "stale");
        check(&[&[one], &["set(1)"], &[one]], "made");
        check(&[&["get(1)"]], "unknown");
        // At the same time: the order is unknown.
        check(&[&["set(1)=done", one]], "stale");
        check(&[&["say(1)=done", one]], "made");
    }

    #[test]
    fn calls_of_a_turn_are_held_together() {
        let gate =
            alara_team::gate::read(&Source::new("g.gate".into(), GATE.into()), &mut Vec::new()).unwrap();
        let (gates, get) = ([Arc::new(gate)], call("a", "get", "1"));
        let mut messages =
            vec![Message::assistant("", vec![get.clone()]), Message::tool_result(&get, r#"{"n": 1}"#)];
        let held = |messages: &[Message], calls: &[ToolCall]| -> Vec<bool> {
            let decided = Known::of(&gates, &[], messages).decide(calls);
            decided.iter().map(|decision| decision.refusal.is_some()).collect()
        };
        let cut = || call("b", "cut", "1");
        assert_eq!(held(&messages, &[cut(), cut()]), [false, true]);
        assert_eq!(held(&messages, &[call("b", "set", "1"), cut()]), [false, true]);
        assert_eq!(held(&messages, &[call("b", "say", "1"), cut()]), [false, false]);
        // A result without a call: its effects are unknown.
        messages.push(Message::tool_result(&call("z", "set", "2"), "done"));
        assert_eq!(held(&messages, &[cut()]), [true]);
    }

    #[test]
    fn what_a_schema_has_as_default_counts() {
        let gate =
            alara_team::gate::read(&Source::new("g.gate".into(), GATE.into()), &mut Vec::new()).unwrap();
        let (gates, mut get) = ([Arc::new(gate)], call("a", "get", "1"));
        get.arguments.clear();
        let messages = [Message::assistant("", vec![get.clone()]), Message::tool_result(&get, r#"{"n": 1}"#)];
        let tools = [tool(json!({"properties": {"id": {"default": "1"}}}))];
        let may = |tools: &[Tool]| {
            Known::of(&gates, tools, &messages).decide(&[call("x", "cut", "1")])[0].refusal.is_none()
        };
        assert_eq!((may(&tools), may(&[])), (true, false));
    }
}
