//! Prompts, shown from a trace afterwards, and during a run.

use alara_engine::Gguf;
use alara_engine::inspect;
use serde_json::{Value, json};

use crate::dirs::{TestDir, code, text};
use crate::endpoint::server::{self, Answer, Server};

const TASK: &str = "create a file hello.txt that contains the word hello";

/// Runs the model that ships, with its trace in `trace.jsonl`; also returns stderr.
fn shipped(more: &[&str]) -> (TestDir, String) {
    let dir = TestDir::with(&json!([]));
    let fixed = ["run", "-m", "alara-tiny", "--workdir", "work", "--trace", "trace.jsonl"];
    let output = dir.alara(&[&fixed[..], more, &[TASK]].concat()).output().unwrap();
    (dir, text(&output.stderr))
}

/// Returns exit code, stdout and stderr of `trace show` for that trace.
fn show(dir: &TestDir, arguments: &[&str]) -> (i32, String, String) {
    let output = dir.alara(&[&["trace", "show", "trace.jsonl"], arguments].concat()).output().unwrap();
    (code(&output), text(&output.stdout), text(&output.stderr))
}

fn object(dir: &TestDir, arguments: &[&str]) -> Value {
    let (code, shown, told) = show(dir, &[arguments, &["--json"]].concat());
    assert_eq!((code, told.as_str()), (0, ""), "{arguments:?}: {shown}");
    serde_json::from_str(&shown).unwrap()
}

/// Returns the number of tokens of a text for the model that ships.
fn tokens(text: &str) -> usize {
    let file = crate::root().join("models/alara-tiny.gguf");
    let tokenizer = inspect::tokenizer(&Gguf::open(&file).unwrap()).unwrap();
    tokenizer.encode(text, true).unwrap().len()
}

#[test]
fn what_the_model_read_is_shown_with_what_was_cached_of_it() {
    let (dir, _) = shipped(&[]);
    let turns: Vec<Value> = dir.trace().into_iter().filter(|line| line["record"] == "assistant").collect();
    assert!(turns.len() > 1, "{turns:#?}");
    let mut prompts = Vec::new();
    for (index, turn) in turns.iter().enumerate() {
        let number = (index + 1).to_string();
        let shown = object(&dir, &["--prompt", &number]);
        let (prompt, cached) = (shown["prompt"].as_str().unwrap(), shown["cached"].as_str().unwrap());
        let usage = &turn["usage"];
        assert_eq!(shown["shown_tokens"], usage["prompt_tokens"], "{shown}");
        assert_eq!(tokens(prompt), usage["prompt_tokens"].as_u64().unwrap() as usize);
        assert_eq!(tokens(cached), usage["cached_tokens"].as_u64().unwrap() as usize);
        assert!(prompt.starts_with(cached) && prompt.contains(TASK) && prompt.contains("write_file"));

        let (code, plain, told) = show(&dir, &["--prompt", &number]);
        let first = format!("turn {number} of ");
        assert!(code == 0 && told.starts_with(&first) && !told.contains("warning"), "{told}");
        let rest = &prompt[cached.len()..];
        let expected = match usage["cached_tokens"].as_u64().unwrap() {
            0 => prompt.to_owned(),
            count => {
                let end = if cached.ends_with('\n') { "" } else { "\n" };
                format!("{cached}{end}── {count} tokens were cached up to here ──\n{rest}")
            }
        };
        assert_eq!(plain, format!("{expected}{}", if prompt.ends_with('\n') { "" } else { "\n" }));
        prompts.push(prompt.to_owned());
    }
    // The first turn's computation is reused by the second.
    assert_eq!(turns[0]["usage"]["cached_tokens"], 0);
    let cached = turns[1]["usage"]["cached_tokens"].as_u64().unwrap();
    assert!(cached + 8 > turns[0]["usage"]["prompt_tokens"].as_u64().unwrap(), "{cached}");
    let last = object(&dir, &["--prompt"]);
    assert_eq!(last["prompt"], prompts[prompts.len() - 1].as_str());
    assert_eq!((last["turn"].as_u64().unwrap() as usize, &last["in"]), (turns.len(), &json!("")));
}

