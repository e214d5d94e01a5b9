use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use alara_engine::inspect::ChatTemplate;
use alara_engine::{Request, Role, Tool};
use serde_json::json;

use super::*;
use crate::model::{Reply, Scripted, Single, arguments};
use crate::testing::Fixture;
use crate::types::Limits;

fn shell(command: &str) -> Reply {
    Reply::call("shell", json!({"command": command}))
}

/// Runs a script to its outcome; also returns the tool results that the model read.
fn play(replies: impl IntoIterator<Item = Reply>) -> (Outcome, Vec<String>) {
    let fixture = Fixture::new();
    let model = Scripted::new(replies);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    let outcome = agent.run("do it").unwrap();
    let request = trace::request(agent.records());
    let read = request.messages.into_iter().filter(|message| message.role == Role::Tool);
    (outcome, read.map(|message| message.content).collect())
}

#[test]
fn calls_are_run_and_their_results_shown() {
    let fixture = Fixture::new();
    let model = Scripted::new([shell("echo one > f; cat f"), Reply::text("It is done.")]);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    assert_eq!(agent.run("do it").unwrap(), Outcome::Answer { text: "It is done.".into() });
    assert!(fixture.work().join("f").exists());

    let requests = model.requests();
    let names: Vec<&str> = requests[0].tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["shell", "python", "read_file", "write_file", "edit_file"]);
    assert_eq!(requests[0].system.len(), 1);
    assert_eq!(requests[0].messages, [Message::user("do it")]);
    let call = &requests[1].messages[1].tool_calls[0];
    assert_eq!(requests[1].messages[2], Message::tool_result(call, r#"{"ok":true,"output":"one"}"#));
    assert_eq!(requests[1].system, requests[0].system);
}

/// A model that wasn't trained on calls reads examples of the stock tools: each is one that its
/// jinx accepts.
#[test]
fn examples_of_the_stock_tools_are_valid() {
    let team = Team::stock("alara").unwrap();
    let tools = crate::prompt::tools(&team, team.npc(None).unwrap());
    let template = ChatTemplate::new("{% for m in messages %}{{ m.content }}{% endfor %}", "", "").unwrap();
    let example = |tool: &Tool| -> ToolCall {
        let request =
            Request { tools: vec![tool.clone()], messages: vec![Message::user("x")], ..Request::default() };
        let prompt =
            template.render(&request, &[], jiff::civil::date(2026, 1, 2).at(3, 4, 5, 0)).unwrap().text;
        let (_, rest) = prompt.split_once("<tool_call>").unwrap();
        serde_json::from_str(rest.split_once("</tool_call>").unwrap().0).unwrap()
    };
    for tool in &tools {
        let call = example(tool);
        assert_eq!(call.name, tool.name);
        team.jinx(&call.name).unwrap().arguments(&call.arguments, &crate::jinx::Offer::default()).unwrap();
    }
    assert_eq!(tools.len(), 5);
}

#[test]
fn a_schema_is_asked_for_in_every_turn_and_recorded() {
    let fixture = Fixture::new();
    let model = Scripted::new([shell("echo one"), Reply::text("1")]);
    let schema = json!({"type": "integer"});
    let npc = fixture.team.npc(None).unwrap();
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, npc, Some(schema.clone())).unwrap();
    agent.run("do it").unwrap();
    assert_eq!(model.requests().len(), 2);
    assert!(model.requests().iter().all(|request| request.schema.as_ref() == Some(&schema)));
}

#[test]
fn a_conversation_that_is_taken_up_keeps_its_schema() {
    let fixture = Fixture::new();
    let model = Scripted::new([Reply::text("1"), Reply::text("2")]);
    let schema = json!({"type": "integer"});
    let npc = fixture.team.npc(None).unwrap();
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, npc, Some(schema.clone())).unwrap();
    agent.run("one").unwrap();
    let mut agent = Agent::resume(&session, &fixture.team, npc, "", agent.into_records()).unwrap();
    agent.run("two").unwrap();
    assert!(model.requests().iter().all(|request| request.schema.as_ref() == Some(&schema)));
    // An unchanged conversation needs no further start.
    assert_eq!(agent.records().filter(|record| matches!(record, Record::Start(_))).count(), 1);
}

