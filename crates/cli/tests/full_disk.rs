//! Full disks: data kept for later is skipped with a warning, and requested files fail with the
//! reason.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::json;

/// Mounts a small disk at `full`, lets the test prepare it, and fills it.
const FILLED: &str = r#"mount -t tmpfs -o size=64k tmpfs full && eval "$1" || exit 99
head -c 1000000 /dev/zero > full/filler 2>/dev/null
shift
exec "$@""#;

/// Runs alara in `work`, with all data kept for later on a full disk.
/// `None` if no disk can be mounted.
fn alara(work: &Path, before: &str, arguments: &[&str]) -> Option<Output> {
    std::fs::create_dir_all(work.join("full")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-rm", "bash", "-c", FILLED, "bash", before]).arg(env!("CARGO_BIN_EXE_alara"));
    command.args(arguments).current_dir(work).stdin(Stdio::null());
    for (variable, folder) in [
        ("HOME", "full"),
        ("XDG_STATE_HOME", "full/state"),
        ("XDG_CACHE_HOME", "full/cache"),
        ("XDG_CONFIG_HOME", "full/config"),
    ] {
        command.env(variable, work.join(folder));
    }
    match command.output() {
        Ok(output) if output.status.code() != Some(1) || !text(&output.stderr).contains("unshare") => {
            assert_ne!(output.status.code(), Some(99), "{output:?}");
            Some(output)
        }
        _ => {
            let how = "it takes unprivileged user namespaces";
            crate::absent::skipped("a full disk", "unshare and mount", how);
            None
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_full_disk_under_home_stops_no_run() {
    let work = tempfile::tempdir().unwrap();
    let script = json!([
        {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]},
        {"text": "Done."},
    ]);
    std::fs::write(work.path().join("script.json"), script.to_string()).unwrap();
    // If something is mounted below a directory, nothing in it changes without a confirmation.
    std::fs::create_dir(work.path().join("place")).unwrap();
    let run = ["run", "-m", "script:script.json", "-t", "alara", "--workdir", "place", "Write a.txt"];
    let Some(output) = alara(work.path(), "true", &run) else { return };
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "Done.\n"), "{output:?}");
    assert!(work.path().join("place/a.txt").exists());
    let told = text(&output.stderr);
    assert_eq!(told.matches("the trace ends here, but the work goes on").count(), 1, "{told}");
    assert!(told.contains("No space left on device"), "{told}");

    // A requested trace is an error, but not wrong usage.
    let run = [&run[..7], &["--trace", "full/t.jsonl", "Write a.txt"]].concat();
    let output = alara(work.path(), "true", &run).unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(told.contains("can't use the trace file full/t.jsonl: No space left on device"), "{told}");
}

#[test]
fn traces_are_listed_from_a_full_disk() {
    let work = tempfile::tempdir().unwrap();
    let line = json!({"time": "2026-01-31T12:00:00Z", "record": "user", "text": "hello there"});
    std::fs::write(work.path().join("1-1.jsonl"), format!("{line}\n")).unwrap();
    let before = "mkdir -p full/state/alara/traces && cp 1-1.jsonl full/state/alara/traces";
    let Some(output) = alara(work.path(), before, &["trace", "list"]) else { return };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("hello there"), "{output:?}");
}

#[test]
fn a_team_is_written_whole_or_not_at_all() {
    let work = tempfile::tempdir().unwrap();
    let before = "head -c 60000 /dev/zero > full/most";
    let Some(output) = alara(work.path(), before, &["init", "full/deep/team"]) else { return };
    let told = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{output:?}");
    assert!(told.starts_with("error: nothing was written: can't write full/deep/team/"), "{told}");
    assert!(told.contains("No space left on device"), "{told}");
}
