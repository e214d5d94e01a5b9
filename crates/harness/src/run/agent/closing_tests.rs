use alara_engine::{Recovered, ToolChoice};
use serde_json::json;

use super::*;
use crate::calls::Calls;
use crate::model::{Reply, Scripted, Single};
use crate::run::session::Session;
use crate::team::Npc;
use crate::testing::Fixture;
use crate::trace;
use crate::types::Limits;

fn shell(command: &str) -> Reply {
    Reply::call("shell", json!({"command": command}))
}

/// The outcome of a task, and the hints of its run.
fn play(npc: impl Fn(Npc) -> Npc, task: &str, replies: Vec<Reply>) -> (Outcome, Vec<String>) {
    let fixture = Fixture::new();
    let model = Scripted::new(replies);
    let source = Single(&model);
    let mut session = Session::new(&source, &fixture.sandbox);
    session.calls = Some(Calls::Auto);
    let npc = npc(fixture.team.npc(None).unwrap().clone());
    let mut agent = Agent::new(&session, &fixture.team, &npc, None).unwrap();
    let outcome = agent.run(task).unwrap();
    let hints = agent.records().filter_map(|record| match record {
        Record::Hint { text, .. } => Some(text.clone()),
        _ => None,
    });
    (outcome, hints.collect())
}

fn answer(text: &str) -> Outcome {
    Outcome::Answer { text: text.into() }
}

#[test]
fn an_answer_after_a_failed_call_counts_the_second_time() {
    let replies =
        || vec![shell("cat nothing"), Reply::text("It failed."), shell("true"), Reply::text("Done.")];
    let (outcome, hints) = play(|npc| npc, "do it", replies());
    assert_eq!(outcome, answer("Done."));
    let [hint] = hints.as_slice() else { panic!("{hints:?}") };
    assert!(hint.starts_with("The last call of shell failed: cat: nothing: No such file"), "{hint}");
    // The hint comes once, and never where the NPC accepts failure.
    let twice = || vec![shell("cat nothing"), Reply::text("It failed."), Reply::text("Really.")];
    assert_eq!(play(|npc| npc, "do it", twice()), (answer("Really."), hints));
    let accepts = |npc| Npc { accepts_failure: true, ..npc };
    assert_eq!(play(accepts, "do it", replies()), (answer("It failed."), Vec::new()));
    // A search without a hit is no failure.
    let found = vec![shell("echo a | grep b"), Reply::text("There is none.")];
    assert_eq!(play(|npc| npc, "do it", found), (answer("There is none."), Vec::new()));
}

#[test]
fn an_empty_answer_without_work_is_none() {
    let (outcome, hints) = play(|npc| npc, "do it", vec![Reply::text(" "), Reply::text("")]);
    assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
    assert_eq!(hints, ["Your answer is empty. Call a tool to begin with the task, or answer with a text."]);
    let (outcome, _) = play(|npc| npc, "do it", vec![Reply::text(""), shell("true"), Reply::text("Done.")]);
    assert_eq!(outcome, answer("Done."));
}

#[test]
fn a_tool_that_is_not_there_is_told() {
    let text = r#"{"name": "rename_file", "arguments": {"from": "a", "to": "b"}}"#;
    let (outcome, hints) =
        play(|npc| npc, "do it", vec![Reply::text(text), shell("true"), Reply::text("Done.")]);
    assert_eq!((outcome, hints.len()), (answer("Done."), 1));
    assert!(
        hints[0].starts_with("Nothing was run: there is no tool `rename_file`; the tools are: shell"),
        "{hints:?}"
    );
}

#[test]
fn a_run_at_its_limit_is_asked_for_its_answer() {
    let limits = Limits { turns: 2, ..Limits::default() };
    let within = |npc| Npc { limits, ..npc };
    let replies = vec![shell("echo 1"), shell("echo 2"), Reply::text("Two of three are done.")];
    let (outcome, hints) = play(within, "do it", replies);
    assert_eq!(outcome, answer("Two of three are done."));
    assert!(hints[0].starts_with("No more calls can be made."), "{hints:?}");
    // Without an answer, the run ends as it would have without the closing turn.
    let (outcome, _) = play(within, "do it", vec![shell("echo 1"), shell("echo 2")]);
    assert_eq!(outcome, Outcome::TurnLimit { turns: 2 });
}

#[test]
fn a_call_that_only_takes_another_time_is_the_same() {
    let fixture = Fixture::new();
    let timed = "printf 'Ran 4 tests in 0.%ds' $RANDOM >&2; exit 1";
    let model =
        Scripted::new(vec![shell(timed), shell(timed), Reply::text("It fails."), Reply::text("Still.")]);
    let source = Single(&model);
    let mut session = Session::new(&source, &fixture.sandbox);
    session.calls = Some(Calls::Auto);
    let npc = fixture.team.npc(None).unwrap();
    Agent::new(&session, &fixture.team, npc, None).unwrap().run("do it").unwrap();
    let requests = model.requests();
    let pattern = requests[2].bound["shell"][0]["properties"]["command"]["allOf"][0]["pattern"].to_string();
    assert!(pattern.contains("[^p"), "{pattern}");
}

#[test]
fn what_the_next_turn_is_held_to() {
    let fixture = Fixture::new();
    let model = Scripted::new(vec![shell("ls"), shell("ls"), shell("ls"), Reply::text("Done.")]);
    let source = Single(&model);
    let mut session = Session::new(&source, &fixture.sandbox);
    session.calls = Some(Calls::Auto);
    let npc = fixture.team.npc(None).unwrap();
    let mut agent = Agent::new(&session, &fixture.team, npc, None).unwrap();
    agent.run("do it").unwrap();
    let requests = model.requests();
    let choices: Vec<&ToolChoice> = requests.iter().map(|request| &request.tool_choice).collect();
    let (auto, required) = (&ToolChoice::Auto, &ToolChoice::Required);
    assert_eq!(choices, [auto, auto, required, required]);
    assert!(requests[1].bound.is_empty() && requests[1].unlisted.is_empty());
    assert_eq!(requests[2].unlisted, ["finish"]);
    let pattern = requests[2].bound["shell"][0]["properties"]["command"]["allOf"][0]["pattern"].to_string();
    assert!(pattern.contains("[^l"), "{pattern}");
    // A call written as text: from there on, calls are blocks of code.
    let mut records: Vec<Record> = agent.records().cloned().collect();
    for record in &mut records {
        if let Record::Assistant { usage, .. } = record {
            usage.recovered = Some(Box::new(Recovered { text: "{…}".into(), again: false }));
        }
    }
    let request = trace::request(records.iter().take(4));
    assert_eq!(request.tool_format.as_deref(), Some("code"));
}
