//! Requests that real clients send, and the responses they need, with the model that ships.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::format_tests::{MODEL, ask, ask_at, post, serve};
use super::*;

/// A server whose context fills up quickly.
static SMALL: LazyLock<SocketAddr> = LazyLock::new(|| serve("models/alara-tiny.gguf", Some(256)));

fn said(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

/// Each client searches for a phrase of its own before it shortens a conversation.
#[test]
fn a_prompt_that_is_too_long_is_told_in_the_words_of_each_format() {
    let long = "The sea is wide. ".repeat(200);
    let check = |path: &str, body: Value| {
        let (status, _, body) = ask_at(*SMALL, "POST", path, "", &body.to_string());
        assert_eq!(status, 400, "{path}: {body}");
        assert!(body.contains("--ctx"), "{path}: {body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{text} is no number"));
    for stream in [false, true] {
        let body = json!({"messages": said(&long), "max_tokens": 5, "stream": stream});
        let told = check("/v1/messages", body.clone());
        assert_eq!(
            (&told["type"], &told["error"]["type"]),
            (&json!("error"), &json!("invalid_request_error"))
        );
        let message = told["error"]["message"].as_str().unwrap();
        let counts = message.strip_prefix("prompt is too long: ").unwrap_or_else(|| panic!("{message}"));
        let (prompt, rest) = counts.split_once(" tokens > ").unwrap();
        assert!(number(prompt) > 256 && rest.starts_with("256 maximum; "), "{message}");

        for (path, field) in [
            ("/v1/chat/completions", "messages"),
            ("/chat/completions", "messages"),
            ("/v1/completions", "prompt"),
            ("/v1/responses", "input"),
        ] {
            let body = json!({"messages": said(&long), "prompt": long, "input": long, "stream": stream});
            let told = check(path, body);
            let error = &told["error"];
            assert_eq!(
                (&error["code"], &error["param"]),
                (&json!("context_length_exceeded"), &json!(field)),
                "{told}"
            );
            let message = error["message"].as_str().unwrap();
            let words = "This model's maximum context length is 256 tokens. However, your ";
            assert!(message.starts_with(words), "{message}");
            assert!(message.contains(&format!("{field} resulted in {} tokens", error["n_prompt_tokens"])));
            assert_eq!(error["n_ctx"], 256);
            // llama.cpp's routes are those without a version.
            let kind =
                if path.starts_with("/v1") { "invalid_request_error" } else { "exceed_context_size_error" };
            assert_eq!(error["type"], kind, "{path}");
        }
        let told = check("/api/chat", body);
        let words = "the input length exceeds the context length: ";
        assert!(told["error"].as_str().unwrap().starts_with(words), "{told}");
        check("/api/generate", json!({"prompt": long, "stream": stream}));
    }
    let told = check("/v1/embeddings", json!({"input": long}));
    assert_eq!((&told["error"]["param"], &told["error"]["n_ctx"]), (&json!("input"), &json!(256)));
    check("/api/embed", json!({"input": long, "truncate": false}));
}

#[test]
fn where_no_model_is_named_the_default_one_answers() {
    for model in [json!(null), json!("")] {
        let with = |mut body: Value| {
            body["model"] = model.clone();
            body
        };
        let body = || with(json!({"messages": said("hi"), "max_tokens": 2, "stop": ""}));
        assert_eq!(post("/v1/chat/completions", body())["model"], MODEL);
        assert_eq!(post("/v1/messages", body())["model"], MODEL);
        let text = with(json!({"prompt": "Once", "max_tokens": 2, "stop": [""]}));
        assert_eq!(post("/v1/completions", text)["model"], MODEL);
        let input = || with(json!({"input": "hi", "max_output_tokens": 2}));
        assert_eq!(post("/v1/responses", input())["model"], MODEL);
        assert_eq!(post("/v1/embeddings", with(json!({"input": "hi"})))["model"], MODEL);
        let options = json!({"num_predict": 2, "stop": []});
        let chat = with(json!({"messages": said("hi"), "stream": false, "options": options}));
        assert_eq!(post("/api/chat", chat)["model"], MODEL);
        let text = with(json!({"prompt": "Once", "stream": false, "options": options}));
        assert_eq!(post("/api/generate", text)["model"], MODEL);
        assert_eq!(post("/api/embed", with(json!({"input": "hi"})))["model"], MODEL);
        // An empty prompt loads the model.
        assert_eq!(post("/api/chat", with(json!({})))["model"], MODEL);
    }
    // An unknown name must not be answered by another model.
    let body = json!({"model": "gpt-4", "messages": said("hi")});
    assert_eq!(ask("POST", "/v1/chat/completions", "", &body.to_string()).0, 404);
}

/// LangGraph requests structured output this way after the agent's answer.
#[test]
fn a_history_that_ends_with_an_answer_gets_another_one_in_the_shape_that_is_asked_for() {
    let schema = json!({"type": "object", "properties": {"sum": {"enum": [5, 7]}}, "required": ["sum"], "additionalProperties": false});
    let parameters = schema.clone();
    let history = json!([
        {"role": "user", "content": "How much is two and three?"},
        {"role": "assistant", "content": "Two and three is five."},
    ]);
    let is_valid = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(value["sum"] == 5 || value["sum"] == 7, "{text}");
    };
    let format = json!({"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}});
    let body = post("/v1/chat/completions", json!({"messages": history, "response_format": format}));
    is_valid(body["choices"][0]["message"]["content"].as_str().unwrap());
    let format = json!({"type": "json_schema", "name": "sum", "schema": schema});
    let body = post("/v1/responses", json!({"input": history, "text": {"format": format}}));
    is_valid(body["output"][0]["content"][0]["text"].as_str().unwrap());
    let body = json!({"messages": history, "max_tokens": 100, "output_config": {"format": format}});
    is_valid(post("/v1/messages", body)["content"][0]["text"].as_str().unwrap());
    let body = post("/api/chat", json!({"messages": history, "stream": false, "format": schema}));
    is_valid(body["message"]["content"].as_str().unwrap());

    let function = json!({"name": "tell", "description": "Tells the sum", "parameters": parameters});
    let tools = json!([{"type": "function", "function": function}]);
    let choice = json!({"type": "function", "function": {"name": "tell"}});
    let body =
        post("/v1/chat/completions", json!({"messages": history, "tools": tools, "tool_choice": choice}));
    let call = &body["choices"][0]["message"]["tool_calls"][0]["function"];
    is_valid(call["arguments"].as_str().unwrap_or_else(|| panic!("{body}")));
    let tools = json!([{"name": "tell", "description": "Tells the sum", "input_schema": parameters}]);
    let body = json!({"messages": history, "max_tokens": 100, "tools": tools, "tool_choice": {"type": "tool", "name": "tell"}});
    let body = post("/v1/messages", body);
    let content = body["content"].as_array().unwrap();
    let call = content.iter().find(|block| block["type"] == "tool_use").unwrap_or_else(|| panic!("{body}"));
    is_valid(&call["input"].to_string());
    let mut flat = function.clone();
    flat["type"] = "function".into();
    let body = post("/v1/responses", json!({"input": history, "tools": [flat], "tool_choice": "required"}));
    let items = body["output"].as_array().unwrap();
    let call = items.iter().find(|item| item["type"] == "function_call").unwrap_or_else(|| panic!("{body}"));
    is_valid(call["arguments"].as_str().unwrap());
}

/// Claude Code's first system block contains a different hash each time.
#[test]
fn what_changes_at_the_beginning_of_a_prompt_is_dropped_or_told() {
    let rules: Vec<String> = (0..60)
        .map(|rule| format!("Rule {rule}: never leave the house number {rule} without its key."))
        .collect();
    let rules = rules.join("\n");
    let block = |text: &str| json!({"type": "text", "text": text});
    let asked = |first: &str, salt: &str| {
        let body = json!({"system": [block(first), block(&rules)], "messages": said("hi"), "max_tokens": 1, "cache_salt": salt});
        post("/v1/messages", body)
    };
    let header =
        |hash: &str| format!("x-anthropic-billing-header: cc_version=2.1.36; cc_entrypoint=cli; cch={hash};");
    let computed = |body: &Value| body["usage"]["input_tokens"].as_u64().unwrap();
    let first = asked(&header("00001"), "bill");
    assert!(computed(&first) > 300, "{first}");
    let second = asked(&header("00002"), "bill");
    assert!(computed(&second) < 20, "{second}");
    assert_eq!(second["alara"], Value::Null);

    assert_eq!(asked("The date is Monday.", "date")["alara"], Value::Null);
    let second = asked("The date is Tuesday.", "date");
    assert!(computed(&second) > 300, "{second}");
    let miss = second["alara"]["miss"].as_str().unwrap_or_else(|| panic!("{second}"));
    assert!(miss.starts_with("line 1 of the system prompt differs"), "{miss}");
    assert!(miss.contains("`The date is Tuesday.`") && miss.contains("move what changes"), "{miss}");
    // The earlier text isn't shown: it may be another client's.
    assert!(!miss.contains("Monday"), "{miss}");
    // Once it is cached, there is nothing to report.
    assert_eq!(asked("The date is Monday.", "date")["alara"], Value::Null);
    let (_, _, metrics) = ask("GET", "/metrics", "", "");
    let changed = metrics.lines().find_map(|line| line.strip_prefix("alara_prompt_heads_changed_total "));
    assert!(changed.is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count > 0)), "{metrics}");
}

#[test]
fn what_ollama_does_with_models_is_refused_with_what_to_do_instead() {
    let check = |method: &str, path: &str, expected: &str| {
        let (status, _, body) =
            ask(method, path, "", "{\"model\": \"a\", \"source\": \"a\", \"destination\": \"b\"}");
        let told: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(told.as_object().unwrap().len(), 1, "{body}");
        let message = told["error"].as_str().unwrap();
        assert!(
            (400..500).contains(&status) && status != 404 && message.contains(expected),
            "{path}: {status} {body}"
        );
    };
    check("POST", "/api/copy", "--alias");
    check("POST", "/api/create", "-m FILE");
    check("POST", "/api/push", "uploads no models");
    check("POST", "/api/blobs/sha256:00", "takes no files");
    check("POST", "/api/pull", "alara models pull");
    check("DELETE", "/api/delete", "alara models rm");
}
