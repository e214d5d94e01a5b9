//! `--ask` and `--dry-run`: an agent's changes are shown before they are written, or not written at
//! all.

use serde_json::{Value, json};

use crate::dirs::{TestDir, at_a_terminal, code, sandboxed, text};

/// A work directory with a file, and a model that makes these calls.
fn calling(calls: &[(&str, Value)]) -> TestDir {
    let call = |(name, arguments): &(&str, Value)| json!({"calls": [{"name": name, "arguments": arguments}]});
    let replies: Vec<Value> = calls.iter().map(call).chain([json!({"text": "Done."})]).collect();
    let dir = TestDir::with(&Value::from(replies));
    dir.write("work/a.txt", "one\ntwo\nthree\n");
    dir.write("work/docs/b.txt", "b\n");
    dir
}

fn content(dir: &TestDir, name: &str) -> Option<String> {
    std::fs::read_to_string(dir.path("work").join(name)).ok()
}

fn results(dir: &TestDir) -> Vec<Value> {
    let results = dir.trace().into_iter().filter(|record| record["record"] == "tool_result");
    results.map(|record| record["result"].clone()).collect()
}

const FIXED: [&str; 7] = ["run", "-m", "script:script.json", "--workdir", "work", "--trace", "trace.jsonl"];
const ASK: &str = "do it?";

fn edit(find: &str, replace: &str) -> (&'static str, Value) {
    ("edit_file", json!({"path": "a.txt", "find": find, "replace": replace}))
}

fn shell(command: &str) -> (&'static str, Value) {
    ("shell", json!({"command": command}))
}

