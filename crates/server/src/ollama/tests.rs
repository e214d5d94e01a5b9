use std::time::Duration;

use alara_engine::{Finish, Usage};

use super::*;
use crate::answer::{Answer, End, Piece, Writer};

fn history(messages: &Value) -> Vec<Message> {
    let mut fields = Fields::read(json!({"messages": messages}).to_string().as_bytes()).unwrap();
    let (mut history, mut calls) = (History::default(), Calls::default());
    for fields in fields.objects("messages").unwrap() {
        message(fields, &mut history, &mut calls).unwrap();
    }
    history.end().unwrap().1
}

#[test]
fn results_find_their_calls_by_name() {
    let call = |name: &str| json!({"function": {"name": name, "arguments": {"a": 1}}});
    let messages = history(&json!([
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call("f"), call("g"), call("f")]},
        {"role": "tool", "tool_name": "g", "content": "of g"}, {"role": "tool", "content": "of f"},
        {"role": "tool", "tool_name": "f", "content": "of the other f"},
    ]));
    let [_, asked, g, f, other] = messages.as_slice() else { panic!("{messages:?}") };
    assert_eq!(asked.reasoning_content.as_deref(), Some("hm"));
    assert_eq!(*g, Message::tool_result(&asked.tool_calls[1], "of g"));
    assert_eq!(*f, Message::tool_result(&asked.tool_calls[0], "of f"));
    assert_eq!(*other, Message::tool_result(&asked.tool_calls[2], "of the other f"));
}

#[test]
fn lines() {
    let begun = Instant::now();
    let usage = Usage {
        prompt_tokens: 9,
        completion_tokens: 2,
        prefill_time: Duration::from_millis(3),
        decode_time: Duration::from_millis(4),
        ..Usage::default()
    };
    let arguments = serde_json::Map::from_iter([("a".to_owned(), json!(1))]);
    let pieces = [
        Piece::Begun,
        Piece::Reasoning("hm".into()),
        Piece::Text("Hi".into()),
        Piece::Call(ToolCall { id: "call_0".into(), name: "f".into(), arguments }),
        Piece::End(Box::new(End { finish: Finish::ToolCalls, usage, alara: None })),
    ];
    let lines = |route: Route| -> Vec<Value> {
        let mut writer = Lines::new(route, "m", begun);
        let text: String = pieces.iter().map(|piece| writer.piece(piece)).collect();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let [thinking, text, call, end] = lines(Route::Chat).try_into().unwrap();
    assert_eq!(thinking["message"], json!({"role": "assistant", "content": "", "thinking": "hm"}));
    assert_eq!(
        (&text["message"]["content"], &text["done"], &text["model"]),
        (&json!("Hi"), &json!(false), &json!("m"))
    );
    assert_eq!(
        call["message"]["tool_calls"],
        json!([{"id": "call_0", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}])
    );
    assert_eq!((&end["done"], &end["done_reason"]), (&json!(true), &json!("stop")));
    assert_eq!((&end["prompt_eval_count"], &end["eval_count"]), (&json!(9), &json!(2)));
    assert_eq!((&end["prompt_eval_duration"], &end["eval_duration"]), (&json!(3_000_000), &json!(4_000_000)));
    assert!(
        end["total_duration"].as_u64().unwrap() > 0 && end["created_at"].as_str().unwrap().ends_with('Z')
    );
    // Calls are counted in streams as well as in whole answers.
    let mut writer = Lines::new(Route::Chat, "m", begun);
    let indices: Vec<Value> = [&pieces[3], &pieces[3], &pieces[3]]
        .iter()
        .map(|piece| serde_json::from_str::<Value>(&writer.piece(piece)).unwrap())
        .map(|line| line["message"]["tool_calls"][0]["function"]["index"].clone())
        .collect();
    assert_eq!(indices, [0, 1, 2]);
    // The keep-alive event is empty.
    let beat: Value = serde_json::from_str(&writer.beat()).unwrap();
    assert_eq!((&beat["message"]["content"], &beat["done"]), (&json!(""), &json!(false)));
    let beat: Value = serde_json::from_str(&Lines::new(Route::Generate, "m", begun).beat()).unwrap();
    assert_eq!((&beat["response"], &beat["done"]), (&json!(""), &json!(false)));
    let generated = lines(Route::Generate);
    assert_eq!((&generated[0]["thinking"], &generated[1]["response"]), (&json!("hm"), &json!("Hi")));

    let mut answer = Answer::default();
    pieces.iter().for_each(|piece| answer.push(piece));
    let Piece::End(last) = &pieces[4] else { panic!() };
    let whole = Lines::new(Route::Chat, "m", begun).whole(answer, last);
    assert_eq!((&whole["message"]["content"], &whole["message"]["thinking"]), (&json!("Hi"), &json!("hm")));
    assert_eq!(
        (&whole["message"]["tool_calls"], &whole["done"]),
        (&call["message"]["tool_calls"], &json!(true))
    );
    let load = writer::nothing(Route::Generate, "m", "load");
    assert_eq!((&load["done_reason"], &load["response"]), (&json!("load"), &json!("")));
}
