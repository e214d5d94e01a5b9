//! The model itself: its text, calls, and answers with a schema.

use alara_engine::{Engine, Event, Gguf, Message, Request, Sampling, Segment, Tool, ToolChoice};
use alara_harness::model::endpoint::{EndpointError, Options};
use alara_harness::{ChatModel, Endpoint};
use serde_json::{Value, json};

use super::{message, tool, wait_until};
use crate::dirs::TestDir;

/// The clients' name of the model that ships.
const SHIPPED: &str = "alara-tiny.gguf";

#[test]
fn serve_answers_whole_and_in_pieces() {
    let served = TestDir::npc_team(&json!([{"text": "Hello there."}, {"text": "Hello there."}])).serve(&[]);
    let body = served.answer(json!({"model": "script"}));
    assert_eq!((&body["object"], &body["model"]), (&json!("chat.completion"), &json!("script")));
    assert_eq!(*message(&body), json!({"role": "assistant", "content": "Hello there.", "refusal": null}));
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert_eq!((&body["usage"]["completion_tokens"], &body["usage"]["total_tokens"]), (&json!(2), &json!(2)));
    let chunks = served.chunks(json!({"model": "script"}));
    let reply: Vec<&str> =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(reply, ["", "Hello ", "there."]);
    let [.., end, usage] = chunks.as_slice() else { panic!("{chunks:?}") };
    assert_eq!(end["choices"][0]["finish_reason"], "stop");
    assert_eq!(usage["usage"], body["usage"]);
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["id"] == chunks[0]["id"] && chunk["object"] == "chat.completion.chunk")
    );
}

