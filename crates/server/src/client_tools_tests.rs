//! An NPC with the client's tools, from outside, with a scripted model.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use alara_engine::ToolCall;
use alara_harness::model::{Reply, Scripted};
use alara_harness::team::Rule;
use alara_harness::{ModelSource, ModelSpec, Policy, Sandbox, Session, Verdict};
use serde_json::{Value, json};

use super::*;
use crate::{Options, Server, Stop, Workplace};

struct Place {
    script: Scripted,
    agreed: bool,
}

impl ModelSource for Place {
    fn model(&self, _: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        Ok(Arc::new(&self.script))
    }
}

impl Workplace for Place {
    fn models(&self) -> &dyn ModelSource {
        self
    }

    fn team(&self) -> Option<Team> {
        None
    }

    fn sandbox(&self, _: &Team) -> Result<Sandbox, alara_harness::Error> {
        Ok(Sandbox::new(&std::env::temp_dir(), Policy::default())?)
    }

    fn equip<'a>(&self, session: Session<'a>) -> Result<Session<'a>, alara_harness::Error> {
        Ok(session)
    }

    fn agreed(&self) -> bool {
        self.agreed
    }
}

/// `clerk` may call `get_*` and `shell`, as far as the team's rules permit; `sage` has an empty
/// list, `guest` has none.
fn team() -> Team {
    let npc = |name: &str, entries: Option<&[&str]>| Npc {
        name: name.into(),
        directive: format!("You are {name}."),
        entries: entries.map(|entries| entries.iter().map(|entry| (*entry).to_owned()).collect()),
        ..Npc::default()
    };
    let rule = |pattern: &str, verdict| Rule {
        pattern: pattern.into(),
        verdict,
        by: format!("rule {pattern}"),
        inherited: false,
    };
    Team {
        name: "house".into(),
        context: "All know this.".into(),
        forenpc: "clerk".into(),
        npcs: vec![npc("clerk", Some(&["get_*", "shell"])), npc("guest", None), npc("sage", Some(&[]))],
        rules: vec![
            rule("get_secret", Verdict::Deny),
            rule("get_key", Verdict::Ask),
            rule("shell:rm", Verdict::Deny),
        ],
        ..Team::default()
    }
}

struct Served {
    address: SocketAddr,
    place: Arc<Place>,
    stop: Stop,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.ask();
    }
}

impl Served {
    fn new(agreed: bool, replies: Vec<Reply>) -> Self {
        Served::of(team(), agreed, replies)
    }

    fn of(team: Team, agreed: bool, replies: Vec<Reply>) -> Self {
        let place = Arc::new(Place { script: Scripted::new(replies), agreed });
        let options =
            Options { address: SocketAddr::from(([127, 0, 0, 1], 0)), any_model: true, ..Options::default() };
        let server = Server::new(place.clone(), team, ModelSpec::default(), &options).unwrap();
        let (address, stop) = (server.address(), server.stop());
        std::thread::spawn(move || server.run().unwrap());
        Served { address, place, stop }
    }

    /// Returns status, head and body of the response.
    fn post(&self, path: &str, body: &Value) -> (u16, String, String) {
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.address).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_lowercase(), body.to_owned())
    }

    fn answer(&self, body: &Value) -> Value {
        let (status, _, body) = self.post("/v1/chat/completions", body);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

fn function(name: &str) -> Value {
    let parameters =
        json!({"type": "object", "properties": {"why": {"type": "string"}, "command": {"type": "string"}}});
    json!({"type": "function", "function": {"name": name, "parameters": parameters}})
}

fn functions(names: &[&str]) -> Value {
    names.iter().map(|name| function(name)).collect()
}

fn offered(request: &Request) -> Vec<&str> {
    request.tools.iter().map(|tool| tool.name.as_str()).collect()
}

#[test]
fn calls_go_to_the_client_and_results_come_back() {
    let served = Served::new(
        false,
        vec![Reply::call("get_time", json!({"why": "asked"})), Reply::text("It is noon. END of it.")],
    );
    let tools = functions(&["get_time", "get_secret", "Bash"]);
    let user = json!({"role": "user", "content": "What time is it?"});
    let system = json!({"role": "system", "content": "Be brief."});
    let body = json!({"model": "clerk", "tools": tools, "messages": [system, user]});
    let (status, head, answer) = served.post("/v1/chat/completions", &body);
    assert_eq!(status, 200, "{answer}");
    let told =
        "ignored: tool get_secret (rule get_secret denies it), tool bash (it is not on the list of clerk)";
    assert!(head.contains(told), "{head}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let (choice, message) = (&answer["choices"][0], &answer["choices"][0]["message"]);
    let call = &message["tool_calls"][0];
    assert_eq!((&answer["model"], &choice["finish_reason"]), (&json!("clerk"), &json!("tool_calls")));
    assert_eq!(call["function"], json!({"name": "get_time", "arguments": "{\"why\":\"asked\"}"}));
    assert_eq!(answer.get("alara"), None);
    // The second round, with parameters of chat models other than tools.
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "12:00"});
    let body = json!({"model": "clerk", "tools": tools, "stop": "never said", "max_tokens": 99, "temperature": 0.5,
        "messages": [system, user, message, result]});
    assert_eq!(served.answer(&body)["choices"][0]["message"]["content"], "It is noon. END of it.");
    let requests = served.place.script.requests();
    let [first, second] = requests.as_slice() else { panic!("{} turns", requests.len()) };
    let texts: Vec<&str> = first.system.iter().map(|segment| segment.text.as_str()).collect();
    assert_eq!(texts, ["All know this.", "You are clerk.", "Be brief."]);
    assert_eq!((offered(first), offered(second)), (vec!["get_time"], vec!["get_time"]));
    assert_eq!(
        (second.system.as_slice(), second.stop.as_slice()),
        (first.system.as_slice(), &["never said".to_owned()][..])
    );
    assert_eq!((first.max_tokens, second.max_tokens), (Some(4096), Some(99)));
    assert_eq!(second.sampling.temperature, 0.5);
    let said: Vec<(&str, usize)> =
        second.messages.iter().map(|message| (message.content.as_str(), message.tool_calls.len())).collect();
    assert_eq!(said, [("What time is it?", 0), ("", 1), ("12:00", 0)]);
}

