#![allow(clippy::needless_pass_by_value, reason = "values of tests are written where they are passed")]

use alara_engine::{Message, Role};

use super::*;

fn read(fields: Value) -> Result<Asked, Refusal> {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "seed": 0});
    if let (Some(body), Some(fields)) = (body.as_object_mut(), fields.as_object()) {
        body.extend(fields.clone());
    }
    Asked::read(body.to_string().as_bytes())
}

#[test]
fn what_is_honoured() {
    let plain = || read(json!({})).unwrap().request;
    let check = |fields: Value, expected: Request| {
        assert_eq!(read(fields.clone()).map(|asked| asked.request), Ok(expected), "{fields}");
    };
    check(json!({"max_tokens": 5}), Request { max_tokens: Some(5), ..plain() });
    check(json!({"max_completion_tokens": 5, "max_tokens": 5}), Request { max_tokens: Some(5), ..plain() });
    check(json!({"ignore_eos": true}), Request { ignore_eos: true, ..plain() });
    check(json!({"ignore_eos": false}), plain());
    check(json!({"cache_salt": "me"}), Request { salt: "me".into(), ..plain() });
    check(json!({"stop": "x"}), Request { stop: vec!["x".into()], ..plain() });
    check(json!({"stop": ["x", "y"]}), Request { stop: vec!["x".into(), "y".into()], ..plain() });
    check(json!({"reasoning_effort": "none"}), Request { thinking: Some(false), ..plain() });
    let kwargs = json!({"chat_template_kwargs": {"enable_thinking": true, "thinking": true}});
    check(kwargs, Request { thinking: Some(true), ..plain() });
    check(json!({"response_format": {"type": "text"}}), plain());
    let object = json!({"type": "object"});
    check(json!({"response_format": {"type": "json_object"}}), Request { schema: Some(object), ..plain() });
    let schema = json!({"type": "integer"});
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}});
    check(json!({"response_format": format}), Request { schema: Some(schema), ..plain() });
    // Only where strictness is waived, a keyword that can't be guaranteed is left out.
    let set = json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true});
    let list = json!({"type": "array", "items": {"type": "string"}});
    for (strict, schema) in [(json!(false), &list), (json!(true), &set), (json!(null), &set)] {
        let format = json!({"type": "json_schema", "json_schema": {"schema": set, "strict": strict}});
        check(json!({"response_format": format}), Request { schema: Some(schema.clone()), ..plain() });
    }
    let draws = SamplingOverrides {
        repetition_penalty: Some(1.5),
        presence_penalty: Some(-0.5),
        frequency_penalty: Some(0.25),
        penalty_last_n: None,
        temperature: Some(0.75),
        top_k: Some(7),
        top_p: Some(0.5),
        min_p: Some(0.25),
        seed: Some(9),
    };
    let fields = json!({
        "repetition_penalty": 1.5, "repeat_penalty": 1.5, "presence_penalty": -0.5, "frequency_penalty": 0.25,
        "temperature": 0.75, "top_k": 7, "top_p": 0.5, "min_p": 0.25, "seed": 9,
    });
    assert_eq!(read(fields).unwrap().draws, draws);
    // What is not said is the model's to say.
    let said = SamplingOverrides { temperature: Some(0.0), seed: Some(9), ..SamplingOverrides::default() };
    assert_eq!(read(json!({"temperature": 0, "seed": 9})).unwrap().draws, said);
    // What says nothing, or what holds anyway.
    let neutral = json!({
        "n": 1, "logprobs": false, "top_logprobs": null, "logit_bias": {}, "store": false, "modalities": ["text"],
        "user": "u", "metadata": {"a": "b"}, "stream": false, "stream_options": null, "anything": null,
    });
    check(neutral, plain());
    assert_ne!(random(), random());
}

#[test]
fn tools_and_choices() {
    let tool = json!({"type": "function", "function": {
        "name": "f", "description": "Does", "parameters": {"type": "object"}, "strict": true,
    }});
    let bare = json!({"type": "function", "function": {"name": "g"}});
    let check = |choice: Value, expected: ToolChoice| {
        let asked = read(json!({"tools": [tool, bare], "tool_choice": choice})).unwrap();
        assert_eq!(asked.request.tool_choice, expected);
        assert!(asked.request.parallel_tool_calls);
        let names: Vec<&str> = asked.request.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!((names, asked.not_for_npcs), (vec!["f", "g"], Some("tools")));
        let strict: Vec<bool> = asked.request.tools.iter().map(|tool| tool.strict).collect();
        assert_eq!(strict, [true, false]);
        assert_eq!(asked.request.tools[1].parameters, json!({"type": "object", "properties": {}}));
    };
    check(json!(null), ToolChoice::Auto);
    check(json!("none"), ToolChoice::None);
    check(json!("required"), ToolChoice::Required);
    check(json!({"type": "function", "function": {"name": "g"}}), ToolChoice::Named("g".into()));
    let one = read(json!({"tools": [tool], "parallel_tool_calls": false})).unwrap();
    assert!(!one.request.parallel_tool_calls);
}

