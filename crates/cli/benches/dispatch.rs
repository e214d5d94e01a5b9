//! Benchmarks the dispatch of a tool call, and loading a team with many jinxes.

use std::fmt::Write;

use alara_engine::ToolCall;
use alara_harness::sandbox::{Isolation, Policy, Sandbox};
use alara_harness::{Caller, Scripted, Session, Single, Team, tool};
use criterion::Criterion;
use serde_json::json;

/// Number of jinxes in the team.
const JINXES: usize = 200;

fn main() {
    let (Ok(directory), Ok(work)) = (tempfile::tempdir(), tempfile::tempdir()) else { return };
    write_team(directory.path()).expect("a temporary directory can be written");
    let mut criterion = Criterion::default().configure_from_args();
    criterion.bench_function("load/200 jinxes", |bencher| {
        bencher.iter(|| Team::load(directory.path()).expect("the team is right"));
    });

    let team = Team::load(directory.path()).expect("the team is right");
    let policy = Policy { isolation: Isolation::Off, ..Policy::default() };
    let sandbox = Sandbox::new(work.path(), policy).expect("a sandbox without isolation works everywhere");
    let model = Scripted::default();
    let source = Single(&model);
    let session = Session::new(&source, &sandbox);
    let npc = team.npc(None).expect("the team has one");
    let caller = Caller { npc: Some(npc), ..Caller::person(&session, &team) };
    for (name, jinx) in
        [("dispatch/text", "jinx_0"), ("dispatch/flow", "jinx_1"), ("dispatch/call", "jinx_2")]
    {
        let arguments = json!({"word": "a"}).as_object().cloned().unwrap_or_default();
        let call = ToolCall { id: "call_1".to_owned(), name: jinx.to_owned(), arguments };
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                let result = tool::execute(&caller, &tool::Offered::of(&npc.jinxes), &call);
                assert!(result.is_ok_and(|result| result.ok));
            });
        });
    }
    criterion.final_summary();
}

/// A team whose jinxes are, in turn, one text, control flow, and a call.
fn write_team(directory: &std::path::Path) -> std::io::Result<()> {
    let jinxes = directory.join("jinxes");
    std::fs::create_dir(&jinxes)?;
    std::fs::write(directory.join("team.ctx"), "context: A team of many.\nforenpc: worker\n")?;
    let mut npc = "name: worker\nprimary_directive: You work.\njinxes:\n".to_owned();
    for number in 0..JINXES {
        let steps = match number % 3 {
            0 => "  - {name: said, engine: text, text: \"<{{ word }}>\"}",
            1 => {
                "  - set: {all: []}
  - for: i
    in: range(times)
    do:
      - when: i % 2 == 0
        then: [{set: {all: \"{{ all + [word ~ i] }}\"}}]
  - return: \"{{ all | join(', ') }}\""
            }
            _ => "  - {name: said, engine: jinx_0, with: {word: \"{{ word }}\"}}",
        };
        let text = format!(
            "jinx_name: jinx_{number}\ndescription: The jinx with the number {number}\ninputs:\n  - word: {{type: string, \
             description: A word}}\n  - times: {{type: integer, default: 4}}\neffect: none\nsteps:\n{steps}\n"
        );
        std::fs::write(jinxes.join(format!("jinx_{number}.jinx")), text)?;
        let _ = writeln!(npc, "  - jinx_{number}");
    }
    std::fs::write(directory.join("worker.npc"), npc)
}
