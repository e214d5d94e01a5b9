//! Malicious requests: each field as large as possible, and the server's state once their time
//! limit is exceeded or their client has left.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::{Served, agent};
use crate::dirs::TestDir;

/// Time limit of a request, and how soon after that the server must be idle.
const TIME: Duration = Duration::from_secs(2);
/// Without optimization, reading and writing megabytes of JSON alone takes seconds.
const BEYOND: Duration = Duration::from_secs(if cfg!(debug_assertions) { 8 } else { 1 });

/// A megabyte of a repeated text.
fn much(text: &str) -> String {
    text.repeat((1 << 20) / text.len())
}

/// A list of this length.
fn list(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

/// An object with this many keys.
fn object(count: usize, key: &str, value: &Value) -> Value {
    let fields: Map<String, Value> =
        (0..count).map(|index| (format!("{key}{index}"), value.clone())).collect();
    fields.into()
}

/// Merges the fields of both.
fn with(mut one: Value, other: &Value) -> Value {
    one.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    one
}

/// A schema of an object with this many optional properties.
fn optional(count: usize) -> Value {
    json!({"type": "object", "additionalProperties": false,
        "properties": object(count, "p", &json!({"type": "integer"}))})
}

/// Large texts that tokenizers split in different ways.
fn texts() -> [String; 5] {
    ["1", " ", "a b\n", "house ", "<|im_end|>"].map(much)
}

/// Schemas that each make one kind of compilation slow.
fn schemas() -> Vec<Value> {
    vec![
        optional(3000),
        json!({"enum": list(50_000, |index| format!("value {index}").into())}),
        json!({"anyOf": list(5_000, |index| json!({"const": index}))}),
        json!({"type": "string", "pattern": much("\\w")}),
        json!({"const": much("a")}),
        json!({"type": "string", "minLength": 1_000_000}),
        json!({"type": "array", "items": {"type": "integer"}, "minItems": 1_000_000}),
    ]
}

/// Grammars, in Lark and GBNF.
fn grammars() -> Vec<String> {
    let choices = |count: usize| (0..count).map(|index| format!("\"v{index}\"")).collect::<Vec<_>>();
    let chain: Vec<String> = (0..20_000).map(|index| format!("r{index} ::= r{}", index + 1)).collect();
    vec![
        format!("start: {}", choices(50_000).join(" | ")),
        format!("root ::= {}", choices(50_000).join(" | ")),
        format!("root ::= {} root", choices(2_000).join(" | ")),
        format!("root ::= r0\n{}\nr20000 ::= \"a\"", chain.join("\n")),
        "root ::= a a a a a a\na ::= \"x\" a | a \"x\" | a a | \"x\" | \"\"".to_owned(),
        format!("start: /{}/", much("\\w")),
        format!("start: {}\"a\"{}", "(".repeat(400_000), ")".repeat(400_000)),
    ]
}

/// Functions in the syntax of each format, given by `wrapped`.
fn functions(count: usize, wrapped: impl Fn(Value) -> Value) -> Value {
    list(count, |index| wrapped(json!({"name": format!("f{index}"), "parameters": {"type": "object"}})))
}

fn openai_tool(function: Value) -> Value {
    json!({"type": "function", "function": function})
}

/// Shapes of answers, in the format of chat completions.
fn shapes() -> Vec<Value> {
    let mut all: Vec<Value> = schemas()
        .iter()
        .map(|schema| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}))
        .collect();
    all.extend(grammars().iter().map(|grammar| json!({"grammar": grammar})));
    all.push(json!({"guided_choice": list(100_000, |index| format!("choice {index}").into())}));
    all.push(json!({"guided_choice": [much("a"), much("ab")]}));
    all.push(json!({"guided_regex": much("(a|b)?")}));
    all
}

/// Sampling parameters.
fn samplers() -> Vec<Value> {
    let dry = |breakers: Value| json!({"dry_multiplier": 1, "dry_sequence_breakers": breakers});
    vec![
        dry(list(100_000, |index| format!("b{index}").into())),
        dry(json!([much("ab \n")])),
        dry(list(64, |index| format!("{index:02} {}", "ab \n".repeat(10)).into())),
        json!({"logit_bias": object(50_000, "", &json!(1))}),
        json!({"logit_bias": object(50_000, "text ", &json!(1))}),
        json!({"logit_bias": list(50_000, |_| json!([7, 0.5]))}),
        json!({"logit_bias": {much("house "): 1}}),
        json!({"stop": much("a")}),
        json!({"stop": list(16, |_| "a".repeat(65_536).into())}),
        json!({"n": 64, "logprobs": true, "top_logprobs": 20}),
    ]
}

