#![allow(clippy::needless_pass_by_value, reason = "values of tests are written where they are passed")]

use alara_engine::{
    Biased, Message, ReasoningEffort, Request, Role, Sampling, SamplingOverrides, Segment, ToolChoice,
};

use super::*;
use crate::inner::random;

fn read(fields: Value) -> Result<InnerRequest, Refusal> {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "seed": 0});
    if let (Some(body), Some(fields)) = (body.as_object_mut(), fields.as_object()) {
        body.extend(fields.clone());
    }
    super::read(Fields::read(body.to_string().as_bytes())?).map(|(asked, _)| asked)
}

#[test]
fn events_come_where_they_are_asked_for() {
    let check = |fields: Value, events: bool, ignored: &[&str]| {
        let asked = read(fields).unwrap();
        assert_eq!(
            (asked.events, asked.ignored),
            (events, ignored.iter().map(ToString::to_string).collect())
        );
    };
    check(json!({}), false, &[]);
    check(json!({"alara": {"events": true}}), true, &[]);
    check(json!({"alara": {"events": false, "other": 1}}), false, &["alara.other"]);
    assert!(read(json!({"alara": {"events": "yes"}})).unwrap_err().message.contains("`alara.events`"));
}

#[test]
fn questions_take_a_stream() {
    assert!(!read(json!({"stream": true, "alara": {"events": true}})).unwrap().ask);
    assert!(read(json!({"stream": true, "alara": {"ask": true}})).unwrap().ask);
    assert!(!read(json!({"alara": {"ask": false}})).unwrap().ask);
    let refused = read(json!({"alara": {"ask": true}})).unwrap_err().message;
    assert!(refused.starts_with("`alara.ask` needs `stream`"), "{refused}");
}

