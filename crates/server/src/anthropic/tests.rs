use alara_engine::{Finish, Usage};

use super::*;
use crate::answer::{Answer, End, Piece, Writer};
use crate::refusal::TooLong;

fn read_all(body: &Value) -> Result<InnerRequest, Refusal> {
    read(Fields::read(body.to_string().as_bytes())?)
}

#[test]
fn blocks_become_messages() {
    let cache = json!({"type": "ephemeral"});
    let body = json!({
        "model": "m", "max_tokens": 50, "temperature": 0.5, "top_k": 5, "stop_sequences": ["END"], "stream": true,
        "system": [{"type": "text", "text": "One.", "cache_control": cache}, {"type": "text", "text": "Two."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": cache}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}},
                {"type": "tool_use", "id": "t2", "name": "f", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": [{"type": "text", "text": "no file"}]},
                {"type": "text", "text": "And?"},
            ]},
        ],
        "tools": [
            {"name": "f", "description": "F", "input_schema": {"type": "object"}, "cache_control": cache},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        "thinking": {"type": "enabled", "budget_tokens": 1024}, "metadata": {"user_id": "u"}, "surprise": 1,
    });
    let asked = read_all(&body).unwrap();
    assert_eq!(asked.ignored, ["tools[] (web_search_20250305)", "surprise"]);
    assert_eq!((asked.draws.temperature, asked.draws.top_k, asked.stream), (Some(0.5), Some(5), true));
    let request = asked.request;
    let system: Vec<&str> = request.system.iter().map(|segment| segment.text.as_str()).collect();
    assert_eq!((system, request.max_tokens), (vec!["One.", "Two."], Some(50)));
    let [user, calls, one, two, last] = request.messages.as_slice() else { panic!("{:?}", request.messages) };
    assert_eq!((user.content.as_str(), last.content.as_str()), ("a", "And?"));
    assert_eq!((calls.content.as_str(), calls.reasoning_content.as_deref()), ("I look.", Some("hm")));
    assert_eq!(*one, Message::tool_result(&calls.tool_calls[0], "one"));
    assert_eq!(*two, Message::tool_result(&calls.tool_calls[1], "Error: no file"));
    assert_eq!((request.tool_choice, request.parallel_tool_calls), (ToolChoice::Required, false));
    assert_eq!((request.thinking, request.reasoning_tokens), (Some(true), Some(1024)));
    assert_eq!((request.tools.len(), request.stop), (1, vec!["END".to_owned()]));
}

#[test]
fn what_is_refused_is_named() {
    let check = |fields: Value, param: &str| {
        let mut body = json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let refusal = read_all(&body).unwrap_err();
        assert!(refusal.message.contains(&format!("`{param}`")), "{}", refusal.message);
    };
    check(json!({"messages": []}), "messages");
    check(
        json!({"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
        "messages[0].content[0].type",
    );
    check(json!({"tool_choice": {"type": "tool", "name": "g"}}), "tool_choice");
    check(json!({"thinking": {"type": "some"}}), "thinking.type");
    let long = TooLong { prompt: 18_767, context: 16_384, trained: 32_768 };
    let message = |long| super::refusal(&Refusal::too_long("messages", long))["error"]["message"].clone();
    let expected = "prompt is too long: 18767 tokens > 16384 maximum; start the server with a larger --ctx (the model was \
                    trained for 32768)";
    assert_eq!(message(long), expected);
    let told = message(TooLong { trained: 16_384, ..long });
    assert!(told.as_str().unwrap().contains("a larger --ctx does not help"), "{told}");
    let refused = super::refusal(&Refusal::busy(3));
    assert_eq!((&refused["type"], &refused["error"]["type"]), (&json!("error"), &json!("overloaded_error")));
}

#[test]
fn the_header_of_a_bill_is_no_part_of_the_prompt() {
    let block = |text: &str| json!({"type": "text", "text": text});
    let read = |system: Value| {
        let body = json!({"model": "m", "max_tokens": 5, "system": system, "messages": [{"role": "user", "content": "x"}]});
        let segments = read_all(&body).unwrap().request.system;
        segments.into_iter().map(|segment| segment.text).collect::<Vec<_>>()
    };
    let header = |hash: &str| format!("x-anthropic-billing-header: cc_version=2.1.36.a1b; cch={hash};");
    for hash in ["00000", "f00ba"] {
        let system = json!([block(&header(hash)), block("You are Claude Code."), block("Help.")]);
        assert_eq!(read(system), ["You are Claude Code.", "Help."]);
        assert_eq!(read(json!(format!("{}\nYou are Claude Code.", header(hash)))), ["You are Claude Code."]);
        assert_eq!(read(json!(header(hash))), Vec::<String>::new());
    }
}

#[test]
fn an_answer_with_a_shape_begins_a_turn_of_its_own() {
    let check = |fields: Value, expected: bool| {
        let messages =
            json!([{"role": "user", "content": "Name one."}, {"role": "assistant", "content": "It is "}]);
        let mut body = json!({"model": "m", "max_tokens": 5, "messages": messages});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        assert_eq!(read_all(&body).unwrap().request.continue_final_message, expected, "{fields}");
    };
    let format = json!({"type": "json_schema", "schema": {"type": "object"}});
    let tool = json!([{"name": "f", "input_schema": {"type": "object"}}]);
    check(json!({}), true);
    check(json!({"tools": tool}), true);
    check(json!({"output_config": {"format": format}}), false);
    check(json!({"output_format": format}), false);
    check(json!({"tools": tool, "tool_choice": {"type": "any"}}), false);
    check(json!({"tools": tool, "tool_choice": {"type": "tool", "name": "f"}}), false);
    check(json!({"output_format": format, "continue_final_message": true}), true);
}

fn pieces() -> Vec<Piece> {
    let arguments = serde_json::Map::from_iter([("a".to_owned(), json!(1))]);
    let usage = Usage { prompt_tokens: 9, cached_tokens: 4, completion_tokens: 2, ..Usage::default() };
    vec![
        Piece::Begun,
        Piece::Reasoning("hm".into()),
        Piece::Text("Hi ".into()),
        Piece::Text("there".into()),
        Piece::Call(ToolCall { id: "t1".into(), name: "f".into(), arguments }),
        Piece::End(Box::new(End { finish: Finish::ToolCalls, usage, alara: None })),
    ]
}

/// The order of events matches Anthropic's own streams.
#[test]
fn streams() {
    let mut writer = Messages::new("m");
    let text: String = pieces().iter().map(|piece| writer.piece(piece)).collect();
    let events: Vec<Value> = text
        .split_terminator("\n\n")
        .map(|event| {
            let (name, data) = event.split_once("\ndata: ").unwrap();
            let value: Value = serde_json::from_str(data).unwrap();
            assert_eq!(name.strip_prefix("event: "), value["type"].as_str());
            value
        })
        .collect();
    let told: Vec<(&str, Option<u64>, Option<&str>)> = events
        .iter()
        .map(|event| {
            let kind = event["content_block"]["type"].as_str().or(event["delta"]["type"].as_str());
            (event["type"].as_str().unwrap(), event["index"].as_u64(), kind)
        })
        .collect();
    let expected = [
        ("message_start", None, None),
        ("content_block_start", Some(0), Some("thinking")),
        ("content_block_delta", Some(0), Some("thinking_delta")),
        ("content_block_delta", Some(0), Some("signature_delta")),
        ("content_block_stop", Some(0), None),
        ("content_block_start", Some(1), Some("text")),
        ("content_block_delta", Some(1), Some("text_delta")),
        ("content_block_delta", Some(1), Some("text_delta")),
        ("content_block_stop", Some(1), None),
        ("content_block_start", Some(2), Some("tool_use")),
        ("content_block_delta", Some(2), Some("input_json_delta")),
        ("content_block_stop", Some(2), None),
        ("message_delta", None, None),
        ("message_stop", None, None),
    ];
    assert_eq!(told, expected);
    assert_eq!(events[9]["content_block"], json!({"type": "tool_use", "id": "t1", "name": "f", "input": {}}));
    assert_eq!(events[10]["delta"]["partial_json"], "{\"a\":1}");
    assert_eq!(events[12]["delta"], json!({"stop_reason": "tool_use", "stop_sequence": null}));
    let usage = json!({
        "input_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4, "output_tokens": 2,
    });
    assert_eq!(events[12]["usage"], usage);
}

#[test]
fn whole_answers() {
    let mut answer = Answer::default();
    pieces().iter().for_each(|piece| answer.push(piece));
    let Some(Piece::End(end)) = pieces().pop() else { panic!() };
    let body = Messages::new("m").whole(answer, &end);
    let content = json!([
        {"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "Hi there"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
    ]);
    assert_eq!((&body["content"], &body["stop_reason"]), (&content, &json!("tool_use")));
    assert_eq!(
        (&body["type"], &body["role"], &body["stop_sequence"]),
        (&json!("message"), &json!("assistant"), &Value::Null)
    );
    for (finish, reason) in
        [(Finish::Stop, "end_turn"), (Finish::Length, "max_tokens"), (Finish::Repetition, "end_turn")]
    {
        let end = End { finish, ..(*end).clone() };
        assert_eq!(Messages::new("m").whole(Answer::default(), &end)["stop_reason"], reason);
    }
}