/// Requests in OpenAI's format of chats.
fn chats() -> Vec<Value> {
    let of = |fields: &Value| {
        with(json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}), fields)
    };
    let said = |role: &str, content: &Value| json!({"role": role, "content": content});
    let call = |index: usize| json!({"id": format!("c{index}"), "type": "function", "function": {"name": "f0", "arguments": "{}"}});
    let mut all = Vec::new();
    for text in texts() {
        all.push(json!({"messages": [said("user", &json!(text))]}));
        all.push(json!({"messages": [said("system", &json!(text)), said("user", &json!("hi"))]}));
    }
    let parts = list(20_000, |_| json!({"type": "text", "text": "a"}));
    let role = |index: usize| if index.is_multiple_of(2) { "user" } else { "assistant" };
    all.extend([
        json!({"messages": [said("user", &parts)]}),
        json!({"messages": list(25_000, |_| said("user", &json!("a")))}),
        json!({"messages": list(25_000, |index| said(role(index), &json!("a")))}),
        json!({"messages": [said("user", &json!("a")), said("assistant", &json!(much("a b\n")))]}),
        json!({"messages": [said("user", &json!("a")),
            {"role": "assistant", "content": "b", "reasoning_content": much("a b\n")}, said("user", &json!("c"))]}),
        json!({"messages": [said("user", &json!("a")), {"role": "assistant", "tool_calls": list(10_000, call)}]}),
        json!({"tools": functions(20_000, openai_tool)}),
        json!({"tools": functions(1_000, openai_tool), "tool_choice": "required"}),
        json!({"tools": functions(1, openai_tool), "tool_choice": {"type": "allowed_tools", "allowed_tools":
            {"mode": "auto", "tools": list(20_000, |_| json!({"type": "function", "name": "f0"}))}}}),
        json!({"tools": [openai_tool(json!({"name": "f", "description": much("a b\n")}))]}),
        json!({"tools": [openai_tool(json!({"name": much("f")}))]}),
        json!({"chat_template_kwargs": object(50_000, "k", &json!(1))}),
        object(30_000, "unknown", &json!(1)),
    ]);
    for schema in schemas() {
        let parameters = json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
        let tool = openai_tool(json!({"name": "f", "parameters": parameters}));
        all.push(json!({"tools": [tool], "tool_choice": "required"}));
    }
    for field in ["model", "agent", "cache_salt", "reasoning_effort", "user"] {
        all.push(json!({field: much("a")}));
    }
    all.into_iter().chain(shapes()).chain(samplers()).map(|fields| of(&fields)).collect()
}

/// Requests in the other formats: route and body.
fn others() -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    for text in texts() {
        let said = json!([{"role": "user", "content": text}]);
        all.extend([
            ("/v1/completions", json!({"prompt": text, "max_tokens": 4, "echo": true, "logprobs": 5})),
            ("/v1/completions", json!({"prompt": "a", "suffix": text, "max_tokens": 4})),
            ("/v1/responses", json!({"input": text, "max_output_tokens": 16})),
            ("/v1/responses", json!({"input": "a", "instructions": text, "max_output_tokens": 16})),
            ("/v1/messages", json!({"messages": said, "max_tokens": 4})),
            ("/v1/messages/count_tokens", json!({"messages": said})),
            ("/v1/embeddings", json!({"input": text})),
            ("/api/embed", json!({"input": text})),
            ("/api/chat", json!({"messages": said, "options": {"num_predict": 4}})),
            ("/api/generate", json!({"prompt": text, "raw": true, "options": {"num_predict": 4}})),
            ("/tokenize", json!({"content": text, "with_pieces": true})),
            ("/apply-template", json!({"messages": said})),
        ]);
    }
    let items = list(20_000, |_| json!({"role": "user", "content": "a"}));
    let blocks = list(20_000, |_| json!({"type": "text", "text": "a"}));
    let anthropic = |function: Value| json!({"name": function["name"], "input_schema": {"type": "object"}});
    let response = |function: Value| with(json!({"type": "function"}), &function);
    let hi = json!([{"role": "user", "content": "hi"}]);
    all.extend([
        ("/v1/completions", json!({"prompt": list(64, |_| "a b\n".repeat(4096).into()), "max_tokens": 4})),
        ("/v1/completions", json!({"prompt": list(300_000, |_| json!(7)), "max_tokens": 4})),
        ("/v1/responses", json!({"input": items, "max_output_tokens": 16})),
        (
            "/v1/responses",
            json!({"input": "a", "tools": functions(15_000, response), "max_output_tokens": 16}),
        ),
        ("/v1/messages", json!({"messages": items, "max_tokens": 4})),
        ("/v1/messages", json!({"messages": [{"role": "user", "content": blocks}], "max_tokens": 4})),
        ("/v1/messages", json!({"messages": hi, "system": blocks, "max_tokens": 4})),
        ("/v1/messages", json!({"messages": hi, "tools": functions(15_000, anthropic), "max_tokens": 4})),
        ("/v1/messages", json!({"messages": hi, "stop_sequences": [much("a")], "max_tokens": 4})),
        ("/v1/embeddings", json!({"input": list(100_000, |_| json!("a"))})),
        ("/v1/embeddings", json!({"input": list(2_048, |_| "a b ".repeat(100).into())})),
        ("/api/chat", json!({"messages": items, "options": {"num_predict": 4}})),
        ("/detokenize", json!({"tokens": list(300_000, |_| json!(7))})),
    ]);
    for schema in schemas() {
        let format = json!({"type": "json_schema", "name": "n", "schema": schema});
        all.push((
            "/v1/responses",
            json!({"input": "a", "text": {"format": format}, "max_output_tokens": 16}),
        ));
        all.push(("/api/chat", json!({"messages": hi, "format": schema, "options": {"num_predict": 4}})));
    }
    all
}

