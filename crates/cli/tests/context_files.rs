//! `AGENTS.md`: read after a confirmation, as one static segment, and recorded in the trace.

use alara_harness::context_files::ContextFiles;
use alara_harness::permission::{Answer, Permissions};
use serde_json::{Value, json};

use crate::dirs::{TestDir, at_a_terminal, code, text};

/// A repository with two such files, and a work directory inside.
fn repository() -> TestDir {
    let dir = TestDir::with(&json!([{"text": "Hello."}]));
    dir.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    dir.write("repo/AGENTS.md", "Use tabs.\n");
    dir.write("repo/here/AGENTS.md", "\u{feff}Use spaces.\r\n");
    dir.write("team/team.ctx", "context: All know this.\nforenpc: one\n");
    dir.write("team/one.npc", "name: one\nprimary_directive: Go.\njinxes: []\n");
    dir
}

const FIXED: [&str; 9] =
    ["run", "-t", "team", "-m", "script:script.json", "--workdir", "repo/here", "--trace", "trace.jsonl"];

/// Returns the first record of a run's trace, and the run's messages.
fn begun(dir: &TestDir, more: &[&str]) -> (Value, String) {
    let _ = std::fs::remove_file(dir.path("trace.jsonl"));
    let output = dir.alara(&[&FIXED[..], more, &["hi there"]].concat()).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    (dir.trace().swap_remove(0), text(&output.stderr))
}

fn names(start: &Value) -> Vec<&str> {
    start["system"].as_array().unwrap().iter().map(|segment| segment["name"].as_str().unwrap()).collect()
}

#[test]
fn context_files_are_one_static_segment_behind_what_all_share() {
    let dir = repository();
    let (start, shown) = begun(&dir, &["--context-files"]);
    assert_eq!(names(&start), ["context", "context_files", "directive"]);
    assert_eq!(
        start["system"][1]["text"],
        "Where these instructions differ, the later ones count.\n\n\
         <instructions file=\"AGENTS.md\">\nUse tabs.\n</instructions>\n\n\
         <instructions file=\"here/AGENTS.md\">\nUse spaces.\n</instructions>"
    );
    assert!(!shown.contains("AGENTS.md"), "{shown}");
    let files = start["context_files"].as_array().unwrap();
    assert_eq!((&files[0]["path"], &files[0]["bytes"]), (&json!("AGENTS.md"), &json!(10)));
    assert_eq!(files[1]["sha256"].as_str().map(str::len), Some(64));
    // A replay uses the text that was read then.
    dir.write("repo/AGENTS.md", "Use nothing.\n");
    let replayed = dir.alara(&["trace", "replay", "trace.jsonl"]).output().unwrap();
    assert!(code(&replayed) == 0 && text(&replayed.stdout).contains("the same: "), "{replayed:?}");
    let told = dir.alara(&["trace", "show", "trace.jsonl"]).output().unwrap();
    assert!(text(&told.stdout).contains("  reads here/AGENTS.md, "), "{told:?}");
}

#[test]
fn context_files_that_nobody_said_yes_to_are_not_read_and_that_is_told() {
    let dir = repository();
    let hint = "hint: look at it; --context-files reads it, --no-context-files leaves it without a word\n";
    let not_read = |more: &[&str]| {
        let (start, shown) = begun(&dir, more);
        assert_eq!(names(&start), ["context", "directive"]);
        assert_eq!(start.get("context_files"), None);
        shown
    };
    let shown = not_read(&[]);
    assert_eq!(shown.matches("not read, since nobody said yes").count(), 1, "{shown}");
    assert!(shown.contains(hint), "{shown}");
    assert!(!not_read(&["--no-context-files"]).contains("AGENTS.md"));
    let is_read = |more: &[&str]| names(&begun(&dir, more).0).contains(&"context_files");
    assert!(is_read(&["--yes"]));
    // That answer isn't stored; a lasting answer is, until a file's contents change.
    not_read(&[]);
    let files = ContextFiles::read(&dir.path("repo/here")).unwrap();
    let (holder, about) = (files.root.display().to_string(), format!("/AGENTS.md {}", files.fingerprint()));
    let answers = Permissions::open(&dir.path("state/alara/permissions.json")).unwrap();
    answers.remember(&holder, &about, Answer::Always).unwrap();
    assert!(is_read(&[]));
    assert!(!is_read(&["--no-context-files"]));
    dir.write("repo/AGENTS.md", "Use both.\n");
    not_read(&[]);
    dir.write("repo/AGENTS.md", "Use tabs.\n");
    assert!(is_read(&[]));
    answers.remember(&holder, &about, Answer::Never).unwrap();
    not_read(&[]);
    not_read(&["--yes"]);
}

