use alara_engine::{Message, Tool};
use serde_json::json;

use super::*;

fn request(tools: &[&str]) -> Request {
    let tool = |name: &&str| Tool {
        name: (*name).into(),
        description: String::new(),
        parameters: json!({"type": "object"}),
        strict: false,
    };
    Request { tools: tools.iter().map(tool).collect(), parallel_tool_calls: true, ..Request::default() }
}

/// The events of an answer in short: `text`, `(reasoning)`, `name#index+piece`,
/// `!id name{arguments}`, `?name piece`, `%tokens`, `=finish`.
fn texts(request: &Request, format: Option<&'static Format>, chunks: &[Value]) -> Result<String, Flaw> {
    let mut answer = Answer::new(request, format, Instant::now());
    let mut events = Vec::new();
    for chunk in chunks {
        events.extend(answer.push(&chunk.to_string())?);
    }
    events.extend(answer.finish()?);
    let texts = events.into_iter().map(|event| match event {
        Event::Text { text } => text,
        Event::Reasoning { text } => format!("({text})"),
        Event::ToolCallDelta { index, name, arguments } => {
            format!("{}#{index}+{arguments}", name.unwrap_or_default())
        }
        Event::ToolCall(call) => format!("!{} {}{}", call.id, call.name, Value::from(call.arguments)),
        Event::Incomplete { name, arguments } => format!("?{name} {arguments}"),
        Event::Prefill { computed, .. } => format!("<{computed}"),
        Event::Logprobs { tokens } | Event::PromptLogprobs { tokens } => format!("%{}", tokens.len()),
        Event::Done { finish, .. } => format!("={finish:?}"),
    });
    Ok(texts.collect::<Vec<_>>().join(" "))
}

fn check(chunks: &[Value], expected: &str) {
    assert_eq!(texts(&request(&["f", "g"]), None, chunks).as_deref(), Ok(expected), "{chunks:?}");
}

fn delta(delta: Value) -> Value {
    let mut chunk = end("");
    chunk["choices"][0] = json!({"index": 0, "finish_reason": null});
    chunk["choices"][0]["delta"] = delta;
    chunk
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn call(index: Option<usize>, id: Option<&str>, name: Option<&str>, arguments: Option<Value>) -> Value {
    let mut function = json!({"name": name});
    function["arguments"] = arguments.unwrap_or(Value::Null);
    delta(json!({"tool_calls": [{"index": index, "id": id, "function": function}]}))
}

#[test]
fn text_and_reasoning() {
    let hello = [
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"content": "Hel"})),
        delta(json!({"content": "lo"})),
    ];
    check(&[&hello[..], &[end("stop")]].concat(), "Hel lo =Stop");
    check(&[&hello[..], &[end("length")]].concat(), "Hel lo =Length");
    check(&[&hello[..], &[end("eos_token")]].concat(), "Hel lo =Stop");
    check(
        &[delta(json!({"reasoning_content": "a", "content": null})), delta(json!({"content": "b"}))],
        "(a) b =Stop",
    );
    check(
        &[delta(json!({"reasoning": "a"})), delta(json!({"reasoning": "a", "reasoning_content": "b"}))],
        "(a) (b) =Stop",
    );
    check(&[delta(json!({"refusal": "No."})), end("stop")], "No. =Stop");
    check(&[json!({"choices": []}), json!({"choices": null}), json!({}), end("stop")], "=Stop");
    // Whole answers.
    check(&[json!({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]})], "Hi =Stop");
}