#[test]
fn conversations() {
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}});
    let messages = json!([
        {"role": "system", "content": "One."},
        {"role": "developer", "content": [{"type": "text", "text": "Two."}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "eve"},
        {"role": "assistant", "content": null, "tool_calls": [call], "reasoning_content": "hm", "refusal": null},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]);
    let request = read(json!({"messages": messages})).unwrap().request;
    let system: Vec<&str> = request.system.iter().map(|segment| segment.text.as_str()).collect();
    assert_eq!(system, ["One.", "Two."]);
    let [user, assistant, tool] = request.messages.as_slice() else { panic!("{:?}", request.messages) };
    assert_eq!(*user, Message { name: Some("eve".into()), ..Message::user("ab") });
    assert_eq!((assistant.role, assistant.reasoning_content.as_deref()), (Role::Assistant, Some("hm")));
    assert_eq!(Value::from(assistant.tool_calls[0].arguments.clone()), json!({"a": 1}));
    assert_eq!(*tool, Message::tool_result(&assistant.tool_calls[0], "done"));
}

#[test]
fn what_is_refused_is_named() {
    let check = |fields: Value, param: &str| {
        let refusal = read(fields.clone()).unwrap_err();
        let error = &refusal.body()["error"];
        assert_eq!((refusal.status, error["param"].as_str()), (400, Some(param)), "{fields}: {error}");
        assert!(error["message"].as_str().unwrap().contains(&format!("`{param}`")), "{error}");
    };
    check(json!({"logprobs": true}), "logprobs");
    check(json!({"n": 2}), "n");
    check(json!({"logit_bias": {"5": 100}}), "logit_bias");
    check(json!({"functions": []}), "functions");
    check(json!({"surprise": 1}), "surprise");
    check(json!({"temperature": "hot"}), "temperature");
    check(json!({"temperature": -1}), "temperature");
    check(json!({"top_k": 1.5}), "top_k");
    check(json!({"seed": 0.5}), "seed");
    check(json!({"max_tokens": 0}), "max_tokens");
    check(json!({"max_tokens": 1, "max_completion_tokens": 2}), "max_tokens");
    check(json!({"stop": ""}), "stop");
    check(json!({"cache_salt": ""}), "cache_salt");
    check(json!({"cache_salt": "x".repeat(257)}), "cache_salt");
    check(json!({"cache_salt": 5}), "cache_salt");
    check(json!({"stop": "x", "response_format": {"type": "json_object"}}), "stop");
    check(json!({"ignore_eos": 1}), "ignore_eos");
    check(json!({"ignore_eos": true, "response_format": {"type": "json_object"}}), "ignore_eos");
    check(json!({"stream_options": {}}), "stream_options");
    check(json!({"reasoning_effort": "high"}), "reasoning_effort");
    check(json!({"chat_template_kwargs": {"x": 1}}), "chat_template_kwargs.x");
    check(json!({"response_format": {"type": "xml"}}), "response_format.type");
    check(json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema");
    check(json!({"tools": [{"type": "web"}]}), "tools[0].type");
    check(json!({"tools": [{"type": "function", "function": {"name": "a b"}}]}), "tools[0].function.name");
    let tool = json!({"type": "function", "function": {"name": "f"}});
    check(json!({"tools": [tool, tool]}), "tools");
    check(json!({"tool_choice": "required"}), "tool_choice");
    check(
        json!({"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "g"}}}),
        "tool_choice",
    );
    check(json!({"agent": "a", "npc": "b"}), "npc");

    let said = |message: Value, param: &str| check(json!({"messages": [message]}), param);
    said(json!({"role": "wizard", "content": "x"}), "messages[0].role");
    said(json!({"role": "user", "content": 5}), "messages[0].content");
    said(json!({"role": "user", "content": "x", "audio": {}}), "messages[0].audio");
    said(json!("x"), "messages[0]");
    let image = json!({"type": "image_url", "image_url": {"url": "data:"}});
    said(json!({"role": "user", "content": [image]}), "messages[0].content[0].type");
    said(json!({"role": "tool", "content": "x"}), "messages[0].tool_call_id");
    said(json!({"role": "tool", "content": "x", "tool_call_id": "c"}), "messages[0].tool_call_id");
    let call = json!({"id": "c", "function": {"name": "f", "arguments": "[]"}});
    said(json!({"role": "assistant", "tool_calls": [call]}), "messages[0].tool_calls[0].function.arguments");
    check(json!({"messages": []}), "messages");
    check(json!({"messages": null}), "messages");
    let late = json!([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]);
    check(json!({"messages": late}), "messages[1].role");

    for body in ["", "{", "[]", "\u{0}", &"[".repeat(100_000)] {
        assert_eq!(Asked::read(body.as_bytes()).unwrap_err().status, 400);
    }
}
