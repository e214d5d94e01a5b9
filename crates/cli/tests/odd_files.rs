//! Paths that aren't regular files: pipes without a writer, endless devices, gigabytes of holes.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::dirs::TestDir;

/// Time limit for a command to reject such a file.
const PATIENCE: Duration = Duration::from_secs(20);

fn pipe(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

fn device(path: &Path) {
    std::os::unix::fs::symlink("/dev/zero", path).unwrap();
}

fn hole(path: &Path) {
    File::create(path).unwrap().set_len(5 << 30).unwrap();
}

/// Runs a command to its end; returns its messages, and its exit code.
fn ended(dir: &TestDir, arguments: &[&str]) -> (i32, String) {
    let mut command = dir.alara(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{arguments:?} waits, or reads without end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn nobody_waits_for_files_that_are_none_or_fills_memory() {
    for make in [pipe, device, hole] {
        let dir = TestDir::with(&json!([{"text": "Hi"}]));
        let check = |name: &str, arguments: &[&str]| {
            let path = dir.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let _ = std::fs::remove_file(&path);
            make(&path);
            let (code, told) = ended(&dir, arguments);
            assert_ne!(code, 0, "{arguments:?}: {told}");
            assert!(!told.contains("panicked"), "{arguments:?}: {told}");
            std::fs::remove_file(&path).unwrap();
        };
        check("x.jinx", &["check", "x.jinx"]);
        check("x.jinx", &["run", "x.jinx"]);
        check("x.gate", &["gate", "test", "x.gate"]);
        check("x.bench", &["check", "x.bench"]);
        check("x.jsonl", &["trace", "show", "./x.jsonl"]);
        check("x.jsonl", &["report", "x.jsonl"]);
        check("x.gguf", &["models", "show", "./x.gguf"]);
        check("tasks/x.yaml", &["bench", "tasks", "tasks", "-m", "script:script.json"]);
        check("tasks.csv", &["bench", "tasks", "tasks.csv", "-m", "script:script.json"]);
        check("checkpoint/config.json", &["models", "show", "checkpoint"]);
        // A search skips unreadable files and continues.
        dir.write("docs/ok.md", "words");
        make(&dir.path("docs/x.md"));
        let (code, told) = ended(&dir, &["search", "docs", "words"]);
        assert!(code == 0 && told.contains("x.md: ") && told.contains("1 of 1 passage"), "{told}");
    }
}
