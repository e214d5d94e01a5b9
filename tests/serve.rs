//! `alara serve` from outside: what programs that know OpenAI's API get, and what others don't.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use alara_engine::gguf::Gguf;
use alara_engine::{Engine, Event, Message, Request, Sampling, Segment, Tool, ToolChoice};
use alara_harness::model::endpoint::{EndpointError, Options};
use alara_harness::{ChatModel, Endpoint};
use serde_json::{Value, json};

use crate::endpoint::server::{Answer, Piece, Server};

/// The model that ships, as clients call it.
const SHIPPED: &str = "alara-tiny.gguf";

/// Where a server works: with a script, a home, a work directory and a team.
struct Place(tempfile::TempDir);

impl Place {
    /// The team has `corca`, who has a shell, and `sage`, who has nothing.
    fn new(script: &Value) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        for directory in ["home", "work"] {
            std::fs::create_dir(place.path(directory)).unwrap();
        }
        place.write("script.json", &script.to_string());
        place.write("team/house.ctx", "name: house\nforenpc: corca\n");
        place.write("team/corca.npc", "name: corca\nprimary_directive: You are corca.\njinxes: [shell]\n");
        place.write("team/sage.npc", "name: sage\nprimary_directive: You are sage.\njinxes: []\n");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn alara(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_alara"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env_remove("ALARA_TOKEN")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts a server for the team, with a model that follows the script unless `arguments` name another.
    fn serve(self, arguments: &[&str]) -> Served {
        let all = ["serve", "--port", "0", "--json", "-t", "./team", "--workdir", "work"];
        let model: &[&str] = if arguments.contains(&"-m") { &[] } else { &["-m", "script:script.json"] };
        let mut child = self.alara(&[&all, model, arguments].concat()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Ok(told) = serde_json::from_str::<Value>(&line) else {
            panic!("{}", String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr));
        };
        Served { url: told["url"].as_str().unwrap().to_owned(), told, child, place: self }
    }

    /// The traces that were kept, oldest first.
    fn traces(&self) -> Vec<String> {
        let directory = self.path("state/alara/traces").read_dir().unwrap();
        let mut paths: Vec<PathBuf> = directory.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }
}

/// A server that runs, and what it told when it began.
struct Served {
    url: String,
    told: Value,
    child: Child,
    place: Place,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    fn post(&self, body: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let mut request = agent().post(format!("{}/chat/completions", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = request.send(body).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    /// The answer to a request with these fields and, if they have no messages, one that says "hi".
    fn ask(&self, fields: Value) -> (u16, Value) {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let (status, text) = self.post(&body.to_string(), &[]);
        (status, serde_json::from_str(&text).unwrap_or_else(|_| text.into()))
    }

    /// The same, if it succeeds.
    fn answer(&self, fields: Value) -> Value {
        let (status, body) = self.ask(fields);
        assert_eq!(status, 200, "{body}");
        body
    }

    /// The chunks of a streamed answer.
    fn chunks(&self, fields: Value) -> Vec<Value> {
        let mut streamed = json!({"stream": true, "stream_options": {"include_usage": true}});
        streamed.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let (status, Value::String(text)) = self.ask(streamed) else { panic!("no events") };
        assert_eq!(status, 200, "{text}");
        let text = text.strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("{text}"));
        let chunks = text.split_terminator("\n\n").filter_map(|line| line.strip_prefix("data: "));
        chunks.map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let url = self.url.replace("/v1", path);
        let mut response = agent().get(url).call().unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap())
    }

    /// What comes back for these bytes.
    fn raw(&self, text: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(text.replace('\n', "\r\n").as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    fn connect(&self) -> TcpStream {
        let address = self.url.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    fn interrupt(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    }

    /// The exit code once it has ended.
    fn code(&mut self) -> Option<i32> {
        wait_until("the server has ended", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
    config.timeout_global(Some(Duration::from_secs(60))).build().new_agent()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn message(body: &Value) -> &Value {
    &body["choices"][0]["message"]
}

fn tool() -> Value {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string", "enum": ["a.txt", "b.txt"]}}, "required": ["path"]});
    json!({"type": "function", "function": {"name": "read_file", "description": "Return the text of a file", "parameters": parameters}})
}

#[test]
fn serve_tells_where_it_is_and_who_is_there() {
    let served = Place::new(&json!([])).serve(&[]);
    assert_eq!((&served.told["model"], &served.told["npcs"]), (&json!("script"), &json!(["corca", "sage"])));
    assert_eq!(served.get("/health"), (200, json!({"status": "ok"})));
    let ids = || -> Vec<Value> {
        let (status, list) = served.get("/v1/models");
        assert_eq!((status, &list["object"]), (200, &json!("list")));
        list["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect()
    };
    assert_eq!(ids(), ["script", "corca", "sage"]);
    // The team's files are looked at again.
    served.place.write("team/newcomer.npc", "name: newcomer\nprimary_directive: You are new.\njinxes: []\n");
    assert_eq!(ids(), ["script", "corca", "newcomer", "sage"]);
}

#[test]
fn serve_answers_whole_and_in_pieces() {
    let served = Place::new(&json!([{"text": "Hello there."}, {"text": "Hello there."}])).serve(&[]);
    let body = served.answer(json!({"model": "script"}));
    assert_eq!((&body["object"], &body["model"]), (&json!("chat.completion"), &json!("script")));
    assert_eq!(*message(&body), json!({"role": "assistant", "content": "Hello there.", "refusal": null}));
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert_eq!((&body["usage"]["completion_tokens"], &body["usage"]["total_tokens"]), (&json!(2), &json!(2)));
    let chunks = served.chunks(json!({"model": "script"}));
    let said: Vec<&str> =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(said, ["", "Hello ", "there."]);
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
    let served = Place::new(&json!([call, call, cut, cut])).serve(&[]);
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
    // Of a call that is cut off nobody hears.
    let body = served.answer(asked());
    assert_eq!(*message(&body), json!({"role": "assistant", "content": "I look.", "refusal": null}));
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    assert!(
        served.chunks(asked()).iter().all(|chunk| chunk["choices"][0]["delta"].get("tool_calls").is_none())
    );
}

#[test]
fn serve_holds_the_model_to_tools_and_schemas() {
    let served = Place::new(&json!([])).serve(&["-m", &shipped()]);
    assert_eq!(served.told["model"], SHIPPED);
    let said = |text: &str| json!([{"role": "user", "content": text}]);
    let body = served.answer(json!({
        "model": SHIPPED, "messages": said("what is in b.txt?"), "tools": [tool()], "tool_choice": "required",
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

    // What can't be guaranteed, or has no room, is told with the field.
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
    let odd = json!({"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"contains": {}}}}}});
    check(json!({"model": SHIPPED, "tools": [odd]}), "tools", Value::Null);
    let long = said(&"word ".repeat(9000));
    check(json!({"model": SHIPPED, "messages": long}), "messages", json!("context_length_exceeded"));
}

/// What the model says and costs, times aside.
fn turn(model: &dyn ChatModel, request: &Request) -> (Vec<Event>, [usize; 2]) {
    let mut usage = [0; 2];
    let mut events: Vec<Event> = Vec::new();
    for event in model.chat(request.clone()).unwrap() {
        match (event.unwrap(), events.last_mut()) {
            (Event::Done { usage: told, .. }, _) => usage = [told.prompt_tokens, told.completion_tokens],
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
    let served = Place::new(&json!([])).serve(&["-m", &shipped(), "--parallel", "2"]);
    let there =
        Endpoint::new(format!("{}#{SHIPPED}", served.url).parse().unwrap(), Options::default()).unwrap();
    let here =
        Engine::load(&Gguf::open(shipped().as_ref()).unwrap(), &alara_engine::Options::default()).unwrap();
    let tool = |name: &str| Tool {
        name: name.into(),
        description: "Does".into(),
        parameters: tool()["function"]["parameters"].clone(),
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
    let named =
        Request { tool_choice: ToolChoice::Named("write_file".into()), max_tokens: None, ..tools.clone() };
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
    // What was computed for one request is not computed again for the next.
    let again = served.answer(json!({"model": SHIPPED, "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "say hello"}], "max_tokens": 1}));
    assert!(again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0, "{again}");
    // A refusal is understood as what it is.
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

#[test]
fn serve_lets_an_npc_work_as_a_model() {
    let call = json!({"text": "I look.", "calls": [{"name": "shell", "arguments": {"command": "echo seven > f; cat f"}}]});
    let turns = [call, json!({"text": "It says seven."})];
    let script = [&turns[..], &turns, &turns].concat();
    let served = Place::new(&script.into()).serve(&[]);
    let check = |body: &Value| {
        assert_eq!(
            *message(body),
            json!({"role": "assistant", "content": "It says seven.", "refusal": null})
        );
        assert_eq!((&body["model"], &body["choices"][0]["finish_reason"]), (&json!("corca"), &json!("stop")));
        let alara = &body["alara"];
        assert_eq!(
            (&alara["npc"], &alara["calls"]),
            (&json!("corca"), &json!([{"name": "shell", "ok": true}]))
        );
        assert_eq!(body["usage"]["completion_tokens"], 6);
        let shown =
            served.place.alara(&["trace", "show", alara["trace"].as_str().unwrap()]).output().unwrap();
        assert!(String::from_utf8_lossy(&shown.stdout).contains("echo seven > f; cat f"), "{shown:?}");
    };
    check(&served.answer(json!({"model": "corca"})));
    assert_eq!(std::fs::read_to_string(served.place.path("work/f")).unwrap(), "seven\n");
    check(&served.answer(json!({"agent": "corca"})));
    let chunks = served.chunks(json!({"npc": "corca", "model": "script"}));
    let said: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(said, "It says seven.");
    assert!(chunks.iter().all(|chunk| chunk["choices"][0]["delta"].get("tool_calls").is_none()));
    assert_eq!(served.place.traces().len(), 3);
}

#[test]
fn serve_lets_an_npc_take_up_a_conversation() {
    let replies = [
        json!({"text": "One two."}),
        json!({"text": "Three."}),
        json!({"text": "Four."}),
        json!({"text": "x", "finish": "length"}),
    ];
    let served = Place::new(&json!(replies)).serve(&[]);
    let chunks = served.chunks(json!({"model": "sage"}));
    let said: Vec<&str> =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(said, ["", "One ", "two."], "without tools, all that is said is the answer");
    let body = served.answer(json!({"model": "sage", "temperature": 0.5, "max_tokens": 9, "messages": [
        {"role": "system", "content": "Speak softly."}, {"role": "user", "content": "What is one?"},
        {"role": "assistant", "content": "The first."}, {"role": "user", "content": "And then?"},
    ]}));
    assert_eq!(message(&body)["content"], "Three.");
    let traces = served.place.traces();
    // Each has a conversation of its own.
    assert!(!traces[1].contains("One two."));
    let records: Vec<Value> = traces[1].lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let start = &records[0];
    assert!(start["system"].to_string().contains("You are sage.\\n\\nSpeak softly."), "{start}");
    assert_eq!(
        (&start["sampling"]["temperature"], &start["limits"]["turn_tokens"]),
        (&json!(0.5), &json!(9))
    );
    let kinds: Vec<&Value> = records.iter().map(|record| &record["record"]).collect();
    assert_eq!(kinds, ["start", "user", "assistant", "end", "user", "assistant", "end"]);
    // Such a trace can be run again.
    let body = served.answer(json!({"model": "sage", "messages": [
        {"role": "user", "content": "What is one?"}, {"role": "assistant", "content": "The first."},
        {"role": "user", "content": "And two?"},
    ]}));
    let replay =
        served.place.alara(&["trace", "replay", body["alara"]["trace"].as_str().unwrap()]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&replay.stdout), "the same: 7 records\n");

    let body = served.answer(json!({"model": "sage"}));
    assert_eq!(
        (&message(&body)["content"], &body["choices"][0]["finish_reason"]),
        (&json!("x"), &json!("length"))
    );
    let check = |fields: Value, status: u16, expected: &str| {
        let (found, body) = served.ask(fields);
        assert_eq!(found, status, "{body}");
        assert!(body["error"]["message"].as_str().unwrap().contains(expected), "{body}");
    };
    check(json!({"model": "sage", "tools": [tool()]}), 400, "`tools` is up to the NPC sage itself");
    check(json!({"model": "sage", "stop": "x"}), 400, "`stop` is up to the NPC sage itself");
    check(json!({"agent": "nobody"}), 404, "there is no model `nobody` (known: script, corca, sage)");
    check(json!({"agent": "sage", "model": "gpt-4"}), 404, "there is no model `gpt-4`");
    check(json!({"model": "sage"}), 500, "the script has no reply");
}

#[test]
fn serve_asks_nobody() {
    let call = json!({"calls": [{"name": "shell", "arguments": {"command": "echo ran > ran"}}]});
    let check = |arguments: &[&str], ran: bool| {
        let place = Place::new(&json!([call, {"text": "Done."}]));
        place.write("team/house.ctx", "name: house\nforenpc: corca\npermissions:\n  shell: ask\n");
        let served = place.serve(arguments);
        let body = served.answer(json!({"model": "corca"}));
        assert_eq!(body["alara"]["calls"], json!([{"name": "shell", "ok": ran}]), "{body}");
        assert_eq!(served.place.path("work/ran").exists(), ran);
    };
    check(&[], false);
    check(&["--yes"], true);
}

#[test]
fn serve_tells_what_an_agent_could_not_do() {
    let same = json!({"calls": [{"name": "shell", "arguments": {"command": "true"}}]});
    let served = Place::new(&json!([same, same, same])).serve(&[]);
    let (status, body) = served.ask(json!({"model": "corca"}));
    // A status that no client takes as a reason to have the work done again.
    assert_eq!((status, &body["error"]["code"]), (422, &json!("repetition")), "{body}");
}

#[test]
fn serve_refuses_what_it_does_not_understand() {
    let served = Place::new(&json!([])).serve(&[]);
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
    check(served.ask(json!({})), 400, "`model` is missing");
    check(
        served.ask(json!({"model": "gpt-4"})),
        404,
        "there is no model `gpt-4` (known: script, corca, sage)",
    );
    check(served.ask(json!({"model": "script", "logprobs": true})), 400, "`logprobs`");
    check(served.get("/v1/chat/completions"), 405, "is for POST only");
    check(served.get("/v1/embeddings"), 404, "the routes are");
    check(post(&format!("\"{}\"", "x".repeat(9 << 20))), 413, "8 MiB");
    // Whoever announces too much need not even send it.
    let said =
        served.raw("POST /v1/chat/completions HTTP/1.1\nHost: localhost\nContent-Length: 99999999\n\n");
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");
}

#[test]
fn serve_is_for_those_who_may() {
    let mut served = Place::new(&json!([{"text": "Hi"}])).serve(&["--token", "hunter2"]);
    let body = json!({"model": "script", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let check = |headers: &[(&str, &str)], expected: u16| {
        assert_eq!(served.post(&body, headers).0, expected, "{headers:?}");
    };
    let key = ("Authorization", "Bearer hunter2");
    check(&[], 401);
    check(&[("Authorization", "Bearer hunter3")], 401);
    check(&[key, ("Origin", "https://evil.example")], 403);
    check(&[key, ("Sec-Fetch-Site", "cross-site")], 403);
    check(&[key, ("Host", "evil.example")], 403);
    assert_eq!((served.get("/v1/models").0, served.get("/health").0), (401, 200));
    let said = served.raw("OPTIONS /v1/chat/completions HTTP/1.1\nHost: localhost\nOrigin: https://evil.example\nConnection: close\n\n");
    assert!(said.starts_with("HTTP/1.1 403") && !said.to_lowercase().contains("access-control"), "{said}");
    check(&[key], 200);
    served.interrupt();
    assert_eq!(served.code(), Some(0));
    let mut told = String::new();
    served.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(told.contains("$ALARA_TOKEN") && !told.contains("hunter2"), "{told}");
}

#[test]
fn serve_is_not_left_open() {
    let place = Place::new(&json!([]));
    let check = |arguments: &[&str], expected: &str| {
        let model = ["serve", "-m", "script:script.json", "-t", "./team"];
        let output = place.alara(&[&model, arguments].concat()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(expected), "{told}");
    };
    check(
        &["--host", "0.0.0.0", "--port", "0"],
        "can be reached from other machines, so the server needs a token\nhint: ALARA_TOKEN=",
    );
    check(&["--host", "everywhere"], "an address is an IP");
    check(&["--token", "", "--port", "0"], "visible ASCII");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    check(&["--port", &port], "can't listen on 127.0.0.1:");
    check(&["--port", "0", "--workdir", "nowhere"], "the work directory nowhere can't be used");
}

#[test]
fn serve_stops_for_whoever_leaves() {
    for agent in [false, true] {
        let silent = Server::answering([Answer::none(Piece::Hang), Answer::stream([Piece::Hang])]);
        let served = Place::new(&json!([])).serve(&["-m", &format!("{}/v1#m", silent.url)]);
        for (stream, left) in [(true, 1), (false, 2)] {
            let model = if agent { "sage".to_owned() } else { format!("{}/v1#m", silent.url) };
            let body =
                json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}]})
                    .to_string();
            let mut client = served.connect();
            write!(
                client,
                "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            wait_until("the model is asked", || silent.received().len() == left);
            drop(client);
            wait_until("the model is left", || silent.closed() == left);
        }
    }
}

#[test]
fn serve_ends_on_interrupts() {
    let silent = Server::answering([Answer::none(Piece::Hang)]);
    let mut served = Place::new(&json!([])).serve(&["-m", &format!("{}/v1#m", silent.url)]);
    let body = json!({"model": "sage", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let mut client = served.connect();
    write!(
        client,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    wait_until("the model is asked", || silent.received().len() == 1);
    served.interrupt();
    let address = served.url.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap().to_owned();
    wait_until("nobody is let in", || TcpStream::connect(&address).is_err());
    assert!(served.child.try_wait().unwrap().is_none(), "what runs is waited for");
    served.interrupt();
    assert_eq!(served.code(), Some(0));
    wait_until("the model is left", || silent.closed() == 1);
    assert!(served.place.traces()[0].contains("\"cancelled\""));
}

fn shipped() -> String {
    format!("{}/models/alara-tiny.gguf", env!("CARGO_MANIFEST_DIR"))
}
