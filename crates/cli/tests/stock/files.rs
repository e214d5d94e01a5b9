//! `load_file` and `file_search`: all file types, parts of long files, and refused files.

use std::process::Command;

use serde_json::{Value, json};

use super::failed;
use crate::dirs::TeamDir;

/// A write beyond the program's size limit fails in the middle of the text, as on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_the_old_file_whole() {
    use alara_harness::sandbox::{enforced, launch_with};
    use alara_harness::{Policy, Sandbox};
    launch_with(std::path::Path::new(env!("CARGO_BIN_EXE_alara")));
    if !enforced().limits {
        eprintln!("SKIPPED: a_full_disk_leaves_the_old_file_whole: this machine limits nothing");
        return;
    }
    let mut dir = TeamDir::stock();
    let policy = Policy { file_bytes: 1 << 16, ..Policy::default() };
    dir.sandbox = Sandbox::new(dir.work.path(), policy).unwrap();
    dir.write("a.txt", "short\r\n");
    let long = "x".repeat(1 << 17);
    let full = failed("a.txt is as it was: File too large");
    dir.check("coder", "write_file", json!({"path": "a.txt", "content": &long}), full.clone());
    dir.check("coder", "edit_file", json!({"path": "a.txt", "find": "short", "replace": &long}), full);
    dir.check(
        "coder",
        "write_file",
        json!({"path": "new.txt", "content": long}),
        failed("new.txt is not written: File too large"),
    );
    assert_eq!(std::fs::read(dir.work.path().join("a.txt")).unwrap(), b"short\r\n");
    assert_eq!(std::fs::read_dir(dir.work.path()).unwrap().count(), 1);
}

#[test]
fn load_file_takes_each_kind() {
    let dir = TeamDir::stock();
    let load =
        |path: &str, expected: Value| dir.check("analyst", "load_file", json!({"path": path}), expected);
    dir.write("a.txt", "one\ntwo\n");
    load("a.txt", json!("one\ntwo"));
    dir.write("empty.md", "");
    load("empty.md", json!(""));
    dir.write("latin.txt", b"caf\xe9");
    load("latin.txt", json!("café"));
    dir.write("wide.txt", b"\xff\xfeh\0i\0");
    load("wide.txt", json!("hi"));
    dir.write("t.csv", "name,age\n\"Ada, Countess\",36\nAlan,41\n");
    let rows = json!([["Ada, Countess", "36"], ["Alan", "41"]]);
    load("t.csv", json!({"columns": ["name", "age"], "total_rows": 2, "rows": rows}));
    dir.write("t.tsv", "a\tb\n1\t2\n");
    load("t.tsv", json!({"columns": ["a", "b"], "total_rows": 1, "rows": [["1", "2"]]}));
    dir.write("semi.csv", "a;b\n1,5;2\n");
    load("semi.csv", json!({"columns": ["a", "b"], "total_rows": 1, "rows": [["1,5", "2"]]}));
    dir.write("x.json", r#"{"b": [1, 2.5], "a": null}"#);
    load("x.json", json!({"b": [1, 2.5], "a": null}));
    let cells = json!({"cells": [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "source": "6 * 7", "outputs": [
            {"output_type": "execute_result", "data": {"text/plain": ["42"]}},
            {"output_type": "stream", "text": ["said\n"]},
            {"output_type": "display_data", "data": {"image/png": "…"}},
            {"output_type": "error", "evalue": "division by zero"},
        ]},
    ]});
    dir.write("n.ipynb", cells.to_string());
    load(
        "n.ipynb",
        json!(
            "[1] markdown\n# Title\ntext\n\n[2] code\n6 * 7\n\n[2] output\n42\n\n[2] output\nsaid\n\n[2] output\n(image/png)\n\n[2] output\ndivision by zero"
        ),
    );
    dir.write("bad.json", "{\"a\": ");
    load("bad.json", failed("bad.json is no JSON: Expecting value: line 1 column 7 (char 6)"));
    dir.write("b.bin", b"\x7fELF\0\0\x01");
    load("b.bin", failed("b.bin is binary (7 bytes), there is no text to load"));
    load("none.txt", failed("there is no file none.txt"));
    load(".", failed(". is no file"));
    load("'; rm -rf x; {{ 7*7 }}", failed("there is no file '; rm -rf x; {{ 7*7 }}"));
    let huge = std::fs::File::create(dir.work.path().join("huge.txt")).unwrap();
    huge.set_len(20_000_001).unwrap();
    load("huge.txt", failed("huge.txt has 20000001 bytes, at most 20000000 are loaded"));
}

