//! docs/security.md: compares its tables with the code.

use std::fmt::Write;

use alara_harness::sandbox::attack::attacks;
use alara_harness::sandbox::{Obeying, obeying};

/// Compares a table in the page, between marks of this name, with `rows`.
/// `ALARA_DOCS=write` updates it.
fn check(name: &str, rows: &str) {
    let path = crate::root().join("docs/security.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let (before, rest) = page.split_once(&begin).unwrap();
    let (table, after) = rest.split_once(&end).unwrap();
    if std::env::var_os("ALARA_DOCS").is_some_and(|value| value == "write") {
        std::fs::write(&path, format!("{before}{begin}{rows}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(table, rows, "ALARA_DOCS=write cargo test --test tests in_the_table writes it");
}

/// The table of attacks on the sandbox matches `alara doctor --attack`, and the table of files that
/// tools obey matches the guard's list.
#[test]
fn every_attack_and_every_file_is_in_the_table() {
    let mut rows = "| attack | what it tries | held by |\n|---|---|---|\n".to_owned();
    for attack in attacks() {
        writeln!(rows, "| `{}` | {} | {} |", attack.name, attack.what, attack.by).unwrap();
    }
    check("attacks", &rows);
    let mut rows = "| who | files |\n|---|---|\n".to_owned();
    for Obeying { tool, files } in obeying() {
        let files: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
        writeln!(rows, "| {tool} | {} |", files.join(", ")).unwrap();
    }
    check("tools", &rows);
}

/// The tests that it names exist.
#[test]
fn every_test_that_is_named_is_there() {
    let page = std::fs::read_to_string(crate::root().join("docs/security.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.rsplit('|').nth(1));
    let named: Vec<&str> = rows
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|word| word.len() > 24 && word.contains('_'))
        .filter(|word| word.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c)))
        .collect();
    assert!(named.len() >= 9, "{named:?}");
    let mut sources = String::new();
    let mut left = vec![crate::root().join("crates"), crate::root().join("tests/page")];
    while let Some(folder) = left.pop() {
        for entry in folder.read_dir().unwrap().map(Result::unwrap) {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "py") {
                sources += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    for name in named {
        let name = name.rsplit("::").next().unwrap();
        let is_there = ["fn", "def"].iter().any(|word| sources.contains(&format!("{word} {name}(")));
        assert!(is_there, "docs/security.md names {name}, which is no test");
    }
}
