use std::sync::Arc;

use alara_engine::{DraftUsage, Finish, Usage};

use super::*;
use crate::answer::{Answer, End, Piece, Writer};
use crate::store::Store;

fn read_all(body: &Value, before: &[Message]) -> Result<Read, Refusal> {
    let known = |id: &str| (id == "resp_known").then(|| before.to_vec());
    read(Fields::read(body.to_string().as_bytes())?, known)
}

#[test]
fn items_become_turns() {
    let body = json!({
        "model": "m", "instructions": "Be brief.", "max_output_tokens": 9, "temperature": 0.0,
        "input": [
            {"role": "developer", "content": [{"type": "input_text", "text": "Dev."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{\"x\": 1}", "status": "completed"},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "Done.", "annotations": []}]},
            {"role": "user", "content": "c"},
        ],
        "tools": [
            {"type": "function", "name": "f", "description": "F", "parameters": {"type": "object"}, "strict": true},
            {"type": "function", "name": "g"}, {"type": "web_search"},
        ],
        "tool_choice": {"type": "function", "name": "g"}, "reasoning": {"effort": "none", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "null"}, "strict": true}},
        "include": ["reasoning.encrypted_content"], "store": false, "prompt_cache_key": "k",
    });
    let Read { asked, echoed, store } = read_all(&body, &[]).unwrap();
    assert_eq!((asked.ignored, store), (vec!["tools[] (web_search)".to_owned()], false));
    let request = asked.request;
    let system: Vec<&str> = request.system.iter().map(|segment| segment.text.as_str()).collect();
    assert_eq!(system, ["Be brief.", "Dev."]);
    let [user, calls, one, two, done, last] = request.messages.as_slice() else {
        panic!("{:?}", request.messages)
    };
    assert_eq!((user.content.as_str(), last.content.as_str(), done.content.as_str()), ("ab", "c", "Done."));
    assert_eq!((calls.reasoning_content.as_deref(), calls.tool_calls.len()), (Some("hm"), 2));
    assert_eq!(calls.tool_calls[0].arguments["x"], 1);
    assert_eq!((*one).clone(), Message::tool_result(&calls.tool_calls[0], "one"));
    assert_eq!((*two).clone(), Message::tool_result(&calls.tool_calls[1], "two"));
    assert_eq!((request.tool_choice, request.parallel_tool_calls), (ToolChoice::Named("g".into()), false));
    assert_eq!((request.max_tokens, request.thinking), (Some(9), Some(false)));
    assert_eq!(request.schema, Some(json!({"type": "null"})));
    assert_eq!((&echoed["instructions"], &echoed["store"]), (&json!("Be brief."), &json!(false)));
}

