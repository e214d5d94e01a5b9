//! An NPC over the client's tools, from outside, with a model that follows a script.

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
        Sandbox::new(&std::env::temp_dir(), Policy::default())
    }

    fn equip<'a>(&self, session: Session<'a>) -> Result<Session<'a>, alara_harness::Error> {
        Ok(session)
    }

    fn agreed(&self) -> bool {
        self.agreed
    }
}

/// `clerk` may call `get_*` and `shell`, where the team's rules let it; `sage` lists nothing,
/// `guest` has no list.
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
        let place = Arc::new(Place { script: Scripted::new(replies), agreed });
        let options =
            Options { address: SocketAddr::from(([127, 0, 0, 1], 0)), any_model: true, ..Options::default() };
        let server = Server::new(place.clone(), team(), ModelSpec::default(), &options).unwrap();
        let (address, stop) = (server.address(), server.stop());
        std::thread::spawn(move || server.run().unwrap());
        Served { address, place, stop }
    }

    /// Status, head and body of the answer.
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
    // The second round, with what a chat model takes beside tools.
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
    // The first two could only be written by a model without a grammar.
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
    // What this request's client does not have, it can't run.
    assert!(gate.tools.permit(&team, &call).is_err());
}