#[test]
fn serve_passes_calls_on() {
    let call = json!({"calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]});
    let cut = json!({"text": "I look.", "cut": ["read_file", "{\"path\": \"a."]});
    let served = TestDir::npc_team(&json!([call, call, cut, cut])).serve(&[]);
    let asked = || json!({"model": "script", "tools": [tool()]});
    let body = served.answer(asked());
    let expected = json!([{"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\":\"a.txt\"}"}}]);
    assert_eq!((&message(&body)["tool_calls"], &message(&body)["content"]), (&expected, &Value::Null));
    assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");
    let chunks = served.chunks(asked());
    let deltas: Vec<&Value> =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"].get("tool_calls")).collect();
    assert_eq!(
        (deltas.len(), &deltas[0][0]["index"], &deltas[0][0]["function"]),
        (1, &json!(0), &expected[0]["function"])
    );
    // A truncated call is never sent.
    let body = served.answer(asked());
    assert_eq!(*message(&body), json!({"role": "assistant", "content": "I look.", "refusal": null}));
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    assert!(
        served.chunks(asked()).iter().all(|chunk| chunk["choices"][0]["delta"].get("tool_calls").is_none())
    );
}

#[test]
fn serve_holds_the_model_to_tools_and_schemas() {
    let served = TestDir::npc_team(&json!([])).serve(&["-m", &shipped()]);
    assert_eq!(served.shown["model"], SHIPPED);
    let reply = |text: &str| json!([{"role": "user", "content": text}]);
    let body = served.answer(json!({
        "model": SHIPPED, "messages": reply("what is in b.txt?"), "tools": [tool()], "tool_choice": "required",
        "parallel_tool_calls": false,
    }));
    let calls = message(&body)["tool_calls"].as_array().unwrap();
    assert_eq!((calls.len(), &body["choices"][0]["finish_reason"]), (1, &json!("tool_calls")));
    let arguments: Value = serde_json::from_str(calls[0]["function"]["arguments"].as_str().unwrap()).unwrap();
    assert!(["a.txt", "b.txt"].contains(&arguments["path"].as_str().unwrap()), "{arguments}");

    let schema = json!({"type": "object", "properties": {"n": {"enum": [17, 18]}}, "required": ["n"], "additionalProperties": false});
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}});
    let body = served.answer(json!({"model": SHIPPED, "response_format": format, "temperature": 1.5}));
    let value: Value = serde_json::from_str(message(&body)["content"].as_str().unwrap()).unwrap();
    assert!(value == json!({"n": 17}) || value == json!({"n": 18}), "{value}");
    let object = json!({"model": SHIPPED, "response_format": {"type": "json_object"}, "max_tokens": 40});
    assert!(message(&served.answer(object))["content"].as_str().unwrap().starts_with('{'));

    // An unsupported or oversized value is reported with its field.
    let check = |fields: Value, param: &str, code: Value| {
        let (status, body) = served.ask(fields);
        assert_eq!(
            (status, &body["error"]["param"], &body["error"]["code"]),
            (400, &json!(param), &code),
            "{body}"
        );
    };
    let odd = json!({"type": "json_schema", "json_schema": {"schema": {"type": "array", "contains": {}}}});
    check(json!({"model": SHIPPED, "response_format": odd}), "response_format", Value::Null);
    let odd = |strict: bool| json!({"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"contains": {}}}}, "strict": strict}});
    check(json!({"model": SHIPPED, "tools": [odd(true)]}), "tools", Value::Null);
    // Unless it is required, an unsupported keyword doesn't fail the request: it is dropped, and
    // reported.
    let body = served.answer(json!({"model": SHIPPED, "tools": [odd(false)], "max_tokens": 20}));
    let shown = body["alara"]["loosened"][0].as_str().unwrap();
    assert!(shown.starts_with("tool f: contains at /properties/a/contains: "), "{body}");
    let long = reply(&"word ".repeat(9000));
    check(json!({"model": SHIPPED, "messages": long}), "messages", json!("context_length_exceeded"));
    // LiteLLM ignores the code and searches for this phrase.
    let (_, body) = served.ask(json!({"model": SHIPPED, "messages": long}));
    let told = body["error"]["message"].as_str().unwrap();
    assert!(told.starts_with("This model's maximum context length is ") && told.contains("--ctx"), "{told}");
}

/// Returns the model's output and usage, without times.
fn turn(model: &dyn ChatModel, request: &Request) -> (Vec<Event>, [usize; 2]) {
    let mut usage = [0; 2];
    let mut events: Vec<Event> = Vec::new();
    for event in model.chat(request.clone()).unwrap() {
        match (event.unwrap(), events.last_mut()) {
            (Event::Done { usage: shown, .. }, _) => usage = [shown.prompt_tokens, shown.completion_tokens],
            (Event::ToolCallDelta { .. }, _) => {}
            (Event::Text { text }, _) if text.is_empty() => {}
            (Event::Text { text }, Some(Event::Text { text: before })) => *before += &text,
            (event, _) => events.push(event),
        }
    }
    (events, usage)
}

#[test]
fn serve_is_what_its_own_client_takes_for_the_model_itself() {
    let served = TestDir::npc_team(&json!([])).serve(&["-m", &shipped(), "--parallel", "2"]);
    let there =
        Endpoint::new(format!("{}#{SHIPPED}", served.url).parse().unwrap(), Options::default()).unwrap();
    let here =
        Engine::load(&Gguf::open(shipped().as_ref()).unwrap(), &alara_engine::Options::default()).unwrap();
    let tool = |name: &str| Tool {
        name: name.into(),
        description: "Does".into(),
        parameters: tool()["function"]["parameters"].clone(),
        strict: false,
    };
    let system = vec![Segment { name: "system".into(), text: "Be brief.".into() }];
    let plain = Request {
        system,
        messages: vec![Message::user("say hello")],
        max_tokens: Some(30),
        ..Request::default()
    };
    let tools = Request {
        tools: vec![tool("read_file"), tool("write_file")],
        parallel_tool_calls: true,
        ..plain.clone()
    };
    let sampling = Sampling {
        temperature: 1.25,
        top_p: 0.75,
        top_k: 50,
        min_p: 0.125,
        repetition_penalty: 1.25,
        seed: 7,
        ..Sampling::default()
    };
    // A named tool is called once.
    let named = Request {
        tool_choice: ToolChoice::Named("write_file".into()),
        parallel_tool_calls: false,
        max_tokens: None,
        ..tools.clone()
    };
    let (called, _) = turn(&here, &named);
    let Some(Event::ToolCall(call)) = called.first() else { panic!("{called:?}") };
    let talk = vec![
        Message::user("say hello"),
        Message::assistant("", vec![call.clone()]),
        Message::tool_result(call, "done"),
    ];
    let requests = [
        plain.clone(),
        Request { sampling: sampling.clone(), ..plain.clone() },
        Request { sampling: Sampling { seed: 8, ..sampling }, stop: vec!["e".into()], ..plain.clone() },
        Request {
            schema: Some(json!({"type": "array", "items": {"enum": [1, 2]}, "maxItems": 3})),
            ..plain.clone()
        },
        Request { messages: talk, ..tools.clone() },
        Request { tool_choice: ToolChoice::None, ..tools.clone() },
        Request { tool_choice: ToolChoice::Required, max_tokens: None, ..tools },
        named,
    ];
    for request in &requests {
        let (expected, usage) = turn(&here, request);
        assert!(!expected.is_empty() && usage[1] > 0);
        assert_eq!(turn(&there, request), (expected, usage), "{request:?}");
    }
    // A computed prefix is reused by the next request.
    let again = served.answer(json!({"model": SHIPPED, "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "say hello"}], "max_tokens": 1}));
    assert!(again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0, "{again}");
    // Unless the request has another salt.
    let salted_as = |model: &str, salt: Value| {
        let body = served.answer(json!({"model": model, "messages": [{"role": "user", "content": "say hello"}], "max_tokens": 1, "cache_salt": salt}));
        body["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    salted_as("sage", Value::Null);
    for who in [SHIPPED, "sage"] {
        let salted = |salt: Value| salted_as(who, salt);
        assert!(salted(Value::Null) > 0, "{who}");
        let own = |name: &str| Value::from(format!("{name} of {who}"));
        assert_eq!(salted(own("one")), 0, "{who}");
        assert!(salted(own("one")) > 0, "{who}");
        assert_eq!(salted(own("another")), 0, "{who}");
    }
    // A refusal is recognized as what it is.
    let long = Request { messages: vec![Message::user("word ".repeat(9000))], ..plain };
    let error = there.chat(long).unwrap().find_map(Result::err).unwrap();
    assert!(error.too_long(), "{error}");
    let nobody =
        Endpoint::new(format!("{}#nobody", served.url).parse().unwrap(), Options::default()).unwrap();
    let error = nobody.chat(requests[0].clone()).unwrap().find_map(Result::err).unwrap();
    let known = match error.cause().downcast_ref() {
        Some(EndpointError::NoModel { known, .. }) => known.clone(),
        _ => panic!("{error}"),
    };
    assert_eq!(known, [SHIPPED, "corca", "sage"]);
}

fn shipped() -> String {
    format!("{}/models/alara-tiny.gguf", crate::root().display())
}

/// The file is a copy that is truncated between two requests: every later request fails, and the
/// server keeps running.
#[test]
fn serve_tells_of_a_model_file_that_is_cut_short_and_goes_on() {
    let dir = TestDir::npc_team(&json!([]));
    std::fs::copy(shipped(), dir.path("copy.gguf")).unwrap();
    let served = dir.serve(&["-m", "copy.gguf"]);
    let asked = json!({"model": "copy.gguf", "max_tokens": 4});
    served.answer(asked.clone());
    let file = std::fs::OpenOptions::new().write(true).open(served.dir.path("copy.gguf")).unwrap();
    file.set_len(100_000).unwrap();
    for _ in 0..2 {
        let (status, body) = served.ask(asked.clone());
        let shown = body["error"]["message"].as_str().unwrap();
        assert!(status == 500 && shown.contains("copy.gguf was changed while it was in use"), "{body}");
        assert_eq!(served.get("/v1/models").0, 200);
    }
}

#[test]
fn run_tells_of_a_model_file_that_is_cut_short_in_mid_answer() {
    let dir = TestDir::npc_team(&json!([]));
    // Random weights generate text up to the limit.
    let fixture = crate::root().join("tests/fixtures/arch/qwen3-exact/model.gguf");
    std::fs::copy(fixture, dir.path("copy.gguf")).unwrap();
    let named = [
        "run",
        "-m",
        "copy.gguf",
        "-t",
        "./team",
        "-n",
        "sage",
        "--workdir",
        "work",
        "--trace",
        "trace.jsonl",
    ];
    let arguments = [named.as_slice(), &["--temperature", "1.5", "hi"]].concat();
    let child = dir.alara(&arguments).spawn().unwrap();
    // The model is loaded when the trace begins.
    wait_until("the trace begins", || {
        std::fs::read_to_string(dir.path("trace.jsonl")).is_ok_and(|trace| trace.contains('\n'))
    });
    let file = std::fs::OpenOptions::new().write(true).open(dir.path("copy.gguf")).unwrap();
    file.set_len(100_000).unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(shown.contains("copy.gguf was changed while it was in use"), "{shown}");
    // Any text before that was sent, as a failed answer.
    let said = !output.stdout.trim_ascii().is_empty();
    assert_eq!(output.status.code(), Some(if said { 1 } else { 2 }), "{shown}");
}
