//! Several models: each is used by its name, loaded on first use, and unloaded.

use serde_json::{Value, json};

use super::{Served, agent, message, wait_until};
use crate::dirs::TestDir;
use crate::hub::HubServer;

fn shipped() -> Vec<u8> {
    std::fs::read(crate::root().join("models/alara-tiny.gguf")).unwrap()
}

fn two(arguments: &[&str]) -> Served {
    let dir = TestDir::npc_team(&json!([]));
    dir.write("team/sage.npc", "name: sage\nprimary_directive: You are sage.\njinxes: []\nmodel: b\n");
    for name in ["a.gguf", "b.gguf"] {
        std::fs::write(dir.path(name), shipped()).unwrap();
    }
    dir.serve(&[&["-m", "a.gguf", "-m", "b.gguf", "--ctx", "2048"], arguments].concat())
}

impl Served {
    fn post_to(&self, path: &str, body: &Value) -> (u16, String) {
        let mut response = agent().post(self.url.replace("/v1", path)).send(body.to_string()).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    fn ollama(&self, path: &str, body: &Value) -> Value {
        let (status, text) = self.post_to(path, body);
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Returns the loaded models.
    fn loaded(&self) -> Vec<String> {
        let (_, list) = self.get("/api/ps");
        let models = list["models"].as_array().unwrap().iter();
        let mut names: Vec<String> = models.map(|model| model["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }
}

#[test]
fn serve_has_several_models() {
    let served = two(&["--alias", "small", "--alias", "other=b"]);
    assert_eq!(served.shown["models"], json!(["a.gguf", "b.gguf"]));
    // All are listed with the data in their files; the first is loaded.
    let (_, list) = served.get("/v1/models");
    let told: Vec<Value> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| json!([model["id"], model["status"]["value"]]))
        .collect();
    assert_eq!(
        json!(told),
        json!([["a.gguf", "loaded"], ["b.gguf", "unloaded"], ["corca", "loaded"], ["sage", "unloaded"]])
    );
    let about =
        |name: &str| list["data"].as_array().unwrap().iter().find(|model| model["id"] == name).unwrap();
    let b = about("b.gguf");
    assert_eq!((&b["context_length"], &b["meta"]["size"]), (&json!(2048), &json!(shipped().len())), "{b}");
    assert_eq!(about("sage")["parent"], "b.gguf");
    let (_, tags) = served.get("/api/tags");
    let tagged = &tags["models"][1];
    assert_eq!((&tagged["name"], &tagged["size"]), (&json!("b.gguf"), &json!(shipped().len())));
    let details = &tagged["details"];
    assert!(
        details["parameter_size"].as_str().unwrap().ends_with('M') && details["quantization_level"] != "",
        "{tagged}"
    );
    let shown = served.ollama("/api/show", &json!({"model": "b.gguf:latest"}));
    let family = details["family"].as_str().unwrap();
    assert_eq!(shown["model_info"]["general.architecture"], family);
    assert!(shown["model_info"][format!("{family}.context_length")].is_u64(), "{shown}");
    assert_eq!(shown["model_info"]["tokenizer.ggml.tokens"], Value::Null);
    assert!(shown["template"].as_str().unwrap().contains("messages"));
    assert_eq!(served.loaded(), ["a.gguf"]);

    // Each answers to its name, with or without the extension, or an alias.
    for model in ["a.gguf", "small", "b", "other", "sage"] {
        let body = served.answer(json!({"model": model, "max_tokens": 5}));
        assert!(message(&body)["content"].is_string() && body["model"] == model, "{body}");
    }
    assert_eq!(served.loaded(), ["a.gguf", "b.gguf"]);
    let (status, body) = served.ask(json!({"model": "c"}));
    assert_eq!((status, &body["error"]["code"]), (404, &json!("model_not_found")));
    let known = "there is no model `c` (known: a.gguf, b.gguf, corca, sage)";
    assert_eq!(body["error"]["message"], known);
    let (status, body) = served.ask(json!({"agent": "sage", "model": "a.gguf"}));
    assert!(
        status == 400 && body["error"]["message"].as_str().unwrap().contains("sage answers with b.gguf"),
        "{body}"
    );
    // Routes without a conversation accept a model too.
    let tokens = |model: &str| served.ollama("/tokenize", &json!({"content": "Hello", "model": model}));
    assert_eq!(tokens("a"), tokens("b"));
    assert_eq!(served.post_to("/tokenize", &json!({"content": "Hello", "model": "c"})).0, 404);
    assert_eq!(served.get("/props?model=b.gguf").1["model_alias"], "b.gguf");
    assert_eq!(served.get("/props?model=c").0, 404);

    // The client decides how long they stay loaded.
    let expires = |name: &str| {
        let (_, list) = served.get("/api/ps");
        let model = list["models"].as_array().unwrap().iter().find(|model| model["name"] == name).cloned();
        model.unwrap()["expires_at"].as_str().unwrap().to_owned()
    };
    assert!(expires("a.gguf").starts_with("9999") && !expires("b.gguf").starts_with("9999"));
    let hold = |model: &str, keep: Value| {
        served.ollama("/api/generate", &json!({"model": model, "keep_alive": keep}))
    };
    assert_eq!(hold("b", json!(-1))["done_reason"], "load");
    assert!(expires("b.gguf").starts_with("9999"));
    assert_eq!(hold("a", json!(0))["done_reason"], "unload");
    wait_until("a is gone", || served.loaded() == ["b.gguf"]);
    let said = json!({
        "model": "b", "stream": false, "keep_alive": "0s", "options": {"num_predict": 3},
        "messages": [{"role": "user", "content": "hi"}],
    });
    assert_eq!(served.ollama("/api/chat", &said)["done"], true);
    wait_until("b is gone", || served.loaded().is_empty());
    assert_eq!(hold("a", json!("200ms"))["done_reason"], "load");
    wait_until("a is gone by itself", || served.loaded().is_empty());
    assert_eq!(served.post_to("/api/generate", &json!({"model": "a", "keep_alive": "soon"})).0, 400);
    // It can be loaded again.
    served.answer(json!({"model": "a", "max_tokens": 1}));
}

/// The training context bounds `--ctx`, in every route that reports a context.
#[test]
fn serve_takes_no_longer_context_than_the_model_was_trained_for() {
    let dir = TestDir::npc_team(&json!([]));
    for name in ["a.gguf", "b.gguf"] {
        std::fs::write(dir.path(name), shipped()).unwrap();
    }
    let served = dir.serve(&["-m", "a.gguf", "-m", "b.gguf", "--ctx", "1000000"]);
    let (_, list) = served.get("/v1/models");
    let trained = list["data"][0]["meta"]["n_ctx_train"].clone();
    assert!(trained.as_u64().is_some_and(|tokens| tokens < 1_000_000), "{list}");
    // For the loaded model, and for the other one.
    for at in 0..2 {
        assert_eq!(list["data"][at]["context_length"], trained, "{list}");
        assert_eq!(list["data"][at]["max_model_len"], trained, "{list}");
    }
    for name in ["a.gguf", "b.gguf"] {
        let shown = served.ollama("/api/show", &json!({"model": name}));
        let family = shown["model_info"]["general.architecture"].as_str().unwrap();
        assert_eq!(shown["model_info"][format!("{family}.context_length")], trained, "{shown}");
        assert_eq!(shown["parameters"], format!("num_ctx {trained}"));
        let props = served.get(&format!("/props?model={name}")).1;
        assert_eq!(props["default_generation_settings"]["n_ctx"], trained, "{props}");
        served.answer(json!({"model": name, "max_tokens": 1}));
    }
}

#[test]
fn serve_has_the_models_of_a_folder_and_what_is_downloaded() {
    let hub = HubServer::start();
    let bytes = shipped();
    hub.put("o/r", "x-Q8_0.gguf", &bytes);
    let serve = |arguments: &[&str]| {
        let dir = TestDir::npc_team(&json!([]));
        std::fs::create_dir_all(dir.path("models/deep")).unwrap();
        std::fs::write(dir.path("models/deep/c.gguf"), &bytes).unwrap();
        dir.serve_with(&[&["--models", "models"], arguments].concat(), &[("HF_ENDPOINT", &hub.endpoint)])
    };
    let served = serve(&[]);
    assert_eq!(served.shown["models"], json!(["script", "c"]));
    served.answer(json!({"model": "c", "max_tokens": 1}));
    let (status, text) = served.post_to("/api/pull", &json!({"model": "o/r"}));
    assert!(status == 403 && text.contains("alara models pull o/r"), "{text}");
    assert!(hub.log().is_empty());

    let served = serve(&["--allow-pull"]);
    let pull = |body: Value| {
        let (status, text) = served.post_to("/api/pull", &body);
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (status, lines)
    };
    let (status, lines) = pull(json!({"model": "o/r"}));
    assert_eq!(status, 200, "{lines:?}");
    let statuses: Vec<&str> = lines.iter().map(|line| line["status"].as_str().unwrap()).collect();
    assert_eq!((statuses[0], statuses.last().copied()), ("pulling manifest", Some("success")), "{lines:?}");
    assert!(statuses.contains(&"verifying sha256 digest"), "{lines:?}");
    let whole = lines.iter().find(|line| line["completed"] == json!(bytes.len())).unwrap();
    let digest = whole["digest"].as_str().unwrap();
    assert_eq!((whole["total"].as_u64(), digest.len()), (Some(bytes.len() as u64), "sha256:".len() + 64));
    assert_eq!(whole["status"], format!("pulling {}", &digest[7..19]));
    // It is available immediately, and identified by its file's hash.
    served.answer(json!({"model": "o/r", "max_tokens": 1}));
    let (_, tags) = served.get("/api/tags");
    let tagged = tags["models"].as_array().unwrap().iter().find(|model| model["name"] == "o/r").unwrap();
    assert_eq!(format!("sha256:{}", tagged["digest"].as_str().unwrap()), digest);
    assert_eq!(pull(json!({"model": "o/r", "stream": false})), (200, vec![json!({"status": "success"})]));
    let (status, lines) = pull(json!({"model": "o/none"}));
    assert!(
        status == 502 && lines[0]["error"].as_str().unwrap().contains("no repository o/none"),
        "{lines:?}"
    );
    let (status, lines) = pull(json!({"model": "none", "stream": false}));
    assert!(
        status == 502 && lines[0]["error"].as_str().unwrap().contains("no name of the catalog"),
        "{lines:?}"
    );
}