#[test]
fn load_file_gives_long_files_in_parts() {
    let dir = TeamDir::stock();
    let load = |arguments: Value, expected: Value| dir.check("analyst", "load_file", arguments, expected);
    dir.write("n.txt", (1..=9).map(|n| format!("line {n}\n")).collect::<String>());
    load(
        json!({"path": "n.txt", "first": 3, "limit": 2}),
        json!("line 3\nline 4\n[lines 3 to 4 of 9; go on with first=5]"),
    );
    load(json!({"path": "n.txt", "first": 9}), json!("line 9\n[lines 9 to 9 of 9]"));
    load(json!({"path": "n.txt", "first": 10}), failed("n.txt ends at 9, there is nothing from 10"));
    dir.write("n.csv", "n\n1\n2\n3\n");
    load(
        json!({"path": "n.csv", "first": 2, "limit": 1}),
        json!({"columns": ["n"], "total_rows": 3, "rows": [["2"]], "part": "2 to 2 of 3; go on with first=3"}),
    );
    dir.write("wide.txt", "x".repeat(20_000));
    let shown = dir.call("analyst", "load_file", json!({"path": "wide.txt"})).output;
    assert_eq!(shown.as_str().unwrap().len(), 16_000 + " [cut]".len());
    dir.write("long.json", json!((0..20_000).collect::<Vec<u32>>()).to_string());
    let shown = dir.call("analyst", "load_file", json!({"path": "long.json"})).output;
    let shown = shown.as_str().unwrap();
    assert!(
        shown.starts_with("[\n 0,\n 1,")
            && shown.ends_with("[lines 1 to 200 of 20002; go on with first=201]")
    );
}

#[test]
fn load_file_reads_pdf_where_it_can() {
    let dir = TeamDir::stock();
    // A page with the words "Hello from PDF", without a cross-reference table: readers rebuild it.
    let stream = "BT /F1 24 Tf 72 700 Td (Hello from PDF) Tj ET";
    let length = stream.len();
    let pdf = format!(
        "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n\
         3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>endobj\n\
         4 0 obj<</Length {length}>>stream\n{stream}\nendstream endobj\n\
         5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
    );
    dir.write("p.pdf", pdf);
    let result = dir.call("analyst", "load_file", json!({"path": "p.pdf"}));
    if Command::new("pdftotext").arg("-v").output().is_ok() {
        assert!(result.output_text().contains("Hello from PDF"), "{result:?}");
        dir.write("no.pdf", "this is none");
        assert!(!dir.call("analyst", "load_file", json!({"path": "no.pdf"})).ok);
    } else {
        eprintln!("SKIPPED: pdftotext is not installed, so no PDF is read");
        assert_eq!(result.complaint(), "PDF files are read with pdftotext, which is not installed here");
    }
}

#[test]
fn file_search_finds_by_name_and_text() {
    let dir = TeamDir::stock();
    dir.write("src/main.py", "import os\nprint('Hello')\n");
    dir.write("src/lib/util.py", "def hello():\n    pass\n");
    dir.write("notes.md", "hello there\n");
    dir.write("data.bin", b"hello\0");
    dir.write(".git/config", "hello");
    dir.write("node_modules/x.py", "hello");
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret.py"), "hello").unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.work.path().join("away")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret.py"), dir.work.path().join("src/out.py")).unwrap();
    std::os::unix::fs::symlink("..", dir.work.path().join("src/up")).unwrap();
    let find = |arguments: Value, expected: Value| dir.check("coder", "file_search", arguments, expected);
    find(json!({"name": "*.py"}), json!("src/lib/util.py\nsrc/main.py"));
    find(json!({"name": "UTIL"}), json!("src/lib/util.py"));
    find(json!({"name": "src/*.py"}), json!("src/lib/util.py\nsrc/main.py"));
    find(json!({"name": "*.py", "path": "src/lib"}), json!("src/lib/util.py"));
    find(
        json!({"text": "hello"}),
        json!("notes.md:1: hello there\nsrc/lib/util.py:1: def hello():\nsrc/main.py:2: print('Hello')"),
    );
    find(json!({"text": "hello", "name": "*.md"}), json!("notes.md:1: hello there"));
    find(
        json!({"text": "hello", "limit": 1}),
        json!("notes.md:1: hello there\n[the first 1; there are more]"),
    );
    find(json!({"text": "$(id) `id` '"}), json!("nothing found"));
    find(json!({}), failed("nothing to look for: give a `name`, a `text` or both"));
    find(json!({"name": "x", "path": "none"}), failed("there is no folder none"));
}