#[test]
fn what_may_be_called_follows_list_and_rules() {
    let check = |npc: &str, agreed: bool, expected: &[&str]| {
        let served = Served::new(agreed, vec![Reply::text("Yes.")]);
        let tools = functions(&["get_time", "get_key", "get_secret", "shell", "Bash"]);
        served
            .answer(&json!({"agent": npc, "tools": tools, "messages": [{"role": "user", "content": "hi"}]}));
        assert_eq!(offered(&served.place.script.requests()[0]), expected, "{npc}");
    };
    check("clerk", false, &["get_time", "shell"]);
    check("clerk", true, &["get_time", "get_key", "shell"]);
    check("guest", false, &["get_time", "shell", "Bash"]);
    check("sage", false, &[]);
}

#[test]
fn a_call_that_is_denied_never_leaves() {
    let check = |name: &str, arguments: Value, why: &str| {
        let reply = || Reply { text: "I try. ".into(), ..Reply::call(name, arguments.clone()) };
        let served = Served::new(false, vec![reply(), reply()]);
        let mut body = json!({"model": "clerk", "tools": functions(&["get_secret", "shell"]),
            "messages": [{"role": "user", "content": "hi"}]});
        let (status, _, answer) = served.post("/v1/chat/completions", &body);
        let refused = format!("the model called `{name}`, and that call is not permitted: {why}");
        let error: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            (status, &error["error"]["code"], &error["error"]["message"]),
            (422, &json!("denied"), &json!(refused))
        );
        body["stream"] = true.into();
        let (status, _, answer) = served.post("/v1/chat/completions", &body);
        assert!(status == 200 && answer.contains("I ") && answer.contains("\"code\":\"denied\""), "{answer}");
        assert!(!answer.contains("tool_calls"), "{answer}");
    };
    // Only a model without a grammar could write the first two.
    check("get_secret", json!({}), "rule get_secret denies it");
    check("other", json!({}), "there is no such tool");
    check("shell", json!({"command": "ls; rm -rf x"}), "rule shell:rm denies it");
    check("shell", json!({"why": "rm x", "command": "ls"}), "rule shell:rm denies it");
    let served = Served::new(false, Vec::new());
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "get_secret"}})] {
        let body = json!({"model": "clerk", "tools": functions(&["get_secret"]), "tool_choice": choice,
            "messages": [{"role": "user", "content": "hi"}]});
        let (status, _, answer) = served.post("/v1/chat/completions", &body);
        assert!(status == 400 && answer.contains("rule get_secret denies it"), "{answer}");
    }
}