#[test]
fn what_is_honoured() {
    let plain = || read(json!({})).unwrap().request;
    let check = |fields: Value, expected: Request| {
        let asked = read(fields.clone()).unwrap();
        assert_eq!((asked.request, asked.ignored), (expected, Vec::<String>::new()), "{fields}");
    };
    check(json!({"max_tokens": 5}), Request { max_tokens: Some(5), ..plain() });
    check(json!({"max_completion_tokens": 5, "max_tokens": 5}), Request { max_tokens: Some(5), ..plain() });
    check(json!({"ignore_eos": true}), Request { ignore_eos: true, ..plain() });
    check(json!({"ignore_eos": false}), plain());
    check(json!({"cache_salt": "me"}), Request { salt: "me".into(), ..plain() });
    check(json!({"stop": "x"}), Request { stop: vec!["x".into()], ..plain() });
    check(json!({"stop": ["x", "y"]}), Request { stop: vec!["x".into(), "y".into()], ..plain() });
    // Clients that don't use the field send any of these.
    for nothing in [json!(""), json!([]), json!([""]), json!(null), json!([null, ""])] {
        check(json!({"stop": nothing}), plain());
    }
    check(json!({"stop": ["", "x"]}), Request { stop: vec!["x".into()], ..plain() });
    check(json!({"max_tokens": -1, "top_k": -1}), plain());
    check(json!({"thinking_budget": 9}), Request { reasoning_tokens: Some(9), ..plain() });
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
    // An unsupported keyword is dropped only if strictness is waived.
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
        penalty_last_n: Some(5),
        temperature: Some(0.75),
        top_k: Some(7),
        top_p: Some(0.5),
        min_p: Some(0.25),
        seed: Some(9),
        ..SamplingOverrides::default()
    };
    let fields = json!({
        "repetition_penalty": 1.5, "repeat_penalty": 1.5, "presence_penalty": -0.5, "frequency_penalty": 0.25, "repeat_last_n": 5,
        "temperature": 0.75, "top_k": 7, "top_p": 0.5, "min_p": 0.25, "seed": 9,
    });
    assert_eq!(read(fields).unwrap().draws, draws);
    // Absent parameters are left to the model.
    let said = SamplingOverrides { temperature: Some(0.0), seed: Some(9), ..SamplingOverrides::default() };
    assert_eq!(read(json!({"temperature": 0, "seed": 9})).unwrap().draws, said);
    // Neutral or default values.
    let neutral = json!({
        "n": 1, "logprobs": false, "top_logprobs": 0, "functions": [], "typical_p": 1, "dry_multiplier": 0.0, "logit_bias": {}, "store": true, "modalities": ["text"],
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
        // A turn that must call makes one call.
        assert_eq!(asked.request.parallel_tool_calls, !expected.must_call());
        let names: Vec<&str> = asked.request.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!((names, asked.not_for_npcs()), (vec!["f", "g"], None));
        let strict: Vec<bool> = asked.request.tools.iter().map(|tool| tool.strict).collect();
        assert_eq!(strict, [true, false]);
        assert_eq!(asked.request.tools[1].parameters, json!({"type": "object", "properties": {}}));
    };
    check(json!(null), ToolChoice::Auto);
    check(json!("none"), ToolChoice::None);
    check(json!("required"), ToolChoice::Required);
    check(json!({"type": "function", "function": {"name": "g"}}), ToolChoice::Named("g".into()));
    let among = |mode: Value| {
        let tools = [
            json!({"type": "function", "function": {"name": "g"}}),
            json!({"type": "function", "name": "f"}),
        ];
        json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}})
    };
    let names = || vec!["g".to_owned(), "f".to_owned()];
    check(among(json!("required")), ToolChoice::Among { names: names(), required: true });
    check(among(json!(null)), ToolChoice::Among { names: names(), required: false });
    let one = read(json!({"tools": [tool], "parallel_tool_calls": false})).unwrap();
    assert!(!one.request.parallel_tool_calls);
    let several = json!({"tools": [tool], "tool_choice": "required", "parallel_tool_calls": true});
    assert!(read(several).unwrap().request.parallel_tool_calls, "the client says so");
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
fn histories_are_taken_as_they_are() {
    let said = |messages: Value| {
        let request = read(json!({"messages": messages})).unwrap().request;
        let said = request.messages.iter().map(|message| (message.role, message.content.clone()));
        (request.system.len(), said.collect::<Vec<_>>())
    };
    let text = |role: Role, text: &str| (role, text.to_owned());
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    // A late system message goes to the user's next turn, or to the latest one.
    let (system, messages) = said(json!([
        message("system", "S"),
        message("user", "a"),
        message("assistant", "b"),
        message("system", "Late."),
        message("user", "c"),
    ]));
    let expected = [text(Role::User, "a"), text(Role::Assistant, "b"), text(Role::User, "Late.\n\nc")];
    assert_eq!((system, messages), (1, expected.to_vec()));
    // Before the first answer it is a part of the system prompt.
    let (system, messages) = said(json!([message("user", "a"), message("system", "L")]));
    assert_eq!((system, messages), (1, vec![text(Role::User, "a")]));
    let (system, messages) =
        said(json!([message("user", "a"), message("developer", "L"), message("assistant", "b")]));
    assert_eq!((system, messages), (1, vec![text(Role::User, "a"), text(Role::Assistant, "b")]));
    let answered = [message("user", "a"), message("assistant", "b"), message("user", "c")];
    let (_, messages) = said(answered.into_iter().chain([message("system", "L")]).collect());
    assert_eq!(messages[2], text(Role::User, "L\n\nc"));
    let (_, messages) =
        said(json!([message("user", "a"), message("assistant", "b"), message("system", "L")]));
    assert_eq!(messages[2], text(Role::User, "L"));

    // A call that isn't JSON is converted to text, and so is its result.
    let call = json!({"id": "c", "name": "f", "function": {"name": "f", "arguments": "{\"a\": "}});
    let broken = json!({"messages": [
        message("user", "a"), {"role": "assistant", "content": "b", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "failed"}, {"role": "tool", "tool_call_id": "x", "content": "?"},
    ]});
    let asked = read(broken).unwrap();
    let said: Vec<(Role, &str)> =
        asked.request.messages.iter().map(|message| (message.role, message.content.as_str())).collect();
    let expected = [
        (Role::User, "a"),
        (Role::Assistant, "b\n\nA call of f with {\"a\": "),
        (Role::User, "The result of f:\nfailed"),
        (Role::User, "The result of a tool:\n?"),
    ];
    assert_eq!((said, asked.ignored), (expected.to_vec(), vec!["messages[].tool_calls[].name".to_owned()]));
}