impl Served {
    /// Starts a server for the model that ships, with this time limit for requests.
    fn limited(time: Duration) -> Served {
        let model = format!("{}/models/alara-tiny.gguf", crate::root().display());
        let time = time.as_secs().to_string();
        let served = TestDir::npc_team(&json!([])).serve(&["-m", &model, "--timeout", &time]);
        assert_eq!(served.ask(json!({"model": "alara-tiny.gguf", "max_tokens": 1})).0, 200);
        served
    }

    /// Returns the CPU time that the server has used.
    fn used(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks: u64 = fields.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum();
        Duration::from_millis(10 * ticks)
    }

    /// Waits until the server is idle, but not after `until`.
    fn idle(&self, until: Instant, what: &str) {
        const WINDOW: Duration = Duration::from_millis(100);
        loop {
            let late = Instant::now() > until;
            let before = self.used();
            std::thread::sleep(WINDOW);
            let used = self.used() - before;
            if used <= WINDOW / 4 {
                return;
            }
            assert!(!late, "{what}: the server still works, {used:?} of {WINDOW:?}");
        }
    }

    /// Sends a request and returns its connection.
    fn send(&self, path: &str, body: &str) -> TcpStream {
        let mut client = self.connect();
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        client.write_all(body.as_bytes()).unwrap();
        client
    }
}

/// Whatever a field contains, the response comes within the request's time limit and isn't a server
/// error, and nothing keeps running after it.
#[test]
#[cfg(target_os = "linux")]
fn no_field_outlives_its_request() {
    let served = Served::limited(TIME);
    let chats = chats().into_iter().map(|body| ("/v1/chat/completions", body));
    for (path, body) in chats.chain(others()) {
        let body = body.to_string();
        let what = format!("{path} {:.120} … {}", body, &body[body.len().saturating_sub(120)..]);
        let begun = Instant::now();
        let url = served.url.replace("/v1", path);
        let mut response = agent().post(url).send(&body).unwrap();
        let status = response.status().as_u16();
        let told = response.body_mut().with_config().limit(1 << 30).read_to_string().unwrap();
        let took = begun.elapsed();
        assert!(status < 500 || status == 504, "{what}: {status} {told:.300}");
        assert!(took < TIME + BEYOND, "{what}: {status} after {took:?}");
        served.idle(begun + TIME + BEYOND, &what);
        if std::env::var("ALARA_SHOW").is_ok() {
            eprintln!(
                "{status} {:>5} ms {:>5} ms {what:.150}",
                took.as_millis(),
                begun.elapsed().as_millis()
            );
        }
    }
}

/// Clients that send large requests and leave don't delay others.
#[test]
#[cfg(target_os = "linux")]
fn nothing_goes_on_for_clients_that_left() {
    let served = Served::limited(Duration::from_secs(60));
    let hi = json!([{"role": "user", "content": "hi"}]);
    let shaped = |shape: Value| with(json!({"messages": hi}), &shape);
    let choices = |count: usize| list(count, |index| format!("choice {index} of {count}").into());
    let bodies = [
        ("/v1/chat/completions", shaped(json!({"guided_choice": choices(100_000)}))),
        (
            "/v1/chat/completions",
            shaped(json!({"dry_multiplier": 1, "dry_sequence_breakers": choices(100_000)})),
        ),
        ("/v1/chat/completions", shaped(json!({"max_tokens": 1_000_000, "ignore_eos": true}))),
        ("/tokenize", json!({"content": "1 ".repeat(3 << 20)})),
        ("/v1/completions", json!({"prompt": "1 ".repeat(3 << 20)})),
        ("/v1/embeddings", json!({"input": list(2_048, |_| "a b ".repeat(100).into())})),
    ];
    for (path, body) in bodies {
        let body = body.to_string();
        let clients: Vec<TcpStream> = (0..8).map(|_| served.send(path, &body)).collect();
        std::thread::sleep(Duration::from_millis(300));
        drop(clients);
        served.idle(Instant::now() + BEYOND, &format!("{path} {body:.200}"));
        let begun = Instant::now();
        assert_eq!(served.ask(json!({"model": "alara-tiny.gguf", "max_tokens": 1})).0, 200);
        assert!(begun.elapsed() < TIME, "{path} {body:.200}: another waits {:?}", begun.elapsed());
    }
}