#[test]
fn a_prompt_that_is_another_one_is_told() {
    let (dir, _) = shipped(&["--tool-format", "json"]);
    let counted = dir.trace().into_iter().find(|line| line["record"] == "assistant").unwrap();
    let counted = counted["usage"]["prompt_tokens"].as_u64().unwrap();
    let (code, plain, told) = show(&dir, &["--prompt", "1"]);
    assert!(code == 0 && plain.contains(TASK) && !plain.contains("cached up to here"), "{plain}");
    let expected = format!("that of the run had {counted}: model, template or options differ");
    assert!(told.contains("warning: this prompt has ") && told.contains(&expected), "{told}");
    assert!(told.contains("\nhint: --tool-format json makes it as long as that of the run"), "{told}");
    assert_eq!(object(&dir, &["--prompt", "1", "--tool-format", "json"])["shown_tokens"], counted);
    // Another template, which supports neither tools nor control tokens.
    dir.write("chat.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
    let (code, plain, told) = show(&dir, &["--prompt", "1", "--chat-template", "chat.jinja"]);
    assert!(code == 0 && plain.starts_with("system: ") && told.contains("options differ"), "{plain}{told}");
}

#[test]
fn what_is_not_there_is_said_with_what_is() {
    let (dir, _) = shipped(&[]);
    let check = |arguments: &[&str], expected: &str| {
        let (code, shown, told) = show(&dir, arguments);
        assert_eq!((code, shown.as_str()), (2, ""), "{arguments:?}: {told}");
        assert!(told.contains(expected), "{arguments:?}: {told}");
    };
    check(
        &["--prompt", "99"],
        "error: trace.jsonl has no turn 99, but 2 turns\nhint: --prompt without a number",
    );
    check(&["--prompt", "0"], "turns count from 1");
    check(&["--prompt", "x"], "put the trace before --prompt");
    let expected =
        "error: no conversation of trace.jsonl is called call_9\nhint: --in takes one of these: \"\"\n";
    check(&["--prompt", "--in", "call_9"], expected);
    check(&["--prompt", "-m", "no/such.gguf"], "there is no model file no/such.gguf");
    check(&["--in", "call_9"], "--prompt");
    let refused = "chat.jinja: line 1 of the chat template: syntax error";
    dir.write("chat.jinja", "{% if %}");
    check(&["--prompt", "--chat-template", "chat.jinja"], refused);

    let trace = std::fs::read_to_string(dir.path("trace.jsonl")).unwrap();
    dir.write("trace.jsonl", &trace.replace("alara-tiny.gguf", "gone.gguf"));
    check(&["--prompt"], "error: the trace's model gone.gguf can't be had: there is no model file gone.gguf");
    assert!(object(&dir, &["--prompt", "-m", "alara-tiny"])["prompt"].is_string());
    let begun: Vec<&str> = trace.lines().take(2).collect();
    dir.write("trace.jsonl", &(begun.join("\n") + "\n"));
    check(
        &["--prompt"],
        "trace.jsonl has no turn of the model that was ended\nhint: alara run --show-prompt",
    );
    dir.write("trace.jsonl", "");
    check(&["--prompt"], "no conversation begins in trace.jsonl");
    // A trace makes no requests.
    dir.write("trace.jsonl", &trace.replace("alara-tiny.gguf", "http://127.0.0.1:9/v1"));
    check(&["--prompt"], "http://127.0.0.1:9/v1 names no model\nhint: name it with -m ADDRESS#MODEL");
    let elsewhere = r#""gone.gguf","asked":"http://127.0.0.1:9/v1""#;
    dir.write("trace.jsonl", &trace.replace("\"alara-tiny.gguf\"", elsewhere));
    check(&["--prompt"], "error: the trace's model gone.gguf can't be had");
}

#[test]
fn a_run_shows_what_the_model_is_about_to_read() {
    let (dir, told) = shipped(&["--show-prompt"]);
    let [first, second] = ["1", "2"].map(|turn| {
        let shown = object(&dir, &["--prompt", turn]);
        (shown["prompt"].as_str().unwrap().to_owned(), shown["shown_tokens"].as_u64().unwrap())
    });
    let head = format!("── turn 1 of worker: the model reads {} tokens ──\n{}", first.1, first.0);
    assert!(told.contains(&head), "{told}");
    let head = format!("── turn 2 of worker: the model reads {} tokens, the first ", second.1);
    let (_, rest) = told.split_once(&head).unwrap_or_else(|| panic!("{told}"));
    let (same, rest) = rest.split_once(" as before ──\n").unwrap();
    let (new, _) = rest.split_once("──").unwrap();
    let new = new.strip_suffix('\n').unwrap_or(new);
    let second_text = second.0.trim_end_matches('\n');
    assert!(second_text.ends_with(new.trim_end_matches('\n')), "{new}");
    let before = &second_text[..second_text.len() - new.trim_end_matches('\n').len()];
    assert_eq!(tokens(before), same.parse::<usize>().unwrap());
    assert!(first.0.starts_with(before) && before.contains(TASK) && new.contains("hello"), "{before}");
    let (_, told) = shipped(&[]);
    assert!(!told.contains("turn 1 of worker"), "{told}");
}

#[test]
fn of_an_endpoint_it_is_what_was_sent() {
    let server = Server::answering([
        Answer::events(&[server::call("1", "shell", r#"{"command": "ls"}"#), server::end("tool_calls")]),
        Answer::events(&[server::text("Done."), server::end("stop")]),
    ]);
    let dir = TestDir::with(&json!([]));
    let url = format!("{}/v1#m", server.url);
    let arguments = [
        "run",
        "-m",
        &url,
        "--workdir",
        "work",
        "--trace",
        "trace.jsonl",
        "--show-prompt",
        "--json",
        "do it",
    ];
    let told = text(&dir.alara(&arguments).output().unwrap().stderr);
    let received = server.received();
    for (index, received) in received.iter().enumerate() {
        let shown = object(&dir, &["--prompt", &(index + 1).to_string()]);
        assert_eq!(shown["request"], received.body);
    }
    assert_eq!(received.len(), 2);
    let (_, plain, _) = show(&dir, &["--prompt", "1"]);
    assert_eq!(serde_json::from_str::<Value>(&plain).unwrap(), received[0].body);
    assert!(told.contains(&format!("lines of JSON ──\n{plain}──\n")), "{told}");
    assert!(told.contains("── turn 2 of worker: the model gets "), "{told}");
    // The same conversation, rendered for another model.
    let (code, plain, told) = show(&dir, &["--prompt", "1", "-m", "alara-tiny"]);
    assert!(code == 0 && plain.starts_with("<|im_start|>system\n") && plain.contains("do it"), "{plain}");
    assert!(told.contains("warning: the trace does not say how many tokens the prompt had"), "{told}");
}

#[test]
fn conversations_inside_of_others_have_prompts_too() {
    let dir = TestDir::with(&json!([{"text": "A plan.", "when": "plan it"}]));
    dir.write("ask.jinx", "steps:\n  - {name: think, engine: llm, prompt: plan it}\n");
    let arguments =
        ["run", "ask.jinx", "-m", "script:script.json", "--workdir", "work", "--trace", "trace.jsonl"];
    let output = dir.alara(&[&arguments[..], &["--show-prompt"]].concat()).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    let scope = dir.trace().iter().find(|line| line["record"] == "start").unwrap()["in"].clone();
    let scope = scope.as_str().unwrap();
    assert!(text(&output.stderr).contains(&format!("── turn 1 of the model [{scope}]: the model gets ")));
    for arguments in [&["--prompt"][..], &["--prompt", "1", "--in", scope]] {
        let shown = object(&dir, arguments);
        assert_eq!(shown["request"]["messages"][0]["content"], "plan it", "{shown}");
        assert_eq!(shown["in"], scope);
    }
    let (_, _, told) = show(&dir, &["--prompt", "7"]);
    assert!(told.contains(&format!("error: trace.jsonl, in {scope}, has no turn 7, but 1 turn\n")), "{told}");
}