#[test]
fn every_format_has_it() {
    let call = || Reply::call("get_time", json!({"why": "asked"}));
    let served = Served::new(false, vec![call(), call(), call()]);
    let said = json!([{"role": "user", "content": "hi"}]);
    let (name, parameters) =
        ("get_time", json!({"type": "object", "properties": {"why": {"type": "string"}}}));
    let ask = |path: &str, body: Value| -> Value {
        let (status, _, answer) = served.post(path, &body);
        assert_eq!(status, 200, "{path}: {answer}");
        serde_json::from_str(&answer).unwrap()
    };
    let tool = json!({"name": name, "input_schema": parameters});
    let body =
        ask("/v1/messages", json!({"model": "clerk", "max_tokens": 9, "messages": said, "tools": [tool]}));
    let block = &body["content"][0];
    assert_eq!((&block["type"], &block["input"]), (&json!("tool_use"), &json!({"why": "asked"})));
    let tool = json!({"type": "function", "name": name, "parameters": parameters});
    let body = ask("/v1/responses", json!({"model": "clerk", "input": said, "tools": [tool]}));
    assert_eq!(body["output"][0]["name"], name);
    let body = ask(
        "/api/chat",
        json!({"model": "clerk", "stream": false, "messages": said, "tools": [function(name)]}),
    );
    assert_eq!(body["message"]["tool_calls"][0]["function"]["name"], name);
}

#[test]
fn one_gate_is_for_one_request() {
    let team = Arc::new(team());
    let npc = team.npc(Some("clerk")).unwrap();
    let mut asked = InnerRequest::default();
    let gate = prepare(&mut asked, &team, npc, false).unwrap();
    let call = ToolCall { id: "1".into(), name: "get_time".into(), arguments: serde_json::Map::new() };
    // This request's client lacks this tool, so it can't run the call.
    assert!(gate.tools.permit(&team, &call).is_err());
}

const SHOP: &str = r#"
observe:
  get_order: {path: "orders.{{ args.id }}", parse: json, effect: read, types: {status: string}}
writes:
  cancel_order: {stale: "orders.{{ args.id }}"}
rules:
  cancel_order:
    need: "orders[args.id].status == 'pending'"
    reason: "the order is {{ orders[args.id].status }}"
    fetch: "get_order(id={{ args.id }})"
"#;

