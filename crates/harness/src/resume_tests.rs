use std::fs::File;

use alara_engine::{Finish, Message, Usage};
use serde_json::Map;

use super::*;
use crate::undo::By;

/// A work directory, the trace of a conversation in it, and the journals of sessions.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Place { root: tempfile::tempdir().unwrap() };
        fs::create_dir(place.work()).unwrap();
        place.write("a", "one\n");
        place
    }

    fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    fn path(&self) -> PathBuf {
        self.root.path().join("trace.jsonl")
    }

    fn undo(&self) -> PathBuf {
        self.root.path().join("undo")
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.work().join(path), text).unwrap();
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.work().join(path)).ok()
    }

    fn journal(&self, name: &str) -> Journal {
        Journal::new(self.undo().join(name))
    }

    /// Applies `change` to `a` and `new`, for the call with this scope; if it is `cut` off, without
    /// its end.
    fn does(&self, session: &str, scope: &str, cut: bool, change: impl FnOnce()) {
        let (path, journal) = (self.path(), self.journal(session));
        let by = By { text: "coder: shell", trace: Some(&path), scope };
        let before = journal.before(&self.work(), ["a", "new"].map(Path::new).into_iter(), by);
        change();
        if cut {
            // A killed process drops nothing.
            std::mem::forget(journal);
        } else {
            journal.after(before);
        }
    }

    fn resume(&self) -> Resumed {
        resume(&self.path(), &self.work(), Some((&self.undo(), &self.journal("2")))).unwrap()
    }

    /// The results in the trace: the call, and the error.
    fn results(&self) -> Vec<(String, String)> {
        let result = |line: Line| match &*line.entry.record {
            Record::ToolResult { call, result, .. } => {
                Some((inside(&line.entry.scope, &call.id), result.error.clone()))
            }
            _ => None,
        };
        crate::trace::lines(&self.path()).unwrap().into_iter().filter_map(result).collect()
    }
}

fn call(id: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: "shell".to_owned(), arguments: Map::new() }
}

fn start(place: &Place) -> Record {
    let start = serde_json::json!({
        "version": "1", "team": "t", "npc": "coder", "model": "m", "work": place.work(), "sandbox": "",
        "limits": Limits::default(), "system": [], "tools": [], "sampling": alara_engine::Sampling::default(),
    });
    Record::Start(Box::new(serde_json::from_value(start).unwrap()))
}

fn asked(text: &str) -> Record {
    Record::User { text: text.to_owned() }
}

fn calls(ids: &[&str]) -> Record {
    let calls = ids.iter().map(|id| call(id)).collect();
    Record::Assistant {
        message: Message::assistant("", calls),
        finish: Finish::ToolCalls,
        usage: Usage::default(),
    }
}

fn begun(id: &str) -> Record {
    Record::ToolCall { call: call(id) }
}

fn done(id: &str) -> Record {
    let result = ToolResult::succeeded("");
    Record::ToolResult { call: call(id), text: result.text(100), result, seconds: 0.0 }
}

#[test]
fn a_call_that_was_cut_off_is_taken_back_and_told() {
    let place = Place::new();
    let trace = Trace::create(&place.path()).unwrap();
    let push = |record| drop(trace.push("", record).unwrap());
    [start(&place), asked("go"), calls(&["1", "2", "3"]), begun("1")].into_iter().for_each(push);
    place.does("1", "1", false, || place.write("a", "by 1\n"));
    push(done("1"));
    push(begun("2"));
    place.does("cut", "2", true, || {
        place.write("a", "by 2\n");
        place.write("new", "new\n");
        place.write(".alara-2147483647-0.new", "half");
    });
    drop(trace);
    let resumed = place.resume();
    assert_eq!((resumed.cut_off, resumed.news()), (1, None));
    assert_eq!(place.read("a").as_deref(), Some("by 1\n"));
    assert_eq!(place.read("new"), None);
    assert_eq!(fs::read_dir(place.work()).unwrap().count(), 1);
    let told = "interrupted: alara was ended while this ran; what it had changed was taken back (a, new)";
    let results = [("1", ""), ("2", told), ("3", "not run: cancelled")];
    assert_eq!(place.results(), results.map(|(call, error)| (call.to_owned(), error.to_owned())));
    let last = resumed.trace.entries().pop().unwrap();
    assert_eq!(*last.record, Record::End { outcome: Outcome::Cancelled });
    // A second time there is nothing to do.
    let length = resumed.trace.len();
    drop(resumed);
    let again = place.resume();
    assert_eq!((again.trace.len(), again.cut_off), (length, 0));
    assert_eq!(place.read("a").as_deref(), Some("by 1\n"));
}

#[test]
fn what_a_dead_session_started_is_waited_for() {
    let place = Place::new();
    let trace = Trace::create(&place.path()).unwrap();
    [start(&place), asked("go"), calls(&["1"]), begun("1")]
        .into_iter()
        .for_each(|record| drop(trace.push("", record).unwrap()));
    place.does("cut", "1", true, || {});
    drop(trace);
    // The program outlives the killed session, by longer than any beat.
    let beat = undo::hold(&place.undo().join("cut/beat")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(500));
            place.write("a", "late\n");
            undo::touch(&beat);
            drop(beat);
        });
        place.resume();
    });
    assert_eq!(place.read("a").as_deref(), Some("one\n"));
}

