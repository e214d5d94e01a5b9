//! `alara undo`: lists and reverts the changes of sessions.

use std::collections::BTreeMap;
use std::path::Path;

use crate::dirs::{TestDir, code, sandboxed, text};

/// A work directory with files, after an agent has run these commands.
fn worked(commands: &[&str], more: &[&str]) -> TestDir {
    let dir = TestDir::calling(commands);
    dir.write("work/a.txt", "one\r\ntwo");
    dir.write("work/docs/b.txt", "b\n");
    run(&dir, more);
    dir
}

fn run(dir: &TestDir, more: &[&str]) {
    // The next run writes a new trace.
    let _ = std::fs::remove_file(dir.path("trace.jsonl"));
    let output = dir.task().args(more).output().unwrap();
    assert!(code(&output) < 2, "{}", text(&output.stderr));
}

/// Returns exit code, stdout and stderr of `alara undo`.
fn undo(dir: &TestDir, arguments: &[&str]) -> (i32, String, String) {
    let all: Vec<&str> = ["undo"].iter().chain(arguments).copied().collect();
    let output = dir.alara(&all).current_dir(dir.path("work")).output().unwrap();
    (code(&output), text(&output.stdout), text(&output.stderr))
}

fn content(dir: &TestDir) -> BTreeMap<String, Vec<u8>> {
    fn add(root: &Path, folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_dir() {
                found.insert(name, b"/".to_vec());
                add(root, &path, found);
            } else {
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    add(&dir.path("work"), &dir.path("work"), &mut found);
    found
}

fn original() -> BTreeMap<String, Vec<u8>> {
    content(&worked(&[], &[]))
}

const HAVOC: [&str; 2] = ["echo new > a.txt; rm -r docs", "mkdir -p x/y && echo z > x/y/z"];

#[test]
fn undo_takes_back_what_a_session_changed() {
    if !sandboxed("undo_takes_back_what_a_session_changed") {
        return;
    }
    let dir = worked(&HAVOC, &["--yes"]);
    let after = content(&dir);
    let (status, list, _) = undo(&dir, &["--list"]);
    assert_eq!((status, list.lines().count()), (0, 1), "{list}");
    assert!(list.contains("6 paths") && list.trim_end().ends_with("/work  do it"), "{list}");
    let id = list.split(' ').next().unwrap();
    let (_, shown, _) = undo(&dir, &["--list", id]);
    assert_eq!(
        shown,
        "worker: shell echo new > a.txt; rm -r docs\n  changed a.txt\n  removed docs\n  removed docs/b.txt\n\
         worker: shell mkdir -p x/y && echo z > x/y/z\n  created x\n  created x/y\n  created x/y/z\n"
    );
    let (status, said, complaint) = undo(&dir, &[]);
    assert_eq!((status, said.lines().count()), (0, 6), "{said}{complaint}");
    assert_eq!(content(&dir), original());
    // Nothing is left to revert except the revert.
    let (status, _, complaint) = undo(&dir, &[]);
    assert!(status == 2 && complaint.contains("nothing is left of what sessions changed"), "{complaint}");
    let (_, list, _) = undo(&dir, &["--list"]);
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].ends_with(&format!("/work  undo of {id}")), "{list}");
    assert!(lines[1].starts_with(id) && lines[1].ends_with("/work  do it  (reverted)"), "{list}");
    let latest = list.split(' ').next().unwrap();
    assert_ne!(latest, id);
    assert_eq!(undo(&dir, &[latest]).0, 0);
    assert_eq!(content(&dir), after);
    // The changes are there again, and their revert is not.
    let (_, list, _) = undo(&dir, &["--list"]);
    let ends = [format!("undo of {latest}"), format!("undo of {id}  (reverted)"), "  do it".to_owned()];
    assert!(list.lines().zip(&ends).all(|(line, end)| line.ends_with(end)), "{list}");
}

#[test]
fn undo_knows_what_a_guarded_session_changed() {
    if !sandboxed("undo_knows_what_a_guarded_session_changed") {
        return;
    }
    // The user confirms no loss; additions need no confirmation.
    let dir = worked(&["printf 3 >> a.txt", "mkdir x; echo z > x/z", "rm docs/b.txt"], &[]);
    assert_ne!(content(&dir), original());
    assert!(dir.path("work/docs/b.txt").exists());
    let (status, said, complaint) = undo(&dir, &[]);
    assert_eq!((status, said.lines().count()), (0, 3), "{said}{complaint}");
    assert_eq!(content(&dir), original());
}

