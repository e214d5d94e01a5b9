//! Several models, in a workplace with scripted models of any size.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Condvar, PoisonError};
use std::time::Instant;

use alara_engine::{Event, Finish, Request, Usage};
use alara_harness::model::{Candidate, Models};
use alara_harness::{ChatModel, Events};
use serde_json::{Value, json};

use super::*;

/// Models answer with their name; `slow` waits until the gate is open.
struct Place {
    models: Models,
    others: Mutex<Vec<Served>>,
}

#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn wait(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

struct Named(String, Arc<Gate>);

impl ChatModel for Named {
    fn name(&self) -> &str {
        &self.0
    }

    fn chat(&self, _: Request) -> Result<Events<'_>, ModelError> {
        if self.0 == "slow" {
            self.1.wait();
        }
        let events = [
            Event::Text { text: self.0.clone() },
            Event::Done { finish: Finish::Stop, usage: Usage::default() },
        ];
        Ok(Box::new(events.into_iter().map(Ok)))
    }

    fn context(&self) -> Option<usize> {
        Some(512)
    }
}

impl Workplace for Place {
    fn models(&self) -> &dyn ModelSource {
        &self.models
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

    fn served(&self) -> Vec<Served> {
        self.others.lock().unwrap().clone()
    }

    fn facts(&self, spec: &ModelSpec) -> Option<Arc<Facts>> {
        let mut facts = Facts {
            bytes: 1000,
            digest: "ab".repeat(32),
            architecture: "qwen3".into(),
            parameters: 1_720_574_976,
            quantization: "Q4_K_M".into(),
            context: Some(1024),
            template: "{{ messages }}".into(),
            capabilities: vec!["completion", "tools", "insert"],
            ..Facts::default()
        };
        facts.metadata.insert("qwen3.context_length".into(), 4096.into());
        (spec.model.as_deref() != Some("elsewhere")).then(|| Arc::new(facts))
    }

    fn pull(&self, name: &str, told: &mut dyn FnMut(Pull) -> bool) -> Result<(), ModelError> {
        if name == "none" {
            return Err(ModelError::new("there is no model none"));
        }
        for completed in [0, 5, 9] {
            let file = Pull::File { name: "f".into(), digest: None, total: Some(9), completed };
            if !told(file) {
                return Err(ModelError::new("nobody listens"));
            }
        }
        told(Pull::Checked);
        self.others.lock().unwrap().push(served(name));
        Ok(())
    }
}

fn served(name: &str) -> Served {
    Served { name: name.into(), aliases: vec![format!("alias-of-{name}")], spec: ModelSpec::named(name) }
}

/// A running server whose default model is `first`; each model takes 6 of 10 bytes.
struct Running {
    address: SocketAddr,
    gate: Arc<Gate>,
    place: Arc<Place>,
    stop: Stop,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.gate.open();
        self.stop.ask();
        self.stop.ask();
    }
}

fn run(budget: Option<u64>, options: Options) -> Running {
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let models = Models::new(budget, move |spec| {
        let model = Named(spec.model.clone().unwrap_or_default(), held.clone());
        Ok(Candidate { bytes: 6, load: Box::new(move || Ok(Arc::new(model))) })
    });
    let others = ["second", "slow", "elsewhere"].map(served).to_vec();
    let place = Arc::new(Place { models, others: Mutex::new(others) });
    let options = Options { address: SocketAddr::from(([127, 0, 0, 1], 0)), parallel: 2, ..options };
    let server = Server::new(place.clone(), Team::default(), ModelSpec::named("first"), &options).unwrap();
    let (address, stop) = (server.address(), server.stop());
    std::thread::spawn(move || server.run());
    Running { address, gate, place, stop }
}

impl Running {
    fn begin(&self, method: &str, path: &str, body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        stream
    }