#[test]
fn what_is_ignored_is_told() {
    let check = |fields: Value, expected: &[&str]| assert_eq!(read(fields).unwrap().ignored, expected);
    check(json!({"surprise": 1, "verbosity": "low", "user": "u"}), &["surprise", "verbosity"]);
    let message = |id: &str| json!({"role": "user", "content": "x", "id": id, "cache_control": {}});
    check(json!({"messages": [message("a"), message("b")]}), &["messages[].id", "messages[].cache_control"]);
}

#[test]
fn efforts() {
    let check = |effort: &str, thinking: bool, level: Option<ReasoningEffort>| {
        let asked = read(json!({"reasoning_effort": effort})).unwrap().request;
        assert_eq!((asked.thinking, asked.reasoning_effort), (Some(thinking), level), "{effort}");
    };
    check("none", false, None);
    check("minimal", false, Some(ReasoningEffort::Low));
    check("low", true, Some(ReasoningEffort::Low));
    check("medium", true, Some(ReasoningEffort::Medium));
    check("xhigh", true, Some(ReasoningEffort::High));
}

#[test]
fn samplers() {
    let fields = json!({
        "logit_bias": {"5": -100, "a": 1.5}, "dry_multiplier": 0.8, "dry_base": 2, "dry_allowed_length": 3, "dry_penalty_last_n": -1,
        "dry_sequence_breakers": ["x"], "dynatemp_range": 0.5, "dynatemp_exponent": 2, "typ_p": 0.5, "typical_p": 0.5, "xtc_probability": 0.5,
        "xtc_threshold": 0.25, "mirostat_mode": 2, "mirostat_tau": 3, "mirostat_eta": 0.5, "repeat_last_n": -1,
    });
    let expected = SamplingOverrides {
        logit_bias: Some(vec![(Biased::Token(5), -100.0), (Biased::Text("a".into()), 1.5)]),
        dry_multiplier: Some(0.8),
        dry_base: Some(2.0),
        dry_allowed_length: Some(3),
        dry_penalty_last_n: Some(usize::MAX),
        dry_sequence_breakers: Some(vec!["x".into()]),
        dynatemp_range: Some(0.5),
        dynatemp_exponent: Some(2.0),
        typical_p: Some(0.5),
        xtc_probability: Some(0.5),
        xtc_threshold: Some(0.25),
        mirostat: Some(2),
        mirostat_tau: Some(3.0),
        mirostat_eta: Some(0.5),
        penalty_last_n: Some(usize::MAX),
        seed: Some(0),
        ..SamplingOverrides::default()
    };
    assert_eq!(read(fields).unwrap().draws, expected);
    // As llama.cpp's server accepts them.
    let biases = read(json!({"logit_bias": [[5, false], ["a", 2]]})).unwrap().draws.logit_bias;
    assert_eq!(biases, Some(vec![(Biased::Token(5), Sampling::BANNED), (Biased::Text("a".into()), 2.0)]));
}

#[test]
fn grammars() {
    let check = |fields: Value, expected: &str| {
        assert_eq!(read(fields.clone()).unwrap().request.grammar.as_deref(), Some(expected), "{fields}");
    };
    check(json!({"grammar": "root ::= \"a\""}), "root ::= \"a\"");
    check(json!({"guided_grammar": "start: \"a\""}), "start: \"a\"");
    check(json!({"guided_regex": "[0-9]+/a\\/"}), "start: /[0-9]+\\/a\\//");
    check(json!({"structured_outputs": {"regex": "a|b"}}), "start: /a|b/");
    let choice = |texts: Value| json!({"guided_choice": texts});
    check(choice(json!(["a", "b \"c\""])), "start: CHOICE\nCHOICE: \"a\" | \"b \\\"c\\\"\"");
    check(choice(json!(["a", ""])), "start: CHOICE?\nCHOICE: \"a\"");
    check(choice(json!([""])), "start: \"\"");
    // The expression must match the whole text.
    check(json!({"regex": "^[0-9]+$"}), "start: /[0-9]+/");
    check(json!({"regex": "^(a|b)$"}), "start: /(a|b)/");
    check(json!({"regex": "^[|]$"}), "start: /[|]/");
    check(json!({"regex": "a\\$"}), "start: /a\\$/");
    check(json!({"regex": "^a|b$"}), "start: /^a|b$/");
}