#[test]
fn undo_goes_back_session_by_session() {
    if !sandboxed("undo_goes_back_session_by_session") {
        return;
    }
    let dir = worked(&["echo 1 > a.txt"], &["--yes"]);
    std::fs::remove_dir_all(dir.path("work/docs")).unwrap();
    dir.write("work/docs/b.txt", "mine\n");
    let between = content(&dir);
    let second = serde_json::json!([
        {"calls": [{"name": "edit_file", "arguments": {"path": "docs/b.txt", "find": "mine", "replace": "its"}}]},
        {"text": "Done."},
    ]);
    dir.write("script.json", &second.to_string());
    run(&dir, &["--yes"]);
    assert_eq!(undo(&dir, &[]).0, 0);
    assert_eq!(content(&dir), between);
    assert_eq!(undo(&dir, &[]).0, 0);
    assert_eq!(std::fs::read(dir.path("work/a.txt")).unwrap(), b"one\r\ntwo");
    assert_eq!(std::fs::read(dir.path("work/docs/b.txt")).unwrap(), b"mine\n");
}

#[test]
fn undo_leaves_what_somebody_changed_since() {
    if !sandboxed("undo_leaves_what_somebody_changed_since") {
        return;
    }
    let dir = worked(&HAVOC, &["--yes"]);
    dir.write("work/a.txt", "mine\n");
    let before = content(&dir);
    let (status, said, complaint) = undo(&dir, &[]);
    assert_eq!((status, said.as_str()), (1, ""));
    assert!(
        complaint.contains("changed since: ")
            && complaint.ends_with("nothing was taken back\nhint: --force overwrites it\n"),
        "{complaint}"
    );
    assert_eq!(content(&dir), before);
    assert_eq!(undo(&dir, &["--force"]).0, 0);
    assert_eq!(content(&dir), original());
}

#[test]
fn a_session_becomes_a_commit() {
    if !sandboxed("a_session_becomes_a_commit") {
        return;
    }
    let dir = TestDir::calling(&["echo new > a.txt; rm docs/b.txt; echo c > '*.md'; echo log > out.log"]);
    for (name, text) in
        [("a.txt", "old\n"), ("docs/b.txt", "b\n"), (".gitignore", "*.log\n"), ("own.md", "1\n")]
    {
        dir.write(&format!("work/{name}"), text);
    }
    let git = |arguments: &str| {
        let fixed = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let mut git = std::process::Command::new("git");
        git.current_dir(dir.path("work")).args(fixed).args(arguments.split(' '));
        let output = git.output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    for arguments in ["init -q", "config user.name a", "config user.email a@b", "add -A", "commit -qm first"]
    {
        git(arguments);
    }
    // Changes that the user made and staged are the user's.
    dir.write("work/own.md", "2\n");
    git("add own.md");
    assert!(dir.task().arg("--yes").output().unwrap().status.success());
    let (code, shown, complaint) = undo(&dir, &["--commit"]);
    assert!(code == 0 && shown.contains("3 paths in "), "{shown}{complaint}");
    let shown = git("show --name-status --format=%s%n%b HEAD");
    let lines: Vec<&str> = shown.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(lines[0], "do it");
    assert!(lines[1].starts_with("Made by ") && lines[1].contains(" in the alara session "), "{shown}");
    assert_eq!(lines[2..], ["A\t*.md", "M\ta.txt", "D\tdocs/b.txt"]);
    assert_eq!(git("status --porcelain"), "M  own.md\n");
    assert_eq!(undo(&dir, &["--commit"]).0, 0);
    assert_eq!(git("rev-list --count HEAD"), "2\n");
    // A file changed since isn't only the session's any more.
    dir.write("work/a.txt", "mine\n");
    let (code, _, complaint) = undo(&dir, &["--commit"]);
    assert!(code == 2 && complaint.contains("a.txt was changed since"), "{complaint}");
}

#[test]
fn a_commit_needs_a_repository() {
    let dir = worked(&["echo x > new"], &[]);
    let (code, _, complaint) = undo(&dir, &["--commit"]);
    assert_eq!(code, 2, "{complaint}");
    assert!(complaint.contains("/work is not in a git repository\nhint: git init makes one"), "{complaint}");
    assert!(!complaint.contains("fatal"), "{complaint}");
}

#[test]
fn undo_says_what_there_is_not() {
    let dir = TestDir::calling(&[]);
    assert_eq!(undo(&dir, &["--list"]), (0, String::new(), "no session has changed anything\n".to_owned()));
    let (status, _, complaint) = undo(&dir, &["17"]);
    assert!(
        status == 2 && complaint.contains("no session that changed something is called 17"),
        "{complaint}"
    );
}
