use serde_json::json;

use super::super::Agent;
use super::*;
use crate::model::{Events, ModelError, Reply, Scripted, Single, Tuned, Tuning};
use crate::replay::{self, Replay};
use crate::run::session::Session;
use crate::testing::Fixture;
use crate::types::Outcome;

/// A scripted model that reports this many parameters.
struct Sized(Scripted, u64);

impl ChatModel for Sized {
    fn name(&self) -> &str {
        "sized"
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
        self.0.chat(request)
    }

    fn parameters(&self) -> Option<u64> {
        Some(self.1)
    }
}

fn sized(parameters: u64) -> Sized {
    let call = Reply::call("shell", json!({"command": "echo one; echo two"}));
    Sized(Scripted::new([call, Reply::text("Done.")]), parameters)
}

fn names(request: &Request) -> Vec<&str> {
    request.tools.iter().map(|tool| tool.name.as_str()).collect()
}

#[test]
fn a_small_model_is_shown_how_it_is_done() {
    let fixture = Fixture::new();
    let npc = fixture.team.npc(None).unwrap();
    let small = sized(1_500_000_000);
    let source = Single(&small);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, npc, None).unwrap();
    assert_eq!(agent.run("do it").unwrap(), Outcome::Answer { text: "Done.".into() });
    let requests = small.0.requests();
    assert_eq!(names(&requests[0]), ["shell", "python"]);
    assert_eq!(requests[0].tool_format.as_deref(), Some("code"));
    let examples = npc.small_models.as_ref().unwrap().messages(&["shell", "python"], 8000);
    assert_eq!(requests[0].messages, [examples.as_slice(), &[Message::user("do it")]].concat());
    let told = requests[1].messages.last().unwrap();
    assert_eq!(told.content, "one\ntwo", "results are no JSON");
    // The warmed prompt is a prefix of the request.
    let opening = opening(&fixture.team, npc, &small, vec![Message::user("do it")], None);
    let parts = |request: &Request| {
        let Request { system, messages, tools, tool_format, tool_choice, .. } = request.clone();
        (system, messages, tools, tool_format, tool_choice)
    };
    assert_eq!(parts(&opening), parts(&requests[0]));
    // A replay needs no model.
    let entries = session.trace.entries();
    let model = Replay::new(&entries);
    let source = Single(&model);
    let again = Session::new(&source, &fixture.sandbox).sampled(requests[0].sampling.clone());
    let again = again.calling(Some(Calls::Auto));
    replay::run(&again, &fixture.team, &entries).unwrap();
    let (_, difference) = replay::difference(&entries, &again.trace.entries());
    assert_eq!(difference, None);
}

#[test]
fn others_work_as_their_files_say() {
    let fixture = Fixture::new();
    let npc = fixture.team.npc(None).unwrap();
    for parameters in [3_500_000, 8_000_000_000] {
        let model = sized(parameters);
        let first = opening(&fixture.team, npc, &model, vec![Message::user("do it")], None);
        assert_eq!(names(&first).len(), 5, "{parameters}");
        assert_eq!((first.messages.len(), first.tool_format), (1, None), "{parameters}");
    }
}

#[test]
fn what_was_measured_goes_before_what_the_file_says() {
    let fixture = Fixture::new();
    let npc = fixture.team.npc(None).unwrap();
    let tuning =
        Tuning { tool_format: Some("generic".into()), calls: Some(Calls::Thought), temperature: Some(0.5) };
    let model = Tuned { model: sized(1_500_000_000), tuning };
    let setup = Setup::of(npc, &model, None);
    assert_eq!(setup.other.map(|format| format.name), Some("generic"));
    assert_eq!((setup.calls, setup.sampling.temperature), (Calls::Thought, 0.5));
    // The user's setting wins over both.
    assert_eq!(Setup::of(npc, &model, Some(Calls::Free)).calls, Calls::Free);
}