/// Each server has its own name for the shape of an answer, and clients know only that of their
/// server.
#[test]
fn shapes_by_the_names_of_all_servers() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let nested = json!({"name": "n", "schema": schema});
    let of_format = |format: Value| json!({"response_format": format});
    let shape = |fields: &Value| {
        let asked = read(fields.clone()).unwrap_or_else(|refusal| panic!("{fields}: {}", refusal.message));
        assert_eq!(asked.ignored, Vec::<String>::new(), "{fields}");
        (asked.request.schema, asked.request.grammar)
    };
    for fields in [
        // OpenAI; LM Studio's guide has `strict` as text.
        of_format(json!({"type": "json_schema", "json_schema": nested})),
        of_format(
            json!({"type": "json_schema", "json_schema": {"name": "n", "strict": "true", "schema": schema}}),
        ),
        // llama.cpp, Together.
        of_format(json!({"type": "json_object", "schema": schema})),
        json!({"json_schema": schema}),
        // SGLang.
        json!({"json_schema": schema.to_string()}),
        // TGI.
        of_format(json!({"type": "json", "value": schema})),
        of_format(json!({"type": "json_object", "value": schema})),
        of_format(json!({"type": "json_schema", "value": nested})),
        json!({"grammar": {"type": "json", "value": schema}}),
        json!({"grammar": {"type": "json", "value": schema.to_string()}}),
        json!({"grammar": {"type": "json_schema", "value": nested}}),
        // vLLM, now and before.
        json!({"structured_outputs": {"json": schema}}),
        json!({"structured_outputs": {"json": schema.to_string()}}),
        json!({"guided_json": schema, "guided_decoding_backend": "xgrammar"}),
        json!({"guided_decoding": {"json": schema}}),
        // NVIDIA's NIM.
        json!({"nvext": {"guided_json": schema}}),
        // Equal values under two names are accepted.
        json!({"json_schema": schema, "guided_json": schema}),
    ] {
        assert_eq!(shape(&fields), (Some(schema.clone()), None), "{fields}");
    }
    for fields in [
        json!({"regex": "[ab]+"}),
        json!({"guided_regex": "[ab]+"}),
        json!({"regex_pattern": "[ab]+"}),
        json!({"grammar": {"type": "regex", "value": "[ab]+"}}),
        json!({"structured_outputs": {"regex": "[ab]+"}}),
        json!({"guided_decoding": {"regex": "[ab]+"}}),
        json!({"nvext": {"guided_regex": "[ab]+"}}),
        of_format(json!({"type": "regex", "value": "[ab]+"})),
        of_format(json!({"type": "regex", "pattern": "[ab]+"})),
        of_format(json!({"type": "regex_schema", "regex_schema": "[ab]+"})),
    ] {
        assert_eq!(shape(&fields), (None, Some("start: /[ab]+/".to_owned())), "{fields}");
    }
    let ebnf = "root ::= \"a\" | \"b\"";
    for fields in [
        json!({"grammar": ebnf}),
        json!({"ebnf": ebnf}),
        json!({"grammar_string": ebnf}),
        json!({"guided_grammar": ebnf}),
        json!({"structured_outputs": {"grammar": ebnf}}),
        of_format(json!({"type": "grammar", "grammar": ebnf})),
    ] {
        assert_eq!(shape(&fields), (None, Some(ebnf.to_owned())), "{fields}");
    }
    let any = Some(json!({"type": "object"}));
    for fields in [
        of_format(json!({"type": "json_object"})),
        of_format(json!({"type": "json"})),
        json!({"guided_json_object": true}),
        json!({"structured_outputs": {"json_object": true}}),
    ] {
        assert_eq!(shape(&fields), (any.clone(), None), "{fields}");
    }
    // Empty fields shape nothing.
    for fields in [
        json!({"regex": "", "ebnf": "", "grammar": "", "json_schema": "", "guided_json": null}),
        json!({"structured_outputs": {}, "guided_json_object": false, "structural_tag": null}),
    ] {
        assert_eq!(shape(&fields), (None, None), "{fields}");
    }
}

