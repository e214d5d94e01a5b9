//! Streams that take nothing, or that nobody reads: the work goes on, and an answer that was not
//! written is not taken for one.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::process::Stdio;

use crate::dirs::{TestDir, code, text};

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// A pipe whose reader has gone.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn remarks_that_nobody_hears_stop_no_work() {
    for stderr in [Stdio::from(full()), closed()] {
        let dir = TestDir::calling(&["echo x > a.txt"]);
        let output = dir.task().stderr(stderr).output().unwrap();
        assert_eq!((code(&output), text(&output.stdout).as_str()), (0, "Done.\n"), "{output:?}");
    }
    for stderr in [Stdio::from(full()), closed()] {
        let dir = TestDir::calling(&[]);
        let output = dir.alara(&["check", "nowhere"]).stderr(stderr).output().unwrap();
        assert_eq!(code(&output), 2, "{output:?}");
    }
}

#[test]
fn an_answer_that_was_not_written_is_told() {
    for json in [&["--json"][..], &[]] {
        let dir = TestDir::calling(&[]);
        let output = dir.task().args(json).stdout(full()).output().unwrap();
        let told = text(&output.stderr);
        assert_eq!(code(&output), 2, "{told}");
        assert!(
            told.contains("error: the answer can't be written to standard output: No space left"),
            "{told}"
        );
    }
    let dir = TestDir::calling(&[]);
    let output = dir.alara(&["models", "list"]).stdout(full()).output().unwrap();
    assert_eq!(code(&output), 2, "{output:?}");
    // Whoever has read enough is content.
    let output = dir.alara(&["models", "list"]).stdout(closed()).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
}