#[test]
fn conversations_go_on() {
    let call = ToolCall { id: "c".into(), name: "f".into(), arguments: serde_json::Map::new() };
    let before = [Message::user("a"), Message::assistant("", vec![call.clone()])];
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "r"});
    let body = json!({"model": "m", "previous_response_id": "resp_known", "input": [output]});
    let request = read_all(&body, &before).unwrap().asked.request;
    assert_eq!(request.messages, [before[0].clone(), before[1].clone(), Message::tool_result(&call, "r")]);
    let body = json!({"model": "m", "previous_response_id": "resp_other", "input": "x"});
    let refusal = read_all(&body, &before).unwrap_err();
    assert_eq!((refusal.status, &refusal.body()["error"]["param"]), (404, &json!("previous_response_id")));
    for (body, param) in [
        (json!({"model": "m"}), "input"),
        (json!({"model": "m", "input": []}), "input"),
        (json!({"model": "m", "input": "x", "background": true}), "background"),
        (
            json!({"model": "m", "input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
            "input[0].content[0].type",
        ),
    ] {
        let error = read_all(&body, &[]).unwrap_err().body();
        assert_eq!(error["error"]["param"], param, "{error}");
    }
}

fn pieces() -> Vec<Piece> {
    let call = |id: &str| ToolCall {
        id: id.into(),
        name: "f".into(),
        arguments: serde_json::Map::from_iter([("a".to_owned(), json!(1))]),
    };
    let usage = Usage {
        prompt_tokens: 9,
        cached_tokens: 4,
        completion_tokens: 2,
        drafts: DraftUsage::default(),
        ..Usage::default()
    };
    vec![
        Piece::Begun,
        Piece::Reasoning("h".into()),
        Piece::Reasoning("m".into()),
        Piece::Text("Hi ".into()),
        Piece::Text("there".into()),
        Piece::Call(call("call_0")),
        Piece::Call(call("call_1")),
        Piece::End(Box::new(End { finish: Finish::ToolCalls, usage, alara: None })),
    ]
}

/// The order of events matches OpenAI's own streams.
#[test]
fn streams() {
    let store = Arc::new(Store::default());
    let mut writer =
        Responses::new("m", json!({"store": true}), Some((store.clone(), vec![Message::user("a")])));
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
    let said = |kind: &str| {
        let deltas = [format!("response.{kind}.delta"), format!("response.{kind}.delta")];
        [
            &["response.output_item.added".to_owned(), "response.content_part.added".to_owned()][..],
            &deltas,
            &[
                format!("response.{kind}.done"),
                "response.content_part.done".to_owned(),
                "response.output_item.done".to_owned(),
            ],
        ]
        .concat()
    };
    let call = [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    .map(str::to_owned);
    let expected = [
        &["response.created".to_owned(), "response.in_progress".to_owned()][..],
        &said("reasoning_text"),
        &said("output_text"),
        &call,
        &call,
        &["response.completed".to_owned()],
    ]
    .concat();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds, expected);
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], index);
    }
    assert_eq!(
        (&events[0]["response"]["status"], &events[0]["response"]["output"]),
        (&json!("in_progress"), &json!([]))
    );
    let response = &events[events.len() - 1]["response"];
    let output = response["output"].as_array().unwrap();
    let kinds: Vec<&str> = output.iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call", "function_call"]);
    assert_eq!(
        (&output[1]["content"][0]["text"], &output[3]["call_id"]),
        (&json!("Hi there"), &json!("call_1"))
    );
    assert_eq!(output[2]["arguments"], "{\"a\":1}");
    for (index, item) in output.iter().enumerate() {
        let done = events
            .iter()
            .find(|event| event["type"] == "response.output_item.done" && event["output_index"] == index);
        assert_eq!(&done.unwrap()["item"], item);
    }
    let usage = json!({
        "input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 11,
    });
    assert_eq!((&response["usage"], &response["status"]), (&usage, &json!("completed")));
    // The conversation is stored for the next request.
    let stored = store.get(response["id"].as_str().unwrap()).unwrap();
    assert_eq!((stored.messages.len(), &stored.body), (2, response));
    assert_eq!((stored.messages[1].content.as_str(), stored.messages[1].tool_calls.len()), ("Hi there", 2));
}

#[test]
fn whole_answers_have_the_items_of_streams() {
    let mut answer = Answer::default();
    pieces().iter().for_each(|piece| answer.push(piece));
    let usage = Usage { prompt_tokens: 1, completion_tokens: 1, ..Usage::default() };
    let end = |finish: Finish| End { finish, usage: usage.clone(), alara: None };
    let whole =
        |answer: Answer, finish: Finish| Responses::new("m", json!({}), None).whole(answer, &end(finish));
    let body = whole(answer, Finish::ToolCalls);
    let kinds: Vec<&str> =
        body["output"].as_array().unwrap().iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call", "function_call"]);
    assert_eq!(
        (&body["object"], &body["status"], &body["error"]),
        (&json!("response"), &json!("completed"), &Value::Null)
    );
    let cut = whole(Answer { text: "x".into(), ..Answer::default() }, Finish::Length);
    assert_eq!(
        (&cut["status"], &cut["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    assert_eq!(cut["output"][0]["status"], "incomplete");

    let mut failed = Responses::new("m", json!({}), None);
    let event = failed.failure(&Refusal::silent());
    assert!(
        event.starts_with("event: response.failed\n") && event.contains("\"status\":\"failed\""),
        "{event}"
    );
}