#[test]
fn what_calls_inside_of_one_have_done_stays() {
    let place = Place::new();
    let trace = Trace::create(&place.path()).unwrap();
    let push = |scope: &str, record| drop(trace.push(scope, record).unwrap());
    [start(&place), asked("go"), calls(&["1"]), begun("1")].into_iter().for_each(|record| push("", record));
    let inner = "1/give";
    [start(&place), asked("do"), calls(&["1", "2"]), begun("1")]
        .into_iter()
        .for_each(|record| push(inner, record));
    place.does("1", "1/give/1", false, || place.write("a", "done\n"));
    [done("1"), begun("2")].into_iter().for_each(|record| push(inner, record));
    place.does("cut", "1/give/2", true, || place.write("new", "new\n"));
    drop(trace);
    place.resume();
    assert_eq!((place.read("a").as_deref(), place.read("new")), (Some("done\n"), None));
    let told = "interrupted: alara was ended while this ran; what it had changed was taken back (new); \
                one call inside of it was done, and stays";
    assert_eq!(place.results().last().unwrap(), &("1".to_owned(), told.to_owned()));
}

#[test]
fn what_somebody_has_changed_since_a_call_was_cut_off_stays() {
    for whole in [false, true] {
        let place = Place::new();
        let trace = Trace::create(&place.path()).unwrap();
        [start(&place), asked("go"), calls(&["1"]), begun("1")]
            .into_iter()
            .for_each(|record| drop(trace.push("", record).unwrap()));
        if whole {
            // Its changes aren't known.
            let (path, journal) = (place.path(), place.journal("1"));
            let by = By { text: "coder: shell", trace: Some(&path), scope: "1" };
            let before = journal.look(&place.work(), by);
            place.write("new", "half");
            std::mem::forget(journal);
            drop(before);
        } else {
            place.does("1", "1", true, || place.write("new", "half"));
        }
        drop(trace);
        std::thread::sleep(std::time::Duration::from_millis(500));
        place.write("a", "by me\n");
        place.write("mine", "mine\n");
        let resumed = place.resume();
        assert_eq!(resumed.changed, ["a", "mine"], "{whole}");
        assert_eq!((place.read("a").as_deref(), place.read("new")), (Some("by me\n"), None), "{whole}");
        assert_eq!(place.read("mine").as_deref(), Some("mine\n"), "{whole}");
    }
}

#[test]
fn what_somebody_has_changed_since_is_told_and_stays() {
    let place = Place::new();
    place.write("b", "b\n");
    fs::create_dir(place.work().join("sub")).unwrap();
    place.write("sub/gone", "");
    let trace = Trace::create(&place.path()).unwrap();
    [start(&place), asked("go"), calls(&["1"]), begun("1")]
        .into_iter()
        .for_each(|record| drop(trace.push("", record).unwrap()));
    drop(trace);
    std::thread::sleep(std::time::Duration::from_millis(30));
    place.write("b", "by me\n");
    fs::remove_file(place.work().join("sub/gone")).unwrap();
    let resumed = place.resume();
    assert_eq!(resumed.changed, ["b", "sub/"]);
    let news = "While this conversation was interrupted, there were changes to b, sub/.";
    assert_eq!(resumed.news().as_deref(), Some(news));
    assert_eq!(place.read("b").as_deref(), Some("by me\n"));
}

#[test]
fn the_work_directory_itself_is_no_change() {
    let place = Place::new();
    place.write("gone", "");
    let trace = Trace::create(&place.path()).unwrap();
    [start(&place), asked("go")].into_iter().for_each(|record| drop(trace.push("", record).unwrap()));
    drop(trace);
    std::thread::sleep(std::time::Duration::from_millis(30));
    fs::remove_file(place.work().join("gone")).unwrap();
    assert_eq!(place.resume().changes(), None);
}

#[test]
fn a_conversation_that_has_ended_goes_on_as_it_is() {
    let place = Place::new();
    let trace = Trace::create(&place.path()).unwrap();
    let end = Record::End { outcome: Outcome::Answer { text: "b".to_owned() } };
    let answer = Record::Assistant {
        message: Message::assistant("b", Vec::new()),
        finish: Finish::Stop,
        usage: Usage::default(),
    };
    for record in [start(&place), asked("a"), answer, end] {
        trace.push("", record).unwrap();
    }
    trace.push("@other", start(&place)).unwrap();
    trace.push("@other", asked("a")).unwrap();
    drop(trace);
    let resumed = place.resume();
    assert_eq!(resumed.last, "@other");
    let last = |scope: &str| resumed.conversations[scope].records.last().unwrap().clone();
    assert!(matches!(&*last(""), Record::End { outcome: Outcome::Answer { .. } }));
    assert_eq!(*last("@other"), Record::End { outcome: Outcome::Cancelled });
}

#[test]
fn what_is_no_conversation_is_said_so() {
    let place = Place::new();
    let refused = |place: &Place| resume(&place.path(), &place.work(), None).err().unwrap().to_string();
    assert!(refused(&place).starts_with("can't use the trace file "));
    File::create(place.path()).unwrap();
    assert!(refused(&place).starts_with("no conversation begins in "));
    fs::write(place.path(), "no\n").unwrap();
    assert!(refused(&place).ends_with(":1: not a trace record"));
}