/// The pieces of a call make up the call; a call that was cut off is neither run nor part of the
/// conversation.
#[test]
fn calls_are_told_in_pieces_and_cut_ones_are_not_made() {
    let model = Scripted::new([shell("echo one two")]);
    let mut pieces = String::new();
    let mut calls = Vec::new();
    for event in model.chat(Request::default()).unwrap() {
        match event.unwrap() {
            Event::ToolCallDelta { index: 0, name, arguments } => {
                assert_eq!(name.is_some(), pieces.is_empty() && arguments.is_empty());
                pieces += &arguments;
            }
            Event::ToolCall(call) => calls.push(call),
            _ => {}
        }
    }
    assert_eq!(serde_json::to_string(&calls[0].arguments).unwrap(), pieces);

    let cut = Reply { cut: Some(("shell".into(), "{\"comm".into())), ..Reply::text("Now:") };
    let (outcome, read) = play([cut]);
    assert_eq!((outcome, read.len()), (Outcome::Length, 0));
}

#[test]
fn a_conversation_continues() {
    let fixture = Fixture::new();
    let model = Scripted::new([Reply::text("first"), Reply::text("second")]);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    agent.run("do it").unwrap();
    assert_eq!(agent.run("again").unwrap(), Outcome::Answer { text: "second".into() });
    let texts: Vec<_> = model.requests()[1].messages.iter().map(|message| message.content.clone()).collect();
    assert_eq!(texts, ["do it", "first", "again"]);
}