#[test]
fn context_files_that_can_not_be_read_are_told_or_an_error_where_they_were_asked_for() {
    let dir = repository();
    let check = |text: &[u8], expected: &str| {
        std::fs::write(dir.path("repo/here/AGENTS.md"), text).unwrap();
        let (start, shown) = begun(&dir, &[]);
        assert_eq!(names(&start), ["context", "directive"]);
        assert!(shown.contains("warning: no AGENTS.md is read: ") && shown.contains(expected), "{shown}");
        assert!(shown.contains("hint: mend it, or --no-context-files"), "{shown}");
        let output = dir.alara(&[&FIXED[..], &["--context-files", "hi there"]].concat()).output().unwrap();
        let error = crate::dirs::text(&output.stderr);
        assert!(code(&output) == 2 && error.contains(expected), "{error}");
    };
    check(b"a\xff", "here/AGENTS.md: it can't be read: ");
    check(&b"x".repeat(40_000), "40010 bytes, at most 32768 are read: shorten it");
    std::fs::remove_file(dir.path("repo/here/AGENTS.md")).unwrap();
    std::fs::create_dir(dir.path("repo/here/AGENTS.md")).unwrap();
    let (_, shown) = begun(&dir, &[]);
    assert!(shown.contains("here/AGENTS.md: it can't be read: it is no regular file"), "{shown}");
}

#[test]
fn at_a_terminal_a_person_is_asked_about_context_files_until_they_change() {
    let dir = repository();
    let asked = |answers: &[(&str, &str)]| {
        let _ = std::fs::remove_file(dir.path("trace.jsonl"));
        let (code, shown) = at_a_terminal(&dir, &[&FIXED[..], &["hi there"]].concat(), answers);
        assert_eq!(code, 0, "{shown}");
        (names(&dir.trace()[0]).contains(&"context_files"), shown)
    };
    let question = "let agents heed what it says?";
    let (read, shown) = asked(&[(question, "n")]);
    assert!(!read && shown.contains("here/AGENTS.md"), "{shown}");
    assert!(asked(&[(question, "y")]).0);
    assert!(asked(&[(question, "a")]).0);
    let (read, shown) = asked(&[]);
    assert!(read && !shown.contains(question), "{shown}");
    dir.write("repo/AGENTS.md", "Use both.\n");
    assert!(!asked(&[(question, "n")]).0);
}

#[test]
fn a_chat_reads_context_files_and_no_jinx_does() {
    let dir = repository();
    let arguments =
        ["chat", "-t", "team", "-m", "script:script.json", "--workdir", "repo/here", "--context-files"];
    assert_eq!(dir.with_input(&arguments, "hi there\n").status.code(), Some(0));
    let records = text(&dir.with_input(&["trace", "show", "--json"], "").stdout);
    let start: Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
    assert_eq!(names(&start), ["context", "context_files", "directive"]);
    dir.write("x.jinx", "steps: [{engine: text, text: fine}]\n");
    let output = dir.alara(&["run", "x.jinx", "--workdir", "repo/here"]).output().unwrap();
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("fine\n", ""));
}
