use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::request::Message;

fn tool(name: &str) -> Tool {
    Tool { name: name.into(), description: String::new(), parameters: json!({"type": "object"}) }
}

fn turn(reasoning: Reasoning) -> Turn {
    Turn {
        format: Format::Hermes,
        tools: vec![tool("ping"), tool("get_weather")],
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: true,
        reasoning,
    }
}

/// Neighbouring pieces of the same kind joined.
fn joined(pieces: Vec<Parsed>) -> Vec<Parsed> {
    let mut out: Vec<Parsed> = Vec::new();
    for piece in pieces {
        match (out.last_mut(), &piece) {
            (Some(Parsed::Text(text)), Parsed::Text(more))
            | (Some(Parsed::Reasoning(text)), Parsed::Reasoning(more)) => text.push_str(more),
            _ => out.push(piece),
        }
    }
    out
}

fn parse<'a>(turn: &Turn, pieces: impl IntoIterator<Item = &'a str>) -> Vec<Parsed> {
    let mut parser = Parser::new(turn);
    let mut out: Vec<Parsed> = pieces.into_iter().flat_map(|piece| parser.push(piece)).collect();
    out.extend(parser.finish());
    joined(out)
}

fn characters(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices().map(|(at, character)| &text[at..at + character.len_utf8()])
}

fn text(text: &str) -> Parsed {
    Parsed::Text(text.into())
}

fn thought(text: &str) -> Parsed {
    Parsed::Reasoning(text.into())
}

fn call(name: &str, arguments: Value) -> Parsed {
    let Value::Object(arguments) = arguments else { panic!("{arguments}") };
    Parsed::ToolCall { name: name.into(), arguments }
}

#[test]
fn parses_turns() {
    let check = |output: &str, expected: &[Parsed]| {
        let turn = turn(Reasoning::Optional);
        assert_eq!(parse(&turn, [output]), expected, "{output:?}");
        assert_eq!(parse(&turn, characters(output)), expected, "one by one: {output:?}");
    };
    let ping = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";
    check("", &[]);
    check(" Hi\n there ", &[text("Hi\n there")]);
    check("a < b <tool", &[text("a < b <tool")]);
    check("<think>\nA\n</think>\n\nB", &[thought("A"), text("B")]);
    check("<think>A", &[thought("A")]);
    check("<thin", &[text("<thin")]);
    check("Hi <think>x</think>", &[text("Hi <think>x</think>")]);
    check(ping, &[call("ping", json!({}))]);
    check(
        &format!("Now:\n{ping}\n\n{ping}\n"),
        &[text("Now:"), call("ping", json!({})), call("ping", json!({}))],
    );
    check(&format!("{ping}\nDone!"), &[call("ping", json!({})), text("Done!")]);
    check(&format!("<tool_call>{ping}"), &[text("<tool_call>"), call("ping", json!({}))]);
    check(&format!("<think>{ping}</think>"), &[thought(ping)]);
    check(
        "<tool_call>{\"arguments\":\"{\\\"city\\\":\\\"}</tool_call>\\\"}\",\"name\":\"get_weather\"}</tool_call>",
        &[call("get_weather", json!({"city": "}</tool_call>"}))],
    );
    for not_a_call in [
        "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}",
        "<tool_call>\n{\"name\": \"ping\", \"arguments\": {\"a",
        "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{'name': 'ping', 'arguments': {}}\n</tool_call>",
        "<tool_call>\n[{\"name\": \"ping\", \"arguments\": {}}]\n</tool_call>",
        "<tool_call>\n{\"name\": \"ping\", \"arguments\": [1]}\n</tool_call>",
    ] {
        check(not_a_call, &[text(not_a_call)]);
    }
}

#[test]
fn one_call_without_parallel_calls() {
    let ping = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";
    let turn = Turn { parallel_tool_calls: false, ..turn(Reasoning::Never) };
    assert_eq!(parse(&turn, [ping, "\n", ping]), [call("ping", json!({})), text(ping)]);
}

#[test]
fn a_call_reads_back_from_its_rendering() {
    let arguments = json!({"z": "é\n\"</tool_call>", "a": [1, 2.5, null, {"b": true}]});
    let original = ToolCall {
        id: String::new(),
        name: "ping".into(),
        arguments: arguments.as_object().unwrap().clone(),
    };
    let rendered = Format::Hermes.render_call(&original).unwrap();
    assert_eq!(parse(&turn(Reasoning::Never), [rendered.as_str()]), [call("ping", arguments)]);
}

#[test]
fn knows_what_a_prompt_leaves_open() {
    let check = |prompt: &str, expected| assert_eq!(Reasoning::after(prompt, true), expected, "{prompt}");
    check("<|im_start|>assistant\n", Reasoning::Optional);
    check("<|im_start|>assistant\n<think>\n", Reasoning::Open);
    check("<|im_start|>assistant\n<think>\n\n</think>\n\n", Reasoning::Never);
    assert_eq!(Reasoning::after("<|im_start|>assistant\n", false), Reasoning::Never);
}

proptest! {
    #[test]
    fn cuts_do_not_matter(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "<tool_call>", "\n", "{\"name\": \"ping\", \"arguments\": {\"a\": \"", "}", "\"", "\\", "</tool_call>", "<think>",
            "</think>", " ", "é", "<", "tool_call>", "x", "{", "{\"name\": \"ping\"}",
        ]), 0..16),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        open in prop::sample::select(vec![Reasoning::Never, Reasoning::Optional, Reasoning::Open]),
    ) {
        let output = pieces.concat();
        let turn = turn(open);
        let whole = parse(&turn, [output.as_str()]);
        prop_assert_eq!(&parse(&turn, characters(&output)), &whole);
        let mut places: Vec<usize> = cuts.iter().map(|cut| output.floor_char_boundary(cut.index(output.len() + 1))).collect();
        places.extend([0, output.len()]);
        places.sort_unstable();
        let cut = places.windows(2).map(|pair| &output[pair[0]..pair[1]]);
        prop_assert_eq!(&parse(&turn, cut), &whole);
    }
}

