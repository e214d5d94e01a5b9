//! Endpoints as models, with a server on this machine that behaves both correctly and incorrectly.

pub mod server;

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use alara_engine::{Event, Finish, Format, Message, Request, Tool, Usage};
use alara_harness::model::endpoint::{Address, EndpointError, Key, Options};
use alara_harness::{ChatModel, Endpoint, ModelError};
use serde_json::{Value, json};
use server::{Answer, Piece, Server, call, end, event, text};

/// Delays so short that tests don't notice them.
fn options() -> Options {
    Options { backoff: Duration::from_millis(5), retries: 3, ..Options::default() }
}

fn endpoint(server: &Server, options: Options) -> Endpoint {
    let address: Address = format!("{}/v1#m", server.url).parse().unwrap();
    Endpoint::new(address, options).unwrap()
}

fn hello() -> Request {
    Request { messages: vec![Message::user("hello")], ..Request::default() }
}

fn with_tool() -> Request {
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    Request {
        tools: vec![Tool { name: "f".into(), description: "Does".into(), parameters, strict: false }],
        ..hello()
    }
}

/// Returns all non-empty events.
fn events(model: &dyn ChatModel, request: Request) -> Result<Vec<Event>, ModelError> {
    let nothing = |event: &Event| matches!(event, Event::Text { text } if text.is_empty());
    model.chat(request)?.filter(|event| !event.as_ref().is_ok_and(nothing)).collect()
}

/// Returns the text of an answer, and the data at its end.
fn answer(model: &dyn ChatModel) -> Result<(String, Finish, Usage), ModelError> {
    let events = events(model, hello())?;
    let Some(Event::Done { finish, usage }) = events.last() else { panic!("no end: {events:?}") };
    let texts = events.iter().filter_map(|event| match event {
        Event::Text { text } => Some(text.as_str()),
        _ => None,
    });
    Ok((texts.collect(), *finish, usage.clone()))
}

