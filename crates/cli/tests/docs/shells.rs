//! Completions of shells and manual pages.

use std::process::{Command, Output};

use crate::dirs::{TestDir, text};

/// Whether a program is installed; prints a note past the captured output if not.
fn has(program: &'static str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        crate::absent::skipped("programs", program, "install it where PATH finds it");
    }
    found
}

fn dir() -> TestDir {
    TestDir::with(&serde_json::json!([]))
}

/// Returns bash's completions for the line `words`, whose last word is incomplete.
fn offered(dir: &TestDir, words: &[&str]) -> Vec<String> {
    let script = r#"
        source <(alara completions bash)
        COMP_WORDS=("$@")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _clap_complete_alara alara "${COMP_WORDS[COMP_CWORD]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let output = shell(dir, "bash", &[&["-c", script, "bash"], words].concat());
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Returns a shell that finds the program.
fn shell(dir: &TestDir, shell: &str, arguments: &[&str]) -> Output {
    let bin = dir.path("bin");
    if !bin.exists() {
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_alara"), bin.join("alara")).unwrap();
    }
    Command::new(shell)
        .args(arguments)
        .current_dir(dir.root.path())
        .env("HOME", dir.path("home"))
        .env("XDG_STATE_HOME", dir.path("state"))
        .env_remove("XDG_CONFIG_HOME")
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .output()
        .unwrap()
}

#[test]
fn bash_completes_commands_options_and_models() {
    let dir = dir();
    dir.write("qwen.gguf", "");
    assert_eq!(offered(&dir, &["alara", "ser"]), ["serve"]);
    assert_eq!(offered(&dir, &["alara", "models", "ver"]), ["verify"]);
    assert_eq!(offered(&dir, &["alara", "run", "--thin"]), ["--thinking"]);
    assert_eq!(offered(&dir, &["alara", "completions", "f"]), ["fish"]);
    let models = offered(&dir, &["alara", "run", "-m", "qwen"]);
    assert!(models.contains(&"qwen3.5-2b".to_owned()), "{models:?}");
    assert!(models.contains(&"qwen.gguf".to_owned()), "files are models, too: {models:?}");
    assert!(!models.iter().any(|model| model.starts_with("gemma")), "{models:?}");
    assert_eq!(offered(&dir, &["alara", "models", "pull", "gpt-oss"]), ["gpt-oss-20b"]);
}

#[test]
fn bash_completes_npcs_tasks_and_traces() {
    let dir = dir();
    assert_eq!(offered(&dir, &["alara", "run", "-n", "work"]), ["worker"]);
    dir.write("team/team.ctx", "name: t\nforenpc: lead\n");
    dir.write("team/lead.npc", "name: lead\nprimary_directive: Work.\n");
    dir.write("team/other.npc", "name: left\nprimary_directive: Work.\n");
    let npcs = offered(&dir, &["alara", "chat", "-t", "team/", "-n", "le"]);
    assert_eq!(npcs, ["lead", "left"]);
    // For a missing team, there are no completions, and no error.
    assert_eq!(offered(&dir, &["alara", "chat", "-t", "absent/", "-n", "le"]), [""]);

    let tasks = offered(&dir, &["alara", "bench", "tasks", "--task", "file-ops-0"]);
    assert!(tasks.contains(&"file-ops-01".to_owned()), "{tasks:?}");
    dir.write(
        "suite/a-1.yaml",
        "id: a-1\ncategory: a\ndifficulty: easy\ninstruction: x\nverify: 'true'\ngold: 'true'\n",
    );
    assert_eq!(offered(&dir, &["alara", "bench", "tasks", "suite", "--task", "a"]), ["a-1"]);
    dir.write("s.bench", "suite: suite\n");
    assert_eq!(offered(&dir, &["alara", "bench", "tasks", "s.bench", "--task", "a"]), ["a-1"]);

    assert!(!dir.path("state/alara").exists(), "asking made something");
    let line = r#"{"time": "2026-01-01T00:00:00Z", "record": "user", "text": "hi"}"#;
    dir.write("state/alara/traces/4711-1.jsonl", &format!("{line}\n"));
    assert_eq!(offered(&dir, &["alara", "trace", "show", "4711"]), ["4711-1"]);
    assert_eq!(offered(&dir, &["alara", "run", "--resume", "4711"]), ["4711-1"]);
}

#[test]
fn each_shell_has_a_script() {
    let dir = dir();
    for (name, begins) in [
        ("bash", "complete -o"),
        ("zsh", "#compdef alara"),
        ("fish", "complete --"),
        ("powershell", "Register-ArgumentCompleter"),
        ("elvish", "set edit:completion"),
    ] {
        let output = dir.alara(&["completions", name]).output().unwrap();
        let script = text(&output.stdout);
        assert!(output.status.success() && script.contains(begins), "{name}: {script}");
        assert!(script.contains("ALARA_COMPLETE"), "{name}: {script}");
    }
    let output = dir.alara(&["completions", "bsh"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    for (name, check) in [("zsh", "-n"), ("fish", "-n")] {
        if has(name) {
            let script = text(&dir.alara(&["completions", name]).output().unwrap().stdout);
            dir.write("script", &script);
            let output = shell(&dir, name, &[check, "script"]);
            assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        }
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let dir = dir();
    let output = dir.alara(&["man", "made/man1"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    for page in ["alara.1", "alara-run.1", "alara-bench-tasks.1", "alara-models-pull.1", "alara-man.1"] {
        assert!(dir.path("made/man1").join(page).is_file(), "{page}");
    }
    let page = std::fs::read_to_string(dir.path("made/man1/alara-run.1")).unwrap();
    assert!(page.contains("Do one task with an agent") && page.contains("\\-\\-workdir"), "{page}");
    let again = dir.alara(&["man", "script.json"]).output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("can't make the folder script.json"), "{}", text(&again.stderr));
    if has("man") {
        for entry in std::fs::read_dir(dir.path("made/man1")).unwrap() {
            let path = entry.unwrap().path();
            let arguments = ["--warnings=all", "-l", path.to_str().unwrap()];
            let output = shell(&dir, "man", &arguments);
            let told = text(&output.stderr);
            assert!(output.status.success() && !output.stdout.is_empty(), "{}: {told}", path.display());
            assert!(!told.contains("warning"), "{}: {told}", path.display());
        }
    }
}
