//! First inputs of new users in a folder with files: none of them may cost a byte without a
//! confirmation.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use alara_harness::permission::{Answer, Question};
use alara_harness::sandbox::{Policy, Risk, Sandbox, launch_with};
use alara_harness::{Agent, Scripted, Session, Single, Team};
use serde_json::json;

use crate::dirs::{TestDir, code, sandboxed, text};

/// Files of a non-empty folder, including names that people may type.
const FILES: [&str; 22] = [
    "hi",
    "hello",
    "test",
    "help",
    "who",
    "what",
    "thanks",
    "worker",
    "doctor",
    "status",
    "README.md",
    "notes.txt",
    "test.py",
    "data.csv",
    "a.bash",
    "b.bash",
    "Makefile",
    "docs/guide.md",
    "docs/hi",
    "src/main.rs",
    ".hidden",
    "hello.txt",
];

/// First inputs, with the exit code if it is known.
const WORDS: [(&str, Option<i32>); 42] = [
    ("hi", Some(2)),
    ("hello", Some(2)),
    ("test", Some(2)),
    ("help", Some(2)),
    ("who", Some(2)),
    ("what", Some(2)),
    ("status", Some(2)),
    ("doctor", Some(2)),
    ("worker", Some(2)),
    ("models", Some(2)),
    ("README.md", Some(2)),
    ("test.py", Some(2)),
    ("docs", Some(2)),
    ("docs/", Some(2)),
    (".", Some(2)),
    ("-", Some(2)),
    ("Hello!", Some(0)),
    ("hey there", Some(0)),
    ("good morning", Some(0)),
    ("hi, who are you?", Some(0)),
    ("who are you?", Some(0)),
    ("what can you do?", Some(0)),
    ("what is this?", Some(0)),
    ("how do I use this?", Some(0)),
    ("help me please", Some(0)),
    ("thank you!", Some(0)),
    ("bye", Some(0)),
    ("explain test.py", None),
    ("explain README.md", None),
    ("what is in notes.txt?", None),
    ("what does this folder contain?", None),
    ("show me data.csv", None),
    ("is hello.txt any good?", None),
    ("clean up", None),
    ("start over", None),
    ("fix test.py", None),
    ("rename hi to bye", None),
    ("delete everything", None),
    ("asdf", None),
    ("42", None),
    ("write hello to hello.txt", None),
    ("rm -rf docs", None),
];

fn occupied() -> TestDir {
    let dir = TestDir::with(&json!([]));
    for name in FILES {
        dir.write(&format!("work/{name}"), &format!("the text of {name}\nprint('{name}')\n"));
    }
    dir
}

/// Returns every file below a directory with its bytes.
fn bytes(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(root).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            let inner = bytes(&entry.path());
            found.extend(inner.into_iter().map(|(path, bytes)| (format!("{name}/{path}"), bytes)));
        } else {
            found.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    found
}

/// Asserts that all earlier contents are still there; something may have been appended.
fn nothing_lost(dir: &TestDir, before: &BTreeMap<String, Vec<u8>>, message: &str, output: &Output) {
    let now = bytes(&dir.path("work"));
    for (name, bytes) in before {
        let kept = now.get(name).is_some_and(|now| now.starts_with(bytes));
        assert!(kept, "`{message}` cost {name}: {}{}", text(&output.stdout), text(&output.stderr));
    }
}

#[test]
fn no_first_word_of_run_costs_a_byte() {
    let dir = occupied();
    let before = bytes(&dir.path("work"));
    for (words, expected) in WORDS {
        let output = dir.alara(&["run", "--workdir", "work", "--", words]).output().unwrap();
        nothing_lost(&dir, &before, words, &output);
        let shown = text(&output.stderr);
        assert!(expected.is_none_or(|expected| expected == code(&output)), "{words}: {output:?}");
        match expected {
            Some(0) => assert!(!output.stdout.is_empty() && shown.is_empty(), "{words}: {output:?}"),
            Some(_) => assert!(
                shown.starts_with("error: `") && shown.contains("\nhint: ") || words == "-",
                "{words}: {shown}"
            ),
            None => {
                assert!(shown.contains("the model that ships is a small demonstration"), "{words}: {shown}");
            }
        }
    }
}

