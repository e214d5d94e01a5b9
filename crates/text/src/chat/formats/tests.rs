use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::request::ToolCall;

fn tool(name: &str) -> Tool {
    Tool {
        name: name.into(),
        description: String::new(),
        parameters: json!({"type": "object"}),
        strict: false,
    }
}

fn hermes() -> &'static Format {
    Format::from_name("hermes").unwrap()
}

fn turn(reasoning: Reasoning) -> Turn {
    Turn {
        format: hermes(),
        thinking: Some(hermes().thinking),
        tools: vec![tool("ping"), tool("get_weather")],
        tool_choice: ToolChoice::Auto,
        bound: BTreeMap::new(),
        parallel_tool_calls: true,
        reasoning,
        schema: None,
        grammar: None,
        string_limit: None,
        raw: false,
    }
}

/// Joins adjacent pieces of the same kind.
fn joined(pieces: Vec<Parsed>) -> Vec<Parsed> {
    let mut out: Vec<Parsed> = Vec::new();
    for piece in pieces {
        match (out.last_mut(), &piece) {
            (Some(Parsed::Text(text)), Parsed::Text(more))
            | (Some(Parsed::Reasoning(text)), Parsed::Reasoning(more)) => text.push_str(more),
            (_, Parsed::Delta { .. }) => {}
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
    Parsed::ToolCall { id: String::new(), name: name.into(), arguments }
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
    check(" Hi\n there ", &[text("Hi\n there ")]);
    check("  \n", &[]);
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
    check("<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}", &[call("ping", json!({}))]);
    check(
        "<tool_call>{\"arguments\":\"{\\\"city\\\":\\\"}</tool_call>\\\"}\",\"name\":\"get_weather\"}</tool_call>",
        &[call("get_weather", json!({"city": "}</tool_call>"}))],
    );
    for not_a_call in [
        "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{'name': 'ping', 'arguments': {}}\n</tool_call>",
        "<tool_call>\n[{\"name\": \"ping\", \"arguments\": {}}]\n</tool_call>",
        "<tool_call>\n{\"name\": \"ping\", \"arguments\": [1]}\n</tool_call>",
    ] {
        check(not_a_call, &[text(not_a_call)]);
    }
}

/// Checks that `output` in `format` parses as expected, with all tools of the other tests.
fn check_format(format: &str, output: &str, expected: &[Parsed]) {
    let format = Format::from_name(format).unwrap();
    let turn = Turn { format, thinking: Some(format.thinking), ..turn(Reasoning::Never) };
    assert_eq!(parse(&turn, [output]), expected, "{output:?}");
    assert_eq!(parse(&turn, characters(output)), expected, "one by one: {output:?}");
}

#[test]
fn white_space_may_stand_between_marks() {
    let ping = "{\"name\": \"ping\", \"arguments\": {}}";
    for (format, open, close) in [
        ("mistral-list", "[TOOL_CALLS]", ""),
        ("granite3", "<|tool_call|>", ""),
        ("nemotron", "<TOOLCALL>", "</TOOLCALL>"),
    ] {
        for space in ["", " ", "\n"] {
            let output = format!("Now: {open}{space}[{ping}, {ping}]{space}{close}");
            let expected = [text("Now:"), call("ping", json!({})), call("ping", json!({}))];
            check_format(format, &output, &expected);
            // The closing texts may be missing.
            check_format(format, &format!("{open}{space}[{ping}]"), &expected[1..2]);
        }
    }
    check_format("lfm2", "<|tool_call_start|> [ping()] <|tool_call_end|>", &[call("ping", json!({}))]);
    check_format("mistral-list", "[TOOL_CALLS] and [x]", &[text("[TOOL_CALLS] and [x]")]);
    check_format("deepseek", "<｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}", &[call("ping", json!({}))]);
}

#[test]
fn a_recipient_may_lack_its_namespace() {
    let call = [call("get_weather", json!({"city": "Paris"}))];
    for header in [
        "<|channel|>commentary to=get_weather <|constrain|>json",
        " to=get_weather<|channel|>commentary json",
    ] {
        check_format("harmony", &format!("{header}<|message|>{{\"city\": \"Paris\"}}"), &call);
    }
    check_format("harmony", "<|channel|>commentary to=nope<|message|>{}", &[]);
}

#[test]
fn marks_that_close_calls_are_no_text() {
    let ping = "{\"name\": \"ping\", \"arguments\": {}}";
    let expected = [call("ping", json!({}))];
    check_format("granite3", &format!("<|tool_call|>[{ping}]<|/tool_call|>"), &expected);
    check_format("granite3", &format!("<|tool_call|> [{ping}] <|/tool_call|>\n"), &expected);
    check_format("mistral-list", &format!("[TOOL_CALLS][{ping}][/TOOL_CALLS]"), &expected);
}

#[test]
fn an_answer_keeps_the_white_space_at_its_end() {
    check_format("hermes", "Hi \n", &[text("Hi \n")]);
    check_format("harmony", "<|channel|>final<|message|>Hi\n\n", &[text("Hi\n\n")]);
    check_format("kimi-k3", "Hi\n<|close|>response<|sep|>", &[text("Hi\n")]);
    // Next to a mark, whitespace belongs to the mark.
    let ping = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";
    check_format("hermes", &format!("Hi\n\n{ping}\n"), &[text("Hi"), call("ping", json!({}))]);
}

#[test]
fn the_beginning_of_a_call_is_no_text_where_the_turn_is_cut_off() {
    let arguments = json!({"city": "Rome"});
    let named = |name: &str| ToolCall {
        id: "123456789".into(),
        name: name.into(),
        arguments: arguments.as_object().unwrap().clone(),
    };
    let calls = [named("get_weather"), named("ping")];
    for format in Format::all().iter().filter(|format| !format.in_fences()) {
        let turn = Turn { format, thinking: Some(format.thinking), ..turn(Reasoning::Never) };
        let single = matches!(format.layout, Layout::Messages | Layout::TextOrObject);
        let written = format.render_calls(&calls[..if single { 1 } else { 2 }]).unwrap();
        let mut cut = 0;
        for at in (0..written.len()).filter(|at| written.is_char_boundary(*at)) {
            let mut parser = Parser::new(&turn);
            let mut parsed = parser.push(&written[..at]);
            parsed.extend(parser.cut_off());
            let text: String =
                parsed.iter().map(|piece| if let Parsed::Text(text) = piece { text } else { "" }).collect();
            // A possible beginning of something else becomes text, since no part of an answer is
            // lost.
            let text = text.trim();
            let undecided = match format.layout {
                Layout::TextOrObject => !text.contains("name\""),
                _ => {
                    format.openers().any(|(opener, _)| text.len() < opener.len() && opener.starts_with(text))
                }
            };
            assert!(undecided, "{}: {:?} gives {text:?}", format.name, &written[..at]);
            cut += usize::from(text.is_empty());
        }
        assert!(cut > 20, "{}: {cut} of {written:?}", format.name);
    }
    // A call that the model itself ends here is incomplete.
    check_format("hermes", "<tool_call>\n{\"name\": \"pi", &[text("<tool_call>\n{\"name\": \"pi")]);
}

#[test]
fn a_text_under_a_grammar_keeps_its_first_white_space_and_so_does_a_raw_one() {
    let turn = |text: &str, reasoning| {
        let thinking = Thinking { gap: "\n\n", ..hermes().thinking };
        let turn = Turn { thinking: Some(thinking), tools: Vec::new(), ..turn(reasoning) };
        let turn = turn.in_grammar("start: /(?s:.*)/");
        let whole = parse(&turn, [text]);
        assert_eq!(parse(&turn, characters(text)), whole, "one by one: {text:?}");
        whole
    };
    assert_eq!(turn("  \n x \n", Reasoning::Never), [text("  \n x \n")]);
    assert_eq!(turn("  x", Reasoning::Optional), [text("  x")]);
    assert_eq!(turn("<think>hm</think>\n\n  x", Reasoning::Optional), [thought("hm"), text("  x")]);
    assert_eq!(turn("hm</think>\n\n\n", Reasoning::Open), [thought("hm"), text("\n")]);
    let raw = Turn { raw: true, ..self::turn(Reasoning::Never) };
    for output in [" \n a <tool_call> b \n", "<|channel|>x", "\n"] {
        assert_eq!(parse(&raw, [output]), [text(output)]);
        assert_eq!(parse(&raw, characters(output)), [text(output)]);
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
    let rendered = hermes().render_call(&original).unwrap();
    assert_eq!(parse(&turn(Reasoning::Never), [rendered.as_str()]), [call("ping", arguments)]);
}

#[test]
fn knows_what_a_prompt_leaves_open() {
    let check =
        |prompt: &str, expected| assert_eq!(hermes().thinking.after(prompt, true), expected, "{prompt}");
    check("<|im_start|>assistant\n", Reasoning::Optional);
    check("<|im_start|>assistant\n<think>\n", Reasoning::Open);
    check("<|im_start|>assistant\n<think>\n\n</think>\n\n", Reasoning::Never);
    assert_eq!(hermes().thinking.after("<|im_start|>assistant\n", false), Reasoning::Never);
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
    let Some(path) = crate::absent::shared(&format!("fixtures/chat/{file}")) else { return Vec::new() };
    let text = std::fs::read_to_string(path).unwrap();
    text.split_terminator('\n').map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The source of a fixture's template.
fn template(name: &str) -> String {
    let path = crate::absent::shared(&format!("fixtures/chat/templates/{name}.jinja")).unwrap();
    std::fs::read_to_string(path).unwrap()
}

fn message(pieces: Vec<Parsed>) -> Value {
    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for piece in pieces {
        match piece {
            Parsed::Text(text) => content.push_str(&text),
            Parsed::Reasoning(text) => reasoning.push_str(&text),
            Parsed::Delta { .. } => {}
            Parsed::ToolCall { id, name, arguments } => {
                calls.push(json!({"name": name, "arguments": arguments, "id": id}));
            }
            Parsed::Incomplete { id, name, arguments } => {
                calls.push(json!({"name": name, "arguments_text": arguments, "id": id}));
            }
        }
    }
    json!({"content": content, "reasoning_content": reasoning, "tool_calls": calls})
}

/// Whether a message is what a fixture expects: ignoring outer whitespace, and ids it doesn't give.
fn agrees(actual: &Value, expected: &Value) -> bool {
    let trimmed = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().trim().to_owned();
    let same_text =
        ["content", "reasoning_content"].iter().all(|key| trimmed(actual, key) == trimmed(expected, key));
    let calls = |value: &Value| value["tool_calls"].as_array().cloned().unwrap_or_default();
    let (actual, expected) = (calls(actual), calls(expected));
    let same = |(actual, expected): (&Value, &Value)| {
        expected.as_object().unwrap().iter().all(|(key, value)| actual[key] == *value)
    };
    same_text && actual.len() == expected.len() && actual.iter().zip(&expected).all(same)
}

/// Checks that the pieces of a call's arguments, concatenated, are the JSON of its arguments.
fn pieces_are_the_whole<'a>(turn: &Turn, output: impl IntoIterator<Item = &'a str>) {
    let mut parser = Parser::new(turn);
    let mut parsed: Vec<Parsed> = output.into_iter().flat_map(|piece| parser.push(piece)).collect();
    parsed.extend(parser.finish());
    let mut written: Option<String> = None;
    for piece in parsed {
        match piece {
            Parsed::Delta { arguments, .. } => *written.get_or_insert_default() += &arguments,
            Parsed::ToolCall { arguments, .. } => {
                let pieces: Value = serde_json::from_str(&written.take().unwrap()).unwrap();
                assert_eq!(pieces, Value::Object(arguments));
            }
            Parsed::Incomplete { arguments, .. } => assert_eq!(written.take(), Some(arguments)),
            // The text only began like a call.
            Parsed::Text(_) | Parsed::Reasoning(_) => written = None,
        }
    }
}

/// Fixtures whose expectation differs from ours, with the reason.
const DIFFERENT: [(&str, &str); 7] = [
    (
        "llamacpp/inclusionai-ling-3.0-flash.6",
        "reasoning that stays in the text keeps its tag, as in Qwen3.5-4B.2",
    ),
    ("llamacpp/inclusionai-ling-3.0-flash.10", "the token that ends a turn never reaches the parser"),
    ("llamacpp/meta-llama-Llama-3.1-8B-Instruct.2", FENCE),
    ("llamacpp/mistralai-Ministral-3-14B-Reasoning-2512.7", FENCE),
    (
        "disputed/openai-gpt-oss-120b/oss_reasoning_none",
        "as openai-gpt-oss-120b.4: the header of the text is no text",
    ),
    (
        "llamacpp/LFM2.5-8B-A1B.15",
        "arguments in another notation than JSON are reported when they are complete",
    ),
    ("llamacpp/Reka-Edge.7", "deltas are what the model wrote: the space after the colon has not come"),
];
const FENCE: &str = "a grammar for JSON output permits no code fence, so that none has to be taken away";
/// Families of templates that we have no format for.
const UNKNOWN: [&str; 8] =
    ["cohere", "apriel", "firefunction", "functionary", "gigachat", "minimax", "muse", "spark"];

#[test]
fn fixtures_agree() {
    let (mut wrong, mut total, mut unknown) = (Vec::new(), 0, 0);
    for file in ["parse.jsonl", "parse-partial.jsonl", "parse-disputed.jsonl"] {
        for record in records(file) {
            let source = template(record["template"].as_str().unwrap());
            let id = record["id"].as_str().unwrap();
            let Some(format) = crate::chat::ChatTemplate::new(&source, "", "").unwrap().format() else {
                assert!(UNKNOWN.iter().any(|family| record["family"] == *family), "{id}");
                unknown += 1;
                continue;
            };
            total += 1;
            let options: ParseOptions = serde_json::from_value(record["options"].clone()).unwrap();
            let tools = record["tools"].as_array().into_iter().flatten().map(|item| Tool {
                name: item["function"]["name"].as_str().unwrap().into(),
                description: String::new(),
                parameters: item["function"]["parameters"].clone(),
                strict: false,
            });
            let thinking = format.thinking.in_template(&source);
            let turn = options.turn(format, thinking, tools.collect());
            let prefill = options.prefill(thinking);
            let output = record["output"].as_str().unwrap();
            let whole = parse(&turn, [prefill, output]);
            let actual = message(whole.clone());
            pieces_are_the_whole(&turn, [prefill, output]);
            pieces_are_the_whole(&turn, [prefill].into_iter().chain(characters(output)));
            let by_one = parse(&turn, [prefill].into_iter().chain(characters(output)));
            let different = DIFFERENT.iter().any(|(known, _)| *known == id);
            if agrees(&actual, &record["expected"]) == different || by_one != whole {
                println!("{id} {}\n  output   {output:?}\n  expected {}", format.name, record["expected"]);
                println!("  actual   {actual}\n  by one   {}", message(by_one));
                wrong.push(id.to_owned());
            }
        }
    }
    println!(
        "{} of {total} outputs are read as expected, {} as they should",
        total - wrong.len(),
        DIFFERENT.len()
    );
    println!("{unknown} are of families without a format");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_answer_goes_on_behind_the_marks_that_the_model_would_have_written() {
    let check = |format: &str, gap: &'static str, reasoning, thoughts: &str, text: &str, expected: &str| {
        let format = Format::from_name(format).unwrap();
        let gap = if gap.is_empty() { format.thinking.gap } else { gap };
        let turn = Turn {
            format,
            thinking: Some(Thinking { gap, ..format.thinking }),
            tools: Vec::new(),
            ..turn(reasoning)
        };
        assert_eq!(turn.continuation(thoughts, text), expected);
        // The parser recognizes it.
        let pieces = joined([Parser::new(&turn).push(expected)].concat());
        let texts = pieces.iter().filter(|piece| matches!(piece, Parsed::Text(_))).count();
        assert_eq!(texts, usize::from(!text.is_empty()), "{pieces:?}");
    };
    check("hermes", "\n\n", Reasoning::Never, "", "Yes, \n", "Yes,");
    check("hermes", "\n\n", Reasoning::Optional, "", "Yes", "Yes");
    check("hermes", "\n\n", Reasoning::Optional, "hm", "Yes", "<think>hm\n</think>\n\nYes");
    check("hermes", "\n\n", Reasoning::Open, "", "Yes", "\n</think>\n\nYes");
    check("hermes", "\n\n", Reasoning::Open, "hm ", "", "hm");
    check("hermes", "\n\n", Reasoning::Never, "hm", "", "");
    let (analysis, answer) = ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>Yes");
    let both = format!("{analysis}hm<|end|><|start|>assistant{answer}");
    check("harmony", "", Reasoning::Optional, "hm", "Yes", &both);
    check("harmony", "", Reasoning::Optional, "", "Yes", answer);
}