/// Returns the model's error, and the hint.
fn failure(server: &Server, options: Options, request: Request) -> (String, String) {
    let error = events(&endpoint(server, options), request).unwrap_err();
    let cause = error.cause().downcast_ref::<EndpointError>().unwrap();
    let hint = cause.hint().unwrap_or_default();
    (cause.to_string().replace(&server.url, "URL"), hint.replace(&server.url, "URL"))
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn streams_however_they_are_cut() {
    let usage =
        json!({"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}});
    let chunks = [text("Grüße"), text(" 🦀"), text("!"), end("stop"), json!({"choices": [], "usage": usage})];
    let mut stream = ": alive\n\n".to_owned();
    stream.extend(chunks.iter().map(|chunk| format!("data: {chunk}\n\n")));
    stream += "data: [DONE]\n\n";
    let check = |stream: &str, size: usize| {
        let pieces = stream.as_bytes().chunks(size).map(|bytes| Piece::Bytes(bytes.to_vec()));
        let server = Server::answering([Answer::stream(pieces)]);
        let (text, finish, usage) = answer(&endpoint(&server, options())).unwrap();
        assert_eq!((text.as_str(), finish), ("Grüße 🦀!", Finish::Stop), "in pieces of {size}");
        assert_eq!((usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens), (7, 2, 3));
        assert!(usage.time_to_first_token > Duration::ZERO);
    };
    for size in [1, 2, 3, 7, 64, 100_000] {
        check(&stream, size);
        check(&stream.replace('\n', "\r\n"), size);
    }
    // Some servers end without a mark.
    check(stream.trim_end_matches("data: [DONE]\n\n"), 64);
}

#[test]
fn answers_that_are_not_streamed() {
    let message = json!({"role": "assistant", "content": "Hi", "reasoning_content": "hm"});
    let whole = json!({
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 1},
    });
    let check = |answer: Answer| {
        let server = Server::answering([answer]);
        let events = events(&endpoint(&server, options()), hello()).unwrap();
        assert_eq!(events[..2], [Event::Reasoning { text: "hm".into() }, Event::Text { text: "Hi".into() }]);
        assert!(
            matches!(&events[2], Event::Done { finish: Finish::Stop, usage } if usage.prompt_tokens == 7)
        );
    };
    check(Answer::json(200, &whole));
    check(Answer::stream(whole.to_string().bytes().map(|byte| Piece::Bytes(vec![byte]))));
    check(Answer::new(200, format!("\n {whole:#}\n")));
}

#[test]
fn what_is_asked_for() {
    let server =
        Server::answering([Answer::events(&[text("a"), end("stop")]), Answer::events(&[end("stop")])]);
    let options = Options { key: Key::new("hunter2").unwrap(), thinking: Some(false), ..options() };
    for url in [format!("{}/v1#m", server.url), format!("{}#m", server.url)] {
        let model = Endpoint::new(url.parse().unwrap(), options.clone()).unwrap();
        assert_eq!(model.name(), format!("{}/v1#m", server.url));
        assert!(!format!("{model:?}").contains("hunter2"));
        events(&model, with_tool()).unwrap();
    }
    let received = server.received();
    assert_eq!(received.len(), 2);
    for request in received {
        assert_eq!(request.line, "POST /v1/chat/completions HTTP/1.1\r\n");
        assert_eq!(request.key.as_deref(), Some("Bearer hunter2"));
        let body = request.body;
        assert_eq!((&body["model"], &body["stream"]), (&json!("m"), &json!(true)));
        assert_eq!(body["messages"], json!([{"role": "user", "content": "hello"}]));
        assert_eq!(body["tools"][0]["function"]["name"], "f");
        assert_eq!(body["chat_template_kwargs"]["enable_thinking"], false);
    }
}

#[test]
fn calls_native_and_in_the_generic_format() {
    let native = [call("c7", "f", "{\"a\""), call("c7", "", ": 1}"), end("tool_calls")];
    let generic = [
        text("<tool_"),
        text("call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"),
        end("stop"),
    ];
    let check = |answer: Answer, generic: bool, id: &str| {
        let server = Server::answering([answer]);
        let events = events(
            &endpoint(&server, Options { format: generic.then(Format::generic), ..options() }),
            with_tool(),
        )
        .unwrap();
        let [.., Event::ToolCall(call), Event::Done { finish: Finish::ToolCalls, .. }] = events.as_slice()
        else {
            panic!("{events:?}");
        };
        let arguments = Value::from(call.arguments.clone());
        assert_eq!((call.id.as_str(), call.name.as_str(), arguments), (id, "f", json!({"a": 1})));
        let body = &server.received()[0].body;
        assert_eq!(body.get("tools").is_some(), !generic);
        assert_eq!(body["messages"][0]["role"] == "system", generic);
    };
    check(Answer::events(&native), false, "c7");
    check(Answer::events(&generic), true, "call_0");
}

#[test]
fn what_may_pass_is_tried_again() {
    let good = || Answer::events(&[text("Hi"), end("stop")]);
    let refused = |status| Answer::json(status, &json!({"error": {"message": "later"}}));
    let check = |answers: Vec<Answer>, requests: usize| {
        let server = Server::answering(answers);
        let (text, ..) = answer(&endpoint(&server, options())).unwrap();
        assert_eq!((text.as_str(), server.received().len()), ("Hi", requests));
        server.received()
    };
    check(vec![refused(429), good()], 2);
    check(vec![refused(503), refused(500), refused(529), good()], 4);
    check(vec![Answer::none(Piece::Cut), good()], 2);
    // Headers, a comment, half an event: nothing that has reached the caller.
    let begun = |last: Piece| Answer::stream([Piece::Bytes(b": alive\n\ndata: {\"choi".to_vec()), last]);
    check(vec![begun(Piece::Cut), good()], 2);
    check(vec![Answer::stream([Piece::Bytes(b": alive\n\n".to_vec())]), good()], 2);

    // Each delay is twice the one before, or as long as the server requests.
    let received =
        check(vec![refused(503), refused(503), refused(429).header("Retry-After", "0.2"), good()], 4);
    let waits: Vec<Duration> = received.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    for (wait, least) in waits.iter().zip([5, 10, 200]) {
        assert!(*wait >= Duration::from_millis(least), "{waits:?}");
    }
}

#[test]
fn what_does_not_pass_is_told() {
    let error = |status, message: &str| Answer::json(status, &json!({"error": {"message": message}}));
    let check = |answers: &[Answer], requests: usize, expected: (&str, &str)| {
        let server = Server::answering(answers.to_vec()).with_models(&["a", "b"]);
        let key = Key::new("hunter2").unwrap();
        let (message, hint) = failure(&server, Options { key, ..options() }, with_tool());
        assert_eq!((message.as_str(), server.received().len()), (expected.0, requests));
        assert!(hint.contains(expected.1) && hint.is_empty() == expected.1.is_empty(), "{hint}");
    };
    let busy = vec![error(503, "loading"); 4];
    check(&busy, 4, ("URL/v1 answers 503: loading", ""));
    let later = error(429, "slow down").header("Retry-After", "3600");
    check(&[later], 1, ("URL/v1 answers 429 and wants to be asked again in 3600 s: slow down", ""));
    let quota = Answer::json(429, &json!({"error": {"message": "pay", "code": "insufficient_quota"}}));
    check(&[quota], 1, ("URL/v1 answers 429: pay", ""));
    let unauthorized = error(401, "no such key: hunter2\nsee elsewhere");
    check(
        &[unauthorized],
        1,
        ("URL/v1 refuses the API key: no such key: *** see elsewhere", "ALARA_API_KEY"),
    );
    check(&[error(404, "no model m")], 1, ("there is no model m at URL/v1 (known: a, b)", "-m URL/v1#a"));
    let long = error(400, "This model's maximum context length is 8192 tokens.");
    let notes = "the conversation does not fit the model's context: This model's maximum context length is 8192 tokens.";
    check(&[long], 1, (notes, "more context"));
    let tools = Answer::json(400, &json!({"error": "m does not support tools"}));
    check(&[tools], 1, ("URL/v1 can't serve tools: m does not support tools", "--tool-format generic"));
    check(&[Answer::new(400, "Bad Request")], 1, ("URL/v1 answers 400: Bad Request", ""));
    let moved = Answer::new(301, "").header("Location", "https://elsewhere.example/v1");
    check(&[moved], 1, ("URL/v1 answers 301: https://elsewhere.example/v1", ""));
    let page = Answer::new(200, "<html>\n<title>Log in</title>\n</html>\n");
    let notes = "URL/v1 does not answer as an OpenAI-compatible API does: there are no events in its answer";
    check(&[page], 1, (notes, "is this the API's address?"));
    let broken = Answer::stream([Piece::Bytes(b"data: {\"choices\": 1}\n\n".to_vec())]);
    let notes = "URL/v1 does not answer as an OpenAI-compatible API does: invalid type: integer `1`, expected a sequence at \
        line 1 column 13 in \"{\\\"choices\\\": 1}\"";
    check(&[broken], 1, (notes, "is this the API's address?"));
    let failed = Answer::events(&[text("Hi"), json!({"error": {"message": "out of memory"}})]);
    check(&[failed], 1, ("URL/v1 failed while it answered: out of memory", ""));
    let filtered = Answer::events(&[text("Hi"), end("content_filter")]);
    check(&[filtered], 1, ("the content filter of URL/v1 ended the answer", ""));
}

#[test]
fn a_key_that_is_missing() {
    let server = Server::answering([Answer::new(401, "")]);
    let (message, hint) = failure(&server, options(), hello());
    assert_eq!(message, "URL/v1 wants an API key");
    assert!(hint.contains("ALARA_API_KEY"), "{hint}");
}

#[test]
fn an_answer_that_breaks_off_is_not_asked_for_again() {
    for last in [vec![Piece::Cut], vec![]] {
        let pieces = [vec![event(&text("Hi"))], last].concat();
        let server =
            Server::answering([Answer::stream(pieces), Answer::events(&[text("again"), end("stop")])]);
        let mut notes = String::new();
        let model = endpoint(&server, options());
        let mut events = model.chat(hello()).unwrap();
        let error = loop {
            match events.next().unwrap() {
                Ok(Event::Text { text }) => notes += &text,
                Ok(event) => panic!("{event:?}"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("broke off"), "{error}");
        assert!(events.next().is_none());
        assert_eq!((notes.as_str(), server.received().len()), ("Hi", 1));
    }
}

#[test]
fn nobody_there() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut server = Server::answering([]);
    server.url = format!("http://{unused}");
    let begun = Instant::now();
    let (message, hint) = failure(&server, Options { backoff: Duration::from_secs(9), ..options() }, hello());
    assert!(message.starts_with("no server answers at URL/v1: "), "{message}");
    assert!(hint.contains("is the server running"), "{hint}");
    assert!(begun.elapsed() < Duration::from_secs(8), "who never answered is not waited for");
}

#[test]
fn silence_has_an_end() {
    let brief = |first_byte, idle| Options {
        first_byte: Duration::from_millis(first_byte),
        idle: Duration::from_millis(idle),
        ..options()
    };
    let check = |answer: Answer, options: Options| {
        let server = Server::answering([answer]);
        let begun = Instant::now();
        let (message, _) = failure(&server, options, hello());
        assert_eq!(message, "nothing came from URL/v1 for 1 s");
        assert!((1000..15_000).contains(&begun.elapsed().as_millis()));
        wait_until("the connection is closed", || server.closed() == 1);
        assert_eq!(server.received().len(), 1, "who works on it is not asked again");
    };
    check(Answer::none(Piece::Hang), brief(1100, 60_000));
    check(Answer::stream([Piece::Hang]), brief(1100, 60_000));
    check(Answer::stream([event(&text("Hi")), Piece::Hang]), brief(60_000, 1100));
    // Comments don't count as silence.
    let alive = [Piece::Pause(Duration::from_millis(300)), Piece::Bytes(b": alive\n\n".to_vec())];
    let slow = std::iter::repeat_n(alive, 10).flatten();
    let slow = [event(&text("Hi"))].into_iter().chain(slow).chain([event(&end("stop"))]);
    let server = Server::answering([Answer::stream(slow)]);
    let (text, ..) = answer(&endpoint(&server, brief(60_000, 2500))).unwrap();
    assert_eq!(text, "Hi");
}

#[test]
fn dropping_the_events_closes_the_connection() {
    let check = |answer: Answer, events: usize| {
        let server = Server::answering([answer]);
        let model = endpoint(&server, options());
        let mut turn = model.chat(hello()).unwrap();
        wait_until("the request is there", || server.received().len() == 1);
        for _ in 0..events {
            turn.next().unwrap().unwrap();
        }
        let begun = Instant::now();
        drop(turn);
        wait_until("the connection is closed", || server.closed() == 1);
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(server.received().len(), 1);
    };
    check(Answer::none(Piece::Hang), 0);
    // While waiting, the caller gets regular events without content.
    check(Answer::none(Piece::Hang), 3);
    check(Answer::stream([Piece::Hang]), 1);
    check(Answer::stream([event(&text("Hi")), Piece::Hang]), 4);
}

#[test]
fn dropping_the_events_ends_the_wait_for_another_try() {
    let server = Server::answering([Answer::new(503, ""), Answer::events(&[end("stop")])]);
    let model = endpoint(&server, Options { backoff: Duration::from_millis(300), ..options() });
    let mut turn = model.chat(hello()).unwrap();
    wait_until("the first try is over", || server.received().len() == 1);
    assert_eq!(turn.next().unwrap().unwrap(), Event::Text { text: String::new() });
    drop(turn);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(server.received().len(), 1);
}

#[test]
fn the_only_model_needs_no_name() {
    let check = |models: &[&str], expected: Result<&str, (&str, &str)>| {
        let server = Server::answering([]).with_models(models);
        let made = Endpoint::new(server.url.parse().unwrap(), options());
        let notes = made.map(|model| model.name().replace(&server.url, "URL")).map_err(|error| {
            let hint = error.hint().unwrap_or_default().replace(&server.url, "URL");
            (error.to_string().replace(&server.url, "URL"), hint)
        });
        assert_eq!(notes.as_ref().map(String::as_str).map_err(|(a, b)| (a.as_str(), b.as_str())), expected);
    };
    check(&["org/only"], Ok("URL/v1#org/only"));
    check(&["a", "b"], Err(("URL/v1 serves several models: a, b", "-m URL/v1#a")));
    check(&[], Err(("URL/v1 serves no model", "")));
}

/// A directory in which to run `alara`.
struct TestDir(tempfile::TempDir);

impl TestDir {
    fn new() -> TestDir {
        TestDir(tempfile::tempdir().unwrap())
    }

    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = crate::alara();
        command
            .args([&["run", "--workdir", ".", "--trace", "t.jsonl"], arguments].concat())
            .current_dir(self.0.path())
            .env("HOME", "/nonexistent")
            .env("XDG_STATE_HOME", self.0.path())
            .env_remove("OPENAI_API_KEY")
            .env("ALARA_API_KEY", "hunter2")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn trace(&self) -> String {
        std::fs::read_to_string(self.0.path().join("t.jsonl")).unwrap()
    }
}

fn streams(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_task_at_an_endpoint() {
    let touch = json!({"command": "echo seven > f; cat f"}).to_string();
    // Forced, because the prompt describes the tools, and therefore constrained by a schema.
    let generic = json!({"name": "shell", "arguments": {"command": "echo seven > f; cat f"}}).to_string();
    for (format, first) in [("", call("c1", "shell", &touch)), ("house", text(&generic))] {
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 5}});
        let first = Answer::events(&[first, end("tool_calls"), usage.clone()]);
        let second = Answer::events(&[text("It is"), text(" seven."), end("stop"), usage]);
        let server = Server::answering([Answer::new(503, ""), first, second]);
        let dir = TestDir::new();
        let url = format!("{}/v1#x", server.url);
        let format: &[&str] = if format.is_empty() { &[] } else { &["--tool-format", format] };
        let output = dir.run(&[&["-m", &url], format, &["do", "it"]].concat()).output().unwrap();
        let (code, out, err) = streams(&output);
        assert_eq!((code, out.as_str()), (0, "It is seven.\n"), "{err}");
        assert!(err.contains("> shell  command: echo seven > f; cat f  ok, "), "{err}");
        assert!(err.contains("2 turns, 1 tool call; 80 prompt tokens (0 cached), 10 generated"), "{err}");
        let received = server.received();
        assert_eq!(received.len(), 3);
        let last = received[2].body["messages"].as_array().unwrap().last().unwrap();
        assert!(last["content"].as_str().unwrap().contains("seven"), "{last}");
        assert_eq!(received[2].key.as_deref(), Some("Bearer hunter2"));
        let trace = dir.trace();
        assert!(trace.contains(&format!("\"model\":\"{url}\"")) && !trace.contains("hunter2"), "{trace}");
    }
}

/// Runs a task with these answers; returns the exit code, stdout, stderr, and the endpoint's last
/// requests.
fn task(answers: &[Vec<Value>]) -> (i32, String, String, Vec<Value>) {
    let server = Server::answering(answers.iter().map(|chunks| Answer::events(chunks)));
    let dir = TestDir::new();
    std::fs::write(dir.0.path().join("there"), "").unwrap();
    let (code, out, err) =
        streams(&dir.run(&["-m", &format!("{}/v1#x", server.url), "do", "it"]).output().unwrap());
    let last = server.received().pop().unwrap();
    (code, out, err, last.body["messages"].as_array().unwrap().clone())
}

#[test]
fn arguments_that_do_not_parse_are_answered_and_the_run_goes_on() {
    let check = |arguments: &str, reason: &str| {
        let (code, out, err, sent) = task(&[
            vec![call("c1", "shell", arguments), end("tool_calls")],
            vec![text("I see."), end("stop")],
        ]);
        assert_eq!((code, out.as_str()), (0, "I see.\n"), "{arguments}: {err}");
        let [.., reply, result] = sent.as_slice() else { panic!("{sent:?}") };
        let shown: Value =
            serde_json::from_str(reply["tool_calls"][0]["function"]["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(shown, json!({"unreadable arguments": arguments}));
        assert_eq!(result["tool_call_id"], "c1");
        let notes = format!("not run: the arguments of `shell` are no JSON object: {reason}");
        assert!(result["content"].as_str().unwrap().contains(&notes), "{result}");
        assert!(err.contains(&notes), "{err}");
    };
    check(r#"{"command": "touch f",}"#, "trailing comma at line 1 column 23");
    check(r#"{"command": "touch f"} now"#, "trailing characters at line 1 column 24");
    check("[]", "they are a list");
    check("{'command': 'touch f'}", "key must be a string");
    check(r#"{"command": "touch"#, "EOF while parsing a string");
}

#[test]
fn arguments_that_are_encoded_twice_are_unwrapped() {
    let twice = json!(json!({"command": "echo seven"}).to_string()).to_string();
    let (code, _, err, sent) = task(&[
        vec![call("c1", "functions.shell", &twice), end("tool_calls")],
        vec![text("ok"), end("stop")],
    ]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("> shell  command: echo seven  ok, "), "{err}");
    assert_eq!(sent.last().unwrap()["content"], r#"{"ok":true,"output":"seven"}"#);
}

#[test]
fn a_call_that_an_endpoint_gives_as_text_is_run_and_told() {
    let written = json!({"name": "shell", "arguments": {"command": "ls"}});
    let written = format!("<tool_call>\n{written}\n</tool_call>");
    let (code, out, err, sent) =
        task(&[vec![text(&written), end("stop")], vec![text("There is one."), end("stop")]]);
    assert_eq!((code, out.as_str()), (0, "There is one.\n"), "{err}");
    assert!(err.contains("warning: the model wrote its call of shell as text"), "{err}");
    assert!(err.contains("--tool-format generic"), "{err}");
    let [.., reply, result] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(
        (&reply["content"], &reply["tool_calls"][0]["function"]["name"]),
        (&json!(""), &json!("shell"))
    );
    assert!(result["content"].as_str().unwrap().contains("there"), "{result}");
}

#[test]
fn what_looks_like_a_call_in_a_text_is_no_silent_answer() {
    let written = "<tool_call>{\"name\": \"shell\", \"arguments\": {\"command\": \"ls}}</tool_call>";
    let (code, out, err, sent) =
        task(&[vec![text(written), end("stop")], vec![text("Nothing to do."), end("stop")]]);
    assert_eq!((code, out.as_str()), (0, "Nothing to do.\n"), "{err}");
    assert!(err.contains("warning: the model wrote something like a call into its text"), "{err}");
    let hint = sent.last().unwrap();
    assert_eq!(hint["role"], "user");
    assert!(hint["content"].as_str().unwrap().starts_with("Nothing was run"), "{hint}");
}

#[test]
fn what_people_see_of_an_endpoint_that_refuses() {
    let server = Server::answering([Answer::new(401, "bad key hunter2")]).with_models(&["a", "b"]);
    let dir = TestDir::new();
    let (code, _, err) = streams(&dir.run(&["-m", &format!("{}#x", server.url), "hi"]).output().unwrap());
    assert_eq!(code, 2);
    assert!(err.contains("/v1 refuses the API key: bad key ***\nhint: the key is taken from"), "{err}");
    assert!(!err.contains("hunter2") && !dir.trace().contains("hunter2"), "{err}");

    let dir = TestDir::new();
    let (code, _, err) = streams(&dir.run(&["-m", &server.url, "hi"]).output().unwrap());
    assert_eq!(code, 2);
    assert!(err.contains("serves several models: a, b\nhint: -m http://127.0.0.1:"), "{err}");
}

/// Runs a task with a team of one NPC with these lines; returns the endpoint's requests.
fn asked_by_a_team(server: &Server, lines: &str) -> (Vec<server::Received>, String) {
    let dir = TestDir::new();
    std::fs::create_dir(dir.0.path().join("team")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.0.path().join("team").join(name), text).unwrap();
    write("team.ctx", "forenpc: one\n");
    write("one.npc", &format!("name: one\nprimary_directive: Answer.\njinxes: []\n{lines}"));
    let mut command = dir.run(&["-t", "./team", "--yes", "hi"]);
    let (code, out, err) = streams(&command.env("TEAM_KEY", "seesaw").output().unwrap());
    assert_eq!((code, out.as_str()), (0, "Hi\n"), "{err}");
    assert!(!err.contains("seesaw") && !dir.trace().contains("seesaw"), "{err}");
    (server.received(), err)
}

#[test]
fn a_team_names_an_endpoint_but_gets_no_key_of_the_users() {
    let check = |lines: &str, expected: Option<&str>| {
        let server = Server::answering([Answer::events(&[text("Hi"), end("stop")])]);
        let (received, notes) = asked_by_a_team(&server, &lines.replace("URL", &server.url));
        assert_eq!(received[0].key.as_deref(), expected, "{lines}");
        assert_eq!(received[0].body["model"], "x");
        assert_eq!(notes.contains("127.0.0.1 gets the key in TEAM_KEY"), expected.is_some(), "{notes}");
    };
    check("model: URL/v1#x\n", None);
    check("model: x\napi_url: URL\n", None);
    check("model: x\napi_url: URL/v1\napi_key: $TEAM_KEY\nprovider: openai-like\n", Some("Bearer seesaw"));
}

#[test]
#[cfg(unix)]
fn an_interrupt_leaves_an_endpoint_that_is_silent() {
    let server = Server::answering([Answer::none(Piece::Hang)]);
    let dir = TestDir::new();
    let child = dir.run(&["-m", &format!("{}#x", server.url), "hi"]).spawn().unwrap();
    wait_until("the request is there", || server.received().len() == 1);
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let (code, _, err) = streams(&child.wait_with_output().unwrap());
    assert_eq!(code, 130, "{err}");
    wait_until("the connection is closed", || server.closed() == 1);
    assert!(dir.trace().contains("\"cancelled\""), "{}", dir.trace());
}

#[test]
fn an_endpoint_that_goes_away_is_no_failed_task() {
    let answers = [
        Answer::events(&[call("c1", "shell", "{\"command\": \"true\"}"), end("stop")]),
        Answer::new(401, ""),
    ];
    let server = Server::answering(answers);
    let dir = TestDir::new();
    let task = json!({
        "id": "t-1", "category": "test", "difficulty": "easy", "instruction": "Do it.", "verify": "false", "gold": "true",
    });
    std::fs::write(dir.0.path().join("t.yaml"), task.to_string()).unwrap();
    let mut bench = crate::alara();
    let url = format!("{}/v1#x", server.url);
    bench.args(["bench", "tasks", "t.yaml", "-m", &url, "--out", "run.jsonl"]).current_dir(dir.0.path());
    let (code, _, err) = streams(&bench.stdin(Stdio::null()).output().unwrap());
    assert_eq!(code, 0, "{err}");
    let run = std::fs::read_to_string(dir.0.path().join("run.jsonl")).unwrap();
    let records: Vec<Value> = run.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records[0]["model"], json!({"name": url, "hash": ""}));
    let task = records.last().unwrap();
    assert_eq!(task["verdict"], "error", "{task}");
    assert!(task["reason"].as_str().unwrap().contains("wants an API key"), "{task}");
}