#[test]
fn a_better_model_is_named_once_a_day() {
    let dir = TestDir::with(&json!([]));
    let shown = || text(&dir.with_input(&["chat", "--workdir", "work"], "/help\n").stderr);
    let (first, second) = (shown(), shown());
    let what = "the model that ships is a small demonstration, and often wrong";
    assert!(first.starts_with(&format!("{what}; a better one")), "{first}");
    assert!(second.starts_with(&format!("{what}\n")), "{second}");
    let yesterday = std::time::SystemTime::now() - std::time::Duration::from_secs(25 * 60 * 60);
    let given = std::fs::File::options().write(true).open(dir.path("state/alara/advice")).unwrap();
    given.set_modified(yesterday).unwrap();
    assert_eq!(shown(), first);
}

#[test]
fn no_first_word_of_chat_costs_a_byte() {
    let dir = occupied();
    let before = bytes(&dir.path("work"));
    // Long answers take minutes, and lose no more.
    let words: String = WORDS.iter().map(|(words, _)| format!("{words}\n/clear\n")).collect();
    let lines = format!("/set max_tokens 200\n{words}");
    let output = dir.with_input(&["chat", "--workdir", "work"], &lines);
    assert_eq!(code(&output), 0, "{output:?}");
    nothing_lost(&dir, &before, "chat", &output);
    let shown = text(&output.stderr);
    assert!(shown.starts_with("the model that ships is a small demonstration"), "{shown}");
    assert!(shown.contains("`help` is the name of a command: is /help meant?"), "{shown}");
    assert!(text(&output.stdout).contains("I am alara: I do tasks with files"), "{output:?}");
}

#[test]
fn without_a_terminal_what_would_be_lost_is_refused_and_the_flag_is_named() {
    if !sandboxed("without_a_terminal_what_would_be_lost_is_refused_and_the_flag_is_named") {
        return;
    }
    let dir = TestDir::calling(&["echo new > new; rm -f hi"]);
    dir.write("work/hi", "mine");
    let output = dir.task().output().unwrap();
    let shown = text(&output.stderr);
    assert!(shown.contains("no file was changed: it "), "{shown}");
    assert!(shown.contains("nobody is there to be asked; --yes permits it"), "{shown}");
    assert_eq!(std::fs::read_to_string(dir.path("work/hi")).unwrap(), "mine");
    assert!(!dir.path("work/new").exists());
    let trace = dir.trace();
    let result = trace.iter().find(|record| record["record"] == "tool_result").unwrap();
    assert_eq!(result["result"]["ok"], false, "{result}");
    let error = result["result"]["error"].as_str().unwrap();
    assert!(error.ends_with("nobody is there to be asked"), "{error}");
    assert!(
        trace.iter().any(|record| record["record"] == "permission" && record["verdict"] == "deny"),
        "{trace:?}"
    );

    std::fs::remove_file(dir.path("trace.jsonl")).unwrap();
    let output = dir.task().arg("--yes").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!dir.path("work/hi").exists() && dir.path("work/new").exists());
    // In an empty folder there is nothing to lose.
    std::fs::remove_file(dir.path("work/new")).unwrap();
    let dir = TestDir::calling(&["echo 1 > a; echo 2 > a; rm a", "echo 3 > b"]);
    assert!(dir.task().output().unwrap().status.success());
    assert_eq!(std::fs::read_to_string(dir.path("work/b")).unwrap(), "3\n");
}

