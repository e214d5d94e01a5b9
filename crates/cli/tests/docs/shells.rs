//! Completions of shells and manual pages.

use std::process::{Command, Output};

use crate::dirs::{TestDir, text};

/// Whether a program is here; says so past the captured output if not.
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

/// What bash offers for the line `words`, whose last one is begun.
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

/// A shell that finds the program.
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
