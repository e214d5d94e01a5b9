use alara_engine::{Finish, Usage};

use super::*;

fn writer(include_usage: bool) -> Chat {
    Chat { id: "id".into(), created: 1, ..Chat::new("m", include_usage, false) }
}

fn pieces() -> Vec<Piece> {
    let call = |id: &str| ToolCall {
        id: id.into(),
        name: "f".into(),
        arguments: serde_json::Map::from_iter([("a".into(), json!("line\nbreak"))]),
    };
    let drafts = alara_engine::DraftUsage { drafted: 5, accepted: 3 };
    let usage =
        Usage { prompt_tokens: 9, cached_tokens: 4, completion_tokens: 2, drafts, ..Usage::default() };
    vec![
        Piece::Begun,
        Piece::Reasoning("hm".into()),
        Piece::Text("Hi\n\ndata: ".into()),
        Piece::Text("there".into()),
        Piece::Call(call("c0")),
        Piece::Call(call("c1")),
        Piece::End(Box::new(End { finish: Finish::ToolCalls, usage, alara: Some(json!({"x": 1})) })),
    ]
}

#[test]
fn whole() {
    let mut answer = Answer::default();
    pieces().iter().for_each(|piece| answer.push(piece));
    let Some(Piece::End(end)) = pieces().pop() else { panic!() };
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": r#"{"a":"line\nbreak"}"#}});
    let message = json!({
        "role": "assistant", "content": "Hi\n\ndata: there", "refusal": null, "reasoning_content": "hm",
        "tool_calls": [call("c0"), call("c1")],
    });
    let expected = json!({
        "id": "id", "object": "chat.completion", "created": 1, "model": "m", "system_fingerprint": FINGERPRINT,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 2}},
        "alara": {"x": 1},
    });
    assert_eq!(writer(false).whole(answer.clone(), &end), expected);
    let timed = Chat { timings: true, ..writer(false) }.whole(answer, &end);
    let timings = &timed["timings"];
    assert_eq!(
        (&timings["cache_n"], &timings["prompt_n"], &timings["predicted_n"]),
        (&json!(4), &json!(5), &json!(2))
    );
}

#[test]
fn what_an_npc_does_stands_beside_the_delta() {
    let mut writer = writer(false);
    let call = json!({"call": {"id": "c0", "name": "f", "arguments": {}}});
    let text = writer.piece(&Piece::Alara(call.clone()));
    let chunk: Value = serde_json::from_str(text.strip_prefix("data: ").unwrap().trim()).unwrap();
    assert_eq!(
        (&chunk["choices"][0]["delta"], &chunk["choices"][0]["finish_reason"], &chunk["alara"]),
        (&json!({}), &Value::Null, &call)
    );
}

#[test]
fn streamed() {
    let check = |include_usage: bool| {
        let mut writer = writer(include_usage);
        let text: String = pieces().iter().map(|piece| writer.piece(piece)).collect();
        let lines: Vec<&str> = text.strip_suffix("\n\n").unwrap().split("\n\n").collect();
        let (last, chunks) = lines.split_last().unwrap();
        assert_eq!(*last, "data: [DONE]");
        let chunks =
            chunks.iter().map(|line| serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap());
        let chunks: Vec<Value> = chunks.collect();
        let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
        assert_eq!(*deltas[0], json!({"role": "assistant", "content": ""}));
        assert_eq!(*deltas[1], json!({"reasoning_content": "hm"}));
        assert_eq!(*deltas[2], json!({"content": "Hi\n\ndata: "}));
        let second = &deltas[5]["tool_calls"][0];
        assert_eq!((&second["index"], &second["id"]), (&json!(1), &json!("c1")));
        let end = &chunks[6];
        assert_eq!(
            (&end["choices"][0]["finish_reason"], &end["alara"]),
            (&json!("tool_calls"), &json!({"x": 1}))
        );
        assert_eq!(chunks.len(), if include_usage { 8 } else { 7 });
        assert_eq!(end.get("usage"), include_usage.then_some(&Value::Null));
        if let Some(usage) = chunks.get(7) {
            assert_eq!((&usage["choices"], &usage["usage"]["total_tokens"]), (&json!([]), &json!(11)));
        }
    };
    check(true);
    check(false);
}