#[test]
fn calls_in_pieces() {
    let expected = "f#0+ #0+{\"a\":  #0+1} !x f{\"a\":1} =ToolCalls";
    check(
        &[
            call(Some(0), Some("x"), Some("f"), Some(json!(""))),
            call(Some(0), None, None, Some(json!("{\"a\": "))),
            call(Some(0), Some(""), Some(""), Some(json!("1}"))),
            end("tool_calls"),
        ],
        expected,
    );
    let f = |index, id| call(index, id, Some("f"), Some(json!("{}")));
    // Two calls: by index, by id alone, by name alone; and named again with each piece.
    check(
        &[f(Some(0), Some("x")), f(Some(1), Some("y")), end("stop")],
        "f#0+{} f#1+{} !x f{} !y f{} =ToolCalls",
    );
    check(
        &[f(Some(0), Some("x")), f(Some(0), Some("y")), end("stop")],
        "f#0+{} f#1+{} !x f{} !y f{} =ToolCalls",
    );
    check(&[f(None, Some("x")), f(None, Some("y")), end("stop")], "f#0+{} f#1+{} !x f{} !y f{} =ToolCalls");
    check(&[f(None, None), f(None, None), end("stop")], "f#0+{} f#1+{} !call_0 f{} !call_1 f{} =ToolCalls");
    let again = |text: &str| call(Some(0), Some("x"), Some("f"), Some(json!(text)));
    check(&[again("{"), again("}"), end("stop")], "f#0+{ #0+} !x f{} =ToolCalls");
    // A name that comes late, arguments that are an object, or that are missing.
    check(
        &[call(Some(0), Some("x"), None, Some(json!("{"))), call(Some(0), None, Some("f"), Some(json!("}")))],
        "f#0+{} !x f{} =ToolCalls",
    );
    check(
        &[call(None, None, Some("f"), Some(json!({"a": 1})))],
        "f#0+{\"a\":1} !call_0 f{\"a\":1} =ToolCalls",
    );
    check(&[call(None, None, Some("f"), None)], "f#0+ #0+{} !call_0 f{} =ToolCalls");
    let whole =
        json!([{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]);
    let whole = json!({"choices": [{"message": {"content": null, "tool_calls": whole}, "finish_reason": "tool_calls"}]});
    check(&[whole], "f#0+{\"a\": 1} !x f{\"a\":1} =ToolCalls");
}

#[test]
fn calls_of_tools_that_were_not_offered_are_for_the_executor_to_refuse() {
    check(&[call(None, Some("x"), Some("rm"), Some(json!("{}")))], "rm#0+{} !x rm{} =ToolCalls");
    check(&[call(None, Some("x"), None, Some(json!("{}")))], "!x {} =ToolCalls");
    // Text in a model's own format stays text, for the caller that runs tools to parse.
    let text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    check(&[delta(json!({"content": text})), end("stop")], &format!("{text} =Stop"));
}

#[test]
fn arguments_that_do_not_parse_are_a_call_all_the_same() {
    let broken = |text: &str| {
        let unread = json!({"unreadable arguments": text});
        let chunk = call(None, Some("x"), Some("f"), Some(json!(text)));
        check(&[chunk.clone(), end("tool_calls")], &format!("f#0+{text} !x f{unread} =ToolCalls"));
        check(&[chunk, end("stop")], &format!("f#0+{text} !x f{unread} =ToolCalls"));
    };
    broken(r#"{"command": "echo hi",}"#);
    broken(r#"{"command": "echo hi"} as asked"#);
    broken("{} {}");
    broken("[]");
    broken("[1]");
    broken("{'command': 'echo hi'}");
    broken(r#"{"command": "ec"#);
}

#[test]
fn arguments_that_mean_an_object_are_one() {
    let read = |text: Value, piece: &str, expected: &str| {
        let chunk = call(None, Some("x"), Some("f"), Some(text));
        check(&[chunk, end("tool_calls")], &format!("f#0+{piece} !x f{expected} =ToolCalls"));
    };
    let twice = json!(r#"{"a": 1}"#).to_string();
    read(json!(twice), &twice, r#"{"a":1}"#);
    read(json!("null"), "null", "{}");
    read(json!(" "), "  #0+{}", "{}");
    read(Value::Null, " #0+{}", "{}");
    read(json!({"a": {"b": []}}), r#"{"a":{"b":[]}}"#, r#"{"a":{"b":[]}}"#);
}

#[test]
fn a_call_that_the_limit_cut_off_is_none() {
    let f = |text: &str| call(None, Some("x"), Some("f"), Some(json!(text)));
    check(&[f("{\"a\": "), end("length")], "f#0+{\"a\":  ?f {\"a\":  =Length");
    check(&[f("{\"a\": 1}"), end("length")], "f#0+{\"a\": 1} !x f{\"a\":1} =Length");
}

#[test]
fn names_with_prefixes_and_in_another_case() {
    let named = |name: &str, expected: &str| {
        let chunk = call(Some(0), Some("x"), Some(name), Some(json!("{}")));
        check(&[chunk, end("tool_calls")], &format!("{expected}#0+{{}} !x {expected}{{}} =ToolCalls"));
    };
    named("functions.f", "f");
    named("F", "f");
    named("f()", "f");
    named("functions.h", "functions.h");
}

#[test]
fn ids_and_types_that_are_missing_or_the_same() {
    let whole = |calls: Value| json!({"choices": [{"message": {"content": null, "tool_calls": calls}, "finish_reason": "tool_calls"}]});
    let f = |arguments: Value| json!({"function": {"name": "f", "arguments": arguments}});
    check(
        &[whole(json!([f(json!("{}")), f(json!({"a": 1}))]))],
        "f#0+{} f#1+{\"a\":1} !call_0 f{} !call_1 f{\"a\":1} =ToolCalls",
    );
    let mut same = [f(json!("{}")), f(json!("{\"a\": 1}"))];
    same.iter_mut().for_each(|call| call["id"] = json!("x"));
    let texts = "f#0+{} f#1+{\"a\": 1} !x f{} !call_0 f{\"a\":1} =ToolCalls";
    check(&[whole(json!(same))], texts);
    // Streamed, without numbers.
    let pieces = same.map(|call| delta(json!({"tool_calls": [call]})));
    check(&[&pieces[..], &[end("tool_calls")]].concat(), texts);
}

#[test]
fn pieces_of_calls_that_are_mixed() {
    let piece = |index, id, text: &str| call(index, id, None, Some(json!(text)));
    let begin = |index, id| call(index, id, Some("f"), Some(json!("")));
    let texts = "f#0+ f#1+ #0+{\"a\": #1+{\"a\": #0+1} #1+2} !x f{\"a\":1} !y f{\"a\":2} =ToolCalls";
    let mixed = |indexes: [Option<usize>; 2], ids: [Option<&'static str>; 2]| {
        check(
            &[
                begin(indexes[0], Some("x")),
                begin(indexes[1], Some("y")),
                piece(indexes[0], ids[0], "{\"a\":"),
                piece(indexes[1], ids[1], "{\"a\":"),
                piece(indexes[0], ids[0], "1}"),
                piece(indexes[1], ids[1], "2}"),
                end("tool_calls"),
            ],
            texts,
        );
    };
    mixed([Some(0), Some(1)], [None, None]);
    mixed([Some(0), Some(1)], [Some("x"), Some("y")]);
    mixed([Some(0), Some(0)], [Some("x"), Some("y")]);
    mixed([None, None], [Some("x"), Some("y")]);
}

#[test]
fn ids_are_unique_in_the_conversation() {
    let before = |id: &str| ToolCall { id: id.into(), name: "f".into(), arguments: serde_json::Map::new() };
    let messages = vec![Message::assistant("", vec![before("call_2"), before("x")])];
    let request = Request { messages, ..request(&["f"]) };
    let f = |id| call(None, id, Some("f"), Some(json!("{}")));
    let texts = texts(&request, None, &[f(Some("x")), f(Some("y")), f(None)]).unwrap();
    assert_eq!(texts, "f#0+{} f#1+{} f#2+{} !call_3 f{} !y f{} !call_4 f{} =ToolCalls");
}

#[test]
fn calls_in_the_house_format() {
    let check = |tools: &[&str], pieces: &[&str], expected: &str| {
        let chunks: Vec<Value> = pieces.iter().map(|piece| delta(json!({"content": piece}))).collect();
        assert_eq!(
            texts(&request(tools), Some(Format::generic()), &chunks).as_deref(),
            Ok(expected),
            "{pieces:?}"
        );
    };
    let call = ["I look.\n<tool", "_call>\n{\"name\": \"f\", \"arguments\": {\"a\"", ": 1}}\n</tool_call>"];
    let texts = "I look. f#0+ #0+{\"a\" #0+: 1} !call_0 f{\"a\":1} =ToolCalls";
    check(&["f"], &call, texts);
    check(&["f"], &["<think>hm</think>Hi"], "(hm) Hi =Stop");
    // Only a limit cuts off a call.
    let begun = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": ";
    let chunks = |reason| [delta(json!({"content": begun})), end(reason)];
    let cut = self::texts(&request(&["f"]), Some(Format::generic()), &chunks("length"));
    assert_eq!(cut.as_deref(), Ok("f#0+ #0+{\"a\":  ?f {\"a\":  =Length"));
    let ended = self::texts(&request(&["f"]), Some(Format::generic()), &chunks("stop"));
    let unread = json!({"unreadable arguments": "{\"a\": "});
    assert_eq!(ended, Ok(format!("f#0+ #0+{{\"a\":  !call_0 f{unread} =ToolCalls")));
}

#[test]
fn what_ends_a_turn_badly() {
    let check = |chunks: &[Value], flaw: Flaw| assert_eq!(texts(&request(&[]), None, chunks), Err(flaw));
    let text = delta(json!({"content": "a"}));
    check(&[text.clone(), end("content_filter")], Flaw::Filtered);
    check(
        &[text.clone(), json!({"error": {"message": "out of memory", "code": 500}})],
        Flaw::Failed("out of memory".into()),
    );
    check(&[json!({"error": "no"})], Flaw::Failed("no".into()));
    check(
        &[json!({"choices": 3})],
        Flaw::Nonsense(
            "invalid type: integer `3`, expected a sequence at line 1 column 12 in \"{\\\"choices\\\":3}\""
                .into(),
        ),
    );
    let json = Request { schema: Some(json!({})), ..request(&[]) };
    let answer =
        |text: &str, reason: &str| texts(&json, None, &[delta(json!({"content": text})), end(reason)]);
    assert_eq!(answer("{\"a\": 1}", "stop").as_deref(), Ok("{\"a\": 1} =Stop"));
    assert!(matches!(answer("It is 1.", "stop"), Err(Flaw::NotJson(_))));
    assert_eq!(answer("{\"a\":", "length").as_deref(), Ok("{\"a\": =Length"));
}

#[test]
fn usage_and_times() {
    let mut answer = Answer::new(&request(&[]), None, Instant::now());
    std::thread::sleep(std::time::Duration::from_millis(10));
    answer.push(&delta(json!({"content": "a"})).to_string()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    answer.push(&delta(json!({"content": "b"})).to_string()).unwrap();
    let usage =
        json!({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}});
    answer.push(&json!({"choices": [], "usage": usage}).to_string()).unwrap();
    let Some(Event::Done { usage, .. }) = answer.finish().unwrap().pop() else { panic!("no end") };
    assert_eq!((usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens), (9, 4, 2));
    let (first, decode) = (usage.time_to_first_token.as_millis(), usage.decode_time.as_millis());
    assert!((10..20_000).contains(&first) && (20..20_000).contains(&decode), "{first} {decode}");
}

#[test]
fn an_answer_that_comes_at_once_tells_no_speed() {
    let call = json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\": 1}"}});
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 400});
    let check = |pieces: &[Value]| {
        let mut answer = Answer::new(&request(&["f"]), None, Instant::now());
        for piece in pieces {
            answer.push(&piece.to_string()).unwrap();
        }
        answer.push(&json!({"choices": [], "usage": usage}).to_string()).unwrap();
        let Some(Event::Done { usage, .. }) = answer.finish().unwrap().pop() else { panic!("no end") };
        assert_eq!((usage.decode_time, usage.tokens_per_second()), (Duration::ZERO, None), "{pieces:?}");
    };
    check(&[delta(json!({"tool_calls": [call]}))]);
    // In several pieces, one right after the other.
    check(&[delta(json!({"content": "a"})), delta(json!({"tool_calls": [call]})), end("tool_calls")]);
}
