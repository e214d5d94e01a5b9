//! The wire formats from outside, with the model that ships.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::LazyLock;
use std::time::{Instant, SystemTime};

use alara_engine::Engine;
use alara_engine::Gguf;
use alara_harness::model::Loaded;
use alara_harness::team::Rule;
use alara_harness::{ChatModel, Npc, Verdict};
use serde_json::{Value, json};

use super::*;

mod tokens;

/// The clients' name of the model that ships.
pub const MODEL: &str = "alara-tiny.gguf";

/// A workplace with this model.
struct Tiny(Engine);

impl ModelSource for Tiny {
    fn model(&self, _: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        Ok(Arc::new(&self.0))
    }

    fn loaded(&self) -> Vec<Loaded> {
        let context = Some(self.0.context());
        let (since, used) = (SystemTime::now(), Instant::now());
        vec![Loaded { spec: ModelSpec::default(), bytes: 1, context, cached: None, since, used, busy: false }]
    }
}

impl Workplace for Tiny {
    fn models(&self) -> &dyn ModelSource {
        self
    }

    fn team(&self) -> Option<Team> {
        None
    }

    fn sandbox(&self, _: &Team) -> Result<Sandbox, alara_harness::Error> {
        Ok(Sandbox::new(&std::env::temp_dir(), alara_harness::Policy::default())?)
    }

    fn equip<'a>(&self, session: Session<'a>) -> Result<Session<'a>, alara_harness::Error> {
        Ok(session)
    }
}

/// A server shared by all of these tests; it ends with the process.
static ADDRESS: LazyLock<SocketAddr> = LazyLock::new(|| serve("models/alara-tiny.gguf", None));

/// A second one, whose model is an encoder.
static ENCODER: LazyLock<SocketAddr> = LazyLock::new(|| serve("tests/fixtures/embedding/bert.gguf", None));

/// Starts a server for the model in `file`, with this context.
pub fn serve(file: &str, context: Option<usize>) -> SocketAddr {
    let file = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
    let options = alara_engine::Options { parallel: 4, context, ..alara_engine::Options::default() };
    let engine = Engine::load(&Gguf::open(file.as_ref()).unwrap(), &options).unwrap();
    let options = Options {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        aliases: vec!["small".into()],
        parallel: 4,
        ..Options::default()
    };
    let team = Team {
        npcs: vec![Npc { name: "clerk".into(), directive: "You are clerk.".into(), ..Npc::default() }],
        rules: vec![Rule {
            pattern: "get_secret".into(),
            verdict: Verdict::Deny,
            by: "a rule".into(),
            inherited: false,
        }],
        ..Team::default()
    };
    let server = Server::new(Arc::new(Tiny(engine)), team, ModelSpec::default(), &options).unwrap();
    let address = server.address();
    std::thread::spawn(move || server.run());
    address
}

/// Returns status, head and body of a response.
pub fn ask(method: &str, path: &str, headers: &str, body: &str) -> (u16, String, String) {
    ask_at(*ADDRESS, method, path, headers, body)
}