fn records(file: &str) -> Vec<Value> {
    let shared = std::env::var_os("ALARA_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    let path = shared.join("fixtures/chat").join(file);
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("SKIPPED: no fixture {}", path.display());
        return Vec::new();
    };
    text.split_terminator('\n').map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What was generated stands in the next prompt as it was generated, so its tokens can be used again.
#[test]
fn history_begins_with_what_was_generated() {
    let shared = std::env::var("ALARA_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").into());
    let file = PathBuf::from(shared).join("fixtures/chat/templates/Qwen-Qwen3-0.6B.jinja");
    let Ok(source) = std::fs::read_to_string(&file) else {
        return println!("SKIPPED: no template {}", file.display());
    };
    let template = crate::chat::ChatTemplate::new(&source, "", "").unwrap();
    let now = jiff::civil::datetime(2026, 7, 1, 12, 0, 0, 0);
    let check = |generated: &str| {
        let mut request =
            Request { messages: vec![Message::user("hi")], tools: vec![tool("ping")], ..Request::default() };
        let prompt = template.render(&request, &[], now).unwrap();
        let turn = Turn::new(Format::Hermes, &request, &source, &prompt.generation_prompt);
        assert_eq!(turn.reasoning, Reasoning::Optional);
        let mut answer = Message::assistant("", Vec::new());
        for piece in parse(&Turn { parallel_tool_calls: true, ..turn }, [generated]) {
            match piece {
                Parsed::Text(text) => answer.content = text,
                Parsed::Reasoning(text) => answer.reasoning_content = Some(text),
                Parsed::ToolCall { name, arguments } => {
                    answer.tool_calls.push(ToolCall { id: String::new(), name, arguments });
                }
            }
        }
        let result = Message::tool_result(&answer.tool_calls[0], "done");
        request.messages.extend([answer, result]);
        let history = template.render(&request, &[], now).unwrap().text;
        let expected = format!("{}{generated}<|im_end|>\n", prompt.text);
        assert!(history.starts_with(&expected), "{history}\nshould begin with\n{expected}");
    };
    let call = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {\"b\": [1, 2.5, \"\\n é </think>\"], \"a\": {\"c\": null}}}\n</tool_call>";
    check(call);
    check(&format!("Let me look.\n{call}"));
    check(&format!("{call}\n{call}"));
    check(&format!("<think>\nHm.\n</think>\n\n{call}"));
    check(&format!("<think>\nHm.\n</think>\n\nNow:\n{call}"));
}

/// A fixture's tools and options as a turn, and the text of the answer that its prompt holds already.
fn fixture_turn(record: &Value) -> (Turn, String) {
    let options: ParseOptions = serde_json::from_value(record["options"].clone()).unwrap();
    let tools = record["tools"].as_array().into_iter().flatten();
    let tools = tools.map(|item| tool(item["function"]["name"].as_str().unwrap())).collect();
    (options.turn(Format::Hermes, tools), options.prefill().to_owned())
}

fn message(pieces: Vec<Parsed>) -> Value {
    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for piece in pieces {
        match piece {
            Parsed::Text(text) => content.push_str(&text),
            Parsed::Reasoning(text) => reasoning.push_str(&text),
            Parsed::ToolCall { name, arguments } => calls.push(json!({"name": name, "arguments": arguments})),
        }
    }
    json!({"content": content, "reasoning_content": reasoning, "tool_calls": calls})
}

#[test]
fn fixtures_agree() {
    let mut wrong = Vec::new();
    let mut total = 0;
    for file in ["parse.jsonl", "parse-partial.jsonl", "parse-disputed.jsonl"] {
        for record in records(file) {
            if record["family"] != "qwen3-hermes" {
                continue;
            }
            total += 1;
            let (turn, prefill) = fixture_turn(&record);
            let output = record["output"].as_str().unwrap();
            let actual = message(parse(&turn, [prefill.as_str(), output]));
            let by_one = message(parse(&turn, [prefill.as_str()].into_iter().chain(characters(output))));
            let mut expected = record["expected"].clone();
            for key in ["content", "reasoning_content"] {
                expected[key] = expected[key].as_str().unwrap().trim().into();
            }
            if actual != expected || by_one != expected {
                println!("{}:\n  expected {expected}\n  actual   {actual}", record["id"]);
                wrong.push(record["id"].clone());
            }
        }
    }
    println!("{} of {total} outputs agree", total - wrong.len());
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn detects_families_by_their_templates() {
    let templates = records("parse.jsonl").into_iter().map(|record| {
        let family = record["family"].as_str().unwrap().to_owned();
        (record["template"].as_str().unwrap().to_owned(), family)
    });
    let shared = std::env::var("ALARA_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").into());
    for (template, family) in templates.collect::<std::collections::BTreeMap<_, _>>() {
        let source =
            std::fs::read_to_string(format!("{shared}/fixtures/chat/templates/{template}.jinja")).unwrap();
        // SmolLM3's vectors are plain text: its template prints no tools. Granite and Reka write calls as Hermes does.
        let hermes = (family == "qwen3-hermes" && !template.contains("SmolLM3"))
            || template.contains("granite-4")
            || template.contains("Reka");
        let expected = hermes.then_some(Format::Hermes);
        assert_eq!(Format::detect(&source), expected, "{template}");
    }
}
