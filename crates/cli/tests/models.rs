//! `alara models list|pull|rm`, names after `-m`, and files that aren't models, with a hub on this
//! machine.

mod names;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use alara_engine::inspect::{TensorType, Writer};
use serde_json::{Value, json};

use crate::hub::{COMMIT, Fault, HubServer, Request};

/// A hub, and a home with an empty cache.
struct TestDir {
    hub: HubServer,
    root: tempfile::TempDir,
    home: tempfile::TempDir,
}

const REPOSITORY: &str = "owner/tiny-GGUF";

impl TestDir {
    fn new() -> TestDir {
        let root = tempfile::tempdir().unwrap();
        TestDir { hub: HubServer::start(), root, home: tempfile::tempdir().unwrap() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = crate::alara();
        for (name, _) in
            std::env::vars().filter(|(name, _)| name.starts_with("HF_") || name.ends_with("_PROXY"))
        {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .current_dir(self.root.path())
            .env("HOME", self.home.path())
            .env("HF_HUB_CACHE", self.cache())
            .env("HF_ENDPOINT", &self.hub.endpoint)
            .env("OLLAMA_MODELS", self.root.path().join("ollama"))
            .env("NO_PROXY", "127.0.0.1")
            .env_remove("XDG_CACHE_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn alara(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that succeeds; returns stdout.
    fn works(&self, arguments: &[&str]) -> String {
        let output = self.alara(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that fails; returns stderr.
    fn fails(&self, arguments: &[&str], words: &str) -> String {
        fails(self.command(arguments), words)
    }

    fn cache(&self) -> PathBuf {
        self.root.path().join("cache")
    }

    fn blobs(&self) -> Vec<String> {
        let folder = self.cache().join("models--owner--tiny-GGUF/blobs");
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn list(&self) -> Value {
        serde_json::from_str(&self.works(&["models", "list", "--json"])).unwrap()
    }

    /// Creates Ollama's folder with one model.
    fn ollama(&self, manifest: &str, bytes: &[u8]) -> PathBuf {
        use sha2::{Digest, Sha256};
        let folder = self.root.path().join("ollama");
        let digest = format!("{:x}", Sha256::digest(bytes));
        let manifest = folder.join("manifests").join(manifest);
        std::fs::create_dir_all(manifest.parent().unwrap()).unwrap();
        std::fs::create_dir_all(folder.join("blobs")).unwrap();
        std::fs::write(folder.join(format!("blobs/sha256-{digest}")), bytes).unwrap();
        let layer =
            json!({"mediaType": "application/vnd.ollama.image.model", "digest": format!("sha256:{digest}")});
        std::fs::write(manifest, json!({"layers": [layer]}).to_string()).unwrap();
        folder
    }
}

fn fails(mut command: Command, words: &str) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{command:?}: {error}");
    assert!(error.contains(words), "{error:?} lacks {words:?}");
    error
}

/// Returns a model that can be run.
fn model() -> Vec<u8> {
    std::fs::read(crate::root().join("tests/fixtures/arch/qwen3-exact/model.gguf")).unwrap()
}

fn ranges(log: &[Request]) -> Vec<Option<&str>> {
    log.iter().filter(|request| request.path.len() == 65).map(|request| request.range.as_deref()).collect()
}

#[test]
fn a_model_is_pulled_used_and_removed() {
    let dir = TestDir::new();
    let hash = dir.hub.put(REPOSITORY, "tiny-Q4_K_M.gguf", &model());
    dir.hub.put(REPOSITORY, "mmproj-F16.gguf", b"GGUF");
    let path = dir.works(&["models", "pull", "owner/tiny-GGUF"]);
    let expected = dir.cache().join(format!("models--owner--tiny-GGUF/snapshots/{COMMIT}/tiny-Q4_K_M.gguf"));
    assert_eq!(Path::new(path.trim_end()), expected);
    assert_eq!(std::fs::read(&expected).unwrap(), model());
    // In the layout of Hugging Face's own tools.
    let folder = dir.cache().join("models--owner--tiny-GGUF");
    assert_eq!(std::fs::read_link(&expected).unwrap(), PathBuf::from(format!("../../blobs/{hash}")));
    assert_eq!(std::fs::read_to_string(folder.join("refs/main")).unwrap(), COMMIT);
    assert_eq!(dir.blobs(), [hash.as_str()]);

    dir.hub.log();
    assert_eq!(dir.works(&["models", "pull", "hf.co/owner/tiny-GGUF:Q4_K_M"]), path);
    assert!(ranges(&dir.hub.log()).is_empty(), "it is here already");

    for name in ["owner/tiny-GGUF:tiny-Q4_K_M.gguf", "owner/tiny-GGUF", "hf.co/owner/tiny-GGUF:q4_k_m"] {
        assert!(dir.works(&["models", "show", name]).contains("tiny-Q4_K_M.gguf"), "{name}");
    }
    let list = dir.list();
    assert_eq!(list["local"][0]["name"], "owner/tiny-GGUF:tiny-Q4_K_M.gguf");
    assert_eq!(list["local"][0]["bytes"], model().len());
    assert!(dir.works(&["models", "list", "--local"]).contains("owner/tiny-GGUF:tiny-Q4_K_M.gguf"));

    dir.fails(&["models", "rm", "owner/tiny-GGUF"], "nothing is removed without a yes");
    assert_eq!(dir.blobs().len(), 1);
    let output = dir.alara(&["models", "rm", "--yes", "owner/tiny-GGUF"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("blobs/{hash}")), "{output:?}");
    assert!(!folder.exists());
    dir.fails(&["models", "rm", "--yes", "owner/tiny-GGUF"], "is not in the cache");
    dir.fails(&["models", "show", "owner/tiny-GGUF"], "hint: alara models pull owner/tiny-GGUF");
}

/// In the syntax of Ollama and llama.cpp for files on the hub.
#[test]
fn any_repository_of_the_hub() {
    let dir = TestDir::new();
    dir.hub.put(REPOSITORY, "tiny-Q5_K_M.gguf", &model());
    dir.hub.put(REPOSITORY, "tiny-Q8_0.gguf", &[&model()[..], b"x"].concat());
    dir.hub.put(REPOSITORY, "../tiny-Q4_K_M.gguf", b"GGUF");
    dir.hub.put(REPOSITORY, "mmproj-Q4_K_M.gguf", b"GGUF");
    // There is no Q4_K_M: the nearest one is used, with a note.
    let output = dir.alara(&["models", "pull", "hf:owner/tiny-GGUF"]);
    let (path, shown) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(path.ends_with(&format!("{COMMIT}/tiny-Q5_K_M.gguf\n")), "{path} {shown}");
    assert!(shown.contains("owner/tiny-GGUF has no Q4_K_M file; Q5_K_M is taken\n"), "{shown}");
    // After that, it needs no network.
    let used = |name: &str| {
        let mut command = dir.command(&["models", "show", name]);
        let output = command.env("HF_ENDPOINT", "http://127.0.0.1:1").output().unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    for name in [
        "hf:owner/tiny-GGUF",
        "hf:owner/tiny-GGUF:q5_k_m",
        "hf.co/owner/tiny-GGUF:latest",
        "hf://owner/tiny-GGUF",
    ] {
        let (works, text) = used(name);
        assert!(works && text.contains("tiny-Q5_K_M.gguf"), "{name}: {text}");
    }
    let (works, text) = used("hf:owner/tiny-GGUF:Q8_0");
    assert!(!works && text.contains("hint: alara models pull hf:owner/tiny-GGUF:Q8_0"), "{text}");
    dir.hub.log();
    let run = dir.alara(&["debug", "tokenize", "-m", "hf:owner/tiny-GGUF:Q5_K_M"]);
    assert!(dir.hub.log().is_empty() && run.status.success(), "{run:?}");

    dir.hub.put("owner/bare", "model.safetensors", b"{}");
    dir.hub.put("owner/two", "a-Q4_K_M.gguf", &model());
    dir.hub.put("owner/two", "b-Q4_K_M.gguf", &model());
    dir.hub.put("owner/gated", "a-Q4_K_M.gguf", &model());
    dir.hub.gate("owner/gated");
    for (name, words) in [
        ("hf:owner/none", "has no repository owner/none, or shows it to some accounts only"),
        ("hf:owner/gated", "owner/gated is gated"),
        ("hf:owner/gated:Q4_K_M", "set HF_TOKEN"),
        ("hf:owner/bare", "owner/bare has no GGUF file: it can't be run as it is"),
        ("hf:owner/tiny-GGUF:Q4_K_M", "has no Q4_K_M file; it has\n  tiny-Q5_K_M.gguf\n  tiny-Q8_0.gguf\n"),
        ("hf:owner/two", "more than one such file:\n  a-Q4_K_M.gguf\n  b-Q4_K_M.gguf\n"),
        ("hf:../tiny-GGUF", "is no repository"),
        ("hf:owner/tiny-GGUF:../tiny-Q4_K_M.gguf", "is no path inside"),
        ("hf:owner", "no repository"),
    ] {
        dir.fails(&["models", "pull", name], words);
    }
    assert!(!dir.root.path().join("tiny-Q4_K_M.gguf").exists());
    assert_eq!(dir.blobs().len(), 1);
}

#[test]
fn what_broke_off_goes_on() {
    let dir = TestDir::new();
    let hash = dir.hub.put(REPOSITORY, "a.gguf", &model());
    dir.hub.faults(&[Fault::Cut(1000), Fault::Status(503), Fault::Cut(500), Fault::Whole, Fault::Cut(0)]);
    dir.works(&["models", "pull", "owner/tiny-GGUF"]);
    let log = dir.hub.log();
    assert_eq!(ranges(&log), [None, Some("bytes=1000-"), Some("bytes=1000-"), Some("bytes=1500-")]);
    assert_eq!(dir.blobs(), [hash]);
    let path = dir.works(&["models", "pull", "owner/tiny-GGUF"]);
    assert_eq!(std::fs::read(path.trim_end()).unwrap(), model());
}

#[test]
fn a_hub_that_gives_up_leaves_what_came() {
    let dir = TestDir::new();
    let hash = dir.hub.put(REPOSITORY, "a.gguf", &model());
    dir.hub.faults(&[
        Fault::Cut(700),
        Fault::Cut(0),
        Fault::Cut(0),
        Fault::Status(500),
        Fault::Cut(0),
        Fault::Cut(0),
    ]);
    dir.fails(&["models", "pull", "owner/tiny-GGUF"], "try again later, which goes on where it stopped");
    assert_eq!(dir.blobs(), [format!("{hash}.incomplete")]);
    assert!(!dir.cache().join("models--owner--tiny-GGUF/snapshots").exists());
    dir.hub.faults(&[]);
    dir.hub.log();
    dir.works(&["models", "pull", "owner/tiny-GGUF"]);
    assert_eq!(ranges(&dir.hub.log()), [Some("bytes=700-")]);
    assert_eq!(dir.blobs(), [hash]);
}

#[test]
fn a_killed_download_goes_on() {
    let dir = TestDir::new();
    let hash = dir.hub.put(REPOSITORY, "a.gguf", &model());
    dir.hub.faults(&[Fault::Stall(2000)]);
    let mut child = dir.command(&["models", "pull", "owner/tiny-GGUF"]).spawn().unwrap();
    let partial = dir.cache().join(format!("models--owner--tiny-GGUF/blobs/{hash}.incomplete"));
    let begun = Instant::now();
    while partial.metadata().map_or(0, |about| about.len()) < 2000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing came");
        std::thread::sleep(Duration::from_millis(20));
    }
    dir.fails(&["models", "pull", "owner/tiny-GGUF"], "is being downloaded by another process");
    child.kill().unwrap();
    child.wait().unwrap();
    dir.hub.log();
    dir.works(&["models", "pull", "owner/tiny-GGUF"]);
    assert_eq!(ranges(&dir.hub.log()), [Some("bytes=2000-")]);
    assert_eq!(dir.blobs(), [hash]);
}

#[test]
fn an_interrupted_download_says_how_it_goes_on() {
    let dir = TestDir::new();
    let hash = dir.hub.put(REPOSITORY, "a.gguf", &model());
    dir.hub.faults(&[Fault::Stall(2000)]);
    let child = dir.command(&["models", "pull", "owner/tiny-GGUF"]).spawn().unwrap();
    let partial = dir.cache().join(format!("models--owner--tiny-GGUF/blobs/{hash}.incomplete"));
    let begun = Instant::now();
    while partial.metadata().map_or(0, |about| about.len()) < 2000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing came");
        std::thread::sleep(Duration::from_millis(20));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.ends_with("interrupted; the same command goes on where the download stopped\n"), "{told}");
    dir.hub.log();
    dir.works(&["models", "pull", "owner/tiny-GGUF"]);
    assert_eq!(ranges(&dir.hub.log()), [Some("bytes=2000-")]);
}

#[test]
fn damaged_bytes_are_no_model() {
    let dir = TestDir::new();
    let hash = dir.hub.put(REPOSITORY, "a.gguf", &model());
    dir.hub.faults(&[Fault::Wrong]);
    let error = dir.fails(&["models", "pull", "owner/tiny-GGUF"], "a.gguf is damaged: its SHA-256 is");
    assert!(error.contains(&hash), "{error}");
    assert_eq!(dir.blobs(), [""; 0]);
    dir.works(&["models", "pull", "owner/tiny-GGUF"]);
    assert_eq!(dir.blobs(), [hash]);
}

#[test]
fn refusals_are_told() {
    let dir = TestDir::new();
    dir.hub.put(REPOSITORY, "a.gguf", &model());
    dir.hub.put("owner/gated", "a.gguf", &model());
    dir.hub.gate("owner/gated");
    for (name, words) in [
        (
            "owner/gated:a.gguf",
            "owner/gated is gated: its owner gives it to those who agree to terms\nhint: agree at",
        ),
        ("owner/none:a.gguf", "has no repository owner/none, or shows it to some accounts only"),
        ("owner/tiny-GGUF:b.gguf", "owner/tiny-GGUF has no file b.gguf"),
        ("owner/tiny-GGUF:Q8_0", "has no Q8_0 file; it has\n  a.gguf"),
        ("https://huggingface.co/owner/tiny-GGUF/resolve/old/a.gguf", "has no revision old"),
        ("qwen9", "no repository OWNER/NAME\nhint: `alara models list` tells"),
        ("https://example.org/a.gguf", "is not on the hub"),
    ] {
        dir.fails(&["models", "pull", name], words);
    }
    assert!(!dir.cache().join("models--owner--gated").exists(), "nothing is left");

    // With a token it is available; the storage, another host, must not see the token.
    dir.hub.log();
    let mut command = dir.command(&["models", "pull", "owner/gated:a.gguf"]);
    assert!(command.env("HF_TOKEN", "hf_secret").status().unwrap().success());
    for request in dir.hub.log() {
        let own = request.path.starts_with("/owner/");
        assert_eq!(request.token.is_some(), own, "{request:?}");
    }

    let mut command = dir.command(&["models", "pull", "owner/tiny-GGUF"]);
    command.env("HF_ENDPOINT", "http://127.0.0.1:1");
    fails(command, "can't download from http://127.0.0.1:1/");
    let mut command = dir.command(&["models", "pull", "owner/tiny-GGUF"]);
    command.env("HF_HUB_OFFLINE", "1");
    fails(command, "HF_HUB_OFFLINE forbids to download it");
}

#[test]
fn a_hostile_hub_does_not_write_elsewhere() {
    let dir = TestDir::new();
    dir.hub.put(REPOSITORY, "a.gguf", &model());
    for etag in ["../../../evil", "/evil", ""] {
        dir.hub.lie(None, Some(etag));
        dir.fails(&["models", "pull", "owner/tiny-GGUF"], "answered what makes no sense: no proper ETag");
    }
    dir.hub.lie(Some(100), None);
    dir.fails(&["models", "pull", "owner/tiny-GGUF"], "more bytes were sent than the file has");
    assert!(!dir.cache().join("models--owner--tiny-GGUF/snapshots").exists());
}

#[test]
fn a_full_disk() {
    let dir = TestDir::new();
    let hash = dir.hub.put(REPOSITORY, "a.gguf", &model());
    dir.hub.lie(Some(1 << 60), None);
    let error = dir.fails(&["models", "pull", "owner/tiny-GGUF"], "1.0 EiB are to be downloaded, ");
    assert!(error.contains("are free\nhint: make room"), "{error}");
    assert!(ranges(&dir.hub.log()).is_empty(), "not a byte of it is asked for");
    assert_eq!(dir.blobs(), [""; 0]);

    if !cfg!(target_os = "linux") {
        eprintln!("skipped: this system has no /dev/full");
        return;
    }
    dir.hub.lie(None, None);
    let blobs = dir.cache().join("models--owner--tiny-GGUF/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("/dev/full", blobs.join(format!("{hash}.incomplete"))).unwrap();
    dir.fails(&["models", "pull", "owner/tiny-GGUF"], "is full: No space left on device");
    assert_eq!(dir.blobs(), [""; 0], "nothing is left on the full disk");
    dir.works(&["models", "pull", "owner/tiny-GGUF"]);
}

#[test]
fn all_parts_of_a_split_model() {
    let dir = TestDir::new();
    let part = |number: u16| {
        let mut part = Writer::new().meta("split.count", 2u16).meta("split.no", number);
        if number == 0 {
            part = part.meta("general.architecture", "qwen3");
        }
        part.tensor(&format!("blk.{number}.x"), &[1], TensorType::F32, [0; 4]).bytes().unwrap()
    };
    let names = [1, 2].map(|number| format!("Q8_0/m-Q8_0-{number:05}-of-00002.gguf"));
    for (number, name) in names.iter().enumerate() {
        dir.hub.put(REPOSITORY, name, &part(number as u16));
    }
    let path = dir.works(&["models", "pull", "owner/tiny-GGUF:Q8_0"]);
    assert!(path.ends_with("m-Q8_0-00001-of-00002.gguf\n"), "{path}");
    assert_eq!(dir.blobs().len(), 2);
    assert!(dir.works(&["models", "show", &format!("owner/tiny-GGUF:{}", names[1])]).contains("in 2 files"));
    assert_eq!(dir.list()["local"].as_array().unwrap().len(), 1);

    std::fs::remove_file(path.trim_end().replace("00001-of", "00002-of")).unwrap();
    dir.fails(&["models", "show", path.trim_end()], "part 2 of 2 of a split model is missing");
    assert_eq!(dir.list()["local"][0]["missing"], json!([names[1]]));
    assert!(dir.works(&["models", "list"]).contains("1 part missing"));
}

#[test]
fn the_catalog() {
    let dir = TestDir::new();
    let list = dir.list();
    let catalog = list["catalog"].as_array().unwrap();
    assert!(catalog.len() >= 22 && list["local"] == json!([]), "{list}");
    let table = dir.works(&["models", "list"]);
    assert!(table.contains("qwen3.5-35b-a3b") && table.contains("GPQA 75.2"), "{table}");
    // Reports what fits this machine, and one model to begin with.
    let memory = list["memory"].as_u64();
    let choices: Vec<&Value> = catalog.iter().filter(|entry| entry["choice"] == true).collect();
    assert!(choices.len() <= 1 && choices.iter().all(|entry| entry["fits"] == true), "{choices:?}");
    if let Some(memory) = memory.filter(|memory| *memory > 4 << 30) {
        assert_eq!(choices.len(), 1);
        let name = choices[0]["name"].as_str().unwrap();
        let shown = table.lines().find(|line| line.starts_with("to begin with, take ")).unwrap();
        assert!(shown.starts_with(&format!("to begin with, take {name}: the ")), "{shown}");
        assert_eq!(list["choice"]["name"], name);
        assert!(list["choice"]["why"].as_str().is_some_and(|why| shown.ends_with(why)), "{list}");
        assert!(
            table.lines().any(|line| line.starts_with("this machine: ") && line.contains("thread")),
            "{table}"
        );
        assert_eq!(table.lines().filter(|line| line.contains(" best ")).count(), 1, "{table}");
        let larger = catalog.iter().filter(|entry| entry["size"].as_u64() > Some(memory));
        assert!(larger.clone().all(|entry| entry["fits"] == false), "{memory}");
    }

    dir.fails(
        &["run", "-m", "qwen3-0.6b", "x"],
        "Qwen3 0.6B (378.3 MiB) is not on this machine\nhint: alara models pull qwen3-0.6b",
    );
    // The catalog's commit is gone from this hub, and `main` has another file.
    dir.hub.put("unsloth/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q4_K_M.gguf", &model());
    let error = dir.fails(&["models", "pull", "qwen3-0.6b"], "is not the file that the catalog means");
    assert!(
        error.contains("hint: `alara models pull unsloth/Qwen3-0.6B-GGUF:Qwen3-0.6B-Q4_K_M.gguf`"),
        "{error}"
    );
    // Remains of an unfinished download are listed, and removed with the model.
    let folder = dir.cache().join("models--unsloth--Qwen3-0.6B-GGUF");
    let partial = "ac2d97712095a558e31573f62f466a3f9d93990898b0ec79d7c974c1780d524a.incomplete";
    std::fs::create_dir_all(folder.join("blobs")).unwrap();
    std::fs::write(folder.join("blobs").join(partial), [0; 1024]).unwrap();
    assert!(dir.works(&["models", "list"]).contains("1.0 KiB of it"));
    dir.works(&["models", "rm", "-y", "qwen3-0.6b"]);
    assert!(!folder.exists());
    // Without a checksum in the catalog, the hub's own is used.
    let file = "OLMo-2-1124-13B-Instruct-Q4_K_M.gguf";
    dir.hub.put("bartowski/OLMo-2-1124-13B-Instruct-GGUF", file, &model());
    dir.works(&["models", "pull", "olmo2-13b"]);
    assert!(dir.works(&["models", "show", "olmo2:13b"]).contains(file));
    assert_eq!(dir.list()["local"][0]["catalog"], "olmo2-13b");
    assert!(dir.works(&["models", "list"]).contains("hub's cache"));
    dir.works(&["models", "rm", "-y", "olmo2-13b"]);
    assert_eq!(dir.list()["local"], json!([]));
}

#[test]
fn models_of_ollama() {
    let dir = TestDir::new();
    let folder = dir.ollama("registry.ollama.ai/library/qwen3/0.6b", &model());
    // By its name there, and by the catalog's.
    for name in ["qwen3:0.6b", "qwen3-0.6b"] {
        assert!(dir.works(&["models", "show", name]).contains("sha256-"), "{name}");
    }
    let list = dir.list();
    assert_eq!(
        (&list["local"][0]["source"], &list["local"][0]["catalog"]),
        (&json!("ollama"), &json!("qwen3-0.6b"))
    );
    dir.fails(&["models", "show", folder.to_str().unwrap()], "hint: -m qwen3:0.6b");
    for name in ["qwen3:0.6b", "qwen3-0.6b"] {
        dir.fails(
            &["models", "rm", "-y", name],
            "belongs to Ollama, which alara only reads\nhint: ollama rm",
        );
    }
    assert_eq!(std::fs::read_dir(folder.join("blobs")).unwrap().count(), 1);
}

#[test]
fn what_lies_beside_models_is_no_model() {
    let dir = TestDir::new();
    let file = |name: &str, writer: Writer| {
        std::fs::write(dir.root.path().join(name), writer.bytes().unwrap()).unwrap();
    };
    let of = |architecture: &str| Writer::new().meta("general.architecture", architecture);
    let tensor = |writer: Writer, name: &str| writer.tensor(name, &[1], TensorType::F32, [0; 4]);
    file("mmproj.gguf", tensor(of("clip").meta("general.type", "mmproj"), "v.patch_embd.weight"));
    file("lora.gguf", tensor(of("qwen3").meta("general.type", "adapter"), "blk.0.attn_q.weight.lora_a"));
    file("vocab.gguf", of("llama").meta("tokenizer.ggml.model", "gpt2"));
    for (name, words) in [
        ("mmproj.gguf", "is no language model but a projector for images or sound (mmproj)"),
        ("lora.gguf", "is no language model but a LoRA adapter"),
        ("vocab.gguf", "is no language model but a vocabulary without weights"),
    ] {
        dir.fails(&["run", "-m", name, "x"], words);
        dir.fails(&["bench", "tasks", "-m", name], words);
        // The contents of any file can be shown.
        assert!(dir.works(&["models", "show", name]).contains(words), "{name}");
    }
}

#[test]
fn a_gpu_that_is_not_here_can_be_asked_for() {
    let show = |more: &[&str]| {
        crate::alara().args(["models", "show", "--device", "cuda"]).args(more).output().unwrap()
    };
    let json = |more: &[&str]| -> serde_json::Value {
        let output = show(&[&["--json", "--gpu-memory"], more].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let placement = &json(&["8GB"])["placement"];
    assert_eq!(
        (&placement["gpu_memory"], &placement["device"]),
        (&8_000_000_000u64.into(), &"cuda:0".into())
    );
    assert_eq!(
        (&placement["gpu_layers"], &placement["host"]["kv"]),
        (&placement["layers"], &0.into()),
        "{placement}"
    );
    let one = &json(&["8", "--gpu-layers", "1"])["placement"];
    assert_eq!(one["gpu_layers"], 1, "{one}");
    assert!(one["host"]["kv"].as_u64() > Some(0) && one["gpu"]["kv"].as_u64() > Some(0), "{one}");
    let none = &json(&["0.001"])["placement"];
    let refusal = none["refusal"].as_str().unwrap();
    assert!(
        refusal.starts_with("on the GPU even one of the ") && refusal.contains("but 1.0 MiB can be had"),
        "{refusal}"
    );
    // As text, for people.
    let text = String::from_utf8(show(&["--gpu-memory", "8"]).stdout).unwrap();
    assert!(text.contains("\n  on cuda:0") && text.contains("\n  on the CPU"), "{text}");
    if !cfg!(feature = "cuda") {
        let shown = String::from_utf8(show(&[]).stderr).unwrap();
        let expected = "error: cuda:0 can't be used: this build computes on the CPU alone; the one that is called alara-cuda \
                        computes on NVIDIA's (docs/gpu.md)\nhint: with --gpu-memory GB a GPU can be asked for that is not here\n";
        assert_eq!(shown, expected);
    }
}