/// Like [`ask`], for the server at `address`.
pub fn ask_at(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{said:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

fn get(path: &str) -> Value {
    let (status, _, body) = ask("GET", path, "", "");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// Returns the response to a request that succeeds.
#[allow(clippy::needless_pass_by_value, reason = "bodies are written where they are passed")]
pub fn post(path: &str, body: Value) -> Value {
    let (status, _, body) = ask("POST", path, "", &body.to_string());
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn all_formats_give_the_same_answer() {
    let said = "Write the word hello.";
    let openai = post(
        "/v1/chat/completions",
        json!({"model": MODEL, "temperature": 0, "max_tokens": 20, "messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": said},
        ]}),
    );
    let text = openai["choices"][0]["message"]["content"].as_str().unwrap();
    let usage = (openai["usage"]["prompt_tokens"].as_u64(), openai["usage"]["completion_tokens"].as_u64());
    assert!(!text.is_empty());
    let responses = post(
        "/v1/responses",
        json!({"model": MODEL, "temperature": 0, "max_output_tokens": 20, "instructions": "Be brief.", "input": said}),
    );
    assert_eq!(responses["output"][0]["content"][0]["text"], text, "{responses}");
    let counts = (responses["usage"]["input_tokens"].as_u64(), responses["usage"]["output_tokens"].as_u64());
    assert_eq!(counts, usage);
    let body = json!({
        "model": MODEL, "temperature": 0, "max_tokens": 20, "system": "Be brief.",
        "messages": [{"role": "user", "content": said}],
    });
    let anthropic = post("/v1/messages", body.clone());
    assert_eq!(anthropic["content"][0]["text"], text, "{anthropic}");
    let count = |name: &str| anthropic["usage"][name].as_u64().unwrap();
    let counts = (count("input_tokens") + count("cache_read_input_tokens"), count("output_tokens"));
    assert_eq!((Some(counts.0), Some(counts.1)), usage);
    assert_eq!(post("/v1/messages/count_tokens", body)["input_tokens"].as_u64(), usage.0);
    let options = json!({"temperature": 0, "num_predict": 20, "repeat_penalty": 1, "top_k": 0, "top_p": 1});
    let ollama = post(
        "/api/generate",
        json!({"model": format!("{MODEL}:latest"), "stream": false, "system": "Be brief.", "prompt": said, "options": options}),
    );
    assert_eq!((&ollama["response"], &ollama["model"]), (&json!(text), &json!(MODEL)), "{ollama}");
    assert_eq!((ollama["prompt_eval_count"].as_u64(), ollama["eval_count"].as_u64()), usage);
}

#[test]
fn all_formats_make_the_same_call() {
    let parameters =
        json!({"type": "object", "properties": {"path": {"enum": ["a.txt", "b.txt"]}}, "required": ["path"]});
    let said = json!([{"role": "user", "content": "what is in b.txt?"}]);
    let function =
        json!({"name": "read_file", "description": "Return a file's text", "parameters": parameters});
    let tool = json!({"type": "function", "function": function});
    let openai = post(
        "/v1/chat/completions",
        json!({"model": MODEL, "messages": said, "tools": [tool], "temperature": 0, "parallel_tool_calls": false,
            "tool_choice": "required"}),
    );
    let call = &openai["choices"][0]["message"]["tool_calls"][0];
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    let mut flat = function.clone();
    flat["type"] = "function".into();
    let responses = post(
        "/v1/responses",
        json!({"model": MODEL, "input": said, "tools": [flat], "temperature": 0, "parallel_tool_calls": false,
            "tool_choice": "required"}),
    );
    let item =
        responses["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call").unwrap();
    assert_eq!((&item["arguments"], &item["call_id"]), (&call["function"]["arguments"], &call["id"]));
    let anthropic = post(
        "/v1/messages",
        json!({"model": MODEL, "max_tokens": 200, "messages": said, "temperature": 0,
            "tools": [{"name": "read_file", "description": "Return a file's text", "input_schema": parameters}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true}}),
    );
    let block =
        anthropic["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use").unwrap();
    assert_eq!((&block["input"], &anthropic["stop_reason"]), (&arguments, &json!("tool_use")));
    // The next request continues it by its id.
    let next = post(
        "/v1/responses",
        json!({"model": MODEL, "previous_response_id": responses["id"], "max_output_tokens": 5, "tools": [flat],
            "input": [{"type": "function_call_output", "call_id": item["call_id"], "output": "It says seven."}]}),
    );
    assert!(next["usage"]["input_tokens"].as_u64() > responses["usage"]["input_tokens"].as_u64(), "{next}");
    let kept = format!("/v1/responses/{}", responses["id"].as_str().unwrap());
    assert_eq!(get(&kept), responses);
    assert_eq!(ask("DELETE", &kept, "", "").0, 200);
    assert_eq!(ask("GET", &kept, "", "").0, 404);
}

#[test]
fn streams_end_as_their_clients_expect() {
    let said = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": "small", "messages": said, "stream": true, "max_tokens": 5, "input": "hi", "prompt": "hi"});
    let check = |path: &str, kind: &str, ends: &str| {
        let (status, head, body) = ask("POST", path, "", &body.to_string());
        assert_eq!(status, 200, "{body}");
        assert!(head.contains(&format!("content-type: {kind}")), "{head}");
        assert!(body.contains(ends), "{path}: {body}");
    };
    check("/chat/completions", "text/event-stream", "data: [DONE]");
    check("/v1/completions", "text/event-stream", "data: [DONE]");
    check("/v1/responses", "text/event-stream", "event: response.");
    check("/v1/messages", "text/event-stream", "event: message_stop");
    check("/api/chat", "application/x-ndjson", "\"done\":true");
    check("/api/generate", "application/x-ndjson", "\"done\":true");
}

#[test]
fn texts_go_on_without_a_template() {
    let body = post(
        "/v1/completions",
        json!({"model": MODEL, "prompt": "Once upon", "max_tokens": 4, "echo": true, "temperature": 0}),
    );
    let choice = &body["choices"][0];
    assert!(choice["text"].as_str().unwrap().starts_with("Once upon"), "{body}");
    let tokens = post("/tokenize", json!({"content": "Once upon", "add_special": true}))["tokens"].clone();
    assert_eq!(body["usage"]["prompt_tokens"].as_u64(), Some(tokens.as_array().unwrap().len() as u64));
    let both = post(
        "/v1/completions",
        json!({"model": MODEL, "prompt": ["Once upon", "Once upon"], "max_tokens": 4, "temperature": 0}),
    );
    assert_eq!(both["choices"][0]["text"], both["choices"][1]["text"]);
    assert_eq!(both["usage"]["completion_tokens"], 8);
    // A schema applies there too, and text that would contain a stop text is cut.
    let schema = json!({"type": "object", "properties": {"answer": {"const": "a END b"}}, "required": ["answer"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"schema": schema}});
    let body = post(
        "/v1/chat/completions",
        json!({"model": MODEL, "response_format": format, "stop": ["END"], "messages": [{"role": "user", "content": "x"}]}),
    );
    let choice = &body["choices"][0];
    let text = choice["message"]["content"].as_str().unwrap();
    assert!(text.ends_with("a ") && choice["finish_reason"] == "stop", "{body}");
}

#[test]
fn native_routes() {
    let tokens = post("/tokenize", json!({"content": "Hello there.", "with_pieces": true}));
    let ids: Vec<&Value> = tokens["tokens"].as_array().unwrap().iter().map(|token| &token["id"]).collect();
    assert_eq!(post("/detokenize", json!({"tokens": ids}))["content"], "Hello there.");
    assert_eq!(ask("POST", "/detokenize", "", "{\"tokens\": [99999999]}").0, 400);
    let prompt = post("/apply-template", json!({"messages": [{"role": "user", "content": "Hello there."}]}));
    assert!(prompt["prompt"].as_str().unwrap().contains("Hello there."));
    let props = get("/props");
    assert_eq!((&props["total_slots"], &props["model_alias"]), (&json!(4), &json!(MODEL)));
    assert_eq!(get("/slots").as_array().unwrap().len(), 4);
    assert_eq!(get("/health"), json!({"status": "ok"}));
    let (status, head, body) = ask("GET", "/metrics", "", "");
    assert_eq!(status, 200);
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("# TYPE alara_requests_total counter\nalara_requests_total "), "{body}");
}

#[test]
fn an_npc_works_over_the_clients_tools() {
    let function = |name: &str| {
        let parameters = json!({"type": "object", "properties": {"name": {"enum": ["a", "b"]}}, "required": ["name"], "additionalProperties": false});
        json!({"type": "function", "function": {"name": name, "description": "Gives something", "parameters": parameters}})
    };
    let said = json!([{"role": "user", "content": "Call get_secret with the name a."}]);
    let tools = json!([function("get_secret"), function("get_word")]);
    let prompt = |body: Value| post("/apply-template", body)["prompt"].as_str().unwrap().to_owned();
    let plain = prompt(json!({"model": MODEL, "messages": said}));
    let own = prompt(json!({"model": "clerk", "messages": said}));
    let with_tools = prompt(json!({"model": "clerk", "messages": said, "tools": tools}));
    assert!(!plain.contains("You are clerk.") && own.contains("You are clerk."), "{own}");
    // The name occurs only in the user's message.
    assert_eq!(with_tools.matches("get_secret").count(), 1, "{with_tools}");
    assert!(with_tools.contains("You are clerk.") && with_tools.contains("get_word"), "{with_tools}");
    let count = |model: &str| {
        let body = post("/v1/messages/count_tokens", json!({"model": model, "messages": said}));
        body["input_tokens"].as_u64().unwrap()
    };
    assert!(count("clerk") > count(MODEL));
    // A tool denied by a rule can't be called, whatever the request.
    let body = post(
        "/v1/chat/completions",
        json!({"model": "clerk", "messages": said, "tools": tools, "tool_choice": "required", "max_tokens": 200}),
    );
    let calls = body["choices"][0]["message"]["tool_calls"].as_array().unwrap_or_else(|| panic!("{body}"));
    assert!(!calls.is_empty() && calls.iter().all(|call| call["function"]["name"] == "get_word"), "{body}");
}

#[test]
fn models_are_told_as_each_client_reads_them() {
    let list = get("/v1/models");
    assert_eq!((&list["data"][0]["id"], &list["data"][0]["type"]), (&json!(MODEL), &json!("model")));
    assert!(list["data"][0]["max_model_len"].as_u64().unwrap() > 0);
    assert_eq!(get("/models/small")["id"], "small");
    assert_eq!(ask("GET", "/v1/models/gpt-4", "", "").0, 404);
    assert_eq!(get("/api/tags")["models"][0]["name"], MODEL);
    assert_eq!(get("/api/ps")["models"][0]["context_length"], list["data"][0]["max_model_len"]);
    let show = post("/api/show", json!({"model": "small"}));
    assert_eq!(show["capabilities"], json!(["completion", "tools"]));
    assert!(get("/api/version")["version"].is_string());
    assert_eq!(post("/api/pull", json!({"model": MODEL, "stream": false})), json!({"status": "success"}));
    assert_eq!(ask("POST", "/api/pull", "", "{\"model\": \"other\"}").0, 403);
    assert_eq!(ask("DELETE", "/api/delete", "", "{\"model\": \"small\"}").0, 403);
    assert_eq!(post("/api/chat", json!({"model": MODEL}))["done_reason"], "load");
}

#[test]
fn all_formats_give_the_same_vectors() {
    let texts = json!(["the house in the forest", "a cat"]);
    let openai = post("/v1/embeddings", json!({"model": MODEL, "input": texts}));
    let vectors: Vec<&Value> = (0..2).map(|index| &openai["data"][index]["embedding"]).collect();
    let numbers: Vec<f64> = vectors[0].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    let length = numbers.iter().map(|x| x * x).sum::<f64>();
    assert!((length - 1.0).abs() < 1e-5 && vectors[0] != vectors[1], "{length}");
    let ollama = post("/api/embed", json!({"model": format!("{MODEL}:latest"), "input": texts}));
    assert_eq!((&ollama["embeddings"][0], &ollama["embeddings"][1]), (vectors[0], vectors[1]));
    assert_eq!((&ollama["model"], &ollama["load_duration"]), (&json!(MODEL), &json!(0)));
    assert_eq!(ollama["prompt_eval_count"], openai["usage"]["prompt_tokens"]);
    let old = post("/api/embeddings", json!({"model": MODEL, "prompt": texts[1]}));
    assert_eq!(&old["embedding"], vectors[1]);
    let tokens = post("/tokenize", json!({"content": texts[1], "add_special": true, "parse_special": false}));
    let dimensions = numbers.len();
    let body = json!({"model": "small", "input": tokens["tokens"], "dimensions": dimensions});
    let of_tokens = post("/embeddings", body);
    assert_eq!((&of_tokens["data"][0]["embedding"], &of_tokens["model"]), (vectors[1], &json!("small")));
    let body = json!({"model": MODEL, "input": "a cat", "encoding_format": "base64"});
    let base64 = post("/v1/embeddings", body);
    let text = base64["data"][0]["embedding"].as_str().unwrap();
    assert_eq!(text.len(), (4 * dimensions).div_ceil(3) * 4);
}

#[test]
fn embeddings_that_cant_be_are_refused_by_name() {
    let check = |path: &str, body: Value, status: u16, expected: &str| {
        let (found, _, body) = ask("POST", path, "", &body.to_string());
        assert!(found == status && body.contains(expected), "{found} {body}");
    };
    check("/v1/embeddings", json!({"model": MODEL, "input": ["x", ""]}), 400, "`input[1]` is empty");
    check("/v1/embeddings", json!({"model": MODEL}), 400, "`input` is missing");
    check("/v1/embeddings", json!({"model": MODEL, "input": "x", "dimensions": 2}), 400, "`dimensions` is 2");
    check("/v1/embeddings", json!({"model": MODEL, "input": [4_000_000]}), 400, "outside the vocabulary");
    check(
        "/v1/embeddings",
        json!({"model": MODEL, "input": vec![1; 40_000]}),
        400,
        "context_length_exceeded",
    );
    check("/api/embed", json!({"model": MODEL, "input": ""}), 400, "`input` is empty");
    let long = json!({"model": MODEL, "input": "x ".repeat(40_000), "truncate": false});
    check("/api/embed", long, 400, "the input length exceeds the context length: ");
    check("/api/embeddings", json!({"model": MODEL, "prompt": ["x"]}), 400, "`prompt` must be a string");
    let (status, head, _) =
        ask("POST", "/v1/embeddings", "", &json!({"model": MODEL, "input": "x", "surprise": 1}).to_string());
    assert!(status == 200 && head.contains("ignored: surprise"), "{head}");
}

#[test]
fn an_encoder_embeds_and_says_that_it_does_not_chat() {
    let ask = |path: &str, body: Value| {
        let (status, _, body) = ask_at(*ENCODER, "POST", path, "", &body.to_string());
        (status, serde_json::from_str::<Value>(&body).unwrap())
    };
    let (status, body) = ask("/v1/embeddings", json!({"model": "bert.gguf", "input": ["the cat", "a cat."]}));
    assert_eq!((status, body["data"][1]["embedding"].as_array().map(Vec::len)), (200, Some(64)), "{body}");
    // [CLS] the cat [SEP], [CLS] a cat .
    // [SEP]
    assert_eq!(body["usage"]["prompt_tokens"], 9);
    let long = "cat ".repeat(200);
    let (status, body) = ask("/v1/embeddings", json!({"model": "bert.gguf", "input": long}));
    assert_eq!((status, &body["error"]["code"]), (400, &json!("context_length_exceeded")));
    let (status, body) = ask("/api/embed", json!({"model": "bert.gguf", "input": long}));
    assert_eq!((status, &body["prompt_eval_count"]), (200, &json!(64)));
    let said = json!([{"role": "user", "content": "hello"}]);
    for (path, body) in [
        ("/v1/chat/completions", json!({"model": "bert.gguf", "messages": said})),
        ("/v1/chat/completions", json!({"model": "bert.gguf", "messages": said, "stream": true})),
        ("/v1/completions", json!({"model": "bert.gguf", "prompt": "hello"})),
        ("/v1/messages", json!({"model": "bert.gguf", "max_tokens": 9, "messages": said})),
        ("/api/chat", json!({"model": "bert.gguf", "messages": said})),
    ] {
        let (status, body) = ask(path, body);
        assert!(status == 400 && body.to_string().contains("is an encoder"), "{path}: {status} {body}");
    }
}

#[test]
fn refusals_have_the_shape_of_their_format() {
    let refused = |path: &str, body: &str| {
        let (status, _, body) = ask("POST", path, "", body);
        (status, serde_json::from_str::<Value>(&body).unwrap_or_else(|_| panic!("{path}: {body}")))
    };
    let (status, body) =
        refused("/v1/chat/completions", "{\"model\": \"x\", \"messages\": [{\"role\": \"user\"}]}");
    assert_eq!((status, &body["error"]["code"]), (404, &json!("model_not_found")));
    let (status, body) = refused(
        "/v1/messages",
        "{\"model\": \"x\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}",
    );
    assert_eq!(
        (status, &body["type"], &body["error"]["type"]),
        (404, &json!("error"), &json!("not_found_error"))
    );
    let (status, body) =
        refused("/api/chat", "{\"model\": \"x\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}");
    assert!(status == 404 && body["error"].as_str().unwrap().contains("no model `x`"), "{body}");
    let (status, body) = refused("/v1/embeddings", "{\"model\": \"small\", \"input\": []}");
    assert_eq!((status, &body["error"]["param"]), (400, &json!("input")));
    let (status, body) = refused("/api/embed", "{\"model\": \"x\", \"input\": \"x\"}");
    assert!(status == 404 && body["error"].as_str().unwrap().contains("no model `x`"), "{body}");
    let (status, body) =
        refused("/v1/completions", "{\"model\": \"small\", \"prompt\": \"a\", \"suffix\": \"b\"}");
    assert!(status == 400 && body["error"]["message"].as_str().unwrap().contains("fill in text"), "{body}");
    assert_eq!(refused("/v1/models", "{}").0, 405);
    assert_eq!(refused("/nowhere", "{}").0, 404);
}

#[test]
fn what_is_ignored_is_told_in_a_header() {
    let body = json!({"model": MODEL, "max_tokens": 1, "surprise": 1, "messages": [{"role": "user", "content": "x", "id": "é\"\n"}]});
    let (status, head, _) = ask("POST", "/v1/chat/completions", "", &body.to_string());
    assert_eq!(status, 200);
    assert!(head.contains("warning: 299 - \"ignored: messages[].id, surprise\""), "{head}");
}

#[test]
fn every_route_that_is_described_is_there() {
    let described = get("/openapi.json");
    let paths = described["paths"].as_object().unwrap();
    assert!(paths.len() > 25);
    for (path, operations) in paths {
        for method in operations.as_object().unwrap().keys() {
            let path = path.replace("{id}", "small");
            let (status, _, body) = ask(&method.to_uppercase(), &path, "", "{}");
            assert!(status != 405 && !body.contains("the routes are at"), "{method} {path}: {status} {body}");
        }
    }
}
