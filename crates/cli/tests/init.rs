//! `alara init`: it creates a team that works, and preserves existing files.

use std::path::Path;
use std::process::{Output, Stdio};

fn alara(work: &Path, arguments: &[&str]) -> Output {
    let mut command = crate::alara();
    command.stdin(Stdio::null());
    command
        .args(arguments)
        .current_dir(work)
        .env("HOME", "/nonexistent")
        .env("XDG_CONFIG_HOME", work.join("config"));
    command.env("XDG_STATE_HOME", work.join("state")).output().unwrap()
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.display().to_string(), std::fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

#[test]
fn a_new_team_works() {
    let work = tempfile::tempdir().unwrap();
    let made = alara(work.path(), &["init"]);
    assert!(made.status.success(), "{made:?}");
    let listed = String::from_utf8(made.stdout).unwrap();
    assert!(listed.lines().any(|line| line == "npc_team/guide.npc"), "{listed}");
    assert_eq!(listed.lines().count(), files(&work.path().join("npc_team")).len());

    let team = alara_harness::Team::load(&work.path().join("npc_team")).unwrap();
    assert_eq!(team.diagnostics, []);
    assert_eq!((team.name.as_str(), team.forenpc.as_str(), team.npcs.len()), ("desk", "guide", 2));
    let checked = alara(work.path(), &["check", "--strict", "npc_team"]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));

    // Its own jinx, run by hand and called by its agent.
    std::fs::write(work.path().join("poem.txt"), "one two\nthree\n").unwrap();
    let counted = alara(work.path(), &["run", "npc_team/jinxes/word_count.jinx", "path=poem.txt"]);
    assert_eq!(String::from_utf8_lossy(&counted.stdout), "2 lines and 3 words\n", "{counted:?}");
    let script =
        r#"[{"calls": [{"name": "word_count", "arguments": {"path": "poem.txt"}}]}, {"text": "Three."}]"#;
    std::fs::write(work.path().join("script.json"), script).unwrap();
    // The team is the user's, and is found without being named until somebody changes it.
    let run = alara(work.path(), &["run", "-m", "script:script.json", "--trace", "t.jsonl", "Count"]);
    assert_eq!(String::from_utf8_lossy(&run.stdout), "Three.\n", "{run:?}");
    let trace = std::fs::read_to_string(work.path().join("t.jsonl")).unwrap();
    assert!(trace.contains("2 lines and 3 words"), "{trace}");
    std::fs::write(work.path().join("npc_team/third.npc"), "directive: d\n").unwrap();
    assert_eq!(alara(work.path(), &["run", "-m", "script:script.json", "Count"]).status.code(), Some(2));
}

#[test]
fn nothing_is_overwritten() {
    let work = tempfile::tempdir().unwrap();
    assert!(alara(work.path(), &["init", "a/team"]).status.success());
    std::fs::write(work.path().join("a/team/guide.npc"), "mine").unwrap();
    let before = files(work.path());
    for directory in ["a/team", "a"] {
        let again = alara(work.path(), &["init", directory]);
        assert_eq!(again.status.code(), Some(2), "{again:?}");
        let error = String::from_utf8_lossy(&again.stderr);
        assert_eq!(
            error,
            format!(
                "error: {directory} is not empty: nothing was written\nhint: name a folder that is new or empty\n"
            )
        );
        assert_eq!(files(work.path()), before);
    }
}