/// A team whose clerk is subject to this gate over a client's tools.
fn shop(gate: &str) -> Team {
    let folder = tempfile::tempdir().unwrap();
    let clerk =
        "name: clerk\nprimary_directive: Help.\njinxes: [get_order, cancel_order, shell]\ngate: shop\n";
    for (file, text) in [("team.ctx", "name: t\nforenpc: clerk\n"), ("clerk.npc", clerk), ("shop.gate", gate)]
    {
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    Team::load(folder.path()).unwrap()
}

/// The client's messages about a call and its result.
fn made(id: &str, tool: &str, order: &str, result: &str) -> [Value; 2] {
    let arguments = json!({"id": order}).to_string();
    let call = json!({"id": id, "type": "function", "function": {"name": tool, "arguments": arguments}});
    [
        json!({"role": "assistant", "content": "", "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": id, "content": result}),
    ]
}

fn shop_tools() -> Value {
    let tool = |name: &str| {
        let parameters = json!({"type": "object", "properties": {"id": {"type": "string"}}});
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    ["get_order", "cancel_order", "shell"].map(tool).into_iter().collect()
}

fn cancel() -> Reply {
    Reply::call("cancel_order", json!({"id": "7"}))
}

#[test]
fn a_call_that_a_gate_stands_against_never_leaves_and_the_model_is_told() {
    let check = |history: &[[Value; 2]], told: &str| {
        let refused = Reply { text: "I cancel it.".into(), ..cancel() };
        let replies = || vec![refused.clone(), Reply::text("I may not.")];
        let served = Served::of(shop(SHOP), false, replies().into_iter().chain(replies()).collect());
        let mut messages = vec![json!({"role": "user", "content": "Cancel order 7."})];
        messages.extend(history.iter().flatten().cloned());
        let mut body = json!({"model": "clerk", "tools": shop_tools(), "messages": messages});
        let answer = served.answer(&body);
        let (message, finish) = (&answer["choices"][0]["message"], &answer["choices"][0]["finish_reason"]);
        assert_eq!(
            (message["content"].as_str(), finish.as_str()),
            (Some("I cancel it.\n\nI may not."), Some("stop"))
        );
        assert!(message.get("tool_calls").is_none_or(Value::is_null), "{message}");
        body["stream"] = true.into();
        let (status, _, streamed) = served.post("/v1/chat/completions", &body);
        assert!(
            status == 200 && !streamed.contains("tool_calls") && streamed.contains("\"not.\""),
            "{streamed}"
        );
        let requests = served.place.script.requests();
        let [.., called, result] = requests[1].messages.as_slice() else { panic!("{requests:?}") };
        assert_eq!(
            (called.content.as_str(), called.tool_calls[0].name.as_str()),
            ("I cancel it.", "cancel_order")
        );
        assert_eq!(result.content, told);
        // Earlier messages remain unchanged, for the prefix cache.
        assert_eq!(requests[1].messages[..requests[0].messages.len()], requests[0].messages);
        assert_eq!((&requests[1].system, &requests[1].tools), (&requests[0].system, &requests[0].tools));
    };
    let unread = |state: &str| {
        format!(
            r#"{{"ok":false,"blocked":true,"rule":"cancel_order","reason":"`orders.7.status` {state}: call get_order(id=7) first","facts":{{}},"unknown":["orders.7.status"],"fetch":"get_order(id=7)"}}"#
        )
    };
    let read = |status: &str| made("a", "get_order", "7", &format!(r#"{{"status": "{status}"}}"#));
    check(&[], &unread("is not known yet"));
    check(
        &[read("shipped")],
        r#"{"ok":false,"blocked":true,"rule":"cancel_order","reason":"the order is shipped","facts":{"orders.7.status":"shipped"},"unknown":[]}"#,
    );
    let stale = unread("is not known, it may have changed since it was read");
    check(&[read("pending"), made("b", "cancel_order", "7", "cancelled")], &stale);
    // A call that the gate doesn't mention may have changed anything.
    check(&[read("pending"), made("b", "shell", "ls", "")], &stale);
}

#[test]
fn a_call_that_gates_let_through_reaches_the_client() {
    let served =
        Served::of(shop(SHOP), false, vec![cancel(), cancel(), Reply::call("get_order", json!({"id": "7"}))]);
    let user = json!({"role": "user", "content": "Cancel order 7."});
    let [called, result] = made("a", "get_order", "7", r#"{"status": "pending"}"#);
    let body = json!({"model": "clerk", "tools": shop_tools(), "messages": [user, called, result]});
    let called =
        |answer: &Value| answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"].clone();
    assert_eq!(called(&served.answer(&body)), "cancel_order");
    // The model reads first, as instructed.
    let body = json!({"model": "clerk", "tools": shop_tools(), "messages": [user]});
    assert_eq!(called(&served.answer(&body)), "get_order");
    assert_eq!(served.place.script.requests().len(), 3);
}

#[test]
fn a_model_that_insists_comes_to_its_end() {
    let ask = |choice: &str, replies: Vec<Reply>| {
        let served = Served::of(shop(SHOP), false, replies);
        let body = json!({"model": "clerk", "tools": shop_tools(), "tool_choice": choice,
            "messages": [{"role": "user", "content": "Cancel order 7."}]});
        let (status, _, answer) = served.post("/v1/chat/completions", &body);
        let choices: Vec<ToolChoice> =
            served.place.script.requests().into_iter().map(|request| request.tool_choice).collect();
        (status, answer, choices)
    };
    use ToolChoice::{Auto, None, Required};
    let (status, answer, choices) =
        ask("auto", vec![cancel(), cancel(), cancel(), Reply::text("I may not.")]);
    assert!(status == 200 && answer.contains("I may not."), "{answer}");
    assert_eq!(choices, [Auto, Auto, Auto, None]);
    let why = "the rule `cancel_order` stands against it: `orders.7.status` is not known yet";
    // A remote model may make calls nevertheless.
    let (status, answer, choices) = ask("auto", vec![cancel(); 4]);
    assert!(status == 422 && answer.contains("\"denied\"") && answer.contains(why), "{answer}");
    assert_eq!(choices.len(), 4);
    let (status, answer, choices) = ask("required", vec![cancel(); 4]);
    assert!(status == 422 && answer.contains(why), "{answer}");
    assert_eq!(choices, [Required, Required, Required]);
}

#[test]
fn an_npc_whose_gate_cannot_be_read_is_refused_in_every_format() {
    let served = Served::of(shop("rule: {}"), false, Vec::new());
    let said = json!([{"role": "user", "content": "hi"}]);
    let parameters = json!({"type": "object", "properties": {"id": {"type": "string"}}});
    let function = function("get_order");
    for (path, body) in [
        ("/v1/chat/completions", json!({"model": "clerk", "messages": said, "tools": [function]})),
        (
            "/v1/messages",
            json!({"model": "clerk", "max_tokens": 9, "messages": said, "tools": [{"name": "get_order", "input_schema": parameters}]}),
        ),
        (
            "/v1/responses",
            json!({"model": "clerk", "input": said, "tools": [{"type": "function", "name": "get_order", "parameters": parameters}]}),
        ),
        ("/api/chat", json!({"model": "clerk", "stream": false, "messages": said, "tools": [function]})),
    ] {
        let (status, _, answer) = served.post(path, &body);
        let why =
            "clerk.npc:4:7: the gate `shop` can't be used, see shop.gate: whoever it binds does not run";
        assert!(status == 500 && answer.contains(why), "{path}: {status} {answer}");
    }
    assert_eq!(served.place.script.requests().len(), 0);
}
