//! Checks that scripts make the pictures from data, and that the counts in README.md are correct.

use std::process::Command;

use super::page::Page;
use crate::dirs::text;
use crate::root;

#[test]
fn the_chart_is_that_of_the_data_and_of_the_table() {
    let output = Command::new(root().join("scripts/draw-chart")).arg("--check").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = std::fs::read_to_string(root().join("docs/cpu.md")).unwrap();
    let data = std::fs::read_to_string(root().join("docs/data/speed.csv")).unwrap();
    let rows: Vec<&str> = data.lines().filter(|line| !line.starts_with('#')).skip(1).collect();
    assert!(rows.len() > 3, "{data}");
    for row in rows {
        let [decode, prefill, shape] = row.rsplitn(3, ',').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let begins = format!("| {} | {prefill} | {decode}", shape.trim_matches('"'));
        assert!(table.lines().any(|line| line.starts_with(&begins)), "docs/cpu.md has no row {begins}");
    }
}

#[test]
fn a_terminal_is_recorded_as_it_looks() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_alara"), bin.join("alara")).unwrap();
    let out = folder.path().join("out.svg");
    let output = Command::new(root().join("scripts/record-terminal"))
        .arg(&out)
        .arg(r"printf 'gone\r\033[K\033[1mbold\033[0m \033[32mgreen\033[39m <x>\n'; pwd; stty size")
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let picture = std::fs::read_to_string(out).unwrap();
    for shown in [
        "class=\"bold\">bold</tspan>",
        "class=\"green\">green</tspan>",
        "&lt;x&gt;",
        ">~/demo</tspan>",
        ">200 96</tspan>",
    ] {
        assert!(picture.contains(shown), "{shown} is not in {picture}");
    }
    // The command is shown as it was typed, without the overwritten text.
    assert!(picture.contains("printf 'gone") && !picture.contains(">gone"), "{picture}");
    assert!(!picture.contains('\u{1b}') && picture.contains("prefers-color-scheme: dark"), "{picture}");
}

#[test]
fn the_first_page_counts_right() {
    let readme = Page::read(&root().join("README.md")).text;
    let rules = std::fs::read_to_string(root().join("tests/fixtures/permissions/commands.yaml")).unwrap();
    let rows = rules.lines().filter(|line| line.starts_with("    - [")).count();
    let said = format!("{rows} commands");
    assert!(rows > 100 && readme.contains(&said), "README.md does not say {said:?}");
    let tasks = root().join("benches/tasks");
    let tasks = crate::conventions::files(&tasks, &[".yaml"]).len();
    assert!(readme.contains(&format!("{tasks} tasks")), "README.md does not say {tasks} tasks");
}
