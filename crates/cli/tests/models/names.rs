//! Names of models as people write them, and data about models from their files.

use serde_json::{Value, json};

use super::{REPOSITORY, TestDir, fails, model};

/// It has a name like any other model, in every command.
#[test]
fn the_model_that_ships_is_named() {
    let dir = TestDir::new();
    let write = |name: &str, text: &str| {
        let path = dir.root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for name in ["alara-tiny", "alara-tiny.gguf"] {
        assert!(dir.works(&["models", "show", name]).contains("alara-tiny.gguf"), "{name}");
        assert!(!dir.works(&["debug", "tokenize", "-m", name]).contains("error"), "{name}");
        // It introduces itself as a demonstration.
        assert!(dir.works(&["run", "-m", name, "hi"]).contains("I am alara"), "{name}");
    }
    write("team/team.ctx", "name: t\nmodel: alara-tiny\nforenpc: w\n");
    write("team/w.npc", "name: w\nprimary_directive: Work.\n");
    assert_eq!(dir.works(&["check", "team"]), "no problems\n");
    write("s.bench", "models: [alara-tiny]\ncategories: [git]\n");
    assert_eq!(dir.works(&["check", "s.bench"]), "no problems\n");
    let plan = dir.alara(&["bench", "tasks", "--plan", "--json", "-m", "alara-tiny"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert!(
        plan["models"][0]["memory"].as_u64() > Some(0) && plan["models"][0]["missing"].is_null(),
        "{plan}"
    );
    dir.fails(&["models", "pull", "alara-tiny"], "ships with alara, so nothing is to be downloaded");
    dir.fails(&["models", "rm", "--yes", "alara-tiny"], "is a part of alara itself");
    dir.fails(&["models", "rm", "--yes", "qwen3"], "did you mean qwen3-0.6b");
    assert_eq!(dir.list()["shipped"]["name"], "alara-tiny");
    assert!(dir.works(&["models", "list"]).lines().any(|line| line.starts_with("alara-tiny ")));
    // A file of that name takes precedence.
    std::fs::write(dir.root.path().join("alara-tiny.gguf"), model()).unwrap();
    assert!(dir.works(&["models", "show", "alara-tiny.gguf"]).contains("qwen3"));
}

/// Creates a file of the catalog's size, of which only a small model takes space.
fn file_of_the_catalog(path: &std::path::Path) {
    std::fs::write(path, model()).unwrap();
    let size = 1_117_320_768;
    std::fs::File::options().write(true).open(path).unwrap().set_len(size).unwrap();
}

#[test]
fn the_default_model_is_listed_beside_the_one_that_ships() {
    let dir = TestDir::new();
    let before = dir.list();
    assert_eq!(before["local"], json!([]));
    let path = dir.root.path().join("mine.gguf");
    std::fs::write(&path, model()).unwrap();
    dir.works(&["config", "set", "model", "mine.gguf"]);
    let list = dir.list();
    assert_eq!(list["shipped"], before["shipped"]);
    let row = &list["local"][0];
    assert_eq!((&row["source"], &row["architecture"]), (&json!("file"), &json!("qwen3")));
    assert_eq!(row["path"], json!(path));
    let lines = dir.works(&["models", "list", "--local"]);
    let line = lines.lines().find(|line| line.contains("mine.gguf")).unwrap();
    assert!(line.contains("qwen3") && line.ends_with("the default model"), "{line}");
    // A model of the cache has one row.
    dir.hub.put(REPOSITORY, "tiny-Q4_K_M.gguf", &model());
    let pulled = dir.works(&["models", "pull", REPOSITORY]);
    dir.works(&["config", "set", "model", pulled.trim_end()]);
    assert_eq!(dir.list()["local"].as_array().unwrap().len(), 1);
}

#[test]
fn the_default_model_has_its_name_of_the_catalog() {
    let dir = TestDir::new();
    let name = "qwen2.5-coder-1.5b";
    let path = dir.root.path().join("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf");
    std::fs::write(&path, model()).unwrap();
    dir.works(&["config", "set", "model", path.to_str().unwrap()]);
    assert!(dir.works(&["models", "show", name]).contains("not on this machine"), "of another size");
    file_of_the_catalog(&path);
    let shown: Value = serde_json::from_str(&dir.works(&["models", "show", name, "--json"])).unwrap();
    assert_eq!((&shown["path"], &shown["architecture"]), (&json!(path), &json!("qwen3")));
    assert_eq!(dir.list()["local"][0]["catalog"], name);
    let lines = dir.works(&["models", "list"]);
    let line = lines.lines().find(|line| line.starts_with("qwen2.5-coder-1.5b ")).unwrap();
    assert!(line.ends_with("the default model"), "{line}");
}

#[test]
fn what_is_meant_by_a_name_that_is_none() {
    let dir = TestDir::new();
    let error = dir.fails(&["run", "-m", "qwen3", "x"], "there is no model file qwen3, did you mean ");
    assert!(error.contains("qwen3-4b, qwen3-8b") && error.contains("alara models pull NAME"), "{error}");
    dir.fails(
        &["run", "-m", "qwen3:4b", "x"],
        "Qwen3 4B (2.3 GiB) is not on this machine\nhint: alara models pull qwen3-4b",
    );
    dir.fails(&["models", "pull", "qwen3"], "did you mean qwen3-0.6b, qwen3-1.7b, qwen3-4b");
    // Ollama's spelling; the catalog's file is downloaded.
    let output = dir.alara(&["models", "pull", "qwen3:4b"]);
    let shown = String::from_utf8(output.stderr).unwrap();
    assert!(shown.starts_with("qwen3:4b is taken as qwen3-4b: Qwen3 4B, Qwen3-4B-Q4_K_M.gguf\n"), "{shown}");
    assert!(dir.hub.log().iter().any(|request| request.path.contains("Qwen3-4B-Q4_K_M.gguf")));
}

#[test]
fn a_model_that_is_not_here_is_shown_as_the_catalog_knows_it() {
    let dir = TestDir::new();
    for name in ["qwen2.5-coder-1.5b", "qwen2.5-coder:1.5b", "Qwen2.5-Coder-1.5B-Instruct"] {
        let shown = dir.works(&["models", "show", name]);
        for part in [
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf of Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF, not on this machine\n",
            "size            1.0 GiB\n",
            "quantization    Q4_K_M\n",
            "others: alara models pull hf:Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF:QUANT\n",
            "context         32768 tokens\n",
            "license         Apache-2.0\n",
            "get it          alara models pull qwen2.5-coder-1.5b\n",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
    let shown: Value = serde_json::from_str(&dir.works(&["models", "show", "qwen3-8b", "--json"])).unwrap();
    assert_eq!((&shown["path"], &shown["license"]), (&Value::Null, &json!("Apache-2.0")), "{shown}");
    // Data that only the file has requires the file, and nothing is downloaded for it.
    dir.fails(&["models", "show", "qwen3-8b", "--tensors"], "hint: alara models pull qwen3-8b");
    assert!(dir.hub.log().is_empty());
}

/// Without network access, the error explains how to get the model.
#[test]
fn a_model_gets_here_without_a_network() {
    let dir = TestDir::new();
    for (variable, value, words) in [
        ("HF_ENDPOINT", "http://127.0.0.1:1", "can't download from http://127.0.0.1:1/"),
        ("HF_HUB_OFFLINE", "1", "HF_HUB_OFFLINE forbids to download it"),
    ] {
        let mut command = dir.command(&["models", "pull", "qwen3-0.6b"]);
        command.env(variable, value);
        let error = fails(command, words);
        for part in [
            "copy Qwen3-0.6B-Q4_K_M.gguf of unsloth/Qwen3-0.6B-GGUF from another machine",
            "give its path to -m",
            "models--unsloth--Qwen3-0.6B-GGUF",
            "HF_HUB_OFFLINE=1",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    let mut command = dir.command(&["models", "pull", "qwen3-0.6b"]);
    fails(
        {
            command.env("HF_ENDPOINT", "http://127.0.0.1:1");
            command
        },
        "behind a proxy set HTTPS_PROXY",
    );
}

#[test]
fn a_model_outside_of_the_catalog_is_told_by_its_file() {
    let dir = TestDir::new();
    dir.hub.put(REPOSITORY, "tiny-Q4_K_M.gguf", &model());
    dir.works(&["models", "pull", "owner/tiny-GGUF"]);
    let list = dir.list();
    let local = &list["local"][0];
    assert_eq!((&local["architecture"], &local["quantization"]), (&json!("qwen3"), &json!("F32")), "{local}");
    assert!(local["parameters"].as_u64() > Some(0) && local["fits"].is_boolean(), "{local}");
    let table = dir.works(&["models", "list", "--local"]);
    let row = table.lines().find(|line| line.starts_with("owner/tiny-GGUF:")).unwrap();
    assert!(row.contains("qwen3") && row.contains("F32"), "{row}");
    // A report shows it too.
    dir.works(&[
        "bench",
        "tasks",
        "-m",
        "owner/tiny-GGUF",
        "--task",
        "git-01",
        "--attempts",
        "1",
        "--timeout",
        "1",
        "--out",
        "r.jsonl",
    ]);
    let report: Value = serde_json::from_str(&dir.works(&["report", "--json", "r.jsonl"])).unwrap();
    assert_eq!(report["models"][0][1]["family"], "qwen3", "{}", report["models"]);
    assert!(report["models"][0][1]["parameters"].as_f64() > Some(0.0), "{}", report["models"]);
}

/// The catalog's recommended sampling parameters are used for a model.
#[test]
fn recommended_sampling() {
    let dir = TestDir::new();
    std::fs::write(dir.root.path().join("Qwen3-4B-Q8_0.gguf"), model()).unwrap();
    let of = |more: &[&str]| {
        let trace = dir.root.path().join("t.jsonl");
        let _ = std::fs::remove_file(&trace);
        let line = ["run", "-m", "Qwen3-4B-Q8_0.gguf", "--workdir", ".", "--trace", "t.jsonl"];
        let mut command = dir.command(&[&line[..], more, &["say something about houses"]].concat());
        command.output().unwrap();
        let text = std::fs::read_to_string(trace).unwrap();
        let start: Value =
            serde_json::from_str(text.lines().find(|line| line.contains("\"sampling\"")).unwrap()).unwrap();
        let number = |name: &str| (start["sampling"][name].as_f64().unwrap() * 100.0).round() / 100.0;
        (number("temperature"), number("top_p"), number("top_k"))
    };
    assert_eq!(of(&["--calls", "free"]), (0.6, 0.95, 20.0));
    assert_eq!(of(&["--calls", "free", "--thinking", "off"]), (0.7, 0.8, 20.0));
    assert_eq!(of(&["--calls", "free", "--temperature", "0"]), (0.0, 0.95, 20.0));
    // A turn that consists only of a call is decoded greedily.
    assert_eq!(of(&["--calls", "forced"]), (0.0, 1.0, 0.0));
    let shown = dir.works(&["models", "show", "Qwen3-4B-Q8_0.gguf"]);
    assert!(
        shown.contains("sampling        temperature 0.6, top_p 0.95, top_k 20; with --thinking off "),
        "{shown}"
    );
    // The benchmark stays at temperature 0, and records it.
    dir.works(&[
        "bench",
        "tasks",
        "-m",
        "Qwen3-4B-Q8_0.gguf",
        "--task",
        "git-01",
        "--attempts",
        "1",
        "--timeout",
        "1",
        "--out",
        "r.jsonl",
    ]);
    let header = std::fs::read_to_string(dir.root.path().join("r.jsonl")).unwrap();
    let header: Value = serde_json::from_str(header.lines().next().unwrap()).unwrap();
    assert_eq!(header["sampling"]["temperature"], 0.0, "{header}");
}
