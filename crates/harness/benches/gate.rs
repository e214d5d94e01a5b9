//! The cost of dispatching a call that a gate of fifty rules permits, over a ledger of some hundred
//! facts.
//! For comparison, a call that no gate covers.

use std::fmt::Write;
use std::path::Path;

use alara_engine::ToolCall;
use alara_harness::sandbox::{Isolation, Policy, Sandbox};
use alara_harness::{Caller, Scripted, Session, Single, Team, tool};
use criterion::Criterion;
use serde_json::{Value, json};

/// How many rules apply to a call.
const RULES: usize = 50;
/// How many orders have been read, of four facts each.
const ORDERS: usize = 300;

fn main() {
    let (Ok(directory), Ok(work)) = (tempfile::tempdir(), tempfile::tempdir()) else { return };
    write_team(directory.path()).expect("a temporary directory can be written");
    let team = Team::load(directory.path()).expect("the team is right");
    let policy = Policy { isolation: Isolation::Off, ..Policy::default() };
    let sandbox = Sandbox::new(work.path(), policy).expect("a sandbox without isolation works everywhere");
    let model = Scripted::default();
    let source = Single(&model);
    let session = Session::new(&source, &sandbox);
    session.gates.add(&team);
    let npc = team.npc(None).expect("the team has one");
    assert_eq!(npc.gate.gates.iter().map(|gate| gate.rules.len()).sum::<usize>(), RULES);
    let caller = Caller { npc: Some(npc), ..Caller::person(&session, &team) };
    let call = |tool: &str, arguments: Value| {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let call = ToolCall { id: "call_1".to_owned(), name: tool.to_owned(), arguments };
        let result =
            tool::execute(&caller, &tool::Offered::of(&npc.jinxes), &call).expect("a text can be made");
        assert!(result.ok, "{result:?}");
    };
    for id in 0..ORDERS {
        call("get_order", json!({"id": id}));
    }
    let mut criterion = Criterion::default().configure_from_args();
    criterion.bench_function("dispatch/50 rules", |bencher| {
        bencher.iter(|| call("cancel_order", json!({"id": 150, "reason": "late"})));
    });
    criterion.bench_function("dispatch/no rules", |bencher| {
        bencher.iter(|| call("wait", json!({"id": 150, "reason": "late"})));
    });
    criterion.final_summary();
}

/// A team whose gate has rules of three kinds for one tool, none of which can be skipped.
fn write_team(directory: &Path) -> std::io::Result<()> {
    let jinxes = directory.join("jinxes");
    std::fs::create_dir(&jinxes)?;
    std::fs::write(directory.join("team.ctx"), "name: shop\nforenpc: clerk\n")?;
    std::fs::write(
        directory.join("clerk.npc"),
        "name: clerk\nprimary_directive: You work.\njinxes: [get_order, cancel_order, wait]\ngate: shop\n",
    )?;
    let mut gate = "observe:\n  get_order: {path: \"orders.{{ args.id }}\", types: {status: string, total: number, owner: string}}\n\
         writes:\n  cancel_order: {stale: []}\nrules:\n"
        .to_owned();
    for rule in 0..RULES {
        let need = match rule % 3 {
            0 => format!("orders[args.id].status == 'pending' and orders[args.id].total < {}", 1000 + rule),
            1 => format!("args.reason != 'reason {rule}' or orders[args.id].owner == 'user {rule}'"),
            _ => format!("orders[args.id].items|length <= {rule} and not (orders['{rule}'].total > 5000)"),
        };
        let _ = writeln!(
            gate,
            "  rule_{rule}: {{tools: cancel_*, need: \"{need}\", reason: \"order {{{{ args.id }}}} is {{{{ orders[args.id].status }}}}\"}}"
        );
    }
    std::fs::write(directory.join("shop.gate"), gate)?;
    let order = r#"{status: pending, total: "{{ id }}", owner: ann, items: ["{{ id }}"]}"#;
    for (name, effect, result) in
        [("get_order", "read", order), ("cancel_order", "write", "gone"), ("wait", "none", "gone")]
    {
        let text = format!(
            "jinx_name: {name}\ndescription: A tool.\ninputs:\n  - id: {{type: integer}}\n  - reason: ''\neffect: {effect}\n\
             steps: [{{return: {result}}}]\n"
        );
        std::fs::write(jinxes.join(format!("{name}.jinx")), text)?;
    }
    Ok(())
}
