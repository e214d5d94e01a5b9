use alara_engine::{Finish, Message, ToolCall};
use serde_json::json;

use super::*;
use crate::trace::Trace;
use crate::types::{Outcome, ToolResult};

/// A run with one call and the user message `task`.
fn write(path: &Path, task: &str) -> Trace {
    let trace = Trace::create(path).unwrap();
    let call = ToolCall { id: "call_1".into(), name: "shell".into(), arguments: serde_json::Map::new() };
    let turn = |text: &str, calls: Vec<ToolCall>| Record::Assistant {
        message: Message::assistant(text, calls),
        finish: Finish::Stop,
        usage: Usage { prompt_tokens: 10, cached_tokens: 4, completion_tokens: 3, ..Usage::default() },
    };
    let result = ToolResult::succeeded("seventeen files");
    trace.push("", Record::User { text: task.into() }).unwrap();
    trace.push("", turn("I look", vec![call.clone()])).unwrap();
    trace.push("", Record::ToolCall { call: call.clone() }).unwrap();
    trace.push("call_1/ask", turn("inside", Vec::new())).unwrap();
    let inner = Outcome::Answer { text: "inside".into() };
    trace.push("call_1/ask", Record::End { outcome: inner }).unwrap();
    let text = result.text(99);
    trace.push("", Record::ToolResult { call, result, text, seconds: 0.5 }).unwrap();
    trace
}

fn count(index: &Index, table: &str) -> i64 {
    index.database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[test]
fn an_index_follows_the_files() {
    let place = tempfile::tempdir().unwrap();
    let (traces, database) = (place.path().join("traces"), place.path().join("traces.sqlite"));
    let first = write(&traces.join("1-1.jsonl"), "count the \"files\"");
    let mut index = Index::open(&database).unwrap();
    assert!(index.update(&traces).unwrap().is_empty());
    let run = index.find(None).unwrap().unwrap();
    assert_eq!((run.id.as_str(), run.task.as_str()), ("1-1", "count the \"files\""));
    assert_eq!((run.outcome.as_str(), run.turns, run.calls), ("unfinished", 2, 1));
    assert_eq!((run.prompt_tokens, run.cached_tokens, run.completion_tokens), (20, 8, 6));

    // It has grown; another is new; one is not a trace.
    let outcome = Outcome::Answer { text: "17".into() };
    first.push("", Record::End { outcome }).unwrap();
    write(&traces.join("2-1.jsonl"), "tell a joke");
    std::fs::write(traces.join("3-1.jsonl"), "no trace\n").unwrap();
    std::fs::write(traces.join("4-1.jsonl"), "").unwrap();
    let left_out = index.update(&traces).unwrap();
    assert_eq!(left_out.len(), 1);
    assert!(left_out[0].to_string().ends_with("3-1.jsonl:1: not a trace record"), "{}", left_out[0]);
    assert_eq!(index.find(Some("1-1")).unwrap().unwrap().outcome, "answer");
    let messages = count(&index, "messages");
    index.update(&traces).unwrap();
    assert_eq!((count(&index, "runs"), count(&index, "messages")), (2, messages));

    let ids = |index: &Index, search: Option<&str>, limit| {
        let runs = index.runs(search, limit).unwrap();
        runs.into_iter().map(|run| run.id).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ids(&index, None, 9), "2-1 1-1");
    assert_eq!(ids(&index, None, 1), "2-1");
    assert_eq!(ids(&index, Some("seventeen"), 9), "2-1 1-1");
    assert_eq!(ids(&index, Some("joke tell"), 9), "2-1");
    assert_eq!(ids(&index, Some("\"files\" OR NEAR("), 9), "");
    assert_eq!(ids(&index, Some("the \"files\""), 9), "1-1");
    assert_eq!(index.find(Some("-1")).unwrap(), None, "two have it");
    assert_eq!(index.find(Some("2-")).unwrap().unwrap().id, "2-1");
    let containing = |id: &str, limit| {
        let runs = index.containing(id, limit).unwrap();
        runs.into_iter().map(|run| run.id).collect::<Vec<_>>().join(" ")
    };
    assert_eq!([containing("-1", 9), containing("-1", 1), containing("9", 9)], ["2-1 1-1", "2-1", ""]);

    // A deleted file leaves the index, in the search too.
    std::fs::remove_file(traces.join("2-1.jsonl")).unwrap();
    index.update(&traces).unwrap();
    assert_eq!((ids(&index, None, 9).as_str(), ids(&index, Some("joke"), 9).as_str()), ("1-1", ""));
}

#[test]
fn a_database_that_is_lost_broken_or_old_is_made_anew() {
    let place = tempfile::tempdir().unwrap();
    let (traces, database) = (place.path().join("traces"), place.path().join("traces.sqlite"));
    write(&traces.join("1-1.jsonl"), "x");
    let check = |what: &str| {
        let mut index = Index::open(&database).unwrap();
        index.update(&traces).unwrap();
        assert_eq!(index.runs(Some("x"), 9).unwrap().len(), 1, "{what}");
        index
    };
    let before = check("new").runs(None, 9).unwrap();
    std::fs::remove_file(&database).unwrap();
    assert_eq!(check("lost").runs(None, 9).unwrap(), before);
    std::fs::write(
        &database,
        json!("no database, but long enough to be read as the header of one. ".repeat(9)).to_string(),
    )
    .unwrap();
    let index = check("broken");
    index.database.execute_batch("PRAGMA user_version = 99; DROP TABLE runs; CREATE TABLE runs (a)").unwrap();
    drop(index);
    assert_eq!(check("old").runs(None, 9).unwrap(), before);
}

#[test]
fn a_full_disk_takes_no_index_and_the_traces_are_listed() {
    let place = tempfile::tempdir().unwrap();
    let traces = place.path().join("traces");
    write(&traces.join("1-1.jsonl"), "x");
    // Where no file can be created, as on a full disk.
    let (index, left_out) = Index::of(&traces, &place.path().join("absent/traces.sqlite")).unwrap();
    assert_eq!((index.runs(Some("x"), 9).unwrap().len(), left_out.len()), (1, 0));
    assert!(matches!(
        Index::of(&place.path().join("absent"), Path::new(":memory:")),
        Err(Error::Team(alara_team::Error::Read { .. }))
    ));
}
