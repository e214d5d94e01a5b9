//! Phases, queue, ledger and gate together, from files through the agent loop to the trace.
//!
//! The tools are texts: they run in this process, and their arguments contain the answers of the
//! world.

mod again;
mod hidden;
mod masked;
mod random;
mod rules;

use std::path::Path;

use serde_json::Value;

use crate::team::Team;
use crate::trace::{Entry, Record};
use crate::types::Verdict;

/// The clerk of a desk: identifies the user, plans the tasks, then performs them.
const CLERK: &str = r#"
name: clerk
primary_directive: Help.
limits: {turns: 99, repeated_calls: 99}
jinxes: [identify, get_order, cancel_order, run_tool, escalate]
gate: desk
phases:
  start: triage
  facts: {trusted: "ok('identify') > failed('cancel_order')"}
  retries: {cancel_order: [2, handover], get_*: [2, handover]}
  queue: {from: plan, before: [[first, second]], done: "ok('cancel_order') or ok('run_tool')"}
  triage: {tools: [identify, get_*], next: [[plan, trusted]]}
  plan: {tools: [get_order], next: [[work, not queue.empty]]}
  work: {tools: [get_order, cancel_order, run_tool], gate: [triage, trusted], next: [[tell, queue.empty]]}
  handover: {tools: [escalate], next: [[tell, "ok('escalate')"]]}
  tell: {expect: text, next: [[triage, answers > 0]]}
"#;

const GATE: &str = r#"
observe:
  identify: {path: customer, types: {name: string}}
  get_order: {path: "orders.{{ args.id }}", types: {status: string, total: integer, owner: string}}
writes:
  cancel_order: {stale: "orders.{{ args.id }}", path: "orders.{{ args.id }}.status", value: "'cancelled'"}
  escalate: {stale: []}
wraps:
  run_tool: {tool: tool, arguments: arguments}
rules:
  wrapped: {tools: run_tool, need: "args.tool != 'escalate'"}
  waiting: {tools: cancel_order, need: "orders[args.id].status == 'pending' and orders[args.id].total < 100"}
  own: {tools: cancel_order, need: "orders[args.id].owner == customer.name", unknown: allow}
  known: {tools: escalate, need: customer.name is defined}
"#;

/// Name, inputs, effect and result of each tool.
/// `get_secret` is not on the clerk's list, though a phase permits such names.
const TOOLS: [(&str, &str, &str, &str); 6] = [
    ("identify", "{name: ann}", "read", r#"{name: "{{ name }}"}"#),
    (
        "get_order",
        "{id: {type: integer}}, {status: pending}, {total: 10}, {owner: ann}, {odd: false}",
        "read",
        r#"{status: "{{ status }}", total: "{{ 'many' if odd else total }}", owner: "{{ owner }}"}"#,
    ),
    ("cancel_order", "{id: {type: integer}}", "write", "gone"),
    ("run_tool", "tool, {arguments: ''}", "write", "run"),
    ("escalate", "", "write", "handed over"),
    ("get_secret", "", "read", "secret"),
];

/// Writes the team's files.
fn write_team(directory: &Path) {
    std::fs::create_dir(directory.join("jinxes")).unwrap();
    std::fs::write(directory.join("team.ctx"), "name: desk\nforenpc: clerk\n").unwrap();
    std::fs::write(directory.join("clerk.npc"), CLERK).unwrap();
    std::fs::write(directory.join("desk.gate"), GATE).unwrap();
    for (name, inputs, effect, result) in TOOLS {
        let text = format!(
            "jinx_name: {name}\ndescription: A tool.\ninputs: [{inputs}{}{{fails: false}}]\neffect: {effect}\nok: not fails\n\
             steps:\n- emit: {{type: ran, content: {name}}}\n- return: {result}\n",
            if inputs.is_empty() { "" } else { ", " },
        );
        std::fs::write(directory.join(format!("jinxes/{name}.jinx")), text).unwrap();
    }
}

fn team() -> (Team, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    write_team(directory.path());
    let team = Team::load(directory.path()).unwrap();
    assert_eq!(team.diagnostics, []);
    (team, directory)
}

/// The result of a call, or of a turn without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// The tool; empty if there was no call.
    tool: String,
    ran: bool,
    /// The source of its refusal: `phase NAME`, `list`, or `rule NAME`.
    refused: Option<String>,
    /// Whether the rule only lacks a fact.
    unknown: bool,
    /// The phase after it.
    phase: String,
}

/// The calls in a trace.
fn seen(entries: &[Entry]) -> Vec<Seen> {
    let (mut all, mut phase) = (Vec::<Seen>::new(), String::new());
    for entry in entries {
        match &*entry.record {
            Record::Assistant { message, .. } if message.tool_calls.is_empty() => {
                all.push(Seen { phase: phase.clone(), ..Seen::default() });
            }
            Record::ToolCall { call } => {
                all.push(Seen { tool: call.name.clone(), phase: phase.clone(), ..Seen::default() });
            }
            Record::Emit { response } => {
                let call = all.last_mut().unwrap();
                assert_eq!(response["content"], Value::from(call.tool.as_str()));
                call.ran = true;
            }
            Record::Permission { jinx, verdict: Verdict::Deny, by } => {
                let call = all.last_mut().unwrap();
                assert_eq!((jinx, &call.refused), (&call.tool, &None));
                call.refused = Some(match by.split('`').collect::<Vec<_>>().as_slice() {
                    ["the phase ", phase, ""] => format!("phase {phase}"),
                    ["the rule ", rule, _] => format!("rule {rule}"),
                    ["the NPC's list"] => "list".to_owned(),
                    other => panic!("{other:?}"),
                });
            }
            Record::ToolResult { result, .. } => {
                let call = all.last_mut().unwrap();
                let rule = result.blocked.as_ref().map(|blocked| format!("rule {}", blocked.rule));
                let refused = call.refused.clone().filter(|refused| refused.starts_with("rule"));
                assert_eq!(rule, refused, "what the model is told");
                call.unknown = result.blocked.as_ref().is_some_and(|blocked| !blocked.unknown.is_empty());
            }
            Record::Phase(standing) => {
                phase.clone_from(&standing.phase);
                if let Some(last) = all.last_mut() {
                    last.phase.clone_from(&phase);
                }
            }
            _ => {}
        }
    }
    all
}
