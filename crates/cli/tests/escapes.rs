//! Foreign text can't manipulate the terminal: from models, endpoints, teams, model files, traces,
//! and file names.

use alara_engine::inspect::{TensorType, Writer};
use serde_json::{Value, json};

use crate::dirs::{TestDir, at_a_terminal, code, on_screen, sandboxed, text};
use crate::endpoint::server::{self, Answer, Server};

/// Copies to the clipboard, sets the title, clears the screen, hides text, moves the cursor back,
/// changes the writing direction, and the same by single-byte control characters.
const EVIL: &str = "e\u{1b}]52;c;aGk=\u{7}\u{1b}]0;t\u{1b}\\\u{1b}[2J\u{1b}[8m\u{1b}[31mx\r\u{202e}y\u{9b}2J\u{9d}0;t\u{9c}\u{7f}\u{8}\u{200f}z";

/// Returns a shown character that could manipulate the terminal; a terminal ends its lines with
/// `\r\n`.
fn playing(shown: &str) -> Option<char> {
    let shown = shown.replace("\r\n", "\n");
    let odd = |c: &char| {
        (c.is_control() && !"\n\t".contains(*c))
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    shown.chars().find(odd)
}

/// Checks that nothing manipulates a plain terminal, where all styles and cursor movements are off.
fn check(dir: &TestDir, arguments: &[&str], answers: &[(&str, &str)], expected: &str) -> String {
    let (_, shown) = at_a_terminal(dir, arguments, answers);
    assert_eq!(playing(&shown), None, "{arguments:?}: {shown:?}");
    assert!(shown.contains(expected), "{arguments:?}, {expected}: {shown:?}");
    shown
}

const RUN: [&str; 7] = ["run", "-t", "team", "--workdir", "work", "--trace", "trace.jsonl"];

fn team(dir: &TestDir) {
    dir.write("team/worker.npc", "name: worker\nprimary_directive: You work.\njinxes: [shell]\n");
}

/// An endpoint whose text, reasoning and calls are an attacker's.
fn endpoint() -> Server {
    let said = [server::text(EVIL), server::text("\u{1b}"), server::text("[2J"), server::text("\r")];
    let arguments = json!({format!("a{EVIL}"): EVIL, "command": format!("echo '{EVIL}'")}).to_string();
    let called = |name: &str| server::call("c", name, &arguments);
    let first = [&said[..], &[called(&format!("n{EVIL}")), server::end("tool_calls")]].concat();
    let second = [called("shell"), server::end("tool_calls")];
    let third = [&said[..], &[server::end("stop")]].concat();
    Server::answering([Answer::events(&first), Answer::events(&second), Answer::events(&third)])
}

#[test]
fn an_endpoint_does_not_reach_the_terminal() {
    for more in [&[][..], &["-v"], &["--json"]] {
        let dir = TestDir::with(&json!([]));
        team(&dir);
        let model = format!("{}/v1#m", endpoint().url);
        let run = [&RUN[..], &["-m", &model], more, &["do it"]].concat();
        check(&dir, &run, &[], "52;c;aGk=");
        check(&dir, &["trace", "show", "trace.jsonl"], &[], "52;c;aGk=");
        check(&dir, &["trace", "show", "trace.jsonl", "--json"], &[], "52;c;aGk=");
        std::fs::remove_file(dir.path("trace.jsonl")).unwrap();
        // On a terminal with colours, the only escapes are ours, and those that redraw lines.
        let model = format!("{}/v1#m", endpoint().url);
        let run = [&RUN[..], &["-m", &model], more, &["do it"]].concat();
        let (_, shown) = on_screen(dir.alara(&run), &[], 80, &[("TERM", "xterm-256color")]);
        for after in shown.split('\u{1b}').skip(1) {
            let ours = ["0", "1", "2", "3", "4", "31", "32", "33", "36"];
            let end = after.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(after.len());
            let number = after[..end].trim_start_matches('[');
            match after[end..].chars().next() {
                Some('m') => assert!(ours.contains(&number), "{after:?} in {shown:?}"),
                Some('K' | 'A' | 'D' | 'h' | 'l') => {}
                Some('J') => assert_ne!(number, "2", "{shown:?}"),
                other => panic!("{other:?} after {number} in {shown:?}"),
            }
        }
        assert!(!shown.contains(['\u{9b}', '\u{9d}', '\u{202e}', '\u{7f}', '\u{7}', '\u{8}']), "{shown:?}");
    }
    // An endpoint's error, which quotes it.
    let dir = TestDir::with(&json!([]));
    team(&dir);
    let server = Server::answering([Answer::json(400, &json!({"error": {"message": EVIL}}))]);
    let model = format!("{}/v1#m", server.url);
    check(&dir, &[&RUN[..], &["-m", &model, "do it"]].concat(), &[], "52;c;aGk=");
}

#[test]
fn a_pipe_gets_an_answer_as_it_is() {
    if !sandboxed("a_pipe_gets_an_answer_as_it_is") {
        return;
    }
    let dir = TestDir::with(&json!([{"text": EVIL}]));
    team(&dir);
    // YAML forbids control characters.
    let written: String =
        format!("{EVIL}\r\n end").encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    dir.write(
        "say.jinx",
        &format!("jinx_name: say\nsteps:\n  - engine: python\n    code: |\n      output = \"{written}\"\n"),
    );
    let output = dir.alara(&["run", "say.jinx"]).output().unwrap();
    assert_eq!(text(&output.stdout), format!("{EVIL}\r\n end\n"));
    check(&dir, &["run", "say.jinx"], &[], "52;c;aGk=");
    let run = [&RUN[..], &["-m", "script:script.json", "do it"]].concat();
    let output = dir.alara(&run).output().unwrap();
    assert_eq!((code(&output), text(&output.stdout)), (0, format!("{EVIL}\n")));
}

#[test]
fn a_team_and_its_names_do_not_reach_the_terminal() {
    let dir = TestDir::with(&json!([]));
    let file = |name: &str, value: Value| dir.write(&format!("evil{EVIL}/{name}"), &value.to_string());
    file(
        &format!("w{EVIL}.npc"),
        json!({"name": EVIL, EVIL: EVIL, "jinxes": [EVIL], "primary_directive": EVIL}),
    );
    file(
        &format!("{EVIL}.jinx"),
        json!({"jinx_name": EVIL, "steps": [{"engine": EVIL, EVIL: EVIL}], EVIL: 1}),
    );
    file(
        "team.ctx",
        json!({"forenpc": EVIL, "permissions": {EVIL: EVIL}, "mcp_servers": {EVIL: {EVIL: EVIL}}}),
    );
    file("broken.npc", json!(EVIL));
    dir.write(&format!("evil{EVIL}/team.gate"), &format!("rules: [{{\"{}\": 1}}]", EVIL.replace('\\', "")));
    let folder = format!("evil{EVIL}");
    for arguments in [
        &["check", &folder][..],
        &["check", &folder, "--json"],
        &["run", "-t", &folder, "-m", "script:script.json", "x"],
        &["run", "-t", &folder, "-n", EVIL, "-m", "script:script.json", "x"],
        &["gate", "test", &folder],
        &["warm", "-t", &folder],
    ] {
        check(&dir, arguments, &[], "");
    }
    check(&dir, &["check", &folder], &[], "52;c;aGk=");
}

#[test]
fn what_was_typed_does_not_reach_the_terminal() {
    let dir = TestDir::with(&json!([]));
    let option = format!("--{EVIL}");
    for arguments in [
        &[EVIL][..],
        &["run", &option],
        &["run", "--temperature", EVIL, "x"],
        &["models", "show", EVIL],
        &["models", "rm", EVIL],
        &["trace", "show", EVIL],
        &["check", EVIL],
        &["bench", "tasks", EVIL, "-m", EVIL],
        &["run", "-m", EVIL, "x"],
        &["search", "-t", EVIL, EVIL],
    ] {
        check(&dir, arguments, &[], "");
    }
    check(&dir, &[EVIL], &[], "unrecognized subcommand");
}

#[test]
fn a_model_file_does_not_reach_the_terminal() {
    let dir = TestDir::with(&json!([]));
    let write = |name: &str, writer: Writer| std::fs::write(dir.path(name), writer.bytes().unwrap()).unwrap();
    let tensor = |writer: Writer| writer.tensor(EVIL, &[1], TensorType::F32, [0; 4]);
    let of = |architecture: &str| {
        let writer = Writer::new().meta("general.architecture", architecture);
        tensor(writer.meta("general.name", EVIL).meta(EVIL, EVIL).meta("tokenizer.ggml.model", EVIL))
    };
    write("evil.gguf", of(EVIL));
    write("odd.gguf", of("qwen3").meta("general.name", format!("{EVIL}\nruns            yes").as_str()));
    let named = format!("{EVIL}.gguf");
    write(&named, of("llama"));
    for file in ["evil.gguf", "odd.gguf", named.as_str()] {
        for arguments in [
            &["models", "show", file][..],
            &["models", "show", file, "--tensors"],
            &["models", "show", file, "--json"],
            &["models", "verify", file],
            &["run", "-m", file, "x"],
            &["bench", "speed", "-m", file],
        ] {
            check(&dir, arguments, &[], "");
        }
    }
    let shown = check(&dir, &["models", "show", "evil.gguf", "--tensors"], &[], "52;c;aGk=");
    assert!(shown.contains('\u{fffd}'), "{shown:?}");
    let shown = check(&dir, &["models", "show", "odd.gguf"], &[], "");
    assert!(!shown.contains("\nruns            yes"), "a name of two lines stands for a fact: {shown}");
    let bytes = std::fs::read(dir.path("evil.gguf")).unwrap();
    std::fs::write(dir.path("cut.gguf"), &bytes[..bytes.len() - 40]).unwrap();
    check(&dir, &["models", "show", "cut.gguf"], &[], "error: ");
}

#[test]
fn a_question_shows_what_will_run() {
    if !sandboxed("a_question_shows_what_will_run") {
        return;
    }
    let asked = |command: &str| {
        let calls =
            json!([{"calls": [{"name": "shell", "arguments": {"command": command}}]}, {"text": "Done."}]);
        let dir = TestDir::with(&calls);
        team(&dir);
        dir.write("team/permissions.yaml", "shell: ask\n");
        let run = [&RUN[..], &["-m", "script:script.json", "do it"]].concat();
        let shown = check(&dir, &run, &[("allow? ", "n")], "worker wants to call shell:");
        let question = shown.split("wants to call shell:").nth(1).unwrap();
        question.split("allow? ").next().unwrap().replace("\r\n", "\n")
    };
    assert!(asked("echo safe #\rrm -rf x").contains("  command: echo safe #\u{fffd}rm -rf x\n"));
    assert!(asked("echo \u{202e}x fr- mr\u{202c}").contains("  command: echo \u{fffd}x fr- mr\u{fffd}\n"));
    assert!(asked("echo \u{1b}[8mrm\u{1b}[0m").contains("echo \u{fffd}[8mrm\u{fffd}[0m\n"));
    // Neither pushed out of view, nor hidden by a line that looks like one of ours.
    let pushed = asked(&format!("echo 1{}; rm x", " ".repeat(5000)));
    assert!(pushed.contains("  command: echo 1 [5000 blanks] ; rm x\n"), "{pushed}");
    let pushed = asked(&format!("rm x{}", "\n".repeat(300) + "echo"));
    assert!(pushed.contains("  command: rm x\n    [299 empty lines]\n    echo\n"), "{pushed}");
    let faked = asked(&format!("rm x #{}allow? y: once", "x".repeat(62)));
    assert!(
        faked.lines().all(|line| line.is_empty() || line.starts_with("  ") || line.starts_with('(')),
        "{faked}"
    );
    let long: String = (0..100).map(|line| format!("echo {line}\n")).collect();
    let told = asked(&format!("rm x\n{long}"));
    assert!(told.contains("(these are 104 lines, which begin above what is seen here)"), "{told}");
}