    /// Returns status, head and body.
    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, String, String) {
        let mut said = String::new();
        self.begin(method, path, body).read_to_string(&mut said).unwrap();
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    fn get(&self, path: &str) -> Value {
        let (status, _, body) = self.ask("GET", path, &Value::Null);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let (status, _, body) = self.ask("POST", path, body);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    fn chat(&self, model: &str) -> (u16, String, String) {
        self.ask("POST", "/v1/chat/completions", &chat(model))
    }

    fn loaded(&self) -> Vec<String> {
        let list = self.get("/api/ps");
        let names = list["models"].as_array().unwrap().iter();
        names.map(|model| model["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]})
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn each_model_answers_by_its_name() {
    let running = run(None, Options { aliases: vec!["small".into()], ..Options::default() });
    for (asked, who) in
        [("first", "first"), ("small", "first"), ("second", "second"), ("alias-of-second", "second")]
    {
        let (status, _, body) = running.chat(asked);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["model"]), (200, &json!(asked)), "{body}");
        assert_eq!(body["choices"][0]["message"]["content"], who);
    }
    let (status, _, body) = running.chat("third");
    assert!(status == 404 && body.contains("known: first, second, slow, elsewhere"), "{body}");
    let list = running.get("/v1/models");
    let told: Vec<Value> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| json!([model["id"], model["status"]["value"], model["context_length"]]))
        .collect();
    let expected = json!([
        ["first", "loaded", 512],
        ["second", "loaded", 512],
        ["slow", "unloaded", 1024],
        ["elsewhere", "unloaded", null],
    ]);
    assert_eq!(json!(told), expected);
    let second = running.get("/v1/models/alias-of-second");
    assert_eq!(
        (&second["id"], &second["capabilities"]),
        (&json!("alias-of-second"), &json!(["completion", "tools", "insert"]))
    );
    assert_eq!(second["meta"], json!({"n_ctx_train": null, "n_params": 1_720_574_976, "size": 1000}));

    let tags = running.get("/api/tags");
    let details = json!({
        "parent_model": "", "format": "gguf", "family": "qwen3", "families": ["qwen3"],
        "parameter_size": "1.7B", "quantization_level": "Q4_K_M",
    });
    assert_eq!((&tags["models"][2]["size"], &tags["models"][2]["details"]), (&json!(1000), &details));
    assert_eq!(tags["models"][3]["size"], 0, "a model elsewhere has no file here");
    let show = running.post("/api/show", &json!({"model": "slow:latest", "verbose": true}));
    let info = json!({
        "qwen3.context_length": 1024, "general.architecture": "qwen3", "general.basename": "slow",
        "general.parameter_count": 1_720_574_976,
    });
    assert_eq!((&show["model_info"], &show["template"]), (&info, &json!("{{ messages }}")));
    assert_eq!(running.ask("POST", "/api/show", &json!({"model": "third"})).0, 404);
    let ps = running.get("/api/ps");
    let entry = &ps["models"][1];
    assert_eq!(
        (&entry["name"], &entry["size"], &entry["context_length"]),
        (&json!("second"), &json!(6), &json!(512))
    );
    assert_eq!(running.loaded(), ["first", "second"], "nothing was loaded to tell of it");
}

#[test]
fn a_model_without_room_is_told_and_finds_it_later() {
    let running = run(Some(10), Options::default());
    // The least recently used model is unloaded.
    assert_eq!(running.chat("second").0, 200);
    let idle = || !running.place.models.loaded()[0].busy;
    wait_until("the first is gone", || running.loaded() == ["second"] && idle());
    let mut slow = running.begin("POST", "/v1/chat/completions", &chat("slow"));
    wait_until("it is at work", || running.loaded() == ["slow"]);
    let (status, head, body) = running.chat("second");
    assert!(
        status == 503 && head.contains("retry-after: 5") && head.contains("x-should-retry: true"),
        "{head}"
    );
    assert!(body.contains("held by models at work: slow") && body.contains("out_of_memory"), "{body}");
    running.gate.open();
    let mut said = String::new();
    slow.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    wait_until("there is room", || running.chat("second").0 == 200);
}

#[test]
fn models_go_when_their_time_is_over() {
    let generate = |running: &Running, model: &str, keep: Value| {
        let body = json!({"model": model, "keep_alive": keep});
        running.post("/api/generate", &body)["done_reason"].clone()
    };
    let running = run(None, Options::default());
    assert_eq!(generate(&running, "second", Value::Null), "load");
    let ps = running.get("/api/ps");
    let expires = |at: usize| ps["models"][at]["expires_at"].as_str().unwrap().to_owned();
    assert!(expires(0).starts_with("9999") && expires(1).starts_with("20"), "{ps}");
    assert_eq!(generate(&running, "second", json!("1ms")), "load");
    wait_until("it is gone", || running.loaded() == ["first"]);
    assert_eq!(generate(&running, "first", json!(0)), "unload");
    assert!(running.loaded().is_empty());
    let said = json!({"model": "first", "stream": false, "keep_alive": 0, "messages": [{"role": "user", "content": "x"}]});
    assert_eq!(running.post("/api/chat", &said)["done_reason"], "stop");
    wait_until("it is gone again", || running.loaded().is_empty());
    let (status, _, body) =
        running.ask("POST", "/api/generate", &json!({"model": "first", "keep_alive": "x"}));
    assert!(status == 400 && body.contains("keep_alive"), "{body}");
    assert_eq!(running.ask("POST", "/api/generate", &json!({"model": "third"})).0, 404);
    // As the server's setting requires.
    let running =
        run(None, Options { keep_alive: Some(Some(Duration::from_millis(20))), ..Options::default() });
    wait_until("the default one is gone", || running.loaded().is_empty());
    assert_eq!(running.chat("first").0, 200);
    assert!(running.place.models.loaded().len() <= 1);
}

#[test]
fn downloads_are_told_as_ollama_does() {
    let pull = |running: &Running, body: Value| {
        let (status, _, body) = running.ask("POST", "/api/pull", &body);
        // Chunks of the transfer coding are interleaved with the lines.
        let lines = body.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        (status, lines.filter(Value::is_object).collect::<Vec<_>>())
    };
    let running = run(None, Options::default());
    let (status, lines) = pull(&running, json!({"model": "new"}));
    assert!(
        status == 403 && lines[0]["error"].as_str().unwrap().contains("alara models pull new"),
        "{lines:?}"
    );
    let there = [json!({"status": "pulling manifest"}), json!({"status": "success"})];
    assert_eq!(pull(&running, json!({"model": "second"})), (200, there.to_vec()));

    let running = run(None, Options { allow_pull: true, ..Options::default() });
    let (status, lines) = pull(&running, json!({"model": "new"}));
    let mut statuses: Vec<&str> = lines.iter().map(|line| line["status"].as_str().unwrap()).collect();
    statuses.dedup();
    let expected =
        ["pulling manifest", "pulling f", "verifying sha256 digest", "writing manifest", "success"];
    assert_eq!((status, statuses), (200, expected.to_vec()));
    assert!(lines.contains(&json!({"status": "pulling f", "total": 9, "completed": 9})), "{lines:?}");
    assert_eq!(running.chat("new").0, 200);
    let newer = json!({"name": "newer:latest", "stream": false});
    assert_eq!(pull(&running, newer), (200, vec![json!({"status": "success"})]));
    assert_eq!(running.chat("newer").0, 200);
    for stream in [true, false] {
        let (status, lines) = pull(&running, json!({"model": "none", "stream": stream}));
        assert_eq!((status, &lines[0]["error"]), (502, &json!("there is no model none")));
    }
}