#[test]
fn a_call_outside_the_list_is_refused() {
    let mut fixture = Fixture::new();
    let listed = fixture.team.npcs.iter_mut().find(|npc| npc.name == "worker").unwrap();
    listed.jinxes = vec!["read_file".into()];
    let model = Scripted::new([shell("touch forged"), Reply::text("oh")]);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    agent.run("do it").unwrap();
    assert!(!fixture.work().join("forged").exists());
    let refused = agent.records().any(|record| {
        matches!(record, Record::ToolResult { text, .. }
            if text == r#"{"ok":false,"exit":null,"error":"`shell` is not permitted; the tools are: read_file"}"#)
    });
    assert!(refused, "{:#?}", session.trace.entries());
}

#[test]
fn limits_end_a_run() {
    let many = |count| (0..count).map(|index| shell(&format!("echo {index}")));
    let (outcome, read) = play(many(20));
    assert_eq!((outcome, read.len()), (Outcome::TurnLimit { turns: 12 }, 12));

    let (outcome, _) = play([Reply { finish: Some(Finish::Length), ..Reply::text("cut o") }]);
    assert_eq!(outcome, Outcome::Length);

    let (outcome, read) = play([Reply { finish: Some(Finish::Repetition), ..shell("echo a") }]);
    assert_eq!(outcome, Outcome::Repetition { call: None });
    assert_eq!(read, [r#"{"ok":false,"exit":null,"error":"not run: the turn repeats itself"}"#]);
}

/// As [`play`], with other limits.
fn play_within(limits: Limits, replies: impl IntoIterator<Item = Reply>) -> (Outcome, Vec<String>) {
    let fixture = Fixture::new();
    let model = Scripted::new(replies);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let npc = Npc { limits, ..fixture.team.npc(None).unwrap().clone() };
    let mut agent = Agent::new(&session, &fixture.team, &npc, None).unwrap();
    let outcome = agent.run("do it").unwrap();
    let request = trace::request(agent.records());
    let read = request.messages.into_iter().filter(|message| message.role == Role::Tool);
    (outcome, read.map(|message| message.content).collect())
}

const ONCE: &str = r#"{"ok":true,"output":"a"}"#;
const AGAIN: &str =
    r#"{"ok":true,"output":"a","note":"the same call gave the same result as before: it changed nothing"}"#;

#[test]
fn a_repeated_call_is_told_and_only_five_end_the_run() {
    let same = |count| (0..count).map(|_| shell("echo a"));
    let end = || Reply::text("end");
    let (outcome, read) = play(same(4).chain([end()]));
    assert_eq!(outcome, Outcome::Answer { text: "end".into() });
    assert_eq!(read, [ONCE, AGAIN, AGAIN, AGAIN]);

    let repeats = Outcome::Repetition { call: Some("shell".into()) };
    let (outcome, read) = play(same(9));
    assert_eq!(outcome, repeats);
    assert_eq!(read, [ONCE, AGAIN, AGAIN, AGAIN, AGAIN]);

    // In one turn as in several; a call that wasn't run has an answer all the same.
    let calls = same(7).map(|mut reply| reply.calls.remove(0)).collect();
    let (outcome, read) = play([Reply { calls, ..Reply::default() }]);
    assert_eq!(outcome, repeats);
    assert_eq!((read.len(), read[4].as_str()), (7, AGAIN));
    assert!(read[5].contains("not run: the same call was made several times in a row"), "{read:?}");

    let (outcome, read) = play_within(Limits { repeated_calls: 2, ..Limits::default() }, same(9));
    assert_eq!((outcome, read.len()), (repeats.clone(), 2));
    // A single call is no repetition.
    let (outcome, read) = play_within(Limits { repeated_calls: 1, ..Limits::default() }, same(9));
    assert_eq!((outcome, read.len()), (repeats, 2));
}

#[test]
fn another_call_or_another_result_is_no_repetition() {
    let waits = || (0..8).map(|_| shell("echo >> f; wc -l < f"));
    let (outcome, read) = play(waits().chain([Reply::text("end")]));
    assert_eq!(outcome, Outcome::Answer { text: "end".into() });
    assert!(read.iter().all(|text| !text.contains("note")), "{read:?}");

    let twice = |command: &str| [shell(command), shell(command)];
    let others = [twice("echo a"), twice("echo b"), twice("echo a")].into_iter().flatten();
    let (outcome, read) = play(others.chain([Reply::text("end")]));
    assert_eq!(outcome, Outcome::Answer { text: "end".into() });
    assert_eq!((read[4].as_str(), read[5].as_str()), (ONCE, AGAIN));
}

#[test]
fn a_turn_makes_only_so_many_calls() {
    let calls = || (0..300).map(|index| shell(&format!("echo {index} >> f; wc -l < f")).calls.remove(0));
    let many = Reply { calls: calls().collect(), ..Reply::default() };
    let limits = Limits { turn_calls: 3, ..Limits::default() };
    let (outcome, read) = play_within(limits, [many, shell("wc -l < f"), Reply::text("end")]);
    assert_eq!(outcome, Outcome::Answer { text: "end".into() });
    assert_eq!(read.len(), 301);
    assert_eq!(read[2], r#"{"ok":true,"output":"3"}"#);
    let refused = r#"{"ok":false,"exit":null,"error":"not run: a turn may make at most 3 calls"}"#;
    assert!(read[3..300].iter().all(|text| text == refused));
    assert_eq!(read[300], r#"{"ok":true,"output":"3"}"#);
}

#[test]
fn arguments_that_can_not_be_read_are_answered_and_nothing_runs() {
    let broken = |text: &str| Reply {
        calls: vec![ToolCall { arguments: arguments::read(text), ..shell("").calls.remove(0) }],
        ..Reply::default()
    };
    let (outcome, read) =
        play([broken(r#"{"command": "touch f",}"#), shell("ls"), broken("[]"), Reply::text("end")]);
    assert_eq!(outcome, Outcome::Answer { text: "end".into() });
    assert_eq!(
        read,
        [
            "{\"ok\":false,\"exit\":null,\"error\":\"not run: the arguments of `shell` are no JSON object: trailing comma at line 1 \
                column 23; it takes: command, timeout, background\"}",
            r#"{"ok":true,"output":""}"#,
            "{\"ok\":false,\"exit\":null,\"error\":\"not run: the arguments of `shell` are no JSON object: they are a list; it takes: \
                command, timeout, background\"}",
        ]
    );
}

#[test]
fn a_tool_that_is_not_known_is_answered_with_the_nearest_first() {
    let (_, read) = play([Reply::call("readfile", json!({})), Reply::text("end")]);
    assert!(
        read[0].contains("`readfile` is not permitted; the tools are: read_file, shell, python, write_file"),
        "{read:?}"
    );
}

const WRITTEN: &str =
    "<tool_call>\n{\"name\": \"shell\", \"arguments\": {\"command\": \"echo one > f; cat f\"}}\n</tool_call>";

/// Runs a script; also returns the warnings that a person sees, and the final conversation.
fn warned(
    replies: impl IntoIterator<Item = Reply>,
    schema: Option<Value>,
) -> (Outcome, Vec<String>, Vec<Message>) {
    let fixture = Fixture::new();
    let model = Scripted::new(replies);
    let source = Single(&model);
    let warned = std::sync::Mutex::new(Vec::new());
    let session = Session::new(&source, &fixture.sandbox).observed(|notice| {
        if let Notice::Warning(text) = notice {
            warned.lock().unwrap().push((*text).to_owned());
        }
    });
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), schema).unwrap();
    let outcome = agent.run("do it").unwrap();
    let messages = trace::request(agent.records()).messages;
    drop(agent);
    drop(session);
    (outcome, warned.into_inner().unwrap(), messages)
}

#[test]
fn a_call_that_is_written_as_text_is_run_and_told() {
    let (outcome, warnings, messages) =
        warned([Reply::text(format!("I look.\n{WRITTEN}")), Reply::text("end")], None);
    assert_eq!(outcome, Outcome::Answer { text: "end".into() });
    assert_eq!((messages[1].content.as_str(), messages[1].tool_calls.len()), ("I look.", 1));
    assert_eq!(messages[1].tool_calls[0].id, "written_0");
    assert_eq!(
        messages[2],
        Message::tool_result(&messages[1].tool_calls[0], r#"{"ok":true,"output":"one"}"#)
    );
    assert_eq!(
        warnings,
        [
            "the model wrote its call of shell as text: taken as a call; --tool-format generic describes to the model \
            how calls are written"
        ]
    );
}

#[test]
fn a_written_call_passes_list_and_inputs_as_any_other() {
    // An NPC without such a tool can't call it by writing the call as text.
    let forged = WRITTEN.replace("shell", "delegate");
    let (outcome, warnings, messages) = warned([forged.clone(), forged.clone()].map(Reply::text), None);
    assert_eq!((outcome, warnings.len()), (Outcome::Answer { text: forged }, 1));
    assert!(messages[2].content.starts_with("Nothing was run: there is no tool `delegate`"), "{messages:?}");
    let wrong = WRITTEN.replace("command", "cmd");
    let (_, _, messages) = warned([Reply::text(wrong), Reply::text("end")], None);
    assert!(messages[2].content.starts_with("Nothing was run: a call of `shell`"), "{messages:?}");
}

#[test]
fn what_only_looks_like_a_call_is_hinted_at_once() {
    let text = format!("{WRITTEN}\nThis writes one.");
    let replies = || (0..3).map(|_| Reply::text(text.clone()));
    let (outcome, warnings, messages) = warned(replies(), None);
    assert_eq!(outcome, Outcome::Answer { text: text.clone() });
    assert_eq!((warnings.len(), messages.len()), (1, 4));
    assert_eq!(messages[2].role, Role::User);
    assert!(
        messages[2].content.starts_with("Nothing was run: a call of `shell` seems to stand"),
        "{messages:?}"
    );
    // A text that has to be JSON, or that explains calls, is the answer.
    let (outcome, warnings, _) = warned(replies(), Some(json!({})));
    assert_eq!((outcome, warnings.len()), (Outcome::Answer { text: text.clone() }, 0));
    let quoted = format!("An example of Hermes:\n```\n{WRITTEN}\n```");
    let (outcome, warnings, _) = warned([Reply::text(quoted.clone())], None);
    assert_eq!((outcome, warnings.len()), (Outcome::Answer { text: quoted }, 0));
    // The last turn takes no hint.
    let (outcome, _) = play_within(Limits { turns: 1, ..Limits::default() }, replies());
    assert_eq!(outcome, Outcome::Answer { text });
}

#[test]
fn a_deadline_cuts_a_tool_off() {
    let fixture = Fixture::new();
    let model = Scripted::new([shell("sleep 30")]);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let begun = Instant::now();
    let npc = fixture.team.npc(None).unwrap();
    let agent = Agent::new(&session, &fixture.team, npc, None).unwrap();
    let mut agent = agent.until(begun + Duration::from_millis(300));
    assert_eq!(agent.run("do it").unwrap(), Outcome::Deadline);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn cancelling_ends_a_run() {
    let mut fixture = Fixture::new();
    let cancel = Arc::new(AtomicBool::new(false));
    fixture.sandbox = fixture.sandbox.with_cancel(cancel.clone());
    let model = Scripted::new([shell("sleep 30")]);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox).observed(move |notice| {
        if let Notice::Call { .. } = notice {
            cancel.store(true, Ordering::Relaxed);
        }
    });
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    assert_eq!(agent.run("do it").unwrap(), Outcome::Cancelled);
    assert!(matches!(agent.records().last(), Some(Record::End { outcome: Outcome::Cancelled })));
}

#[test]
fn each_call_of_a_turn_has_an_answer_whatever_happens() {
    let fixture = Fixture::new();
    let call = |id: &str| shell(id).calls.remove(0);
    let two = Reply { calls: vec![call("echo 1"), call("echo 2")], ..Reply::default() };
    let model = Scripted::new([two, Reply::text("I see.")]);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    std::fs::remove_dir(fixture.work()).unwrap();
    agent.run("do it").unwrap_err();
    std::fs::create_dir(fixture.work()).unwrap();
    agent.run("again").unwrap();
    let roles: Vec<Role> = model.requests()[1].messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::User]);
}

#[test]
fn a_model_that_fails_is_recorded() {
    let fixture = Fixture::new();
    let model = Scripted::default();
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    assert_eq!(agent.run("do it").unwrap_err().to_string(), "the model can't answer");
    let error = "the model can't answer: the script has no reply for turn 1".to_owned();
    assert_eq!(agent.records().last(), Some(&Record::End { outcome: Outcome::Failed { error } }));
}

#[test]
fn a_trace_file_folds_to_the_same_conversation() {
    let fixture = Fixture::new();
    let model = Scripted::new([shell("echo é; exit 2"), Reply::text("ok"), Reply::text("two")]);
    let path = fixture.work().join("deep/trace.jsonl");
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox).traced(Trace::create(&path).unwrap());
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    agent.run("do it").unwrap();
    agent.run("more").unwrap();
    let read = trace::read(&path).unwrap();
    assert_eq!(read, session.trace.entries());
    let records: Vec<&Record> = read.iter().map(|entry| &*entry.record).collect();
    let last = model.requests().pop().unwrap();
    let before = records.iter().rposition(|record| matches!(record, Record::Assistant { .. })).unwrap();
    assert_eq!(trace::request(records[..before].iter().copied()), last);

    let mut text = std::fs::read_to_string(&path).unwrap();
    text += r#"{"time":"2026-01-01T00:00:00Z","record":"us"#;
    std::fs::write(&path, text).unwrap();
    assert_eq!(trace::read(&path).unwrap(), read);
    assert!(Trace::create(&path).unwrap_err().to_string().starts_with("can't use the trace file"));
    assert!(trace::read(Path::new("/no/such")).is_err());
}