#[test]
fn a_person_is_shown_what_is_lost_and_decides() {
    if !sandboxed("a_person_is_shown_what_is_lost_and_decides") {
        return;
    }
    launch_with(Path::new(env!("CARGO_BIN_EXE_alara")));
    let work = tempfile::tempdir().unwrap();
    let write = || ["a", "b", "c", "d"].map(|name| std::fs::write(work.path().join(name), "mine").unwrap());
    write();
    let team = Team::stock("alara").unwrap();
    let run = |answers: &[Answer], commands: &[&str]| {
        let call = |command: &&str| json!({"calls": [{"name": "shell", "arguments": {"command": command}}]});
        let replies: Vec<_> = commands.iter().map(call).chain([json!({"text": "Done."})]).collect();
        let model = Scripted::from_json(&json!(replies).to_string()).unwrap();
        let source = Single(&model);
        let sandbox = Sandbox::new(work.path(), Policy { guard: true, ..Policy::default() }).unwrap();
        let asked = std::sync::Mutex::new(Vec::new());
        let session = Session::new(&source, &sandbox).asking(|question: &Question| {
            let mut asked = asked.lock().unwrap();
            assert_eq!(question.arguments["command"], commands[asked.len()]);
            let words = match question.risk {
                Some(Risk::Losses(changes, _)) => alara_harness::sandbox::losses(changes).join(", "),
                Some(Risk::Unknown) => "unknown".to_owned(),
                None | Some(Risk::Writes(_) | Risk::Refused(_)) => panic!("{question:?}"),
            };
            asked.push(words);
            answers[asked.len() - 1]
        });
        Agent::new(&session, &team, team.npc(None).unwrap(), None).unwrap().run("do it").unwrap();
        drop(session);
        let there = ["a", "b", "c", "d"].map(|name| work.path().join(name).exists());
        write();
        (asked.into_inner().unwrap(), there)
    };
    let commands = ["rm a", "rm b", "rm c", "rm d"];
    let (asked, there) = run(&[Answer::No, Answer::Yes, Answer::Session], &commands);
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(
        asked == ["removes a", "removes b", "removes c"] || asked.iter().all(|words| words == "unknown"),
        "{asked:?}"
    );
    assert_eq!(there, [true, false, false, false]);
}

#[test]
fn standard_input_is_a_part_of_the_task() {
    let message = |dir: &TestDir| {
        let record = dir.trace().into_iter().find(|record| record["record"] == "user").unwrap();
        record["text"].as_str().unwrap().to_owned()
    };
    let printed = |task: &[&str], input: &str| {
        let dir = TestDir::with(&json!([{"text": "Done."}]));
        let fixed = ["run", "-m", "script:script.json", "--workdir", "work", "--trace", "trace.jsonl"];
        let output = dir.with_input(&[&fixed, task].concat(), input);
        (dir, output)
    };
    let check = |task: &[&str], input: &str, expected: &str| {
        let (dir, output) = printed(task, input);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(message(&dir), expected);
    };
    check(&["-"], "do it", "do it");
    check(&["summarise"], "a\nb\n", "summarise\n\nStandard input:\n```\na\nb\n```");
    check(&["summarise", "-", "in a word"], "a", "summarise in a word\n\nStandard input:\n```\na\n```");
    check(&["summarise"], "", "summarise");
    let refused = |task: &[&str], input: &str, expected: &str| {
        let (_, output) = printed(task, input);
        let shown = text(&output.stderr);
        assert!(code(&output) == 2 && shown.contains(expected), "{task:?}: {shown}");
    };
    refused(&["-"], "", "`-` stands for standard input, and nothing came there");
    refused(&["summarise"], "a\0b", "standard input is no text");
    refused(&["summarise"], &"x".repeat((1 << 20) + 1), "standard input has more than 1");
    // A file works as well as a pipe.
    let dir = TestDir::with(&json!([{"text": "Done."}]));
    dir.write("input", "from a file");
    let file = std::fs::File::open(dir.path("input")).unwrap();
    assert!(dir.task().stdin(file).output().unwrap().status.success());
    assert_eq!(message(&dir), "do it\n\nStandard input:\n```\nfrom a file\n```");
}

#[test]
fn a_pipe_that_nobody_writes_to_is_not_waited_for() {
    let dir = TestDir::with(&json!([{"text": "Done."}]));
    let mut child = dir.task().stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains("nothing came through standard input for 2 s"), "{output:?}");
    // The pipe was open all the time.
    let _ = pipe.write_all(b"too late");
}

#[test]
fn a_team_of_ones_own_is_not_answered_for() {
    let dir = TestDir::calling(&[]);
    dir.write("team/w.npc", "name: w\nprimary_directive: Work.\n");
    let run = |task| dir.alara(&["run", "-t", "./team", task]).output().unwrap();
    let output = run("good morning");
    assert!(!text(&output.stdout).contains("a shell and Python"), "{output:?}");
    // Its problems are reported before anything else.
    dir.write("team/team.ctx", "gates: shop\n");
    let output = run("good morning");
    assert_eq!((code(&output), text(&output.stdout)), (2, String::new()), "{output:?}");
    assert!(text(&output.stderr).contains("unknown key `gates`"), "{output:?}");
}