#[test]
fn ask_needs_somebody_who_answers() {
    let dir = calling(&[]);
    let check = |arguments: &[&str], expected: &str| {
        let output = dir.alara(arguments).output().unwrap();
        let error = text(&output.stderr);
        assert!(code(&output) == 2 && error.contains(expected), "{arguments:?}: {error}");
    };
    let run = |more: &[&'static str]| [&FIXED[..], more, &["do it"]].concat();
    check(&run(&["--ask"]), "--ask needs a terminal for its questions and their answers\nhint: leave it out");
    let chat = ["chat", "-m", "script:script.json", "--workdir", "work", "--ask"];
    check(&chat, "--ask needs a terminal");
    check(&run(&["--ask", "--json"]), "cannot be used with");
    check(&run(&["--ask", "--yes"]), "cannot be used with");
    check(&run(&["--ask", "--dry-run"]), "cannot be used with");
    dir.write("x.jinx", "steps: [{engine: text, text: fine}]\n");
    check(
        &["run", "--dry-run", "x.jinx"],
        "--dry-run is for the calls of an agent; a jinx that you start yourself",
    );
    assert!(!dir.path("trace.jsonl").exists());
}

#[test]
fn ask_shows_each_write_as_a_diff_before_it_happens() {
    if !sandboxed("ask_shows_each_write_as_a_diff_before_it_happens") {
        return;
    }
    let calls = [edit("two", "2"), shell("echo new > new.txt; rm docs/b.txt"), edit("one", "1")];
    let dir = calling(&calls);
    let (code, shown) = at_a_terminal(
        &dir,
        &[&FIXED[..], &["--ask", "do it"]].concat(),
        &[(ASK, "y"), (ASK, "n"), (ASK, "yes")],
    );
    assert_eq!(code, 0, "{shown}");
    let shown = shown.replace("\r\n", "\n");
    for expected in [
        "  path: a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n",
        "command: echo new > new.txt; rm docs/b.txt\n",
        "--- a/docs/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
    assert_eq!(content(&dir, "a.txt").as_deref(), Some("1\n2\nthree\n"));
    assert_eq!((content(&dir, "docs/b.txt").as_deref(), content(&dir, "new.txt")), (Some("b\n"), None));
    let error = results(&dir)[1]["error"].as_str().unwrap().to_owned();
    let expected =
        "undone, no file was changed: it removes docs/b.txt, creates new.txt, and the user does not allow it";
    assert_eq!(error, expected);
    let replayed = dir.alara(&["trace", "replay", "trace.jsonl"]).output().unwrap();
    assert!(text(&replayed.stdout).contains("the same: "), "{replayed:?}");
}

#[test]
fn the_question_about_a_loss_shows_what_is_written_over() {
    if !sandboxed("the_question_about_a_loss_shows_what_is_written_over") {
        return;
    }
    let calls = [edit("two", "2"), shell("rm docs/b.txt; echo new > new.txt; echo x > a.txt")];
    let dir = calling(&calls);
    let (code, shown) = at_a_terminal(&dir, &[&FIXED[..], &["do it"]].concat(), &[(ASK, "y"), (ASK, "n")]);
    let shown = shown.replace("\r\n", "\n");
    for expected in [
        "  it overwrites a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n",
        "  it removes docs/b.txt\n",
        "-three\n+x\n",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
    // Deletions and new files need no diff.
    assert!(!shown.contains("+new") && !shown.contains("-b\n"), "{shown}");
    // The last change was refused.
    assert_eq!((code, content(&dir, "a.txt").as_deref()), (1, Some("one\n2\nthree\n")), "{shown}");
}

#[test]
fn ask_is_over_with_a_yes_for_the_session() {
    if !sandboxed("ask_is_over_with_a_yes_for_the_session") {
        return;
    }
    let dir = calling(&[shell("cat a.txt"), shell("echo 1 > x"), shell("echo 2 > y"), shell("rm a.txt")]);
    let (code, shown) = at_a_terminal(&dir, &[&FIXED[..], &["--ask", "do it"]].concat(), &[(ASK, "s")]);
    assert_eq!((code, shown.matches(ASK).count()), (0, 1), "{shown}");
    assert_eq!((content(&dir, "y").as_deref(), content(&dir, "a.txt")), (Some("2\n"), None));
}

#[test]
fn what_is_about_to_be_written_can_be_edited_first() {
    if !sandboxed("what_is_about_to_be_written_can_be_edited_first") {
        return;
    }
    let dir = calling(&[edit("two", "2"), edit("three", "3")]);
    // The second time it saves no changes.
    dir.write("editor", "#!/bin/sh\ncase $(cat \"$2\") in *mine*) exit;; esac\nsed -i s/2/mine/ \"$2\"\n");
    let mut command = dir.alara(&[&FIXED[..], &["--ask", "do it"]].concat());
    command.env("EDITOR", format!("sh {} --wait", dir.path("editor").display())).env_remove("VISUAL");
    let (code, shown) =
        crate::dirs::typed(command, &[(ASK, "e"), (ASK, "e"), ("nothing was edited", ""), (ASK, "y")]);
    assert_eq!(code, 0, "{shown}");
    assert_eq!(content(&dir, "a.txt").as_deref(), Some("one\nmine\n3\n"), "{shown}");
    let results = results(&dir);
    assert_eq!(results[0]["note"], "the user edited this before it was written, so read it again: a.txt");
    assert_eq!((&results[1]["ok"], results[1].get("note")), (&json!(true), None));
    let by = dir.trace().into_iter().filter_map(|record| record["by"].as_str().map(str::to_owned));
    assert!(by.collect::<Vec<_>>()[0].ends_with("it changes a.txt; edited: a.txt"));
}

#[test]
fn without_an_editor_the_question_stays() {
    if !sandboxed("without_an_editor_the_question_stays") {
        return;
    }
    let dir = calling(&[edit("two", "2")]);
    let mut command = dir.alara(&[&FIXED[..], &["--ask", "do it"]].concat());
    command.env_remove("EDITOR").env_remove("VISUAL");
    let (code, shown) = crate::dirs::typed(command, &[(ASK, "e"), ("set VISUAL or EDITOR", ""), (ASK, "n")]);
    assert_eq!(code, 1, "{shown}");
    assert_eq!(content(&dir, "a.txt").as_deref(), Some("one\ntwo\nthree\n"));
}

#[test]
fn a_chat_asks_too() {
    if !sandboxed("a_chat_asks_too") {
        return;
    }
    let dir = calling(&[shell("echo 1 > x")]);
    let arguments = ["chat", "-m", "script:script.json", "--workdir", "work", "--ask"];
    let answers = [("Ctrl-D leaves", "go on"), (ASK, "n"), ("Done.", "/quit")];
    let (code, shown) = at_a_terminal(&dir, &arguments, &answers);
    assert_eq!((code, content(&dir, "x")), (0, None), "{shown}");
    assert!(shown.contains("+++ b/x"), "{shown}");
}

#[test]
fn a_dry_run_shows_the_calls_and_changes_nothing() {
    if !sandboxed("a_dry_run_shows_the_calls_and_changes_nothing") {
        return;
    }
    let dir = calling(&[]);
    dir.write("team/one.npc", "name: one\nprimary_directive: Go.\njinxes: [shell, edit_file, read_file, write_file, sly, guarded]\n");
    // A tool that claims to only read is run, but still can't write.
    dir.write(
        "team/jinxes/sly.jinx",
        "effect: read\nsteps: [{engine: bash, code: 'cat a.txt; echo sly > sly.txt'}]\n",
    );
    dir.write(
        "team/jinxes/guarded.jinx",
        "permission: ask\neffect: read\nsteps: [{engine: bash, code: 'echo asked'}]\n",
    );
    dir.write("team/permissions.yaml", "write_file: deny\n");
    let calls = [
        shell("rm -r docs; echo new > new.txt"),
        edit("two", "2"),
        ("read_file", json!({"path": "a.txt"})),
        ("sly", json!({})),
        ("guarded", json!({})),
        ("write_file", json!({"path": "c", "content": "c"})),
    ];
    let call = |(name, arguments): &(&str, Value)| json!({"calls": [{"name": name, "arguments": arguments}]});
    let replies: Vec<Value> = calls.iter().map(call).chain([json!({"text": "Done."})]).collect();
    dir.write("script.json", &Value::from(replies).to_string());
    let before = files(&dir);
    for yes in [&[][..], &["--yes"]] {
        let _ = std::fs::remove_file(dir.path("trace.jsonl"));
        let output = dir
            .alara(&[&FIXED[..], &["-t", "team", "--dry-run"], yes, &["do it"]].concat())
            .output()
            .unwrap();
        let shown = text(&output.stderr);
        assert_eq!(code(&output), 0, "{shown}");
        assert!(shown.contains("> shell  command: rm -r docs; echo new > new.txt  ok, "), "{shown}");
        assert_eq!(files(&dir), before, "{shown}");
        let results = results(&dir);
        let dry = "this is a dry run: the call was not made, and nothing has changed";
        for not_made in [0, 1, 4] {
            assert_eq!((&results[not_made]["ok"], &results[not_made]["output"]), (&json!(true), &json!(dry)));
        }
        assert_eq!(results[2]["output"], "one\ntwo\nthree");
        assert_eq!((&results[3]["ok"], &results[3]["output"]), (&json!(false), &json!("one\ntwo\nthree")));
        assert!(results[5]["error"].as_str().unwrap().contains("is not permitted by permissions.yaml:1"));
        assert_eq!(dir.trace()[0]["dry_run"], true);
        let replayed = dir.alara(&["trace", "replay", "trace.jsonl"]).output().unwrap();
        assert!(text(&replayed.stdout).contains("the same: "), "{replayed:?}");
    }
    let undo = dir.alara(&["undo", "--list"]).output().unwrap();
    assert_eq!(text(&undo.stderr), "no session has changed anything\n");
}

/// Returns every file in the work directory with its contents.
fn files(dir: &TestDir) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let mut left = vec![dir.path("work")];
    while let Some(folder) = left.pop() {
        for entry in folder.read_dir().unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                left.push(entry.path());
            }
            found.push((entry.path().display().to_string(), std::fs::read_to_string(entry.path()).ok()));
        }
    }
    found.sort();
    found
}
