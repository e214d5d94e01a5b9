//! The routes, and the refusal of invalid requests.

use serde_json::{Value, json};

use crate::dirs::TestDir;

#[test]
fn serve_tells_where_it_is_and_who_is_there() {
    let served = TestDir::npc_team(&json!([])).serve(&[]);
    assert_eq!(
        (&served.shown["model"], &served.shown["npcs"]),
        (&json!("script"), &json!(["corca", "sage"]))
    );
    assert_eq!(served.get("/health"), (200, json!({"status": "ok"})));
    let ids = || -> Vec<Value> {
        let (status, list) = served.get("/v1/models");
        assert_eq!((status, &list["object"]), (200, &json!("list")));
        list["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect()
    };
    assert_eq!(ids(), ["script", "corca", "sage"]);
    // The team's files are read again.
    served.dir.write("team/newcomer.npc", "name: newcomer\nprimary_directive: You are new.\njinxes: []\n");
    assert_eq!(ids(), ["script", "corca", "newcomer", "sage"]);
}

#[test]
fn serve_refuses_what_it_does_not_understand() {
    let served = TestDir::npc_team(&json!([])).serve(&[]);
    let check = |(status, body): (u16, Value), expected: u16, message: &str| {
        let error = &body["error"];
        assert_eq!(status, expected, "{body}");
        assert!(
            error["message"].as_str().unwrap().contains(message) && error.get("type").is_some(),
            "{body}"
        );
    };
    let post = |text: &str| {
        let (status, text) = served.post(text, &[]);
        (status, serde_json::from_str(&text).unwrap())
    };
    check(post("{\"model\": "), 400, "the body is no JSON");
    check(post("[]"), 400, "no JSON object");
    // The default model answers if none is named.
    check(served.ask(json!({"stop": 3})), 400, "`stop`");
    check(
        served.ask(json!({"model": "gpt-4"})),
        404,
        "there is no model `gpt-4` (known: script, corca, sage)",
    );
    check(served.ask(json!({"model": "script", "logprobs": true})), 400, "`logprobs`");
    check(served.get("/v1/chat/completions"), 405, "is not for GET");
    check(served.get("/v1/nowhere"), 404, "the routes are at /openapi.json");
    check(post(&format!("\"{}\"", "x".repeat(9 << 20))), 413, "8 MiB");
    // A client that announces too long a body is refused before it sends any of it.
    let reply =
        served.raw("POST /v1/chat/completions HTTP/1.1\nHost: localhost\nContent-Length: 99999999\n\n");
    assert!(reply.starts_with("HTTP/1.1 413"), "{reply}");
}
