//! Streams that are full or closed: the work goes on, and an answer that wasn't written doesn't
//! count as one.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::process::Stdio;

use crate::dirs::{TestDir, code, text};

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// A pipe without a reader.
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

/// A command of each kind, with its standard input.
fn commands() -> (TestDir, Vec<(Vec<&'static str>, &'static str)>) {
    let dir = TestDir::calling(&[]);
    dir.write("team/worker.npc", "name: worker\nprimary_directive: You work.\njinxes: [shell]\n");
    dir.write("team/say.jinx", "jinx_name: say\nsteps: [{text: it}]\n");
    dir.write("broken/worker.npc", "name: [\n");
    dir.write("suite/one.yaml", &crate::bench::yaml("one", "[ -f done ]", "touch done"));
    let made = dir.task().output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let commands = vec![
        (vec!["run", "team/say.jinx"], ""),
        (vec!["run", "-t", "team", "-m", "script:script.json", "--workdir", "work", "do it"], ""),
        (vec!["run", "-t", "nowhere", "do it"], ""),
        (vec!["run", "--no-such-option"], ""),
        (vec!["chat", "-t", "team", "-m", "script:script.json", "--workdir", "work"], "do it\n"),
        (vec!["check", "team"], ""),
        (vec!["check", "broken"], ""),
        (vec!["models", "list"], ""),
        (vec!["models", "show"], ""),
        (vec!["bench", "tasks", "suite", "--gold", "--plan"], ""),
        (vec!["trace", "show", "trace.jsonl"], ""),
        (vec!["trace", "show", "trace.jsonl", "--json"], ""),
        (vec!["serve", "-t", "nowhere"], ""),
        (vec!["doctor"], ""),
        (vec!["completions", "bash"], ""),
        (vec!["help"], ""),
        (vec!["run", "--help"], ""),
        (vec!["--version"], ""),
    ];
    (dir, commands)
}

#[test]
fn no_command_breaks_where_nobody_listens() {
    let (dir, commands) = commands();
    let run = |arguments: &[&str], input: &str, out: Option<Stdio>, err: Option<Stdio>| {
        std::fs::write(dir.path("input"), input).unwrap();
        let mut command = dir.alara(arguments);
        command.stdin(File::open(dir.path("input")).unwrap());
        out.map(|out| command.stdout(out));
        err.map(|err| command.stderr(err));
        command.output().unwrap()
    };
    for (arguments, input) in &commands {
        let told = run(arguments, input, None, None);
        let expected = told.status.code();
        assert!(matches!(expected, Some(0..=3)), "{arguments:?}: {told:?}");
        for stderr in [Stdio::from(full()), closed()] {
            let output = run(arguments, input, None, Some(stderr));
            assert_eq!(output.status.code(), expected, "{arguments:?}: {output:?}");
        }
        let output = run(arguments, input, Some(closed()), None);
        assert_ne!(output.status.code(), Some(101), "{arguments:?}: {output:?}");
        let output = run(arguments, input, Some(full().into()), None);
        let printed = !told.stdout.is_empty();
        assert_eq!(
            output.status.code(),
            if printed { Some(2) } else { expected },
            "{arguments:?}: {output:?}"
        );
        let message = text(&output.stderr).contains("the answer can't be written to standard output");
        assert_eq!(message, printed, "{arguments:?}: {output:?}");
        // Both at once.
        let output = run(arguments, input, Some(full().into()), Some(closed()));
        assert_ne!(output.status.code(), Some(101), "{arguments:?}: {output:?}");
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
    // A reader may stop early.
    let output = dir.alara(&["models", "list"]).stdout(closed()).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
}