#[test]
fn tokens_and_choices() {
    let asked = read(json!({"logprobs": true, "top_logprobs": 3, "n": 4, "best_of": 4})).unwrap();
    assert_eq!((asked.request.logprobs, asked.choices), (Some(3), 4));
    assert_eq!(read(json!({"logprobs": true})).unwrap().request.logprobs, Some(0));
}

#[test]
fn a_last_message_of_the_assistant_is_the_beginning_of_the_answer() {
    let check = |fields: Value, expected: bool| {
        let messages =
            json!([{"role": "user", "content": "Name one."}, {"role": "assistant", "content": "It is "}]);
        let mut body = json!({"messages": messages});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        assert_eq!(read(body).unwrap().request.continue_final_message, expected, "{fields}");
    };
    check(json!({}), true);
    check(json!({"continue_final_message": true, "add_generation_prompt": false}), true);
    check(json!({"continue_final_message": false}), false);
    check(json!({"add_generation_prompt": true}), false);
    assert!(!read(json!({})).unwrap().request.continue_final_message);
    // A shaped answer is a turn of its own, unless the request continues the last message.
    let tool = json!([{"type": "function", "function": {"name": "f"}}]);
    for fields in [
        json!({"response_format": {"type": "json_object"}}),
        json!({"guided_json": {"type": "integer"}}),
        json!({"regex": "[0-9]+"}),
        json!({"tools": tool, "tool_choice": "required"}),
        json!({"tools": tool, "tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ] {
        let with = |more: Value| {
            let mut all = fields.clone();
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        check(with(json!({})), false);
        check(with(json!({"continue_final_message": true})), true);
        check(with(json!({"add_generation_prompt": false})), true);
        check(with(json!({"add_generation_prompt": true})), false);
    }
    check(json!({"tools": tool}), true);
    check(json!({"response_format": {"type": "text"}}), true);
}

#[test]
fn schemas() {
    let format = json!({"type": "json_schema", "json_schema": {"schema": {}, "description": " A number. "}});
    let asked = read(json!({"response_format": format, "stop": ["END"]})).unwrap().request;
    let shown = Segment { name: "response_format".into(), text: "A number.".into() };
    assert_eq!(
        (asked.system, asked.schema, asked.stop),
        (vec![shown], Some(json!({})), vec!["END".to_owned()])
    );
    for fields in [
        json!({"guided_json": {"type": "null"}}),
        json!({"guided_json": "{\"type\": \"null\"}"}),
        json!({"structured_outputs": {"json": {"type": "null"}}}),
        json!({"response_format": {"type": "json_object", "schema": {"type": "null"}}}),
    ] {
        assert_eq!(read(fields).unwrap().request.schema, Some(json!({"type": "null"})));
    }
}

#[test]
fn what_is_refused_is_named() {
    let check = |fields: Value, param: &str| {
        let refusal = read(fields.clone()).unwrap_err();
        let error = &refusal.body()["error"];
        assert_eq!((refusal.status, error["param"].as_str()), (400, Some(param)), "{fields}: {error}");
        assert!(error["message"].as_str().unwrap().contains(&format!("`{param}`")), "{error}");
    };
    check(json!({"logprobs": 2}), "logprobs");
    check(json!({"top_logprobs": 2}), "top_logprobs");
    check(json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs");
    check(json!({"functions": [{}]}), "functions");
    check(json!({"dry_multiplier": "much"}), "dry_multiplier");
    check(json!({"dry_sequence_breakers": [1]}), "dry_sequence_breakers");
    check(json!({"mirostat": 3}), "mirostat");
    check(json!({"top_n_sigma": 1.5}), "top_n_sigma");
    check(json!({"guided_choice": []}), "guided_choice");
    check(json!({"structured_outputs": {"choice": [1]}}), "structured_outputs.choice");
    check(json!({"structured_outputs": {"structural_tag": {"a": 1}}}), "structured_outputs.structural_tag");
    check(json!({"grammar": "root ::= \"a\"", "guided_json": {}}), "grammar");
    check(json!({"regex": "a", "ebnf": "root ::= \"a\""}), "ebnf");
    check(json!({"json_schema": {"type": "null"}, "guided_json": {}}), "guided_json");
    check(json!({"grammar": {"type": "xml", "value": "a"}}), "grammar.type");
    check(json!({"grammar": {"type": "regex"}}), "grammar.value");
    check(json!({"json_schema": "{"}), "json_schema");
    check(json!({"response_format": {"type": "regex"}}), "response_format.value");
    check(json!({"structural_tag": {"structures": [1]}}), "structural_tag");
    check(json!({"stop_regex": "a+"}), "stop_regex");
    check(json!({"grammar": "root ::= \"a\"", "grammar_lazy": true}), "grammar_lazy");
    check(json!({"continue_final_message": true}), "continue_final_message");
    check(json!({"reasoning_effort": "some"}), "reasoning_effort");
    check(json!({"n": 0}), "n");
    check(json!({"n": 65}), "n");
    check(json!({"n": 2, "best_of": 3}), "best_of");
    check(json!({"logit_bias": {"5": "much"}}), "logit_bias");
    check(json!({"logit_bias": [[5]]}), "logit_bias");
    check(json!({"temperature": "hot"}), "temperature");
    check(json!({"temperature": -1}), "temperature");
    check(json!({"top_k": 1.5}), "top_k");
    check(json!({"seed": 0.5}), "seed");
    check(json!({"max_tokens": 0}), "max_tokens");
    check(json!({"max_tokens": 1, "max_completion_tokens": 2}), "max_completion_tokens");
    check(json!({"max_tokens": 1, "n_predict": 2}), "n_predict");
    check(json!({"stop": 5}), "stop");
    check(json!({"stop": ["x", 5]}), "stop");
    check(json!({"cache_salt": ""}), "cache_salt");
    check(json!({"cache_salt": "x".repeat(257)}), "cache_salt");
    check(json!({"cache_salt": 5}), "cache_salt");
    check(json!({"ignore_eos": 1}), "ignore_eos");
    check(json!({"ignore_eos": true, "response_format": {"type": "json_object"}}), "ignore_eos");
    check(json!({"stream_options": {}}), "stream_options");
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
    let among = |allowed: Value| json!({"tools": [tool], "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}});
    check(among(json!({"mode": "auto", "tools": [{"type": "function", "name": "g"}]})), "tool_choice");
    check(among(json!({"mode": "required", "tools": []})), "tool_choice");
    check(among(json!({"mode": "none", "tools": []})), "tool_choice.allowed_tools.mode");
    check(among(json!({"tools": [{"type": "web"}]})), "tool_choice.allowed_tools.tools[0].type");
    check(json!({"agent": "a", "npc": "b"}), "npc");

    let said = |message: Value, param: &str| check(json!({"messages": [message]}), param);
    said(json!({"role": "wizard", "content": "x"}), "messages[0].role");
    said(json!({"role": "user", "content": 5}), "messages[0].content");
    said(json!("x"), "messages[0]");
    let image = json!({"type": "image_url", "image_url": {"url": "data:"}});
    said(json!({"role": "user", "content": [image]}), "messages[0].content[0].type");
    check(json!({"messages": []}), "messages");
    check(json!({"messages": null}), "messages");

    for body in ["", "{", "[]", "\u{0}", &"[".repeat(100_000)] {
        assert_eq!(Fields::read(body.as_bytes()).err().unwrap().status, 400);
    }
}
