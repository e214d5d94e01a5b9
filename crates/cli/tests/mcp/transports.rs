//! Transports to servers: as a program, by streamable HTTP, by the older transport.

use alara_harness::Outcome;
use alara_harness::trace::Record;
use serde_json::json;

use super::http::{PINGS, Server, Way};
use super::{McpTeam, Ran, alara, call, done, script};

/// Calls work, and an allowlist hides `b` from the list and from the executor.
fn works(servers: &str) -> Ran {
    let setup = McpTeam::naming(servers);
    let ran = setup.run(vec![call("a"), call("b"), done()]);
    assert_eq!(ran.outcome, Outcome::Answer { text: "Done.".into() });
    assert_eq!(ran.tools(), ["shell", "a"]);
    let tool = &ran.model.requests()[0].tools[1];
    assert_eq!(tool.description, "Says it again.");
    assert_eq!(
        (&tool.parameters["required"], &tool.parameters["additionalProperties"]),
        (&json!(["text"]), &json!(false))
    );
    assert_eq!(
        ran.results(),
        [
            r#"{"ok":true,"output":"echo: hi"}"#,
            r#"{"ok":false,"exit":null,"error":"`b` is not permitted; the tools are: shell, a"}"#
        ]
    );
    assert_eq!((ran.warnings.clone(), ran.asked.len()), (Vec::<String>::new(), 1));
    ran
}

#[test]
fn mcp_client_stdio() {
    let ran = works("[{path: echo.sh, tools: [a]}]");
    let asked = &ran.asked[0];
    assert!(asked.starts_with("mcp:bash /") && asked.contains("/echo.sh, whose files are "), "{asked}");
    let Record::Start(start) = &*ran.entries[0].record else { panic!("{:?}", ran.entries[0]) };
    assert_eq!((start.mcp[0].version.as_str(), &start.mcp[0].tools["a"]), ("echo 1.0", &json!("a")));
}

#[test]
fn mcp_client_streamable_http() {
    for way in [Way::Json, Way::Events] {
        let server = Server::start(way);
        works(&format!("[{{url: '{}', transport: streamable-http, tools: [a]}}]", server.url));
        // Session and version are sent once they are known, and the session is ended.
        assert!(server.all_have("POST", "mcp-session-id", "s1"));
        assert!(server.all_have("POST", "mcp-protocol-version", "2025-03-26"));
        assert_eq!(server.lines().last().unwrap(), "DELETE /mcp HTTP/1.1");
    }
}

#[test]
fn mcp_client_answers_a_server_that_asks_without_end_now_and_then() {
    let server = Server::start(Way::Pings);
    works(&format!("[{{url: '{}', tools: [a]}}]", server.url));
    let answers = server.lines().len();
    assert!(answers < PINGS, "{answers}");
}

#[test]
fn mcp_client_sse() {
    let server = Server::start(Way::Sse);
    works(&format!("[{{url: '{}', transport: sse, tools: [a]}}]", server.url));
    assert_eq!(server.lines()[0], "GET /mcp HTTP/1.1");
    // Without a configured transport, the newer one is tried first.
    works(&format!("[{{url: '{}', tools: [a]}}]", Server::start(Way::Sse).url));
    works(&format!("[{{url: '{}', tools: [a]}}]", Server::start(Way::Json).url));
    // Messages go only to the configured server.
    let setup = McpTeam::naming(&format!(
        "[{{name: x, url: '{}', transport: sse}}]",
        Server::start(Way::Elsewhere).url
    ));
    let ran = setup.run(vec![done()]);
    assert!(ran.warnings[0].contains("names an address on another server"), "{:?}", ran.warnings);
}

#[test]
fn mcp_client_keys_are_not_shown() {
    let server = Server::start(Way::Locked);
    let setup = McpTeam::naming(&format!(
        "[{{name: e, url: '{}', transport: streamable-http, api_key: $SECRET_KEY}}]",
        server.url
    ));
    script(&setup, &json!([{"text": "Done."}]));
    let run = ["run", "-t", ".", "-m", "script:script.json", "--trace", "t.jsonl", "--yes", "Begin."];
    let output = alara(&setup, &run);
    let message = String::from_utf8(output.stderr).unwrap();
    let trace = std::fs::read_to_string(setup.directory.path().join("t.jsonl")).unwrap();
    let sent = ("authorization".to_owned(), "Bearer hunter2hunter2".to_owned());
    assert!(server.received.lock().unwrap()[0].1.contains(&sent));
    assert!(message.contains("it answers 401: bad key Bearer ***"), "{message}");
    assert!(!message.contains("hunter2") && !trace.contains("hunter2"), "{message}{trace}");
    // An unset variable is reported by its name.
    let setup = McpTeam::naming("[{name: e, path: echo.sh, env: {X: $NOT_SET_AT_ALL}}]");
    let ran = setup.run(vec![done()]);
    assert!(
        ran.warnings[0].ends_with("the environment variable NOT_SET_AT_ALL, which it is to get, is not set")
    );
}
