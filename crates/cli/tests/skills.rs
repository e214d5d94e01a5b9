//! `alara run` with a skill's file, and with files that aren't tasks.

use crate::dirs::{TestDir, code, text};

const KNOTS: &str = "\u{feff}---\nname: knots\ndescription: Use when: a rope is loose\n---\nTie well.\n\n## bowline\n\nUp, round, down.\n\n## reef\n\nRight over left.\n";

fn dir() -> TestDir {
    let dir = TestDir::calling(&["echo worked > made.txt"]);
    dir.write("work/knots/SKILL.md", KNOTS);
    dir.write("work/lower/skill.md", &KNOTS.replace("name: knots", "name: lower"));
    dir.write("work/notes.txt", "a note\n");
    dir.write("work/two words.txt", "a note\n");
    dir.write("work/sub/README", "a note\n");
    dir
}

/// Returns exit code, stdout and stderr of `alara run` in the work directory.
fn run(dir: &TestDir, arguments: &[&str]) -> (i32, String, String) {
    let all = [&["run", "-m", "script:../script.json"], arguments].concat();
    let output = dir.alara(&all).current_dir(dir.path("work")).output().unwrap();
    (code(&output), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_skill_is_shown_by_section() {
    let dir = dir();
    let whole = "Tie well.\n\n## bowline\n\nUp, round, down.\n\n## reef\n\nRight over left.\n";
    for file in ["knots/SKILL.md", "lower/skill.md"] {
        let check = |section: &[&str], expected: &str| {
            let (code, shown, told) = run(&dir, &[&[file], section].concat());
            assert_eq!((code, shown.as_str()), (0, expected), "{file} {section:?}: {told}");
        };
        check(&[], whole);
        check(&["section=all"], whole);
        check(&["section=bowline"], "Up, round, down.\n");
        check(&["section=list"], "- bowline\n- reef\n");
        let (code, shown, told) = run(&dir, &[file, "section=splice"]);
        assert_eq!((code, shown.as_str()), (1, ""));
        assert!(told.ends_with("there is no section `splice`; sections: bowline, reef\n"), "{told}");
        assert!(!told.contains("step"), "{told}");
    }
    let (code, _, told) = run(&dir, &["nowhere/SKILL.md", "section=all"]);
    assert_eq!(code, 2);
    assert!(told.contains("nowhere/SKILL.md"), "{told}");
    assert!(!dir.path("work/made.txt").exists(), "nothing of this is a task");
}

#[test]
fn a_file_is_no_task() {
    let dir = dir();
    for task in [
        &["notes.txt"][..],
        &["notes.txt", "section=all"],
        &["two words.txt"],
        &["-n", "worker", "notes.txt"],
        &["-n", "worker", "sub/README"],
        &["sub"],
        &["sub/", "a=b"],
    ] {
        let (code, _, told) = run(&dir, task);
        assert_eq!(code, 2, "{task:?}: {told}");
        assert!(told.contains("hint:") && told.contains("explain"), "{task:?}: {told}");
        assert!(!dir.path("work/made.txt").exists(), "{task:?}");
    }
    let (code, _, told) = run(&dir, &["shorten notes.txt"]);
    assert_eq!(code, 0, "{told}");
    assert!(dir.path("work/made.txt").exists());
}

#[test]
fn a_skill_is_checked_alone() {
    let dir = dir();
    let output = dir.alara(&["check", "work/lower/skill.md"]).output().unwrap();
    let expected = "work/lower/skill.md:3:1: warning: `description` is no YAML; it is read as a text: put it in quotes\n0 errors, 1 warning\n";
    assert_eq!((code(&output), text(&output.stdout).as_str()), (0, expected));
}
