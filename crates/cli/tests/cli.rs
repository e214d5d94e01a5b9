//! The command line: the help of all commands, wrong usage, and the debug commands on small models.

use std::path::Path;
use std::process::Output;

fn alara(arguments: &[&str]) -> Output {
    let mut command = crate::alara();
    command.args(arguments).env("COLUMNS", "110").output().unwrap()
}

fn fixture(case: &str) -> String {
    format!("{}/tests/fixtures/arch/{case}/model.gguf", crate::root().display())
}

#[test]
fn the_whole_help() {
    let commands = [
        "",
        "run",
        "chat",
        "init",
        "check",
        "bench",
        "bench tasks",
        "bench speed",
        "report",
        "serve",
        "bench prefix",
        "models",
        "models list",
        "models pull",
        "models show",
        "models rm",
        "models verify",
        "trace",
        "trace list",
        "trace show",
        "trace replay",
        "search",
        "cache",
        "cache list",
        "cache clear",
        "warm",
        "doctor",
        "debug",
        "debug logits",
        "debug tokenize",
        "debug detokenize",
        "debug render",
        "debug parse",
        "debug mask",
        "debug kernels",
        "completions",
        "man",
    ];
    let mut help = String::new();
    for command in commands {
        let mut arguments: Vec<&str> = command.split_whitespace().collect();
        arguments.push("--help");
        let output = alara(&arguments);
        assert!(output.status.success(), "{command}");
        help += &format!("$ alara {}\n{}\n", arguments.join(" "), String::from_utf8_lossy(&output.stdout));
    }
    insta::assert_snapshot!(help);
}

#[test]
fn wrong_models_are_answered_with_help() {
    let directory = Path::new(&fixture("qwen3-exact")).parent().unwrap().to_string_lossy().into_owned();
    let text = format!("{directory}/reference.json");
    for (model, words) in [
        ("no/such.gguf", "there is no model file no/such.gguf"),
        (directory.as_str(), "is a directory, not a model\nhint: -m "),
        (text.as_str(), "reference.json"),
    ] {
        for command in [&["bench", "speed", "-m", model][..], &["models", "show", model]] {
            let output = alara(command);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{command:?}: {error}");
            assert!(error.starts_with("error: ") && error.contains(words), "{command:?}: {error}");
        }
    }
}

#[test]
fn a_context_without_tokens_is_refused_by_its_option() {
    for arguments in [&["run", "--ctx", "0", "x"][..], &["models", "show", "--context", "0"]] {
        let output = alara(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        let option = arguments.iter().find(|word| word.starts_with("--")).unwrap();
        let told = format!("invalid value '0' for '{option} <N>': a number of tokens from 1 up is wanted");
        assert!(output.status.code() == Some(2) && error.contains(&told), "{arguments:?}: {error}");
    }
}

#[test]
fn a_missing_chat_template_is_replaced_visibly_or_refused() {
    let work = tempfile::tempdir().unwrap();
    let template = work.path().join("chat.jinja");
    std::fs::write(&template, "{{ messages[-1].content }}\n{% if %}").unwrap();
    let (template, trace) = (template.display().to_string(), work.path().join("trace").display().to_string());
    let check = |case: &str, more: &[&str], expected: &[&str]| {
        let model = fixture(case);
        let arguments =
            [&["run", "-m", &model, "--workdir", ".", "--trace", &trace, "--thinking", "off", "hi"], more];
        let output = alara(&arguments.concat());
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        for words in expected {
            assert!(printed.contains(words), "{case}: {printed}");
        }
    };
    check("qwen3-exact", &[], &["has no chat template; the built-in one for qwen3 is used"]);
    let refused =
        ["the file has no chat template", "\nhint: give the model's chat template with --chat-template FILE"];
    check("llama-exact", &[], &refused);
    check(
        "llama-exact",
        &["--chat-template", &template],
        &["chat.jinja: line 2 of the chat template: syntax error"],
    );
}

#[test]
fn logits_do_not_depend_on_the_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let logits = |extra: &[&str]| -> Vec<f32> {
        let out = folder.path().join("logits.f32");
        let model = fixture("llama3-ropefreqs-exact");
        let mut arguments = vec!["debug", "logits", "-m", &model, "--tokens", "5,9,200,31,7,7,90,12"];
        arguments.extend(["--out", out.to_str().unwrap()]);
        arguments.extend(extra);
        let output = alara(&arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let bytes = std::fs::read(out).unwrap();
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
    };
    let whole = logits(&[]);
    assert_eq!(whole.len() % 8, 0);
    for extra in [&["--chunk", "1"][..], &["--chunk", "3"], &["--chunk", "3", "--last", "2"]] {
        let found = logits(extra);
        let expected = &whole[whole.len() - found.len()..];
        let largest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(!found.is_empty() && largest < 1e-3, "{extra:?}: {largest}");
    }
}

#[test]
fn masks_tell_which_texts_a_schema_permits() {
    let work = tempfile::tempdir().unwrap();
    let check = |schema: &str, stdin: &str, code: i32, expected: &str| {
        let path = work.path().join("schema.json");
        std::fs::write(&path, schema).unwrap();
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_alara"));
        let output =
            command.args(["debug", "mask", "--schema"]).arg(&path).write_stdin(stdin).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).replace(&path.display().to_string(), "FILE");
        assert_eq!((output.status.code(), printed.as_str()), (Some(code), expected), "{schema}");
    };
    let city = r#"{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}"#;
    check(
        city,
        "{\"city\": \"Oslo\"}\n{\"city\":\"Oslo\"}\n\n{\"city\": 5}",
        0,
        "accept\nreject\nreject\nreject\n",
    );
    check(city, "", 0, "");
    check(
        r#"{"properties": {"a/b": {"type": "array", "contains": {}}}}"#,
        "[]\n",
        2,
        "error: FILE: the output schema can't be guaranteed: contains at /properties/a~1b/contains: it is not supported\n\
         hint: take that out, and check answers for it afterwards\n",
    );
    check("{", "", 2, "error: FILE is not JSON: EOF while parsing an object at line 1 column 1\n");

    let records = "{\"schema\": {\"type\": \"integer\"}, \"texts\": [\"1\", \"1.5\"]}\n\
                   {\"schema\": {\"type\": \"kaboom\"}, \"texts\": []}\n{}\n";
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_alara"));
    let output = command.args(["debug", "mask", "--jsonl"]).write_stdin(records).output().unwrap();
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stdout), @r#"
    {"verdicts":["accept","reject"]}
    {"refused":"type at /type: a type is null, boolean, number, integer, string, array or object"}
    {"error":"missing field `schema` at line 1 column 2"}
    "#);
}

#[cfg(unix)]
#[test]
fn words_that_are_no_text_are_named() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let check = |words: &[&[u8]], expected: &str| {
        let output = crate::alara().args(words.iter().map(|word| OsStr::from_bytes(word))).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{shown}");
        assert!(shown.contains(expected), "{shown}");
    };
    check(&[b"rnu", b"a\xff"], "a similar subcommand exists: 'run'");
    let hint = "not UTF-8 text: `a\u{fffd}.gguf`\nhint: rename the file";
    check(&[b"models", b"show", b"a\xff.gguf"], hint);
}
